"""Times of one kind, counted by how long they are: few numbers, however many times there were.

This module must not know what was timed.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate
from math import inf

BOUNDS = tuple(10.0 ** (step / 20 - 6) for step in range(141))
"""Seconds, from 1 µs to 10 s: a time is counted at the first that it does not exceed; longer ones behind the last."""


@dataclass(frozen=True)
class Summary:
    """What is known of times of one kind.

    Attributes
    ----------
    count : int
        How many there were.
    total : float
        Their sum, in seconds.
    shortest, longest : float
        In seconds; 0 if there was none.
    counts : tuple of int
        How many of them were counted at each of `BOUNDS`, and behind the last.
    """

    count: int = 0
    total: float = 0.0
    shortest: float = 0.0
    longest: float = 0.0
    counts: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)

    @property
    def mean(self) -> float:
        """Seconds on average; 0 if there was none."""
        return self.total / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """The time in seconds that this share of them does not exceed; 0 if there was none.

        It lies between two of `BOUNDS`, which are a factor of 1.12 apart, and is placed there as if the times between
        them were spread evenly.

        Parameters
        ----------
        share : float
            From 0 to 1: 0.5 gives the median.

        Examples
        --------
        >>> times = Times()
        >>> for microseconds in (10, 10, 10, 400):
        ...     times.add(microseconds * 1e-6)
        >>> round(times.summary().quantile(0.5) * 1e6, 1), round(times.summary().quantile(1) * 1e6, 1)
        (10.0, 400.0)
        """
        if not self.count:
            return 0.0
        wanted = share * self.count
        before = 0
        for place, count in enumerate(self.counts):
            if count and before + count >= wanted:
                low = max(BOUNDS[place - 1], self.shortest) if place else self.shortest
                high = min(BOUNDS[place], self.longest) if place < len(BOUNDS) else self.longest
                return low + (high - low) * max(wanted - before, 0.0) / count
            before += count
        return self.longest

    def cumulative(self, step: int = 1) -> list[tuple[float, int]]:
        """For every so many of `BOUNDS`, the first and the last among them, how many times do not exceed it."""
        return list(zip(BOUNDS, accumulate(self.counts)))[::step]


class Times:
    """Takes times of one kind; whoever adds one holds a lock of his own."""

    __slots__ = ("_count", "_counts", "_longest", "_shortest", "_total")

    def __init__(self) -> None:
        self._count = 0
        self._total = 0.0
        self._shortest = inf
        self._longest = 0.0
        self._counts = [0] * (len(BOUNDS) + 1)

    def add(self, seconds: float) -> None:
        """Count a time."""
        self._count += 1
        self._total += seconds
        if seconds > self._longest:
            self._longest = seconds
        if seconds < self._shortest:
            self._shortest = seconds
        self._counts[bisect_left(BOUNDS, seconds)] += 1

    def summary(self) -> Summary:
        """What is known of them now."""
        shortest = self._shortest if self._count else 0.0
        return Summary(self._count, self._total, shortest, self._longest, tuple(self._counts))
