"""Errors of other stages, said of an update."""

from __future__ import annotations

from graphdsl.declare.node import Node
from graphdsl.errors import GraphdslError, UpdateError


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
