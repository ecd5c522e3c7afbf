"""What the calls of an emulated device work on, and the look-ups that several groups of them share.

This module must not know what calls do.
"""

from __future__ import annotations

import itertools
import random
from typing import TypeVar

from graphdsl.declare.limits import Limits
from graphdsl.drivers.base import Handle
from graphdsl.drivers.emulator.capture import Captures
from graphdsl.drivers.emulator.graph import Exec, Graph, Node
from graphdsl.drivers.emulator.in_flight import InFlight
from graphdsl.drivers.emulator.kernels import Library
from graphdsl.drivers.emulator.machine import Machine
from graphdsl.drivers.emulator.order import Order
from graphdsl.drivers.emulator.problems import INVALID_HANDLE, Problem
from graphdsl.drivers.emulator.tenants import Tenants

_handles = itertools.count(0xE000_0000, 0x10)
LEGACY_STREAMS = (0, 1)  # NULL, CU_STREAM_LEGACY
_DEFAULT_STREAMS = (*LEGACY_STREAMS, 2)  # CU_STREAM_PER_THREAD


def new_handle() -> Handle:
    """A number that was never used before."""
    return next(_handles)


T = TypeVar("T")


def known(table: dict[Handle, T], handle: Handle, what: str) -> T:
    """What a handle stands for."""
    if handle not in table:
        raise Problem(f"{int(handle):#x} is no {what} of this device, or it was destroyed before")
    return table[handle]


class State:
    """What one emulated device has; the devices of a computer share all but the one that is current.

    Parameters
    ----------
    machine : Machine
        What nodes refer to.
    order : "declared", "random", "reverse" or callable
        Which of the nodes that are ready runs next.
    seed : int or None
        Of the random order.
    """

    def __init__(self, machine: Machine, order: Order, seed: int | None) -> None:
        self.order = order
        self.gate = machine.gate
        self.build_only = machine.build_only
        self._machine = machine
        self._rng = random.Random(seed)
        self._libraries: dict[Handle, Library] = {}
        self._in_flight = InFlight(self.gate)
        self._streams: dict[Handle, int] = {}  # device of each
        self._graphs: dict[Handle, Graph] = {}
        self._execs: dict[Handle, Exec] = {}
        self._nodes_with_graphs: dict[Handle, Handle] = {}  # graph inside of each child graph node
        self._captures = Captures()
        self._tenants = Tenants(machine.space)
        self._faults: list[Problem] = []  # one at most

    @property
    def ordinal(self) -> int:
        return self._machine.device.ordinal

    @property
    def limits(self) -> Limits:
        return self._machine.device.limits

    @property
    def name(self) -> str:
        return self._machine.device.limits.name

    @property
    def context(self) -> Handle:
        return self._machine.device.context

    def _report_fault(self) -> None:
        """Raise what went wrong in a node since the last report."""
        if self._faults:
            raise self._faults.pop()

    def _wait_for_stream(self, stream: Handle) -> None:
        self._check_stream(stream)
        self._captures.refuse(stream, "is not waited for")
        self._in_flight.wait(self._in_flight.last(stream))
        self._report_fault()

    def _check_stream(self, stream: Handle) -> None:
        if stream not in _DEFAULT_STREAMS and stream not in self._streams:
            raise Problem(f"{stream:#x} is no stream of this device", INVALID_HANDLE)

    def _node(self, handle: Handle) -> Node:
        """A node of any graph."""
        found = next((graph.nodes[handle] for graph in self._graphs.values() if handle in graph.nodes), None)
        if found is None:
            raise Problem(f"{handle:#x} is no node of a graph of this device")
        return found

    def _release_allocations(self, graph: Graph) -> None:
        """Give back what a graph allocates, once neither it nor an exec of it is there."""
        if not graph.alive and not graph.execs:
            for region in graph.allocations:
                self._machine.space.release(region.base, "device")
            graph.allocations.clear()
