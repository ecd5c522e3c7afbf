"""graphdsl itself, used as its users do: declared, instantiated, launched, and updated by name."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

import graphdsl as gd
from graphdsl.bench.fractions import fractions
from graphdsl.bench.measure import Action, Samples, around, every_call, flatness, no_collection
from graphdsl.bench.peers import Setting
from graphdsl.bench.peers.built import Built, measure_built
from graphdsl.bench.records import Case
from graphdsl.bench.shapes import ELEMENTS, THREADS, node_name, shape
from graphdsl.bench.stages import stages

if TYPE_CHECKING:
    from graphdsl.drivers.base import Driver
    from graphdsl.run.graph_exec import GraphExec

_MOST_LAUNCHED = 10_000  # nodes; of larger graphs only the building is measured
_MOST_EMULATED = 1_000  # nodes; the emulator says nothing about the speed of a driver
_UPDATES = (100, 10_000, 40_000)  # after how many updates of one exec a further one is looked at
_MANY = 1_000_000


def unavailable() -> str | None:
    """Always there: where there is no GPU, what needs none is measured."""
    return None


def measure(case: Case, setting: Setting) -> Samples:
    """Measure one graph: building it in stages, and where there is a GPU, launches and updates."""
    budget = setting.budget(case)
    if not setting.has_gpu:
        return stages(case, gd.emulator(), budget) if case.nodes <= _MOST_EMULATED else {}
    device = gd.cuda(0)
    found = stages(case, device, budget)
    if case.nodes <= _MOST_LAUNCHED:
        graph = shape(*case)
        found.update(measure_built(lambda: _built(graph, device), case, setting))
    return found


def extras(setting: Setting) -> Iterator[tuple[Case, Samples]]:
    """Very many updates of one exec, and the ways to change a part of a graph."""
    if not setting.has_gpu:
        return
    device, case = gd.cuda(0), Case("chain", 1)
    with shape(*case).instantiate(device) as graph_exec, no_collection():
        times = every_call(_update_gain(graph_exec), _UPDATES[-1] + 50)
    yield case, {f"update_at_{at}": around(times, at) for at in _UPDATES}
    with shape(*case).instantiate(device) as graph_exec:
        flat = flatness(_update_gain(graph_exec), _MANY // 100 if setting.quick else _MANY)
    yield case, {f"update_flat_{name}": samples for name, samples in flat.items()}
    yield from fractions(device, setting)


def _built(graph: gd.Graph, device: Driver) -> Built:
    graph_exec = graph.instantiate(device)
    x, expected = graph_exec["x"], float(len(graph))
    x.copy_from_host(np.zeros(ELEMENTS, np.float32))

    def require_result() -> None:
        found = float(x.copy_to_host()[0])
        if found != expected:
            raise RuntimeError(f"the graph was launched and gave {found}, and should have given {expected}")

    return Built(
        launch=graph_exec.launch,
        synchronize=graph_exec.synchronize,
        launch_on=graph_exec.launch,
        updates={  # the last takes its node away from the param
            "update": _update_gain(graph_exec),
            "update_grid": _update_grid(graph_exec),
            "node_update": _update_node(graph_exec, node_name(0)),
        },
        require_result=require_result,
        close=graph_exec.close,
    )


def _update_gain(graph_exec: GraphExec) -> Action:
    """Changes an argument of every node."""
    gains = itertools.cycle((2.0, 1.0))
    return lambda: graph_exec.update(gain=next(gains))


def _update_grid(graph_exec: GraphExec) -> Action:
    """Changes an argument and the grid of every node."""
    counts = itertools.cycle((ELEMENTS, THREADS))
    return lambda: graph_exec.update(n=next(counts))


def _update_node(graph_exec: GraphExec, name: str) -> Action:
    """Changes an argument of one node."""
    gains = itertools.cycle((2.0, 1.0))
    return lambda: graph_exec.node(name).update(args={"gain": next(gains)})
