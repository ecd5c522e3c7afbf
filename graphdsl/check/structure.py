"""Rules about nodes and edges, and about operands and nodes of other graphs: codes GD101 to GD109."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path

import networkx as nx

from graphdsl.check.context import Context
from graphdsl.check.report import Finding
from graphdsl.check.rules import Found, rule
from graphdsl.declare.condition import Condition
from graphdsl.declare.event import Event
from graphdsl.declare.expressions import Expr
from graphdsl.declare.operand_level import Operand
from graphdsl.declare.operands import Array
from graphdsl.errors import Location

# Each edge against the order of declaration costs one search; a component with more of them is full of short cycles.
_MAX_SEARCHES = 64
_MAX_LISTED = 16


@rule("GD101", "error", "No cycles", subject="graph")
def cycle(context: Context, found: Found) -> Iterator[Finding]:
    """A graph is acyclic: no node may come, through edges, before itself.

    Each set of nodes that lie on cycles with one another is reported once, with a shortest cycle found in it and the
    line that declared each edge of that cycle.

    **Why.** Nodes of a cycle would wait for each other. The driver tells only at instantiation, as
    `CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE`, and names one node.

    **Source.** CUDA Driver API, `cuGraphInstantiateWithParams`.

    **Remedy.** Remove one of the edges. A loop over time is not an edge: launch the graph again.

    **Wrong**

    ```python wrong
    load, work = g.memcpy(x, raw), g.kernel(scale, grid=4, block=256, args=(x, y, gain, n))
    load >> work >> load
    ```

    **Right**

    ```python right
    load, work = g.memcpy(x, raw), g.kernel(scale, grid=4, block=256, args=(x, y, gain, n))
    load >> work
    ```
    """
    for level in context.levels:
        yield from _cycles(level.dag, found)


def _cycles(dag: nx.DiGraph[str], found: Found) -> Iterator[Finding]:
    position = {name: index for index, name in enumerate(dag)}
    # Most graphs are declared from front to back, which proves them acyclic at a glance.
    if all(position[source] < position[target] for source, targets in dag.adjacency() for target in targets):
        return
    components = [part for part in nx.strongly_connected_components(dag) if len(part) > 1]
    for component in sorted(components, key=lambda part: min(map(position.__getitem__, part))):
        names = _shortest_cycle(dag.subgraph(component), position)
        edges = list(zip(names, [*names[1:], names[0]], strict=True))
        # Of a long cycle, the edges that go against the declaration are the likely mistakes.
        suspects = edges if len(edges) <= _MAX_LISTED else [(a, b) for a, b in edges if position[b] < position[a]]
        written = [f"{a} -> {b} ({_short(dag.edges[a, b]['locations'][0])})" for a, b in suspects[:_MAX_LISTED]]
        more = f", and {len(component)} nodes in all lie on cycles here" if len(component) > len(names) else ""
        yield found(
            f"a graph has no cycles{more}",
            node=dag.nodes[names[0]]["node"],
            nodes=names,
            field="edges",
            value=_path([*names, names[0]]),
            remedy=f"Remove one of the edges {', '.join(written)}.",
            location=dag.edges[edges[-1]]["locations"][0],
        )


def _shortest_cycle(component: nx.DiGraph[str], position: dict[str, int]) -> list[str]:
    """Names on a shortest cycle, the one declared first in front; every cycle has an edge against the declaration."""
    backward = ((a, b) for a, b in component.edges if position[b] < position[a])
    cycles = (nx.shortest_path(component, b, a) for a, b in islice(backward, _MAX_SEARCHES))
    names: list[str] = min(cycles, key=len)
    start = min(range(len(names)), key=lambda index: position[names[index]])
    return names[start:] + names[:start]


@rule("GD102", "error", "No edge from a node to itself", subject="graph")
def self_edge(context: Context, found: Found) -> Iterator[Finding]:
    """An edge joins two nodes.

    **Why.** A node that waits for itself never runs. The driver refuses it.

    **Source.** CUDA Driver API, `cuGraphAddDependencies` and `cuGraphInstantiateWithParams`.

    **Remedy.** Remove the edge; often the wrong name stands on one side of `>>`.

    **Wrong**

    ```python wrong
    load, clear = g.memcpy(x, raw), g.memset(y, 0)
    load >> load
    ```

    **Right**

    ```python right
    load, clear = g.memcpy(x, raw), g.memset(y, 0)
    load >> clear
    ```
    """
    for level in context.levels:
        for name, targets in level.dag.adjacency():
            if name in targets:
                yield found(
                    "an edge joins two different nodes",
                    node=level.dag.nodes[name]["node"],
                    field="edges",
                    value=f"{name} -> {name}",
                    remedy="Remove it.",
                    location=targets[name]["locations"][0],
                )


@rule("GD103", "error", "No edge declared twice", subject="graph")
def duplicate_edge(context: Context, found: Found) -> Iterator[Finding]:
    """Each edge is declared once.

    **Why.** The driver refuses an edge that exists, and two declarations of one edge mostly mean that one of them was
    to be another.

    **Source.** CUDA Driver API, `cuGraphAddDependencies`: an existing edge, or the same edge twice in a call, returns
    `CUDA_ERROR_INVALID_VALUE`.

    **Remedy.** Remove one of the declarations.

    **Wrong**

    ```python wrong
    load, clear = g.memcpy(x, raw), g.memset(y, 0)
    load >> clear
    clear.after(load)
    ```

    **Right**

    ```python right
    load, clear = g.memcpy(x, raw), g.memset(y, 0)
    load >> clear
    ```
    """
    for level in context.levels:
        yield from _duplicates(level.dag, found)


def _duplicates(dag: nx.DiGraph[str], found: Found) -> Iterator[Finding]:
    for source, targets in dag.adjacency():
        for target, edge in targets.items():
            places = edge["locations"]
            if len(places) > 1:
                yield found(
                    f"an edge is declared once, and this one is declared {len(places)} times",
                    node=dag.nodes[source]["node"],
                    nodes=(source, target),
                    field="edges",
                    value=f"{source} -> {target}",
                    remedy=f"Keep one of the declarations at {_listed(dict.fromkeys(map(_short, places)))}.",
                    location=places[-1],
                )


@rule("GD104", "error", "Both ends of an edge in one graph", subject="graph")
def foreign_edge(context: Context, found: Found) -> Iterator[Finding]:
    """An edge joins nodes of one graph, or of one body in it.

    **Why.** Graphs are launched one by one; what is ordered between them, streams and events order. A body runs as a
    part of the node that holds it: edges of that node order all of it.

    **Source.** CUDA Driver API, `cuGraphAddDependencies`: both nodes belong to the graph.

    **Remedy.** Declare both nodes in one graph, or launch the graphs into one stream, one after the other.

    **Wrong**

    ```python wrong
    other = gd.Graph("other")
    other.empty(name="start") >> g.memset(y, 0)
    ```

    **Right**

    ```python right
    g.empty(name="start") >> g.memset(y, 0)
    ```
    """
    for level in context.levels:
        for name, data in level.dag.nodes.data():
            for source, target, place in data.get("foreign", ()):
                stranger = target if source.definition is level else source
                yield found(
                    f"node {stranger.name!r} belongs to {stranger.definition.title}, and an edge joins nodes of "
                    f"one level, here {level.title}",
                    node=data["node"],
                    nodes=(name,),
                    field="edges",
                    value=f"{source.name} -> {target.name}",
                    remedy="Declare both nodes in one graph or body; an edge of the node that holds a body orders "
                    "all of it.",
                    location=place,
                )


@rule("GD105", "error", "Operands of this graph")
def foreign_operand(context: Context, found: Found) -> Iterator[Finding]:
    """Buffers and params belong to the graph whose nodes use them; so do those in views, expressions and tuples.

    **Why.** Memory and values are bound for one graph when it is instantiated; those of another graph have none here.

    **Remedy.** Declare the operand in this graph. For memory that graphs share, adopt one array in each with
    `Graph.external`.

    **Wrong**

    ```python wrong
    other = gd.Graph("other")
    z = other.device_array("z", 1024, np.float32)
    g.memset(z, 0)
    ```

    **Right**

    ```python right
    z = g.device_array("z", 1024, np.float32)
    g.memset(z, 0)
    ```
    """
    operands = context.operands.items()
    foreign = [identity for identity, operand in operands if next(_strangers(context, operand), None) is not None]
    for use in context.uses(foreign):
        for stranger in sorted(_strangers(context, use.operand), key=lambda operand: operand.name):
            yield found(
                f"{stranger.name!r} belongs to graph {stranger.definition.name!r}, and a node uses operands of its "
                f"own graph, here {context.definition.name!r}",
                node=use.node,
                field=use.field,
                value=use.operand,
                remedy="Declare it in this graph; memory shared by graphs is adopted in each with external.",
            )


def _strangers(context: Context, operand: Array | Expr | Event) -> Iterator[Operand]:
    """What of an operand belongs to another graph: its buffer, its params, or itself."""
    if isinstance(operand, (Condition, Event)) and not context.owns(operand):
        yield operand
    if isinstance(operand, Array) and not context.owns(operand.buffer):
        yield operand.buffer
    yield from (param for param in operand.params if not context.owns(param))


@rule("GD106", "error", "At least one node", subject="graph")
def empty_graph(context: Context, found: Found) -> Iterator[Finding]:
    """A graph has at least one node.

    **Why.** Launching a graph of no nodes does nothing: some declaration did not happen, or went to another graph.

    **Remedy.** Declare a node. `empty()` is one that does nothing, for graphs that a program builds.

    **Wrong**

    ```python wrong
    g = gd.Graph("demo")
    ```

    **Right**

    ```python right
    g = gd.Graph("demo")
    g.empty()
    ```
    """
    if not context.nodes:
        yield found(
            f"graph {context.definition.name!r} has no nodes, and a graph has at least one",
            field="nodes",
            remedy="Declare one; empty() is a node that does nothing.",
        )


def _path(names: list[str]) -> str:
    """Nodes in the order of their edges; of a long path, its two ends."""
    if len(names) <= 2 * _MAX_LISTED:
        return " -> ".join(names)
    left_out = f"({len(names) - 2 * _MAX_LISTED} more)"
    return " -> ".join([*names[:_MAX_LISTED], left_out, *names[-_MAX_LISTED:]])


def _listed(items: Collection[str]) -> str:
    """Each of the items once, the first of many."""
    first = list(items)[:_MAX_LISTED]
    rest = [f"{len(items) - len(first)} more"] if len(items) > len(first) else []
    return " and ".join([*first, *rest])


def _short(place: Location) -> str:
    return f"{Path(place[0]).name}:{place[1]}"
