"""Which bytes accesses touch, with the gaps between rows, and which of them overlap.

Regions of one memory are asked for their neighbours thousands at a time, so that they are kept sorted: runs of bytes by
their place, rows of one pitch by their columns. This module must not know nodes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphdsl.declare.accesses import Access
from graphdsl.declare.expressions import value_of
from graphdsl.declare.operands import Array
from graphdsl.declare.rows import dimensions

_MOST_WORK = 10_000
"""Steps that NumPy may take to find out whether rows of different pitches meet."""

_SOMEWHERE = 1 << 40
"""An address at which no memory is looked at: where rows lie to one another is all that counts."""


class Region(NamedTuple):
    """Bytes of a memory: one run, or rows with gaps between them.

    Attributes
    ----------
    start, stop : int
        The first byte, and the one behind the last.
    rows : tuple of pairs of int
        Of each dimension outside of a row, the outermost first, the number of steps and the bytes of a step; empty for
        a run.
    """

    start: int
    stop: int
    rows: tuple[tuple[int, int], ...] = ()

    @property
    def row_nbytes(self) -> int:
        """Bytes of one row."""
        return self.stop - self.start - sum(step * (count - 1) for count, step in self.rows)

    @property
    def columns(self) -> tuple[int, int, int] | None:
        """Pitch of the outermost rows, and the columns that they lie in; None for a run, and for rows that wrap."""
        if not self.rows:
            return None
        count, pitch = self.rows[0]
        first, width = self.start % pitch, self.stop - self.start - pitch * (count - 1)
        return (pitch, first, first + width) if first + width <= pitch else None

    def __str__(self) -> str:
        return f"bytes {self.start} to {self.stop}"


def region_of(access: Access, values: Mapping[str, Any], base: int = 0) -> tuple[Region, bool]:
    """The bytes that an access touches, and whether they are known.

    Parameters
    ----------
    access : Access
        What is done, and to which array.
    values : mapping of str to number
        Values of params by name. All of the buffer may be touched where one is missing.
    base : int
        Where the buffer begins.

    Examples
    --------
    >>> import numpy as np
    >>> from graphdsl.declare.definition import Definition
    >>> table = Definition().device_array("table", (3, 8), np.uint8)
    >>> region_of(Access(table[:, 2:4], False, True), {})
    (Region(start=2, stop=20, rows=((3, 8),)), True)
    """
    array = access.array
    try:
        start = base + int(value_of(array.offset, values))
        if access.nbytes is None:
            return _rows(array, start, values), True
        first = start + int(value_of(access.skipped, values))
        last = first + int(value_of(access.nbytes, values))
        return Region(first, last) if array.layout == "C" else clipped(_rows(array, start, values), first, last), True
    except (ArithmeticError, KeyError):
        return Region(base, base + array.buffer.allocation_nbytes), False


def _rows(array: Array, start: int, values: Mapping[str, Any]) -> Region:
    """All bytes of an array."""
    if array.layout == "C":
        return Region(start, start + int(value_of(array.nbytes, values)))
    *outer, (row, _) = ((int(value_of(extent, values)), steps[0]) for extent, steps in dimensions(array))
    if any(count < 1 for count, _ in outer):
        return Region(start, start)
    rows = tuple((count, step) for count, step in outer if count != 1 and step)
    return Region(start, start + row + sum(step * (count - 1) for count, step in rows), rows)


def clipped(region: Region, first: int, last: int) -> Region:
    """What of a region lies between two places, and at its ends perhaps some more of the outermost rows there.

    Examples
    --------
    >>> clipped(Region(2, 84, ((11, 8),)), 16, 32)
    Region(start=18, stop=28, rows=((2, 8),))
    """
    if last <= first or last <= region.start or region.stop <= first:
        return Region(region.start, region.start)
    if not region.rows:
        return Region(max(region.start, first), min(region.stop, last))
    (count, step), *inner = region.rows
    length = region.stop - region.start - step * (count - 1)
    begin = max((first - region.start - length) // step + 1, 0)
    end = min(-((region.start - last) // step), count)
    if end <= begin:
        return Region(region.start, region.start)
    rows = ((end - begin, step), *inner) if end - begin > 1 else tuple(inner)
    return Region(region.start + step * begin, region.start + step * (end - 1) + length, rows)


def overlap(one: Region, other: Region) -> bool | None:
    """True if two regions have a byte in common, False if they have none; None if that takes too long to find out.

    Examples
    --------
    >>> rows = Region(2, 20, ((3, 8),))
    >>> overlap(rows, Region(4, 22, ((3, 8),))), overlap(rows, Region(0, 11)), overlap(rows, Region(4, 10))
    (False, True, False)
    """
    if one.stop <= other.start or other.stop <= one.start or one.start == one.stop or other.start == other.stop:
        return False
    if not one.rows and not other.rows:
        return True
    try:
        return bool(np.shares_memory(_Bytes(one).array, _Bytes(other).array, max_work=_MOST_WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return None


class _Bytes:
    """A region as an array that NumPy can ask for its bounds; there is no memory."""

    def __init__(self, region: Region) -> None:
        counts, steps = zip(*region.rows, (region.row_nbytes, 1), strict=True)
        place = (_SOMEWHERE + region.start, True)
        self.__array_interface__ = {"version": 3, "data": place, "shape": counts, "strides": steps, "typestr": "|u1"}

    @property
    def array(self) -> np.ndarray[Any, Any]:
        return np.asarray(self)


class Places:
    """Regions of one memory, kept so that the neighbours of one are found without looking at all of them.

    Parameters
    ----------
    regions : sequence of Region
        Known by their numbers.
    """

    def __init__(self, regions: Sequence[Region]) -> None:
        self._regions = regions
        runs: list[int] = []
        pitched: dict[int, list[int]] = {}
        self._others: list[int] = []
        for number, region in enumerate(regions):
            columns = region.columns
            if not region.rows:
                runs.append(number)
            elif columns is None:
                self._others.append(number)
            else:
                pitched.setdefault(columns[0], []).append(number)
        self._runs = Intervals((regions[number].start, regions[number].stop, number) for number in runs)
        self._pitched = {
            pitch: Intervals((*regions[number].columns[1:], number) for number in numbers)  # type: ignore[index]
            for pitch, numbers in pitched.items()
        }
        self._found: dict[int, list[tuple[int, bool]]] = {}

    def neighbours(self, number: int) -> list[tuple[int, bool]]:
        """The regions that one overlaps, itself too, by number; False beside those that may and may not."""
        found = self._found.get(number)
        if found is None:
            region = self._regions[number]
            runs = self._runs.near(region.start, region.stop)
            found = list(self._met(region, runs)) if region.rows else [(other, True) for other in runs]
            found += self._met(region, self._rows_near(region))
            found.sort()
            self._found[number] = found
        return found

    def _met(self, region: Region, others: Iterable[int]) -> Iterator[tuple[int, bool]]:
        for other in others:
            shared = overlap(region, self._regions[other])
            if shared is not False:
                yield other, bool(shared)

    def _rows_near(self, region: Region) -> Iterator[int]:
        for pitch, intervals in self._pitched.items():
            first, last = _columns_in(region, pitch)
            yield from intervals.near(first, last)
        yield from self._others


def _columns_in(region: Region, pitch: int) -> tuple[int, int]:
    """The columns of rows of a pitch that a region may touch."""
    columns = region.columns
    if columns is not None and columns[0] == pitch:
        return columns[1:]
    first = region.start % pitch
    last = first + region.stop - region.start
    return (first, last) if last <= pitch else (0, pitch)


class Intervals:
    """Numbered intervals, sorted by where they begin, those of a like length together.

    Parameters
    ----------
    intervals : iterable of three int
        The first place, the one behind the last, and the number of each.

    Examples
    --------
    >>> list(Intervals([(0, 4, 7), (2, 6, 8), (9, 9, 9)]).near(3, 10))
    [7, 8]
    """

    def __init__(self, intervals: Iterable[tuple[int, int, int]]) -> None:
        alike: dict[int, list[tuple[int, int, int]]] = {}
        for first, last, number in intervals:
            if last > first:
                alike.setdefault((last - first).bit_length(), []).append((first, last, number))
        self._alike = [(1 << length, sorted(found)) for length, found in alike.items()]

    def near(self, first: int, last: int) -> Iterator[int]:
        """The numbers of those that have something between ``first`` and ``last``."""
        for longest, found in self._alike if first < last else ():
            begin = bisect_right(found, (first - longest,))
            for start, stop, number in found[begin : bisect_left(found, (last,))]:
                if stop > first and start < last:
                    yield number
