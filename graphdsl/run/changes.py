"""What may change in a node of an exec, and what may not: one row for each kind of node.

The rules are the driver's (`driver-rules.md` C-10, and `docs/driver-behaviour.md` where it was measured), decided here
before the driver is asked. A new kind of node is a new row of `CHANGES`. This module must not change anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from graphdsl.declare.attributes import ATTRIBUTES
from graphdsl.declare.batch import checked_operations
from graphdsl.declare.condition import Condition
from graphdsl.declare.event import require_event
from graphdsl.declare.given import arguments, checked_function, dim3, extent, kernel_arguments
from graphdsl.declare.nesting import ChildNode, ConditionalNode
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import (
    AllocNode,
    BatchMemOpNode,
    CapturedNode,
    EmptyNode,
    EventRecordNode,
    EventWaitNode,
    FreeNode,
    HostNode,
    KernelNode,
    MemcpyNode,
    MemsetNode,
    NativeHostNode,
)
from graphdsl.declare.operands import require_array
from graphdsl.declare.store import unknown_name
from graphdsl.errors import DeclarationError, UpdateError
from graphdsl.run.refusal import refused
from graphdsl.run.rows import kept_of_copy, kept_of_memset

Convert = Callable[[Any, str, Any], Any]
"""Takes a node, the name of a field and what the user gave for it; gives what the field holds."""

Values = Mapping[str, Any]
"""Values of params and addresses of buffers, by name."""


@dataclass(frozen=True)
class Kept:
    """What no update of a node may change, though it follows from fields that it may.

    Attributes
    ----------
    field : str
        The field that messages name.
    of : callable
        Takes a node and the values of params; gives what must stay the same.
    rule : str
        The rule, with ``{}`` where what was there before stands.
    remedy : str
        What to do instead.
    """

    field: str
    of: Callable[[Any, Values], Any]
    rule: str
    remedy: str


@dataclass(frozen=True)
class Changes:
    """What may change in nodes of a kind.

    Attributes
    ----------
    call : str
        The driver call that changes one; empty if there is none.
    fields : dict of str to callable
        The fields that may change, and how what the user gives is converted.
    fixed : dict of str to str
        Fields that may not, and what to do instead.
    kept : tuple of Kept
        What must stay the same though fields change.
    can_disable : bool
        True if an exec can skip nodes of the kind.
    no_whole_update : str
        Why no exec with such a node is updated from another graph; empty if one is.
    """

    call: str = ""
    fields: Mapping[str, Convert] = field(default_factory=dict)
    fixed: Mapping[str, str] = field(default_factory=dict)
    kept: tuple[Kept, ...] = ()
    can_disable: bool = False
    no_whole_update: str = ""


def _as_given(node: Node, name: str, value: Any) -> Any:
    return value


def _dims(node: Node, name: str, value: Any) -> Any:
    return dim3(value, node.name, name)


def _extent(node: Node, name: str, value: Any) -> Any:
    return extent(value, node.name, name)


def _extent_or_none(node: Node, name: str, value: Any) -> Any:
    return None if value is None else extent(value, node.name, name)


def _array(node: Node, name: str, value: Any) -> Any:
    require_array(value, node.name, name)
    return value


def _function(node: Node, name: str, value: Any) -> Any:
    return checked_function(value, node.name, node.kind, name)


def _function_or_none(node: Node, name: str, value: Any) -> Any:
    return None if value is None else _function(node, name, value)


def _operations(node: Node, name: str, value: Any) -> Any:
    return checked_operations(value, node.name)


def _event(node: Node, name: str, value: Any) -> Any:
    require_event(value, node.name)
    return value


def _kernel_args(node: KernelNode, name: str, value: Any) -> Any:
    """All arguments in order, or some by the names of the kernel's parameters, or by their numbers."""
    args = kernel_arguments(_merged(node, name, value), node.name, node.kernel)
    _require_conditions(node, args)
    return args


def _merged(node: KernelNode, name: str, value: Any) -> Any:
    """What `_kernel_args` is given, as all arguments in order."""
    if not isinstance(value, Mapping):
        return value
    parameters = node.kernel.parameters
    merged = list(node.args)
    for parameter, operand in value.items():
        if type(parameter) is int and 0 <= parameter < len(merged):
            merged[parameter] = operand
            continue
        if parameter not in parameters:
            known = f"parameter of kernel {node.kernel.name}"
            raise unknown_name(parameter, parameters, known, UpdateError, node=node.name, field=name)
        merged[parameters.index(parameter)] = operand
    return tuple(merged)


def _require_conditions(node: KernelNode, args: tuple[Any, ...]) -> None:
    """A number in the place of a condition would be taken for a handle, and what it points to be overwritten."""
    for index, (before, after) in enumerate(zip(node.args, args)):
        if isinstance(before, Condition) and not isinstance(after, Condition):
            raise UpdateError(
                "it is the condition that the kernel sets, and nothing else has its handle",
                node=node.name,
                field=node.argument_name(index),
                value=repr(after),
                remedy=f"Pass a condition of the graph, such as {before.name!r}, or leave the argument as it is.",
                location=node.location,
            )


def _passed(node: HostNode | CapturedNode, name: str, value: Any) -> Any:
    return arguments(value, node.name)


def _side(name: str) -> Kept:
    """A memcpy node keeps its direction: the driver fixes on which side of it device memory is."""
    return Kept(
        name,
        lambda node, values: "device" if getattr(node, name).space == "device" else "host",
        f"an update keeps the {name} of a copy in {{}} memory",
        "Declare a node for the other direction, and disable the one that is not wanted.",
    )


