"""Measures what parallel branches cost: the numbers of `graphdsl.plan.worth.Costs` that lanes are planned by.

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
from graphdsl.bench.shapes import Edges, node_name

if TYPE_CHECKING:
    from graphdsl.run.graph_exec import GraphExec

_WHOLE_SECONDS = 75.0
_BY_EMPTY = "by empty nodes"
_ROUNDS = 60
_ROUNDS_OF_WORK = 400  # of the kernel's loop, to find out what one takes


@dataclass(frozen=True)
class Load:
    """What each node does.

    Attributes
    ----------
    name : str
        What results call it.
    microseconds : float
        What each thread computes for; 0 for a kernel that ends at once.
    blocks, threads : int
        Of its grid.
    """

    name: str
    microseconds: float
    blocks: int = 1
    threads: int = 32


def threaded(nodes: Sequence[int], lanes: int) -> Edges:
    """Chains of independent nodes, one after the other in turn.

    Examples
    --------
    >>> threaded(range(5), 2)
    [(0, 2), (1, 3), (2, 4)]
    """
    return [(nodes[at - lanes], nodes[at]) for at in range(lanes, len(nodes))]


def independent(nodes: int, lanes: int) -> Edges:
    """Nodes with nothing between them."""
    return threaded(range(nodes), lanes)


def rooted(nodes: int, lanes: int) -> Edges:
    """One node before all others, and one behind."""
    return fan_out(nodes - 1, lanes) + [(node, nodes - 1) for node in range(nodes - 1 - lanes, nodes - 1)]


def fan_out(nodes: int, lanes: int) -> Edges:
    """One node before all others."""
    middle = range(1, nodes)
    return [(0, node) for node in middle[:lanes]] + threaded(middle, lanes)


def fan_in(nodes: int, lanes: int) -> Edges:
    """One node behind all others."""
    return independent(nodes - 1, lanes) + [(node, nodes - 1) for node in range(nodes - 1 - lanes, nodes - 1)]


def ladder(nodes: int, lanes: int, width: int) -> Edges:
    """Forks and joins one behind the other, each ``width`` wide."""
    edges: Edges = []
    for top in range(0, nodes - width - 1, width + 1):
        middle = range(top + 1, top + width + 1)
        edges += [(top, node) for node in middle[:lanes]] + threaded(middle, lanes)
        edges += [(node, top + width + 1) for node in middle[-lanes:]]
    return edges


def crossed(nodes: int, lanes: int, every: int) -> Edges:
    """Chains; every so many nodes one also waits for the chain beside its own."""
    chains = independent(nodes, lanes)
    return chains + [
        (node - lanes + 1 if node % lanes < lanes - 1 else node - 2 * lanes + 1, node)
        for node in range(2 * lanes, nodes, every)
        if lanes > 1
    ]


def groups() -> Iterator[tuple[str, int, Load, dict[str, Edges]]]:
    """What is measured: a shape, its nodes, what they do, and the edges of each width; the most telling first."""
    tiny, short, long = Load("empty", 0), Load("2 us", 2), Load("10 us", 10)
    widths = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 128, 256, 512)
    few = (1, 2, 4, 8, 16, 32, 64)
    wide = [Load("2 us, 132 blocks", 2, 132, 256), Load("2 us, 1056 blocks", 2, 1056, 256)]
    wide += [Load("10 us, 132 blocks", 10, 132, 256), Load("10 us, 1056 blocks", 10, 1056, 256)]
    for load in (short, tiny, long):
        yield "independent", 512, load, {str(lanes): independent(512, lanes) for lanes in widths}
    many = (8, 16, 32, 64, 128, 256, 512)
    for ends in ("", f" {_BY_EMPTY}"):
        yield f"rooted{ends}", 514, short, {str(lanes): rooted(514, lanes) for lanes in many}
        yield f"fan-out{ends}", 513, short, {str(lanes): fan_out(513, lanes) for lanes in many}
        yield f"fan-in{ends}", 513, short, {str(lanes): fan_in(513, lanes) for lanes in many}
    for load in (short, tiny):
        yield "independent", 64, load, {str(lanes): independent(64, lanes) for lanes in few}
        yield "rooted", 66, load, {str(lanes): rooted(66, lanes) for lanes in few}
        for width in (8, 64):
            lanes_of = [lanes for lanes in few if lanes <= width]
            nodes = 512 // (width + 1) * (width + 1) + 1
            yield f"ladder {width}", nodes, load, {str(lanes): ladder(nodes, lanes, width) for lanes in lanes_of}
        for every in (1, 4, 16):
            found = {str(lanes): crossed(512, lanes, every) for lanes in (4, 8, 32, 128)}
            yield f"crossed every {every}", 512, load, found
    for load in wide:
        yield "independent", 128, load, {str(lanes): independent(128, lanes) for lanes in (*few, 128)}
    for load in (short, tiny):
        yield "independent", 16, load, {str(lanes): independent(16, lanes) for lanes in (1, 2, 4, 8, 16)}
        yield "independent", 2048, load, {str(lanes): independent(2048, lanes) for lanes in (16, 32, 64, 128)}


def build(nodes: int, edges: Edges, load: Load, rounds: int, *, empty_ends: bool = False) -> gd.Graph:
    """A graph of kernels, each of which counts its runs in an element of ``count``.

    With ``empty_ends`` the one that all others are behind, and the one that is behind all, are empty nodes.
    """
    graph = gd.Graph()
    counts = graph.device_array("count", nodes, np.float32)
    first = set(range(nodes)) - {target for _, target in edges}
    last = set(range(nodes)) - {source for source, _ in edges}
    empty = set().union(*(end for end in (first, last) if len(end) == 1)) if empty_ends else set()
    made = [
        graph.empty(name=node_name(index))
        if index in empty
        else graph.kernel(
            spin,
            grid=load.blocks,
            block=load.threads,
            args=(counts[index : index + 1], np.int32(rounds)),
            name=node_name(index),
        )
        for index in range(nodes)
    ]
    for before, after in edges:
        _ = made[before] >> made[after]
    return graph


def measure(path: Path) -> None:
    """Measure all groups, as far as time allows, and write them as JSON."""
    from graphdsl.bench.peers.gpu import DeviceClock, use_primary_context

    start = time.monotonic()
    use_primary_context()
    device = gd.cuda(0)
    found: list[dict[str, Any]] = []
    with DeviceClock() as clock:
        per_round, empty = _calibrated(device, clock)
        for shape, nodes, load, widths in groups():
            if time.monotonic() - start > _WHOLE_SECONDS:
                break
            rounds = round(load.microseconds / per_round)
            graphs = {
                lanes: build(nodes, edges, load, rounds, empty_ends=shape.endswith(_BY_EMPTY))
                for lanes, edges in widths.items()
            }
            for lanes, samples in _measured(device, clock, graphs).items():
                summed = {metric: asdict(spread(times)) for metric, times in samples.items()}
                record = {"shape": shape, "nodes": nodes, "load": asdict(load), "lanes": int(lanes), **summed}
                found.append({**record, "edges": len(widths[lanes])})
                medians = ", ".join(f"{metric} {summed[metric]['median']:.1f}" for metric in summed)
                print(f"{shape} of {nodes}, {load.name}, {lanes} lanes: {medians}", flush=True)
            head = {"machine": facts(), "us_a_round": per_round, "us_a_node_of_a_chain": empty}
            path.write_text(json.dumps({**head, "records": found}, indent=1), encoding="utf-8")


def _calibrated(device: Any, clock: Any) -> tuple[float, float]:
    """What a round of the kernel's loop takes, and an empty kernel in a chain, in microseconds."""
    times = []
    for rounds in (0, _ROUNDS_OF_WORK):
        graph = build(100, independent(100, 1), Load("", 0), rounds)
        with graph.instantiate(device) as graph_exec:
            times.append(spread(clock.measure(graph_exec.launch, QUICK)).median / 100)
            graph_exec.synchronize()
    per_round = (times[1] - times[0]) / _ROUNDS_OF_WORK
    print(f"a round takes {per_round:.5f} us, an empty node of a chain {times[0]:.2f} us", flush=True)
    return per_round, times[0]


