"""Dead-node elimination: what no named output follows from is left out of a graph.

A node lives if it does something beside writing memory, or writes memory that a living node reads, or that is an
output. Order is not asked: what one launch writes, the next may read. This module must not read kernels.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import networkx as nx

from graphdsl.compile.accesses import accesses, written_by
from graphdsl.declare.condition import Condition
from graphdsl.declare.definition import Definition
from graphdsl.declare.embed import Contents
from graphdsl.declare.imported import has_imported
from graphdsl.declare.interop import foreign_array
from graphdsl.declare.nesting import ChildNode, ConditionalNode
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import EmptyNode, KernelNode, MemcpyNode, MemsetNode, named_operands
from graphdsl.declare.operands import Buffer
from graphdsl.declare.sources import SourceKernel
from graphdsl.declare.store import Level, unknown_name
from graphdsl.errors import DeclarationError
from graphdsl.passes.changes import Change, Changes, Named, named
from graphdsl.passes.rewrite import GraphType, checked_graph, rewritten


def eliminate_dead(graph: GraphType, outputs: Iterable[str]) -> tuple[GraphType, Changes]:
    """Drop the nodes that no output follows from, and the operands that nothing uses then.

    An output follows from the nodes that write it, from those that write what these read, and so on, whatever their
    order, because a launch may read what the one before wrote. What kernels read and write is told by their code, by
    ``reads=`` and ``writes=``, or unknown, which is both. External memory that overlaps when the pass runs counts as
    one.

    Some nodes are kept whatever they write: host functions and captured work, what works on events, memory operations,
    nodes that allocate and free, kernels that are not Python unless both ``reads=`` and ``writes=`` say what they do,
    and kernels that link other code. All other memory than the outputs, external or on the host, counts as not wanted.
    What is left is ordered as it was: an edge, or an empty node, stands where a dropped node ordered others.

    Parameters
    ----------
    graph : Graph
        Stays as it is.
    outputs : iterable of str
        Names of the arrays that are wanted; a single one may stand by itself.

    Returns
    -------
    graph : Graph
        The one with what is needed.
    changes : Changes
        Which nodes and operands were dropped, and why.

    Raises
    ------
    DeclarationError
        If an output is no array of the graph, or none is given; if the graph has a cycle, or edges to other graphs.

    Examples
    --------
    >>> import numpy as np
    >>> import graphdsl as gd
    >>> g = gd.Graph("demo")
    >>> x, y, log = (g.device_array(name, 1000, np.float32) for name in ("x", "y", "log"))
    >>> clear = g.memset(x, 0)
    >>> g.edge(clear, [g.memcpy(y, x), g.memcpy(log, x)])
    >>> smaller, changes = gd.passes.eliminate_dead(g, outputs=["y"])
    >>> list(smaller.dag.edges), list(smaller.operands), changes.of("node dropped")
    ([('set_x', 'x_to_y')], ['x', 'y'], [('x_to_log',)])
    """
    checked_graph(graph)
    wanted = _checked_outputs(graph, outputs)
    living = _living(graph, wanted)
    edited: dict[int, Contents] = {}
    changes: list[Change] = []
    kept: list[Node] = []
    for level in graph.levels:
        left = _Left(level, living)
        edited[id(level)] = left.contents()
        changes += left.changes(wanted)
        kept += edited[id(level)].nodes
    used = {operand for node in kept for _, operand in named_operands(node)} | set(wanted.values())
    unused = [operand for operand in graph.operands.values() if operand not in used]
    changes += [
        Change("operand dropped", (Named(each.name, each.location),), "nothing uses it any more") for each in unused
    ]
    return rewritten(graph, edited, [operand.name for operand in unused]), Changes(changes)


def _checked_outputs(graph: Definition, outputs: Any) -> dict[str, Buffer]:
    names = [outputs] if isinstance(outputs, str) else list(outputs)
    if not names:
        raise DeclarationError(
            "what is wanted of the graph is named, or nothing would be left",
            field="outputs",
            value=names,
            remedy="Pass the names of the arrays that hold results.",
        )
    for name in names:
        if name not in graph.operands:
            raise unknown_name(name, graph.operands, f"operand of graph {graph.name!r}", field="outputs")
        if not isinstance(graph.operands[name], Buffer):
            raise DeclarationError(
                "an output is an array of the graph",
                field="outputs",
                value=f"{name!r}, a {type(graph.operands[name]).__name__.lower()}",
                remedy="Pass the names of the arrays that hold results.",
            )
    return {name: graph.operands[name] for name in names}  # type: ignore[misc]


def _living(graph: Definition, outputs: dict[str, Buffer]) -> set[str]:
    """Names of the nodes that an output follows from, but for empty nodes: backwards from the outputs."""
    nodes = graph.all_nodes
    memory = _memories(graph)
    owners = {id(body): node for node in nodes for body in node.bodies}
    reads: dict[str, set[Any]] = {node.name: set() for node in nodes}
    writers: dict[Any, list[Node]] = {}
    users: dict[Condition, list[Node]] = {}
    for node in nodes:
        for each in accesses(node):
            place = memory.get(each.array.buffer, each.array.buffer)
            if each.reads:
                reads[node.name].add(place)
            if each.writes:
                writers.setdefault(place, []).append(node)
        for condition in _conditions(node):
            users.setdefault(condition, []).append(node)
    wanted: Iterable[Buffer] = outputs.values()
    if has_imported(nodes, graph.operands.values()):  # such nodes have addresses that no operand tells
        adopted = (each for each in graph.operands.values() if isinstance(each, Buffer) and each.external)
        wanted = (*wanted, *adopted)
    needed = {memory.get(buffer, buffer) for buffer in wanted}
    pending = [node for node in nodes if _acts(node)]
    pending += (node for place in needed for node in writers.get(place, ()))
    living: set[str] = set()
    while pending:
        node = pending.pop()
        if node.name in living:
            continue
        living.add(node.name)
        for place in reads[node.name] - needed:
            needed.add(place)
            pending += writers.get(place, ())
        for condition in _conditions(node):  # who sets it, and the node that it decides
            pending += users[condition]
        if id(node.definition) in owners:
            pending.append(owners[id(node.definition)])
    return living


def _conditions(node: Node) -> set[Condition]:
    return {operand for _, operand in named_operands(node) if isinstance(operand, Condition)}


def _acts(node: Node) -> bool:
    """True if a node may do something that no operand shows."""
    dag = node.definition.dag
    edges = (*dag.in_edges(node.name, data="port"), *dag.out_edges(node.name, data="port"))
    if any(port == "launch_order" for *_, port in edges):  # kernels that run side by side may talk to each other
        return True
    if isinstance(node, KernelNode):
        told = node.touches is not None and node.touches.complete
        return not told and (isinstance(node.kernel, SourceKernel) or bool(node.kernel.options.get("link")))
    return not isinstance(node, (MemcpyNode, MemsetNode, EmptyNode, ChildNode, ConditionalNode))


def _memories(graph: Definition) -> dict[Buffer, int]:
    """For external buffers a number that those have in common whose memory overlaps."""
    spans = []
    for buffer in graph.operands.values():
        if isinstance(buffer, Buffer) and buffer.external:
            start = foreign_array(buffer.owner, buffer.name).address
            spans.append((start, start + buffer.allocation_nbytes, buffer))
    found: dict[Buffer, int] = {}
    end = number = 0
    for start, stop, buffer in sorted(spans, key=lambda span: span[:2]):
        if start >= end:
            number += 1
        end = max(end, stop)
        found[buffer] = number
    return found


class _Left:
    """What is left of a level: the living nodes, and what still orders them."""

    def __init__(self, level: Level, living: set[str]) -> None:
        self.level = level
        self.living = living
        self.dag: nx.DiGraph[str] = nx.DiGraph()
        self.dag.add_nodes_from(level.dag)
        self.dag.add_edges_from((source, target, dict(data)) for source, target, data in level.dag.edges.data())
        self.emptied: dict[str, EmptyNode] = {}
        self._leave_out()

    def contents(self) -> Contents:
        """What the level holds now."""
        nodes = [self.emptied.get(node.name, node) for node in self.level.nodes if node.name in self.dag]
        return Contents(nodes, self.dag.edges.data())

    def changes(self, outputs: dict[str, Buffer]) -> list[Change]:
        """What was done."""
        made = []
        for node in self.level.nodes:
            if node.name in self.emptied:
                made.append(Change("node emptied", named(node), f"{_why(node, outputs)}, and it orders many nodes"))
            elif node.name not in self.dag:
                made.append(Change("node dropped", named(node), _why(node, outputs)))
        return made

    def _leave_out(self) -> None:
        """Drop what does not live, with edges in the place of nodes that ordered living ones."""
        order = list(nx.topological_sort(self.level.dag))
        between = self._reached(order, self.level.dag.pred) & self._reached(order[::-1], self.level.dag.succ)
        self.dag.remove_nodes_from([name for name in order if name not in self.living and name not in between])
        for name in order:
            if name in between and name not in self.living:
                node = self.level.dag.nodes[name]["node"]
                if not isinstance(node, EmptyNode):
                    self._bridge(node)

    def _reached(self, order: list[str], neighbours: Any) -> set[str]:
        """The nodes that have a living one among those before them in the order."""
        found: set[str] = set()
        for name in order:
            if any(each in self.living or each in found for each in neighbours[name]):
                found.add(name)
        return found

    def _bridge(self, node: Node) -> None:
        befores, afters = list(self.dag.pred[node.name]), list(self.dag.succ[node.name])
        if len(befores) * len(afters) > len(befores) + len(afters):
            self.emptied[node.name] = _empty(node)
            for edge in (*self.dag.in_edges(node.name, data=True), *self.dag.out_edges(node.name, data=True)):
                edge[2]["port"] = "default"  # an empty node has no ports
            return
        self.dag.remove_node(node.name)
        for before in befores:
            for after in afters:
                if self.dag.has_edge(before, after):
                    self.dag.edges[before, after]["port"] = "default"
                else:
                    self.dag.add_edge(before, after, locations=(node.location,), port="default")


def _empty(node: Node) -> EmptyNode:
    made = EmptyNode(node.name, node.definition, node.location)
    made.tags, made.on = node.tags, node.on
    return made


def _why(node: Node, outputs: dict[str, Buffer]) -> str:
    if isinstance(node, EmptyNode):
        return "it orders nothing that is left"
    if node.bodies:
        return "nothing in it is left"
    written = sorted(written_by([node]))
    if not written:
        return "it writes nothing"
    return f"{', '.join(outputs)} {'follows' if len(outputs) == 1 else 'follow'} from nothing in {', '.join(written)}"
