"""The nodes of a graph in the order of the program, with what each holds, as bits.

A node and all that it holds stand together, so that sets of them are runs of bits. This module must not know memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from graphdsl.cached import cached_property
from graphdsl.declare.ancestry import Inside, implied, program_order
from graphdsl.declare.nesting import ConditionalNode
from graphdsl.declare.node import Node

_FEW = 64
"""So many places are taken from a set one by one; of more there is a faster way."""


class Outline:
    """Nodes by their place in the program, with the levels that they stand in.

    Attributes
    ----------
    nodes : sequence of Node
        All of them, by index.
    levels : list of Inside
        How they hang together.
    order : list of int
        Their indices in the order of the program; empty if there is a cycle.
    position : dict of int to int
        The place of each index in it.
    """

    def __init__(self, nodes: Sequence[Node], levels: Iterable[Inside]) -> None:
        self.nodes = nodes
        self.levels = list(levels)
        order = program_order(len(nodes), self.levels)
        self.order = order if len(order) == len(nodes) else []
        self.position = {index: place for place, index in enumerate(self.order)}
        self._level_of = {index: level for level in self.levels for index in level.nodes}
        self._ends: dict[int, int] = {}

    @cached_property
    def implied(self) -> dict[int, list[tuple[int, int, int]]]:
        """For each level, by its identity, the full edges that other full edges imply.

        Of each the source, the target, and the last node on another way.
        """
        return {id(level): _implied(level) for level in self.levels}

    def end(self, index: int) -> int:
        """The place behind a node and all that it holds."""
        if not self._ends:
            for each in reversed(self.order):  # what a node holds stands behind it
                end = self._ends.setdefault(each, self.position[each] + 1)
                owner = self._level_of[each].owner
                if owner >= 0:
                    self._ends[owner] = max(self._ends.get(owner, 0), end)
        return self._ends[index]

    def bits(self, index: int) -> int:
        """The places of a node and of all that it holds, as bits."""
        first = self.position[index]
        return (1 << self.end(index)) - (1 << first)

    def chain(self, index: int) -> list[int]:
        """A node, the node that holds it, and so on outwards."""
        found = []
        while index >= 0:
            found.append(index)
            index = self._level_of[index].owner
        return found

    def lifted(self, one: int, other: int) -> tuple[int, int]:
        """The nodes of one level that are, or hold, two nodes that stand in different bodies."""
        holders = {id(self._level_of[index]): index for index in self.chain(one)}
        for index in self.chain(other):
            mate = holders.get(id(self._level_of[index]))
            if mate is not None:
                return mate, index
        return one, other

    def apart(self) -> dict[int, int]:
        """For nodes in bodies of which one alone runs: bits of those in the other bodies, by index."""
        choices = [
            (index, [level for level in self.levels if level.owner == index])
            for index, node in enumerate(self.nodes)
            if isinstance(node, ConditionalNode) and len(node.bodies) > 1
        ]
        found: dict[int, int] = {}
        for index, bodies in choices:
            inside = self.bits(index)
            for body in bodies:
                own = 0
                for each in body.nodes:
                    own |= self.bits(each)
                for place in places(own):
                    each = self.order[place]
                    found[each] = found.get(each, 0) | (inside & ~own)
        return found


def places(bits: int) -> Iterator[int]:
    """The places of the bits that are set, from the lowest on.

    Examples
    --------
    >>> list(places(0b10110))
    [1, 2, 4]
    """
    if bits.bit_count() > _FEW:
        octets = np.frombuffer(bits.to_bytes((bits.bit_length() + 7) // 8, "little"), np.uint8)
        yield from np.flatnonzero(np.unpackbits(octets, bitorder="little")).tolist()
        return
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _implied(level: Inside) -> list[tuple[int, int, int]]:
    numbers = {index: number for number, index in enumerate(level.nodes)}
    late = set(level.programmatic)
    edges = [(numbers[a], numbers[b]) for a, b in level.edges if (a, b) not in late]
    nodes = level.nodes
    return [(nodes[a], nodes[b], nodes[via]) for a, b, via in implied(len(nodes), edges)]