def _measured(device: Any, clock: Any, graphs: dict[str, gd.Graph]) -> dict[str, dict[str, list[float]]]:
    """All widths of a group, in turn, so that what changes on the machine meets all of them."""
    samples: dict[str, dict[str, list[float]]] = {lanes: {"api": [], "total": [], "gpu": []} for lanes in graphs}
    with ExitStack() as resources:
        execs = {}
        for lanes, graph in graphs.items():
            execs[lanes] = resources.enter_context(graph.instantiate(device))
            require_all_run(execs[lanes], sum(node.kind == "kernel" for node in graph.nodes))
        with no_collection():
            for number in range(_ROUNDS):
                for lanes, graph_exec in execs.items():
                    api, total = launched(graph_exec.launch, graph_exec.synchronize)
                    if number >= 3:
                        samples[lanes]["api"].append(api)
                        samples[lanes]["total"].append(total)
            for lanes, graph_exec in execs.items():
                samples[lanes]["gpu"] += clock.measure(graph_exec.launch, QUICK)
                graph_exec.synchronize()
    return samples


def require_all_run(graph_exec: GraphExec, kernels: int) -> None:
    """Launch once, and make sure that each of so many kernels has run.

    Raises
    ------
    RuntimeError
        If one has not: then no time that was measured means anything.
    """
    count = graph_exec["count"]
    count.copy_from_host(np.zeros(count.shape, np.float32))
    graph_exec.launch()
    graph_exec.synchronize()
    ran = int((count.copy_to_host() == 1).sum())
    if ran != kernels:
        raise RuntimeError(f"{ran} of {kernels} kernels ran once")


if __name__ == "__main__":
    measure(Path(sys.argv[1]))
