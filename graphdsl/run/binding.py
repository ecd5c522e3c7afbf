"""The memory and the events of an exec: its own are made, those of others are adopted, and all are found by name.

This module must not know nodes: it gives every buffer an address, and every event a handle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from graphdsl.declare.event import event_handle
from graphdsl.declare.expressions import value_of
from graphdsl.declare.interop import ForeignArray, foreign_array, host_view
from graphdsl.declare.operands import Array, Buffer
from graphdsl.drivers.base import Address, Driver
from graphdsl.errors import GraphdslError, UpdateError
from graphdsl.plan import Plan
from graphdsl.run.blocks import DeviceBlock, HostBlock
from graphdsl.run.calls import CallLog
from graphdsl.run.device_array import DeviceArray
from graphdsl.run.events import adopted_handle, own_event
from graphdsl.run.refusal import refused


class Binding(NamedTuple):
    """What an external buffer or event is bound to: the owner, what keeps it where it is, and its address or handle."""

    owner: Any
    keep: Any
    address: Address


class Memory:
    """Where the buffers of an exec lie.

    Attributes
    ----------
    owners : dict of str to object
        The owners of external buffers that the user gave, by name.
    kept : dict of str to object
        What keeps the memory of each buffer where it is, by name.
    """

    def __init__(
        self,
        plan: Plan,
        device: Driver,
        log: CallLog,
        values: dict[str, Any],
        bound: Mapping[str, Binding] = MappingProxyType({}),
    ) -> None:
        """Find or make the memory of each buffer; ``values`` takes the addresses by name.

        An external buffer that ``bound`` has is bound so, and others to their owners in the definition.
        """
        self.buffers = plan.buffers
        self._events = plan.events
        self.owners: dict[str, Any] = {}
        self.kept: dict[str, Any] = {}
        self._device = device
        arena = _arena(plan, device, log)
        for name, buffer in plan.buffers.items():
            if arena is not None and name in plan.memory.offsets:
                self.kept[name] = arena
                values[name] = arena.address + plan.memory.offsets[name]
            elif buffer.allocated:
                continue  # the driver gives its address when its node is added
            elif buffer.external:
                self.owners[name], self.kept[name], values[name] = bound.get(name) or self._declared(buffer)
            else:
                self.kept[name], values[name] = _host_memory(buffer, device, log)
        for name, event in plan.events.items():
            if event.external:
                owner = event.owner
                self.owners[name], self.kept[name], values[name] = bound.get(name) or Binding(
                    owner, owner, event_handle(owner, name)
                )
            else:
                own = self.kept[name] = own_event(event, device, log)
                values[name] = own.handle

    def _declared(self, buffer: Buffer) -> Binding:
        self._require_reachable(buffer.name, buffer.owner)
        found = foreign_array(buffer.owner, buffer.name)
        return Binding(buffer.owner, found.keep, found.address)

    def bindings(self, values: Mapping[str, Any]) -> dict[str, Binding]:
        """What each external buffer is bound to now, by name; ``values`` has the addresses."""
        return {name: Binding(owner, self.kept[name], values[name]) for name, owner in self.owners.items()}

    @contextmanager
    def rebound(self, adopted: Mapping[str, Binding]) -> Iterator[list[Any]]:
        """Takes over what `adopt` found, for good if nothing fails inside; gives what was kept before.

        Parameters
        ----------
        adopted : dict of str to Binding
            By the name of the buffer or event.
        """
        owners, kept = dict(self.owners), dict(self.kept)
        for name, binding in adopted.items():
            self.owners[name], self.kept[name] = binding.owner, binding.keep
        try:
            yield [kept[name] for name in adopted]
        except BaseException:
            self.owners, self.kept = owners, kept
            raise

    def _require_reachable(self, name: str, owner: Any) -> None:
        """Refuse an array of ours on another device; what other libraries own does not tell."""
        device = self._device
        # Contexts are compared, not drivers: one driver may stand for another, as that of the benchmark does.
        elsewhere = isinstance(owner, DeviceArray) and owner.device.context != device.context
        if not elsewhere or getattr(device, "build_only", False):
            return
        raise GraphdslError(
            f"the memory lies on {owner.device.name}, and the graph runs on {device.name}",
            field=name,
            value=repr(owner),
            remedy="Make the array with graphdsl.to_device on the device of the exec.",
        )

    def host_array(self, array: Array, values: Mapping[str, Any]) -> np.ndarray[Any, Any]:
        """Host memory of a buffer or view, where ``values`` say, as a NumPy array that keeps it alive."""
        name = array.buffer.name
        address = values[name] + value_of(array.offset, values)
        shape = tuple(int(value_of(extent, values)) for extent in array.shape)
        return host_view(address, shape, array.strides, array.dtype, self.kept[name], array.buffer.readonly)

    def release(self) -> None:
        """Drop all memory; what nobody else refers to is freed."""
        self.owners.clear()
        self.kept.clear()

    def adopt(self, name: str, owner: Any) -> Binding:
        """What a new owner binds an external buffer or event to; refuses what differs from the old in kind.

        Raises
        ------
        UpdateError
            If it is not external, or new memory differs in space, dtype, shape or strides.
        """
        if name in self._events:
            return Binding(owner, owner, adopted_handle(self._events[name], owner))
        found = self._adopted_array(self.buffers[name], owner)
        return Binding(owner, found.keep, found.address)

    def _adopted_array(self, buffer: Buffer, owner: Any) -> ForeignArray:
        name = buffer.name
        if not buffer.external:
            raise UpdateError(
                "only external operands can be re-bound: this one is memory of the exec",
                field=name,
                value=f"an object of type {type(owner).__name__}",
                remedy=f"Copy into exe[{name!r}], or declare it with graph.external.",
            )
        try:
            self._require_reachable(name, owner)
            found = foreign_array(owner, name)
        except GraphdslError as problem:
            raise refused(problem) from None
        for field in ("space", "dtype", "shape", "strides"):
            new, old = getattr(found, field), getattr(buffer, field)
            if new != old:
                raise UpdateError(
                    f"memory that is re-bound must have the {field} of the old, {old}",
                    field=name,
                    value=f"{field} {new}",
                    remedy="Convert it first, or declare and instantiate a graph for it.",
                )
        if found.readonly and not buffer.readonly:
            raise UpdateError(
                "memory that is re-bound must be writable as the old was",
                field=name,
                value="read-only memory",
                remedy="Pass a writable array.",
            )
        return found


def _arena(plan: Plan, device: Driver, log: CallLog) -> DeviceBlock | None:
    if not plan.memory.offsets:
        return None
    block = DeviceBlock(device, plan.memory.nbytes)
    log.add("cuMemAlloc", bytes=plan.memory.nbytes, holds=f"({', '.join(plan.memory.offsets)})")
    return block


def _host_memory(buffer: Buffer, device: Driver, log: CallLog) -> tuple[Any, int]:
    nbytes = max(buffer.allocation_nbytes, 1)
    if buffer.space == "pageable":
        array = _pageable(buffer, nbytes)
        return array, array.ctypes.data
    block = HostBlock(device, nbytes)
    log.add("cuMemHostAlloc", bytes=nbytes, holds=buffer.name)
    return block, block.address


def _pageable(buffer: Buffer, nbytes: int) -> np.ndarray[Any, Any]:
    try:
        return np.zeros(nbytes, np.uint8)
    except (MemoryError, ValueError):
        raise GraphdslError(
            "this machine has no host memory of that size",
            field=buffer.name,
            value=f"{nbytes} bytes",
            remedy="Declare a smaller array.",
            location=buffer.location,
        ) from None
