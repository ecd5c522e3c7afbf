"""The memory and the events of an exec: its own are made, those of others are adopted, and all are found by name.

This module must not know nodes: it gives every buffer an address, and every event a handle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from graphdsl.declare.event import Event, event_handle
from graphdsl.declare.expressions import value_of
from graphdsl.declare.interop import ForeignArray, device_of, foreign_array, host_view
from graphdsl.declare.operands import Array, Buffer
from graphdsl.declare.store import unknown_name
from graphdsl.drivers.base import Address, Driver, Handle
from graphdsl.errors import GraphdslError, UpdateError
from graphdsl.plan import MemoryPlan, Plan
from graphdsl.run.arena import Arena
from graphdsl.run.blocks import DeviceBlock, HostBlock
from graphdsl.run.calls import CallLog
from graphdsl.run.device_array import DeviceArray, Entering
from graphdsl.run.devices import Devices
from graphdsl.run.events import adopted_handle, own_event
from graphdsl.run.refusal import KIND, refused, require_alike


class Binding(NamedTuple):
    """Where a buffer or event is: the owner, None for the exec's own; what keeps it there; its address or handle."""

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
        devices: Devices,
        log: CallLog,
        values: dict[str, Any],
        bound: Mapping[str, Binding] = MappingProxyType({}),
        *,
        arena: Arena | None = None,
        owners: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Find or make the memory of each buffer; ``values`` takes the addresses by name.

        What ``bound`` has is there, and ``owners`` come before those that the definition names. Arrays of the home
        device lie in ``arena``, if there is one; the rest is made.
        """
        self.buffers = plan.buffers
        self._plans = plan.memory
        self._events = plan.events
        self.owners: dict[str, Any] = {}
        self.kept: dict[str, Any] = {}
        self._devices = devices
        bound = {**bound, **{name: self._replacing(name, owner) for name, owner in owners.items()}}
        placed = dict(_arenas(plan, bound, devices, log, arena))
        for name, buffer in plan.buffers.items():
            if buffer.allocated:
                continue  # the driver gives its address when its node is added
            if name in bound:
                self._bind(name, bound[name], values)
            elif buffer.external:
                self._bind(name, self._declared(buffer), values)
            elif name in placed:
                self._bind(name, placed[name], values)
            else:
                self._bind(name, Binding(None, *_host_memory(buffer, devices.home, log)), values)
        for name, event in plan.events.items():
            if name in bound:
                self._bind(name, bound[name], values)
            elif event.external:
                self._bind(name, self._declared(event), values)
            else:
                own = own_event(event, devices[event.device], log, devices.said(event.device))
                self._bind(name, Binding(None, own, own.handle), values)

    def _bind(self, name: str, found: Binding, values: dict[str, Any]) -> None:
        owner, self.kept[name], values[name] = found
        if owner is not None:
            self.owners[name] = owner

    def _declared(self, operand: Buffer | Event) -> Binding:
        """What an external operand is bound to by its definition."""
        name, owner = operand.name, operand.owner
        if isinstance(operand, Event):
            return Binding(owner, owner, event_handle(owner, name))
        self._require_reachable(operand, owner)
        found = foreign_array(owner, name)
        self._require_declared_place(operand, found.address)
        return Binding(owner, found.keep, found.address)

    def _replacing(self, name: str, owner: Any) -> Binding:
        """What an owner that is given in the place of the declared one binds an external operand to."""
        if name not in self.buffers and name not in self._events:
            raise unknown_name(name, [*self.buffers, *self._events], "external operand", UpdateError)
        return self.adopt(name, owner)

    def bindings(self, values: Mapping[str, Any]) -> dict[str, Binding]:
        """What each external operand is bound to now, by name; ``values`` has the addresses."""
        return {name: Binding(owner, self.kept[name], values[name]) for name, owner in self.owners.items()}

    def bindings_for(self, plan: Plan, values: Mapping[str, Any]) -> dict[str, Binding]:
        """Where what another plan needs is without being made: with the owners it names, or here, where it agrees."""
        found = {}
        elsewhere = self._planned_elsewhere(plan)
        wanted: dict[str, Buffer | Event] = {**plan.buffers, **plan.events}
        for name, operand in wanted.items():
            if isinstance(operand, Buffer) and operand.allocated:
                continue
            if operand.external:
                found[name] = self._declared(operand)
            elif (
                name in self.kept
                and name not in elsewhere
                and alike(self.buffers.get(name) or self._events.get(name), operand)
            ):
                found[name] = Binding(None, self.kept[name], values[name])
        return found

    def _planned_elsewhere(self, plan: Plan) -> set[str]:
        """The arrays that are planned here or in another plan, on devices where the two plans differ."""
        found = set()
        for number in self._plans.keys() | plan.memory.keys():
            here, there = (_planned(memory.get(number)) for memory in (self._plans, plan.memory))
            if here != there:
                found |= here.keys() | there.keys()
        return found

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

    def _require_declared_place(self, buffer: Buffer, address: Address) -> None:
        """Refuse memory of another device than the graph says, where the driver knows the memory."""
        home, declared = self._devices.home, self._devices[buffer.device]
        if buffer.space != "device" or home.device_count == 1:
            return
        number = home.pointer_get_device(address)
        if number in (None, declared.ordinal):
            return
        raise GraphdslError(
            f"the memory lies on device {number}, and the graph says device {declared.ordinal}",
            field=buffer.name,
            value=f"an object of type {type(buffer.owner).__name__}",
            remedy=f"Declare it in a block of graph.on({number}).",
            location=buffer.location,
        )

    def _require_same_device(self, buffer: Buffer, owner: Any) -> None:
        """Refuse memory of another device in the place of memory of one: the driver's updates do not take it."""
        if not self._devices.several or buffer.space != "device":
            return
        number, old = device_of(owner), self._devices[buffer.device].ordinal
        if number not in (None, old):
            raise UpdateError(
                f"memory that is re-bound must be on the device of the old, {old}",
                field=buffer.name,
                value=f"memory of device {number}",
                remedy="Copy it there first, or declare and instantiate a graph for it.",
            )

    def _require_reachable(self, buffer: Buffer, owner: Any) -> None:
        """Refuse an array of ours on another device than the graph says; what other libraries own does not tell."""
        device = self._devices[buffer.device]
        # Contexts are compared, not drivers: one driver may stand for another, as that of the benchmark does.
        elsewhere = isinstance(owner, DeviceArray) and owner.device.context != device.context
        if not elsewhere or getattr(device, "build_only", False):
            return
        raise GraphdslError(
            f"the memory lies on {owner.device.name}, and the graph runs on {device.name}",
            field=buffer.name,
            value=repr(owner),
            remedy="Make the array with graphdsl.to_device on the device of the exec.",
        )

    def host_array(self, array: Array, values: Mapping[str, Any]) -> np.ndarray[Any, Any]:
        """Host memory of a buffer or view, where ``values`` say, as a NumPy array that keeps it alive."""
        name = array.buffer.name
        address = values[name] + value_of(array.offset, values)
        shape = tuple(int(value_of(extent, values)) for extent in array.shape)
        return host_view(address, shape, array.strides, array.dtype, self.kept[name], array.buffer.readonly)

    def device_array(
        self,
        array: Array,
        values: Mapping[str, Any],
        synchronize: Callable[[], Handle],
        entering: Entering | None = None,
    ) -> DeviceArray:
        """Device memory of a buffer or view, where ``values`` say; the rest is as `DeviceArray` takes it."""
        buffer = array.buffer
        return DeviceArray(
            self._devices[buffer.device],
            values[buffer.name] + value_of(array.offset, values),
            tuple(int(value_of(extent, values)) for extent in array.shape),
            array.strides,
            array.dtype,
            owner=self.kept.get(buffer.name),  # memory of a graph is kept by its exec
            synchronize=synchronize,
            entering=entering,
            readonly=buffer.readonly,
        )

    def argument(self, operand: Any, values: Mapping[str, Any], synchronize: Callable[[], Handle] | None = None) -> Any:
        """What a Python function is passed for an operand: arrays over the memory, numbers, and all else as it is.

        ``synchronize`` is for arrays in device memory; without one there are none.
        """
        if isinstance(operand, Array):
            if synchronize is not None and operand.space == "device":
                return self.device_array(operand, values, synchronize)
            return self.host_array(operand, values)
        if type(operand) is tuple:
            return tuple(self.argument(item, values, synchronize) for item in operand)
        return value_of(operand, values)

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
            self._require_reachable(buffer, owner)
            found = foreign_array(owner, name)
        except GraphdslError as problem:
            raise refused(problem) from None
        remedy = "Convert it first, or declare and instantiate a graph for it."
        require_alike(
            name, found, buffer, KIND, "memory that is re-bound must have the {field} of the old, {old}", remedy
        )
        self._require_same_device(buffer, owner)
        if found.readonly and not buffer.readonly:
            raise UpdateError(
                "memory that is re-bound must be writable as the old was",
                field=name,
                value="read-only memory",
                remedy="Pass a writable array.",
            )
        return found


