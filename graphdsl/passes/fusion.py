"""Fusion: elementwise nodes that hand an array to the next become one kernel, and the array disappears.

What may be fused is asked of pairs: one node writes an array that no other than the second reads. The level is changed
pair by pair, the writer moving into the reader, until nothing is left to fuse. This module must not write kernels.
"""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import networkx as nx

from graphdsl.declare.accesses import Access
from graphdsl.declare.definition import Definition
from graphdsl.declare.elementwise import (
    Call,
    ElementwiseKernel,
    Temporary,
    alike,
    calls_of,
    flattened,
    launch_of,
    shaped,
)
from graphdsl.declare.embed import Contents
from graphdsl.declare.interop import foreign_array
from graphdsl.declare.nodes import KernelNode, named_operands
from graphdsl.declare.operands import Array, Buffer
from graphdsl.declare.regions import overlap, region_of
from graphdsl.declare.store import Level
from graphdsl.passes.changes import Change, Changes, Named, named
from graphdsl.passes.rewrite import GraphType, checked_graph, rewritten

_MOST_CALLS = 32
"""In one kernel: registers are few, and names grow."""

_MOST_ARGUMENTS = 64
"""Of one kernel: arrays of one dimension are 56 bytes each, and parameters are 4,096 at most on older drivers."""


def fuse_elementwise(graph: GraphType) -> tuple[GraphType, Changes]:
    """Make one kernel of elementwise nodes where one hands an array to the next, and drop the array.

    Two nodes of `Graph.elementwise` are fused if the first writes a device array of this graph that the second reads,
    element by element, and nothing else touches; if both are on one device, with the same tags and launch attributes;
    and if no other way leads from the first to the second. Memory that is adopted, on the host, or declared
    ``lifetime="persistent"`` stays, and so do nodes that `Graph.independent` speaks of. The new node is named by its
    parts, such as ``scale+bias``, and is after and before all that they were.

    What was rounded to the dtype of the array is rounded to it still: on the emulator results are equal bit for bit. On
    a GPU the compiler may contract a product of one function and a sum of the next into one operation, which rounds
    once (``fma``), as it does inside of a function: the last bit may differ.

    Parameters
    ----------
    graph : Graph
        Stays as it is.

    Returns
    -------
    graph : Graph
        The one with fused nodes.
    changes : Changes
        Which nodes were fused, and which arrays were dropped.

    Raises
    ------
    DeclarationError
        If the graph has a cycle, or edges to other graphs.

    Examples
    --------
    >>> import numpy as np
    >>> import graphdsl as gd
    >>> @gd.elementwise
    ... def scale(x, gain):
    ...     return x * gain
    >>> @gd.elementwise
    ... def shift(x, by):
    ...     return x + by
    >>> g = gd.Graph("demo")
    >>> x, t, y = (g.device_array(name, 1000, np.float32) for name in "xty")
    >>> _ = g.elementwise(scale, t, (x, 2.0)) >> g.elementwise(shift, y, (t, 1.0))
    >>> fused, changes = gd.passes.fuse_elementwise(g)
    >>> list(fused.dag), list(fused.operands), changes.of("nodes fused")
    (['scale+shift'], ['x', 'y'], [('scale', 'shift')])
    """
    checked_graph(graph)
    users = _users(graph)
    apart = {name for each in graph.independents for name in (*each.one, *each.other)}
    taken = {node.name for node in graph.all_nodes}
    changes: list[Change] = []
    edited: dict[int, Contents] = {}
    dropped: list[Buffer] = []
    for level in graph.levels:
        fusing = _Fusing(level, users, taken, apart)
        fusing.run()
        if fusing.dropped:
            edited[id(level)] = fusing.contents()
            changes += fusing.changes()
            dropped += fusing.dropped
    return rewritten(graph, edited, [buffer.name for buffer in dropped]), Changes(changes)


