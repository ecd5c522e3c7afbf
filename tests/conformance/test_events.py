"""Nodes that record events and wait for them: events of the exec, and of others."""

from __future__ import annotations

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.drivers.base import Driver
from graphdsl.errors import CheckError, DriverError, GraphdslError, UpdateError


@pytest.fixture
def foreign(device: Driver):
    """Events that the test owns."""
    made = [device.event_create() for _ in range(2)]
    yield made
    for handle in made:
        device.event_destroy(handle)


def run(exe) -> None:
    exe.launch()
    exe.synchronize()


def test_an_event_of_the_exec_is_recorded_and_can_be_waited_for(device: Driver):
    graph = gd.Graph("demo")
    x = graph.device_array("x", 4, np.float32)
    graph.memset(x, 1, name="set") >> graph.record(graph.event("done"))
    with graph.instantiate(device) as exe:
        assert exe["done"].query()
        exe.launch()
        exe["done"].synchronize()
        assert exe["done"].query()
        assert exe["x"].copy_to_host().tolist() == [1] * 4


def test_the_time_between_two_nodes(device: Driver):
    graph = gd.Graph("demo")
    start, stop = (graph.event(name, timing=True) for name in ("start", "stop"))
    with graph.sequence():
        graph.record(start)
        graph.memset(graph.device_array("x", 1 << 20, np.uint8), 1)
        graph.record(stop)
    with graph.instantiate(device) as exe:
        with pytest.raises(DriverError) as caught:
            exe["stop"].elapsed_since(exe["start"])
        assert caught.value.code_name == "CUDA_ERROR_INVALID_HANDLE"
        run(exe)
        assert 0 < exe["stop"].elapsed_since(exe["start"]) < 10_000


def test_an_event_without_timing_tells_no_time(device: Driver):
    graph = gd.Graph("demo")
    graph.record(graph.event("a")) >> graph.record(graph.event("b", timing=True))
    with graph.instantiate(device) as exe:
        run(exe)
        with pytest.raises(GraphdslError, match="declared with timing") as caught:
            exe["b"].elapsed_since(exe["a"])
        assert caught.value.value == "a"


def test_events_of_others_are_waited_for_recorded_and_re_bound(device: Driver, foreign):
    first, second = foreign
    graph = gd.Graph("demo")
    ready, done = graph.event("ready", first), graph.event("done", second)
    graph.wait(ready) >> graph.memset(graph.device_array("x", 4, np.uint8), 7) >> graph.record(done)
    with graph.instantiate(device) as exe:
        run(exe)
        assert device.event_query(second)
        exe.update(ready=second, done=first)
        assert exe["ready"] == second
        run(exe)
        assert exe["x"].copy_to_host().tolist() == [7] * 4
        with pytest.raises(UpdateError, match="an event of somebody else") as caught:
            exe.update(ready="soon")
        assert caught.value.field == "ready"


def test_a_node_is_given_another_event_of_the_graph(device: Driver):
    graph = gd.Graph("demo")
    one, other = graph.event("one"), graph.event("other")
    graph.record(one, name="mark") >> graph.record(other)
    with graph.instantiate(device) as exe:
        exe.node("mark").update(event=other)
        run(exe)
        with pytest.raises(UpdateError) as caught:
            exe.node("mark").update(event=gd.Graph().event("strange"))
        assert (caught.value.node, caught.value.value) == ("mark", "strange")
        with pytest.raises(UpdateError, match="can be disabled"):
            exe.node("mark").disable()
        with pytest.raises(UpdateError, match="only events of others"):
            exe.update(one=4096)


def test_a_child_has_events_of_its_own_or_those_it_is_bound_to(device: Driver):
    inner = gd.Graph("inner")
    inner.record(inner.event("mine")) >> inner.record(inner.event("shared"))
    graph = gd.Graph("outer")
    shared = graph.event("shared", timing=True)
    graph.child(inner, {"shared": shared}, name="child")
    assert list(graph.operands) == ["shared", "child/mine"]
    with graph.instantiate(device) as exe:
        run(exe)
        assert exe["child/mine"].query()
        assert exe["shared"].timing


def test_an_event_in_a_body_is_refused_before_the_driver(device: Driver):
    graph = gd.Graph("demo")
    with graph.if_(graph.condition("taken", default=1), name="branch") as body:
        body.record(body.event("done"), name="mark")
    with pytest.raises(CheckError) as caught:
        graph.instantiate(device)
    assert [(each.code, each.node) for each in caught.value.report.errors] == [("GD501", "branch/then/mark")]


def test_an_event_outlives_its_exec_as_long_as_it_is_held(device: Driver):
    graph = gd.Graph("demo")
    graph.record(graph.event("done"))
    exe = graph.instantiate(device)
    run(exe)
    event = exe["done"]
    exe.close()
    assert event.query()


def test_a_graph_that_records_what_it_waits_for_waits_for_the_launch_before(device: Driver):
    graph = gd.Graph("demo")
    event = graph.event("turn")
    seen: list[int] = []
    graph.wait(event) >> graph.host(lambda: seen.append(len(seen)), name="count") >> graph.record(event)
    with graph.instantiate(device) as exe:
        for _ in range(3):
            exe.launch()
        exe.synchronize()
    assert seen == [0, 1, 2]
