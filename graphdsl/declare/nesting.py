"""Nodes that hold others: a graph as one node, and bodies that a condition chooses.

This module must not decide whether a node makes sense.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from graphdsl.declare.condition import Condition
from graphdsl.declare.node import Node
from graphdsl.errors import DeclarationError, Location

if TYPE_CHECKING:
    from graphdsl.declare.definition import Definition

Form = Literal["if", "while", "switch"]
"""What a conditional node does with its bodies."""


class ChildNode(Node):
    """A whole graph as one node.

    Attributes
    ----------
    bodies : tuple of Definition
        One: the nodes of the graph, as they were when it became a child.
    graph : str
        Name of the graph.
    """

    __slots__ = ("bodies", "graph")
    kind = "child"
    bodies: tuple[Definition, ...]

    def __init__(self, name: str, definition: Definition, location: Location, body: Definition, graph: str) -> None:
        super().__init__(name, definition, location)
        self.bodies = (body,)
        self.graph = graph

    @property
    def body(self) -> Definition:
        """The nodes of the graph."""
        return self.bodies[0]


class ConditionalNode(Node):
    """Runs one of its bodies, or one body again and again, as the value of a condition says.

    In a ``with`` statement it gives its first body.

    Attributes
    ----------
    form : "if", "while" or "switch"
        What it does with the bodies.
    condition : Condition
        What decides; it belongs to this node alone.
    bodies : tuple of Definition
        Of an if the body for any value but 0, and the one for 0; of a while one; of a switch one for each case.
    """

    __slots__ = ("bodies", "condition", "form")
    kind = "conditional"
    bodies: tuple[Definition, ...]

    def __init__(
        self,
        name: str,
        definition: Definition,
        location: Location,
        form: Form,
        condition: Condition,
        bodies: tuple[Definition, ...],
    ) -> None:
        super().__init__(name, definition, location)
        self.form = form
        self.condition = condition
        self.bodies = bodies

    @property
    def otherwise(self) -> Definition:
        """The body of an if for the value 0; it may stay empty."""
        if self.form == "if":
            return self.bodies[1]
        raise DeclarationError(
            "only an if has a body for otherwise",
            node=self.name,
            field="otherwise",
            value=f"a {self.form}",
            remedy="Use bodies, or declare it with if_.",
        )

    def operands(self) -> tuple[Any, ...]:
        return (self.condition,)

    def fields(self) -> Iterator[tuple[str, Any]]:
        yield "condition", self.condition

    def __enter__(self) -> Definition:
        return self.bodies[0]

    def __exit__(self, *_: object) -> None:
        pass
