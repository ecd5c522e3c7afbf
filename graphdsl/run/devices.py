"""The devices of an exec, by the numbers that nodes and memory have; what they must reach of each other.

This module must not know how nodes are packed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from graphdsl.declare.node import Node
from graphdsl.declare.nodes import MemcpyNode, MemsetNode, named_operands
from graphdsl.declare.operands import Array, Buffer
from graphdsl.declare.targets import Targets
from graphdsl.drivers.base import Driver, Handle
from graphdsl.errors import UpdateError
from graphdsl.run.calls import CallLog


def targets(device: Driver, numbers: Iterable[int | None]) -> Targets:
    """What checks must know of a device that a graph is instantiated on, and of the others that it is about.

    Parameters
    ----------
    device : Driver
        Where the graph is instantiated.
    numbers : iterable of int or None
        The devices that the graph is about, as `Definition.devices` has them. No others are asked.
    """
    count = device.device_count
    found = {device.ordinal: device}
    found |= {n: device.sibling(n) for n in numbers if n is not None and n != device.ordinal and n < count}
    apart = frozenset(
        (here, owner)
        for here in found
        for owner in found
        if here != owner and not found[here].device_can_access_peer(owner)
    )
    limits = {number: found[number].limits for number in sorted(found)}
    return Targets(device.ordinal, limits, apart, count)


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
        """A stream on a device, for copies to and from its memory; it lives until `close`."""
        device = self[number]
        if device.ordinal not in self._streams:
            self._streams[device.ordinal] = device.stream_create()
        return self._streams[device.ordinal]

    def close(self) -> None:
        """Give the streams back."""
        while self._streams:
            ordinal, stream = self._streams.popitem()
            self[ordinal].stream_destroy(stream)

    @property
    def targets(self) -> Targets:
        """What checks must know of them."""
        return targets(self.home, self._by_number)

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
            elif self._enable(here, owner) and log is not None:
                log.add("cuCtxEnablePeerAccess", device=here, peer=owner)

    def let_sharers_reach(self, buffer: Buffer) -> None:
        """Let them reach memory of an alloc node that is allocated outside of the graph."""
        for here in self.sharers(buffer):
            self._enable(here, self[buffer.device].ordinal)

    def _enable(self, here: int, owner: int) -> bool:
        """Let a device reach the memory of another one, wherever it can; True if the driver was told."""
        if (here, owner) in self._reached or not self[here].device_can_access_peer(owner):
            return False
        self[here].ctx_enable_peer_access(self[owner].context)
        self._reached.add((here, owner))
        return True

    def sharers(self, buffer: Buffer) -> list[int]:
        """Numbers of the other devices whose nodes work on memory that the graph allocates."""
        return sorted(self._sharers.get(buffer.name, ()))

    def require_kept(self, before: Node, after: Node) -> None:
        """Refuse an update of a copy or memset that moves it, or a side of it, to another device."""
        if not self.several or not isinstance(before, (MemcpyNode, MemsetNode)):
            return
        for (field, was), (_, becomes) in zip(before.fields(), after.fields()):
            places = [self[each.buffer.device].ordinal for each in (was, becomes) if _on_device(each)]
            if len(set(places)) > 1 or (_on_device(was) and self[before.device] is not self[after.device]):
                raise UpdateError(
                    f"an update keeps the devices of a {before.kind}, and this memory was of device {places[0]}",
                    node=before.name,
                    field=field,
                    value=repr(becomes),
                    remedy="Declare a node for the other device, and disable the one that is not wanted.",
                    location=before.location,
                )

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


def _on_device(operand: Any) -> bool:
    return isinstance(operand, Array) and operand.space == "device"
