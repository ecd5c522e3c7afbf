"""The GPU that a trial asks: its context, its memory and the kernels of ``kernels.cu``."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from cuda.bindings import driver

from tests.conformance.behaviour.answers import SUCCESS, Answer, ask, must

U32, U64 = ctypes.c_uint32, ctypes.c_uint64
_FITS_INT = 2**31


class Gpu:
    """One device with its primary context current.

    Parameters
    ----------
    images : Path
        Folder of the cubins, made by `compile_images`.
    ordinal : int
        Number of the device.
    """

    def __init__(self, images: Path, ordinal: int = 0) -> None:
        must(driver.cuInit, 0)
        self.device = must(driver.cuDeviceGet, ordinal)
        self.context = must(driver.cuDevicePrimaryCtxRetain, self.device)
        must(driver.cuCtxSetCurrent, self.context)
        self.stream = self.new_stream()
        self._images = images
        self._libraries: dict[str, Any] = {}
        self._kept: list[Any] = []

    def second(self) -> Gpu:
        """The second device; the context of this one is current again afterwards."""
        made = Gpu(self._images, 1)
        must(driver.cuCtxSetCurrent, self.context)
        return made

    @contextmanager
    def current(self) -> Iterator[None]:
        """Makes the context current for a while."""
        must(driver.cuCtxPushCurrent, self.context)
        try:
            yield
        finally:
            must(driver.cuCtxPopCurrent)

    def attribute(self, name: str) -> int:
        """An attribute of the device, by its name without ``CU_DEVICE_ATTRIBUTE_``."""
        key = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(must(driver.cuDeviceGetAttribute, key, self.device))

    def new_stream(self) -> Any:
        return must(driver.cuStreamCreate, int(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))

    def new_event(self, *, timing: bool = False) -> Any:
        return must(driver.cuEventCreate, 0 if timing else int(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING))

    def synchronise(self) -> Answer:
        return ask(driver.cuStreamSynchronize, self.stream)

    def leave(self) -> NoReturn:
        """End the process at once, with whatever still runs on the device."""
        sys.stdout.flush()
        os._exit(0)

    def keep(self, thing: Any) -> Any:
        """Keep something that the driver refers to for the rest of the process."""
        self._kept.append(thing)
        return thing

    # Memory

    def memory(self, nbytes: int = 4096) -> int:
        """Device memory, zeroed."""
        address = int(must(driver.cuMemAlloc, nbytes))
        must(driver.cuMemsetD8, address, 0, nbytes)
        return address

    def pinned(self, nbytes: int = 4096, flags: int = driver.CU_MEMHOSTALLOC_DEVICEMAP) -> int:
        """Pinned host memory, zeroed."""
        address = int(must(driver.cuMemHostAlloc, nbytes, flags))
        ctypes.memset(address, 0, nbytes)
        return address

    def pageable(self, nbytes: int = 4096) -> int:
        """Ordinary host memory, zeroed."""
        return ctypes.addressof(self.keep((ctypes.c_char * nbytes)()))

    def fill(self, address: int, *values: int) -> None:
        """Write ints of four bytes to device memory."""
        for index, value in enumerate(values):
            must(driver.cuMemsetD32, address + 4 * index, value, 1)

    def clear(self, address: int, nbytes: int = 256) -> None:
        must(driver.cuMemsetD8, address, 0, nbytes)

    def read(self, address: int, count: int = 1, kind: Any = ctypes.c_int) -> Any:
        """Numbers in device memory: one, or a list of several."""
        array = (kind * count)()
        must(driver.cuMemcpyDtoH, ctypes.addressof(array), address, ctypes.sizeof(array))
        return array[0] if count == 1 else list(array)

    def times(self, address: int, count: int) -> list[int]:
        """Times of the device in nanoseconds."""
        return list(self.read(address, count, ctypes.c_longlong))

    # Kernels

    def library(self, name: str = "kernels") -> Any:
        if name not in self._libraries:
            cubin = self.keep((self._images / f"{name}.cubin").read_bytes())
            self._libraries[name] = must(driver.cuLibraryLoadData, cubin, None, None, 0, None, None, 0)
        return self._libraries[name]

    def kernel(self, name: str, library: str = "kernels") -> Any:
        return must(driver.cuLibraryGetKernel, self.library(library), name.encode())

    def function(self, name: str, library: str = "kernels") -> Any:
        return must(driver.cuKernelGetFunction, self.kernel(name, library))

    def arguments(self, *values: Any) -> int:
        """Address of an array of pointers to arguments; ints that need it are taken for addresses."""
        made = [_argument(value) for value in values]
        array = (ctypes.c_void_p * max(1, len(made)))(*map(ctypes.addressof, made))
        self.keep((made, array))
        return ctypes.addressof(array)

    def launch_params(
        self,
        name: str,
        *values: Any,
        grid: int | tuple[int, int, int] = 1,
        block: int | tuple[int, int, int] = 1,
        shared: int = 0,
        library: str = "kernels",
    ) -> Any:
        """Parameters of a kernel node."""
        params = driver.CUDA_KERNEL_NODE_PARAMS()
        params.func = self.function(name, library)
        params.gridDimX, params.gridDimY, params.gridDimZ = _three(grid)
        params.blockDimX, params.blockDimY, params.blockDimZ = _three(block)
        params.sharedMemBytes = shared
        params.kernelParams = self.arguments(*values)
        return params


def _argument(value: Any) -> Any:
    if not isinstance(value, int):
        return value
    return ctypes.c_int(value) if abs(value) < _FITS_INT else U64(value)


def _three(extent: int | tuple[int, int, int]) -> tuple[int, int, int]:
    return (extent, 1, 1) if isinstance(extent, int) else extent


def compile_images(folder: Path, target: tuple[int, int]) -> None:
    """Compile the ``.cu`` files that lie here to cubins in ``folder``."""
    from graphdsl.compile.link import Code, device_runtime, link

    for source in Path(__file__).parent.glob("*.cu"):
        cubin = link([Code("cu", source.read_bytes(), source.name), device_runtime()], target)
        (folder / f"{source.stem}.cubin").write_bytes(cubin)


def driver_has(name: str, version: int = 13000) -> int:
    """Address of a driver function in the ABI of a version of CUDA; 0 if the driver has none."""
    flags = driver.CUdriverProcAddress_flags.CU_GET_PROC_ADDRESS_DEFAULT
    answer = ask(driver.cuGetProcAddress, name.encode(), version, flags)
    return int(answer.value[0] or 0) if answer.code == SUCCESS else 0
