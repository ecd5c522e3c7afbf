"""Finds pairs of nodes that touch the same bytes, one of them to write, and that nothing orders.

What is ordered comes as sets of bits, one for each node: all nodes that touch what a node touches, less those before
it, are in conflict with it. Sets of all nodes at once would take memory in the square of their number, so they are
asked about a block of nodes at a time. This module must not judge.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from graphdsl.check.masks import BLOCK, Masks, Table, Verdict
from graphdsl.check.outline import Outline, places
from graphdsl.check.touched import Touched
from graphdsl.declare.accesses import Access
from graphdsl.declare.ancestry import ancestors, flattened
from graphdsl.declare.node import Node
from graphdsl.declare.operands import Array
from graphdsl.declare.regions import Region, overlap


class Pair(NamedTuple):
    """Two nodes by their places in the program, the first one first, and the memory that both touch."""

    first: int
    second: int
    memory: int


@dataclass
class Tally:
    """Pairs of which there may be very many: how many, and the first of them.

    Attributes
    ----------
    most : int or None
        How many are kept; None for all.
    count : int
        How many there are.
    pairs : list of Pair
        The first in the order of the program.
    """

    most: int | None
    count: int = 0
    pairs: list[Pair] = field(default_factory=list)

    def add(self, place: int, others: int, offset: int, memory: int) -> None:
        """Count a node with each of some others, given as bits that begin at the place ``offset``."""
        self.count += others.bit_count()
        full = self.most is not None and len(self.pairs) == self.most
        if full and place > (last := self.pairs[-1].first):
            others &= (1 << max(last + 1 - offset, 0)) - 1
        for other in places(others) if others else ():
            pair = Pair(min(place, other + offset), max(place, other + offset), memory)
            if self.most is not None and len(self.pairs) == self.most:
                if pair >= self.pairs[-1]:
                    break  # those that follow are later
                self.pairs.pop()
            insort(self.pairs, pair)


class Waiver(NamedTuple):
    """Nodes that the user says may run in any order, as bits of their places in the program."""

    one: int
    other: int


def waivers_of(outline: Outline, sides: Iterable[tuple[Iterable[str], Iterable[str]]]) -> list[Waiver]:
    """Nodes on either side, given by name, as bits; none of those that are not there."""
    if not outline.order:
        return [Waiver(0, 0) for _ in sides]
    index = {node.name: number for number, node in enumerate(outline.nodes)}

    def bits(names: Iterable[str]) -> int:
        found = 0
        for name in names:
            found |= outline.bits(index[name]) if name in index else 0
        return found

    return [Waiver(bits(one), bits(other)) for one, other in sides]


class Conflict(NamedTuple):
    """A pair of nodes in conflict, explained.

    Attributes
    ----------
    first, second : Node
        In the order of the program.
    kind : "RAW", "WAR" or "WAW"
        What the second must not do before the first has: read what it writes, write what it reads, write what it
        writes.
    does : tuple of two str
        What each of them does: it ``"reads"``, ``"writes"``, or both.
    arrays : tuple of two Array
        What each of them touches, as its operand.
    region : Region
        The bytes in question, from the start of the buffer of the second.
    sure : bool
        True if both are known to touch one byte at least.
    edge : tuple of two Node
        The edge that orders them.
    """

    first: Node
    second: Node
    kind: str
    does: tuple[str, str]
    arrays: tuple[Array, Array]
    region: Region
    sure: bool
    edge: tuple[Node, Node]


class Conflicts:
    """The unordered pairs of a graph that are in conflict.

    Parameters
    ----------
    touched : Touched
        Who touches what.
    outline : Outline
        The same nodes, in their order.
    waivers : sequence of Waiver
        What is to be left out, and told apart.
    most : int or None
        How many pairs are kept of each verdict and memory; None for all.
    least : Verdict
        The mildest verdict that is asked for.

    Attributes
    ----------
    tallies : dict of pairs of int to Tally
        By verdict and number of the memory; those of which there are none are missing.
    waived : list of dict of int to Tally
        The same for each waiver, by the number of the memory.
    """

    def __init__(
        self,
        touched: Touched,
        outline: Outline,
        waivers: Sequence[Waiver] = (),
        *,
        most: int | None = None,
        least: Verdict = Verdict.COMMUTES,
    ) -> None:
        self.touched = touched
        self.outline = outline
        self.tallies: dict[tuple[int, int], Tally] = {}
        self.waived: list[dict[int, Tally]] = [{} for _ in waivers]
        self._waivers = waivers
        self._most = most
        self._table = Table(touched.modes, least)
        self._apart = outline.apart()
        if not outline.order or not touched.of:
            return
        count, edges = flattened(len(touched.nodes), outline.levels)
        for offset in range(0, len(outline.order), BLOCK):
            self._search(offset, count, edges)

    def _search(self, offset: int, count: int, edges: list[tuple[int, int]]) -> None:
        """Find the pairs of which the one that comes first to the search stands in a block of the program."""
        touched, position, apart = self.touched.of, self.outline.position, self._apart
        block = self.outline.order[offset : offset + BLOCK]
        bits = {index: 1 << place for place, index in enumerate(block) if index in touched}
        if not bits:
            return
        masks = Masks(self.touched, self._table, position, offset, BLOCK)
        seen = 0
        for index, before in ancestors(bits, count, edges):
            touches = touched.get(index)
            if touches is None:
                continue
            unordered = seen ^ before  # what is before it was seen
            if unordered:
                if index in apart:
                    unordered &= ~(apart[index] >> offset)
                for memory, found in masks.found(touches, unordered):
                    self._note(position[index], found, offset, memory)
            seen |= bits.get(index, 0)

    def _note(self, place: int, found: list[int], offset: int, memory: int) -> None:
        told = 0
        for number in (3, 2, 1):  # the worst first
            others = found[number]
            if not others:
                continue
            if told:
                others &= ~told
            told |= others
            if self._waivers:
                others = self._waive(place, others, offset, memory)
            if others:
                tally = self.tallies.get((number, memory))
                if tally is None:
                    tally = self.tallies[number, memory] = Tally(self._most)
                tally.add(place, others, offset, memory)

    def _waive(self, place: int, others: int, offset: int, memory: int) -> int:
        """The others less those that the user waived, which are noted."""
        for waiver, waived in zip(self._waivers, self.waived, strict=True):
            mates = (waiver.other if waiver.one >> place & 1 else 0) | (waiver.one if waiver.other >> place & 1 else 0)
            taken = others & (mates >> offset)
            if taken:
                waived.setdefault(memory, Tally(self._most)).add(place, taken, offset, memory)
                others &= ~taken
        return others

    def of(self, wanted: Verdict) -> list[Tally]:
        """The pairs of a verdict, memory by memory, in the order of the first pair of each."""
        found = [tally for (number, _), tally in self.tallies.items() if number == wanted]
        return sorted(found, key=lambda tally: tally.pairs[0])

    def explained(self, pair: Pair) -> Conflict:
        """What is known of a pair."""
        return explained(pair, self.touched, self.outline)


def explained(pair: Pair, touched: Touched, outline: Outline) -> Conflict:
    """What two nodes do to the same bytes, the worst of it."""
    indices = outline.order[pair.first], outline.order[pair.second]
    first, second = (touched.nodes[index] for index in indices)
    best = None
    for one, here, here_sure in touched.accesses(first):
        for other, there, there_sure in touched.accesses(second):
            bases = [touched.base(each.array.buffer) for each in (one, other)]
            if any(memory != pair.memory for memory, _ in bases) or not (one.writes or other.writes):
                continue
            shared = overlap(here, there)
            if shared is False:
                continue
            kind = "RAW" if one.writes and other.reads else "WAW" if one.writes else "WAR"
            sure = bool(shared) and here_sure and there_sure
            known = sure and one.known and other.known
            start = max(here.start, there.start)
            rank = (not known, _KINDS.index(kind), start)
            if best is None or rank < best[0]:
                base = bases[1][1]
                region = Region(start - base, min(here.stop, there.stop) - base, here.rows or there.rows)
                best = rank, kind, (_deed(one), _deed(other)), (one.array, other.array), region, sure
    assert best is not None, "a pair in conflict touches the same bytes"
    ends = outline.lifted(*indices)
    return Conflict(first, second, *best[1:], (touched.nodes[ends[0]], touched.nodes[ends[1]]))


_KINDS = ("RAW", "WAW", "WAR")


def _deed(access: Access) -> str:
    verbs = [verb for verb, done in (("read", access.reads), ("write", access.writes)) if done]
    if not access.known:
        return f"may {' and '.join(verbs)}"
    return f"does an atomic {access.atomic} on" if access.atomic else " and ".join(f"{verb}s" for verb in verbs)
