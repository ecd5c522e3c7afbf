"""Numbers as a dtype holds them: converted without loss, or refused.

This module must know nothing of expressions and nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from graphdsl.errors import DeclarationError, GraphdslError, text_of


def number_text(value: Any) -> str:
    """An operand for a message: a number as it is written, anything else as Python shows it."""
    return text_of(value) if isinstance(value, (int, np.generic)) else repr(value)


def convert_scalar(
    value: Any, dtype: np.dtype[Any], *, field: str, error: type[GraphdslError] = DeclarationError, **details: Any
) -> Any:
    """``value`` as a Python number that ``dtype`` holds without loss of kind or range.

    Integers must be in range and a float does not become an integer; rounding of a float to the precision
    of ``dtype`` is no loss. A finite float that would overflow to infinity is refused.

    Parameters
    ----------
    value : number
        A Python or NumPy number.
    dtype : numpy.dtype
        The dtype wanted; its kind is one of ``b i u f c M m``.
    field : str
        What the value is for, as the message calls it.
    error : type of GraphdslError
        The error raised where ``value`` does not fit; ``details`` are passed to it.
    """
    kind = dtype.kind
    if kind in "Mm":
        return _convert_time(value, dtype, field, error, details)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, np.generic):
        value = value.item()
    wanted, types = _WANTED[kind]
    refused = isinstance(value, bool) and kind in "fc"
    if not isinstance(value, types) or refused or (kind == "b" and value not in (0, 1)):
        raise error(
            f"{dtype} takes {wanted}, and this is of type {type(value).__name__}",
            field=field,
            value=number_text(value),
            remedy=f"Pass {wanted}, or use another dtype.",
            **details,
        )
    if kind == "b":
        return bool(value)
    if kind in "iu":
        least, most = _integer_range(dtype)
        if least <= value <= most:
            return int(value)
        rule = f"{dtype} holds {least} to {most}"
    else:
        converted = _as_inexact(value, dtype)
        if converted is not None:
            return converted
        rule = f"{dtype} cannot hold a number so large"
    raise error(rule, field=field, value=value, remedy="Pass a value in range, or use a wider dtype.", **details)


def scalar_converter(
    dtype: np.dtype[Any], *, field: str, error: type[GraphdslError] = DeclarationError, **details: Any
) -> Callable[[Any], Any]:
    """`convert_scalar` for one dtype, with a short way for the Python numbers that are passed most.

    Examples
    --------
    >>> scalar_converter(np.dtype(np.int8), field="n")(3)
    3
    """
    expected, least, most = _short_way(dtype)

    def convert(value: Any) -> Any:
        if type(value) is expected and least <= value <= most:
            return value
        return convert_scalar(value, dtype, field=field, error=error, **details)

    return convert


def _short_way(dtype: np.dtype[Any]) -> tuple[type | None, Any, Any]:
    """The Python type whose values in a range ``dtype`` holds without a second look, and the range."""
    if dtype.kind in "iu":
        return int, *_integer_range(dtype)
    if dtype.kind == "f":
        most = float(np.finfo(dtype).max)
        return float, -most, most
    return None, 0, 0


# What each kind of dtype takes, in words and as Python types. A bool is an int to Python, and 0 and 1 are bools here.
_WANTED: dict[str, tuple[str, Any]] = {
    "b": ("a bool", int),
    "i": ("an integer", int),
    "u": ("a non-negative integer", int),
    "f": ("a real number", (int, float)),
    "c": ("a number", (int, float, complex)),
}


@cache
def _integer_range(dtype: np.dtype[Any]) -> tuple[int, int]:
    limits = np.iinfo(dtype)
    return limits.min, limits.max


def _as_inexact(value: complex, dtype: np.dtype[Any]) -> float | complex | None:
    """``value`` as a Python float or complex; None if ``dtype`` turns the finite number into infinity."""
    try:
        converted = complex(value) if dtype.kind == "c" else float(value)  # type: ignore[arg-type]
    except OverflowError:
        return None
    with np.errstate(over="ignore"):
        overflows = np.isfinite(converted) and not np.isfinite(dtype.type(converted))
    return None if overflows else converted


def _convert_time(value: Any, dtype: np.dtype[Any], field: str, error: type[GraphdslError], details: Any) -> Any:
    try:
        return np.array(value).astype(dtype, casting="same_kind")[()]
    except (TypeError, ValueError):
        raise error(
            f"{dtype} takes a value that NumPy casts to it",
            field=field,
            value=repr(value),
            remedy=f"Pass numpy.{dtype.type.__name__}(...) of the right unit.",
            **details,
        ) from None
