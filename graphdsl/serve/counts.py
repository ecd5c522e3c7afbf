"""What a cache has done so far: how often, and why.

This module must not know who counts.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal

Event = Literal["hit", "padded", "miss", "instantiate", "evict", "fallback", "refused"]

HIT: tuple[Event, str] = ("hit", "the execs of the bucket were there")
PADDED: tuple[Event, str] = ("padded", "the request is smaller than its bucket")


class Counts:
    """How often each thing has happened in a cache; printed, it is a table.

    Attributes
    ----------
    hit : int
        Requests whose exec was there.
    padded : int
        Requests that were smaller than their bucket.
    miss : int
        Requests whose exec was not there.
    instantiate : int
        Buckets whose execs were built.
    evict : int
        Buckets whose execs were given up.
    fallback : int
        Requests that the fallback got.
    refused : int
        Requests that got nothing.
    reasons : Counter
        How often each happened for each reason: the keys are pairs of text.

    Examples
    --------
    >>> counts = Counts()
    >>> counts.add("miss", "the first request of the bucket")
    >>> counts.miss, counts.hit
    (1, 0)
    >>> print(counts)
    miss         1  the first request of the bucket
    """

    def __init__(self, reasons: Counter[tuple[Event, str]] | None = None) -> None:
        self.reasons: Counter[tuple[Event, str]] = Counter() if reasons is None else reasons

    def add(self, event: Event, why: str) -> None:
        """Count one."""
        self.reasons[event, why] += 1

    def add_hit(self, padded: bool) -> None:
        """Count a request whose exec was there."""
        self.reasons[HIT] += 1
        if padded:
            self.reasons[PADDED] += 1

    def copy(self) -> Counts:
        """The same, as it is now."""
        return Counts(self.reasons.copy())

    def _of(self, event: Event) -> int:
        return sum(count for (each, _), count in self.reasons.items() if each == event)

    @property
    def hit(self) -> int:
        return self._of("hit")

    @property
    def padded(self) -> int:
        return self._of("padded")

    @property
    def miss(self) -> int:
        return self._of("miss")

    @property
    def instantiate(self) -> int:
        return self._of("instantiate")

    @property
    def evict(self) -> int:
        return self._of("evict")

    @property
    def fallback(self) -> int:
        return self._of("fallback")

    @property
    def refused(self) -> int:
        return self._of("refused")

    def __str__(self) -> str:
        return "\n".join(f"{event:<11}{count:>3}  {why}" for (event, why), count in sorted(self.reasons.items()))
