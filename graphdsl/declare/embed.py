"""Makes a graph the body of a node of another one: a copy of its nodes, with other operands in the place of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from graphdsl.declare.attributes import LaunchAttributes
from graphdsl.declare.batch import MemoryOperation
from graphdsl.declare.condition import Condition
from graphdsl.declare.event import Event
from graphdsl.declare.expressions import Expr, Param, substituted
from graphdsl.declare.independent import copy_independents
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import KernelNode
from graphdsl.declare.operands import Array, Buffer, View, rebased
from graphdsl.declare.scalars import convert_scalar
from graphdsl.errors import DeclarationError

if TYPE_CHECKING:
    from graphdsl.declare.definition import Definition
    from graphdsl.declare.operand_level import Operand
    from graphdsl.declare.store import Level


def checked_child(graph: Any, parent: Definition, node: str | None) -> None:
    """Refuse what cannot be a child of ``parent``."""
    from graphdsl.declare.definition import Definition

    rule = remedy = None
    if not isinstance(graph, Definition):
        rule, remedy = "a child is a graph", "Declare a graphdsl.Graph, and pass it."
    elif graph.root is not graph:
        rule, remedy = "a child is a whole graph, and not a body in one", "Declare the nodes in a graph of their own."
    elif graph is parent.root:
        rule, remedy = "a graph is not a child of itself", "Declare the nodes in a graph of their own."
    elif any(data for level in graph.levels for _, data in level.dag.nodes.data("foreign")):
        rule, remedy = "a child has no edges to other graphs", "Call check on the child, and mend what it finds."
    if rule is not None:
        raise DeclarationError(
            rule, node=node, field="graph", value=f"{graph!r} of type {type(graph).__name__}", remedy=remedy
        )


def require_free_names(graph: Definition, parent: Definition, node: str) -> None:
    """Refuse a name under which a node of ``graph`` would be named as one of ``parent`` is already."""
    for level in graph.levels:
        for each in level.dag:
            if parent._taken(f"{node}/{each}"):
                raise DeclarationError(
                    "nodes of a child are named behind the node that holds them, and there is one of this name already",
                    node=node,
                    field="name",
                    value=repr(f"{node}/{each}"),
                    remedy="Choose another name for the node.",
                    location=parent.node(f"{node}/{each}").location,
                )


class Substitutes:
    """What stands for the operands of a graph where it is a child.

    Attributes
    ----------
    arrays : dict of Buffer to Array
        For its buffers.
    events : dict of Event to Event
        For its events.
    scalars : dict of Expr to Expr or number
        For its params and conditions.
    """

    def __init__(self) -> None:
        self.arrays: dict[Buffer, Array] = {}
        self.events: dict[Event, Event] = {}
        self.scalars: dict[Expr, Any] = {}
        self._expressions: dict[Expr, Any] = {}
        self._views: dict[int, View] = {}

    def __call__(self, value: Any) -> Any:
        """A field of a node with the substitutes in it; one that holds no operand as it is."""
        if isinstance(value, Buffer):
            return self.arrays.get(value, value)
        if isinstance(value, View):
            return self._view(value)
        if isinstance(value, Expr):
            return substituted(value, self.scalars, self._expressions)
        if isinstance(value, Event):
            return self.events.get(value, value)
        if type(value) is tuple:
            return tuple(map(self, value))
        return value.over(self) if isinstance(value, (LaunchAttributes, MemoryOperation)) else value

    def argument(self, value: Any) -> Any:
        """An argument of a kernel with the substitutes in it; a number has the dtype of what it stands for."""
        made = self(value)
        if not isinstance(value, Expr) or isinstance(made, Expr):
            return made
        try:
            return np.array(convert_scalar(made, value.dtype, field=""), value.dtype)[()]
        except DeclarationError:  # a wider one takes it as it is
            return made

    def fields(self, node: Node) -> dict[str, Any]:
        """The fields of a node but for its bodies, with the substitutes in them."""
        made = {slot: self(getattr(node, slot)) for slot in node.own_slots() if slot != "bodies"}
        if isinstance(node, KernelNode):
            made["args"] = tuple(map(self.argument, node.args))
        return made

    def _view(self, view: View) -> View:
        base = self.arrays.get(view.buffer)
        if base is None:  # of another graph: the check of the parent says so
            return view
        found = self._views.get(id(view))
        if found is None:
            found = self._views[id(view)] = rebased(view, base, self)
        return found


def bound_operands(graph: Definition, parent: Definition, node: str, bind: Mapping[str, Any]) -> Substitutes:
    """What stands for the operands of ``graph``: what ``bind`` says, and new operands of ``parent`` for the others.

    Nothing is declared if anything in ``bind`` is refused.
    """
    from graphdsl.declare.store import unknown_name

    if not isinstance(bind, Mapping):
        raise DeclarationError(
            "it says by their names what stands for operands of the child",
            node=node,
            field="bind",
            value=f"{bind!r} of type {type(bind).__name__}",
            remedy="Pass a dict, such as {'x': y}.",
        )
    for name in bind:
        if name not in graph.operands:
            raise unknown_name(name, graph.operands, f"operand of graph {graph.name!r}", node=node, field="bind")
    made = Substitutes()
    fresh = {}
    for name, operand in graph.operands.items():
        if name in bind:
            _bind(made, operand, bind[name], node)
        else:
            fresh[f"{node}/{name}"] = operand
    for name in fresh:
        if name in parent.operands:
            raise DeclarationError(
                "operands of a child are named behind its node, and there is one of this name already",
                node=node,
                field="name",
                value=repr(name),
                remedy="Choose another name for the node.",
            )
    for attributes in _attributes(graph):
        made(attributes)  # a window takes no array that follows a param
    parent.root.placed |= graph.root.placed
    for name, operand in fresh.items():
        parent.operands[name] = _renamed(made, operand, name, parent)
    return made


def _attributes(graph: Definition) -> Iterator[LaunchAttributes]:
    """Those of the kernel nodes of a graph, in its bodies too."""
    for level in graph.levels:
        for node in level.nodes:
            if isinstance(node, KernelNode) and node.attributes is not None:
                yield node.attributes


def _bind(made: Substitutes, operand: Operand, value: Any, node: str) -> None:
    if isinstance(operand, Buffer):
        _require(not operand.allocated, operand, value, node, "nothing: the child allocates it itself")
        _require_alike(operand, value, node)
        made.arrays[operand] = value
    elif isinstance(operand, Event):
        _require(isinstance(value, Event), operand, value, node, "an event of this graph")
        made.events[operand] = value
    elif isinstance(operand, Condition):
        raise DeclarationError(
            "a condition belongs to one conditional node, so that of a child is its own",
            node=node,
            field=f"bind {operand.name!r}",
            value=repr(value),
            remedy="Leave it out of bind.",
        )
    elif isinstance(value, Expr):
        _require(value.dtype == operand.dtype, operand, value, node, f"a scalar of dtype {operand.dtype}")
        made.scalars[operand] = value
    else:
        made.scalars[operand] = convert_scalar(value, operand.dtype, field=f"bind {operand.name!r}", node=node)


def _require_alike(buffer: Buffer, value: Any, node: str) -> None:
    alike = isinstance(value, Array) and all(
        getattr(value, field) == getattr(buffer, field) for field in ("dtype", "shape", "strides")
    )
    _require(alike, buffer, value, node, f"an array of dtype {buffer.dtype}, shape {buffer.shape} and the same strides")


def _require(holds: bool, operand: Any, value: Any, node: str, what: str) -> None:
    if not holds:
        raise DeclarationError(
            f"what stands for {operand.name!r} is {what}",
            node=node,
            field=f"bind {operand.name!r}",
            value=repr(value),
            remedy="Bind an operand or a slice that agrees, or change the child.",
        )


def _renamed(made: Substitutes, operand: Operand, name: str, parent: Level) -> Any:
    root = parent.root
    if isinstance(operand, Buffer):
        copy = operand.renamed(name, root, parent.device)
        made.arrays[operand] = copy
        return copy
    if isinstance(operand, Event):
        device = parent.device if operand.device is None else operand.device
        made.events[operand] = Event(name, operand.owner, operand.timing, root, operand.location, device)
        return made.events[operand]
    kind = type(operand)
    if isinstance(operand, Param):
        made.scalars[operand] = Param(name, operand.dtype, operand.default, root, operand.location)
    else:
        made.scalars[operand] = kind(name, operand.default, root, operand.location)  # type: ignore[arg-type]
    return made.scalars[operand]


class Contents(NamedTuple):
    """What a level holds, or shall hold in a copy of it.

    Attributes
    ----------
    nodes : iterable of Node
        In the order of declaration.
    edges : iterable of tuple
        Names of source and target, and the attributes of the edge in the DAG.
    """

    nodes: Iterable[Node]
    edges: Iterable[tuple[str, str, Mapping[str, Any]]]


def copy_level(
    source: Level,
    target: Definition,
    substitutes: Substitutes,
    prefix: str,
    edited: Mapping[int, Contents] | None = None,
) -> None:
    """Copy the nodes and edges of one level into another, and those of bodies too.

    Parameters
    ----------
    source, target : Level
        The target is empty.
    substitutes : Substitutes
        What stands for operands of the source.
    prefix : str
        What is put before the names of nodes.
    edited : mapping of int to Contents, optional
        What is copied in the place of what the levels hold, by the identity of the level.
    """
    as_it_is = Contents(source.nodes, source.dag.edges.data())
    nodes, edges = as_it_is if edited is None else edited.get(id(source), as_it_is)
    for node in nodes:
        fields = substitutes.fields(node)
        on = target.device if node.on is None else node.on
        if node.bodies:
            fields["bodies"] = tuple(target._body(prefix + body.name, on) for body in node.bodies)
        made = node.replaced(name=prefix + node.name, definition=target, tags=node.tags | target.tags, on=on, **fields)
        target._put(made)
        for body, copied in zip(node.bodies, made.bodies, strict=True):
            copy_level(body, copied, substitutes, prefix, edited)
    for before, after, data in edges:
        target._dag.add_edge(prefix + before, prefix + after, **data)


def copy_graph(
    source: Definition, target: Definition, edited: Mapping[int, Contents], left_out: Iterable[str] = ()
) -> None:
    """Copy a whole graph, its operands too, into an empty one; the names stay.

    Parameters
    ----------
    source, target : Definition
        Graphs, and not bodies.
    edited : mapping of int to Contents
        As for `copy_level`.
    left_out : iterable of str
        Names of operands that nothing uses in the copy.
    """
    substitutes = Substitutes()
    missing = set(left_out)
    target.placed = source.placed
    for name, operand in source.operands.items():
        if name not in missing:
            target.operands[name] = _renamed(substitutes, operand, name, target)
    copy_level(source, target, substitutes, "", edited)
    copy_independents(source, target)
