"""Fusion: which nodes become one kernel, which do not, and what is left of the graph."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphdsl as gd


@gd.elementwise
def scale(x, gain):
    return x * gain


@gd.elementwise
def add(x, y):
    return x + y


@gd.elementwise
def split(x):
    return x + 1, x - 1


def _declared(*names, shape=100, dtype=np.float32):
    g = gd.Graph("demo")
    return g, *(g.device_array(name, shape, dtype) for name in names)


def _fused(g):
    made, changes = gd.passes.fuse_elementwise(g)
    made.check(compile=False).raise_for_errors()
    return made, changes


def test_a_chain_becomes_one_node_and_its_arrays_disappear():
    g, x, t, u, y = _declared("x", "t", "u", "y")
    gain = g.param("gain", np.float32, default=2)
    load = g.memset(x, 1.0, name="load")
    first = g.elementwise(scale, t, (x, gain), name="scale")
    second = g.elementwise(add, u, (t, 1.0), name="shift")
    third = g.elementwise(add, y, (u, x), name="add")
    store = g.memcpy(g.host_array("out", 100, np.float32), y, name="store")
    _ = load >> first >> second >> third >> store
    made, changes = _fused(g)
    assert list(made.dag.edges) == [("load", "scale+shift+add"), ("scale+shift+add", "store")]
    assert list(made.operands) == ["x", "y", "gain", "out"]
    node = made.node("scale+shift+add")
    assert node.location == first.location
    assert node.kernel.name == "scale+add+add"
    assert [getattr(arg, "name", arg) for arg in node.args] == ["y", "x", "gain", 1.0]
    assert (node.grid, node.block) == (first.grid, first.block)
    assert changes.of("nodes fused") == [("scale", "shift", "add")]
    assert changes.of("operand dropped") == [("t",), ("u",)]
    text = str(changes)
    assert f"nodes fused: scale ({__file__}:{first.location[1]}) + shift (" in text
    assert "scale+shift+add; t, u are no memory any more" in text
    with made.instantiate(gd.emulator()) as exe:
        for value in (2, 3):
            exe.update(gain=value)
            exe.launch()
            exe.synchronize()
            assert set(exe["out"]) == {value + 1 + 1}


@given(st.lists(st.booleans(), min_size=1, max_size=12))
@settings(deadline=None)
def test_a_chain_is_cut_where_an_array_is_read_elsewhere(kept):
    g, first, *rest = _declared("x", *(f"t{index}" for index in range(len(kept) + 1)))
    before = None
    for index, array in enumerate(rest):
        node = g.elementwise(scale, array, ((first, *rest)[index], 2.0), name=f"n{index}")
        _ = [before] >> node if before else None
        before = node
    for index, keep in enumerate(kept):
        if keep:
            store = g.memcpy(g.host_array(f"h{index}", 100, np.float32), rest[index], name=f"s{index}")
            _ = g.node(f"n{index}") >> store
    made, changes = _fused(g)
    kernels = [node for node in made.nodes if node.kind == "kernel"]
    assert len(kernels) == sum(kept) + 1
    assert changes.of("operand dropped") == [(f"t{index}",) for index, keep in enumerate(kept) if not keep]
    assert bool(changes) is not all(kept)


@given(st.integers(1, 5))
@settings(deadline=None)
def test_a_tree_becomes_one_node(depth):
    g = gd.Graph()
    leaves = [g.device_array(f"x{index}", 10, np.float32) for index in range(2**depth)]
    level = [(leaf, None) for leaf in leaves]
    while len(level) > 1:
        above = []
        for (left, one), (right, other) in zip(level[::2], level[1::2]):
            out = g.device_array(f"t{len(g.operands)}", 10, np.float32)
            node = g.elementwise(add, out, (left, right), name=f"add{len(g.operands)}")
            _ = [each for each in (one, other) if each] >> node
            above.append((out, node))
        level = above
    made, changes = _fused(g)
    assert len(made.nodes) == 1
    assert len(made.operands) == 2**depth + 1
    assert len(changes.of("operand dropped")) == 2**depth - 2


def test_a_diamond_and_two_results_are_fused_once_the_inner_arrays_have_one_reader():
    g, x, a, b, c, y = _declared("x", "a", "b", "c", "y")
    with g.sequence():
        g.elementwise(split, (a, b), x, name="split")
        g.elementwise(add, c, (a, 1.0), name="left")
        g.elementwise(add, y, (b, c), name="join")
    made, _ = _fused(g)
    assert [node.name for node in made.nodes] == ["split+left+join"]
    assert list(made.operands) == ["x", "y"]


def test_nodes_in_bodies_are_fused_within_their_level():
    inner, x, t, y = _declared("x", "t", "y")
    _ = inner.elementwise(scale, t, (x, 2.0), name="scale") >> inner.elementwise(add, y, (t, t), name="add")
    g, a, b = _declared("a", "b")
    _ = g.memset(a, 1.0) >> g.child(inner, {"x": a, "y": b}, name="both") >> g.memset(a, 0.0)
    made, changes = _fused(g)
    assert [node.name for node in made.all_nodes] == ["set_a", "both", "set_a_1", "both/scale+add"]
    assert changes.of("operand dropped") == [("both/t",)]
    across, x, t, y = _declared("x", "t", "y")
    branch = across.if_(across.condition("flag", default=1))
    _ = across.elementwise(scale, t, (x, 2.0)) >> branch
    branch.bodies[0].elementwise(scale, y, (t, 2.0))
    assert not _fused(across)[1]


def test_what_is_sliced_meets_what_is_contiguous():
    g, image = _declared("image", shape=(8, 8))
    small = g.device_array("small", (8, 4), np.float32)
    flat = g.device_array("flat", (8, 4), np.float32)
    with g.sequence():
        g.memset(image, 3.0)
        g.elementwise(scale, small, (image[:, ::2], 2.0), name="cut")
        g.elementwise(scale, flat, (small, 2.0), name="twice")
        g.memcpy(g.host_array("out", (8, 4), np.float32), flat)
    made, _ = _fused(g)
    node = made.node("cut+twice")
    assert node.kernel.recipe.ndim == 2
    assert [array.shape for array in node.args[:2]] == [(8, 4), (8, 4)]
    with made.instantiate(gd.emulator()) as exe:
        exe.launch()
        exe.synchronize()
        assert set(exe["out"].ravel()) == {12.0}


def test_parts_that_follow_a_param_are_fused_if_they_are_the_same():
    g, x, t, y = _declared("x", "t", "y")
    n, k = g.param("n", np.int32, default=10), g.param("k", np.int32, default=10)
    with g.sequence():
        g.elementwise(scale, t[:n], (x[:n], 2.0), name="a")
        g.elementwise(scale, y[:n], (t[:n], 2.0), name="b")
    made, _ = _fused(g)
    assert [node.name for node in made.nodes] == ["a+b"]
    assert made.node("a+b").grid[0].params == {made.operands["n"]}
    g.elementwise(scale, t[:k], (x[:n], 2.0), name="c", after=g.node("b"))
    assert not _fused(g)[1]


STOPS = {}


def stops(function):
    STOPS[function.__name__] = function
    return function


@stops
def external(g, x, t, y):
    t = g.external("adopted", gd.device_array(gd.emulator(), 100, np.float32))
    return g.elementwise(scale, t, (x, 2.0)), g.elementwise(scale, y, (t, 2.0))


@stops
def host(g, x, t, y):
    t = g.host_array("h", 100, np.float32)
    return g.elementwise(scale, t, (x, 2.0)), g.elementwise(scale, y, (t, 2.0))


@stops
def allocated(g, x, t, y):
    alloc = g.alloc("scratch", 100, np.float32)
    one, other = g.elementwise(scale, alloc.array, (x, 2.0)), g.elementwise(scale, y, (alloc.array, 2.0))
    _ = alloc >> one
    _ = other >> g.free(alloc)
    return one, other


@stops
def persistent(g, x, t, y):
    t = g.device_array("state", 100, np.float32, lifetime="persistent")
    return g.elementwise(scale, t, (x, 2.0)), g.elementwise(scale, y, (t, 2.0))


@stops
def kept_from_launch_to_launch(g, x, t, y):
    return g.elementwise(add, t, (t, x)), g.elementwise(scale, y, (t, 2.0))


@stops
def written_by_the_reader(g, x, t, y):
    return g.elementwise(scale, t, (x, 2.0)), g.elementwise(split, (t, y), (t,))


@stops
def read_by_a_copy(g, x, t, y):
    one, other = g.elementwise(scale, t, (x, 2.0)), g.elementwise(scale, y, (t, 2.0))
    _ = one >> g.memcpy(g.device_array("z", 100, np.float32), t)
    return one, other


@stops
def another_part(g, x, t, y):
    return g.elementwise(scale, t[:50], (x[:50], 2.0)), g.elementwise(scale, y[:50], (t[50:], 2.0))


@stops
def one_element_of_it(g, x, t, y):
    return g.elementwise(scale, t, (x, 2.0)), g.elementwise(scale, y, (t, t[0]))


@stops
def tags(g, x, t, y):
    one = g.elementwise(scale, t, (x, 2.0))
    with g.tagged("debug"):
        return one, g.elementwise(scale, y, (t, 2.0))


@stops
def attributes(g, x, t, y):
    return g.elementwise(scale, t, (x, 2.0), priority=-1), g.elementwise(scale, y, (t, 2.0))


@stops
def devices(g, x, t, y):
    one = g.elementwise(scale, t, (x, 2.0))
    with g.on(1):
        return one, g.elementwise(scale, y, (t, 2.0))


@stops
def independent_of_another(g, x, t, y):
    one, other = g.elementwise(scale, t, (x, 2.0)), g.elementwise(scale, y, (t, 2.0))
    g.independent(one, g.memset(x, 0.0), why="either will do")
    return one, other


@stops
def a_node_between(g, x, t, y):
    one, other = g.elementwise(scale, t, (x, 2.0)), g.elementwise(scale, y, (t, 2.0))
    _ = one >> g.empty() >> other
    return one, other


@stops
def a_way_around(g, x, t, y):
    one, other = g.elementwise(scale, t, (x, 2.0)), g.elementwise(scale, y, (t, 2.0))
    _ = one >> g.memset(x, 0.0) >> g.empty() >> other
    return one, other


@stops
def written_beside_what_was_read(g, x, t, y):
    return g.elementwise(scale, t[1:], (x[1:], 2.0)), g.elementwise(scale, x[:-1], (t[1:], 2.0))


@stops
def one_element_that_is_written(g, x, t, y):
    return g.elementwise(scale, t, (x, y[3])), g.elementwise(scale, y, (t, 2.0))


@stops
def part_that_may_be_another(g, x, t, y):
    n = g.param("n", np.int32, default=0)
    return g.elementwise(scale, t[:50], (x[n : n + 50], 2.0)), g.elementwise(scale, x[:50], (t[:50], 2.0))


@pytest.mark.parametrize("name", STOPS)
def test_what_must_not_be_fused_is_not(name):
    g, x, t, y = _declared("x", "t", "y")
    one, other = STOPS[name](g, x, t, y)
    if not nx.has_path(g.dag, one.name, other.name):
        _ = one >> other
    made, changes = gd.passes.fuse_elementwise(g)
    assert changes == ()
    assert list(made.dag.edges) == list(g.dag.edges)


def test_an_order_of_starts_alone_is_kept():
    g, x, t, y = _declared("x", "t", "y")
    one, other = g.elementwise(scale, t, (x, 2.0)), g.elementwise(scale, y, (t, 2.0))
    _ = one >> other
    g.edge(one, g.elementwise(scale, x, (x, 2.0)), programmatic=True, port="launch_order")
    assert not gd.passes.fuse_elementwise(g)[1]


def test_two_pairs_that_would_wait_for_each_other_are_not_both_fused():
    g, x, a, b, c, d = _declared("x", "a", "b", "c", "d")
    y = g.device_array("y", 100, np.float32)
    first = g.elementwise(scale, a, (x, 2.0), name="first")
    second = g.elementwise(scale, b, (a, 2.0), name="second")
    third = g.elementwise(scale, c, (y, 2.0), name="third")
    fourth = g.elementwise(scale, d, (c, 2.0), name="fourth")
    _ = first >> second
    _ = third >> fourth
    _ = first >> fourth
    _ = third >> second
    made, changes = _fused(g)
    assert len(changes.of("nodes fused")) == 1
    assert len(made.nodes) == 3


def test_shared_memory_of_others_is_fused_where_it_is_the_same_elements_or_apart():
    device = gd.emulator()
    g, t = _declared("t", shape=16)
    memory = gd.device_array(device, 16, np.float32)
    x, y = g.external("x", memory), g.external("y", memory)
    _ = g.elementwise(scale, t, (x, 2.0), name="a") >> g.elementwise(scale, y, (t, 2.0), name="b")
    assert not _fused(g)[1]  # one memory, by two names that an update can part by a shift
    g, t = _declared("t", shape=16)
    x, y = g.external("x", memory), g.external("y", gd.device_array(device, 16, np.float32))
    _ = g.elementwise(scale, t, (x, 2.0), name="a") >> g.elementwise(scale, y, (t, 2.0), name="b")
    assert _fused(g)[1]


def test_names_stay_unique_and_scopes_are_those_of_the_first():
    g, x, t, y = _declared("x", "t", "y")
    g.empty(name="layer/a+b")
    with g.scope("layer"):
        one = g.elementwise(scale, t, (x, 2.0), name="a")
    with g.scope("other"):
        _ = one >> g.elementwise(scale, y, (t, 2.0), name="b")
    assert [node.name for node in _fused(g)[0].nodes] == ["layer/a+b", "layer/a+b_1"]


def test_a_long_chain_is_several_kernels():
    g, *arrays = _declared(*(f"t{index}" for index in range(101)))
    with g.sequence():
        for index, (source, target) in enumerate(pairwise(arrays)):
            g.elementwise(scale, target, (source, 2.0), name=f"n{index}")
    made, _ = _fused(g)
    assert [len(node.kernel.recipe.steps) for node in made.nodes] == [32, 32, 32, 4]


@given(st.permutations(range(4)))
@settings(deadline=None)
def test_the_order_of_declaration_does_not_matter(order):
    def build(order):
        g, *arrays = _declared("x", "a", "b", "c", "y")
        declare = [
            lambda: g.elementwise(scale, arrays[1], (arrays[0], 2.0), name="n0"),
            lambda: g.elementwise(scale, arrays[2], (arrays[0], 3.0), name="n1"),
            lambda: g.elementwise(add, arrays[3], (arrays[1], arrays[2]), name="n2"),
            lambda: g.elementwise(scale, arrays[4], (arrays[3], 4.0), name="n3"),
        ]
        nodes = {index: declare[index]() for index in order}
        _ = [nodes[0], nodes[1]] >> nodes[2] >> nodes[3]
        return [node.name for node in _fused(g)[0].nodes]

    assert build(order) == build(range(4)) == ["n1+n0+n2+n3"]
