"""How the driver is called, and what becomes of its result codes; whether it is there to be called.

This module must not know what calls do.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cuda.bindings import driver

from graphdsl import forks
from graphdsl.drivers.host_threads import REMEDY, RULE, in_host_function, threads
from graphdsl.drivers.results import RESULTS, driver_error
from graphdsl.errors import DriverError

INVALID_VALUE = driver.CUresult.CUDA_ERROR_INVALID_VALUE
_ABI = 13000  # the CUDA version whose meaning of the plain function names is wanted
_PROC_FLAGS = driver.CUdriverProcAddress_flags.CU_GET_PROC_ADDRESS_DEFAULT
_NOT_FOUND = 500
_NOT_INITIALIZED = 3  # what the driver gives in a forked child, where it gives anything
_NOT_PERMITTED = 800  # and in a host node

three_words = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3)

_is_forked = False
"""True in a child of a process that had started CUDA: the driver is not asked there."""


def _note_fork() -> None:
    global _is_forked
    if _initialised.cache_info().currsize and _initialised() is None:
        _is_forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def error_of(call: str, code: int) -> DriverError:
    """The error for a result code; of one that the table lacks, the driver's own words are told."""
    if code in RESULTS or code not in set(driver.CUresult):
        return driver_error(call, code)
    result = driver.CUresult(code)
    (_, name), (_, text) = driver.cuGetErrorName(result), driver.cuGetErrorString(result)
    return driver_error(call, code, (text or b"").decode() or None, name=(name or b"").decode() or None)


def require_allowed(call: str) -> None:
    """Refuse calls that would hang or crash: in a forked child, and in a host node (driver 580 hangs there)."""
    if _is_forked:
        raise driver_error(call, _NOT_INITIALIZED, forks.RULE, forks.REMEDY)
    if in_host_function():
        raise driver_error(call, _NOT_PERMITTED, RULE, REMEDY)


@contextmanager
def as_ours(call: str) -> Iterator[None]:
    """Around a call of cuda.core that stands for one of the driver: what it raises becomes an error of ours."""
    try:
        yield
    except Exception as problem:  # its class is private; it tells the code by name
        name = re.search(r"CUDA_ERROR_\w+", str(problem))
        code = getattr(driver.CUresult, name[0], None) if name else None
        if code is None:
            raise
        raise error_of(call, int(code)) from problem


def invoke(function: Any, *args: Any) -> Any:
    """Call the driver; gives its outputs (none, one, or a tuple) and raises `DriverError` on a bad code."""
    if _is_forked or threads:
        require_allowed(function.__name__)
    result, *outputs = function(*args)
    if result:
        raise error_of(function.__name__, int(result))
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def address_of(call: str) -> int:
    """Address of a driver function, of the ABI that CUDA 13 gives to its plain name."""
    address, found = invoke(driver.cuGetProcAddress, call.encode(), _ABI, _PROC_FLAGS)
    if found != driver.CUdriverProcAddressQueryResult.CU_GET_PROC_ADDRESS_SUCCESS:
        raise driver_error("cuGetProcAddress", _NOT_FOUND, f"the driver has no {call}", "Install a newer driver.")
    return int(address)


@functools.cache
def _initialised() -> str | None:
    """None if the driver is ready, else what keeps it from being so."""
    try:
        invoke(driver.cuInit, 0)
    except DriverError as problem:
        return str(problem)
    except Exception as problem:  # cuda.bindings raises errors of several kinds where libcuda is absent
        return str(problem)
    return None


def unavailable() -> str | None:
    """Why no GPU can be used, as a sentence; None if one can."""
    reason = forks.RULE if _is_forked else _initialised()
    if reason is not None:
        return f"the CUDA driver could not be started: {reason}"
    return None if invoke(driver.cuDeviceGetCount) else "the CUDA driver finds no GPU"


def driver_version() -> tuple[int, int]:
    """Newest CUDA version that the driver supports, such as ``(13, 0)``.

    Raises
    ------
    GraphdslError
        If there is no driver.
    """
    version = invoke(driver.cuDriverGetVersion) if _initialised() is None else 0
    return version // 1000, version % 1000 // 10
