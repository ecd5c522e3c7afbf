"""Which of the nodes that are ready runs next.

This module must not know what nodes do.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, TypeVar

from graphdsl.drivers.base import Handle
from graphdsl.drivers.emulator.problems import LAUNCH_FAILED, Problem

Order = Literal["declared", "random", "reverse"] | Callable[[Sequence[Handle]], Handle]
"""Of the nodes that are ready the first that was added, one drawn by lot, the last, or the one that is chosen."""

Place = tuple[int, ...]
"""Where a node was added: its number, behind that of the node that it is inside of."""

Level = TypeVar("Level")


class Ready(Generic[Level]):
    """The nodes of one launch that nothing is missing for, at any depth: those in children run beside those outside.

    Parameters
    ----------
    order : "declared", "random", "reverse" or callable
        Which comes next. For a random order each node draws a number when it becomes ready, and the least comes first.
        So each order can come, and any node comes as late as it can once in as many draws as there are nodes: a long
        chain does not overtake it always, as it would if each step drew one of the nodes.
        A callable is given the handles of all of them, in the order in which they were added, and gives one. A kernel
        that one behind it may overlap comes twice: when its turn has come, and when it runs, if that is before the one
        behind waits for it.
    rng : random.Random
        Draws.

    Examples
    --------
    >>> ready = Ready("reverse", random.Random())
    >>> for number in range(3):
    ...     ready.add((number,), 100 + number, "graph")
    >>> ready.take()
    ('graph', 102)
    """

    def __init__(self, order: Order, rng: random.Random) -> None:
        self._choose = order if callable(order) else None
        self._order = order
        self._rng = rng
        self._number = itertools.count()  # of equal ranks the first comes first
        self._entries: list[tuple[Any, int, Handle, Level]] = []  # a heap; for a callable sorted, as its handles are
        self._handles: list[Handle] = []

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, place: Place, handle: Handle, level: Level, later: bool = False) -> None:
        """Add a node of a level that is ready from now on.

        Parameters
        ----------
        place, handle, level
            The node.
        later : bool
            True for one that was taken, and was put off: it comes again, behind all others unless orders are drawn.
        """
        entry = self._rank(place, later), next(self._number), handle, level
        if self._choose is None:
            heapq.heappush(self._entries, entry)
        else:
            where = bisect.bisect(self._entries, entry)
            self._entries.insert(where, entry)
            self._handles.insert(where, handle)

    def _rank(self, place: Place, later: bool) -> Any:
        if self._order == "random":
            return self._rng.random()
        return later, (tuple(-number for number in place) if self._order == "reverse" else place)

    def discard(self, handle: Handle) -> None:
        """Forget a node, if it is here."""
        self._entries = [entry for entry in self._entries if entry[2] != handle]
        self._handles = [other for other in self._handles if other != handle]
        if self._choose is None:
            heapq.heapify(self._entries)

    def take(self) -> tuple[Level, Handle]:
        """The next node, and its level.

        Raises
        ------
        Problem
            If a callable chose one that is not ready.
        """
        if self._choose is None:
            _, _, handle, level = heapq.heappop(self._entries)
            return level, handle
        wanted = self._choose(tuple(self._handles))
        if wanted not in self._handles:
            raise Problem(
                f"the order of the emulator chose {wanted!r}, and ready are {', '.join(map(hex, self._handles))}",
                LAUNCH_FAILED,
                "Give one of the handles that it is called with.",
            )
        where = self._handles.index(wanted)
        del self._handles[where]
        _, _, handle, level = self._entries.pop(where)
        return level, handle
