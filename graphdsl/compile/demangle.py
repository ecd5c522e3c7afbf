"""Symbols of machine code as their C++ names, by the C++ runtime of this machine where there is one."""

from __future__ import annotations

import ctypes
import functools
import re
from typing import Any

_RUNTIMES = ("libstdc++.so.6", "libc++abi.so.1", "libc++abi.dylib")


def demangled(symbol: str) -> str:
    """The C++ name of a symbol, with its parameters; the symbol itself if it is none, or no runtime is there.

    Examples
    --------
    >>> demangled("scale")
    'scale'
    """
    demangle = _demangle()
    if demangle is None or not symbol.startswith("_Z"):
        return symbol
    status = ctypes.c_int()
    found = demangle(symbol.encode(), None, None, ctypes.byref(status))
    if not found:
        return symbol
    try:
        return ctypes.string_at(found).decode(errors="replace")
    finally:
        _free()(found)


def title_of(name: str) -> str:
    """The name of a function without what it returns and takes; template arguments stay.

    Examples
    --------
    >>> title_of("void cutlass::Kernel<gemm<(int)4> >(gemm<(int)4>::Params)"), title_of("scale(float*, int)")
    ('cutlass::Kernel<gemm<(int)4> >', 'scale')
    >>> title_of("void (anonymous namespace)::fill<float>(float*)"), title_of("scale")
    ('(anonymous namespace)::fill<float>', 'scale')
    >>> title_of("module::scale[abi:v1](int)")  # Numba tells its own functions apart so
    'module::scale'
    """
    name = re.sub(r"\[abi:[^\]]*\]", "", name)
    depth = begin = 0
    for index, char in enumerate(name):
        if char in "<(":
            if char == "(" and not depth and not name.startswith("(anonymous", index):
                return name[begin:index]
            depth += 1
        elif char in ">)":
            depth -= 1
        elif char == " " and not depth:
            begin = index + 1
    return name[begin:]


@functools.cache
def _demangle() -> Any:
    """``__cxa_demangle`` of the Itanium C++ ABI, which NVIDIA's compilers mangle by; None if there is none."""
    for runtime in _RUNTIMES:
        try:
            found = ctypes.CDLL(runtime).__cxa_demangle
        except (OSError, AttributeError):
            continue
        found.restype = ctypes.c_void_p
        found.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        return found
    return None


@functools.cache
def _free() -> Any:
    """What gives back memory of the runtime's."""
    free = ctypes.CDLL(None).free
    free.restype, free.argtypes = None, [ctypes.c_void_p]
    return free
