"""What all nodes share: a name, a place in a graph, edges by ``>>``.

A node is immutable once declared; its edges live in the definition. This module must not know kinds of nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from graphdsl.errors import DeclarationError, Location

if TYPE_CHECKING:
    from graphdsl.declare.definition import Definition

NodeType = TypeVar("NodeType", bound="Node")

Port = Literal["default", "programmatic", "launch_order"]
"""When an edge lets its target start, in CUDA's words: once the source is done; once all blocks of the source have
called for it or ended; once all blocks of the source have begun. The last two make an edge programmatic."""


class Node:
    """One operation of a graph; made by the methods of `Graph`.

    ``a >> b`` orders ``b`` after ``a``; lists may stand on either side of a node. Between two lists Python knows no
    ``>>``: use `Graph.edge`.

    Attributes
    ----------
    name : str
        Unique in the graph.
    definition : Definition
        The graph or the body that it belongs to.
    location : tuple of str and int
        File and line of the declaration.
    tags : frozenset of str
        What `Graph.tagged` gave it.
    on : int or None
        The device that `Graph.on` put it on, by its number.
    bodies : tuple of Definition
        Those whose nodes it holds; most kinds have none.
    """

    __slots__ = ("definition", "location", "name", "on", "tags")
    kind: ClassVar[str] = "node"
    bodies: tuple[Definition, ...] = ()

    def __init__(self, name: str, definition: Definition, location: Location) -> None:
        self.name = name
        self.definition = definition
        self.location = location
        self.tags = definition.tags
        self.on = definition.device

    @property
    def scope(self) -> str:
        """Name of the scope that the node was declared in; empty at the top."""
        return self.name.rpartition("/")[0]

    @property
    def device(self) -> int | None:
        """Number of the device that it runs on; None for that which the graph is instantiated on, or for the host."""
        return self.on

    def operands(self) -> tuple[Any, ...]:
        """Everything that the node works on: arrays, expressions and literals, in the order of its fields."""
        return ()

    def fields(self) -> Iterator[tuple[str, Any]]:
        """What it works on with the field that holds it, as messages call the field."""
        return iter(())

    @classmethod
    def own_slots(cls) -> tuple[str, ...]:
        """The attributes that nodes of the kind have and others have not."""
        return tuple(slot for each in cls.__mro__[: cls.__mro__.index(Node)] for slot in each.__slots__)  # type: ignore[attr-defined]

    def replaced(self: NodeType, **fields: Any) -> NodeType:
        """A copy of the node with other values for some of its fields; the node itself stays as it is."""
        made = object.__new__(type(self))
        for slot in (*Node.__slots__, *self.own_slots()):
            setattr(made, slot, getattr(self, slot))
        for field, value in fields.items():
            setattr(made, field, value)
        return made

    def after(self, *others: NodeOrNodes) -> Node:
        """Order this node after ``others``, nodes or lists of nodes; gives this node."""
        self.definition.edge(others, self)
        return self

    def __rshift__(self, other: NodeOrNodes) -> Node | NodeList:
        return _connect(self, other)

    def __rrshift__(self, other: NodeOrNodes) -> Node:
        _connect(other, self)
        return self

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name!r}>"


NodeOrNodes = Node | Iterable["NodeOrNodes"]


class NodeList(list[Node]):
    """Nodes side by side in a chain of ``>>``."""

    def __rshift__(self, other: NodeOrNodes) -> Node | NodeList:
        return _connect(self, other)

    def __rrshift__(self, other: NodeOrNodes) -> NodeList:
        _connect(other, self)
        return self


def flatten(nodes: NodeOrNodes, node: str | None = None, field: str = "edge") -> list[Node]:
    """The nodes in a node, or in nested lists of nodes; what else is refused as the field of a node."""
    if isinstance(nodes, Node):
        return [nodes]
    if isinstance(nodes, (str, bytes)) or not isinstance(nodes, Iterable):
        raise DeclarationError(
            "an edge joins nodes, or lists of nodes",
            node=node,
            field=field,
            value=f"{nodes!r} of type {type(nodes).__name__}",
            remedy="Pass what the node methods of the graph returned.",
        )
    return [each for item in nodes for each in flatten(item, node, field)]


def _connect(before: NodeOrNodes, after: NodeOrNodes) -> Node | NodeList:
    if isinstance(before, Node) and isinstance(after, Node):  # by far the most frequent
        before.definition.edge(before, after)
        return after
    befores, afters = NodeList(flatten(before)), NodeList(flatten(after))
    for source in befores:  # each with its own graph, so that what joins two graphs is left to the check
        source.definition.edge(source, afters)
    # An empty list in the middle of a chain is passed over: a >> [] >> b orders b after a.
    return after if isinstance(after, Node) else afters or befores
