"""Conditions: values that kernels set and that decide what conditional nodes do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from graphdsl.declare.expressions import Expr
from graphdsl.declare.scalars import convert_scalar
from graphdsl.errors import DeclarationError, GraphdslError, Location

if TYPE_CHECKING:
    from graphdsl.declare.store import Level

_HANDLE = np.dtype(np.uint64)
_VALUE = np.dtype(np.uint32)


class Condition(Expr):
    """A value that decides what one conditional node does; made by `Graph.condition`.

    As an argument of a kernel it is the driver's handle of it, a uint64.

    Attributes
    ----------
    name : str
        Unique among the operands of the graph.
    default : int or None
        The value at the start of each launch; None leaves it undefined.
    """

    __slots__ = ("default", "definition", "location", "name")
    is_number = False

    def __init__(self, name: str, default: int | None, definition: Level, location: Location | None = None) -> None:
        self.name = name
        self.dtype = _HANDLE
        self.default = None if default is None else int(convert_scalar(default, _VALUE, field=f"default of {name!r}"))
        self.definition = definition
        self.location = location
        self.params = frozenset()

    def evaluate(self, values: Mapping[str, Any], memo: dict[Expr, Any] | None = None) -> int:
        """The driver's handle, given one by name; there is one only once the graph is built."""
        return int(values[self.name])

    def __repr__(self) -> str:
        return self.name


def require_condition(condition: Any, node: str | None) -> None:
    """Refuse what is no condition."""
    if not isinstance(condition, Condition):
        raise DeclarationError(
            "what decides is a condition of the graph",
            node=node,
            field="condition",
            value=f"{condition!r} of type {type(condition).__name__}",
            remedy="Declare one with graph.condition, and let a kernel set it with graphdsl.device.set_condition.",
        )


def refuse_condition(operand: Any, error: type[GraphdslError]) -> None:
    """Refuse to give or ask the value of a condition, as if it were a param."""
    if isinstance(operand, Condition):
        raise error(
            "the value of a condition is on the device, where kernels set it",
            field=operand.name,
            remedy="Pass a param to a kernel that sets the condition from it, with graphdsl.device.set_condition.",
            location=operand.location,
        )


def checked_cases(cases: Any, node: str | None) -> int:
    """The number of bodies of a switch."""
    if isinstance(cases, (int, np.integer)) and not isinstance(cases, bool) and cases >= 1:
        return int(cases)
    raise DeclarationError(
        "a switch has a whole number of bodies, at least one",
        node=node,
        field="cases",
        value=f"{cases!r} of type {type(cases).__name__}",
        remedy="Pass how many values of the condition have a body.",
    )
