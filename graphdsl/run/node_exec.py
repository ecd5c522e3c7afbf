"""One node of an exec, in the user's hands.

This module turns what the user asks for into another node with other fields; `graphdsl.run.update` sends it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from graphdsl.declare.definition import unknown_name
from graphdsl.declare.given import arguments, checked_function, dim3, extent, require_array
from graphdsl.declare.nodes import EmptyNode, HostNode, KernelNode, MemcpyNode, MemsetNode, Node
from graphdsl.declare.operands import Array
from graphdsl.errors import DeclarationError, UpdateError
from graphdsl.run.refusal import refused

if TYPE_CHECKING:
    from graphdsl.run.graph_exec import GraphExec

_FIELDS: dict[type[Node], tuple[str, ...]] = {
    KernelNode: ("grid", "block", "shared_bytes", "args"),
    MemcpyNode: ("destination", "source", "nbytes"),
    MemsetNode: ("destination", "value"),
    HostNode: ("function", "args"),
    EmptyNode: (),
}


class NodeExec:
    """One node of an exec; given by `GraphExec.node`.

    Attributes
    ----------
    name : str
        Name of the node.
    """

    def __init__(self, graph_exec: GraphExec, index: int) -> None:
        self._exec = graph_exec
        self._number = index

    @property
    def node(self) -> Node:
        """The node as it is set now."""
        return self._exec._updater.nodes[self._number]

    @property
    def name(self) -> str:
        """Name of the node."""
        return self.node.name

    @property
    def enabled(self) -> bool:
        """True unless the node was disabled."""
        return self._exec._updater.enabled[self._number]

    def enable(self) -> None:
        """Let the node run again in the launches that follow."""
        self._set_enabled(True)

    def disable(self) -> None:
        """Skip the node in the launches that follow; its edges keep ordering the others.

        Kernel, memcpy and memset nodes only.
        """
        self._set_enabled(False)

    def _set_enabled(self, enabled: bool) -> None:
        self._exec._require_usable()
        self._exec._updater.set_enabled(self._number, enabled)

    def update(self, **fields: Any) -> None:
        """Set fields of this node for the launches that follow; all of them, or none.

        Parameters
        ----------
        **fields
            For a kernel node ``grid``, ``block``, ``shared_bytes`` and ``args``; for a memcpy node ``destination``,
            ``source`` and ``nbytes``; for a memset node ``destination`` and ``value``; for a host node ``function``
            and ``args``. Values are what the declaring method of `Graph` takes. ``args`` of a kernel may be a
            dict from parameter names to operands, which leaves the others as they are. A field that was an
            expression and is set to a number no longer follows its params.

        Raises
        ------
        UpdateError
            If the node has no such field, or the value is not allowed. Nothing has changed.
        """
        if not fields:
            return
        node = self.node
        args = fields.get("args")
        by_name = len(fields) == 1 and type(args) is dict and isinstance(node, KernelNode)
        if by_name and self._exec._update_numbers(self._number, fields["args"]):
            return
        for name in fields:
            if name not in _FIELDS[type(node)]:
                raise _no_such_field(node, name)
        try:
            made = node.replaced(**{name: self._converted(node, name, value) for name, value in fields.items()})
        except DeclarationError as problem:
            raise refused(problem, node) from None
        self._exec._update_node(self._number, made)

    def _converted(self, node: Node, name: str, value: Any) -> Any:
        if name in ("grid", "block"):
            return dim3(value, node.name, name)
        if name == "nbytes" and value is None:
            return None
        if name in ("shared_bytes", "nbytes"):
            return extent(value, node.name, name)
        if name in ("destination", "source"):
            require_array(value, node.name, name)
            _require_same_side(node, name, value)
        if name == "function":
            return checked_function(value, node.name)
        return _merged(node, value) if name == "args" else value

    def __repr__(self) -> str:
        return f"<{self.node.kind} node {self.name!r} of {self._exec!r}>"


def _merged(node: Node, args: Any) -> tuple[Any, ...]:
    if not isinstance(args, Mapping):
        return arguments(args, node.name)
    assert isinstance(node, (KernelNode, HostNode)), node
    if isinstance(node, HostNode):
        raise UpdateError(
            "the arguments of a host node are given as a tuple",
            node=node.name,
            field="args",
            value=dict(args),
            remedy="Pass all of them in order.",
        )
    parameters = node.kernel.parameters
    merged = list(node.args)
    for name, operand in args.items():
        if name not in parameters:
            problem = unknown_name(name, parameters, f"parameter of kernel {node.kernel.name}", UpdateError)
            problem.node = node.name
            raise problem
        merged[parameters.index(name)] = operand
    return tuple(merged)


def _require_same_side(node: Node, name: str, array: Array) -> None:
    """A memcpy node keeps its direction: the driver fixes on which side of it device memory is (driver-rules C-10)."""
    before = getattr(node, name)
    if isinstance(node, MemcpyNode) and (array.space == "device") != (before.space == "device"):
        raise UpdateError(
            f"an update keeps the {name} of a copy in {'device' if before.space == 'device' else 'host'} memory",
            node=node.name,
            field=name,
            value=repr(array),
            remedy="Declare a node for the other direction, and disable the one that is not wanted.",
            location=node.location,
        )


def _no_such_field(node: Node, name: str) -> UpdateError:
    fields = _FIELDS[type(node)]
    known = f"It has {', '.join(fields)}." if fields else "It has none."
    return UpdateError(
        f"a node of kind {node.kind} has no field of this name that can be updated",
        node=node.name,
        field=name,
        remedy=known,
        location=node.location,
    )
