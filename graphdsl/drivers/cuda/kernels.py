"""Calls of the CUDA driver that load kernels and tell of them."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver

from graphdsl.compile.image import KernelImage
from graphdsl.drivers.base import Handle
from graphdsl.drivers.cuda.calling import INVALID_VALUE, error_of, invoke
from graphdsl.drivers.cuda.context import Context


class Kernels(Context):
    """Libraries and kernels."""

    def library_load_data(self, image: KernelImage) -> Handle:
        with self._current():
            return int(invoke(driver.cuLibraryLoadData, image.cubin, None, None, 0, None, None, 0))

    def library_get_kernel(self, library: Handle, image: KernelImage) -> Handle:
        with self._current():
            return self._ready(int(invoke(driver.cuLibraryGetKernel, library, image.entry.encode())))

    def kernel_adopt(self, image: KernelImage) -> Handle:
        assert image.loaded is not None, image
        handle = int(image.loaded.handle)
        with self._current():
            if getattr(image.loaded, "is_function", False):
                invoke(driver.cuFuncLoad, handle)
                self._functions.add(handle)
                return handle
            return self._ready(handle)

    def _ready(self, kernel: Handle) -> Handle:
        """The kernel, its code on the device: lazy loading would move that into the first launch."""
        invoke(driver.cuFuncLoad, invoke(driver.cuKernelGetFunction, kernel))
        return kernel

    def kernel_get_param_info(self, kernel: Handle) -> tuple[tuple[int, int], ...]:
        function = driver.cuFuncGetParamInfo if kernel in self._functions else driver.cuKernelGetParamInfo
        return self._param_info(function, kernel)

    def _param_info(self, function: Any, kernel: Handle) -> tuple[tuple[int, int], ...]:
        found: list[tuple[int, int]] = []
        with self._current():
            while True:
                result, offset, size = function(kernel, len(found))
                if result == INVALID_VALUE:  # past the last parameter
                    return tuple(found)
                if result:
                    raise error_of(function.__name__, int(result))
                found.append((int(offset), int(size)))

    def kernel_set_max_shared_bytes(self, kernel: Handle, nbytes: int) -> None:
        self._set_attribute(kernel, "MAX_DYNAMIC_SHARED_SIZE_BYTES", nbytes)

    def kernel_allow_large_clusters(self, kernel: Handle) -> None:
        self._set_attribute(kernel, "NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1)

    def _set_attribute(self, kernel: Handle, name: str, value: int) -> None:
        attribute = getattr(driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        with self._current():
            if kernel in self._functions:
                invoke(driver.cuFuncSetAttribute, kernel, attribute, value)
            else:
                invoke(driver.cuKernelSetAttribute, attribute, value, kernel, self.ordinal)

    def library_unload(self, library: Handle) -> None:
        with self._current():
            invoke(driver.cuLibraryUnload, library)

    def kernel_get_function(self, kernel: Handle) -> Handle:
        with self._current():
            return int(invoke(driver.cuKernelGetFunction, kernel))

    def func_get_name(self, function: Handle) -> str:
        return invoke(driver.cuFuncGetName, function).decode(errors="replace")  # type: ignore[no-any-return]

    def func_get_param_info(self, function: Handle) -> tuple[tuple[int, int], ...]:
        return self._param_info(driver.cuFuncGetParamInfo, function)

    def func_get_attribute(self, function: Handle, attribute: int) -> int:
        return int(invoke(driver.cuFuncGetAttribute, driver.CUfunction_attribute(attribute), function))
