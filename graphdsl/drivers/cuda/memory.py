"""Calls of the CUDA driver that allocate memory, copy it, show it and say where it is."""

from __future__ import annotations

from typing import Any

import numpy as np
from cuda.bindings import driver
from cuda.core import Buffer
from cuda.core.utils import StridedMemoryView

from graphdsl.declare.interop import host_bytes
from graphdsl.drivers.base import Address, Handle
from graphdsl.drivers.cuda.calling import INVALID_VALUE, address_of, error_of, invoke, three_words
from graphdsl.drivers.cuda.context import Context
from graphdsl.drivers.structs import MEMORY_TYPE_DEVICE

_DLPACK_CUDA = 2  # kDLCUDA


class Memory(Context):
    """Memory of the device and of the host."""

    def pointer_get_memory_type(self, address: Address) -> int | None:
        with self._current():
            result, memory_type = driver.cuPointerGetAttribute(
                driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address
            )
        if result == INVALID_VALUE:  # ordinary host memory, which the driver does not know
            return None
        if result:
            raise error_of("cuPointerGetAttribute", int(result))
        return int(memory_type)

    def pointer_get_device(self, address: Address) -> int | None:
        kinds = driver.CUpointer_attribute
        memory_type = self.pointer_get_memory_type(address)
        if memory_type is None:
            return None
        with self._current():
            managed = invoke(driver.cuPointerGetAttribute, kinds.CU_POINTER_ATTRIBUTE_IS_MANAGED, address)
            if managed or memory_type != MEMORY_TYPE_DEVICE:  # managed memory is every device's
                return None
            # Not through cuda.bindings, which gives 0 for every device.
            ordinal = np.zeros(1, np.int32)
            kind = int(kinds.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            code = three_words(address_of("cuPointerGetAttribute"))(ordinal.ctypes.data, kind, address)
            if code:
                raise error_of("cuPointerGetAttribute", code)
            return int(ordinal[0])

    def mem_alloc(self, nbytes: int) -> Address:
        with self._current():
            return int(invoke(driver.cuMemAlloc, nbytes))

    def mem_get_info(self) -> tuple[int, int]:
        with self._current():
            free, total = invoke(driver.cuMemGetInfo)
        return int(free), int(total)

    def mem_free(self, address: Address) -> None:
        with self._current():
            invoke(driver.cuMemFree, address)

    def mem_enter(self, address: Address, nbytes: int, tenant: int, writes: bool) -> None:
        """See `Driver.mem_enter`."""

    def mem_host_alloc(self, nbytes: int) -> np.ndarray[Any, Any]:
        flags = driver.CU_MEMHOSTALLOC_PORTABLE | driver.CU_MEMHOSTALLOC_DEVICEMAP
        with self._current():
            address = int(invoke(driver.cuMemHostAlloc, nbytes, flags))
        return host_bytes(address, nbytes)

    def mem_free_host(self, array: np.ndarray[Any, Any]) -> None:
        with self._current():
            invoke(driver.cuMemFreeHost, array.ctypes.data)

    def memcpy_htod(self, destination: Address, source: np.ndarray[Any, Any], stream: Handle) -> None:
        invoke(driver.cuMemcpyHtoDAsync, destination, source.ctypes.data, source.nbytes, stream)
        invoke(driver.cuStreamSynchronize, stream)

    def memcpy_dtoh(self, destination: np.ndarray[Any, Any], source: Address, stream: Handle) -> None:
        invoke(driver.cuMemcpyDtoHAsync, destination.ctypes.data, source, destination.nbytes, stream)
        invoke(driver.cuStreamSynchronize, stream)

    def memcpy_3d(self, params: Address, stream: Handle) -> None:
        with self._current():
            invoke(driver.cuMemcpy3DAsync, driver.CUDA_MEMCPY3D(_ptr=params), stream)
        invoke(driver.cuStreamSynchronize, stream)

    @property
    def dlpack_device(self) -> tuple[int, int]:
        return _DLPACK_CUDA, self.ordinal

    def dlpack_export(
        self,
        address: Address,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: np.dtype[Any],
        owner: Any,
    ) -> StridedMemoryView:
        nbytes = sum(stride * (extent - 1) for stride, extent in zip(strides, shape)) + dtype.itemsize
        buffer = Buffer.from_handle(address, nbytes, owner=owner)
        steps = tuple(stride // dtype.itemsize for stride in strides)
        return StridedMemoryView.from_buffer(buffer, shape, steps, dtype=dtype)
