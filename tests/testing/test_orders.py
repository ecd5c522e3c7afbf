"""Which orders there are, and what lies between two of them."""

from __future__ import annotations

import itertools
import random

import networkx as nx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import graphdsl as gd
from graphdsl.testing.orders import Between, drawn, every_order, following, preorder


@st.composite
def graphs(draw: st.DrawFn) -> gd.Graph:
    """Memsets and empty nodes with edges, some of them in a child or the body of an if."""
    g = gd.Graph("random")
    x = g.device_array("x", 4, np.uint8)
    levels: list[gd.Graph] = [g]
    for number in range(draw(st.integers(1, 5))):
        level = draw(st.sampled_from(levels))
        kind = draw(st.sampled_from(["memset", "memset", "empty", "if", "child"]))
        name = f"n{number}"
        if kind == "if":
            levels.append(level.if_(g.condition(f"c{number}", default=1), name=name).bodies[0])
        elif kind == "child":
            levels.append(level.child(gd.Graph(f"g{number}"), name=name).body)
        else:
            level.memset(x, number, name=name) if kind == "memset" else level.empty(name=name)
    for level in levels:
        for a, b in draw(st.lists(st.sampled_from(_pairs(level)), unique=True)) if len(level.nodes) > 1 else ():
            a >> b
    return g


def _pairs(level: gd.Graph) -> list[tuple[gd.Node, gd.Node]]:
    return [(a, b) for i, a in enumerate(level.nodes) for b in level.nodes[i + 1 :]]


def partial_order(g: gd.Graph) -> nx.DiGraph:
    """Begins and ends of all nodes."""
    found = nx.DiGraph()
    for node in g.all_nodes:
        found.add_edge((0, node.name), (1, node.name))
        for body in node.bodies:
            for each in body.nodes:
                found.add_edge((0, node.name), (0, each.name))
                found.add_edge((1, each.name), (1, node.name))
    for level in g.levels:
        found.add_edges_from(((1, a), (0, b)) for a, b in level.dag.edges)
    return found


def what_happens(g: gd.Graph) -> list[str]:
    return [node.name for node in g.all_nodes if node.kind not in ("empty", "child")]


@given(graphs())
def test_every_order_is_there_once(g):
    whole = nx.transitive_closure_dag(partial_order(g))
    names = what_happens(g)
    order = nx.DiGraph()
    order.add_nodes_from(names)
    # A conditional node happens when it begins.
    begun = {node.name: 0 if node.bodies else 1 for node in g.all_nodes}
    order.add_edges_from((a, b) for a in names for b in names if whole.has_edge((begun[a], a), (0, b)))
    wanted = sorted(map(tuple, nx.all_topological_sorts(order))) if names else [()]
    found = every_order(g, {node.name for node in g.all_nodes}, 200)
    assert found is not None
    assert sorted(tuple(name for name, turn in each) for each in found) == wanted
    assert (every_order(g, {node.name for node in g.all_nodes}, len(wanted) - 1) if len(wanted) > 1 else None) is None


def test_bodies_that_did_not_run_are_left_out():
    g = gd.Graph("choice")
    x = g.device_array("x", 4, np.uint8)
    choice = g.switch(g.condition("which", default=1), 2, name="choice")
    for body in choice.bodies:
        body.memset(x, 1, name="set")
    g.memset(x, 2, name="beside")
    found = every_order(g, {"choice", "choice/1/set", "beside"}, 10)
    assert [[name for name, _ in each] for each in found] == [
        ["choice", "choice/1/set", "beside"],
        ["choice", "beside", "choice/1/set"],
        ["beside", "choice", "choice/1/set"],
    ]


def test_a_large_graph_is_given_up_at_once():
    g = gd.Graph("wide")
    x = g.device_array("x", 4, np.uint8)
    nodes = [g.memset(x, 0) for _ in range(2000)]
    assert every_order(g, {node.name for node in nodes}, 500) is None


@given(graphs())
def test_the_order_of_the_declaration_has_each_node_once_and_what_is_inside_behind(g):
    names = [node.name for node in preorder(g)]
    assert sorted(names) == sorted(node.name for node in g.all_nodes)
    place = {name: number for number, name in enumerate(names)}
    assert all(
        place[node.name] < place[each.name] for node in g.all_nodes for body in node.bodies for each in body.nodes
    )


@given(st.permutations(range(6)), st.permutations(range(6)), st.sets(st.integers(0, 5)), st.sets(st.integers(0, 5)))
def test_neighbours_on_the_way_differ_by_one_swap(first, last, only_first, only_last):
    first = [(str(each), 0) for each in first if each not in only_last]
    last = [(str(each), 0) for each in last if each not in only_first]
    between = Between(first, last)
    way = [between[number] for number in range(len(between))]
    assert way[0][: len(first)] == first
    assert way[-1][: len(last)] == last
    for one, other in itertools.pairwise(way):
        differ = [place for place in range(len(one)) if one[place] != other[place]]
        assert len(differ) == 2
        assert differ[1] == differ[0] + 1
        a, b = one[differ[0]], one[differ[1]]
        assert [other[place] for place in differ] == [b, a]
        if {a, b} <= {*first} & {*last}:  # only what the two have the other way round is swapped
            assert first.index(a) < first.index(b)
            assert last.index(b) < last.index(a)


def test_ranks():
    steps = [("a", 0), ("b", 0), ("c", 0)]
    assert sorted(steps, key=following([("b", 0), ("a", 0)])) == [("b", 0), ("a", 0), ("c", 0)]
    assert sorted(steps, key=following([("b", 0), ("a", 0)], rest=-1)) == [("c", 0), ("b", 0), ("a", 0)]
    draws = [sorted([(each, 0) for each in "abcdef"], key=drawn(random.Random(seed), "c")) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
    assert {order[-1][0] for order in draws} == {"c"}
