"""Turns a kernel into a function that Python can run: copies of it and of all that it calls, bound to the emulator.

In the copies ``numba.cuda`` is a `DeviceApi`, device functions are copies of their Python functions, ``math`` computes
as a device does, and global arrays are frozen as Numba freezes them. The user's own functions and modules are never
changed, so that several threads can run kernels of one module. This module must not run anything.

An object with an attribute ``__graphdsl_simulate__`` stands for a device intrinsic: in kernels it becomes a call of
that attribute, with the `DeviceApi` in front of the arguments.
"""

from __future__ import annotations

import builtins
import dis
import functools
import math
import sys
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from graphdsl.drivers.emulator.arrays import array_in
from graphdsl.drivers.emulator.device_api import DeviceApi
from graphdsl.drivers.emulator.memory import Region

# Plain functions of these run as they are: none of them refers to numba.cuda on behalf of a kernel.
_FOREIGN = frozenset(sys.stdlib_module_names) | {"numpy", "numba"}


def _power(base: Any, exponent: Any) -> Any:
    return np.power(base if isinstance(base, np.floating) else float(base), exponent)


# Functions of `math` that raise where a device gives infinity or NaN, and that make float64 of float32.
_MATH: dict[Callable[..., Any], Callable[..., Any]] = {
    math.acos: np.arccos, math.acosh: np.arccosh, math.asin: np.arcsin, math.asinh: np.arcsinh,
    math.atan: np.arctan, math.atan2: np.arctan2, math.atanh: np.arctanh, math.copysign: np.copysign,
    math.cos: np.cos, math.cosh: np.cosh, math.exp: np.exp, math.expm1: np.expm1, math.fabs: np.fabs,
    math.fmod: np.fmod, math.hypot: np.hypot, math.ldexp: np.ldexp, math.log: np.log, math.log10: np.log10,
    math.log1p: np.log1p, math.log2: np.log2, math.pow: _power, math.sin: np.sin, math.sinh: np.sinh,
    math.sqrt: np.sqrt, math.tan: np.tan, math.tanh: np.tanh,
}  # fmt: skip


class Translator:
    """Makes the copies for one kernel.

    Parameters
    ----------
    api : DeviceApi
        What ``numba.cuda`` becomes.
    """

    def __init__(self, api: DeviceApi) -> None:
        self._api = api
        self._functions: dict[FunctionType, FunctionType] = {}

    def function(self, original: Any) -> FunctionType:
        """The copy of a Python function; always the same for the same one, so that recursion works."""
        if original in self._functions:
            return self._functions[original]
        code = original.__code__
        namespace: dict[str, Any] = {"__builtins__": builtins, "__name__": str(original.__module__)}
        cells = tuple(CellType() for _ in original.__closure__ or ())
        copy = FunctionType(code, namespace, original.__name__, original.__defaults__, cells or None)
        copy.__kwdefaults__ = original.__kwdefaults__
        self._functions[original] = copy
        for name in set(_globals_of(code)) & original.__globals__.keys():
            namespace[name] = self.value(original.__globals__[name])
        for cell, source in zip(cells, original.__closure__ or ()):
            try:
                cell.cell_contents = self.value(source.cell_contents)
            except ValueError:  # a variable that is not set yet stays so
                continue
        return copy

    def value(self, value: Any) -> Any:
        """What stands in the copies for a global, a closure variable or an attribute of a module."""
        simulate = getattr(value, "__graphdsl_simulate__", None)
        if simulate is not None:
            return functools.partial(simulate, self._api)
        replacement = self._api.replacement(value)
        if replacement is not None:
            return replacement
        if isinstance(value, ModuleType):
            return _Module(value, self)
        if isinstance(value, np.ndarray):
            return _frozen(value)
        if isinstance(value, FunctionType):
            return value if _is_foreign(value) else self.function(value)
        function = getattr(value, "py_func", None)  # of a Numba dispatcher
        if isinstance(function, FunctionType):
            return self.function(function)
        return _MATH.get(value, value) if callable(value) and value.__hash__ else value


class _Module:
    """A module as kernels see it: its attributes are translated when they are first used."""

    def __init__(self, module: ModuleType, translator: Translator) -> None:
        self.__dict__["_original"] = (module, translator)

    def __getattr__(self, name: str) -> Any:
        module, translator = self.__dict__["_original"]
        found = self.__dict__[name] = translator.value(getattr(module, name))
        return found


def _globals_of(code: CodeType) -> Iterator[str]:
    """Names of the globals that a function uses, and those that the functions inside it use."""
    yield from (step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals_of(constant)


def _is_foreign(function: FunctionType) -> bool:
    return (function.__module__ or "").partition(".")[0] in _FOREIGN


def _frozen(array: np.ndarray[Any, Any]) -> Any:
    """A global array as it is now: Numba makes it a constant of the kernel."""
    data = np.frombuffer(bytearray(array.tobytes()), np.uint8)
    return array_in(Region("constant", 0, data), "constant array", array.dtype, array.shape)
