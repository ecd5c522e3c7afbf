"""Who is served when: the slots and pages of requests that come and go. Plain Python, which knows of no device.

A request holds a slot, its row in the state of the engine, and as many pages of the cache as its prompt and its longest
answer can need, from the moment it is admitted until it leaves. Which pages these are is decided on the device, when
they are needed; here they are counted, so that a page is there whenever a request asks for it, and none is thrown out
to make room for another. Requests are admitted in the order in which they came: where the first does not fit yet,
nobody overtakes it, so that each is served, and after all that came before it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import graphdsl as gd


class Busy(gd.GraphdslError):
    """As many requests wait as may: back pressure. The same request may be made again when others are admitted."""


@dataclass(frozen=True)
class Place:
    """What an admitted request holds: a slot, and so many pages."""

    slot: int
    pages: int


class Scheduler:
    """Slots, pages, and the line of those who wait for them.

    Parameters
    ----------
    slots : int
        Requests that are served at the same time, at most.
    pages : int
        Pages of the cache that there are for them.
    page : int
        Tokens in a page.
    context : int
        Tokens of prompt and answer, at most.
    waiting : int
        Requests that may wait; one more is refused with `Busy`.

    Examples
    --------
    >>> line = Scheduler(slots=2, pages=4, page=16, context=64)
    >>> for name, tokens in (("a", 40), ("b", 30), ("c", 10)):
    ...     line.submit(name, tokens)
    >>> list(line.admitted())
    [('a', Place(slot=0, pages=3))]
    >>> line.leave("a")
    >>> list(line.admitted())
    [('b', Place(slot=0, pages=2)), ('c', Place(slot=1, pages=1))]
    """

    def __init__(self, slots: int, pages: int, page: int, context: int, waiting: int = 1024) -> None:
        self.slots = slots
        self.pages = pages
        self.page = page
        self.context = context
        self.most_waiting = waiting
        self._free_slots = list(reversed(range(slots)))  # the last is taken first
        self._free_pages = pages
        self._waiting: OrderedDict[Hashable, int] = OrderedDict()  # their pages, in their order
        self._places: dict[Hashable, Place] = {}

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    @property
    def places(self) -> dict[Hashable, Place]:
        """What each of the requests that are served holds, in the order in which they were admitted."""
        return dict(self._places)

    @property
    def free(self) -> tuple[int, int]:
        """Slots and pages that nobody holds."""
        return len(self._free_slots), self._free_pages

    def __contains__(self, request: object) -> bool:
        """Whether a request waits or is served."""
        return request in self._places or request in self._waiting

    def submit(self, request: Hashable, tokens: int) -> None:
        """Let a request wait for its turn.

        Parameters
        ----------
        request : hashable
            A name of its own.
        tokens : int
            Of its prompt and its longest answer.

        Raises
        ------
        GraphdslError
            If it can never be served; or is here already.
        Busy
            If too many wait.
        """
        if request in self:
            raise gd.GraphdslError(
                "each request has a name of its own, until it has left",
                field="request",
                value=repr(request),
                remedy="Give it another name.",
            )
        most = min(self.context, self.pages * self.page)
        if not 0 < tokens <= most:
            raise gd.GraphdslError(
                f"the prompt and the longest answer of a request have 1 to {most} tokens: a context of {self.context}, "
                f"and {self.pages} pages of {self.page} tokens",
                field="tokens",
                value=tokens,
                remedy="Shorten the prompt, ask for fewer tokens, or make an engine with more context and pages.",
            )
        if self.waiting >= self.most_waiting:
            raise Busy(
                f"at most {self.most_waiting} requests wait",
                field="waiting",
                value=self.waiting,
                remedy="Ask again when some have been answered, or make an engine in which more may wait.",
            )
        self._waiting[request] = -(-tokens // self.page)

    @property
    def next_fits(self) -> bool:
        """Whether the first of those who wait can be admitted now."""
        return bool(self._waiting and self._free_slots) and next(iter(self._waiting.values())) <= self._free_pages

    def admitted(self) -> Iterator[tuple[Hashable, Place]]:
        """Admit those who wait, in their order, as long as the next one fits; what each is given."""
        while self.next_fits:
            request, pages = self._waiting.popitem(last=False)
            self._free_pages -= pages
            self._places[request] = Place(self._free_slots.pop(), pages)
            yield request, self._places[request]

    def leave(self, request: Hashable) -> None:
        """Take back what a request holds, or take it out of the line.

        Raises
        ------
        GraphdslError
            If there is no such request.
        """
        if request in self._places:
            place = self._places.pop(request)
            self._free_slots.append(place.slot)
            self._free_pages += place.pages
        elif self._waiting.pop(request, None) is None:
            raise gd.GraphdslError(
                "only a request that waits or is served can leave",
                field="request",
                value=repr(request),
                remedy="Let each leave once.",
            )
