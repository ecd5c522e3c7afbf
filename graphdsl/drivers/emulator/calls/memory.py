"""Calls of the emulator that allocate memory, copy it, show it and say where it is."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphdsl.declare.interop import host_view
from graphdsl.drivers.base import Address, Handle
from graphdsl.drivers.emulator import transfers
from graphdsl.drivers.emulator.calls.state import State
from graphdsl.drivers.emulator.capture import exposed
from graphdsl.drivers.emulator.gate import driver_call
from graphdsl.drivers.emulator.memory import Bytes
from graphdsl.drivers.emulator.problems import Problem
from graphdsl.drivers.emulator.tenants import Tenancy
from graphdsl.drivers.structs import MEMORY_TYPE_DEVICE, MEMORY_TYPE_HOST

_DLPACK_CPU = 1


class Memory(State):
    """Memory of the device and of the host."""

    @driver_call("cuMemAlloc")
    def mem_alloc(self, nbytes: int) -> Address:
        self._captures.refuse_here("allocates nothing")
        return self._machine.space.allocate(nbytes, self.ordinal).base

    @driver_call("cuMemGetInfo")
    def mem_get_info(self) -> tuple[int, int]:
        return self._machine.space.left(self.ordinal), self._machine.space.capacity

    @driver_call("cuMemFree")
    def mem_free(self, address: Address) -> None:
        self._captures.refuse_here("frees nothing")
        if address:
            self._machine.space.free(address)

    def mem_enter(self, address: Address, nbytes: int, tenant: int, writes: bool) -> None:
        with self.gate.held():
            try:
                self._tenants.enter(Tenancy(address, nbytes, tenant), writes=writes)
            except Problem as problem:
                raise problem.error("cuMemcpyDtoHAsync") from None

    @driver_call("cuMemHostAlloc")
    def mem_host_alloc(self, nbytes: int) -> Bytes:
        self._captures.refuse_here("allocates nothing")
        return self._machine.space.allocate_pinned(nbytes)

    @driver_call("cuMemFreeHost")
    def mem_free_host(self, array: np.ndarray[Any, Any]) -> None:
        self._captures.refuse_here("frees nothing")
        if array.size:
            self._machine.space.release(array.ctypes.data, "pinned")

    @driver_call("cuMemcpyHtoDAsync")
    def memcpy_htod(self, destination: Address, source: np.ndarray[Any, Any], stream: Handle) -> None:
        self._wait_for_stream(stream)
        if source.size:
            self._on_device(destination)
            self._machine.space.writing(destination, source.nbytes)[:] = _bytes(source)

    @driver_call("cuMemcpyDtoHAsync")
    def memcpy_dtoh(self, destination: np.ndarray[Any, Any], source: Address, stream: Handle) -> None:
        self._wait_for_stream(stream)
        if destination.size:
            self._on_device(source)
            _bytes(destination)[:] = self._machine.space.reading(source, destination.nbytes)

    @driver_call("cuMemcpy3DAsync")
    def memcpy_3d(self, params: Address, stream: Handle) -> None:
        self._wait_for_stream(stream)
        transfers.MEMCPY.run(self._machine, transfers.MEMCPY.read(self._machine, params))

    def _on_device(self, address: Address) -> None:
        if self._machine.space.is_pageable(address):
            raise Problem(f"{address:#x} is ordinary host memory, not memory of the device")

    @property
    def dlpack_device(self) -> tuple[int, int]:
        return _DLPACK_CPU, 0

    @driver_call("cuMemGetAddressRange")
    def dlpack_export(
        self,
        address: Address,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: np.dtype[Any],
        owner: Any,
    ) -> np.ndarray[Any, Any]:
        """The emulated memory as an array of the host; what was not written before holds ``0xCD``."""
        array = exposed(self._machine, address, shape, strides, dtype)
        return host_view(array.ctypes.data, shape, strides, dtype, owner)

    @driver_call("cuPointerGetAttribute")
    def pointer_get_memory_type(self, address: Address) -> int | None:
        region = self._machine.space.find(address)
        return None if region is None else {"device": MEMORY_TYPE_DEVICE, "pinned": MEMORY_TYPE_HOST}[region.kind]

    @driver_call("cuPointerGetAttribute")
    def pointer_get_device(self, address: Address) -> int | None:
        return self._machine.space.owner(address)


def _bytes(array: np.ndarray[Any, Any]) -> Bytes:
    """The memory of a host array."""
    if not array.flags.c_contiguous:
        raise Problem(
            "the host array of a copy must be C contiguous", remedy="Copy it with numpy.ascontiguousarray first."
        )
    return array.reshape(-1).view(np.uint8)
