"""Says what a graph saves over launching its nodes one by one into a stream, and when it saves nothing.

An estimate, made of node durations and of what launches cost; nothing is run, and nothing is changed. This module must
not promise: the model leaves out that nodes which run side by side slow each other down.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import networkx as nx

from graphdsl.declare.definition import Definition
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import EmptyNode
from graphdsl.declare.store import Level
from graphdsl.plan.costs import Costs
from graphdsl.plan.durations import require_duration, require_durations
from graphdsl.plan.order import canonical_order

_NOTICEABLE = 0.05  # of the time of a run: less is lost in the noise of most machines
_NAMES_SHOWN = 6


@dataclass(frozen=True)
class Worth:
    """What a graph saves; printed, it says so in words. Times are in microseconds, for one run of all nodes.

    Attributes
    ----------
    name : str
        Name of the graph.
    nodes : int
        How many it has, with those inside of others.
    stream, graph : float
        From the start of the first launch to the end of the last node: launched one by one, and as a graph.
    stream_processor, graph_processor : float
        Processor time of the launches.
    work : float
        GPU time of all nodes, one after the other.
    path : float
        GPU time of the critical path: no order of execution is faster.
    critical_path : tuple of str
        The nodes on it, in order.
    build : float
        Processor time to make the graph, once.
    """

    name: str
    nodes: int
    stream: float
    graph: float
    stream_processor: float
    graph_processor: float
    work: float
    path: float
    critical_path: tuple[str, ...]
    build: float

    @property
    def saved(self) -> float:
        """What one run takes less as a graph; negative if it takes more."""
        return self.stream - self.graph

    @property
    def processor_saved(self) -> float:
        """Processor time that one run takes less as a graph."""
        return self.stream_processor - self.graph_processor

    @property
    def launch_bound(self) -> bool:
        """True if a stream run waits for launches more than for the GPU."""
        return self.stream_processor > self.work

    @property
    def worthwhile(self) -> bool:
        """True if a run becomes noticeably shorter."""
        return self.saved > _NOTICEABLE * self.stream

    @property
    def pays_back_after(self) -> int | None:
        """Number of runs that save what building the graph costs; None if they never do."""
        return math.ceil(self.build / self.saved) if self.worthwhile else None

    def __str__(self) -> str:
        lines = (
            f"graph {self.name!r}: {self.nodes} nodes",
            f"  launched one by one  {_time(self.stream)} a run, {_time(self.stream_processor)} of processor time",
            f"  launched as a graph  {_time(self.graph)} a run, {_time(self.graph_processor)} of processor time",
            f"  critical path        {_time(self.path)} of {_time(self.work)} of work: {_names(self.critical_path)}",
            self._verdict(),
        )
        return "\n".join(lines)

    def _verdict(self) -> str:
        if self.worthwhile:
            cause = "launches set the pace" if self.launch_bound else "nodes can run side by side"
            return (
                f"The graph is worth it: {cause}, and it saves {_time(self.saved)} a run "
                f"({self.stream / self.graph:.1f} times faster). It has paid for its building after "
                f"{self.pays_back_after} run{'s' if self.pays_back_after != 1 else ''}."
            )
        if not self.nodes:
            return "The graph saves nothing: it is empty."
        if self.saved < 0:
            launch = _time(self.graph_processor)
            return f"The graph costs {_time(-self.saved)} a run: its launch alone takes {launch} of processor time."
        freed = _time(self.processor_saved)
        return (
            f"The graph saves no time: the GPU is the bottleneck either way. It frees {freed} of processor time a run."
        )


def worth_it(
    definition: Definition,
    durations: Mapping[str, float] | None = None,
    *,
    default: float = 2.0,
    costs: Costs | None = None,
) -> Worth:
    """Estimate what a graph saves over launching its nodes one by one into one stream.

    Parameters
    ----------
    definition : Definition
        One that has passed its checks.
    durations : dict of str to float, optional
        GPU time of nodes in microseconds, by name: estimated, or taken from a profiler. A node that holds others takes
        what they take; of a conditional node that is the longest body, once, unless its own name is here.
    default : float
        GPU time of the nodes that ``durations`` does not name, in microseconds. Empty nodes take none.
    costs : Costs, optional
        What launches cost; by default Numba's stream launches and graph launches, as measured on an H200.

    Returns
    -------
    Worth

    Raises
    ------
    DeclarationError
        If a name is unknown, or a duration is no time.

    Examples
    --------
    >>> graph = Definition("pipeline")
    >>> with graph.sequence():
    ...     nodes = [graph.kernel(lambda: None, grid=1, block=32, name=f"step{i}") for i in range(3)]
    >>> print(worth_it(graph, default=5.0))
    graph 'pipeline': 3 nodes
      launched one by one  103 µs a run, 97.5 µs of processor time
      launched as a graph  18.5 µs a run, 2.01 µs of processor time
      critical path        16.5 µs of 16.5 µs of work: step0 -> step1 -> step2
    The graph is worth it: launches set the pace, and it saves 84.5 µs a run (5.6 times faster). It has paid for its \
