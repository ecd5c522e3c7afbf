"""The fields of nodes with their values, so that two states of a node can be compared and shown.

This module must not judge: `graphdsl.run.changes` says what may change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from graphdsl.check.subjects import label
from graphdsl.declare.condition import Condition
from graphdsl.declare.event import Event
from graphdsl.declare.expressions import value_of
from graphdsl.declare.node import Node
from graphdsl.declare.operands import Array
from graphdsl.errors import DriverError, text_of

_RUN = frozenset({"kernel", "function"})
"""Slots of nodes that say what runs."""


class Located(NamedTuple):
    """An array with the extents and the address that it has with some values of params; or an event.

    Attributes
    ----------
    text : str
        As it was written, with dtype and shape.
    address : int
        Of its first element; the handle of an event. 0 if it is not known yet.
    """

    text: str
    address: int

    def __str__(self) -> str:
        return f"{self.text} at {self.address:#x}" if self.address else self.text


class FieldChange(NamedTuple):
    """A field of a node that changes.

    Attributes
    ----------
    field : str
        What messages call it.
    old, new : object
        Its value before and after: numbers, tuples of them, arrays as `Located`, functions as they are.
    """

    field: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.field}: {text_of(self.old)} -> {text_of(self.new)}"


@dataclass(frozen=True)
class NodeChange:
    """A node whose fields change.

    Attributes
    ----------
    node, kind : str
        Its name, and what kind of node it is.
    enabled : bool
        False if it is disabled, and keeps what it is sent for later.
    fields : tuple of FieldChange
        What changes; empty if a zero is sent again, which may be another zero.
    """

    node: str
    kind: str
    enabled: bool
    fields: tuple[FieldChange, ...]

    def __str__(self) -> str:
        title = f"{self.node} ({self.kind}{'' if self.enabled else ', disabled'})"
        return "\n".join([title, *(f"  {field}" for field in self.fields)])


def field_values(node: Node, values: Mapping[str, Any]) -> dict[str, Any]:
    """The value of each field of a node; ``values`` has those of params and the addresses of buffers, by name."""
    found = {name: _value(operand, values) for name, operand in node.fields()}
    for name in _RUN & set(type(node).__slots__):
        found[name] = getattr(node, name)
    return found


def field_changes(before: Node, after: Node, old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[FieldChange, ...]:
    """The fields in which two states of a node differ: one node with two sets of values, or two nodes."""
    was, is_now = field_values(before, old), field_values(after, new)
    names = dict.fromkeys([*was, *is_now])
    return tuple(
        FieldChange(name, was.get(name), is_now.get(name)) for name in names if was.get(name) != is_now.get(name)
    )


def blame_changes(problem: DriverError, changes: tuple[FieldChange, ...]) -> None:
    """Say of a refused update which fields of the node it was to change."""
    if changes and problem.node is not None:
        problem.about(rule=f"{problem.rule}. It was to change {'; '.join(map(str, changes))}", changes=changes)


def _value(operand: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(operand, Array):
        extents = ", ".join(str(value_of(extent, values)) for extent in operand.shape)
        address = values[operand.buffer.name] + value_of(operand.offset, values)
        return Located(f"{label(operand)}: {operand.dtype}[{extents}]", address)
    if isinstance(operand, Event):
        return Located(operand.name, values[operand.name])
    if isinstance(operand, Condition):
        return operand.name
    if type(operand) is tuple:
        return tuple(_value(item, values) for item in operand)
    return value_of(operand, values)
