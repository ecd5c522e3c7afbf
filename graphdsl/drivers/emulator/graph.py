"""Graphs and execs of the emulator: nodes and edges.

This module must not know what nodes do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graphdsl.drivers.base import Handle
from graphdsl.drivers.emulator.memory import Region
from graphdsl.drivers.emulator.nodes import NodeKind
from graphdsl.drivers.emulator.problems import Problem
from graphdsl.drivers.structs import EDGE_TYPE_PROGRAMMATIC

if TYPE_CHECKING:
    from graphdsl.drivers.emulator.in_flight import Launch
    from graphdsl.drivers.emulator.sharing import Shared
from graphdsl.drivers.emulator.tenants import Tenancy

_EDGES = {(0, 0), (1, 1), (2, 0), (2, 1)}
"""Port and type that go together: full, programmatic, and the launch order, of either type."""


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
    given : bytes
        The struct that it was made from; empty where nobody can ask for it.
    enabled : bool
        False if an exec skips it.
    shown : object
        What keeps the parameters of a kernel in place that somebody has asked for.
    """

    __slots__ = ("enabled", "given", "handle", "kind", "params", "shown")

    def __init__(self, handle: Handle, kind: NodeKind, params: Any, given: bytes = b"") -> None:
        self.handle = handle
        self.kind = kind
        self.params = params
        self.given = given
        self.enabled = True
        self.shown: Any = None


class Graph:
    """Nodes and edges.

    Attributes
    ----------
    nodes : dict
        Nodes by handle, in the order of insertion.
    successors : dict
        For each node those that come after it: the bytes of the edge's data by their handles.
    dependencies : dict
        For each node those that it comes after, in the order in which the edges were added; the same bytes.
    inner : dict
        Graphs inside of a node, by its handle.
    root : Graph
        The graph that this one is inside of; the graph itself, if it is in none.
    conditions : dict
        Conditions that were made for the graph and those inside, by handle; the root has all of them.
    allocations : list of Region
        What its alloc nodes allocate, those inside too; the root has all of them.
    execs : int
        How many execs there are of it.
    alive : bool
        False once destroyed.
    """

    def __init__(self, root: Graph | None = None) -> None:
        self.root = self if root is None else root
        self.execs = 0
        self.allocations: list[Region] = []
        self.nodes: dict[Handle, Node] = {}
        self.successors: dict[Handle, dict[Handle, bytes]] = {}
        self.dependencies: dict[Handle, dict[Handle, bytes]] = {}
        self.inner: dict[Handle, tuple[Graph, ...]] = {}
        self.conditions: dict[Handle, Condition] = {}
        self.alive = True

    def destroy(self) -> None:
        """Drop what nodes refer to; execs have copies of their own."""
        self.alive = False
        for table in (self.nodes, self.successors, self.dependencies, self.inner):
            table.clear()

    def add(self, node: Node) -> None:
        """Add a node without edges."""
        self.nodes[node.handle] = node
        self.successors[node.handle] = {}
        self.dependencies[node.handle] = {}

    @property
    def has_conditions(self) -> bool:
        """True if it holds conditional nodes, at any depth."""
        return any(node.kind.name == "conditional" for node in self.nodes.values()) or any(
            graph.has_conditions for graphs in self.inner.values() for graph in graphs
        )

    def move(self, root: Graph) -> None:
        """Become a part of another graph."""
        root.allocations += self.allocations
        self._under(root)

    def _under(self, root: Graph) -> None:
        self.root = root
        for graphs in self.inner.values():
            for graph in graphs:
                graph._under(root)

    def clone(self, root: Graph, new_handle: Callable[[], Handle]) -> Graph:
        """A copy with new handles, as a child graph node of a graph in ``root`` makes one."""
        made = Graph(root)
        renamed = {handle: new_handle() for handle in self.nodes}
        for handle, node in self.nodes.items():
            made.add(Node(renamed[handle], node.kind, node.params, node.given))
            if handle in self.inner:
                made.inner[renamed[handle]] = tuple(graph.clone(root, new_handle) for graph in self.inner[handle])
        for ours, theirs in ((self.successors, made.successors), (self.dependencies, made.dependencies)):
            for handle, others in ours.items():
                theirs[renamed[handle]] = {renamed[other]: data for other, data in others.items()}
        return made

    def connect(self, source: Handle, target: Handle, data: bytes = bytes(8)) -> None:
        """Add an edge with the bytes of its data."""
        self._require_edge_data(source, target, data)
        for handle in (source, target):
            if handle not in self.nodes:
                raise Problem(f"node {handle:#x} is not of this graph")
        if source == target:
            raise Problem(f"an edge from node {source:#x} to itself")
        if target in self.successors[source]:
            raise Problem(f"there is an edge from node {source:#x} to node {target:#x} already")
        self.successors[source][target] = self.dependencies[target][source] = data

    def _require_edge_data(self, source: Handle, target: Handle, data: bytes) -> None:
        from_port, to_port, kind, *reserved = data
        if to_port or any(reserved) or (from_port, kind) not in _EDGES:
            raise Problem(f"edge data with ports {from_port} and {to_port} and type {kind}; there is none such")
        of_kernels = ([source] if from_port else []) + ([target] if kind == EDGE_TYPE_PROGRAMMATIC else [])
        for handle in of_kernels:
            if handle in self.nodes and self.nodes[handle].kind.name != "kernel":
                raise Problem(f"only kernels have ports and wait for programmatic edges, and node {handle:#x} is none")


