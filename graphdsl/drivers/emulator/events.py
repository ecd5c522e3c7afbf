"""Events of the emulator, and the nodes that record and wait for them.

A launch runs its nodes at once, so what a node waits for is done already.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from graphdsl.drivers.base import Address, Handle
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
    recorded : float or None
        Seconds at which it was recorded last; None if it never was.
    """

    timing: bool
    recorded: float | None = None

    def record(self) -> None:
        """Record it now."""
        self.recorded = time.perf_counter()


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


EVENT_RECORD = NodeKind(
    "event record", _read, lambda machine, handle: event_of(machine, handle, INVALID_HANDLE).record()
)
EVENT_WAIT = NodeKind("event wait", _read, lambda machine, handle: _require(machine, handle))


def _require(machine: Machine, handle: Handle) -> None:
    event_of(machine, handle, INVALID_HANDLE)
