"""Which declared edges order what has to be ordered, and which do not: without one of those, no two nodes conflict.

An edge is needed by a pair of nodes in conflict if every way from one to the other leads over it. Pairs with another
such node between them need not be asked: an edge that they need is needed by one of the halves. This module must not
report.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from graphdsl.check.inference import Relations, sources_of
from graphdsl.check.outline import Outline
from graphdsl.declare.ancestry import Inside
from graphdsl.declare.condition import Condition
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import EmptyNode, KernelNode, MemcpyNode, MemsetNode
from graphdsl.declare.sources import SourceKernel

Edge = tuple[int, int]

_MOST_NODES = 20_000
"""Of a level that is asked about: sets of all before each node take memory in the square of their number."""

_MOST_STEPS = 50
"""Steps on ways from node to node, for each node of a level, after which nothing more is asked."""


def idle_edges(relations: Relations, level: Inside) -> list[Edge]:
    """The full edges between working nodes of a level that no conflict needs, and that no others imply."""
    outline = relations.outline
    edges, late = list(level.edges), set(level.programmatic)
    spared = {(source, target) for source, target, _ in outline.implied[id(level)]}
    asked = [edge for edge in edges if edge not in late and edge not in spared]
    if not asked or len(level.nodes) > _MOST_NODES:
        return []
    ways = _Ways(relations, level, spared)
    working = {index for index in level.nodes if ways.works[index]}
    asked = [edge for edge in asked if edge[0] in working and edge[1] in working]
    needed = ways.needed(set(asked))
    return [] if needed is None else [edge for edge in asked if edge not in needed]


class _Ways:
    """The ways between the nodes of a level, and who is in conflict with whom."""

    def __init__(self, relations: Relations, level: Inside, spared: set[Edge]) -> None:
        outline = relations.outline
        self._relations = relations
        self._nodes = sorted(level.nodes, key=outline.position.__getitem__)
        self._places = [outline.position[index] for index in self._nodes]
        self._before = sources_of(level.edges)
        self._begun = sources_of(level.starts)
        self._spared = spared
        self._own = {index: outline.bits(index) for index in self._nodes}
        self._reached: dict[int, int] = {}
        held = {
            index: [outline.nodes[outline.order[place]] for place in _span(outline, index)] for index in self._nodes
        }
        self.works = {index: any(not isinstance(node, EmptyNode) for node in held[index]) for index in self._nodes}
        self._unread = {index for index in self._nodes if not all(map(_is_read, held[index]))}

    def needed(self, asked: set[Edge]) -> set[Edge] | None:
        """The edges that a conflict needs, among others; None if it takes too long to find out."""
        found: set[Edge] = set()
        behind: dict[int, int] = {}  # what comes before each by way of conflicts
        unread = working = steps = 0
        for index in self._nodes:
            before = 0
            for source in self._before.get(index, ()):
                before |= self._reached[source] | self._own[source]
            for source in self._begun.get(index, ()):
                before |= self._reached[source]
            self._reached[index] = before
            covered = 0
            if self.works[index]:
                mates = before & (working if index in self._unread else unread)
                mates |= self._relations.of(index, before & ~mates)
                while mates:
                    source = self._nodes[bisect_right(self._places, mates.bit_length() - 1) - 1]
                    covered |= behind[source] | self._own[source]
                    mates &= ~covered
                    if not asked <= found:
                        steps += self._mark(source, index, found)
                        if steps > _MOST_STEPS * len(self._nodes):
                            return None
                working |= self._own[index]
                unread |= self._own[index] if index in self._unread else 0
            behind[index] = covered
        return found

    def _mark(self, first: int, last: int, found: set[Edge]) -> int:
        """Add the edges that all ways from one node to another lead over; gives how many nodes were looked at."""
        if first in self._before.get(last, ()):
            if (first, last) not in self._spared:
                found.add((first, last))
            return 1
        own, sources = self._own[first], {}
        pending = [last]
        while pending:
            index = pending.pop()
            if index in sources or index == first:
                continue
            sources[index] = [
                source for source in self._before.get(index, ()) if source == first or self._reached[source] & own
            ]
            pending += sources[index]
        between = sorted(sources, key=lambda index: self._own[index] & -self._own[index])
        leaving = dict.fromkeys((first, *between), 0)
        for each in sources.values():
            for source in each:
                leaving[source] += 1
        crossing = leaving[first]
        for index in between:
            if crossing == 1 and sources[index]:
                found.add((sources[index][0], index))
            crossing += leaving[index] - len(sources[index])
        return len(between)


def _span(outline: Outline, index: int) -> range:
    return range(outline.position[index], outline.end(index))


def _is_read(node: Node) -> bool:
    """True if all that a node does is done to memory that it names."""
    if isinstance(node, KernelNode):
        plain = not isinstance(node.kernel, SourceKernel) or (node.touches is not None and node.touches.complete)
        return plain and not any(isinstance(operand, Condition) for operand in node.operands())
    return isinstance(node, (MemcpyNode, MemsetNode, EmptyNode)) or node.kind == "child"


def all_idle(relations: Relations) -> Iterator[Sequence[Edge]]:
    """The edges that no conflict needs, level by level; levels without any are left out."""
    for level in relations.outline.levels:
        found = idle_edges(relations, level)
        if found:
            yield found
