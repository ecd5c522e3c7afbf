"""What arrays are to a graph: what it is given, what it gives, what it keeps, and what only lies between its nodes.

An array lies between nodes if whatever is read of it was written before in the same launch, and whatever is written to
it is read behind. Nobody outside of the graph can tell what such an array holds, so that its bytes may serve others
before and after. This module must not judge, and must not decide where an array lies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from graphdsl.cached import cached_property
from graphdsl.compile.accesses import accesses
from graphdsl.declare.accesses import Access, Span
from graphdsl.declare.ancestry import Inside, ancestors, flattened
from graphdsl.declare.expressions import Expr
from graphdsl.declare.nesting import ConditionalNode
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import buffers_of
from graphdsl.declare.operands import Buffer, Extent

Kind = Literal["between", "input", "output", "state", "unknown", "unused"]
"""``"state"`` is read where the graph may or may not have written it, or has written only a part of it; ``"unknown"``
may be read before it is written, or not."""

Look = Callable[[Node], Iterable[Access]]
"""Gives what a node reads and writes."""

UNWRITTEN: frozenset[Kind] = frozenset(("input", "state", "unknown"))
"""Of these a node reads what the launch may not have written."""


class Role(NamedTuple):
    """What an array is to a graph.

    Attributes
    ----------
    kind : str
        A `Kind`.
    why : str
        How that shows, as a statement.
    node : Node or None
        The node that shows it.
    access : Access or None
        What that node does.
    """

    kind: Kind
    why: str
    node: Node | None = None
    access: Access | None = None


def roles(
    nodes: Sequence[Node], levels: Iterable[Inside], wanted: Iterable[Buffer], look: Look = accesses
) -> dict[Buffer, Role]:
    """What some arrays are to a graph.

    Parameters
    ----------
    nodes : sequence of Node
        Those of the graph and of all bodies.
    levels : iterable of Inside
        How they hang together.
    wanted : iterable of Buffer
        The arrays.
    look : callable
        Gives the accesses of a node; one that remembers them saves work where more is asked of the same nodes.

    Examples
    --------
    >>> import numpy as np
    >>> from graphdsl.declare.ancestry import insides
    >>> from graphdsl.declare.definition import Definition
    >>> graph = Definition()
    >>> a, b, c = (graph.device_array(name, 4, np.float32) for name in "abc")
    >>> _ = graph.memcpy(b, a, name="first") >> graph.memcpy(c, b, name="second")
    >>> nodes = graph.all_nodes
    >>> for array, role in roles(nodes, insides(graph, nodes), [a, b, c]).items():
    ...     print(array.name, role.kind, role.why)
    a input node 'first' reads it, and nothing writes it before
    b between it lies between nodes
    c output nothing reads what node 'second' writes
    """
    return _Flow(nodes, list(levels), wanted, look).roles()


def plainly_outside(
    nodes: Sequence[Node], order: Sequence[int], wanted: Iterable[Buffer], look: Look = accesses
) -> dict[Buffer, str]:
    """Arrays that do not lie between nodes, as far as two nodes tell, with how that shows.

    What the first node in any order reads nobody has written before, and what the last one writes nobody reads after.
    Most arrays that are not between nodes are found so, and most nodes need not be looked into.

    Parameters
    ----------
    nodes : sequence of Node
        Those of the graph and of all bodies.
    order : sequence of int
        The indices of all of them, in an order that they may run in.
    wanted : iterable of Buffer
        The arrays.
    look : callable
        As `roles` takes it.
    """
    wanted = list(wanted)
    found = {}
    for buffer, first in _first_users(nodes, order, wanted).items():
        reading = next((each for each in look(first) if each.array.buffer is buffer and each.reads), None)
        if reading is not None:
            found[buffer] = _reads_first(first, reading)
    for buffer, last in _first_users(nodes, reversed(order), [each for each in wanted if each not in found]).items():
        writing = next((each for each in look(last) if each.array.buffer is buffer and each.writes), None)
        if writing is not None:
            found[buffer] = _writes_last(last, writing)
    return found


def _first_users(nodes: Sequence[Node], order: Iterable[int], wanted: Iterable[Buffer]) -> dict[Buffer, Node]:
    """The first node in an order that uses each array; an array that none uses is left out."""
    missing = set(wanted)
    found = {}
    for index in order:
        if not missing:
            break
        for buffer in buffers_of(nodes[index]):
            if buffer in missing:
                missing.discard(buffer)
                found[buffer] = nodes[index]
    return found


def _reads_first(node: Node, access: Access) -> str:
    if access.known:
        return f"node {node.name!r} reads it, and nothing writes it before"
    return f"what node {node.name!r} does to it is not known"


def _writes_last(node: Node, access: Access) -> str:
    if access.known:
        return f"nothing reads what node {node.name!r} writes"
    return f"node {node.name!r} may write it, and nothing reads it after"


@dataclass
class _Uses:
    """What the nodes do to one array, by their indices.

    Attributes
    ----------
    writers : list of pairs of int and Access
        The writing ones.
    bits : int
        Their bits.
    read : int
        The bits of those that a node reads behind.
    role : Role or None
        What the array is found to be so far.
    """

    writers: list[tuple[int, Access]] = field(default_factory=list)
    bits: int = 0
    read: int = 0
    role: Role | None = None


class _Flow:
    """Follows what nodes write to those that read it."""

    def __init__(self, nodes: Sequence[Node], levels: list[Inside], wanted: Iterable[Buffer], look: Look) -> None:
        self._nodes = nodes
        self._levels = levels
        self._uses = {buffer: _Uses() for buffer in wanted}
        self._bits: dict[int, int] = {}
        self._read: dict[int, list[Access]] = {}
        for index, node in enumerate(nodes):
            for each in look(node) if any(buffer in self._uses for buffer in buffers_of(node)) else ():
                uses = self._uses.get(each.array.buffer)
                if uses is None:
                    continue
                if each.reads:
                    self._read.setdefault(index, []).append(each)
                if each.writes:
                    bit = self._bits.setdefault(index, 1 << len(self._bits))
                    uses.writers.append((index, each))
                    uses.bits |= bit

    def roles(self) -> dict[Buffer, Role]:
        for index, before in ancestors(self._bits, *flattened(len(self._nodes), self._levels)):
            for each in self._read.get(index, ()):
                uses = self._uses[each.array.buffer]
                found = before & uses.bits
                if each.known:
                    uses.read |= found
                if uses.role is None:
                    uses.role = self._unwritten(index, each, uses, found)
        return {buffer: uses.role or self._last(uses) for buffer, uses in self._uses.items()}

    def _last(self, uses: _Uses) -> Role:
        """What an array is of which all that is read was written before."""
        unread = [(self._nodes[index], each) for index, each in uses.writers if not self._bits[index] & uses.read]
        if unread:
            node, each = min(unread, key=lambda pair: pair[1].known)
            return Role("output", _writes_last(node, each), node, each)
        return Role("between", "it lies between nodes") if uses.writers else Role("unused", "no node works on it")

    def _unwritten(self, index: int, read: Access, uses: _Uses, before: int) -> Role | None:
        """What an array is of which a node reads what may not have been written; None if all of it was."""
        node = self._nodes[index]
        role = _Reading(node, read)
        if _covered(read, self._writing(index, uses, before)):
            return None
        if not read.known:
            return Role("unknown", _reads_first(node, read), node, read)
        if not before:
            return Role("input", _reads_first(node, read), node, read)
        maybe = [each for writer, each in uses.writers if self._bits[writer] & before]
        if any(not each.known for each in maybe):
            return role("state", "node {} reads it, and whether all of that is written before is not known")
        if _covered(read, [each for each in maybe if not each.scattered]):
            return role("state", "node {} reads it, and what writes it before is in a body that may not run")
        if any(each.scattered for each in maybe):
            return role("state", "node {} reads it, and where it is written before depends on data")
        return role("state", "node {} reads it, and only a part of that is written before")

    def _writing(self, index: int, uses: _Uses, before: int) -> Iterator[Access]:
        """What has written an array for sure when a node runs; one by one, because the first is often enough."""
        inside = self._conditional[index]
        for writer, each in uses.writers:
            sure = self._bits[writer] & before and each.known and not each.scattered
            if sure and inside[: len(self._conditional[writer])] == self._conditional[writer]:
                yield each

    @cached_property
    def _conditional(self) -> list[tuple[int, ...]]:
        """For each node the bodies of conditional nodes that it is in, outermost first, as numbers of levels."""
        paths: list[tuple[int, ...]] = [()] * len(self._nodes)
        for number, level in enumerate(self._levels):  # a level comes behind the one that holds its owner
            path = () if level.owner < 0 else paths[level.owner]
            if level.owner >= 0 and isinstance(self._nodes[level.owner], ConditionalNode):
                path = (*path, number)
            for node in level.nodes:
                paths[node] = path
        return paths


class _Reading(NamedTuple):
    """A node that reads an array, and how; makes its role of it."""

    node: Node
    access: Access

    def __call__(self, kind: Kind, why: str) -> Role:
        return Role(kind, why.format(repr(self.node.name)), self.node, self.access)


def _covered(read: Access, written: Iterable[Access]) -> bool:
    """True if all that is read is among what is written, whatever the params are."""
    spans: list[Span] = []
    whole = read._replace(nbytes=None, skipped=0)  # of which no more is read
    places, wanted = (place_of(read), place_of(whole)), _fixed_span(read) or _fixed_span(whole)
    for each in written:
        if _is_whole(each) or place_of(each) in places:
            return True
        span = _fixed_span(each)
        if span is not None and (each.nbytes is not None or each.array.layout != "A"):
            spans.append(span)
    if wanted is None:
        wanted = 0, read.array.buffer.allocation_nbytes
    start, stop = wanted
    for first, last in sorted(spans):
        if first > start:
            break
        start = max(start, last)
    return start >= stop


def _is_whole(access: Access) -> bool:
    return access.array is access.array.buffer and access.nbytes is None and _is_zero(access.skipped)


def _is_zero(extent: Extent) -> bool:
    return isinstance(extent, int) and extent == 0


def place_of(access: Access) -> tuple[object, ...]:
    """The same for accesses of the same elements. Expressions are equal if they are one object."""
    array = access.array
    parts = (array.offset, access.skipped, access.nbytes, *array.shape)
    return (*array.strides, *(f"{id(part)}" if isinstance(part, Expr) else part for part in parts))


def _fixed_span(access: Access) -> Span | None:
    """The bytes that are touched; None where params say which."""
    array = access.array
    parts = (array.offset, access.skipped, access.nbytes, *array.shape)
    return None if any(isinstance(part, Expr) for part in parts) else access.span({})
