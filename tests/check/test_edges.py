"""GD606 and GD607: declared edges that could be left out."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphdsl as gd
from tests.check.findings import cheap
from tests.check.test_hazards import graphs, reads_and_writes, unordered


def edges(graph, code):
    return [found.value for found in cheap(graph) if found.code == code]


def test_an_edge_between_nodes_that_share_nothing(demo):
    a, b, c = demo.g.memset(demo.x, 0, name="a"), demo.g.memset(demo.y, 0, name="b"), demo.g.memset(demo.x, 1, name="c")
    a >> b
    assert edges(demo.g, "GD606") == ["a -> b"]
    b >> c
    assert edges(demo.g, "GD606") == [], "both are needed for a and c"
    a >> c
    assert edges(demo.g, "GD606") == ["a -> b, b -> c"]


def test_a_barrier_is_needed_by_what_is_on_its_two_sides(demo):
    barrier = demo.g.empty(name="barrier")
    writers = [demo.g.memset(demo.x[i : i + 1], 0) for i in range(3)]
    writers >> barrier >> demo.g.memcpy(demo.y, demo.x)
    assert edges(demo.g, "GD606") == []


def test_many_edges_are_one_finding(demo):
    nodes = [demo.g.memset(demo.x[i : i + 1], 0, name=f"n{i}") for i in range(20)]
    for a, b in itertools.pairwise(nodes):
        a >> b
    (found,) = [each for each in cheap(demo.g) if each.code == "GD606"]
    assert found.value.endswith("n7 -> n8 and 11 more")
    assert found.severity == "advice"
    assert len(found.nodes) == 20


def test_what_does_more_than_can_be_seen_is_ordered_for_a_reason(demo):
    g = demo.g
    g.memset(demo.x, 0, name="a") >> g.host(print, name="say") >> g.memset(demo.y, 0, name="b")
    event = g.record(g.event("done"), name="record", after=g.node("a"))
    assert event.name == "record"
    condition = g.condition("go", default=0)
    branch = g.if_(condition, name="branch")
    g.node("b") >> branch
    branch.bodies[0].empty()
    assert edges(g, "GD606") == []


def test_what_is_said_to_be_independent_or_commutes_may_have_an_edge(demo):
    a, b = demo.g.memset(demo.x, 0, name="a"), demo.g.memset(demo.x, 0, name="b")
    demo.g.independent(a, b, why="both write 0")
    a >> b
    assert edges(demo.g, "GD606") == []


def test_implied_edges(demo):
    a, b, c = (demo.g.memset(demo.x, 0, name=name) for name in "abc")
    a >> b >> c
    a >> c
    (found,) = [each for each in cheap(demo.g) if each.code == "GD607"]
    assert (found.value, found.nodes) == ("a -> c", ("a", "c"))
    assert "by way of b" in found.rule


def test_in_bodies_too(demo):
    inner = gd.Graph("inner")
    x, y = inner.device_array("x", 4, np.float32), inner.device_array("y", 4, np.float32)
    inner.memset(x, 0, name="a") >> inner.memset(y, 0, name="b")
    demo.g.child(inner, name="child")
    assert edges(demo.g, "GD606") == ["child/a -> child/b"]


@st.composite
def lattices(draw):
    """Many edges between nodes that touch one byte each, or none."""
    g = gd.Graph("lattice")
    x = g.device_array("a", (6, 6), np.uint8)
    for number in range(draw(st.integers(4, 8))):
        byte = draw(st.integers(0, 5))
        node = g.memset(x[0, byte : byte + 1], 0, name=f"n{number}") if byte else g.empty(name=f"n{number}")
        for other in g.nodes[:-1]:
            if draw(st.integers(0, 4)) >= 3:
                other >> node
    return g, {"a": 0}


@settings(max_examples=150, deadline=None)
@given(lattices())
def test_an_edge_is_idle_if_without_it_nothing_is_in_conflict(drawn):
    held_to_what_removal_tells(*drawn)


@settings(max_examples=100, deadline=None)
@given(graphs())
def test_so_it_is_in_bodies(drawn):
    held_to_what_removal_tells(*drawn)


def held_to_what_removal_tells(g, bases):
    kinds = {node.name: node.kind for node in g.all_nodes}
    touches = {node.name: reads_and_writes(node, bases) for node in g.all_nodes}

    def conflict(one, other):
        if "empty" in (kinds[one], kinds[other]):
            return False
        (reads, writes), (others_reads, others_writes) = touches[one], touches[other]
        shared = writes & (others_reads | others_writes) or reads & others_writes
        return bool(shared) or "conditional" in (kinds[one], kinds[other])

    def works(name):
        inside = [node.name for body in g.node(name).bodies for node in body.all_nodes]
        return any(kinds[each] != "empty" for each in (name, *inside))

    before = set(unordered(g))
    expected = set()
    for level in g.levels:
        for source, target in list(level.dag.edges):
            reduced = nx.transitive_reduction(level.dag)
            if not reduced.has_edge(source, target) or not works(source) or not works(target):
                continue
            attributes = level._dag.edges[source, target]
            level._dag.remove_edge(source, target)
            lost = set(unordered(g)) - before
            level._dag.add_edge(source, target, **attributes)
            if not any(conflict(*pair) for pair in lost):
                expected.add(f"{source} -> {target}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphdsl.check.edges._MOST_EDGES", 100)
        idle, implied = (
            {each for value in edges(g, code) for each in value.split(", ")} for code in ("GD606", "GD607")
        )
    assert idle == expected
    assert implied == {
        f"{source} -> {target}"
        for level in g.levels
        for source, target in set(level.dag.edges) - set(nx.transitive_reduction(level.dag).edges)
    }
