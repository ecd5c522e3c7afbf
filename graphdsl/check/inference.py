"""The edges that the order of the program and the accesses of nodes need, beside those that are declared.

Level by level: an edge joins nodes of one level, and what a node holds is ordered with it. This module must not declare
them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from graphdsl.check.conflicts import Waiver
from graphdsl.check.masks import Masks, Table, Verdict
from graphdsl.check.outline import Outline
from graphdsl.check.touched import Touched
from graphdsl.declare.ancestry import Inside


class Relations:
    """Who is in conflict with whom, for nodes of one level with all that they hold.

    Parameters
    ----------
    touched : Touched
        Who touches what.
    outline : Outline
        The same nodes, in their order.
    waivers : sequence of Waiver
        Who may run in any order all the same.
    least : Verdict
        The mildest that needs an order.
    """

    def __init__(
        self,
        touched: Touched,
        outline: Outline,
        waivers: Sequence[Waiver] = (),
        least: Verdict = Verdict.GUESSED,
    ) -> None:
        self.outline = outline
        self._touched = touched
        self._waivers = waivers
        self._masks = Masks(touched, Table(touched.modes, least), outline.position, 0, len(outline.order))

    def of(self, index: int, among: int) -> int:
        """Of the nodes ``among``, given as bits of places, those that a node, or what it holds, needs order with."""
        outline, found = self.outline, 0
        if not among:
            return 0
        for place in range(outline.position[index], outline.end(index)):
            touches = self._touched.of.get(outline.order[place])
            if touches is not None:
                mates = 0
                for _, verdicts in self._masks.found(touches, among):
                    mates |= verdicts[Verdict.CERTAIN] | verdicts[Verdict.GUESSED] | verdicts[Verdict.COMMUTES]
                found |= mates & ~self._waived(place) if mates and self._waivers else mates
        return found

    def _waived(self, place: int) -> int:
        found = 0
        for waiver in self._waivers:
            found |= waiver.other if waiver.one >> place & 1 else 0
            found |= waiver.one if waiver.other >> place & 1 else 0
        return found


def missing_edges(relations: Relations) -> Iterator[tuple[int, int]]:
    """The fewest edges that order all that is in conflict, as indices of nodes; there is one such set.

    An edge that orders starts alone stays as it is: where it would have to be more, nothing is given.
    """
    for level in relations.outline.levels:
        yield from _missing(relations, level)


def _missing(relations: Relations, level: Inside) -> Iterator[tuple[int, int]]:
    outline = relations.outline
    nodes = sorted(level.nodes, key=outline.position.__getitem__)
    starts = [outline.position[index] for index in nodes]
    before = sources_of(level.edges)
    begun = sources_of(level.starts)
    own = {index: outline.bits(index) for index in nodes}
    reached: dict[int, int] = {}  # what each comes after
    for index, place in zip(nodes, starts, strict=True):
        found = 0
        for source in before.get(index, ()):
            found |= reached[source] | own[source]
        for source in begun.get(index, ()):
            found |= reached[source]
        needed = relations.of(index, (1 << place) - (1 << starts[0]) & ~found)
        while needed:  # the last comes first: what it comes after needs no edge of its own
            source = nodes[bisect_right(starts, needed.bit_length() - 1) - 1]
            if source in begun.get(index, ()):
                needed &= ~own[source]
                continue
            yield source, index
            found |= reached[source] | own[source]
            needed &= ~found
        reached[index] = found


def sources_of(edges: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    """The sources of the edges to each node."""
    found: dict[int, list[int]] = {}
    for source, target in edges:
        found.setdefault(target, []).append(source)
    return found
