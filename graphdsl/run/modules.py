"""Kernel images on a device: loaded once however many execs use them, unloaded with the last.

Images of one machine code, such as two kernels of one CUDA C++ source, are loaded as one library, so that they share
its global variables.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from graphdsl.compile.image import KernelImage
from graphdsl.drivers.base import Driver, Handle
from graphdsl.errors import CompileError
from graphdsl.forks import Lock
from graphdsl.run.blocks import freed_with
from graphdsl.run.calls import CallLog


class _Library:
    """Machine code on a device, for as long as somebody refers to this object.

    Attributes
    ----------
    handle : int
        The driver's library.
    shared_bytes : dict of str to int
        Most dynamic shared memory that nodes of each kernel were allowed, by the kernel's symbol.
    """

    def __init__(self, image: KernelImage, device: Driver, log: CallLog, said: Mapping[str, Any]) -> None:
        self.handle: Handle = device.library_load_data(image)
        log.add("cuLibraryLoadData", image.name, target=f"sm_{image.target[0]}{image.target[1]}", **said)
        freed_with(self, device.library_unload, self.handle)
        self.shared_bytes: dict[str, int] = {}


class LoadedKernel:
    """A kernel on a device, for as long as somebody refers to this object.

    Attributes
    ----------
    handle : int
        The driver's kernel.
    image : KernelImage
        What was loaded.
    device : Driver
        Where it is.
    field : "kern" or "func"
        The field of a node's struct that takes the handle.
    allowed_shared_bytes : int
        Dynamic shared memory that its nodes may have.
    """

    def __init__(self, image: KernelImage, device: Driver, log: CallLog, said: Mapping[str, Any]) -> None:
        """Load it; ``said`` is what the log says of the device."""
        self.image = image
        self.device = device
        self._lock = Lock()
        self._large_clusters = False
        self.field = "func" if getattr(image.loaded, "is_function", False) else "kern"
        self.allowed_shared_bytes = device.limits.shared_bytes - image.shared_bytes
        if image.loaded is None:
            self._library = _library(image, device, log, said)
            self._most_allowed = self._library.shared_bytes
            self.handle: Handle = device.library_get_kernel(self._library.handle, image)
            log.add("cuLibraryGetKernel", image.name, **said)
        else:
            self._most_allowed = {image.entry: int(image.loaded.attributes.max_dynamic_shared_size_bytes)}
            self.handle = device.kernel_adopt(image)
            log.add("cuKernelGetFunction", image.name, **said)
        _require_layout(image, device.kernel_get_param_info(self.handle))

    def allow_shared_bytes(self, nbytes: int) -> bool:
        """Let nodes of the kernel have that much dynamic shared memory; True if the driver had to be told.

        The limit is the kernel's, so it only ever rises: other nodes may need what they were allowed.
        """
        if nbytes <= self.allowed_shared_bytes:
            return False
        with self._lock:  # two execs may ask at once, and the smaller limit must not come last
            if nbytes <= self.allowed_shared_bytes:
                return False
            # Several images may be of one kernel, and one that others have loaded may be allowed more already.
            nbytes = max(nbytes, self._most_allowed.get(self.image.entry, 0))
            self.device.kernel_set_max_shared_bytes(self.handle, nbytes)
            self.allowed_shared_bytes = self._most_allowed[self.image.entry] = nbytes
        return True

    def allow_large_clusters(self) -> bool:
        """Let nodes of the kernel have clusters of more blocks than every device has; True if the driver was told."""
        with self._lock:
            told = self._large_clusters
            if not told:
                self.device.kernel_allow_large_clusters(self.handle)
                self._large_clusters = True
        return not told


_libraries: weakref.WeakValueDictionary[tuple[int, bytes], _Library] = weakref.WeakValueDictionary()
_loaded: weakref.WeakValueDictionary[tuple[int, int], LoadedKernel] = weakref.WeakValueDictionary()
_lock = Lock()


def load(image: KernelImage, device: Driver, log: CallLog, said: Mapping[str, Any]) -> LoadedKernel:
    """The kernel of an image on a device, loaded now if it is not yet; ``said`` is what the log says of the device."""
    key = (id(device), id(image))  # both outlive the entry: the loaded kernel refers to them
    with _lock:
        found = _loaded.get(key)
        if found is None:
            found = _loaded[key] = LoadedKernel(image, device, log, said)
        return found


def _library(image: KernelImage, device: Driver, log: CallLog, said: Mapping[str, Any]) -> _Library:
    """The library of an image's machine code, loaded now if it is not yet."""
    key = (id(device), image.cubin)
    found = _libraries.get(key)
    if found is None:
        found = _libraries[key] = _Library(image, device, log, said)
    return found


def _require_layout(image: KernelImage, found: tuple[tuple[int, int], ...]) -> None:
    """Refuse an image whose parameters are not where our layout of them puts them."""
    expected = image.layout.parameters
    if found != expected:
        raise CompileError(
            f"the compiled kernel has parameters (offset, bytes) {found}, but its layout says {expected}",
            field="kernel",
            value=image.name,
            remedy="The driver and graphdsl read its machine code differently: install versions that graphdsl was "
            "tested with.",
        )
