"""Rules about memory that a graph allocates and frees: codes GD401 to GD405."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import networkx as nx

from graphdsl.check.context import Context
from graphdsl.check.report import Finding
from graphdsl.check.rules import Found, rule
from graphdsl.declare.nesting import ChildNode, ConditionalNode
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import AllocNode, FreeNode, named_operands
from graphdsl.declare.operands import Buffer


@rule("GD401", "error", "Memory is used after it is allocated", subject="graph")
def used_before_allocation(context: Context, found: Found) -> Iterator[Finding]:
    """A node that uses what a node of the graph allocates is ordered after that node.

    **Why.** Before it, the address leads nowhere, or to memory that something else uses. The driver does not check it.

    **Source.** CUDA Programming Guide, "Graph Memory Nodes"; CUDA Driver API, `cuGraphAddMemAllocNode`.

    **Remedy.** Add an edge from the alloc node, or from what comes after it.

    **Wrong**

    ```python wrong
    scratch = g.alloc("scratch", 1024, np.float32)
    clear = g.memset(scratch.array, 0)
    [scratch, clear] >> g.free(scratch)
    ```

    **Right**

    ```python right
    scratch = g.alloc("scratch", 1024, np.float32)
    scratch >> g.memset(scratch.array, 0) >> g.free(scratch)
    ```
    """
    places = _Places(context)
    for node, buffer in _uses(context):
        alloc = places.allocs.get(buffer)
        if alloc is not None and not places.ordered(alloc, node):
            yield found(
                f"what uses {buffer.name!r} is ordered after its allocation by {alloc.name!r}",
                node=node,
                nodes=(node.name, alloc.name),
                field="array",
                value=buffer.name,
                remedy=f"Add an edge: {places.edge(alloc, node)}.",
            )


@rule("GD402", "error", "Memory is used before it is freed", subject="graph")
def used_after_free(context: Context, found: Found) -> Iterator[Finding]:
    """A node that uses what a node of the graph frees is ordered before that node.

    **Why.** After it, the memory may hold something else. The driver does not check it.

    **Source.** CUDA Programming Guide, "Graph Memory Nodes"; CUDA Driver API, `cuGraphAddMemFreeNode`.

    **Remedy.** Add an edge to the free node.

    **Wrong**

    ```python wrong
    scratch = g.alloc("scratch", 1024, np.float32)
    scratch >> [g.memset(scratch.array, 0), g.free(scratch)]
    ```

    **Right**

    ```python right
    scratch = g.alloc("scratch", 1024, np.float32)
    scratch >> g.memset(scratch.array, 0) >> g.free(scratch)
    ```
    """
    places = _Places(context)
    for node, buffer in _uses(context):
        if isinstance(node, FreeNode):  # of two free nodes one is too many, in whatever order: GD403 says so
            continue
        for free in places.frees.get(buffer, ()):
            if not places.ordered(node, free):
                yield found(
                    f"what uses {buffer.name!r} is ordered before it is freed by {free.name!r}",
                    node=node,
                    nodes=(node.name, free.name),
                    field="array",
                    value=buffer.name,
                    remedy=f"Add an edge: {places.edge(node, free)}.",
                )


@rule("GD403", "error", "Memory is freed once", subject="graph")
def freed_once(context: Context, found: Found) -> Iterator[Finding]:
    """Each allocation of the graph has one free node.

    **Why.** The driver refuses a second one, and a second launch of a graph that leaves memory allocated.

    **Source.** CUDA Driver API, `cuGraphAddMemFreeNode`, `cuGraphLaunch`; measured on driver 580.

    **Remedy.** Declare one free node after all that uses the memory. For memory that stays, use `device_array`.

    **Wrong**

    ```python wrong
    scratch = g.alloc("scratch", 1024, np.float32)
    scratch >> g.memset(scratch.array, 0)
    ```

    **Right**

    ```python right
    scratch = g.alloc("scratch", 1024, np.float32)
    scratch >> g.memset(scratch.array, 0) >> g.free(scratch)
    ```
    """
    places = _Places(context)
    for buffer, alloc in places.allocs.items():
        frees = places.frees.get(buffer, [])
        if len(frees) != 1:
            yield found(
                f"what a graph allocates has one free node, and {buffer.name!r} has {len(frees)}",
                node=frees[-1] if frees else alloc,
                nodes=[alloc.name, *(free.name for free in frees)],
                field="array",
                value=buffer.name,
                remedy="Keep one of them." if frees else "Declare graph.free after all that uses it.",
            )


@rule("GD404", "error", "What allocates is freed where it is allocated", subject="graph")
def freed_elsewhere(context: Context, found: Found) -> Iterator[Finding]:
    """An alloc node and its free node stand in the same graph or child.

    **Why.** Order is checked between nodes of one level: an edge of the node that holds a child orders all of it.

    **Remedy.** Declare both in the child, or both in the graph that holds it.

    **Wrong**

    ```python wrong
    inner = gd.Graph("inner")
    scratch = inner.alloc("scratch", 1024, np.float32)
    child = g.child(inner, name="child")
    child >> g.free(child.body.node("child/alloc_scratch").array)
    ```

    **Right**

    ```python right
    inner = gd.Graph("inner")
    scratch = inner.alloc("scratch", 1024, np.float32)
    scratch >> inner.free(scratch)
    g.child(inner, name="child")
    ```
    """
    places = _Places(context)
    for buffer, alloc in places.allocs.items():
        for free in places.frees.get(buffer, ()):
            if free.definition is not alloc.definition:
                yield found(
                    f"{alloc.name!r} of {alloc.definition.title} allocates {buffer.name!r}, and a node of the same "
                    "level frees it",
                    node=free,
                    nodes=(free.name, alloc.name),
                    field="array",
                    value=buffer.name,
                    remedy=f"Declare the free node in {alloc.definition.title}.",
                )


@rule("GD405", "error", "Children allocate or decide, not both", subject="graph")
def allocating_child(context: Context, found: Found) -> Iterator[Finding]:
    """A child graph that allocates memory holds no conditional nodes.

    **Why.** The driver takes a graph that allocates into a child node only whole, and one with conditional nodes not
    at all: it returns `CUDA_ERROR_NOT_SUPPORTED`.

    **Source.** CUDA Driver API, `CUDA_CHILD_GRAPH_NODE_PARAMS`; measured on driver 580.

    **Remedy.** Allocate in the graph that holds the child, and bind the array.

    **Wrong**

    ```python wrong
    inner = gd.Graph("inner")
    scratch = inner.alloc("scratch", 1024, np.float32)
    scratch >> inner.if_(inner.condition("large", default=0)) >> inner.free(scratch)
    g.child(inner)
    ```

    **Right**

    ```python right
    inner = gd.Graph("inner")
    inner.if_(inner.condition("large", default=0))
    scratch = g.alloc("scratch", 1024, np.float32)
    scratch >> g.child(inner) >> g.free(scratch)
    ```
    """
    for node in context.of_kind(ChildNode):
        kinds = {type(inner) for inner in node.body.all_nodes}
        if ConditionalNode in kinds and kinds & {AllocNode, FreeNode}:
            yield found(
                "a child graph that allocates memory holds no conditional nodes",
                node=node,
                field="graph",
                value=node.graph,
                remedy="Allocate in the graph that holds the child, and bind the array.",
            )


def _uses(context: Context) -> Iterator[tuple[Node, Buffer]]:
    """Each node that uses memory which the graph allocates, with the memory, once."""
    for node in context.nodes if context.of_kind(AllocNode) else ():  # most graphs allocate nothing
        if isinstance(node, AllocNode):
            continue
        for buffer in dict.fromkeys(operand for _, operand in named_operands(node)):
            if isinstance(buffer, Buffer) and buffer.allocated:
                yield node, buffer


class _Places:
    """Where memory is allocated and freed, and what is ordered before what.

    Attributes
    ----------
    allocs : dict of Buffer to AllocNode
        The node that allocates each.
    frees : dict of Buffer to list of FreeNode
        The nodes that free it.
    """

    def __init__(self, context: Context) -> None:
        self.frees: dict[Buffer, list[FreeNode]] = {}
        self.allocs = {node.array: node for node in context.of_kind(AllocNode)}
        for free in context.of_kind(FreeNode):
            self.frees.setdefault(free.array, []).append(free)
        self._holders = context.holders
        self._after = cache(lambda node: frozenset(nx.descendants(node.definition.dag, node.name)))

    def ordered(self, before: Node, after: Node) -> bool:
        """True if one node, or what holds it, comes before another, or what holds that."""
        ends = self._common(before, after)
        return ends is not None and ends[1].name in self._after(ends[0])

    def edge(self, before: Node, after: Node) -> str:
        """The edge that would order two nodes, as it is written."""
        first, second = self._common(before, after) or (before, after)
        return f"{first.name} >> {second.name}"

    def _common(self, one: Node, other: Node) -> tuple[Node, Node] | None:
        """The nodes of one level that hold both; None if one holds the other."""
        chain = {id(node.definition): node for node in self._holders(one)}
        for node in self._holders(other):
            mate = chain.get(id(node.definition))
            if mate is not None:
                return None if mate is node else (mate, node)
        return None
