"""Each edge of real graphs is taken away in turn: the audit and the orders find it, or it was not needed."""

from __future__ import annotations

import networkx as nx
import pytest

import graphdsl as gd
from tests.testing.graphs import GRAPHS, Built


def edges() -> list[object]:
    found = []
    for build in GRAPHS:
        graph, _ = build()
        found += [
            pytest.param(build, edge, id=f"{graph.name}: {' >> '.join(edge)}")
            for level in graph.levels
            for edge in level.dag.edges
        ]
    return found


def without(built: Built, edge: tuple[str, str]) -> tuple[Built, bool]:
    """A graph with one edge less, and whether other edges imply it."""
    graph, inputs = built
    level = graph.node(edge[0]).definition
    level._dag.remove_edge(*edge)
    return (graph, inputs), nx.has_path(level.dag, *edge)


def held(built: Built) -> None:
    """Hold a graph to as many orders as it needs for any two nodes to run both ways."""
    graph, inputs = built
    gd.testing.assert_order_independent(graph, inputs, orders=len(graph.all_nodes) + 2)


def audited(built: Built) -> list[tuple[str, ...]]:
    """The pairs of nodes that the audit finds in conflict."""
    return [found.nodes for found in built[0].check() if found.code in {"GD601", "GD602"}]


@pytest.mark.parametrize("build", GRAPHS)
def test_a_graph_with_all_its_edges_comes_to_the_same_in_every_order(build):
    assert not audited(build())
    held(build())


@pytest.mark.parametrize(("build", "edge"), edges())
def test_an_edge_that_is_taken_away_is_found(build, edge):
    built, implied = without(build(), edge)
    assert bool(audited(built)) is not implied
    if implied:
        held(built)
        return
    with pytest.raises(gd.OrderError) as caught:
        held(built)
    graph = built[0]
    assert caught.value.nodes in audited(built) or caught.value.nodes[::-1] in audited(built)
    found = caught.value.edge
    level = graph.node(edge[0]).definition
    # What is named lies on the way that is not closed any more: an edge between these nodes would close it.
    level._dag.add_edge(*found)
    assert nx.is_directed_acyclic_graph(level.dag)
    assert nx.has_path(level.dag, edge[0], found[1]) or found == edge
