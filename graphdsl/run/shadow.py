"""The shadow of an exec: all that was ever set in it, and the rules that hold for what is set next.

The driver is never asked for what was set. This module must not talk to it, but for the limits of kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from graphdsl.check import Finding, check_nodes, launch_fits
from graphdsl.declare.limits import Limits
from graphdsl.declare.nodes import HostNode, KernelNode, Node
from graphdsl.errors import UpdateError
from graphdsl.run.binding import Memory
from graphdsl.run.callbacks import HostCalls
from graphdsl.run.modules import LoadedKernel
from graphdsl.run.packing import Packing

Release = Callable[[], None]

Tokens = Mapping[int, int]
"""Tokens of the calls of host nodes, by the index of the node."""


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
        limits: Limits,
        hosts: HostCalls,
        memory: Memory,
    ) -> None:
        self.nodes = list(nodes)
        self.values = values
        self.disabled: set[int] = set()
        self.packing = packing
        self._limits = limits
        self._hosts = hosts
        self._memory = memory
        self._tokens: dict[int, int] = {}
        self._tokens.update(self.bind([i for i, node in enumerate(self.nodes) if isinstance(node, HostNode)]))

    # Calls of host nodes

    def bind(self, indices: Iterable[int]) -> Tokens:
        """Register the calls of host nodes with the values as they are, and pack them; gives their tokens."""
        tokens: dict[int, int] = {}
        try:
            for index in indices:
                node = self.nodes[index]
                assert isinstance(node, HostNode), node
                tokens[index] = self._hosts.bind(node, self.values, self._memory)
        except BaseException:
            self.unbind(tokens)
            raise
        self._write_hosts(tokens)
        return tokens

    def unbind(self, tokens: Tokens) -> None:
        """Forget calls that no launch can make."""
        for token in tokens.values():
            self._hosts.release(token)

    def release_hosts(self) -> None:
        """Forget the calls that are in force: no launch can make them any more."""
        self.unbind(self._tokens)

    def restore_hosts(self, indices: Iterable[int]) -> None:
        """Pack the calls that are in force."""
        self._write_hosts({index: self._tokens[index] for index in indices})

    def replace_hosts(self, tokens: Tokens) -> list[Release]:
        """Put calls in force; gives what releases those before once no launch makes them."""
        replaced = [self._tokens[index] for index in tokens]
        self._tokens.update(tokens)
        return [lambda token=token: self._hosts.release(token) for token in replaced]  # type: ignore[misc]

    def _write_hosts(self, tokens: Tokens) -> None:
        for index, token in tokens.items():
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
        errors = check_nodes(touched, values=self.values, limits=self._limits, images=images).errors
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
