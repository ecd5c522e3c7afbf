"""Who is in conflict with whom if nothing orders them: sets of nodes as bits.

This module must know nothing of order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum

from graphdsl.check.touched import Mode, Touch, Touched

BLOCK = 1 << 15
"""Nodes that are asked about at a time: sets of 4 KiB."""

_MOST_MASKS = 1 << 14
"""Sets of nodes that are kept at a time."""

_FEW = 64
"""So many users of a region are put into a set one by one; of more a set is kept."""


class Verdict(IntEnum):
    """What two accesses of the same bytes are to each other, the worst last."""

    NONE = 0
    COMMUTES = 1
    GUESSED = 2
    CERTAIN = 3


def verdict(one: Mode, other: Mode, sure: bool = True) -> Verdict:
    """What two accesses are to each other if nothing orders them; ``sure`` says whether they have a byte in common.

    Examples
    --------
    >>> read, write = Mode(True, False, True), Mode(False, True, True)
    >>> verdict(read, write).name, verdict(read, read).name, verdict(write, write, sure=False).name
    ('CERTAIN', 'NONE', 'GUESSED')
    """
    if not (one.writes or other.writes):
        return Verdict.NONE
    if one.atomic is not None and one.atomic == other.atomic:
        return Verdict.COMMUTES
    return Verdict.CERTAIN if one.known and other.known and sure else Verdict.GUESSED


class Masks:
    """Who is in conflict with what, as bits, for the nodes of a block of the program, whatever their order.

    Parameters
    ----------
    touched : Touched
        Who touches what.
    table : Table
        What modes are to each other.
    position : mapping of int to int
        Places of nodes in the program, by index.
    offset : int
        Where the block begins.
    size : int
        How many places it has.
    """

    def __init__(
        self, touched: Touched, table: Table, position: Mapping[int, int], offset: int, size: int = BLOCK
    ) -> None:
        self._memories = touched.memories
        self._table = table
        self._position = position
        self._offset = offset
        self._size = size
        self._users: dict[tuple[int, int, int], int] = {}
        self._whole: dict[int, int] = {}
        self._met: dict[Touch, list[tuple[int, int]]] = {}

    def found(self, touches: Sequence[Touch], among: int) -> Iterator[tuple[int, list[int]]]:
        """Of the nodes ``among``, given as bits, those in conflict with who touches so, by memory and by verdict."""
        last, near, found = -1, 0, [0, 0, 0, 0]
        for touch in touches:
            if touch.memory != last:
                if any(found):
                    yield last, found
                    found = [0, 0, 0, 0]
                last = touch.memory
                near = among & self.whole(last)
            if near:
                for judged, mates in self.met(touch):
                    found[judged] |= near & mates
        if any(found):
            yield last, found

    def whole(self, memory: int) -> int:
        """Who touches a memory at all."""
        found = self._whole.get(memory)
        if found is None:
            users = self._memories[memory].users.values()
            found = self._whole[memory] = self._bits(index for indices in users for index in indices)
        return found

    def met(self, touch: Touch) -> list[tuple[int, int]]:
        """Who would be in conflict with a touch, by verdict."""
        found = self._met.get(touch)
        if found is None:
            if len(self._met) >= _MOST_MASKS:
                self._met.clear()
            found = self._met[touch] = list(self._made(*touch))
        return found

    def _made(self, memory: int, region: int, mode: int) -> Iterator[tuple[int, int]]:
        held = self._memories[memory]
        many, few = [0, 0, 0, 0], [[], [], [], []]  # type: tuple[list[int], list[list[int]]]
        for other, sure in held.places.neighbours(region):
            verdicts = self._table.verdicts(mode, sure)
            for number in held.modes[other]:
                judged = verdicts[number]
                if judged:
                    users = held.users[other, number]
                    if len(users) > _FEW:
                        many[judged] |= self._of(memory, other, number)
                    else:
                        few[judged] += users
        for judged in (Verdict.COMMUTES, Verdict.GUESSED, Verdict.CERTAIN):
            mates = many[judged] | self._bits(few[judged]) if few[judged] else many[judged]
            if mates:
                yield judged, mates

    def _of(self, memory: int, region: int, mode: int) -> int:
        """Who touches a region in a mode."""
        key = memory, region, mode
        found = self._users.get(key)
        if found is None:
            if len(self._users) >= _MOST_MASKS:
                self._users.clear()
            found = self._users[key] = self._bits(self._memories[memory].users[region, mode])
        return found

    def _bits(self, users: Iterable[int]) -> int:
        position, offset, size = self._position, self._offset, self._size
        inside = [place for index in users if 0 <= (place := position[index] - offset) < size]
        if not inside:
            return 0
        octets = bytearray((max(inside) >> 3) + 1)
        for place in inside:
            octets[place >> 3] |= 1 << (place & 7)
        return int.from_bytes(octets, "little")


class Table:
    """What modes are to each other, by their numbers."""

    def __init__(self, modes: Sequence[Mode], least: Verdict = Verdict.COMMUTES) -> None:
        def judged(one: Mode, other: Mode, sure: bool) -> int:
            found = verdict(one, other, sure)
            return found if found >= least else Verdict.NONE

        self._sure = [[judged(one, other, True) for other in modes] for one in modes]
        self._unsure = [[judged(one, other, False) for other in modes] for one in modes]

    def verdicts(self, mode: int, sure: bool) -> list[int]:
        """What the modes are to one of them; ``sure`` says whether the bytes are known to be the same."""
        return (self._sure if sure else self._unsure)[mode]
