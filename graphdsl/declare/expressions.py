"""Named scalars and the arithmetic on them.

An `Expr` may stand wherever a number may: kernel arguments, grid, block, dynamic shared memory, copy sizes, view
bounds. Equal expressions are one object, so that a run evaluates each of them once however many nodes share it. The
numbers in them are Python's, which neither wrap around nor divide by zero in silence. This module must know nothing
of nodes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from graphdsl.declare.interned import Interned
from graphdsl.declare.scalars import convert_scalar, number_text
from graphdsl.errors import DeclarationError, Location

if TYPE_CHECKING:
    from graphdsl.declare.store import Level

Number = int | float | complex | np.generic
Scalar = Union[Number, "Expr"]


def _cdiv(numerator: Any, denominator: Any) -> Any:
    return -(-numerator // denominator)


_NUMBERS = (int, float, complex, np.number, np.bool_)

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


_HINT = "Use + - * // %, cdiv, minimum or maximum, or compute inside the kernel."


def _without(operation: str, remedy: str = _HINT) -> Any:
    """A method for something that Python would ask of a number, and that expressions lack."""

    def refuse(self: Expr, *others: Any) -> Any:
        raise DeclarationError(
            f"expressions on params have no {operation}",
            value=", ".join(map(_text, (self, *others))),
            remedy=remedy,
        )

    return refuse


def _valueless(purpose: str, remedy: str) -> Any:
    """A method for something that needs the value, which a param does not have yet."""

    def refuse(self: Expr, *others: Any) -> Any:
        raise DeclarationError(
            f"a param has no value while the graph is declared, so it cannot {purpose}",
            value=", ".join(map(_text, (self, *others))),
            remedy=remedy,
        )

    return refuse


_compared = _valueless("be compared", "Use minimum or maximum, or decide inside the kernel.")
_no_int = _valueless(
    "be turned into an int", "Pass the expression itself: grid, block, sizes, slices and kernel arguments take it."
)
_no_format = _valueless("be formatted as a number", "Format it as the text that it is, as in f'{n}'.")

_UFUNCS: dict[Any, str] = {np.add: "+", np.subtract: "-", np.multiply: "*", np.floor_divide: "//", np.remainder: "%"}
_COMPARISONS = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)


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
    dtype: np.dtype[Any]
    params: frozenset[Param]
    is_number = True  # False for what stands for something else and is never computed with

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

    def __pos__(self) -> Expr:
        return self

    __truediv__ = __rtruediv__ = _without(
        "true division",
        "Use // or cdiv for whole numbers, multiply by a reciprocal, or divide inside the kernel.",
    )
    __pow__ = __rpow__ = _without("power", "Multiply, as in n * n, or compute inside the kernel.")
    __abs__ = _without("absolute value", "Use maximum(n, -n).")
    __divmod__ = __rdivmod__ = _without("divmod", "Use // and %.")
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _without("shifts", "Use * and // by a power of two.")
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = _without("bitwise operations")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Expr:
        """What NumPy asks where a NumPy number stands on the left: ``numpy.int32(2) * n``."""
        if ufunc in _COMPARISONS:
            return _compared(*inputs)  # type: ignore[no-any-return]
        function = _UFUNCS.get(ufunc)
        made = NotImplemented if function is None or method != "__call__" else _binary(function, *inputs)
        if made is not NotImplemented:
            return made
        raise DeclarationError(
            f"numpy.{ufunc.__name__} does not take expressions on params",
            value=", ".join(map(_text, inputs)),
            remedy=_HINT,
        )

    # Expressions are equal if they are one object. That a param equals no number would be a trap in an if.
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return _compared(self, other) if isinstance(other, _NUMBERS) else NotImplemented

    __lt__ = __le__ = __gt__ = __ge__ = _compared

    __bool__ = _valueless("decide an if, while, and, or", "Use minimum, maximum or cdiv, or decide inside the kernel.")
    __index__ = __int__ = __round__ = _no_int
    __float__ = __complex__ = _valueless("be turned into a float", "Pass the expression itself as the kernel argument.")

    def __format__(self, spec: str) -> str:
        try:
            return format(str(self), spec)
        except ValueError:
            return _no_format(self)  # type: ignore[no-any-return]


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
        definition: Level,
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
        for side in (left, right):
            if isinstance(side, Expr) and not side.is_number:
                raise DeclarationError(
                    f"{side!r} is a handle for kernels to set, and not a number",
                    value=f"{_text(left)} {function} {_text(right)}",
                    remedy="Compute with a param, or inside the kernel.",
                )
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
        return _text(self)


# Equal expressions are one object, so that sharing them costs a comparison of identities and no more.
_made: Interned[BinaryExpr] = Interned()


def _binary_expr(function: str, left: Scalar, right: Scalar, dtype: np.dtype[Any] | None = None) -> BinaryExpr:
    key = (function, *_identity(left), *_identity(right), dtype)
    found = _made.get(key)
    return _made.keep(key, BinaryExpr(function, left, right, dtype)) if found is None else found


def _mixed_expr(function: str, left: Any, right: Any) -> BinaryExpr:
    """The same, where a side may be a number of NumPy: it decides the dtype, and is then computed with as Python's."""
    if isinstance(left, np.generic) or isinstance(right, np.generic):
        dtype = _result_type(function, left, right)
        return _binary_expr(function, _python_number(left), _python_number(right), dtype)
    return _binary_expr(function, left, right)