def _users(graph: Definition) -> dict[Any, set[str]]:
    """Names of the nodes that refer to each operand."""
    users: dict[Any, set[str]] = {}
    for node in graph.all_nodes:
        for _, operand in named_operands(node):
            users.setdefault(operand, set()).add(node.name)
    return users


class _Touched(NamedTuple):
    """What a group reads and writes of one buffer, each time that it does."""

    reads: tuple[Array, ...] = ()
    writes: tuple[Array, ...] = ()


_NOTHING = _Touched()


class _Group(NamedTuple):
    """Elementwise nodes that are one kernel: one node at first.

    Attributes
    ----------
    name : str
        Of the node.
    parts : tuple of KernelNode
        The nodes as they were declared.
    calls : tuple of Call
        What the kernel calls.
    memory : dict of Buffer to _Touched
        The buffers that it works on.
    shape : tuple
        That of its elements; one dimension where they are counted in memory order.
    """

    name: str
    parts: tuple[KernelNode, ...]
    calls: tuple[Call, ...]
    memory: dict[Buffer, _Touched]
    shape: tuple[Any, ...]


class _Fusing:
    """One level while it is fused."""

    def __init__(self, level: Level, users: dict[Any, set[str]], taken: set[str], apart: set[str]) -> None:
        self.level = level
        self.users = users
        self.taken = taken
        self.dag: nx.DiGraph[str] = nx.DiGraph()
        self.dag.add_nodes_from(level.dag)
        self.dag.add_edges_from((source, target, dict(data)) for source, target, data in level.dag.edges.data())
        fusible = (node for node in level.nodes if _is_elementwise(node) and node.name not in apart)
        self.groups = {node.name: _group(node) for node in fusible}
        self._group_of: dict[str, str] = {}  # of the nodes that were fused
        self.dropped: list[Buffer] = []
        self._dropped_by: dict[str, list[str]] = {}

    def run(self) -> None:
        """Fuse all that can be: each node with those that write what it reads, and with what they were fused with."""
        if len(self.groups) < 2:
            return
        for name in list(nx.lexicographical_topological_sort(self.level.dag)):
            group = self.groups.get(name)
            while group is not None:
                group = self._fused_with_a_writer(group)

    def contents(self) -> Contents:
        """What the level holds now."""
        made = {group.name: self._node(group) for group in self.groups.values()}
        nodes = [made[name] if name in made else self.level.dag.nodes[name]["node"] for name in self._names()]
        return Contents(nodes, self.dag.edges.data())

    def changes(self) -> list[Change]:
        """What was done."""
        fused = [group for group in self.groups.values() if len(group.parts) > 1]
        made = []
        for group in fused:
            spared = self._dropped_by[group.name]
            what = f"{', '.join(spared)} {'is' if len(spared) == 1 else 'are'} no memory any more"
            made.append(Change("nodes fused", named(*group.parts), f"{group.name}; {what}"))
        return made + [
            Change("operand dropped", (Named(buffer.name, buffer.location),), "it is handed on inside of a kernel")
            for buffer in self.dropped
        ]

    def _names(self) -> list[str]:
        """The nodes in the order of declaration; a fused one stands for its last part."""
        last = {group.parts[-1].name: group.name for group in self.groups.values()}
        names = (last.get(name, name) for name in self.level.dag)
        return [name for name in names if name in self.dag]

    def _node(self, group: _Group) -> KernelNode:
        first = group.parts[0]
        if len(group.parts) == 1:
            return first
        launch = launch_of(group.calls)
        grid = (launch.grid, 1, 1)
        return first.replaced(name=group.name, kernel=launch.kernel, args=launch.args, grid=grid, touches=None)

    # One pair

    def _fused_with_a_writer(self, group: _Group) -> _Group | None:
        """The group with one more node that writes what it reads; None if none can be fused with it."""
        for name in sorted(self._writers(group)):
            writer = self.groups[name]
            handed = self._handed_on(writer, group)
            if handed and self._may_join(writer, group, handed):
                return self._join(writer, group, handed)
        return None

    def _writers(self, group: _Group) -> set[str]:
        """The groups that alone share an array with this one."""
        found = set()
        for buffer, touched in group.memory.items():
            if touched.reads:
                users = self._users(buffer)
                if len(users) == 2:
                    found |= users - {group.name}
        return found & self.groups.keys()

    def _users(self, buffer: Buffer) -> set[str]:
        """The nodes that refer to a buffer, as they are now; none where they are more than two groups have."""
        users = self.users[buffer]
        return {self._group_of.get(name, name) for name in users} if len(users) <= 2 * _MOST_CALLS else set()

    def _handed_on(self, writer: _Group, reader: _Group) -> list[Buffer]:
        """The arrays that need no memory: the reader reads the elements that the writer writes, and nobody else."""
        found = []
        for buffer, there in reader.memory.items():
            here = writer.memory.get(buffer, _NOTHING)
            if (
                _is_private(buffer)
                and len(here.writes) == 1
                and not here.reads
                and there.reads
                and not there.writes
                and self._users(buffer) == {writer.name, reader.name}
                and all(alike(flattened(each), flattened(here.writes[0])) for each in there.reads)
            ):
                found.append(buffer)
        return sorted(found, key=lambda buffer: buffer.name)

    def _may_join(self, writer: _Group, reader: _Group, handed: list[Buffer]) -> bool:
        one, other = writer.parts[0], reader.parts[0]
        return (
            (one.on, one.tags, one.attributes) == (other.on, other.tags, other.attributes)
            and len(writer.calls) + len(reader.calls) <= _MOST_CALLS
            and _arguments(writer) + _arguments(reader) <= _MOST_ARGUMENTS
            and _shapes_meet(writer, reader)
            and not _collide(writer, reader, handed)
            and self._is_only_way(writer.name, reader.name)
        )

    def _is_only_way(self, source: str, target: str) -> bool:
        """True if a full edge is all that leads from one to the other, and no port is at either."""
        ports = (
            data["port"]
            for name in (source, target)
            for _, _, data in (*self.dag.in_edges(name, data=True), *self.dag.out_edges(name, data=True))
        )
        if not self.dag.has_edge(source, target) or any(port != "default" for port in ports):
            return False
        reached = [name for name in self.dag.successors(source) if name != target]
        if not reached or self.dag.in_degree(target) == 1:
            return True
        seen = set(reached)
        while reached:
            for name in self.dag.successors(reached.pop()):
                if name == target:
                    return False
                if name not in seen:
                    seen.add(name)
                    reached.append(name)
        return True

    def _join(self, writer: _Group, reader: _Group, handed: list[Buffer]) -> _Group:
        name = self._new_name(f"{writer.name}+{reader.name.rpartition('/')[2]}")
        del self.groups[writer.name], self.groups[reader.name]
        joined = self.groups[name] = _joined(name, writer, reader, handed)
        self._group_of.update(dict.fromkeys((part.name for part in joined.parts), name))
        self._merge_edges(writer.name, reader.name, name)
        self.dropped += handed
        before = self._dropped_by.pop(writer.name, []) + self._dropped_by.pop(reader.name, [])
        self._dropped_by[name] = before + [buffer.name for buffer in handed]
        return joined

    def _merge_edges(self, writer: str, reader: str, name: str) -> None:
        """Put one node after and before all that two were."""
        self.dag.add_node(name)
        for old in (writer, reader):
            edges = [(source, name, data) for source, _, data in self.dag.in_edges(old, data=True)]
            edges += [(name, target, data) for _, target, data in self.dag.out_edges(old, data=True)]
            for source, target, data in edges:
                if writer not in (source, target) and reader not in (source, target):
                    self.dag.add_edge(source, target, **data)
        self.dag.remove_nodes_from((writer, reader))

    def _new_name(self, wanted: str) -> str:
        name, number = wanted, 1
        while name in self.taken:
            name, number = f"{wanted}_{number}", number + 1
        self.taken.add(name)
        return name


