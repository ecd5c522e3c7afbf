"""Times of one kind, counted by how long they are: few numbers, however many times there were.

This module must not know what was timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf

import numpy as np

from graphdsl.forks import Lock

BOUNDS = tuple(10.0 ** (step / 20 - 6) for step in range(141))
"""Seconds, from 1 µs to 10 s: a time is counted at the first that it does not exceed; longer ones behind the last."""

_EDGES = np.array(BOUNDS)
_MOST_NEW = 256  # times that are kept one by one until they are counted


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

    @classmethod
    def of_all(cls, parts: Sequence[Summary]) -> Summary:
        """What is known of the times of several summaries together.

        Examples
        --------
        >>> Summary.of_all([Summary(), Summary(1, 0.5, 0.5, 0.5)]).longest
        0.5
        """
        parts = [each for each in parts if each.count]
        if len(parts) < 2:
            return parts[0] if parts else cls()
        return cls(
            sum(each.count for each in parts),
            sum(each.total for each in parts),
            min(each.shortest for each in parts),
            max(each.longest for each in parts),
            tuple(map(sum, zip(*(each.counts for each in parts), strict=True))),
        )

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
    """Takes times of one kind, from any thread; launches wait for it, so that adding one is little but an append."""

    __slots__ = ("__weakref__", "_counts", "_lock", "_longest", "_new", "_shortest", "_total")

    def __init__(self) -> None:
        self._new: list[float] = []
        self._total = 0.0
        self._shortest = inf
        self._longest = 0.0
        self._counts = np.zeros(len(BOUNDS) + 1, np.int64)
        self._lock = Lock()

    def add(self, seconds: float) -> None:
        """Count a time."""
        new = self._new
        new.append(seconds)
        if len(new) >= _MOST_NEW:
            self._take_new()

    def _take_new(self) -> None:
        """Count those that were added since the last time; what other threads add meanwhile stays behind them."""
        with self._lock:
            found = np.array(self._new)
            del self._new[: len(found)]
            if len(found):
                self._counts += np.bincount(np.searchsorted(_EDGES, found), minlength=len(self._counts))
                self._total += float(found.sum())
                self._shortest = min(self._shortest, float(found.min()))
                self._longest = max(self._longest, float(found.max()))

    def summary(self) -> Summary:
        """What is known of them now."""
        with self._lock:
            self._take_new()
            counts = self._counts.tolist()
            if not any(counts):
                return Summary()
            return Summary(sum(counts), self._total, self._shortest, self._longest, tuple(counts))
