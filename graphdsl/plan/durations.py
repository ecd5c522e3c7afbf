"""How long nodes take, and how much of the device: as a profile says, or estimated.

An estimate says two times: what is likely, and what it is at most. A kernel that loops may take any time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from graphdsl.declare.definition import Definition
from graphdsl.declare.expressions import value_of
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import (
    AllocNode,
    EmptyNode,
    EventRecordNode,
    FreeNode,
    KernelNode,
    MemcpyNode,
    MemsetNode,
)
from graphdsl.declare.operands import Array
from graphdsl.declare.targets import Targets
from graphdsl.errors import DeclarationError, GraphdslError
from graphdsl.plan.costs import Costs

if TYPE_CHECKING:
    from graphdsl.compile.image import KernelImage


class Work(NamedTuple):
    """What a node takes.

    Attributes
    ----------
    duration : float
        GPU time in microseconds, without what lies between nodes.
    most : float
        What it is at most; infinite where that is not known.
    share : float
        How much of the device it keeps busy meanwhile: 1 for a grid that fills it.
    """

    duration: float
    most: float
    share: float = 0.0


NOTHING = Work(0.0, 0.0)
_INSTANT = (EmptyNode, EventRecordNode, AllocNode, FreeNode)


class Durations:
    """What the nodes of a graph take.

    Parameters
    ----------
    given : mapping of str to float
        GPU time of nodes in microseconds, by name.
    values : mapping of str to number
        Values of params by name.
    targets : Targets
        The devices that the nodes run on.
    costs : Costs
        What nodes cost.
    """

    def __init__(self, given: Mapping[str, float], values: Mapping[str, Any], targets: Targets, costs: Costs) -> None:
        self._given = given
        self._values = values
        self._targets = targets
        self._costs = costs
        self._launches: dict[Any, Work] = {}
        self._images: dict[Any, KernelImage | None] = {}

    def of(self, node: Node, inside: Work | None = None) -> Work:
        """What a node takes; ``inside`` is what the bodies of a node take that has any."""
        estimated = self._estimated(node, inside)
        given = self._given.get(node.name)
        return estimated if given is None else Work(given, given, estimated.share)

    def _estimated(self, node: Node, inside: Work | None) -> Work:
        costs = self._costs
        if isinstance(node, KernelNode):
            # Expressions and kernels are known by identity, and nodes of one loop share them.
            key = (node.kernel, node.grid, node.block, node.shared_bytes, node.device)
            found = self._launches.get(key)
            if found is None:
                found = self._launches[key] = self._launch(node)
            return found
        if isinstance(node, (MemcpyNode, MemsetNode)):
            return self._transfer(node)
        if inside is not None:
            return inside
        if isinstance(node, _INSTANT):
            return NOTHING
        return Work(costs.kernel, math.inf)

    def _launch(self, node: KernelNode) -> Work:
        """A grid runs in waves of as many blocks as the device holds."""
        from graphdsl.compile.effort import UNKNOWN
        from graphdsl.compile.occupancy import blocks_of_multiprocessor

        costs, values = self._costs, self._values
        limits = self._targets.limits_of(node.device)
        image = self._image(node, limits.compute_capability)
        try:
            blocks, threads, shared = (
                math.prod(value_of(extent, values) for extent in node.grid),
                math.prod(value_of(extent, values) for extent in node.block),
                value_of(node.shared_bytes, values),
            )
            room = limits.multiprocessors * max(blocks_of_multiprocessor(limits, threads, shared, image), 1)
        except (ArithmeticError, KeyError):
            return Work(costs.kernel, math.inf, 1.0)
        waves = max(-(-blocks // room), 1)
        effort = UNKNOWN if image is None else image.effort
        most = math.inf if effort.loops else costs.kernel + costs.instruction * effort.instructions
        return Work(waves * costs.kernel, waves * most, min(blocks / room, 1.0))

    def _image(self, node: KernelNode, capability: tuple[int, int]) -> KernelImage | None:
        """The kernel, compiled for the types of one of its nodes: those of others make no other loops."""
        from graphdsl.compile.kernels import argument_types, compile_kernel

        key = (node.kernel, capability)
        if key not in self._images:
            try:
                types = argument_types(node, capability)
                self._images[key] = compile_kernel(node.kernel, types, capability, node=node.name)
            except GraphdslError:  # which a check reports
                self._images[key] = None
        return self._images[key]

    def _transfer(self, node: MemcpyNode | MemsetNode) -> Work:
        costs = self._costs
        arrays: list[Array] = [node.destination, *([node.source] if isinstance(node, MemcpyNode) else [])]
        try:
            nbytes = value_of(node.size if isinstance(node, MemcpyNode) else node.destination.nbytes, self._values)
        except (ArithmeticError, KeyError):
            return Work(costs.kernel, math.inf, 1.0)
        near = all(array.space == "device" and array.buffer.device == node.device for array in arrays)
        moving = nbytes / (costs.device_bytes if near else costs.link_bytes)
        duration = costs.copy + moving
        return Work(duration, _COPIES_VARY * duration, moving / duration)


_COPIES_VARY = 3.0


def require_durations(definition: Definition, given: Mapping[str, float]) -> None:
    """Refuse durations of nodes that are not there, and what is no duration.

    Raises
    ------
    DeclarationError
        About the first of them.
    """
    for name, duration in given.items():
        definition.node(name)  # refuses a name that is unknown
        require_duration(duration, name, "durations")


def require_duration(duration: float, node: str, field: str) -> None:
    """Refuse what is no duration of a node.

    Raises
    ------
    DeclarationError
        If it is negative, infinite or no number.
    """
    if not 0 <= duration < math.inf:
        raise DeclarationError(
            "a duration is a number of microseconds, not negative",
            node=node,
            field=field,
            value=duration,
            remedy="Pass the GPU time of the node, as a profiler gives it.",
        )