def _is_elementwise(node: Any) -> bool:
    return isinstance(node, KernelNode) and isinstance(node.kernel, ElementwiseKernel)


def _group(node: Any) -> _Group:
    calls = calls_of(node.kernel, node.args)
    memory: dict[Buffer, _Touched] = {}
    for call in calls:
        for operands, written in ((call.reads, False), (call.writes, True)):
            for array in operands:
                if isinstance(array, Array):
                    touched = _Touched((), (array,)) if written else _Touched((array,), ())
                    memory[array.buffer] = _both(memory.get(array.buffer, _NOTHING), touched)
    return _Group(node.name, (node,), calls, memory, calls[0].writes[0].shape)


def _both(one: _Touched, other: _Touched) -> _Touched:
    return _Touched(one.reads + other.reads, one.writes + other.writes)


def _joined(name: str, writer: _Group, reader: _Group, handed: list[Buffer]) -> _Group:
    buffers = (buffer for buffer in (*writer.memory, *reader.memory) if buffer not in handed)
    memory = {
        buffer: _both(writer.memory.get(buffer, _NOTHING), reader.memory.get(buffer, _NOTHING)) for buffer in buffers
    }
    shape = max(writer.shape, reader.shape, key=len)
    return _Group(name, writer.parts + reader.parts, _joined_calls(writer, reader, handed, shape), memory, shape)


