from __future__ import annotations

import numpy as np
import pytest
from numba import cuda

import graphdsl as gd


@cuda.jit
def decide(condition, value):
    gd.device.set_condition(condition, value)


@pytest.fixture
def g() -> gd.Graph:
    return gd.Graph("demo")


def judged(graph: gd.Graph) -> list[tuple[str, str | None, str | None]]:
    found = graph.check(compile=False)
    return [(each.code, each.node, each.field) for each in found if each.code.startswith("GD5")]


def test_a_host_node_deep_in_a_body_is_named_with_its_field(g):
    inner = gd.Graph("inner")
    inner.host(print, name="say")
    with g.if_(g.condition("taken", default=0), name="branch") as body:
        body.child(inner, name="child")
    assert judged(g) == [("GD501", "branch/then/child/say", "kind")]
    assert "'branch'" in g.check(compile=False).errors[0].rule


def test_pageable_memory_in_a_body_is_named_with_its_side(g):
    x, staged = g.device_array("x", 4, np.float32), g.host_array("staged", 4, np.float32, pinned=False)
    with g.while_(g.condition("more", default=0), name="loop") as body:
        body.memcpy(x, staged, name="load")
        body.memcpy(staged, x, name="store")
    found = [each for each in judged(g) if each[0] == "GD502"]
    assert found == [("GD502", "loop/load", "source"), ("GD502", "loop/store", "destination")]
    assert "GD502" not in {code for code, *_ in judged(_copying_outside())}


def _copying_outside() -> gd.Graph:
    graph = gd.Graph("outside")
    graph.memcpy(graph.device_array("x", 4, np.float32), graph.host_array("s", 4, np.float32, pinned=False))
    return graph


def test_a_condition_is_asked_by_one_node(g):
    shared, idle = g.condition("shared", default=0), g.condition("idle", default=0)
    g.if_(shared, name="one") >> g.switch(shared, 2, name="two")
    assert judged(g) == [("GD503", "two", "condition 'shared'"), ("GD503", None, "condition 'idle'")]
    assert idle.default == 0


@pytest.mark.parametrize("ordered", [False, True])
def test_a_condition_without_a_default_needs_a_kernel_before(g, ordered):
    taken = g.condition("taken")
    node = g.if_(taken, name="branch")
    setter = g.kernel(decide, grid=1, block=1, args=(taken, 1), name="setter")
    if ordered:
        setter >> node
    assert judged(g) == ([] if ordered else [("GD504", "branch", "condition")])


def compiled(graph: gd.Graph) -> list[tuple[str, str | None, str | None]]:
    return [(each.code, each.node, each.field) for each in graph.check() if each.code.startswith("GD5")]


@cuda.jit
def ignores(condition, x):
    x[0] = condition


@cuda.jit
def sets_second(conditions, x):
    gd.device.set_condition(conditions[1], x[0])


def test_a_kernel_that_is_given_a_condition_and_does_not_set_it_does_not_count(g):
    x, taken = g.device_array("x", 1, np.uint64), g.condition("taken")
    g.kernel(ignores, grid=1, block=1, args=(taken, x), name="ignores") >> g.if_(taken, name="branch")
    assert judged(g) == []  # without its code, nobody can know
    assert compiled(g) == [("GD504", "branch", "condition")]


def test_of_conditions_in_a_tuple_the_one_that_is_set_counts(g):
    x, one, two = g.device_array("x", 1, np.int32), g.condition("one"), g.condition("two")
    kernel = g.kernel(sets_second, grid=1, block=1, args=((one, two), x), name="setter")
    kernel >> [g.if_(one, name="first"), g.if_(two, name="second")]
    assert compiled(g) == [("GD504", "first", "condition")]


def test_a_kernel_that_sets_what_it_finds_in_memory_may_set_any_condition(g):
    @cuda.jit
    def sets_stored(handles):
        gd.device.set_condition(handles[0], 1)

    handles, taken = g.device_array("handles", 1, np.uint64), g.condition("taken")
    keep = g.kernel(ignores, grid=1, block=1, args=(taken, handles))
    branch = g.if_(taken, name="branch")
    keep >> branch
    assert compiled(g) == [("GD504", "branch", "condition")]
    keep >> g.kernel(sets_stored, grid=1, block=1, args=handles) >> branch
    assert compiled(g) == []


def test_a_loop_whose_kernel_only_looks_at_the_condition_never_ends(g):
    more, x = g.condition("more", default=1), g.device_array("x", 1, np.uint64)
    with g.while_(more, name="loop") as body:
        body.kernel(ignores, grid=1, block=1, args=(more, x))
    assert compiled(g) == [("GD505", "loop", "condition")]


def test_a_kernel_before_the_owner_of_a_body_is_before_the_body(g):
    taken = g.condition("taken")
    outer = g.if_(g.condition("outer", default=1), name="outer")
    g.kernel(decide, grid=1, block=1, args=(taken, 1)) >> outer
    outer.bodies[0].if_(taken, name="inner")
    assert judged(g) == []


def test_a_loop_that_nothing_ends_is_a_warning(g):
    more = g.condition("more", default=1)
    loop = g.while_(more, name="loop")
    loop.bodies[0].empty()
    assert judged(g) == [("GD505", "loop", "condition")]
    loop.bodies[0].kernel(decide, grid=1, block=1, args=(more, 0))
    assert judged(g) == []


def test_a_condition_is_no_argument_of_a_host_node(g):
    taken = g.condition("taken", default=0)
    g.host(print, args=(1, taken), name="say") >> g.if_(taken)
    assert judged(g) == [("GD506", "say", "args[1]")]


def test_a_loop_whose_end_is_disabled_never_ends(g):
    more = g.condition("more", default=1)
    with g.while_(more, name="loop") as body:
        body.kernel(decide, grid=1, block=1, args=(more, 0), name="end")
    found = g.check(compile=False, disabled=["loop/end"])
    assert [(each.code, each.node) for each in found if each.code == "GD505"] == [("GD505", "loop")]
    assert judged(g) == []
