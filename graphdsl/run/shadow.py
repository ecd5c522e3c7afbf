"""The shadow of an exec: all that was ever set in it, and the rules that hold for what is set next.

The driver is never asked for what was set. This module must not talk to it, but for the limits of kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from graphdsl.check import Finding, check_nodes, launch_fits
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import CapturedNode, HostNode, KernelNode
from graphdsl.declare.targets import Targets
from graphdsl.errors import UpdateError
from graphdsl.run.binding import Memory
from graphdsl.run.callbacks import HostCalls
from graphdsl.run.captured import Captures
from graphdsl.run.modules import LoadedKernel
from graphdsl.run.packing import Packing

Release = Callable[[], None]

Tokens = Mapping[int, int]
"""What bound nodes are packed with, by the index of the node: the token of a call, or the handle of a graph."""

BOUND = (HostNode, CapturedNode)
"""Nodes whose arguments Python takes: they are bound to memory and values as a whole, by a call or by a recording."""


class Allowance(NamedTuple):
    """Dynamic shared memory that a kernel must be allowed before a node of it is set."""

    kernel: LoadedKernel
    nbytes: int

    def grant(self) -> None:
        """Tell the driver."""
        self.kernel.allow_shared_bytes(self.nbytes)


class Shadow:
    """What is set in an exec.

    Attributes
    ----------
    nodes : list of Node
        The nodes as they are set now.
    values : dict of str to number
        The value of each param and the address of each buffer, by name.
    disabled : set of int
        Indices of the nodes that were disabled.
    packing : Packing
        The nodes as the driver is given them.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        values: dict[str, Any],
        packing: Packing,
        targets: Targets,
        hosts: HostCalls,
        captures: Captures,
        memory: Memory,
    ) -> None:
        self.nodes = list(nodes)
        self.values = values
        self.disabled: set[int] = set()
        self.packing = packing
        self._targets = targets
        self._hosts = hosts
        self._captures = captures
        self._memory = memory
        self._tokens: dict[int, int] = {}

    # Calls of host nodes, and recordings of captured ones

    def bind(self, indices: Iterable[int]) -> Tokens:
        """Bind nodes to the values as they are, and pack them; gives their tokens."""
        tokens: dict[int, int] = {}
        try:
            for index in indices:
                tokens[index] = self._binder(index).bind(self.nodes[index], self.values, self._memory)
        except BaseException:
            self.unbind(tokens)
            raise
        self._write_bound(tokens)
        return tokens

    def bind_first(self, index: int) -> None:
        """Bind a node for the first time: there is nothing to put back."""
        self._tokens.update(self.bind([index]))

    def unbind(self, tokens: Tokens) -> None:
        """Forget what no launch can use."""
        for index, token in tokens.items():
            self._binder(index).release(token)

    def release_bound(self) -> None:
        """Forget what is in force: no launch can use it any more."""
        self.unbind(self._tokens)

    def restore_bound(self, indices: Iterable[int]) -> None:
        """Pack what is in force."""
        self._write_bound({index: self._tokens[index] for index in indices})

    def replace_bound(self, tokens: Tokens) -> list[Release]:
        """Put what nodes are bound to in force; gives what releases that before once no launch uses it."""
        replaced: list[Release] = [partial(self._binder(index).release, self._tokens[index]) for index in tokens]
        self._tokens.update(tokens)
        return replaced

    def note_added(self, index: int) -> None:
        """Note that a captured node is in the graph: what it took over is destroyed with that."""
        self._captures.note_added(self._tokens[index])

    def _binder(self, index: int) -> Any:
        return self._captures if isinstance(self.nodes[index], CapturedNode) else self._hosts

    def _write_bound(self, tokens: Tokens) -> None:
        for index, token in tokens.items():
            if isinstance(self.nodes[index], CapturedNode):
                self.packing.write_child(index, token, self._captures.ownership(token))
            else:
                self.packing.write_host(index, token)

    # Rules

    def require_movable(self, name: str, address: int) -> None:
        """Refuse other memory for a buffer below an access policy: the driver carries attributes with no update."""
        if address == self.values[name]:
            return
        for index in self.packing.attributes:
            node = self.nodes[index]
            window = node.window if isinstance(node, KernelNode) else None
            if window is not None and window.buffer.name == name:
                raise UpdateError(
                    "the node has an access_policy over this memory, which the driver moves with no update",
                    node=node.name,
                    field=name,
                    value=f"memory at {address:#x}",
                    remedy="Copy into the memory that it has, or instantiate the graph again.",
                    location=node.location,
                )

    def require_valid(self, indices: Iterable[int]) -> None:
        """Refuse what a check would: the same rules, on the nodes touched, with the values as they would be."""
        indices = list(indices)
        touched = [self.nodes[index] for index in indices]
        images = {self.nodes[index].name: self.packing.images[index] for index in indices}
        errors = check_nodes(touched, values=self.values, targets=self._targets, images=images).errors
        if errors:
            raise _refused(errors)

    def require_launch(self, index: int) -> Allowance | None:
        """Hold a kernel node, as it is packed, to the rules about launches; gives what it must be allowed yet."""
        kernel, node = self.packing.kernels[index], self.nodes[index]
        assert isinstance(node, KernelNode), index
        assert kernel is not None, index
        dims = self.packing.dims(index)
        if not launch_fits(dims, kernel.device.limits, kernel.image, node.attributes):
            self.require_valid([index])
        return Allowance(kernel, dims[-1]) if dims[-1] > kernel.allowed_shared_bytes else None


def _refused(errors: Sequence[Finding]) -> UpdateError:
    first, *rest = errors
    others = "".join(f" Also: {finding.message}" for finding in rest[:9])
    return UpdateError(
        first.rule,
        node=first.node,
        field=first.field,
        value=first.value,
        remedy=f"{first.remedy or ''}{others}".strip() or None,
        location=first.location,
    )
