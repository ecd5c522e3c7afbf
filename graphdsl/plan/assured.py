"""Which nodes surely end, whatever runs beside them or waits for them: behind those alone a plan may put others.

A node that waits for something outside of the order of the graph, such as an event or a word of memory, may wait for
what an added edge would keep from running; and so may all nodes behind it. This module must not plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphdsl.declare.imported import ImportedKernel
from graphdsl.declare.nesting import ChildNode, ConditionalNode
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
from graphdsl.declare.touches import arrays_in
from graphdsl.plan.levels import Level

Number = Callable[[int | None], int]
"""Gives the number of a device, where None stands for that which the graph is instantiated on."""

_END = (MemcpyNode, MemsetNode, EmptyNode, EventRecordNode, AllocNode, FreeNode)


def assured(nodes: Sequence[Node], levels: Sequence[Level], number: Number) -> list[bool]:
    """For each node of a plan, whether it and all nodes before it on its level surely end.

    Parameters
    ----------
    nodes, levels : sequence of Node, sequence of Level
        Of the plan.
    number : callable
        Gives the number of a device.

    Examples
    --------
    >>> from graphdsl.declare.definition import Definition
    >>> from graphdsl.plan.levels import levels_of
    >>> graph = Definition()
    >>> _ = graph.host(print, name="a") >> graph.empty(name="b"), graph.empty(name="c")
    >>> assured(*levels_of(graph), lambda device: device or 0)
    [False, False, True]
    """
    found = [False] * len(nodes)
    waits: set[int] = set()  # nodes with bodies of which something may wait
    for level in reversed(levels):
        for index in range(level.start, level.stop):
            found[index] = surely_ends(nodes[index], number, index not in waits)
        for source, target in level.edges.tolist():
            if not found[source]:
                found[target] = False
        if not all(found[level.start : level.stop]):
            waits.add(level.owner)
    return found


def surely_ends(node: Node, number: Number, bodies_end: bool = True) -> bool:
    """Whether a node ends once it has begun, whatever else runs or does not run.

    Host functions, recorded work of libraries, and waits for events and for words of memory may wait for anything; a
    while loop may, too. A kernel cannot rely on another one to run at the same time, but one that shares memory with
    the host or with another device may wait for those.

    Parameters
    ----------
    node : Node
        What is asked about.
    number : callable
        Gives the number of a device.
    bodies_end : bool
        Whether all nodes of its bodies surely end.
    """
    if isinstance(node, KernelNode):
        return not isinstance(node.kernel, ImportedKernel) and not _shares_memory(node, number)
    if isinstance(node, ChildNode) or (isinstance(node, ConditionalNode) and node.form != "while"):
        return bodies_end
    return isinstance(node, _END)


def _shares_memory(node: KernelNode, number: Number) -> bool:
    here = number(node.device)
    args = node.args
    arrays = [array for _, array in arrays_in(args)] if any(isinstance(arg, tuple) for arg in args) else args
    buffers = [array.buffer for array in arrays if isinstance(array, Array)]
    return any(buffer.space != "device" or number(buffer.device) != here for buffer in buffers)
