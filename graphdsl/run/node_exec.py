"""One node of an exec, in the user's hands.

What may change is said by `graphdsl.run.changes`; `graphdsl.run.update` sends it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphdsl.declare.node import Node
from graphdsl.declare.nodes import KernelNode
from graphdsl.declare.store import unknown_name
from graphdsl.errors import UpdateError
from graphdsl.run.changes import changed

if TYPE_CHECKING:
    from graphdsl.run.exec_updates import ExecUpdates


class NodeExec:
    """One node of an exec; given by `GraphExec.node`.

    Attributes
    ----------
    name : str
        Name of the node.
    """

    def __init__(self, graph_exec: ExecUpdates, name: str, index: int) -> None:
        self._exec = graph_exec
        self._name = name
        self._index = graph_exec._index
        self._number = index

    def _at(self) -> int:
        """Where the node is in the exec, which may have been instantiated anew."""
        known = self._exec._index
        if known is not self._index:
            if self._name not in known:
                raise unknown_name(self._name, known, "node", UpdateError)
            self._index, self._number = known, known[self._name]
        return self._number

    @property
    def node(self) -> Node:
        """The node as it is set now."""
        return self._exec._shadow.nodes[self._at()]

    @property
    def name(self) -> str:
        """Name of the node."""
        return self._name

    @property
    def enabled(self) -> bool:
        """True unless the node was disabled."""
        return self._at() not in self._exec._shadow.disabled

    def enable(self) -> None:
        """Let the node run again in the launches that follow."""
        self._exec._switch_one(self._at(), True)

    def disable(self) -> None:
        """Skip the node in the launches that follow; its edges keep ordering the others.

        Kernel, memcpy and memset nodes only.
        """
        self._exec._switch_one(self._at(), False)

    def update(self, **fields: Any) -> None:
        """Set fields of this node for the launches that follow; all of them, or none.

        Parameters
        ----------
        **fields
            For a kernel node ``grid``, ``block``, ``shared_bytes`` and ``args``; for a memcpy node ``destination``,
            ``source`` and ``nbytes``; for a memset node ``destination`` and ``value``; for a host node ``function``
            and ``args``. Values are what the declaring method of `Graph` takes. ``args`` of a kernel may be a
            dict from parameter names, or numbers, to operands, which leaves the others as they are. A field that was an
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
        self._exec._update_node(self._number, changed(node, fields))

    def __repr__(self) -> str:
        return f"<{self.node.kind} node {self.name!r} of {self._exec!r}>"
