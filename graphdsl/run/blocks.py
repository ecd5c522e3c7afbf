"""Memory of a device that is freed with the last object that refers to it.

An exec drops its blocks when it is closed; a NumPy view or a device array that a user still holds keeps its block
alive, so that no closed exec leaves a dangling address behind.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from graphdsl.drivers.base import Address, Driver
from graphdsl.drivers.releases import release, settle
from graphdsl.errors import DriverError


def freed_with(owner: object, free: Callable[..., None], *args: Any) -> None:
    """Call ``free`` once ``owner`` is gone, where that is possible; see `graphdsl.drivers.releases`.

    Not at exit: the driver's own teardown comes then. A context lost to a fault refuses even this; it is gone whole.
    """

    def action() -> None:
        with suppress(DriverError):
            free(*args)

    weakref.finalize(owner, release, action).atexit = False


class DeviceBlock:
    """Device memory, its contents undefined.

    Attributes
    ----------
    address : int
        Of the first byte.
    """

    def __init__(self, device: Driver, nbytes: int) -> None:
        self.address: Address = _allocated(device, nbytes)
        freed_with(self, device.mem_free, self.address)


class HostBlock:
    """Page-locked host memory; an array made from it by NumPy keeps it alive.

    Attributes
    ----------
    address : int
        Of the first byte.
    """

    def __init__(self, device: Driver, nbytes: int) -> None:
        array = device.mem_host_alloc(nbytes)
        self.address: Address = array.ctypes.data
        self.__array_interface__: dict[str, Any] = dict(array.__array_interface__)
        freed_with(self, device.mem_free_host, array)


_OUT_OF_MEMORY = 2
_PATIENCE = 10.0  # seconds


def _allocated(device: Driver, nbytes: int) -> Address:
    """Device memory; where there is none left, what was dropped and not yet given back is waited for."""
    try:
        return device.mem_alloc(nbytes)
    except DriverError as problem:
        if problem.code != _OUT_OF_MEMORY or not settle(_PATIENCE):
            raise
        return device.mem_alloc(nbytes)
