"""The events of an exec: its own, and those of others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphdsl.declare.event import Event, event_handle
from graphdsl.drivers.base import Driver, Handle
from graphdsl.errors import DeclarationError, GraphdslError, UpdateError
from graphdsl.run.blocks import freed_with
from graphdsl.run.calls import CallLog
from graphdsl.run.faults import told
from graphdsl.run.refusal import refused
from graphdsl.run.stream import stream_handle


class OwnEvent:
    """An event of an exec; given by ``exe[name]``. It is destroyed with the last object that refers to it.

    Attributes
    ----------
    handle : int
        The driver's.
    timing : bool
        True if the time between it and another can be asked.
    """

    def __init__(self, name: str, timing: bool, device: Driver) -> None:
        self.name = name
        self.timing = timing
        self._device = device
        self.handle: Handle = device.event_create(timing)
        freed_with(self, device.event_destroy, self.handle)

    def record(self, stream: Any) -> None:
        """Record it after the work now in a stream: a handle, or an object with ``__cuda_stream__``."""
        self._device.event_record(self.handle, stream_handle(stream))

    def query(self) -> bool:
        """True if what its last record waits for is done, or if it was never recorded."""
        with told(self._device):
            return self._device.event_query(self.handle)

    def synchronize(self) -> None:
        """Wait until what its last record waits for is done."""
        with told(self._device):
            self._device.event_synchronize(self.handle)

    def elapsed_since(self, start: OwnEvent) -> float:
        """Milliseconds from the last record of ``start`` to that of this event; both were declared with timing.

        Raises
        ------
        GraphdslError
            If one of them was declared without timing.
        DriverError
            If one was never recorded, or is not done yet.
        """
        for event in (start, self):
            if not event.timing:
                raise GraphdslError(
                    "only events that are declared with timing tell the time",
                    field="event",
                    value=event.name,
                    remedy=f"Declare it with graph.event({event.name!r}, timing=True).",
                )
        with told(self._device):
            return self._device.event_elapsed_time(start.handle, self.handle)

    def __repr__(self) -> str:
        return f"<event {self.name!r} of an exec on {self._device.name}>"


def own_event(event: Event, device: Driver, log: CallLog, said: Mapping[str, Any]) -> OwnEvent:
    """Make the event of an exec; ``said`` is what the log says of the device."""
    made = OwnEvent(event.name, event.timing, device)
    log.add("cuEventCreate", event.name, flags="DEFAULT" if event.timing else "DISABLE_TIMING", **said)
    return made


def adopted_handle(event: Event, owner: Any) -> Handle:
    """The handle of another owner for an event that is not the exec's own.

    Raises
    ------
    UpdateError
        If the event is the exec's own, or the owner has no handle.
    """
    if not event.external:
        raise UpdateError(
            "only events of others can be re-bound: this one is the exec's own",
            field=event.name,
            value=f"an object of type {type(owner).__name__}",
            remedy="Declare it with graph.event(name, owner).",
        )
    try:
        return event_handle(owner, event.name)
    except DeclarationError as problem:
        raise refused(problem) from None
