"""Transitive reduction keeps the order of nodes and drops all that others imply."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cuda

import graphdsl as gd


@cuda.jit
def waits(x):
    gd.device.grid_dependency_wait()
    x[0] += 1


@st.composite
def graphs(draw: st.DrawFn) -> gd.Graph:
    """Empty nodes with random edges, some of them in a body of a conditional node."""
    g = gd.Graph("random")
    body = g.if_(g.condition("flag", default=1), name="branch").bodies[0]
    for level, prefix in ((g, ""), (body, "branch/then/")):
        nodes = [level.empty(name=f"n{index}") for index in range(draw(st.integers(1, 8)))]
        pairs = [(source, target) for target in range(len(nodes)) for source in range(target)]
        order = draw(st.permutations(nodes))
        for source, target in draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else ():
            _ = order[source] >> order[target]
        assert all(node.name.startswith(prefix) for node in nodes)
    return g


@given(graphs())
@settings(deadline=None)
def test_each_level_is_reduced_as_networkx_reduces_it(g):
    before = [list(level.dag.edges) for level in g.levels]
    reduced, changes = gd.passes.transitive_reduction(g)
    assert [list(level.dag.edges) for level in g.levels] == before
    assert [node.name for node in reduced.all_nodes] == [node.name for node in g.all_nodes]
    for level, made in zip(g.levels, reduced.levels, strict=True):
        assert set(made.dag.edges) == set(nx.transitive_reduction(nx.DiGraph(level.dag)).edges)
    dropped = {edge for level in g.levels for edge in level.dag.edges} - {
        edge for level in reduced.levels for edge in level.dag.edges
    }
    assert set(changes.of("edge dropped")) == dropped
    assert reduced.check().ok


def test_a_programmatic_edge_is_kept_and_implies_nothing():
    g = gd.Graph()
    x = g.device_array("x", 4, np.float32)
    a, b, c = (g.kernel(waits, grid=1, block=1, args=(x,), name=name) for name in "abc")
    g.edge(a, b, programmatic=True)
    g.edge(b, c)
    g.edge(a, c)
    reduced, changes = gd.passes.transitive_reduction(g)
    assert not changes
    assert list(reduced.dag.edges.data("port")) == [
        ("a", "b", "programmatic"),
        ("a", "c", "default"),
        ("b", "c", "default"),
    ]


def test_an_edge_that_full_ones_imply_is_kept_if_it_is_programmatic():
    g = gd.Graph()
    x = g.device_array("x", 4, np.float32)
    a, b, c = (g.kernel(waits, grid=1, block=1, args=(x,), name=name) for name in "abc")
    _ = a >> b >> c
    g.edge(a, c, programmatic=True)
    assert gd.passes.transitive_reduction(g)[1] == ()


def test_changes_say_what_and_why():
    g = gd.Graph()
    a, b, c, d = (g.empty(name=name) for name in "abcd")
    _ = a >> b >> c >> d
    g.edge(a, [c, d])
    _, changes = gd.passes.transitive_reduction(g)
    first, second = str(changes).splitlines()
    here = [f"{node} ({__file__}:{line})" for node, line in (("a", a.location[1]), ("c", c.location[1]))]
    assert first == f"edge dropped: {here[0]} -> {here[1]}: a -> b -> c implies it"
    assert second.endswith(": a -> ... -> c -> d implies it")


def test_operands_keep_their_names_and_updates_go_on_working():
    g = gd.Graph()
    n = g.param("n", np.int32, default=4)
    x = g.device_array("x", 8, np.float32)
    out = g.host_array("out", 8, np.float32)
    clear = g.memset(x, 0, name="clear")
    fill = g.memset(x[:n], 1.0, name="fill")
    store = g.memcpy(out, x, name="store")
    _ = clear >> fill >> store
    _ = clear >> store
    reduced, changes = gd.passes.transitive_reduction(g)
    assert list(reduced.operands) == list(g.operands)
    assert changes.of("edge dropped") == [("clear", "store")]
    with reduced.instantiate(gd.emulator()) as exe:
        exe.launch()
        exe.synchronize()
        assert exe["out"].sum() == 4
        exe.update(n=6)
        exe.launch()
        exe.synchronize()
        assert exe["out"].sum() == 6


@pytest.mark.parametrize("wrong", [None, "cycle", "body", "foreign"])
def test_what_has_no_order_is_refused(wrong):
    g = gd.Graph()
    a, b = g.empty(name="a"), g.empty(name="b")
    given = g
    if wrong == "cycle":
        _ = a >> b >> a
    elif wrong == "body":
        given = g.if_(g.condition("c", default=0)).bodies[0]
    elif wrong == "foreign":
        _ = a >> gd.Graph("other").empty(name="z")
    else:
        given = None
    with pytest.raises(gd.DeclarationError, match="a pass takes a"):
        gd.passes.transitive_reduction(given)
