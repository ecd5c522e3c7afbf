"""Events of the emulator, and the nodes that record and wait for them.

An event is recorded at once, unless what comes before it is in flight.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

from graphdsl.drivers.base import Address, Handle
from graphdsl.drivers.emulator.in_flight import Launch
from graphdsl.drivers.emulator.machine import Machine
from graphdsl.drivers.emulator.nodes import NodeKind, struct_at
from graphdsl.drivers.emulator.problems import INVALID_HANDLE, INVALID_VALUE, Problem
from graphdsl.drivers.structs import EVENT_NODE


@dataclass
class Event:
    """An event.

    Attributes
    ----------
    timing : bool
        True if it keeps the time.
    device : int
        Number of the device that it was made for.
    recorded : float or None
        Seconds at which it was recorded last; None if it never was.
    behind : Launch or None
        The launch in flight that records it, or that it is recorded behind.
    """

    timing: bool
    device: int
    recorded: float | None = None
    behind: Launch | None = None

    @property
    def done(self) -> bool:
        """True if what comes before its last record has ended."""
        return self.behind is None or self.behind.done

    def record(self, behind: Launch | None = None) -> None:
        """Record it now, or behind a launch in flight."""
        self.recorded = time.perf_counter()
        self.behind = behind


def event_of(machine: Machine, handle: Handle, code: int = INVALID_VALUE) -> Event:
    """The event of a handle; a `Problem` with ``code`` if there is none."""
    found: Event | None = machine.events.get(handle)
    if found is None:
        raise Problem(
            f"{handle:#x} is no event of this device, or it was destroyed", code, "Keep it as long as it is used."
        )
    return found


def _read(machine: Machine, address: Address) -> Handle:
    handle = int(struct_at(address, EVENT_NODE)["event"])
    if not handle or not machine.build_only:  # an event of another device cannot be told from none
        event_of(machine, handle)
    return handle


def _record(machine: Machine, handle: Handle) -> None:
    event_of(machine, handle, INVALID_HANDLE).record()
    machine.gate.announce()


class Awaited(NamedTuple):
    """The last record of an event before a launch: what a node of the launch waits for, whatever is recorded later.

    Attributes
    ----------
    event : int
        Handle of the event.
    behind : Launch or None
        What the record is behind.
    """

    event: Handle
    behind: Launch | None


def _wait(machine: Machine, waited: Handle | Awaited) -> None:
    if not isinstance(waited, Awaited):
        waited = Awaited(waited, event_of(machine, waited, INVALID_HANDLE).behind)
    event_of(machine, waited.event, INVALID_HANDLE)
    machine.gate.wait_until(lambda: waited.behind is None or waited.behind.done)


EVENT_RECORD = NodeKind("event record", _read, _record)
EVENT_WAIT = NodeKind("event wait", _read, _wait)