def _python_number(operand: Any) -> Any:
    """A NumPy number as Python's, whose arithmetic is exact and refuses to divide by zero."""
    return operand.item() if isinstance(operand, np.generic) else operand


def _identity(side: Scalar) -> tuple[Any, ...]:
    """What equal operands have in common. 1, 1.0 and True, or 0.0 and -0.0, are equal to Python but not here.

    An expression is known by its number, which no other one has while it lives: the key of what is made of it would
    keep it otherwise, and that its graph, which keeps what is made of it.
    """
    if type(side) is int:
        return (side,)
    return (None, id(side)) if isinstance(side, Expr) else (type(side), repr(side))


def _text(operand: Any, depth: int = 12) -> str:
    """The expression as its user would write it; parts nested deeper than ``depth`` are left out."""
    if not isinstance(operand, BinaryExpr):
        return number_text(operand)
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
        if not isinstance(side, (Expr, *_NUMBERS)):
            return NotImplemented  # type: ignore[no-any-return]  # for Python to turn into a TypeError
    return _mixed_expr(function, left, right)


def _result_type(function: str, left: Scalar, right: Scalar) -> np.dtype[Any]:
    # NumPy 2 promotes Python numbers weakly only where they stand as values, so pass them through as such.
    sides = [side.dtype if isinstance(side, Expr) else side for side in (left, right)]
    try:
        promoted = np.result_type(*sides)
    except TypeError:
        raise _undefined(function, left, right, "these dtypes") from None
    if promoted.kind in "Mm":
        raise _undefined(function, left, right, "dates and times")
    if promoted.itemsize > (16 if promoted.kind == "c" else 8):
        raise _undefined(function, left, right, "extended precision")
    if promoted.kind == "c" and function not in ("+", "-", "*"):
        raise _undefined(function, left, right, "complex numbers")
    if promoted.kind == "b" and function not in ("minimum", "maximum"):
        return np.dtype(np.int64)  # as in Python, where True + True is 2
    return promoted


def _undefined(function: str, left: Scalar, right: Scalar, what: str) -> DeclarationError:
    return DeclarationError(
        f"{function} is not defined for {what}",
        value=", ".join(f"{side}: {side.dtype}" if isinstance(side, Expr) else _text(side) for side in (left, right)),
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
        if isinstance(operand, (Expr, int, float, np.integer, np.floating, np.bool_)) and not _is_duration(operand):
            continue
        raise DeclarationError(
            f"{call} takes numbers and expressions on params",
            field="operand",
            value=f"{number_text(operand)} of type {type(operand).__name__}",
            remedy="Pass an int, a float, a param or an expression on params.",
        )


def _is_duration(operand: Any) -> bool:
    return isinstance(operand, np.timedelta64)  # which NumPy counts among the integers


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
        return _mixed_expr(function, left, right)
    try:
        return _FUNCTIONS[function](_python_number(left), _python_number(right))
    except ZeroDivisionError:
        rule, remedy = "the denominator may not be 0", "Pass a positive denominator, such as the block size."
    except OverflowError:
        rule, remedy = "a float cannot hold a number so large", "Pass integers."
    raise DeclarationError(rule, field=function, value=f"{function}({_text(left)}, {_text(right)})", remedy=remedy)


def value_of(operand: Any, values: Mapping[str, Any], memo: dict[Expr, Any] | None = None) -> Any:
    """``operand`` itself if it is a number, else its value given one for each param by name."""
    return operand.evaluate(values, memo) if isinstance(operand, Expr) else operand


def substituted(expr: Expr, substitutes: Mapping[Expr, Any], memo: dict[Expr, Any]) -> Any:
    """The expression with other operands in the place of some; a number where no operand is left.

    Parameters
    ----------
    expr : Expr
        Stays as it is.
    substitutes : mapping of Expr to Expr or number
        What stands for params.
    memo : dict
        Shares sub-results between calls.

    Examples
    --------
    >>> from graphdsl.declare.definition import Definition
    >>> n = Definition().param("n", np.int32)
    >>> rows = Definition().param("rows", np.int32)
    >>> substituted(cdiv(n, 256) + 1, {n: rows}, {}), substituted(cdiv(n, 256) + 1, {n: 512}, {})
    ((cdiv(rows, 256) + 1), 3)
    """
    if not isinstance(expr, BinaryExpr):
        return substitutes.get(expr, expr)
    pending: list[BinaryExpr] = [expr]  # a stack of its own, as in `BinaryExpr.evaluate`
    while pending:
        top = pending[-1]
        missing = [side for side in (top.left, top.right) if isinstance(side, BinaryExpr) and side not in memo]
        if missing:
            pending += missing
            continue
        left, right = (_substitute(side, substitutes, memo) for side in (top.left, top.right))
        if isinstance(left, Expr) or isinstance(right, Expr):
            memo[top] = _binary_expr(top.function, left, right, top.dtype)
        else:
            memo[top] = _FUNCTIONS[top.function](left, right)
        pending.pop()
    return memo[expr]


def _substitute(side: Any, substitutes: Mapping[Expr, Any], memo: Mapping[Expr, Any]) -> Any:
    if isinstance(side, BinaryExpr):
        return memo[side]
    return substitutes.get(side, side) if isinstance(side, Expr) else side
