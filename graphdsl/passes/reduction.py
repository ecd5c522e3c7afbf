"""Transitive reduction: the edges of each level without those that other ways imply."""

from __future__ import annotations

from graphdsl.declare.ancestry import implied
from graphdsl.declare.embed import Contents
from graphdsl.declare.store import Level
from graphdsl.passes.changes import Change, Changes, named
from graphdsl.passes.rewrite import GraphType, checked_graph, rewritten


def transitive_reduction(graph: GraphType) -> tuple[GraphType, Changes]:
    """Drop the edges that others imply, in the graph and in every body: the order of nodes stays as it is.

    Only full edges are dropped, and only where the other way is of full edges: a programmatic edge orders less than a
    full one, and is not implied by any.

    Parameters
    ----------
    graph : Graph
        Stays as it is.

    Returns
    -------
    graph : Graph
        The reduced one.
    changes : Changes
        Each dropped edge, and the way that implies it.

    Raises
    ------
    DeclarationError
        If the graph has a cycle, or edges to other graphs.

    Examples
    --------
    >>> import graphdsl as gd
    >>> g = gd.Graph("demo")
    >>> a, b, c = (g.empty(name=name) for name in "abc")
    >>> _ = a >> b >> c
    >>> _ = a >> c
    >>> reduced, changes = gd.passes.transitive_reduction(g)
    >>> list(reduced.dag.edges), changes.of("edge dropped")
    ([('a', 'b'), ('b', 'c')], [('a', 'c')])
    """
    checked_graph(graph)
    changes: list[Change] = []
    edited = {}
    for level in graph.levels:
        spared = _spared(level)
        if spared:
            edges = [edge for edge in level.dag.edges.data() if edge[:2] not in spared]
            edited[id(level)] = Contents(level.nodes, edges)
            changes += _changes(level, spared)
    return rewritten(graph, edited), Changes(changes)


def _spared(level: Level) -> dict[tuple[str, str], str]:
    """The edges that are not needed, each with the last node before its target on another way."""
    names = list(level.dag)
    numbers = {name: number for number, name in enumerate(names)}
    full = [
        (numbers[source], numbers[target]) for source, target, port in level.dag.edges.data("port") if port == "default"
    ]
    found = implied(len(names), full)
    return {(names[source], names[target]): names[via] for source, target, via in found}


def _changes(level: Level, spared: dict[tuple[str, str], str]) -> list[Change]:
    made = []
    for (source, target), via in spared.items():
        ends = level.dag.nodes[source]["node"], level.dag.nodes[target]["node"]
        straight = level.dag.has_edge(source, via) and (source, via) not in spared
        between = "" if straight else " -> ..."
        made.append(Change("edge dropped", named(*ends), f"{source}{between} -> {via} -> {target} implies it"))
    return made
