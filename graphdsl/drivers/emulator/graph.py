"""Graphs and execs of the emulator: nodes, edges, and the orders in which nodes may run.

This module must not know what nodes do.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable
from typing import Any, Literal

from graphdsl.drivers.base import Handle
from graphdsl.drivers.emulator.nodes import NodeKind
from graphdsl.drivers.emulator.problems import Problem

Order = Literal["declared", "random", "reverse"]
"""Which topological order: ties by insertion, drawn anew for each launch, or ties by reverse insertion."""


class Node:
    """A node of a graph or of an exec.

    Attributes
    ----------
    handle : int
        The same in a graph and in its execs.
    kind : NodeKind
        What it does.
    params : object
        What it does it with, as its kind reads it.
    enabled : bool
        False if an exec skips it.
    """

    __slots__ = ("enabled", "handle", "kind", "params")

    def __init__(self, handle: Handle, kind: NodeKind, params: Any) -> None:
        self.handle = handle
        self.kind = kind
        self.params = params
        self.enabled = True


class Graph:
    """Nodes and edges.

    Attributes
    ----------
    nodes : dict
        Nodes by handle, in the order of insertion.
    successors : dict
        For each node the handles of those that come after it.
    alive : bool
        False once destroyed.
    """

    def __init__(self) -> None:
        self.nodes: dict[Handle, Node] = {}
        self.successors: dict[Handle, dict[Handle, None]] = {}
        self.alive = True

    def add(self, node: Node) -> None:
        """Add a node without edges."""
        self.nodes[node.handle] = node
        self.successors[node.handle] = {}

    def connect(self, source: Handle, target: Handle) -> None:
        """Add an edge."""
        for handle in (source, target):
            if handle not in self.nodes:
                raise Problem(f"node {handle:#x} is not of this graph")
        if source == target:
            raise Problem(f"an edge from node {source:#x} to itself")
        if target in self.successors[source]:
            raise Problem(f"there is an edge from node {source:#x} to node {target:#x} already")
        self.successors[source][target] = None


class Exec:
    """What a graph was when it was instantiated, ready to run.

    Attributes
    ----------
    source : Graph
        The graph, whose node handles address the nodes of the exec.
    nodes : dict
        Copies of its nodes by handle.
    """

    def __init__(self, source: Graph, order: Order, rng: random.Random) -> None:
        self.source = source
        self.nodes = {node.handle: Node(node.handle, node.kind, node.params) for node in source.nodes.values()}
        self._successors = {handle: tuple(after) for handle, after in source.successors.items()}
        self._rng = rng
        self._fixed = None if order == "random" else self._sorted(order)

    def node(self, handle: Handle) -> Node:
        """A node, which must be in the source graph still."""
        if handle not in self.nodes or not self.source.alive:
            raise Problem(
                f"node {handle:#x} is not of the graph that the exec was made from, or that graph was destroyed",
                remedy="Keep the graph as long as its execs are updated.",
            )
        return self.nodes[handle]

    def in_order(self) -> Iterable[Node]:
        """The nodes in the order in which they run this time."""
        handles = self._drawn() if self._fixed is None else self._fixed
        return [self.nodes[handle] for handle in handles]

    def _sorted(self, order: Order) -> list[Handle]:
        """Topological, ties by insertion or by reverse insertion."""
        sign = -1 if order == "reverse" else 1
        ranks = {handle: sign * index for index, handle in enumerate(self.nodes)}
        handles = list(self.nodes)
        ready: list[int] = []
        return self._topological(
            lambda handle: heapq.heappush(ready, ranks[handle]),
            lambda: handles[sign * heapq.heappop(ready)],
        )

    def _drawn(self) -> list[Handle]:
        """Topological, drawn at random."""
        ready: list[Handle] = []

        def take() -> Handle:
            place = self._rng.randrange(len(ready))
            ready[place], ready[-1] = ready[-1], ready[place]
            return ready.pop()

        return self._topological(ready.append, take)

    def _topological(self, offer: Callable[[Handle], Any], take: Callable[[], Handle]) -> list[Handle]:
        """All nodes, each after those before it; ``take`` chooses one of those that were offered."""
        missing = dict.fromkeys(self.nodes, 0)
        for targets in self._successors.values():
            for target in targets:
                missing[target] += 1
        for handle, count in missing.items():
            if not count:
                offer(handle)
        found: list[Handle] = []
        for _ in self.nodes:
            handle = take()
            found.append(handle)
            for target in self._successors[handle]:
                missing[target] -= 1
                if not missing[target]:
                    offer(target)
        return found


def node_in_cycle(graph: Graph) -> Handle | None:
    """A node of a cycle, the one whose edge closes it in a depth-first search by insertion; None if there is none."""
    finished: set[Handle] = set()
    for start in graph.nodes:
        path = {start: iter(graph.successors[start])}
        while path:
            handle, targets = next(reversed(path.items()))
            target = next((target for target in targets if target not in finished), None)
            if target is None:
                finished.add(handle)
                del path[handle]
            elif target in path:
                return handle
            else:
                path[target] = iter(graph.successors[target])
    return None
