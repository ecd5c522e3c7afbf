"""Named scalars and the arithmetic on them.

An `Expr` may stand wherever a number may: kernel arguments, grid, block, dynamic shared memory, copy sizes, view
bounds. Equal expressions are equal objects in the sense of ``==`` and ``hash``, so that a run evaluates each of
them once however many nodes share it. This module must know nothing of nodes.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from graphdsl.errors import DeclarationError, GraphdslError, Location

if TYPE_CHECKING:
    from graphdsl.declare.definition import Definition

Number = int | float | complex | np.generic
Scalar = Union[Number, "Expr"]


def _cdiv(numerator: Any, denominator: Any) -> Any:
    return -(-numerator // denominator)


_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "cdiv": _cdiv,
    "minimum": min,
    "maximum": max,
}


class Expr:
    """Arithmetic on params: ``+ - * // %``, unary minus, `cdiv`, `minimum`, `maximum`.

    Attributes
    ----------
    dtype : numpy.dtype
        The result type by NumPy's promotion rules, Python numbers being weak.
    params : frozenset of Param
        The params that the value depends on.
    """

    __slots__ = ("dtype", "params")
    __array_ufunc__ = None  # so that a NumPy scalar on the left leaves the arithmetic to the expression
    dtype: np.dtype[Any]
    params: frozenset[Param]

    def evaluate(self, values: Mapping[str, Any], memo: dict[Expr, Any] | None = None) -> Any:
        """The value, given one for each param by name; ``memo`` shares sub-results between calls."""
        raise NotImplementedError

    def __add__(self, other: Scalar) -> Expr:
        return _binary("+", self, other)

    def __radd__(self, other: Scalar) -> Expr:
        return _binary("+", other, self)

    def __sub__(self, other: Scalar) -> Expr:
        return _binary("-", self, other)

    def __rsub__(self, other: Scalar) -> Expr:
        return _binary("-", other, self)

    def __mul__(self, other: Scalar) -> Expr:
        return _binary("*", self, other)

    def __rmul__(self, other: Scalar) -> Expr:
        return _binary("*", other, self)

    def __floordiv__(self, other: Scalar) -> Expr:
        return _binary("//", self, other)

    def __rfloordiv__(self, other: Scalar) -> Expr:
        return _binary("//", other, self)

    def __mod__(self, other: Scalar) -> Expr:
        return _binary("%", self, other)

    def __rmod__(self, other: Scalar) -> Expr:
        return _binary("%", other, self)

    def __neg__(self) -> Expr:
        return _binary("-", 0, self)

    def __truediv__(self, other: Any) -> Expr:
        raise DeclarationError(
            "expressions on params have no true division",
            value=f"{self} / {other}",
            remedy="Use // or cdiv for whole numbers, multiply by a reciprocal, or divide inside the kernel.",
        )

    __rtruediv__ = __truediv__

    def __bool__(self) -> bool:
        raise DeclarationError(
            "a param has no value while the graph is declared, so it cannot decide an if, while, and, or",
            value=str(self),
            remedy="Use minimum, maximum or cdiv, or decide inside the kernel.",
        )

    def __index__(self) -> int:
        raise DeclarationError(
            "a param has no value while the graph is declared, so it cannot be turned into an int",
            value=str(self),
            remedy="Pass the expression itself: grid, block, sizes, slices and kernel arguments take it.",
        )

    __int__ = __index__

    def __float__(self) -> float:
        raise DeclarationError(
            "a param has no value while the graph is declared, so it cannot be turned into a float",
            value=str(self),
            remedy="Pass the expression itself as the kernel argument.",
        )


class Param(Expr):
    """A named, typed scalar of a graph; `GraphExec.update` changes it by name.

    Made by `Graph.param`. Two params are equal only if they are the same object.
    """

    __slots__ = ("default", "definition", "location", "name")

    def __init__(
        self,
        name: str,
        dtype: np.dtype[Any],
        default: Any | None,
        definition: Definition,
        location: Location | None = None,
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.default = None if default is None else convert_scalar(default, dtype, field=f"default of param {name!r}")
        self.definition = definition
        self.location = location
        self.params = frozenset((self,))

    def evaluate(self, values: Mapping[str, Any], memo: dict[Expr, Any] | None = None) -> Any:
        return values[self.name]

    def __repr__(self) -> str:
        return self.name


class BinaryExpr(Expr):
    """One operation on two operands, at least one of them an expression. Made by `_binary_expr` alone."""

    __slots__ = ("__weakref__", "function", "left", "right")

    def __init__(self, function: str, left: Scalar, right: Scalar, dtype: np.dtype[Any] | None = None) -> None:
        self.function = function
        self.left = left
        self.right = right
        self.params = _params(left) | _params(right)
        self.dtype = _result_type(function, left, right) if dtype is None else dtype

    def evaluate(self, values: Mapping[str, Any], memo: dict[Expr, Any] | None = None) -> Any:
        memo = {} if memo is None else memo
        if self in memo:
            return memo[self]
        # A stack of its own: sums that grow in a loop are nested deeper than Python recurses.
        pending: list[BinaryExpr] = [self]
        while pending:
            expr = pending[-1]
            missing = [side for side in (expr.left, expr.right) if isinstance(side, BinaryExpr) and side not in memo]
            if missing:
                pending += missing
                continue
            left = value_of(expr.left, values, memo)
            memo[expr] = _FUNCTIONS[expr.function](left, value_of(expr.right, values, memo))
            pending.pop()
        return memo[self]

    def __repr__(self) -> str:
        return _text(self, depth=12)


# Equal expressions are one object, so that sharing them costs a comparison of identities and no more.
_made: weakref.WeakValueDictionary[Any, BinaryExpr] = weakref.WeakValueDictionary()


def _binary_expr(function: str, left: Scalar, right: Scalar, dtype: np.dtype[Any] | None = None) -> BinaryExpr:
    key = (function, *_identity(left), *_identity(right), dtype)
    found = _made.get(key)
    return _made.setdefault(key, BinaryExpr(function, left, right, dtype)) if found is None else found


def _identity(side: Scalar) -> tuple[Any, ...]:
    """What equal operands have in common. 1, 1.0 and True, or 0.0 and -0.0, are equal to Python but not here."""
    return (side,) if type(side) is int or isinstance(side, Expr) else (type(side), repr(side))


def _text(operand: Scalar, depth: int) -> str:
    """The expression as its user would write it; parts nested deeper than ``depth`` are left out."""
    if not isinstance(operand, BinaryExpr):
        return str(operand)
    if depth == 0:
        return "..."
    left, right = _text(operand.left, depth - 1), _text(operand.right, depth - 1)
    if operand.function.isidentifier():
        return f"{operand.function}({left}, {right})"
    return f"({left} {operand.function} {right})"


def _params(operand: Scalar) -> frozenset[Param]:
    return operand.params if isinstance(operand, Expr) else frozenset()


def _binary(function: str, left: Any, right: Any) -> Expr:
    for side in (left, right):
        if not isinstance(side, (Expr, int, float, complex, np.number, np.bool_)):
            return NotImplemented  # type: ignore[no-any-return]  # for Python to turn into a TypeError
    return _binary_expr(function, left, right)


def _result_type(function: str, left: Scalar, right: Scalar) -> np.dtype[Any]:
    # NumPy 2 promotes Python numbers weakly only where they stand as values, so pass them through as such.
    sides = [side.dtype if isinstance(side, Expr) else side for side in (left, right)]
    try:
        promoted = np.result_type(*sides)
    except TypeError:
        raise _undefined(function, left, right, "these dtypes") from None
    if promoted.kind in "Mm":
        raise _undefined(function, left, right, "dates and times")
    if promoted.kind == "c" and function not in ("+", "-", "*"):
        raise _undefined(function, left, right, "complex numbers")
    if promoted.kind == "b" and function not in ("minimum", "maximum"):
        return np.dtype(np.int64)  # as in Python, where True + True is 2
    return promoted


def _undefined(function: str, left: Scalar, right: Scalar, what: str) -> DeclarationError:
    return DeclarationError(
        f"{function} is not defined for {what}",
        value=", ".join(f"{side}: {side.dtype}" if isinstance(side, Expr) else f"{side!r}" for side in (left, right)),
        remedy="Compute it on the host and pass it as a param, or compute it inside the kernel.",
    )


_EXTENT = np.dtype(np.int64)


def extent_expr(function: str, left: int | Expr, right: int | Expr) -> Expr:
    """Arithmetic on sizes and indices: int64 whatever the dtypes of the params, since sizes count bytes.

    Examples
    --------
    >>> from graphdsl.declare.definition import Definition
    >>> row = Definition().param("row", np.uint8)
    >>> extent_expr("*", row, 4096).dtype
    dtype('int64')
    """
    return _binary_expr(function, left, right, _EXTENT)


def _require_scalars(call: str, operands: Iterable[Any]) -> None:
    for operand in operands:
        if isinstance(operand, (Expr, int, float, np.number)):
            continue
        raise DeclarationError(
            f"{call} takes numbers and expressions on params",
            field="operand",
            value=f"{operand!r} of type {type(operand).__name__}",
            remedy="Pass an int, a float, a param or an expression on params.",
        )


def cdiv(numerator: Scalar, denominator: Scalar) -> Any:
    """Ceiling division, the usual way to a grid size.

    Parameters
    ----------
    numerator, denominator : int or Expr
        Numbers, params, or expressions on params.

    Returns
    -------
    int or Expr
        A number if both are numbers, else an expression.

    Examples
    --------
    >>> cdiv(1000, 256)
    4
    """
    return _call("cdiv", numerator, denominator)


def minimum(left: Scalar, right: Scalar) -> Any:
    """The smaller of two numbers or expressions on params.

    Examples
    --------
    >>> minimum(3, 5)
    3
    """
    return _call("minimum", left, right)


def maximum(left: Scalar, right: Scalar) -> Any:
    """The larger of two numbers or expressions on params.

    Examples
    --------
    >>> maximum(3, 5)
    5
    """
    return _call("maximum", left, right)


def _call(function: str, left: Any, right: Any) -> Any:
    if type(right) is int and isinstance(left, Expr):  # by far the most frequent
        return _binary_expr(function, left, right)
    _require_scalars(function, (left, right))
    if isinstance(left, Expr) or isinstance(right, Expr):
        return _binary_expr(function, left, right)
    try:
        return _FUNCTIONS[function](left, right)
    except ZeroDivisionError:
        raise DeclarationError(
            "the denominator may not be 0",
            field="cdiv",
            value=f"cdiv({left}, {right})",
            remedy="Pass a positive denominator, such as the block size.",
        ) from None


def value_of(operand: Any, values: Mapping[str, Any], memo: dict[Expr, Any] | None = None) -> Any:
    """``operand`` itself if it is a number, else its value given one for each param by name."""
    return operand.evaluate(values, memo) if isinstance(operand, Expr) else operand


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
            f"{dtype} takes {wanted}, and this is a {type(value).__name__}",
            field=field,
            value=repr(value),
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
