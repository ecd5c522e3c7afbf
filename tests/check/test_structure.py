"""Rules GD101 to GD106: cycles, edges, operands of other graphs, empty graphs."""

from __future__ import annotations

from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphdsl as gd
from tests.check.conftest import scale, small_graph
from tests.check.findings import cheap, judged, only


@pytest.fixture
def chain() -> SimpleNamespace:
    g = gd.Graph("chain")
    a, b, c, d = (g.empty(name=name) for name in "abcd")
    a >> b >> c >> d
    return SimpleNamespace(g=g, a=a, b=b, c=c, d=d)


def test_a_chain_is_right(chain):
    assert judged(cheap(chain.g)) == []


def test_a_cycle_is_named_whole_and_in_order(chain):
    chain.c >> chain.a
    found = only(cheap(chain.g))
    assert (found.code, found.node, found.field) == ("GD101", "a", "edges")
    assert found.value == "a -> b -> c -> a"
    assert found.nodes == ("a", "b", "c")
    assert found.rule == "a graph has no cycles"


def test_a_cycle_says_where_each_edge_was_declared(chain):
    chain.c >> chain.a
    found = only(cheap(chain.g))
    for edge in (("a", "b"), ("b", "c"), ("c", "a")):
        line = chain.g.dag.edges[edge]["locations"][0][1]
        assert f"{edge[0]} -> {edge[1]} (test_structure.py:{line})" in found.remedy
    # The edge that goes back is the one that closed the cycle.
    assert found.location == chain.g.dag.edges["c", "a"]["locations"][0]


def test_the_shortest_cycle_stands_for_those_around_it(chain):
    chain.d >> chain.a
    chain.c >> chain.b
    found = only(cheap(chain.g))
    assert found.value == "b -> c -> b"
    assert "4 nodes in all lie on cycles here" in found.rule


def test_each_set_of_cycles_is_found():
    g = gd.Graph()
    a, b, c, d, e = (g.empty(name=name) for name in "abcde")
    a >> b >> a
    c >> d >> e >> c
    a >> c
    assert [found.value for found in cheap(g)] == ["a -> b -> a", "c -> d -> e -> c"]


def test_a_cycle_whose_nodes_were_declared_backwards():
    g = gd.Graph()
    c, b, a = (g.empty(name=name) for name in "cba")
    a >> b >> c >> a
    assert only(cheap(g)).value == "c -> a -> b -> c"


def test_nodes_declared_backwards_without_a_cycle_are_right():
    g = gd.Graph()
    c, b, a = (g.empty(name=name) for name in "cba")
    a >> b >> c
    assert judged(cheap(g)) == []


def test_a_long_cycle_takes_one_search_and_names_the_edge_that_closes_it():
    g = gd.Graph()
    nodes = [g.empty() for _ in range(3000)]
    for before, after in zip(nodes, [*nodes[1:], nodes[0]], strict=True):
        before >> after
    found = only(cheap(g))
    assert found.nodes == tuple(node.name for node in nodes)
    assert found.remedy.count("->") == 1  # only the edge that goes back
    assert found.value.startswith("empty -> empty_1 -> ")
    assert " -> (2969 more) -> " in found.value
    assert found.value.endswith(" -> empty_2999 -> empty")
    assert len(found.message) < 1500


EDGES = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30)


@settings(max_examples=150, deadline=None)
@given(EDGES)
def test_a_cycle_is_found_if_and_only_if_there_is_one(edges):
    g = gd.Graph()
    nodes = [g.empty(name=str(i)) for i in range(12)]
    for source, target in edges:
        g.edge(nodes[source], nodes[target])
    report = cheap(g)
    found = [each for each in report if each.code == "GD101"]
    loops = [each for each in report if each.code == "GD102"]
    assert bool(found or loops) == (not nx.is_directed_acyclic_graph(g.dag))
    components = [part for part in nx.strongly_connected_components(g.dag) if len(part) > 1]
    assert len(found) == len(components)
    for each in found:
        names = each.nodes
        assert all(g.dag.has_edge(*edge) for edge in zip(names, [*names[1:], names[0]], strict=True))
        (component,) = (part for part in components if names[0] in part)
        subgraph = g.dag.subgraph(component).copy()
        subgraph.remove_edges_from(list(nx.selfloop_edges(subgraph)))
        assert len(names) == min(map(len, nx.simple_cycles(subgraph, length_bound=len(names))))


def test_a_self_edge_is_not_also_a_cycle(chain):
    chain.b >> chain.b
    found = only(cheap(chain.g))
    assert (found.code, found.node, found.field, found.value) == ("GD102", "b", "edges", "b -> b")


def test_a_duplicate_edge_says_where_both_are(chain):
    chain.b.after(chain.a)
    found = only(cheap(chain.g))
    first, second = chain.g.dag.edges["a", "b"]["locations"]
    assert (found.code, found.node, found.field, found.value) == ("GD103", "a", "edges", "a -> b")
    assert found.nodes == ("a", "b")
    assert f"test_structure.py:{first[1]}" in found.remedy
    assert f"test_structure.py:{second[1]}" in found.remedy
    assert found.location == second


