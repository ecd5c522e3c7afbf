"""What a kernel reads beside its arguments, and whether it is still what it was.

Numba freezes globals, closure variables and attributes of modules into machine code, so an image is right only while
they stay. Whether they are the same objects takes a microsecond to tell, where a fingerprint of what they hold takes
hundreds. This module must not compile anything.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from graphdsl.compile.fingerprint import codes_of, content_digest, installed_version, names_read

_MISSING = object()
_MUTABLE = (np.ndarray, np.void, list, dict, set)


class Reads:
    """What a function and those that it calls read, as it was when this object was made.

    Parameters
    ----------
    function : callable
        The Python function.
    options : dict
        Options of its decorator.

    Attributes
    ----------
    dispatchers : list
        The functions that it calls, directly or not, which Numba compiles and keeps for itself.

    Examples
    --------
    >>> limit = [3]
    >>> def kernel(x):
    ...     x[0] = limit[0]
    >>> reads = Reads(kernel, {})
    >>> reads.unchanged()
    True
    >>> limit[0] = 4
    >>> reads.unchanged()
    False
    """

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        self.dispatchers: list[Any] = []
        self._names: list[tuple[dict[str, Any], str, Any]] = []
        self._attributes: list[tuple[Any, str, Any]] = []
        self._files: list[tuple[Any, Any]] = []
        self._contents: list[tuple[Any, Any]] = []
        self._met: set[Any] = set()
        self._add_function(function, options)

    def unchanged(self) -> bool:
        """True if all of it is the same now."""
        for namespace, name, value in self._names:
            if namespace.get(name, _MISSING) is not value:
                return False
        for owner, name, value in self._attributes:
            if _attribute(owner, name) is not value:
                return False
        for value, content in self._contents:
            if _content(value) != content:
                return False
        return all(_state(file) == state for file, state in self._files)

    def _add_function(self, function: Any, options: Mapping[str, Any]) -> None:
        if id(function) in self._met:
            return
        self._met.add(id(function))
        for file in options.get("link") or ():
            if isinstance(file, (str, os.PathLike)):
                self._files.append((file, _state(file)))
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            self._add_attribute(function, name)
        names, attributes = names_read(list(codes_of(function.__code__)))
        for cell in function.__closure__ or ():
            self._add_value(self._add_attribute(cell, "cell_contents"), attributes)
        for name in names:
            self._add_name(function.__globals__, name, attributes)

    def _add_attribute(self, owner: Any, name: str) -> Any:
        value = _attribute(owner, name)
        self._attributes.append((owner, name, value))
        return value

    def _add_name(self, namespace: dict[str, Any], name: str, attributes: tuple[str, ...]) -> None:
        value = namespace.get(name, _MISSING)
        self._names.append((namespace, name, value))
        self._add_value(value, attributes)

    def _add_value(self, value: Any, attributes: tuple[str, ...]) -> None:
        """Something read by code that asks for these attributes of one thing or another."""
        if isinstance(value, ModuleType):
            self._add_module(value, attributes)
        elif isinstance(value, FunctionType):
            self._add_function(value, {})
        elif hasattr(value, "py_func") and hasattr(value, "targetoptions"):
            if id(value) not in self._met:
                self._met.add(id(value))
                self.dispatchers.append(value)
                self._add_function(value.py_func, value.targetoptions)
        elif isinstance(value, tuple):
            for item in value:
                self._add_value(item, attributes)
        elif isinstance(value, _MUTABLE):
            self._contents.append((value, _content(value)))

    def _add_module(self, module: ModuleType, attributes: tuple[str, ...]) -> None:
        key = (id(module), attributes)
        if key in self._met or installed_version(module.__name__) is not None:
            return  # what an installed package holds stays
        self._met.add(key)
        for name in attributes:
            self._add_name(vars(module), name, attributes)


def _attribute(owner: Any, name: str) -> Any:
    try:
        return getattr(owner, name)
    except ValueError:  # an empty cell
        return _MISSING


def _content(value: Any) -> Any:
    """What something holds that may change in place."""
    if isinstance(value, (np.ndarray, np.void)):
        return value.dtype, value.shape, value.tobytes()
    return content_digest(value)


def _state(file: Any) -> tuple[int, int] | None:
    """What changes when a file is written."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
