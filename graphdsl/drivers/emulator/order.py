"""Which of the nodes that are ready runs next.

This module must not know what nodes do.
"""

from __future__ import annotations

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
        self._heap: list[tuple[Any, int, Handle, Level]] = []

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, place: Place, handle: Handle, level: Level, later: bool = False) -> None:
        """Add a node of a level that is ready from now on.

        Parameters
        ----------
        place, handle, level
            The node.
        later : bool
            True for one that was taken, and was put off: it comes again, behind all others unless orders are drawn.
        """
        heapq.heappush(self._heap, (self._rank(place, later), next(self._number), handle, level))

    def _rank(self, place: Place, later: bool) -> Any:
        if self._order == "random":
            return self._rng.random()
        return later, (tuple(-number for number in place) if self._order == "reverse" else place)

    def discard(self, handle: Handle) -> None:
        """Forget a node, if it is here."""
        self._heap = [entry for entry in self._heap if entry[2] != handle]
        heapq.heapify(self._heap)

    def take(self) -> tuple[Level, Handle]:
        """The next node, and its level.

        Raises
        ------
        Problem
            If a callable chose one that is not ready.
        """
        if self._choose is None:
            _, _, handle, level = heapq.heappop(self._heap)
            return level, handle
        self._heap.sort()
        handles = [handle for _, _, handle, _ in self._heap]
        wanted = self._choose(handles)
        if wanted not in handles:
            raise Problem(
                f"the order of the emulator chose {wanted!r}, and ready are {', '.join(map(hex, handles))}",
                LAUNCH_FAILED,
                "Give one of the handles that it is called with.",
            )
        _, _, handle, level = self._heap.pop(handles.index(wanted))  # what is sorted stays a heap
        return level, handle
