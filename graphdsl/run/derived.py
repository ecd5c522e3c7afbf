"""Values that the driver is given and that can change: what they follow from, and where they lie.

A param, or an expression on params, is such a value itself; here are those that follow from one, and from buffers.
This module must not know how nodes are packed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from graphdsl.declare.condition import Condition
from graphdsl.declare.event import Event
from graphdsl.declare.expressions import Expr
from graphdsl.declare.node import Node
from graphdsl.declare.operands import Array
from graphdsl.declare.pattern import memset_pattern
from graphdsl.declare.scalars import convert_scalar
from graphdsl.errors import UpdateError


class Derived(Expr):
    """A value that the driver is given and that follows from an expression or a buffer.

    Attributes
    ----------
    names : frozenset of str
        Params and buffers that it depends on.
    """

    __slots__ = ("key", "names")
    names: frozenset[str]
    key: tuple[Any, ...]

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return " ".join(map(str, self.key))


class AddressOf(Derived):
    """The address of an array: that of its buffer, and the offset in it."""

    __slots__ = ("external",)

    def __init__(self, array: Array) -> None:
        self.key = (array.buffer.name, array.offset)
        self.external = array.buffer.external
        self.dtype = np.dtype(np.uint64)
        self.params = array.params
        self.names = frozenset({array.buffer.name, *(param.name for param in array.params)})

    def evaluate(self, values: Mapping[str, Any], memo: dict[Expr, Any] | None = None) -> int:
        name, offset = self.key
        return int(values[name] + (offset.evaluate(values, memo) if isinstance(offset, Expr) else offset))


class HandleOf(Derived):
    """The handle of an event."""

    __slots__ = ()

    def __init__(self, event: Event) -> None:
        self.key = (event.name,)
        self.dtype = np.dtype(np.uint64)
        self.params = frozenset()
        self.names = frozenset({event.name})

    def evaluate(self, values: Mapping[str, Any], memo: dict[Expr, Any] | None = None) -> int:
        return int(values[self.key[0]])


class Part(Derived):
    """The real or imaginary part of a complex expression."""

    __slots__ = ()

    def __init__(self, expression: Expr, part: str) -> None:
        self.key = (expression, part)
        self.dtype = np.dtype(f"f{expression.dtype.itemsize // 2}")
        self.params = expression.params
        self.names = names_of(expression)

    def evaluate(self, values: Mapping[str, Any], memo: dict[Expr, Any] | None = None) -> float:
        expression, part = self.key
        return float(getattr(complex(expression.evaluate(values, memo)), part))


class Pattern(Derived):
    """The bits that a memset repeats for the value of an expression."""

    __slots__ = ("node",)

    def __init__(self, expression: Expr, dtype: np.dtype[Any], node: Node) -> None:
        self.key = (expression, dtype)
        self.dtype = np.dtype(np.uint32)
        self.params = expression.params
        self.names = names_of(expression)
        self.node = node

    def evaluate(self, values: Mapping[str, Any], memo: dict[Expr, Any] | None = None) -> int:
        expression, dtype = self.key
        value = expression.evaluate(values, memo)
        return pattern_of(value, dtype, self.node)


def settled(value: Any, values: Mapping[str, Any]) -> Any:
    """An address that no update can change, or a condition, as the number it is; anything else as it came."""
    if isinstance(value, Condition):
        return value.evaluate(values)
    if isinstance(value, AddressOf) and not value.params and not value.external:
        return value.evaluate(values)
    return value


def pattern_of(value: Any, dtype: np.dtype[Any], node: Node) -> int:
    """The bits that a memset repeats, or an `UpdateError` that names the node."""
    value = convert_scalar(value, dtype, field="value", error=UpdateError, node=node.name, location=node.location)
    bits = memset_pattern(value, dtype)
    if bits is None:
        raise UpdateError(
            f"a memset repeats 4 bytes, and those of this {dtype} do not repeat",
            node=node.name,
            field="value",
            value=value,
            remedy="Use a kernel to fill with this value.",
            location=node.location,
        )
    return bits


def names_of(expression: Expr) -> frozenset[str]:
    """Params and buffers that the value depends on, by name."""
    if isinstance(expression, Derived):
        return expression.names
    return frozenset(param.name for param in expression.params)


@dataclass(frozen=True)
class Site:
    """A place in the arena whose value can change.

    Attributes
    ----------
    offset : int
        Bytes from the start of the arena.
    dtype : numpy.dtype
        What lies there.
    value : Expr
        What it follows from.
    field : str
        The node's field, as messages call it.
    rules : "none", "launch" or "node"
        Which rules a new value must keep besides fitting ``dtype``: those about launches, or any about the node.
    """

    offset: int
    dtype: np.dtype[Any]
    value: Expr
    field: str
    rules: Literal["none", "launch", "node"]


def evaluated(
    value: Expr, dtype: np.dtype[Any], node: Node, field: str, values: Mapping[str, Any], memo: dict[Expr, Any]
) -> Any:
    """The value of an expression as ``dtype`` holds it, or an `UpdateError` that names the node and the field."""
    try:
        found = value.evaluate(values, memo)
    except ArithmeticError as problem:
        why = "it divides by zero" if isinstance(problem, ZeroDivisionError) else problem
        raise UpdateError(
            f"{value} has no value: {why}",
            node=node.name,
            field=field,
            remedy="Choose other values for its params.",
            location=node.location,
        ) from None
    if isinstance(found, (np.datetime64, np.timedelta64)):
        found = int(found.astype(np.int64))  # a kernel is passed the count of units
    return convert_scalar(found, dtype, field=field, error=UpdateError, node=node.name, location=node.location)