building after 1 run.
    >>> worth_it(graph, {"step1": 20_000.0}).worthwhile
    False
    """
    costs = costs or Costs()
    durations = durations or {}
    require_durations(definition, durations)
    measured = _Measure(durations, default, costs).level(definition)
    nodes = len(definition.all_nodes)
    processor = costs.launch(nodes, *_branches(definition.dag))
    return Worth(
        name=definition.name,
        nodes=nodes,
        stream=_stream_time(measured.steps),
        graph=processor + measured.path,
        stream_processor=sum(launch for launch, _ in measured.steps),
        graph_processor=processor,
        work=measured.work,
        path=measured.path,
        critical_path=measured.names,
        build=costs.build_node * nodes,
    )


class _Measured(NamedTuple):
    """What a node takes, or a level: processor and GPU time of each launch, all work, and the longest path."""

    steps: Sequence[tuple[float, float]] = ()
    work: float = 0.0
    path: float = 0.0
    names: tuple[str, ...] = ()


class _Measure:
    """How long nodes take: as given, by default, or what is inside of them."""

    def __init__(self, given: Mapping[str, float], default: float, costs: Costs) -> None:
        self._given = given
        self._default = default
        self._costs = costs

    def level(self, level: Level) -> _Measured:
        """A graph or a body, its nodes in canonical order."""
        measured: dict[str, _Measured] = {}
        ends: dict[str, float] = {}
        before: dict[str, str | None] = {}
        for name in canonical_order(level.dag):
            measured[name] = self._node(level.dag.nodes[name]["node"])
            before[name] = max(level.dag.predecessors(name), key=ends.__getitem__, default=None)
            last = before[name]
            ends[name] = measured[name].path + (0.0 if last is None else ends[last])
        names: list[str] = []
        at = max(ends, key=ends.__getitem__, default=None)
        while at is not None:
            names += reversed(measured[at].names)
            at = before[at]
        return _Measured(
            [step for each in measured.values() for step in each.steps],
            sum(each.work for each in measured.values()),
            max(ends.values(), default=0.0),
            tuple(reversed(names)),
        )

    def _node(self, node: Node) -> _Measured:
        inside = max(map(self.level, node.bodies), key=lambda body: body.path, default=None)
        if inside is not None and node.name not in self._given:
            return inside if inside.names else _Measured(names=(node.name,))
        empty = isinstance(node, EmptyNode)
        duration = self._given.get(node.name, 0.0 if empty else self._default)
        require_duration(duration, node.name, "durations" if node.name in self._given else "default")
        time = duration + self._costs.node_gap
        launches = [0.0 if empty else self._costs.stream_launch]
        if inside is not None:  # launched as they are, and as long as was said
            launches = [launch for launch, _ in inside.steps] or [0.0]
        steps = [(launch, 0.0) for launch in launches[:-1]] + [(launches[-1], 0.0 if empty else time)]
        return _Measured(steps, time, time, (node.name,))


def _stream_time(steps: Iterable[tuple[float, float]]) -> float:
    """When the last node ends: each begins once it is launched and the one before it has ended."""
    launched = ended = 0.0
    for launch, time in steps:
        launched += launch
        ended = max(ended, launched) + time
    return ended


def _branches(dag: nx.DiGraph[str]) -> tuple[int, int]:
    """How many nodes have none before them, and how many none behind."""
    return sum(not count for _, count in dag.in_degree()), sum(not count for _, count in dag.out_degree())


def _names(path: tuple[str, ...]) -> str:
    shown = path if len(path) <= _NAMES_SHOWN else (*path[:3], "...", *path[-2:])
    return " -> ".join(shown) or "none"


def _time(microseconds: float) -> str:
    """A time in the unit that suits it.

    Examples
    --------
    >>> _time(2.0), _time(32_500)
    ('2 µs', '32.5 ms')
    """
    factor, unit = (1e-6, "s") if microseconds >= 1e6 else (1e-3, "ms") if microseconds >= 1e4 else (1.0, "µs")
    return f"{microseconds * factor:.3g} {unit}"
