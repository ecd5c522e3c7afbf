from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdsl.plan.order import canonical_order


@st.composite
def dags(draw: st.DrawFn) -> list[tuple[str, list[str]]]:
    """Names with the names they come after, in an order of declaration that is already topological."""
    names = draw(st.lists(st.text("abcdef", min_size=1, max_size=3), unique=True, max_size=12))
    befores = [draw(st.lists(st.sampled_from(names[:i]), unique=True)) if i else [] for i in range(len(names))]
    return list(zip(names, befores, strict=True))


def graph_of(declared: list[tuple[str, list[str]]]) -> nx.DiGraph:
    dag = nx.DiGraph()
    for name, befores in declared:
        dag.add_node(name)
        dag.add_edges_from((before, name) for before in befores)
    return dag


@given(dags(), st.randoms(use_true_random=False))
def test_order_is_topological_and_knows_no_declaration_order(declared, random):
    dag = graph_of(declared)
    order = canonical_order(dag)
    place = {name: i for i, name in enumerate(order)}
    assert order == list(nx.lexicographical_topological_sort(dag))
    assert all(place[source] < place[target] for source, target in dag.edges)
    shuffled = list(declared)
    random.shuffle(shuffled)
    assert canonical_order(graph_of(shuffled)) == order


def test_ties_go_by_name():
    assert canonical_order(nx.DiGraph([("z", "a"), ("b", "a"), ("c", "d")])) == ["b", "c", "d", "z", "a"]


def test_a_cycle_has_no_order():
    with pytest.raises(nx.NetworkXUnfeasible):
        canonical_order(nx.DiGraph([("a", "b"), ("b", "c"), ("c", "b")]))
