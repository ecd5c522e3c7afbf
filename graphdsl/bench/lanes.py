"""What lanes do to launches: the same graphs as declared, as planned, and threaded onto numbers of lanes.

``graphdsl bench lanes``. Each graph is launched in turn in all of these ways, so that what changes on the machine meets
all of them; a record has the way in the place of a library. This module must not plan anything itself.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import graphdsl as gd
from graphdsl.bench.kernel import chase, spin
from graphdsl.bench.lane_costs import require_all_run
from graphdsl.bench.machine import facts
from graphdsl.bench.measure import QUICK, Samples, launched, no_collection, spread
from graphdsl.bench.records import Case, Record, Results, records
from graphdsl.bench.shapes import chain, diamond, node_name, random_dag

if TYPE_CHECKING:
    from graphdsl.declare.store import Level
    from graphdsl.drivers.base import Driver
    from graphdsl.run.graph_exec import GraphExec

WAYS: dict[str, int | str | None] = {
    "as declared": None,
    "as declared, again": None,
    "auto": "auto",
    **{f"{width} lanes": width for width in (4, 8, 16, 32, 64)},
}
"""What ``lanes=`` is, by what results call it; two execs of one graph show what the rest of a difference is."""

NONE, AGAIN, AUTO = "as declared", "as declared, again", "auto"

_WHOLE_SECONDS = 150.0
_ROUNDS, _BURST = 30, 4  # launches in a row: the first finds nothing in the caches of the processor
_SPUN = 400  # rounds of the kernel `spin` by which its speed is found


@dataclass(frozen=True)
class Load:
    """What each kernel does.

    Attributes
    ----------
    name : str
        What results call it.
    microseconds : float or None
        How long each thread computes, in a loop; None for `chase`, which has none.
    blocks, threads : int
        Of its grid.
    told : bool
        Whether the planner is given the durations of kernels that loop.
    """

    name: str
    microseconds: float | None = None
    blocks: int = 1
    threads: int = 32
    told: bool = False


SHORT = Load("2 µs")
SPUN = Load("2 µs in a loop", 2)
TOLD = Load("2 µs in a loop, told", 2, told=True)
LONG = Load("10 µs in a loop, told", 10, told=True)
LONGER = Load("100 µs in a loop", 100)
WHOLE = Load("2 µs on every multiprocessor", blocks=132, threads=256)
FULL = Load("2 µs on the full device", blocks=1056, threads=256)


def independent(nodes: int) -> Iterator[tuple[int, int]]:
    """No edges."""
    yield from ()


def dense(nodes: int) -> Iterator[tuple[int, int]]:
    """Each node after up to eight of the 64 before it."""
    draw = random.Random(_SEED)
    for node in range(1, nodes):
        near = range(max(node - 64, 0), node)
        yield from ((before, node) for before in sorted(draw.sample(near, min(8, len(near)))))


def forked(nodes: int, width: int) -> Iterator[tuple[int, int]]:
    """Forks of so many nodes and joins, one behind the other; the last may be incomplete.

    Examples
    --------
    >>> list(forked(5, 2))
    [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)]
    """
    for top in range(0, nodes - 1, width + 1):
        middle = range(top + 1, min(top + width + 1, nodes))
        yield from ((top, node) for node in middle)
        if middle.stop < nodes:
            yield from ((node, middle.stop) for node in middle)


_SEED = 20_261


@dataclass(frozen=True)
class Measured:
    """A graph to measure.

    Attributes
    ----------
    name : str
        What results call it.
    nodes : int
        How many kernels it has.
    edges : callable
        Gives its edges, by the number of nodes.
    load : Load
        What each kernel does.
    inside : str
        What the kernels are inside of: ``"child"`` or ``"if"``; nothing by default.
    """

    name: str
    nodes: int
    edges: Callable[[int], Iterator[tuple[int, int]]]
    load: Load = field(default=SHORT)
    inside: str = ""

    @property
    def case(self) -> Case:
        """What its records are of."""
        return Case(f"{self.name}: {self.load.name}", self.nodes)


def measured() -> list[Measured]:
    """The graphs that are measured; the most telling first."""
    many = [Measured("independent", 512, independent, load) for load in (SHORT, TOLD, SPUN, LONG, LONGER, WHOLE, FULL)]
    few = [Measured("independent", nodes, independent) for nodes in (4, 8, 16, 32, 64, 128, 256, 2048)]
    forks = [Measured(f"forks of {width}", 512, partial(forked, width=width)) for width in (8, 64)]
    shapes = {"chain": chain, "diamonds": diamond, "sparse random": random_dag, "dense random": dense}
    others = [Measured(name, nodes, shape) for name, shape in shapes.items() for nodes in (64, 512)]
    inside = [Measured(f"inside of {what}", 512, independent, inside=what) for what in ("child", "if")]
    return [*many, *others, *forks, *inside, *few]


def build(what: Measured, rounds_a_microsecond: float) -> gd.Graph:
    """The graph; ``count`` has an element for each kernel, which counts its runs."""
    graph = gd.Graph(what.name)
    count = graph.device_array("count", what.nodes, np.float32)
    following = graph.device_array("following", 256, np.int32)
    if what.inside == "child":
        inner = gd.Graph("inner")
        inner_count = inner.device_array("count", what.nodes, np.float32)
        _fill(inner, what, inner_count, inner.device_array("following", 256, np.int32), rounds_a_microsecond)
        graph.child(inner, {"count": count, "following": following}, name="inside")
    elif what.inside == "if":
        body = graph.if_(graph.condition("yes", default=1), name="inside").bodies[0]
        _fill(body, what, count, following, rounds_a_microsecond)
    else:
        _fill(graph, what, count, following, rounds_a_microsecond)
    return graph


def _fill(level: Level, what: Measured, count: Any, following: Any, rounds_a_microsecond: float) -> None:
    load = what.load
    rounds = np.int32(round((load.microseconds or 0) * rounds_a_microsecond))
    kernel = chase if load.microseconds is None else spin
    made = [
        level.kernel(  # type: ignore[attr-defined]
            kernel,
            grid=load.blocks,
            block=load.threads,
            args=(following, count[at : at + 1]) if load.microseconds is None else (count[at : at + 1], rounds),
            name=node_name(at),
        )
        for at in range(what.nodes)
    ]
    for before, after in what.edges(what.nodes):
        _ = made[before] >> made[after]


def durations(what: Measured, graph: gd.Graph) -> dict[str, float] | None:
    """What the planner is told."""
    load = what.load
    if not load.told or load.microseconds is None:
        return None
    return {node.name: load.microseconds for node in graph.all_nodes if node.kind == "kernel"}


def run(progress: Callable[[str], None] = lambda text: None) -> Results:
    """Measure all graphs in all ways, as far as time allows.

    Parameters
    ----------
    progress : callable
        Told what is measured next.
    """
    from graphdsl.bench.peers.gpu import DeviceClock, use_primary_context

    start = time.monotonic()
    use_primary_context()
    device = gd.cuda(0)
    found: list[Record] = []
    absent: dict[str, str] = {}
    with DeviceClock() as clock:
        rounds = _rounds_a_microsecond(device, clock)
        for what in measured():
            if time.monotonic() - start > _WHOLE_SECONDS:
                absent[str(what.case)] = "the time of the whole run was over"
                continue
            progress(f"{what.case.shape}, {what.nodes} kernels")
            graph = build(what, rounds)
            ways = {way: {"lanes": lanes, "durations": durations(what, graph)} for way, lanes in WAYS.items()}
            for way, samples in compared(device, clock, graph, ways, filled).items():
                found += records(way, what.case, samples)
        progress("the example's graph")
        found += [record for way, samples in _example(device, clock) for record in records(way, EXAMPLE, samples)]
    return Results(facts(), tuple(found), absent)


EXAMPLE = Case("the heartbeats of the example", 13)


def _example(device: Driver, clock: Any) -> Iterator[tuple[str, Samples]]:
    """The graph of docs/examples/ecg.py, where that is at hand."""
    import sys
    from pathlib import Path

    folder = Path(__file__).parents[2] / "docs" / "examples"
    if not (folder / "ecg.py").exists():
        return
    sys.path.insert(0, str(folder))
    try:
        import ecg  # type: ignore[import-not-found]
    except ImportError:  # what it reads its record with is not installed
        return
    finally:
        sys.path.remove(str(folder))
    yield from compared(device, clock, ecg.build(), {way: {"lanes": lanes} for way, lanes in WAYS.items()}).items()


def compared(
    device: Driver,
    clock: Any,
    graph: gd.Graph,
    ways: Mapping[str, Mapping[str, Any]],
    prepare: Callable[[GraphExec], None] = lambda graph_exec: None,
) -> dict[str, Samples]:
    """Launch a graph in some ways, in turn.

    Returns
    -------
    dict of str to dict of str to list of float
        ``repeat_launch_api``, ``repeat_launch_total`` and ``repeat_launch_device`` of each way, in microseconds.
    """
    samples: dict[str, Samples] = {}
    with ExitStack() as resources:
        execs = {way: resources.enter_context(graph.instantiate(device, **how)) for way, how in ways.items()}
        for way, graph_exec in execs.items():
            prepare(graph_exec)
            samples[way] = {"repeat_launch_api": [], "repeat_launch_total": []}
        with no_collection():
            for _ in range(_ROUNDS):
                for way, graph_exec in execs.items():
                    for number in range(_BURST):
                        api, total = launched(graph_exec.launch, graph_exec.synchronize)
                        if number:
                            samples[way]["repeat_launch_api"].append(api)
                            samples[way]["repeat_launch_total"].append(total)
            for way, graph_exec in execs.items():
                samples[way]["repeat_launch_device"] = clock.measure(graph_exec.launch, QUICK)
                graph_exec.synchronize()
    return samples


def _rounds_a_microsecond(device: Driver, clock: Any) -> float:
    """How many rounds of its loop the kernel `spin` makes in a microsecond."""
    times = []
    for microseconds in (0, _SPUN):
        graph = build(Measured("spin", 100, chain, Load("", microseconds)), 1.0)
        with graph.instantiate(device, lanes=None) as graph_exec:
            times.append(spread(clock.measure(graph_exec.launch, QUICK)).median / 100)
            graph_exec.synchronize()
    return _SPUN / (times[1] - times[0])


def filled(graph_exec: GraphExec) -> None:
    """Fill the memory of a graph, and make sure that each kernel runs."""
    following = graph_exec["following"]
    following.copy_from_host(np.random.default_rng(_SEED).permutation(following.shape[0]).astype(np.int32) % 32)
    require_all_run(graph_exec)
