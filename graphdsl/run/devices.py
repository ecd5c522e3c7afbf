"""The devices of an exec, by the numbers that nodes and memory have; what they must reach of each other.

This module must not know how nodes are packed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from graphdsl.declare.nodes import Node, named_operands
from graphdsl.declare.operands import Buffer
from graphdsl.drivers.base import Driver, Handle
from graphdsl.errors import UpdateError
from graphdsl.run.blocks import freed_with
from graphdsl.run.calls import CallLog


class Devices:
    """The devices that the nodes and the memory of an exec are on.

    Parameters
    ----------
    home : Driver
        The device that the graph is instantiated on.

    Attributes
    ----------
    home : Driver
        As given; the exec and its stream are there.
    contexts : dict of int or None to int
        The context of each.
    """

    def __init__(self, home: Driver) -> None:
        self.home = home
        self._by_number: dict[int | None, Driver] = {None: home, home.ordinal: home}
        self.contexts: dict[int | None, Handle] = dict.fromkeys(self._by_number, home.context)
        self._streams: dict[int, Handle] = {}
        self._reached: set[tuple[int, int]] = set()
        self._sharers: dict[str, set[int]] = {}

    def __getitem__(self, number: int | None) -> Driver:
        return self._by_number[number]

    @property
    def several(self) -> bool:
        """True unless all is on one device."""
        return len(self._by_number) > 2

    def said(self, number: int | None) -> dict[str, Any]:
        """What a call of the log says of the device: its number where there are several, else nothing."""
        return {"device": self[number].ordinal} if self.several else {}

    def include(self, numbers: Iterable[int | None]) -> None:
        """Let nodes and memory be on more devices."""
        for number in numbers:
            if number not in self._by_number:
                self._by_number[number] = self.home.sibling(number)  # type: ignore[arg-type]  # None is there
                self.contexts[number] = self._by_number[number].context

    def stream(self, number: int | None) -> Handle:
        """A stream on a device, for copies to and from its memory; it lives as long as this object."""
        device = self[number]
        if device.ordinal not in self._streams:
            made = self._streams[device.ordinal] = device.stream_create()
            freed_with(self, device.stream_destroy, made)
        return self._streams[device.ordinal]

    # Memory of other devices

    def let_reach(self, nodes: Iterable[Node], log: CallLog | None = None) -> None:
        """Let the devices that nodes run on reach the memory that the nodes work on, wherever it can be reached.

        What a kernel cannot reach, the checks have refused; a copy goes through the host then. Of what alloc nodes
        allocate, `sharers` says who reaches it.
        """
        if not self.several:
            return
        for here, buffer in self._foreign(nodes):
            owner = self[buffer.device].ordinal
            if buffer.allocated:
                self._sharers.setdefault(buffer.name, set()).add(here)
            elif (here, owner) not in self._reached and self[here].device_can_access_peer(owner):
                self[here].ctx_enable_peer_access(self[owner].context)
                self._reached.add((here, owner))
                if log is not None:
                    log.add("cuCtxEnablePeerAccess", device=here, peer=owner)

    def sharers(self, buffer: Buffer) -> list[int]:
        """Numbers of the other devices whose nodes work on memory that the graph allocates."""
        return sorted(self._sharers.get(buffer.name, ()))

    def require_shared(self, node: Node) -> None:
        """Refuse an update of a node that works on memory which the graph allocates for other devices alone."""
        for here, buffer in self._foreign([node]) if self.several else ():
            if buffer.allocated and here not in self._sharers.get(buffer.name, ()):
                raise UpdateError(
                    f"{buffer.name!r} is allocated on device {self[buffer.device].ordinal}, for devices whose nodes "
                    f"work on it when the graph is instantiated, and device {here} is none of them",
                    node=node.name,
                    field="operand",
                    value=buffer.name,
                    remedy="Declare the node so, and instantiate the graph again.",
                    location=node.location,
                )

    def _foreign(self, nodes: Iterable[Node]) -> Iterator[tuple[int, Buffer]]:
        """The number of the device of each node, with each buffer of another device that the node works on."""
        for node in nodes:
            here = self[node.device].ordinal
            for _, operand in named_operands(node):
                if isinstance(operand, Buffer) and operand.space == "device" and self[operand.device].ordinal != here:
                    yield here, operand