def _rows_of_copy(side: str) -> Kept:
    """The driver updates copies of one dimension, into others of one."""
    return Kept(
        side,
        lambda node, values: kept_of_copy(node, side, values),
        "an update neither changes nor makes a copy of several rows; this one was {}",
        "Instantiate the graph again with these values, or copy one run of bytes: whole rows that follow one another.",
    )


_ROWS_OF_MEMSET = Kept(
    "destination",
    kept_of_memset,
    "an update changes neither the number of rows of a memset, nor the rows themselves if there are several; this one "
    "was {}",
    "Instantiate the graph again with these values; another destination of the same rows is fine.",
)

_NEW_EXEC = "Declare the node so, and instantiate the graph again."
_NO_ATTRIBUTES = f"The driver's update of a node carries no attributes. {_NEW_EXEC}"

_WHOLE = "Declare the node so, and update the exec from that graph with exe.update_from."

_ALLOCATED = "what a graph allocates has its address from the graph that the node was added to"

CHANGES: dict[type[Node], Changes] = {
    KernelNode: Changes(
        call="cuGraphExecKernelNodeSetParams",
        fields={"grid": _dims, "block": _dims, "shared_bytes": _extent, "args": _kernel_args},
        fixed={"kernel": _WHOLE, "signature": _WHOLE, **dict.fromkeys(ATTRIBUTES, _NO_ATTRIBUTES)},
        can_disable=True,
    ),
    MemcpyNode: Changes(
        call="cuGraphExecMemcpyNodeSetParams",
        fields={"destination": _array, "source": _array, "nbytes": _extent_or_none},
        kept=(_side("destination"), _side("source"), _rows_of_copy("destination"), _rows_of_copy("source")),
        can_disable=True,
    ),
    MemsetNode: Changes(
        call="cuGraphExecMemsetNodeSetParams",
        fields={"destination": _array, "value": _as_given},
        kept=(_ROWS_OF_MEMSET,),
        can_disable=True,
    ),
    HostNode: Changes(
        call="cuGraphExecHostNodeSetParams",
        fields={"function": _function, "args": _passed},
    ),
    CapturedNode: Changes(
        call="cuGraphExecChildGraphNodeSetParams",
        fields={"function": _function, "args": _passed, "emulate": _function_or_none},
    ),
    NativeHostNode: Changes(fixed={"function": _NEW_EXEC}),
    EmptyNode: Changes(),
    ChildNode: Changes(fixed={"graph": f"Update the nodes inside by their names. {_NEW_EXEC}"}),
    EventRecordNode: Changes(call="cuGraphExecNodeSetParams", fields={"event": _event}),
    EventWaitNode: Changes(call="cuGraphExecNodeSetParams", fields={"event": _event}),
    BatchMemOpNode: Changes(
        call="cuGraphExecNodeSetParams",
        fields={"operations": _operations},
        kept=(
            Kept(
                "operations",
                lambda node, values: [each.kind for each in node.operations],
                "an update keeps number, order, kinds and widths of the operations: {}",
                "Declare another node, and instantiate the graph again.",
            ),
        ),
    ),
    AllocNode: Changes(fixed={"array": _NEW_EXEC}, no_whole_update=_ALLOCATED),
    FreeNode: Changes(fixed={"array": _NEW_EXEC}, no_whole_update=_ALLOCATED),
    ConditionalNode: Changes(
        fixed={"condition": _NEW_EXEC},
        no_whole_update="kernels are given the handle of a condition, and that of another graph is not the exec's",
    ),
}
"""What may change in each kind of node."""


def changed(node: Node, fields: Mapping[str, Any]) -> Node:
    """The node with other fields, as the user gave them. Whether they make sense is left to the checks.

    Raises
    ------
    UpdateError
        If the node has no such field, or one that may not change, or was given what no such field is.
    """
    row = CHANGES[type(node)]
    for name, value in fields.items():
        if name not in row.fields:
            raise _not_changeable(node, name, value)
    try:
        return node.replaced(**{name: row.fields[name](node, name, value) for name, value in fields.items()})
    except DeclarationError as problem:
        raise refused(problem, node) from None


def require_kept(before: Node, after: Node, old: Values, new: Values) -> None:
    """Refuse a change of what must stay: a node with the values before, and what it is to be with those after.

    Both states have passed the checks.
    """
    for kept in CHANGES[type(before)].kept:
        was = kept.of(before, old)
        if kept.of(after, new) != was:
            raise UpdateError(
                kept.rule.format(was),
                node=before.name,
                field=kept.field,
                value=repr(getattr(after, kept.field)),
                remedy=kept.remedy,
                location=before.location,
            )


def can_disable(node: Node) -> bool:
    """True if an exec can skip the node."""
    return CHANGES[type(node)].can_disable


def require_can_disable(node: Node) -> None:
    """Refuse to disable what an exec cannot skip."""
    if can_disable(node):
        return
    kinds = [kind.kind for kind, row in CHANGES.items() if row.can_disable]
    raise UpdateError(
        f"only {', '.join(kinds[:-1])} and {kinds[-1]} nodes can be disabled, and this one is of kind {node.kind}",
        node=node.name,
        field="enabled",
        value=False,
        remedy=f"Name the nodes inside, such as '{node.name}/*'."
        if node.bodies
        else "Leave it in, or make two graphs.",
        location=node.location,
    )


def _not_changeable(node: Node, name: str, value: Any) -> UpdateError:
    row = CHANGES[type(node)]
    known = f"It has {', '.join(row.fields)}." if row.fields else "It has none."
    if name in row.fixed:
        return UpdateError(
            f"no update changes the {name} of a {node.kind} node",
            node=node.name,
            field=name,
            value=repr(value),
            remedy=row.fixed[name],
            location=node.location,
        )
    return UpdateError(
        f"a node of kind {node.kind} has no field of this name that can be updated",
        node=node.name,
        field=name,
        remedy=known,
        location=node.location,
    )
