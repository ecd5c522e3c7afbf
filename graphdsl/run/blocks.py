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
from graphdsl.drivers.results import OUT_OF_MEMORY
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
        try:
            array = device.mem_host_alloc(nbytes)
        except DriverError as problem:
            if problem.code == OUT_OF_MEMORY:
                problem.about(rule=f"{problem.rule}; {size_text(nbytes)} of page-locked host memory were asked for")
            raise
        self.address: Address = array.ctypes.data
        self.__array_interface__: dict[str, Any] = dict(array.__array_interface__)
        freed_with(self, device.mem_free_host, array)


_PATIENCE = 10.0  # seconds


def _allocated(device: Driver, nbytes: int) -> Address:
    """Device memory; where there is none left, what was dropped and not yet given back is waited for."""
    patience = _PATIENCE
    while True:
        try:
            return device.mem_alloc(nbytes)
        except DriverError as problem:
            if problem.code != OUT_OF_MEMORY:
                raise
            if not patience or not settle(patience):
                free, total = map(size_text, device.mem_get_info())
                asked = f"{size_text(nbytes)} were asked for, and {free} of {total} are free on {device.name}"
                problem.about(rule=f"{problem.rule}; {asked}")
                raise
            patience = 0.0


def size_text(nbytes: int) -> str:
    """A number of bytes, rounded.

    Examples
    --------
    >>> size_text(100), size_text(1536), size_text(80 * 2**30)
    ('100 bytes', '1.5 KiB', '80 GiB')
    """
    for unit, shift in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if nbytes >= 1 << shift:
            return f"{nbytes / (1 << shift):.3g} {unit}"
    return f"{nbytes} bytes"