def _is_private(buffer: Buffer) -> bool:
    """True for memory that nobody sees from outside, and whose contents no later launch needs."""
    held = buffer.external or buffer.allocated or buffer.lifetime == "persistent"
    return buffer.space == "device" and not held


def _arguments(group: _Group) -> int:
    return sum(not isinstance(each, Temporary) for call in group.calls for each in (*call.writes, *call.reads))


def _shapes_meet(writer: _Group, reader: _Group) -> bool:
    """True if elements of one can be found by the indices of the other: what is counted through has any shape."""
    shapes = sorted((writer.shape, reader.shape), key=len)
    if len(shapes[0]) == len(shapes[1]):
        return True  # what is handed on has the shape of both
    return len(shapes[0]) == 1 and all(type(extent) is int for extent in shapes[1][1:])


def _collide(writer: _Group, reader: _Group, handed: list[Buffer]) -> bool:
    """True if a thread could meet what another one writes: arrays that overlap, and are not the same elements."""
    others = [buffer for buffer in reader.memory if buffer.external]
    for buffer, one in writer.memory.items():
        if buffer in handed:
            continue
        near = others if buffer.external else [buffer] if buffer in reader.memory else []
        for other in (reader.memory[each] for each in near):
            pairs = (*product(one.writes, other.reads + other.writes), *product(one.reads, other.writes))
            if any(_may_overlap(*pair) and not _same_elements(*pair) for pair in pairs):
                return True
    return False


def _same_elements(one: Array, other: Array) -> bool:
    return bool(one.shape and other.shape) and alike(flattened(one), flattened(other))


def _may_overlap(one: Array, other: Array) -> bool:
    bases = [0, 0]
    if one.buffer is not other.buffer:
        bases = [foreign_array(each.buffer.owner, each.buffer.name).address for each in (one, other)]
    regions = (region_of(Access(each, True, True), {}, base)[0] for each, base in zip((one, other), bases, strict=True))
    return overlap(*regions) is not False


def _joined_calls(writer: _Group, reader: _Group, handed: list[Buffer], shape: tuple[Any, ...]) -> tuple[Call, ...]:
    """The calls of both, with temporaries in the place of what the first hands to the second."""
    temporaries = {buffer: Temporary(buffer.dtype) for buffer in handed}

    def substituted(operand: Any) -> Any:
        if not isinstance(operand, Array) or not operand.shape:
            return operand
        if operand.buffer in temporaries:
            return temporaries[operand.buffer]
        return operand if operand.ndim == len(shape) else shaped(operand, shape)

    return tuple(
        Call(call.function, tuple(map(substituted, call.writes)), tuple(map(substituted, call.reads)))
        for call in (*writer.calls, *reader.calls)
    )
