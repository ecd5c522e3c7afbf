"""Places things of given sizes on a line, those that conflict apart from each other and all as low as can be.

To do it best is hard (it is colouring a graph); this does it well in little time. The same sizes and conflicts in the
same order give the same places. This module must not know what is placed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Sizes = np.ndarray[Any, np.dtype[np.int64]]
Bits = np.ndarray[Any, np.dtype[np.uint8]]


def placed(sizes: Sizes, conflicts: Bits, orders: Sequence[Sizes], least: int = 0) -> Sizes:
    """The offset of each thing: the best that is found.

    Parameters
    ----------
    sizes : numpy.ndarray of int64
        Of each thing, 1 at least.
    conflicts : numpy.ndarray of uint8
        Of each thing the bits of those that it conflicts with, the first of eight in the lowest place of a byte.
    orders : sequence of numpy.ndarray of int64
        In which order things are placed; each has all of them. The first is also tried below a ceiling.
    least : int
        What is known to be needed at least; with that much no more is tried.

    Examples
    --------
    >>> sizes, conflicts = np.array([4, 2, 3]), np.array([[0b010], [0b101], [0b010]], np.uint8)
    >>> placed(sizes, conflicts, [np.arange(3)]).tolist()
    [0, 4, 0]
    """
    best, height = np.zeros(len(sizes), np.int64), int(sizes.sum()) + 1
    for order in orders:
        if height > least:
            best, height = _better(best, height, sizes, _one_by_one(sizes, conflicts, order, None))
    low, ceiling = least, least
    for _ in range(_CEILINGS):
        if low >= height:
            break
        best, height = _better(best, height, sizes, _one_by_one(sizes, conflicts, orders[0], ceiling))
        low = ceiling + 1
        ceiling = (low + height) // 2
    return best


_CEILINGS = 4
"""How many are tried, from the lowest on: each takes as long as an order."""


def _better(best: Sizes, height: int, sizes: Sizes, offsets: Sizes) -> tuple[Sizes, int]:
    reached = int((offsets + sizes).max(initial=0))
    return (offsets, reached) if reached < height else (best, height)


def _one_by_one(sizes: Sizes, conflicts: Bits, order: Sizes, ceiling: int | None) -> Sizes:
    """Place each thing into the tightest gap between those it conflicts with, the lowest of equally tight ones.

    With a ceiling, what lies above all others that it conflicts with lies right below it: in a chain, where each thing
    conflicts with the next, they lie at the floor and at the ceiling by turns, and two always fit.
    """
    count = len(sizes)
    offsets = np.zeros(count, np.int64)
    there = np.zeros(count, np.intp)  # what is placed, by offset
    lows = np.zeros(count, np.int64)
    for number, thing in enumerate(order.tolist()):
        among = there[:number]
        flags = np.unpackbits(conflicts[thing], count=count, bitorder="little")
        near = among[flags[among].view(np.bool_)]
        low = _tightest(offsets[near], sizes[near], int(sizes[thing]), ceiling)
        offsets[thing] = low
        at = int(np.searchsorted(lows[:number], low))
        there[at + 1 : number + 1] = there[at:number].copy()
        lows[at + 1 : number + 1] = lows[at:number].copy()
        there[at], lows[at] = thing, low
    return offsets


def _tightest(lows: Sizes, sizes: Sizes, size: int, ceiling: int | None) -> int:
    """Where there is the smallest gap that is large enough; ``lows`` ascend."""
    if not len(lows):
        return 0
    ends = np.maximum.accumulate(lows + sizes)
    gaps = lows.copy()
    gaps[1:] -= ends[:-1]
    top = int(ends[-1])
    above = 0 if ceiling is None else ceiling - top
    fitting = np.flatnonzero(gaps >= size)
    if len(fitting):
        gap = int(fitting[np.argmin(gaps[fitting])])
        if not size <= above < gaps[gap]:
            return int(ends[gap - 1]) if gap else 0
    return top + above - size if above >= size else top
