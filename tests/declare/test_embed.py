from __future__ import annotations

import copy

import numpy as np
import pytest
from numba import cuda

import graphdsl as gd
from graphdsl.errors import DeclarationError


@cuda.jit
def add(x, amount):
    x[0] += amount


def stage() -> gd.Graph:
    graph = gd.Graph("stage")
    x = graph.device_array("x", 4, np.int32)
    gain = graph.param("gain", np.float32, default=2.0)
    graph.memset(x, 1, name="set")
    graph.kernel(add, grid=1, block=1, args=(x, gain), name="add")
    graph.kernel(add, grid=1, block=1, args=(x, gain * 2), name="more")
    with graph.if_(graph.condition("go", default=1), name="if") as body:
        body.memset(x, 2, name="again")
    graph.record(graph.event("done"))
    return graph


def declarations(graph: gd.Graph):
    levels = [(level.name, list(level.dag), list(level.dag.edges)) for level in graph.levels]
    return levels, list(graph.operands)


DECLARE = {
    "child": lambda graph, after: graph.child(stage(), name="made", after=after),
    "alloc": lambda graph, after: graph.alloc("scratch", 4, np.int32, node="made", after=after),
    "if": lambda graph, after: graph.if_(graph.operands["c"], name="made", after=after),
    "while": lambda graph, after: graph.while_(graph.operands["c"], name="made", after=after),
    "switch": lambda graph, after: graph.switch(graph.operands["c"], 3, name="made", after=after),
    "memset": lambda graph, after: graph.memset(graph.operands["x"], 0, name="made", after=after),
    "record": lambda graph, after: graph.record(graph.operands["e"], name="made", after=after),
}


@pytest.mark.parametrize("after", ["first", 5, [None], {"first": 1}], ids=repr)
@pytest.mark.parametrize("declare", DECLARE.values(), ids=DECLARE)
def test_a_node_that_is_ordered_after_none_leaves_nothing_behind(declare, after):
    graph = gd.Graph("demo")
    graph.condition("c", default=0)
    graph.event("e")
    graph.device_array("x", 4, np.int32)
    first = graph.empty(name="first")
    before = declarations(graph)
    with pytest.raises(DeclarationError) as caught:
        declare(graph, after)
    assert (caught.value.node, caught.value.field) == ("made", "after")
    assert declarations(graph) == before
    assert declare(graph, [first]).name == "made"


@pytest.mark.parametrize("taken", ["made/set", "made/if/then/again"])
def test_nodes_of_a_child_have_names_of_their_own(taken):
    graph = gd.Graph("demo")
    scope, _, name = taken.rpartition("/")
    with graph.scope(scope):
        there = graph.empty(name=name)
    before = declarations(graph)
    with pytest.raises(DeclarationError, match="one of this name already") as caught:
        graph.child(stage(), name="made")
    assert (caught.value.node, caught.value.field, caught.value.value) == ("made", "name", repr(taken))
    assert caught.value.location == there.location
    assert declarations(graph) == before
    assert graph.child(stage(), name="other").body.node("other/set").name == "other/set"


@pytest.mark.parametrize("bind", ["x", ["x"], [("x", 1)], 5], ids=repr)
def test_bind_says_by_names(bind):
    graph = gd.Graph("demo")
    with pytest.raises(DeclarationError, match="by their names") as caught:
        graph.child(stage(), bind, name="made")
    assert (caught.value.node, caught.value.field) == ("made", "bind")


def test_an_operand_that_the_child_has_not_is_named_with_the_node():
    graph = gd.Graph("demo")
    with pytest.raises(DeclarationError, match=r"node 'made', bind = 'gian'.*gain"):
        graph.child(stage(), {"gian": 3.0}, name="made")


def test_a_number_has_the_dtype_of_the_param_that_it_stands_for():
    graph = gd.Graph("demo")
    body = graph.child(stage(), {"gain": 3}, name="made").body
    (_, one), (_, two) = body.node("made/add").args, body.node("made/more").args
    assert (one, one.dtype) == (3, np.float32)
    assert (two, two.dtype) == (6, np.float32)
    small = gd.Graph("small")
    count = small.param("count", np.uint8, default=1)
    small.kernel(add, grid=count, block=1, args=(small.device_array("x", 4, np.int32), count * 2), name="add")
    node = graph.child(small, {"count": 200}).body.node("small/add")
    assert node.args[1] == 400  # more than the dtype holds, and no less than that
    assert node.grid == (200, 1, 1)


@pytest.mark.parametrize("kind", ["child", "body"])
def test_graphs_nest_deeper_than_python_calls(kind):
    graph = gd.Graph("demo")
    level = graph
    for depth in range(120):
        if kind == "body":
            level = level.if_(graph.condition(f"c{depth}", default=1), name=f"if{depth}").bodies[0]
        else:
            outer = gd.Graph("demo")
            outer.child(graph, name="in")
            graph = outer
    level.empty(name="end")
    made = copy.deepcopy(graph)
    assert declarations(made) == declarations(graph)
    assert not {id(level) for level in made.levels} & {id(level) for level in graph.levels}
    assert made.node(graph.all_nodes[-1].name).definition.root is made


def test_a_body_is_copied_with_its_graph():
    graph = gd.Graph("demo")
    body = graph.child(stage()).body
    made = copy.deepcopy(body)
    assert made.root is not graph
    assert declarations(made.root) == declarations(graph)
    assert made is made.root.levels[1]
