from __future__ import annotations

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.errors import DeclarationError


def clear(x):
    x[0] = 0


@pytest.fixture
def g() -> gd.Graph:
    return gd.Graph("demo")


def judged(graph: gd.Graph) -> list[tuple[str, tuple[str, ...]]]:
    return [(each.code, each.nodes) for each in graph.check(compile=False) if each.code.startswith("GD4")]


def test_the_edge_that_is_missing_is_told(g):
    alloc = g.alloc("x", 4, np.float32)
    stray = g.memset(alloc.array[1:], 0, name="stray")
    stray >> g.free(alloc, name="free", after=alloc)
    (found,) = g.check(compile=False).errors
    assert (found.code, found.node, found.field, found.value) == ("GD401", "stray", "array", "x")
    assert found.remedy == "Add an edge: alloc_x >> stray."
    alloc >> stray
    assert judged(g) == []


def test_a_use_behind_the_free_is_found(g):
    alloc = g.alloc("x", 4, np.float32)
    alloc >> g.free(alloc, name="free") >> g.memset(alloc.array, 0, name="late")
    assert judged(g) == [("GD402", ("late", "free"))]


def test_two_frees_and_none(g):
    one, two = g.alloc("one", 4, np.float32), g.alloc("two", 4, np.float32)
    g.free(one, name="first", after=one)
    g.free(one.array, name="second", after=one)  # that either come before the other would be no remedy
    assert judged(g) == [
        ("GD403", ("alloc_one", "first", "second")),
        ("GD403", ("alloc_two",)),
    ]
    assert two.array.allocated


def test_uses_inside_of_what_is_ordered_are_ordered(g):
    inner = gd.Graph("inner")
    inner.kernel(clear, grid=1, block=1, args=(inner.device_array("x", 4, np.float32),))
    alloc = g.alloc("x", 4, np.float32)
    child = g.child(inner, {"x": alloc.array}, name="child")
    free = g.free(alloc, name="free")
    assert [code for code, _ in judged(g)] == ["GD401", "GD401", "GD402"]
    alloc >> child >> free
    assert judged(g) == []


def test_an_allocation_of_a_body_is_refused(g):
    with g.if_(g.condition("taken", default=1), name="branch") as body:
        alloc = body.alloc("x", 4, np.float32)
        alloc >> body.free(alloc)
    assert {each.code for each in g.check(compile=False).errors} == {"GD501"}


@pytest.mark.parametrize("what", [None, "x", 3])
def test_only_what_a_graph_allocates_is_freed(g, what):
    x = g.device_array("x", 4, np.float32)
    for given in (what, x, x[:2]):
        with pytest.raises(DeclarationError, match="an alloc node of the graph") as caught:
            g.free(given, name="free")
        assert (caught.value.node, caught.value.field) == ("free", "array")


def test_what_a_child_allocates_is_not_bound(g):
    inner = gd.Graph("inner")
    alloc = inner.alloc("x", 4, np.float32)
    alloc >> inner.free(alloc)
    with pytest.raises(DeclarationError, match="the child allocates it itself"):
        g.child(inner, {"x": g.device_array("y", 4, np.float32)})
    g.child(inner, name="child")
    assert judged(g) == []
    assert g.operands["child/x"].allocated
