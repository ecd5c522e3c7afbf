"""Which arrays are never there at the same time, in whatever order the nodes of a graph run.

An array is there from the first of its uses to the last. One comes before another if every use of it has ended before
any use of the other starts, by the edges that were declared; all others conflict. This module must not know why arrays
are asked about, nor where they lie.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphdsl.declare.ancestry import Inside, ancestors, ends_of, flattened, starts_apart
from graphdsl.declare.nesting import ConditionalNode
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import buffers_of
from graphdsl.declare.operands import Buffer

Bits = np.ndarray[Any, np.dtype[np.uint8]]
"""Rows of bits, the first of eight in the lowest place of a byte."""

_BLOCK = 1024  # rows that are taken apart at a time: a bit becomes a byte then


@dataclass(frozen=True, eq=False)
class Lifetimes:
    """When arrays are there.

    Attributes
    ----------
    arrays : tuple of Buffer
        Those asked about.
    users : tuple of tuple of int
        Of each array, the indices of the nodes that use it, in canonical order. What a loop uses in its body, the loop
        uses from its beginning to its end.
    before : numpy.ndarray of uint8, shape (number of arrays, bytes for so many bits)
        Of each array, the bits of those that come before it.
    """

    arrays: tuple[Buffer, ...]
    users: tuple[tuple[int, ...], ...]
    before: Bits

    def conflicts(self) -> Bits:
        """Of each array, the bits of those that may be there at the same time; its own is not among them."""
        count = len(self.arrays)
        found = np.empty_like(self.before)
        for start in range(0, count, _BLOCK):
            stop = min(start + _BLOCK, count)
            ordered = unpacked(self.before[start:stop], count)
            ordered |= unpacked(self.before[:, start // 8 : -(-stop // 8)], stop - start).T
            ordered[np.arange(stop - start), np.arange(start, stop)] = 1
            found[start:stop] = packed(ordered == 0)
        return found


def unpacked(bits: Bits, count: int) -> Bits:
    """Bits as bytes of 0 and 1."""
    return np.unpackbits(bits, axis=-1, count=count, bitorder="little")


def packed(flags: np.ndarray[Any, Any]) -> Bits:
    """Bytes of 0 and 1 as bits."""
    return np.packbits(flags, axis=-1, bitorder="little")


def lifetimes(nodes: Sequence[Node], levels: Sequence[Inside], arrays: Iterable[Buffer]) -> Lifetimes:
    """When some arrays are there.

    Parameters
    ----------
    nodes : sequence of Node
        Those of the graph and of all bodies, in canonical order.
    levels : sequence of Inside
        How they hang together.
    arrays : iterable of Buffer
        Those to be told of.

    Examples
    --------
    >>> import numpy as np
    >>> from graphdsl.declare.ancestry import insides
    >>> from graphdsl.declare.definition import Definition
    >>> graph = Definition()
    >>> a, b, c, d = (graph.device_array(name, 4, np.float32) for name in "abcd")
    >>> _ = graph.memcpy(b, a) >> graph.memcpy(c, b) >> graph.memcpy(d, c)
    >>> found = lifetimes(graph.all_nodes, insides(graph, graph.all_nodes), [a, b, c, d])
    >>> found.users
    ((0,), (0, 1), (1, 2), (2,))
    >>> unpacked(found.before, 4).tolist()
    [[0, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0]]
    """
    wanted = {array: number for number, array in enumerate(arrays)}
    users = _users(nodes, levels, wanted)
    return Lifetimes(tuple(wanted), users, _before(len(nodes), levels, users, _loops(nodes)))


def _loops(nodes: Sequence[Node]) -> frozenset[int]:
    return frozenset(i for i, node in enumerate(nodes) if isinstance(node, ConditionalNode) and node.form == "while")


def _users(
    nodes: Sequence[Node], levels: Iterable[Inside], wanted: Mapping[Buffer, int]
) -> tuple[tuple[int, ...], ...]:
    """The nodes that use each array; of a loop and of what is in its body the outermost loop alone."""
    loops, outermost = _loops(nodes), list(range(len(nodes)))
    if loops:
        for level in levels:  # a level comes behind the one that holds its owner
            owner = level.owner
            if owner >= 0 and (owner in loops or outermost[owner] in loops):
                for node in level.nodes:
                    outermost[node] = outermost[owner]
    found: list[dict[int, None]] = [{} for _ in wanted]
    for index, user in enumerate(nodes):
        for buffer in buffers_of(user):
            if buffer in wanted:
                found[wanted[buffer]][outermost[index]] = None
    return tuple(tuple(sorted(each)) for each in found)


def _before(count: int, levels: Sequence[Inside], users: Sequence[tuple[int, ...]], loops: frozenset[int]) -> Bits:
    """The bits of the arrays that come before each array."""
    ends = ends_of(count, levels)
    last = [[ends[user] if user in loops else user for user in each] for each in users]
    bits = {node: 1 << number for number, node in enumerate(dict.fromkeys(node for each in last for node in each))}
    uses = [sum(bits[node] for node in each) for each in last]
    size, edges = flattened(count, levels)
    programmatic = [edge for level in levels for edge in level.programmatic]
    starts: Mapping[int, int] = {}
    if programmatic:
        size, edges, starts = starts_apart(size, edges, programmatic)
    starting: dict[int, list[int]] = {}
    for array, each in enumerate(users):
        for user in each:
            starting.setdefault(starts.get(user, user), []).append(array)

    first: list[tuple[list[int], int]] = []  # arrays, and what has ended before a first use of them
    passed = [0] * len(users)  # uses that other uses of the array come behind
    for index, ended in ancestors(bits, size, edges):
        beginning = []
        for array in starting.get(index, ()):
            behind = ended & uses[array]
            if behind:
                passed[array] |= behind
            else:
                beginning.append(array)
        if beginning:
            first.append((beginning, ended))

    ended_of = _Ended([_places(uses[array] & ~passed[array]) for array in range(len(users))], len(bits))
    before = np.full((len(users), -(-len(users) // 8)), 0xFF, np.uint8)
    for arrays, ended in first:
        before[arrays] &= ended_of(ended)
    unused = np.array([not each for each in users])  # such arrays come before all others, one after the other
    before[unused] = packed(unused & (np.arange(len(users)) < np.flatnonzero(unused)[:, None]))
    return before


def _places(bits: int) -> list[int]:
    """The places of the bits that are set."""
    found = []
    while bits:
        found.append(bits.bit_length() - 1)
        bits ^= 1 << found[-1]
    return found


class _Ended:
    """Turns nodes that have ended into arrays of which every use has ended.

    Parameters
    ----------
    needed : sequence of sequence of int
        Of each array, the numbers of the bits of its last uses.
    count : int
        How many such bits there are.
    """

    def __init__(self, needed: Sequence[Sequence[int]], count: int) -> None:
        self._nbytes = -(-max(count, 1) // 8)
        self._count = len(needed)
        self._one = _indices(number for number, bits in enumerate(needed) if len(bits) == 1)
        self._bit = _indices(bits[0] for bits in needed if len(bits) == 1)
        several = [number for number, bits in enumerate(needed) if len(bits) > 1]
        self._several = _indices(several)
        self._bits = _indices(bit for number in several for bit in needed[number])
        self._starts = np.cumsum([0, *(len(needed[number]) for number in several[:-1])])

    def __call__(self, ended: int) -> Bits:
        """The bits of the arrays, given those of the nodes."""
        data = np.frombuffer(ended.to_bytes(self._nbytes, "little"), np.uint8)
        flags = np.unpackbits(data, bitorder="little")
        found = np.ones(self._count, np.uint8)  # what nothing uses is never there
        found[self._one] = flags[self._bit]
        if len(self._several):
            found[self._several] = np.bitwise_and.reduceat(flags[self._bits], self._starts)
        return packed(found)


def _indices(numbers: Iterable[int]) -> np.ndarray[Any, np.dtype[np.intp]]:
    return np.fromiter(numbers, np.intp)
