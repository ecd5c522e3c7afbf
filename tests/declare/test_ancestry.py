"""The partial order of a graph as sets of bits."""

from __future__ import annotations

import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st

from graphdsl.declare.ancestry import ancestors, implied


@st.composite
def dags(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    """Nodes numbered in no order of the edges, and edges in no order at all."""
    count = draw(st.integers(1, 12))
    pairs = [(source, target) for target in range(count) for source in range(target)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    numbers = draw(st.permutations(range(count)))
    return count, [(numbers[source], numbers[target]) for source, target in chosen]


def _graph(count: int, edges: list[tuple[int, int]]) -> nx.DiGraph:
    made = nx.DiGraph()
    made.add_nodes_from(range(count))
    made.add_edges_from(edges)
    return made


@given(dags())
@settings(deadline=None)
def test_ancestors_are_those_of_networkx(dag):
    count, edges = dag
    found = dict(ancestors({index: 1 << index for index in range(count)}, count, edges))
    graph = _graph(count, edges)
    assert found == {index: sum(1 << each for each in nx.ancestors(graph, index)) for index in range(count)}


@given(dags())
@settings(deadline=None)
def test_what_is_not_implied_is_the_transitive_reduction_of_networkx(dag):
    count, edges = dag
    found = list(implied(count, edges))
    graph = _graph(count, edges)
    spared = {(source, target) for source, target, _ in found}
    assert len(spared) == len(found)
    assert set(edges) - spared == set(nx.transitive_reduction(graph).edges)
    for source, target, via in found:
        assert via in graph.pred[target]
        assert source in nx.ancestors(graph, via)


def test_edges_on_a_cycle_are_not_looked_at():
    assert list(implied(4, [(0, 1), (1, 0), (0, 2), (1, 2), (2, 3)])) == []
