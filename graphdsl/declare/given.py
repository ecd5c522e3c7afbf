"""What the declaring methods take, brought into one form or refused with one clear error.

Updates take the same things and use the same functions. This module must not know what a graph is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from graphdsl.declare.expressions import Expr
from graphdsl.declare.nodes import Dim3
from graphdsl.declare.operands import Array, Extent
from graphdsl.errors import DeclarationError


def checked_name(name: Any, what: str) -> str:
    """A name that can be shown and looked up."""
    if isinstance(name, str) and name and name.isprintable():
        return name
    raise DeclarationError(
        f"the name of a {what} is a string of printable characters, and not empty",
        field="name",
        value=repr(name),
        remedy="Choose such a name.",
    )


def checked_shape(shape: Any, name: str) -> tuple[int, ...]:
    """Extents of an array, fixed when it is declared."""
    extents = shape if isinstance(shape, (tuple, list)) else (shape,)
    for extent in extents:
        if isinstance(extent, bool) or not isinstance(extent, (int, np.integer)) or extent < 0:
            raise DeclarationError(
                "the extents of an array are non-negative integers, fixed when it is declared",
                field=f"shape of {name}",
                value=shape,
                remedy="Declare the largest shape, and pass a param, or a slice bounded by one, for the part used.",
            )
    return tuple(int(extent) for extent in extents)


def checked_dtype(dtype: Any, name: str, *, scalar: bool = False) -> np.dtype[Any]:
    """A dtype that devices work on."""
    try:
        made: np.dtype[Any] | None = None if dtype is None else np.dtype(dtype)  # NumPy reads None as float64
    except (TypeError, ValueError):
        made = None
    if made is None:
        raise DeclarationError(
            "a dtype is what numpy.dtype takes",
            field=f"dtype of {name}",
            value=repr(dtype),
            remedy="Pass a NumPy type such as numpy.float32.",
        )
    if made.subdtype is not None or not _on_devices(made) or (scalar and made.names is not None):
        raise DeclarationError(
            "a device works on numbers in the machine's byte order" + ("" if scalar else " and on structures of them"),
            field=f"dtype of {name}",
            value=str(made),
            remedy="Use a bool, integer, float or complex dtype.",
        )
    return made


_MAX_ITEMSIZE = {"b": 1, "i": 8, "u": 8, "f": 8, "c": 16, "M": 8, "m": 8}
"""Bytes of the widest scalar of each kind: a device has no extended precision."""


def _on_devices(dtype: np.dtype[Any]) -> bool:
    element = dtype.base  # of a field that is an array
    if element.names is not None:
        return element.itemsize > 0 and all(_on_devices(element[name]) for name in element.names)
    return element.isnative and 0 < element.itemsize <= _MAX_ITEMSIZE.get(element.kind, 0)


def require_array(operand: Any, node: str | None, field: str) -> None:
    """Refuse what is not an array of a graph."""
    if not isinstance(operand, Array):
        raise DeclarationError(
            "it must be an array of the graph, or a slice of one",
            node=node,
            field=field,
            value=f"{operand!r} of type {type(operand).__name__}",
            remedy="Declare it with device_array, host_array or external.",
        )


def arguments(args: Any) -> tuple[Any, ...]:
    """The arguments of a node; a single one may stand by itself."""
    if type(args) is tuple:
        return args
    return tuple(args) if isinstance(args, Iterable) and not isinstance(args, (Array, str, bytes)) else (args,)


def dim3(dims: Any, node: str, field: str) -> Dim3:
    """One to three extents as three; missing ones are 1."""
    if not isinstance(dims, (tuple, list)):
        return extent(dims, node, field), 1, 1
    if not 1 <= len(dims) <= 3:
        raise DeclarationError(
            "it has one to three dimensions",
            node=node,
            field=field,
            value=dims,
            remedy="Pass an int, or a tuple of up to three.",
        )
    x, *rest = (extent(part, node, field) for part in dims)
    y, z = (*rest, 1, 1)[:2]
    return x, y, z


def extent(value: Any, node: str, field: str) -> Extent:
    """An integer, or an integer expression on params."""
    if type(value) is int:
        return value
    if isinstance(value, Expr) and value.dtype.kind in "iu":
        return value
    if isinstance(value, np.integer):
        return int(value)
    raise DeclarationError(
        "it is an integer, or an integer expression on params",
        node=node,
        field=field,
        value=f"{value!r} of type {type(value).__name__}",
        remedy="Use // or cdiv for whole numbers, and an integer dtype for the params in it.",
    )


def checked_function(function: Any, node: str | None) -> Any:
    """What a host node calls."""
    if callable(function):
        return function
    raise DeclarationError(
        "a host node calls a function",
        node=node,
        field="function",
        value=f"{function!r} of type {type(function).__name__}",
        remedy="Pass a callable.",
    )
