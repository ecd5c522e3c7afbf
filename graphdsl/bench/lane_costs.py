"""Measures what parallel branches cost: the numbers of `graphdsl.plan.costs.Costs` that lanes are planned by.

``python -m graphdsl.bench.lane_costs FILE.json``, on a machine with a GPU, in a minute. Graphs are threaded onto lanes
by edges that are declared here, and not by the planner, so that what is found does not depend on what it believes.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import graphdsl as gd
from graphdsl.bench.kernel import spin
from graphdsl.bench.machine import facts
from graphdsl.bench.measure import QUICK, launched, no_collection, spread
from graphdsl.bench.shapes import Edges, node_name, random_dag

if TYPE_CHECKING:
    from graphdsl.declare.definition import Definition
    from graphdsl.declare.node import Node
    from graphdsl.run.graph_exec import GraphExec

_WHOLE_SECONDS = 75.0
_ROUNDS = 60
_ROUNDS_OF_WORK = 400  # of the kernel's loop, to find out what one takes


@dataclass(frozen=True)
class Load:
    """What each node does.

    Attributes
    ----------
    microseconds : float
        What each thread computes for; 0 for a kernel that ends at once.
    blocks, threads : int
        Of its grid.
    """

    microseconds: float
    blocks: int = 1
    threads: int = 32


@dataclass(frozen=True)
class Spec:
    """A graph to measure.

    Attributes
    ----------
    nodes : int
        How many kernels there are.
    edges : tuple of pairs of int
        Source and target of each edge.
    load : Load
        What each kernel does.
    first, last : str
        What one node does that is put before all kernels that have none before them, and one behind those that have
        none behind: ``"kernel"`` (that of all), ``"quick"`` (one that ends at once), ``"memset"``, ``"copy"``,
        ``"empty"``; nothing where there is no such node.
    inside : str
        What the kernels are inside of: ``"child"``, ``"if"``; the other two stay outside of it.
    """

    nodes: int
    edges: tuple[tuple[int, int], ...]
    load: Load
    first: str = ""
    last: str = ""
    inside: str = ""


def threaded(nodes: Sequence[int], lanes: int) -> Edges:
    """Chains of independent nodes, one after the other in turn.

    Examples
    --------
    >>> threaded(range(5), 2)
    [(0, 2), (1, 3), (2, 4)]
    """
    return [(nodes[at - lanes], nodes[at]) for at in range(lanes, len(nodes))]


def ladder(nodes: int, lanes: int, width: int) -> Edges:
    """Forks and joins one behind the other, each ``width`` wide."""
    edges: Edges = []
    for top in range(0, nodes - width - 1, width + 1):
        middle = range(top + 1, top + width + 1)
        edges += [(top, node) for node in middle[:lanes]] + threaded(middle, lanes)
        edges += [(node, top + width + 1) for node in middle[-lanes:]]
    return edges


def chains(nodes: int, lanes: int, load: Load, **more: Any) -> Spec:
    """Kernels with nothing between them, threaded onto lanes."""
    return Spec(nodes, tuple(threaded(range(nodes), lanes)), load, **more)


def both(kind: str) -> dict[str, str]:
    """The same node before all, and behind."""
    return {"first": kind, "last": kind}


def groups() -> Iterator[tuple[str, dict[str, Spec]]]:
    """What is compared, by name: graphs in turn, so that what changes on the machine meets all of them."""
    empty, short, long, longer = Load(0), Load(2), Load(10), Load(100)
    ends = ("memset", "quick", "copy", "kernel", "empty")
    yield (
        "512 kernels of 2 us",
        {f"{lanes} lanes": chains(512, lanes, short) for lanes in (24, 32, 48, 64, 128, 512)}
        | {f"{kind}, {n} lanes": chains(512, n, short, **both(kind)) for kind in ends for n in (32, 64, 128, 512)}
        | {f"first {kind}": chains(512, 512, short, first=kind) for kind in ends}
        | {f"last {kind}": chains(512, 512, short, last=kind) for kind in ends},
    )
    for load in (empty, long, longer):
        specs = {f"{lanes} lanes": chains(512, lanes, load) for lanes in (32, 64, 128, 512)}
        specs |= {f"memset, {lanes} lanes": chains(512, lanes, load, **both("memset")) for lanes in (32, 64, 128, 512)}
        yield f"512 kernels of {load.microseconds} us", specs
    for load in (empty, short):
        specs = {}
        for nodes in (4, 8, 16, 24, 32, 48, 64, 96, 128, 256):
            specs[f"{nodes} nodes"] = chains(nodes, nodes, load)
            specs[f"memset, {nodes} nodes"] = chains(nodes, nodes, load, **both("memset"))
            specs[f"quick, {nodes} nodes"] = chains(nodes, nodes, load, **both("quick"))
            specs[f"first memset, {nodes} nodes"] = chains(nodes, nodes, load, first="memset")
        yield f"kernels of {load.microseconds} us", specs
    random = Spec(1000, tuple(random_dag(1000)), short)
    for kinds in ({}, both("memset"), both("quick"), {"last": "memset"}, {"last": "quick"}):
        yield "random", {str(kinds): Spec(random.nodes, random.edges, short, **kinds)}
    big = Load(2, 1056, 256)
    yield (
        "128 grids that fill the device",
        {"none": chains(128, 128, big), "memset": chains(128, 128, big, **both("memset"))},
    )
    for inside in ("child", "if"):
        specs = {f"{lanes} lanes": chains(512, lanes, short, inside=inside) for lanes in (32, 128, 512)}
        specs["memset"] = chains(512, 512, short, inside=inside, **both("memset"))
        specs["rooted inside"] = Spec(514, tuple(ladder(514, 512, 512)), short, inside=inside)
        yield f"inside of {inside}", specs
    yield "ladder", {f"{lanes} lanes": Spec(456, tuple(ladder(456, lanes, 64)), short) for lanes in (16, 64)}


def build(spec: Spec, rounds: int) -> gd.Graph:
    """A graph of kernels, each of which counts its runs in an element of ``count``."""
    graph = gd.Graph()
    count = graph.device_array("count", spec.nodes, np.float32)
    first, last = _firsts_and_lasts(spec)
    if spec.inside == "child":
        inner = gd.Graph("inner")
        _fill(inner, spec, rounds, inner.device_array("count", spec.nodes, np.float32))
        outer: list[Node] = [graph.child(inner, {"count": count}, name="holder")]
        first = last = [0]
    elif spec.inside == "if":
        branch = graph.if_(graph.condition("yes", default=1), name="holder")
        _fill(branch.bodies[0], spec, rounds, count)
        outer, first, last = [branch], [0], [0]
    else:
        outer = _fill(graph, spec, rounds, count)
    ends = graph.device_array("ends", 4, np.float32)
    if spec.first:
        _ = _end(graph, spec, spec.first, "first", ends, rounds) >> [outer[index] for index in first]
    if spec.last:
        _ = [outer[index] for index in last] >> _end(graph, spec, spec.last, "last", ends[2:], rounds)
    return graph


def _fill(level: Definition, spec: Spec, rounds: int, count: Any) -> list[Node]:
    load = spec.load
    made: list[Node] = [
        level.kernel(
            spin,
            grid=load.blocks,
            block=load.threads,
            args=(count[index : index + 1], np.int32(rounds)),
            name=node_name(index),
        )
        for index in range(spec.nodes)
    ]
    for before, after in spec.edges:
        _ = made[before] >> made[after]
    return made


def _firsts_and_lasts(spec: Spec) -> tuple[list[int], list[int]]:
    """The kernels that have none before them, and those that have none behind."""
    every = set(range(spec.nodes))
    sources, targets = ({edge[end] for edge in spec.edges} for end in (0, 1))
    return sorted(every - targets), sorted(every - sources)


def _end(graph: gd.Graph, spec: Spec, kind: str, name: str, ends: Any, rounds: int) -> Node:
    if kind == "memset":
        return graph.memset(ends[0:1], 0, name=name)
    if kind == "copy":
        return graph.memcpy(ends[0:1], ends[1:2], name=name)
    if kind == "empty":
        return graph.empty(name=name)
    times = np.int32(0 if kind == "quick" else rounds)
    return graph.kernel(spin, grid=1, block=spec.load.threads, args=(ends[0:1], times), name=name)


def measure(path: Path) -> None:
    """Measure all groups, as far as time allows, and write them as JSON."""
    from graphdsl.bench.peers.gpu import DeviceClock, use_primary_context

    start = time.monotonic()
    use_primary_context()
    device = gd.cuda(0)
    found: list[dict[str, Any]] = []
    with DeviceClock() as clock:
        per_round, empty = _calibrated(device, clock)
        for group, specs in groups():
            if time.monotonic() - start > _WHOLE_SECONDS:
                break
            graphs = {name: build(spec, round(spec.load.microseconds / per_round)) for name, spec in specs.items()}
            for name, samples in _measured(device, clock, graphs).items():
                summed = {metric: asdict(spread(times)) for metric, times in samples.items()}
                spec = asdict(specs[name])
                found.append({"group": group, "name": name, **spec, "edges": len(spec["edges"]), **summed})
                medians = ", ".join(f"{metric} {summed[metric]['median']:.1f}" for metric in summed)
                print(f"{group}: {name}: {medians}", flush=True)
            head = {"machine": facts(), "us_a_round": per_round, "us_a_node_of_a_chain": empty}
            path.write_text(json.dumps({**head, "records": found}, indent=1), encoding="utf-8")


def _calibrated(device: Any, clock: Any) -> tuple[float, float]:
    """What a round of the kernel's loop takes, and an empty kernel in a chain, in microseconds."""
    times = []
    for rounds in (0, _ROUNDS_OF_WORK):
        with build(chains(100, 1, Load(0)), rounds).instantiate(device, lanes=None) as graph_exec:
            times.append(spread(clock.measure(graph_exec.launch, QUICK)).median / 100)
            graph_exec.synchronize()
    per_round = (times[1] - times[0]) / _ROUNDS_OF_WORK
    print(f"a round takes {per_round:.5f} us, an empty node of a chain {times[0]:.2f} us", flush=True)
    return per_round, times[0]


