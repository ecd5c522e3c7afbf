"""Errors of other stages, said of an update."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from graphdsl.declare.node import Node
from graphdsl.errors import GraphdslError, UpdateError

KIND = ("space", "dtype", "shape", "strides")
"""What memory has in common that can take the place of other memory."""


def refused(problem: GraphdslError, node: Node | None = None) -> UpdateError:
    """The same refusal as an `UpdateError`, about ``node`` where one is given."""
    return UpdateError(
        problem.rule,
        node=problem.node if node is None else node.name,
        field=problem.field,
        value=problem.value,
        remedy=problem.remedy,
        location=problem.location if node is None else node.location,
    )


def require_alike(
    name: str, given: Any, there: Any, fields: Iterable[str], rule: str, remedy: str = "Convert it first."
) -> None:
    """Refuse memory for an operand that differs in a field from what is there.

    Parameters
    ----------
    name : str
        The operand.
    given, there : object
        Both have the fields.
    fields : iterable of str
        What must agree.
    rule, remedy : str
        For the message; ``{field}`` and ``{old}`` in the rule are the field and what is there.

    Raises
    ------
    UpdateError
        About the first field that differs.
    """
    for field in fields:
        new, old = getattr(given, field), getattr(there, field)
        if new != old:
            raise UpdateError(rule.format(field=field, old=old), field=name, value=f"{field} {new}", remedy=remedy)
