"""The primary context of a CUDA device: what all groups of calls work in.

This module must not know what calls do.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from cuda.bindings import driver
from cuda.core import Device

from graphdsl.drivers.base import Address, Handle, OneByOne
from graphdsl.drivers.cuda.calling import as_ours, invoke
from graphdsl.drivers.cuda.limits import limits_of


class Context(OneByOne):
    """A CUDA device and its primary context, which is current only while a call needs that.

    Parameters
    ----------
    ordinal : int
        Number of the device.
    """

    def __init__(self, ordinal: int) -> None:
        with kept_context():
            with as_ours("cuDevicePrimaryCtxRetain"):
                device = Device(ordinal)
                device.set_current()
            self.context: Handle = int(device.context.handle)
            self.limits = limits_of(device)
        self.ordinal = ordinal
        self.name = f"{device.name} (cuda:{ordinal})"
        self._functions: set[Handle] = set()  # kernels that others have loaded, in the driver's older form

    @contextmanager
    def _current(self) -> Iterator[None]:
        """Makes the device's context current for a while: the user's own choice is put back."""
        invoke(driver.cuCtxPushCurrent, self.context)
        try:
            yield
        finally:
            invoke(driver.cuCtxPopCurrent)


@contextmanager
def kept_context() -> Iterator[None]:
    """Puts back whatever context was current before."""
    before = invoke(driver.cuCtxGetCurrent)
    try:
        yield
    finally:
        invoke(driver.cuCtxSetCurrent, before)


def context_offset(struct: np.dtype[Any]) -> int:
    """Bytes from the start of a struct to the context that the driver's function takes beside it."""
    return int(struct.fields["ctx"][1])  # type: ignore[index]


def context_in(struct: np.dtype[Any], params: Address) -> Handle:
    """That context."""
    return ctypes.c_uint64.from_address(params + context_offset(struct)).value