def test_an_edge_declared_twice_in_one_line_is_said_to_be_there_once(chain):
    for _ in range(2):
        chain.a >> chain.d
    found = only(cheap(chain.g))
    assert "declared 2 times" in found.rule
    assert found.remedy.count("test_structure.py") == 1
    for line in range(40):
        exec(compile("\n" * line + "a >> d", "many.py", "exec"), {"a": chain.a, "d": chain.d})
    assert "and 25 more" in only(cheap(chain.g)).remedy


def test_the_other_direction_is_no_duplicate_but_a_cycle(chain):
    chain.b >> chain.a
    assert [found.code for found in cheap(chain.g)] == ["GD101"]


@pytest.mark.parametrize("backwards", [False, True])
def test_a_foreign_edge_is_found_in_both_graphs(chain, backwards):
    other = gd.Graph("other")
    stranger = other.empty(name="stranger")
    pair = (chain.a, stranger) if backwards else (stranger, chain.a)
    pair[0] >> pair[1]
    value = f"{pair[0].name} -> {pair[1].name}"
    found = only(cheap(chain.g))
    assert (found.code, found.node, found.field, found.value) == ("GD104", "a", "edges", value)
    assert "'stranger' belongs to graph 'other'" in found.rule
    found = only(cheap(other))
    assert (found.code, found.node, found.value) == ("GD104", "stranger", value)
    assert "'a' belongs to graph 'chain'" in found.rule


def test_an_empty_graph():
    g = gd.Graph("nothing")
    assert judged(cheap(g)) == [("GD106", None, "nodes")]
    g.empty()
    assert judged(cheap(g)) == []


@pytest.fixture
def other() -> SimpleNamespace:
    return small_graph("other")


def test_operands_of_another_graph_are_found_wherever_they_stand(demo, other):
    g = demo.g
    args = (demo.x, demo.y, demo.gain, demo.n)
    g.kernel(scale, grid=other.n, block=32, args=args, name="in_grid")
    g.kernel(scale, grid=4, block=other.n, args=args, name="in_block")
    g.kernel(scale, grid=4, block=32, args=args, shared_bytes=other.n * 4, name="in_shared")
    g.kernel(scale, grid=4, block=32, args=(other.x, demo.y, demo.gain, demo.n), name="in_args")
    g.kernel(scale, grid=4, block=32, args=((demo.x, (other.x,)), demo.y, demo.gain, demo.n), name="in_tuple")
    g.kernel(scale, grid=4, block=32, args=(demo.x[: other.n], demo.y, demo.gain, demo.n), name="in_view")
    g.memcpy(other.x, demo.raw, name="in_destination")
    g.memcpy(demo.x, other.raw, name="in_source")
    g.memcpy(demo.x, demo.raw, nbytes=other.n, name="in_nbytes")
    g.memset(demo.x, other.n, name="in_value")
    g.host(print, args=(demo.raw, (other.raw,)), name="in_host")
    found = {node: (code, field) for code, node, field in judged(cheap(g))}
    assert found == {
        "in_grid": ("GD105", "grid"),
        "in_block": ("GD105", "block"),
        "in_shared": ("GD105", "shared_bytes"),
        "in_args": ("GD105", "argument 'x'"),
        "in_tuple": ("GD105", "argument 'x'"),
        "in_view": ("GD105", "argument 'x'"),
        "in_destination": ("GD105", "destination"),
        "in_source": ("GD105", "source"),
        "in_nbytes": ("GD105", "nbytes"),
        "in_value": ("GD105", "value"),
        "in_host": ("GD105", "args[1]"),
    }


def test_the_value_of_a_param_of_another_graph_is_not_taken_from_one_of_the_same_name(demo, other):
    """Both graphs have a param n; that of this graph would make the grid too large."""
    demo.g.kernel(scale, grid=(1, other.n * 100), block=32, args=(demo.x, demo.y, demo.gain, demo.n))
    assert judged(cheap(demo.g)) == [("GD105", "scale", "grid")]


def test_an_expression_on_params_of_two_graphs_names_the_stranger(demo, other):
    demo.g.memset(demo.table[demo.n - other.n], 0)
    found = only(cheap(demo.g))
    assert (found.code, found.field) == ("GD105", "destination")
    assert "'n' belongs to graph 'other'" in found.rule


def test_operands_of_this_graph_are_right(demo):
    view = demo.x[: gd.minimum(demo.n, np.int32(1024))]
    demo.g.kernel(scale, grid=gd.cdiv(demo.n, 32), block=32, args=(view, demo.y, demo.gain, demo.n))
    demo.g.host(print, args=(demo.raw, (demo.staged, demo.n)))
    assert judged(cheap(demo.g)) == []
