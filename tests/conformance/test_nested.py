"""Graphs inside of graphs: children and bodies of conditional nodes, their updates, and what runs of them."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda

import graphdsl as gd
from graphdsl.drivers.base import Driver
from tests.conformance.kernels import scale


@pytest.fixture
def halves() -> gd.Graph:
    """Copies the first ``n`` elements of x to y through an array of its own, multiplied twice."""
    graph = gd.Graph("halves")
    n, gain = graph.param("n", np.int32, default=4), graph.param("gain", np.float32, default=2.0)
    x, y, between = (graph.device_array(name, 4, np.float32) for name in ("x", "y", "between"))
    with graph.sequence():
        graph.kernel(scale, grid=gd.cdiv(n, 32), block=32, args=(x, between, gain, n), name="first")
        graph.kernel(scale, grid=gd.cdiv(n, 32), block=32, args=(between, y, gain, n), name="second")
    return graph


def around(inside, *children: tuple[str, gd.Graph, str, str]) -> gd.Graph:
    """A graph that loads a, runs ``inside`` and stores a and b."""
    graph = gd.Graph("outer")
    raw = graph.host_array("raw", 4, np.float32)
    a, b = graph.device_array("a", 4, np.float32), graph.device_array("b", 4, np.float32)
    clear = graph.memset(b, 0, name="clear")
    load = graph.memcpy(a, raw, name="load", after=clear)
    store = graph.memcpy(graph.host_array("out", 4, np.float32), b, name="store")
    inside(graph, a, b, load) >> store
    return graph


def launched(exe, raw=(1, 2, 3, 4)) -> list[float]:
    exe["raw"][:] = raw
    exe.launch()
    exe.synchronize()
    return exe["out"].tolist()


def test_a_child_runs_and_its_nodes_are_updated_by_name(device: Driver, halves):
    graph = around(lambda g, a, b, load: g.child(halves, {"x": a, "y": b}, name="inner", after=load))
    with graph.instantiate(device) as exe:
        assert launched(exe) == [4, 8, 12, 16]
        exe.update({"inner/gain": 3})
        assert launched(exe) == [9, 18, 27, 36]
        exe.update({"inner/n": 2})
        assert launched(exe) == [9, 18, 0, 0]
        exe.node("inner/first").update(args={"gain": 1.0})
        assert launched(exe) == [3, 6, 0, 0]
        exe.node("inner/second").disable()
        assert launched(exe) == [0, 0, 0, 0]


def test_one_graph_is_two_children_with_operands_of_their_own(device: Driver, halves):
    def twice(g, a, b, load):
        between = g.device_array("between", 4, np.float32)
        first = g.child(halves, {"x": a, "y": between}, name="one", after=load)
        return g.child(halves, {"x": between, "y": b, "gain": 1.0}, name="two", after=first)

    with around(twice).instantiate(device) as exe:
        assert launched(exe) == [4, 8, 12, 16]
        exe.update({"one/gain": 1})
        assert launched(exe) == [1, 2, 3, 4]


def test_children_inside_of_children(device: Driver, halves):
    middle = gd.Graph("middle")
    x, y = middle.device_array("x", 4, np.float32), middle.device_array("y", 4, np.float32)
    middle.child(halves, {"x": x, "y": y}, name="deep")
    graph = around(lambda g, a, b, load: g.child(middle, {"x": a, "y": b}, name="outer", after=load))
    with graph.instantiate(device) as exe:
        assert launched(exe) == [4, 8, 12, 16]
        exe.update({"outer/deep/gain": 1})
        assert launched(exe) == [1, 2, 3, 4]


@pytest.mark.parametrize(("value", "expected"), [(1, 0x11), (7, 0x11), (0, 0x22)])
def test_an_if_runs_the_body_that_its_condition_names(device: Driver, value, expected):
    graph = gd.Graph("branch")
    x = graph.device_array("x", 4, np.uint8)
    branch = graph.if_(graph.condition("taken", default=value), name="branch")
    with branch as body:
        body.memset(x, 0x11, name="yes")
    branch.otherwise.memset(x, 0x22, name="no")
    branch >> graph.memcpy(graph.host_array("out", 4, np.uint8), x, name="store")
    with graph.instantiate(device) as exe:
        exe.launch()
        exe.synchronize()
        assert exe["out"].tolist() == [expected] * 4


@pytest.mark.parametrize(("value", "expected"), [(0, 5), (1, 6), (2, 9), (9, 9)])
def test_a_switch_runs_one_of_its_bodies_or_none(device: Driver, value, expected):
    graph = gd.Graph("choice")
    x = graph.device_array("x", 4, np.uint8)
    choice = graph.switch(graph.condition("which", default=value), 2, name="choice")
    for number, body in enumerate(choice.bodies):
        body.memset(x, 5 + number, name="set")
    graph.memset(x, 9, name="before") >> choice >> graph.memcpy(graph.host_array("out", 4, np.uint8), x, name="store")
    with graph.instantiate(device) as exe:
        exe.launch()
        exe.synchronize()
        assert exe["out"].tolist() == [expected] * 4
        if value == 1:
            exe.node("choice/1/set").update(value=77)
            exe.launch()
            exe.synchronize()
            assert exe["out"].tolist() == [77] * 4


def test_conditions_and_children_nest(device: Driver, halves):
    def nested(g, a, b, load):
        outer = g.if_(g.condition("outer", default=1), name="outer", after=load)
        with outer as body, body.if_(body.condition("inner", default=1), name="inner") as deep:
            deep.child(halves, {"x": a, "y": b}, name="child")
        return outer

    with around(nested).instantiate(device) as exe:
        assert launched(exe) == [4, 8, 12, 16]
        exe.update({"outer/then/inner/then/child/gain": 1})
        assert launched(exe) == [1, 2, 3, 4]


def test_a_child_may_hold_a_conditional_node(device: Driver):
    inner = gd.Graph("inner")
    x = inner.device_array("x", 4, np.float32)
    with inner.if_(inner.condition("taken", default=1), name="branch") as body:
        body.memset(x, 0, name="set")
    graph = around(lambda g, a, b, load: g.child(inner, {"x": b}, name="child", after=load))
    with graph.instantiate(device) as exe:
        assert launched(exe) == [0, 0, 0, 0]


@cuda.jit
def count_down(more, left, turns):
    left[0] -= 1
    turns[0] += 1
    gd.device.set_condition(more, left[0] > 0)


@cuda.jit
def decide(which, value):
    gd.device.set_condition(which, value)


@pytest.mark.parametrize("count", [1, 5])
def test_a_while_runs_until_a_kernel_in_it_says_so(device: Driver, count):
    graph = gd.Graph("loop")
    more = graph.condition("more", default=1)
    left, turns = graph.device_array("left", 1, np.int32), graph.device_array("turns", 1, np.int32)
    loop = graph.while_(more, name="loop")
    with loop as body:
        body.kernel(count_down, grid=1, block=1, args=(more, left, turns), name="step")
    start = graph.host_array("start", 1, np.int32)
    [graph.memcpy(left, start, name="load"), graph.memset(turns, 0, name="clear")] >> loop
    loop >> graph.memcpy(graph.host_array("out", 1, np.int32), turns, name="store")
    with graph.instantiate(device) as exe:
        for _ in range(2):
            exe["start"][0] = count
            exe.launch()
            exe.synchronize()
            assert exe["out"].tolist() == [count]


def test_a_kernel_decides_and_a_param_decides_for_it(device: Driver):
    graph = gd.Graph("choice")
    x, value = graph.device_array("x", 4, np.uint8), graph.param("value", np.uint32, default=0)
    which = graph.condition("which")
    choice = graph.switch(which, 3, name="choice")
    for number, body in enumerate(choice.bodies):
        body.memset(x, 10 + number, name="set")
    store = graph.memcpy(graph.host_array("out", 4, np.uint8), x, name="store")
    graph.kernel(decide, grid=1, block=1, args=(which, value), name="decide") >> choice >> store
    with graph.instantiate(device) as exe:
        for number in (0, 2, 1):
            exe.update(value=number)
            exe.launch()
            exe.synchronize()
            assert exe["out"].tolist() == [10 + number] * 4


def test_an_exec_with_conditions_is_cloned_from_its_plan(device: Driver):
    graph = gd.Graph("branch")
    x = graph.device_array("x", 4, np.uint8)
    with graph.if_(graph.condition("taken", default=1), name="branch") as body:
        body.memset(x, 0x11, name="yes")
    graph.node("branch") >> graph.memcpy(graph.host_array("out", 4, np.uint8), x, name="store")
    with graph.instantiate(device) as exe, exe.clone() as other:
        for each in (exe, other):
            each.launch()
            each.synchronize()
            assert each["out"].tolist() == [0x11] * 4


def deciding() -> gd.Graph:
    graph = gd.Graph("deciding")
    out = graph.device_array("out", 4, np.int32)
    with graph.sequence():
        graph.kernel(decide, grid=1, block=1, args=(graph.condition("go", default=0), 1), name="decide")
        with graph.if_(graph.operands["go"], name="branch") as body:
            body.memset(out, 1, name="set")
    return graph


def test_no_number_takes_the_place_of_a_condition(device: Driver):
    with deciding().instantiate(device) as exe:
        for args in ({"which": 5}, {"which": np.uint64(5)}, (5, 1)):
            with pytest.raises(gd.UpdateError, match="the condition that the kernel sets") as caught:
                exe.node("decide").update(args=args)
            assert (caught.value.node, caught.value.field) == ("decide", "argument 'which'")
        exe.node("decide").update(args={"value": 0})


def test_an_unknown_argument_is_named_with_its_node(device: Driver):
    with deciding().instantiate(device) as exe, pytest.raises(gd.UpdateError, match=r"node 'decide', args = 'valu'"):
        exe.node("decide").update(args={"valu": 0})


def test_a_condition_has_no_value_on_the_host(device: Driver):
    graph = deciding()
    with graph.instantiate(device) as exe:
        for asks in (lambda: exe["go"], lambda: exe.update(go=1), lambda: exe.update({"go": 1})):
            with pytest.raises(gd.UpdateError, match="kernels set it") as caught:
                asks()
            assert caught.value.field == "go"
            assert "Pass a param" in caught.value.remedy
        assert not exe.preflight(go=1).ok
    with pytest.raises(gd.CheckError, match="is a condition") as refused:
        graph.instantiate(device, values={"go": 1})
    assert [finding.code for finding in refused.value.report.errors] == ["GD112"]
