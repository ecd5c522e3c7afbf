"""Events: what nodes record and wait for, and what others outside of the graph wait for and record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphdsl.errors import DeclarationError, Location

if TYPE_CHECKING:
    from graphdsl.declare.store import Level

_HANDLES = ("handle", "cuda_event", "ptr")
"""Where objects of other libraries have the driver's handle of an event: cuda.core, PyTorch and Numba, CuPy."""


class Event:
    """An event with a name; made by `Graph.event`.

    Attributes
    ----------
    name : str
        Unique among the operands of the graph.
    owner : object or None
        Who owns it; None where every exec has its own.
    timing : bool
        True if the time between it and another one can be asked; of an event of somebody else nothing is known.
    device : int or None
        Number of the device that it is of; None for that which the graph is instantiated on.
    """

    __slots__ = ("definition", "device", "location", "name", "owner", "timing")
    params: frozenset[Any] = frozenset()

    def __init__(
        self,
        name: str,
        owner: Any,
        timing: bool,
        definition: Level,
        location: Location | None,
        device: int | None = None,
    ) -> None:
        self.name = name
        self.owner = owner
        self.timing = timing
        self.definition = definition
        self.location = location
        self.device = device

    @property
    def external(self) -> bool:
        """True if somebody else owns it."""
        return self.owner is not None

    def __repr__(self) -> str:
        return self.name


def event_handle(owner: Any, field: str) -> int:
    """The driver's handle of an event that somebody else owns.

    Parameters
    ----------
    owner : int or object
        A handle, or an event of cuda.core, PyTorch, Numba or CuPy.
    field : str
        What messages call it.

    Raises
    ------
    DeclarationError
        If it is neither.

    Examples
    --------
    >>> event_handle(4096, "done")
    4096
    """
    found = owner
    for name in _HANDLES:
        found = getattr(owner, name, found)
    try:
        handle = 0 if isinstance(found, bool) else int(getattr(found, "value", found))
    except (TypeError, ValueError):
        handle = 0
    if handle <= 0 or isinstance(owner, (float, np.floating)):
        raise DeclarationError(
            "an event of somebody else is its handle, or an event of cuda.core, PyTorch, Numba or CuPy",
            field=field,
            value=f"{owner!r} of type {type(owner).__name__}",
            remedy="Record it once, so that it has a handle, and pass it; leave owner out for one of the exec's own.",
        )
    return handle


def require_own_timing(timing: bool, name: str) -> None:
    """Refuse to time an event of somebody else, who made it with timing or without."""
    if timing:
        raise DeclarationError(
            "whether an event of somebody else tells the time was decided when it was made",
            field=f"timing of {name!r}",
            value=timing,
            remedy="Ask its owner for the time, or leave owner out for an event of the exec's own.",
        )


def require_event(event: Any, node: str | None) -> None:
    """Refuse what is no event of a graph."""
    if not isinstance(event, Event):
        raise DeclarationError(
            "what a node records or waits for is an event of the graph",
            node=node,
            field="event",
            value=f"{event!r} of type {type(event).__name__}",
            remedy="Declare it with graph.event; graph.event(name, owner) adopts one of somebody else.",
        )