@dataclass
class Condition:
    """A value that kernels set and that a conditional node asks.

    Attributes
    ----------
    default : int
        The value at the start of each launch.
    assigned : bool
        True if it is given that value then; otherwise it is undefined.
    context : int
        The context that its node and the kernels that set it are in.
    used : bool
        True once a conditional node asks it; there is one at most.
    value : int or None
        The value now; None if it is undefined.
    """

    default: int
    assigned: bool
    context: Handle
    used: bool = False
    value: int | None = None


class Exec:
    """What a graph was when it was instantiated, ready to run.

    Attributes
    ----------
    source : Graph
        The graph, whose node handles address the nodes of the exec.
    nodes : dict
        Copies of its nodes by handle.
    inner : dict
        What is inside of a node, by its handle.
    sources : dict
        Where there are programmatic edges, for each node those in front of it, with the port of the edge; else empty.
    numbers : dict
        In which place a node was added, by its handle.
    successors : dict
        For each node those that come after it.
    dependencies : dict
        For each node those that it comes after, as `Graph` has them.
    by_priority : bool
        True if it was instantiated so that the priorities of nodes count.
    last : Launch or None
        Its last launch that was left to a thread.
    shared : tuple of Shared
        Memory that is undefined while no node uses it.
    tenancy : Tenancy or None
        Memory that other execs have between its launches.
    """

    def __init__(self, source: Graph, by_priority: bool = False) -> None:
        self.source = source
        self.by_priority = by_priority
        self.last: Launch | None = None
        self.shared: tuple[Shared, ...] = ()
        self.tenancy: Tenancy | None = None
        self._homes: dict[Handle, Exec] | None = None
        self.inner = {
            handle: tuple(Exec(graph, by_priority) for graph in graphs) for handle, graphs in source.inner.items()
        }
        self.dependencies = {handle: dict(others) for handle, others in source.dependencies.items()}
        self.nodes = {node.handle: Node(node.handle, node.kind, node.params) for node in source.nodes.values()}
        self.numbers = {handle: number for number, handle in enumerate(self.nodes)}
        self.successors = {handle: tuple(after) for handle, after in source.successors.items()}
        self.sources = _sources(source)

    def node(self, handle: Handle) -> Node:
        """A node, here or inside of one; it must be in the source graph still."""
        home = self._home(handle) if self.source.alive else None
        if home is None:
            raise Problem(
                f"node {handle:#x} is not of the graph that the exec was made from, or that graph was destroyed",
                remedy="Keep the graph as long as its execs are updated.",
            )
        return home.nodes[handle]

    def inside(self, handle: Handle) -> tuple[Exec, ...]:
        """What is inside of a node, here or inside of one."""
        home = self._home(handle)
        return () if home is None else home.inner.get(handle, ())

    def _home(self, handle: Handle) -> Exec | None:
        """The exec that has the node, this one or one inside. It is looked up: where nodes are never changes."""
        if handle in self.nodes:
            return self
        if self._homes is None:
            self._homes = {node: each for each in self._all_inside() for node in each.nodes}
        return self._homes.get(handle)

    def _all_inside(self) -> Iterator[Exec]:
        for execs in self.inner.values():
            for inner in execs:
                yield inner
                yield from inner._all_inside()

    def of_kind(self, kind: NodeKind) -> list[Node]:
        """The nodes of a kind, here and inside of others."""
        found = [node for node in self.nodes.values() if node.kind is kind]
        return found + [node for execs in self.inner.values() for inner in execs for node in inner.of_kind(kind)]

    def as_now(self) -> Exec:
        """The exec with its nodes as they are now: later updates do not change it."""
        made = copy(self)
        made.last = made._homes = None
        made.nodes = {handle: copy(node) for handle, node in self.nodes.items()}
        made.inner = {handle: tuple(inner.as_now() for inner in execs) for handle, execs in self.inner.items()}
        return made

    def reset_conditions(self) -> None:
        """Give conditions their defaults, as the start of a launch does."""
        for condition in self.source.conditions.values():
            condition.value = condition.default if condition.assigned else None


def _sources(graph: Graph) -> dict[Handle, dict[Handle, int]]:
    found: dict[Handle, dict[Handle, int]] = {}
    for source, targets in graph.successors.items():
        for target, (port, *_) in targets.items():
            found.setdefault(target, {})[source] = port
    return found if any(any(ports.values()) for ports in found.values()) else {}


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
