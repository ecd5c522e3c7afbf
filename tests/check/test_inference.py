"""`Graph.infer_edges`: the edges that accesses need, and no more."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings

import graphdsl as gd
from tests.check.findings import cheap
from tests.check.test_hazards import audited, brute_force, graphs


def named(edges):
    return [(source.name, target.name) for source, target in edges]


def test_a_program_without_edges_gets_those_that_it_needs(demo):
    g = demo.g
    g.memcpy(demo.x, demo.raw, name="load")
    g.memset(demo.y, 0, name="clear")
    g.memcpy(demo.y[:512], demo.x[:512], name="low")
    g.memcpy(demo.y[512:], demo.x[512:], name="high")
    g.memcpy(demo.raw, demo.y, name="store")
    assert named(g.infer_edges()) == [
        ("clear", "low"),
        ("load", "low"),
        ("clear", "high"),
        ("load", "high"),
        ("high", "store"),
        ("low", "store"),
    ]
    assert not [found for found in cheap(g) if found.code.startswith("GD6")]
    assert g.infer_edges() == []


def test_what_is_declared_counts(demo):
    nodes = [demo.g.memset(demo.x, 0, name=name) for name in "abc"]
    demo.g.edge(nodes[0], nodes[2])
    assert named(demo.g.infer_edges()) == [("a", "b"), ("b", "c")]
    assert list(demo.g.dag.edges) == [("a", "c"), ("a", "b"), ("b", "c")]
    assert demo.g.dag.edges["a", "b"]["locations"][0][0] == __file__


def test_what_is_independent_or_atomic_needs_none(demo):
    a, b = demo.g.memset(demo.x, 0, name="a"), demo.g.memset(demo.x, 0, name="b")
    demo.g.independent(a, b, why="both write 0")
    demo.g.memcpy(demo.y, demo.x, name="c")
    assert named(demo.g.infer_edges()) == [("b", "c"), ("a", "c")]


def test_what_is_not_known_needs_one(demo):
    demo.g.host(print, demo.raw, name="show")
    demo.g.memcpy(demo.x, demo.raw, name="load")
    assert named(demo.g.infer_edges()) == [("show", "load")]


def test_nodes_of_bodies_are_ordered_by_what_holds_them(demo):
    inner = gd.Graph("inner")
    part = inner.device_array("part", 1024, np.float32)
    inner.memset(part, 0, name="a")
    inner.memset(part[:10], 1, name="b")
    demo.g.memset(demo.x, 2, name="before")
    demo.g.child(inner, {"part": demo.x}, name="child")
    demo.g.memcpy(demo.y, demo.x, name="behind")
    assert sorted(named(demo.g.infer_edges())) == [
        ("before", "child"),
        ("child", "behind"),
        ("child/a", "child/b"),
    ]


def test_an_edge_of_starts_stays_what_it_is():
    g = gd.Graph("starts")
    x = g.device_array("x", 32, np.float32)

    def fill(x):
        x[0] = 1

    first, second = (g.kernel(fill, grid=1, block=1, args=x, name=name) for name in ("first", "second"))
    g.edge(first, second, programmatic=True, port="launch_order")
    assert g.infer_edges() == []
    assert [found.nodes for found in cheap(g).errors] == [("first", "second")]


def test_cycles_are_refused(demo):
    a, b = demo.g.memset(demo.x, 0), demo.g.memset(demo.x, 0)
    a >> b >> a
    with pytest.raises(gd.DeclarationError, match="without cycles"):
        demo.g.infer_edges()


def test_values_of_params_decide(demo):
    demo.g.memset(demo.x[: demo.n], 0, name="head")
    demo.g.memset(demo.x[512:], 0, name="tail")
    assert demo.g.infer_edges(values={"n": 512}) == []
    assert named(demo.g.infer_edges()) == [("head", "tail")]


@settings(max_examples=150, deadline=None)
@given(graphs())
def test_the_edges_are_the_transitive_reduction_of_what_is_needed(drawn):
    g, bases = drawn
    needed = brute_force(g, bases)
    conflicts = audited(g)
    lifted = set()
    for tally in conflicts.tallies.values():
        for pair in tally.pairs:
            conflict = conflicts.explained(pair)
            assert frozenset((conflict.first.name, conflict.second.name)) in needed
            lifted.add(tuple(node.name for node in conflict.edge))
    declared = {level.name: set(level.dag.edges) for level in g.levels}
    added = set(named(g.infer_edges()))
    assert not audited(g).tallies
    assert not brute_force(g, bases)
    for level in g.levels:
        before = declared[level.name]
        dag = nx.DiGraph([*before, *(edge for edge in lifted if edge[0] in level.dag)])
        reduced = set(nx.transitive_reduction(dag).edges)
        assert {edge for edge in added if edge[0] in level.dag} == {
            edge for edge in lifted if edge[0] in level.dag and edge in reduced
        }
    for source, target in added:  # without any one of them there is a conflict
        level = g.node(source).definition
        level._dag.remove_edge(source, target)
        assert audited(g).tallies
        level._dag.add_edge(source, target, locations=(("", 0),), port="default")