def _planned(memory: MemoryPlan | None) -> dict[str, tuple[int, int]]:
    """Offset and size of each planned array, by name."""
    return {} if memory is None else {name: (each.offset, each.nbytes) for name, each in memory.planned.items()}


def alike(before: Buffer | Event | None, after: Buffer | Event) -> bool:
    """True if an operand of an exec can be what another one was."""
    fields = ("timing", "device") if isinstance(after, Event) else ("space", "device", "dtype", "shape", "strides")
    return type(before) is type(after) and all(
        getattr(before, field) == getattr(after, field) for field in (*fields, "external")
    )


def _arenas(
    plan: Plan, bound: Mapping[str, Binding], devices: Devices, log: CallLog, arena: Arena | None
) -> Iterator[tuple[str, Binding]]:
    """The places of device arrays that lie nowhere yet, by name: in one block on each device, or where one is given."""
    given = 0 if arena is None else arena.address
    for number, whole in plan.memory.items():
        placed = whole.without(bound) if bound else whole
        if not placed.places:
            continue
        if arena is not None and devices[number] is devices.home:
            for name, offset in placed.offsets.items():
                yield name, Binding(None, arena.keep, given + offset)
            given += placed.nbytes
            continue
        block = DeviceBlock(devices[number], placed.nbytes)
        log.add("cuMemAlloc", bytes=placed.nbytes, holds=f"({', '.join(placed.offsets)})", **devices.said(number))
        for name, offset in placed.offsets.items():
            yield name, Binding(None, block, block.address + offset)


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
