"""Calls of the emulator that load kernels and tell of them."""

from __future__ import annotations

from graphdsl.compile.image import KernelImage
from graphdsl.drivers.base import Handle
from graphdsl.drivers.emulator.calls.state import State, known, new_handle
from graphdsl.drivers.emulator.gate import driver_call
from graphdsl.drivers.emulator.kernels import Library
from graphdsl.drivers.emulator.machine import LoadedKernel
from graphdsl.drivers.emulator.problems import NOT_FOUND, NOT_SUPPORTED, Problem
from graphdsl.drivers.structs import (
    FUNC_BINARY_VERSION,
    FUNC_MAX_DYNAMIC_SHARED_BYTES,
    FUNC_MAX_THREADS,
    FUNC_REGISTERS,
    FUNC_SHARED_BYTES,
)

_INSTEAD = "emulate=, a Python function with the same parameters that runs in its place"


class Kernels(State):
    """Libraries and kernels."""

    @driver_call("cuLibraryLoadData")
    def library_load_data(self, image: KernelImage) -> Handle:
        library = new_handle()
        self._libraries[library] = Library(image, self._add_kernel(image))
        return library

    @driver_call("cuLibraryGetKernel")
    def library_get_kernel(self, library: Handle, image: KernelImage) -> Handle:
        found = known(self._libraries, library, "library")
        if not found.has(image):
            raise Problem(f"the library has no kernel {image.entry!r}", NOT_FOUND)
        if image not in found.kernels:
            found.kernels[image] = self._add_kernel(image)
        return found.kernels[image]

    @driver_call("cuKernelGetFunction")
    def kernel_adopt(self, image: KernelImage) -> Handle:
        own = int(image.loaded.handle)
        return own if own in self._machine.kernels else self._add_kernel(image)

    def _add_kernel(self, image: KernelImage) -> Handle:
        self._machine.device.require_runs(image)
        if image.function is None and not self.build_only:
            raise Problem(
                f"the emulator runs Python, and {image.name!r} is machine code",
                NOT_SUPPORTED,
                f"Pass {_INSTEAD}, run it on a GPU, or look at the graph with trace()."
                if image.loaded is None
                else f"Run it on a GPU, or pass the code itself to graphdsl.cubin with {_INSTEAD}.",
            )
        handle = new_handle()
        self._machine.kernels[handle] = LoadedKernel(image)
        return handle

    @driver_call("cuKernelGetParamInfo")
    def kernel_get_param_info(self, kernel: Handle) -> tuple[tuple[int, int], ...]:
        return known(self._machine.kernels, kernel, "kernel").image.layout.parameters

    @driver_call("cuKernelSetAttribute")
    def kernel_set_max_shared_bytes(self, kernel: Handle, nbytes: int) -> None:
        known(self._machine.kernels, kernel, "kernel").set_max_shared_bytes(self._machine.device, nbytes)

    @driver_call("cuKernelSetAttribute")
    def kernel_allow_large_clusters(self, kernel: Handle) -> None:
        known(self._machine.kernels, kernel, "kernel").large_clusters.add(self.ordinal)

    @driver_call("cuLibraryUnload")
    def library_unload(self, library: Handle) -> None:
        found = known(self._libraries, library, "library")
        del self._libraries[library]
        for handle in found.kernels.values():
            self._machine.kernels.pop(handle).loaded = False

    @driver_call("cuKernelGetFunction")
    def kernel_get_function(self, kernel: Handle) -> Handle:
        known(self._machine.kernels, kernel, "kernel")
        return kernel

    @driver_call("cuFuncGetName")
    def func_get_name(self, function: Handle) -> str:
        return known(self._machine.kernels, function, "kernel").image.entry

    @driver_call("cuFuncGetParamInfo")
    def func_get_param_info(self, function: Handle) -> tuple[tuple[int, int], ...]:
        return known(self._machine.kernels, function, "kernel").image.layout.parameters

    @driver_call("cuFuncGetAttribute")
    def func_get_attribute(self, function: Handle, attribute: int) -> int:
        found = known(self._machine.kernels, function, "kernel")
        major, minor = found.image.target
        values = {
            FUNC_MAX_THREADS: found.image.max_threads,
            FUNC_SHARED_BYTES: found.image.shared_bytes,
            FUNC_REGISTERS: found.image.registers,
            FUNC_BINARY_VERSION: 10 * major + minor,
            FUNC_MAX_DYNAMIC_SHARED_BYTES: found.max_shared_bytes(self._machine.device),
        }
        if attribute not in values:
            raise Problem(f"the emulator knows no attribute {attribute} of kernels", NOT_SUPPORTED)
        return values[attribute]
