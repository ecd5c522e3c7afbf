"""A long graph stands in columns: all of it, whole scopes in one column, in the order in which it runs."""

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphdsl as gd
from graphdsl.draw.columns import columns_of


def chain(scopes: list[int]) -> gd.Graph:
    g = gd.Graph("chain")
    with g.sequence():
        g.empty(name="first")
        for i, nodes in enumerate(scopes):
            with g.scope(f"s{i}"):
                for _ in range(nodes):
                    g.empty()
    return g


@given(st.lists(st.integers(1, 5), max_size=20), st.integers(1, 8))
def test_a_chain_is_read_from_column_to_column(scopes, columns):
    g = chain(scopes)
    found = columns_of(g, columns)
    assert found.keys() == set(g.dag)
    order = [found[name] for name in nx.topological_sort(g.dag)]
    assert order == sorted(order)
    assert order[0] == 0
    assert order[-1] < columns
    for i in range(len(scopes)):
        assert len({column for name, column in found.items() if name.startswith(f"s{i}/")}) == 1
    heights = [order.count(column) for column in range(columns)]
    assert max(heights) <= -(-len(order) // columns) + max(scopes, default=0)


@given(st.integers(1, 12), st.data())
def test_parallel_nodes_stand_beside_each_other(count, data):
    g = gd.Graph("dag")
    nodes = [g.empty(name=f"n{i}") for i in range(count)]
    for i in range(1, count):
        for j in data.draw(st.sets(st.integers(0, i - 1))):
            g.edge(nodes[j], nodes[i])
    columns = data.draw(st.integers(1, 5))
    found = columns_of(g, columns)
    for source, target in g.dag.edges:
        assert found[source] <= found[target]
    longest = nx.dag_longest_path_length(g.dag) + 1
    assert len(set(found.values())) <= min(columns, longest)


def test_edges_between_columns_leave_the_ranks_alone():
    g = chain([2, 2, 2])
    one, three = g.to_dot(), g.to_dot(columns=3)
    assert "constraint" not in one
    assert three.count("constraint=false") == 2
    assert '-> "s1/empty' in three
    assert [line for line in three.splitlines() if "->" not in line] == [
        line for line in one.splitlines() if "->" not in line
    ]


def test_a_graph_with_a_cycle_stands_in_one_column():
    g = chain([1, 1])
    g.edge(g.node("s1/empty"), g.node("first"))
    assert set(columns_of(g, 4).values()) == {0}
    assert "constraint" not in g.to_dot(columns=4)


@pytest.mark.parametrize("columns", [0, -1, 1.5, "2"])
def test_there_is_a_whole_number_of_columns(columns):
    with pytest.raises(gd.DeclarationError, match="one column or more") as caught:
        gd.Graph("empty").draw("never.svg", columns=columns)
    assert caught.value.field == "columns"