def _measured(device: Any, clock: Any, graphs: dict[str, gd.Graph]) -> dict[str, dict[str, list[float]]]:
    """All graphs of a group, in turn."""
    samples: dict[str, dict[str, list[float]]] = {name: {"api": [], "total": [], "gpu": []} for name in graphs}
    with ExitStack() as resources:
        execs = {}
        for name, graph in graphs.items():
            execs[name] = resources.enter_context(graph.instantiate(device, lanes=None))
            require_all_run(execs[name])
        with no_collection():
            for number in range(_ROUNDS):
                for name, graph_exec in execs.items():
                    api, total = launched(graph_exec.launch, graph_exec.synchronize)
                    if number >= 3:
                        samples[name]["api"].append(api)
                        samples[name]["total"].append(total)
            for name, graph_exec in execs.items():
                samples[name]["gpu"] += clock.measure(graph_exec.launch, QUICK)
                graph_exec.synchronize()
    return samples


def require_all_run(graph_exec: GraphExec) -> None:
    """Launch once, and make sure that each kernel has run.

    Raises
    ------
    RuntimeError
        If one has not: then no time that was measured means anything.
    """
    count = graph_exec["count"]
    count.copy_from_host(np.zeros(count.shape, np.float32))
    graph_exec.launch()
    graph_exec.synchronize()
    lost = int((count.copy_to_host() != 1).sum())
    if lost:
        raise RuntimeError(f"{lost} of {count.shape[0]} kernels did not run once")


if __name__ == "__main__":
    measure(Path(sys.argv[1]))
