"""What a profiler hears of execs: their making node by node, launches, updates; and that it costs nothing if deaf."""

from __future__ import annotations

import numpy as np
import pytest

import graphdsl as gd
from graphdsl import profiler
from graphdsl.drivers.results import driver_error
from graphdsl.errors import DriverError, UpdateError
from graphdsl.run.graph_exec import GraphExec
from tests.profiler import listen


def demo() -> gd.Graph:
    graph = gd.Graph("demo")
    count = graph.param("count", np.int64, default=2)
    x = graph.device_array("x", 4, np.uint8)
    with graph.sequence():
        with graph.scope("layer0"):
            graph.memset(x[:count], 1, name="set")
        graph.memset(x, 2, name="clear")
    return graph


def test_nodes_are_made_one_by_one_in_ranges_of_their_names(monkeypatch):
    device = gd.emulator()
    with demo().instantiate(device) as alone:
        calls, kind = list(map(str, alone.calls)), type(alone)
    heard = listen(monkeypatch)
    with profiler.labelled("batch=4"), demo().instantiate(device) as exe:
        assert heard.ranges == [
            (0, "instantiate demo [batch=4]"),
            (1, "node layer0/set"),
            (1, "node clear"),
        ]
        assert list(map(str, exe.calls)) == calls
        exe.launch()
        exe.synchronize()
        assert exe["x"].copy_to_host().tolist() == [2] * 4
    assert kind is GraphExec
    assert isinstance(exe, GraphExec)


def test_nodes_inside_of_others_and_allocations_are_named_too(monkeypatch):
    heard = listen(monkeypatch)
    graph = gd.Graph("demo")
    with graph.sequence():
        memory = graph.alloc("memory", 4, np.uint8, node="take").array
        graph.memset(memory, 1, name="set")
        graph.free(memory, name="give")
    graph.child(demo(), name="inner")
    with graph.instantiate(gd.emulator()):
        named = {name for name in heard.names if name.startswith("node ")}
    assert named == {f"node {name}" for name in ("take", "set", "give", "inner", "inner/layer0/set", "inner/clear")}


def test_launches_updates_and_clones_are_ranges(monkeypatch):
    heard = listen(monkeypatch)
    with demo().instantiate(gd.emulator()) as exe:
        heard.ranges.clear()
        exe.launch()
        exe.update(count=3)
        exe.node("clear").update(value=5)
        exe.node("clear").disable()
        exe.update_from(demo())
        with exe.clone() as other:
            other.launch()
    kept = [name for name in heard.names if not name.startswith("node ")]
    assert kept == [
        "launch demo",
        "update demo: count",
        "update demo: node clear",
        "switch demo: node clear",
        "update demo from a graph",
        "clone demo",
        "instantiate demo",
        "launch demo",
    ]
    assert heard.open == []


def test_a_node_that_is_refused_is_named_and_its_range_ends(monkeypatch):
    heard = listen(monkeypatch)
    device = gd.emulator()
    add = type(device).graph_add_memset_node
    made: list[int] = []

    def refuse_the_second(self, graph, params):
        made.append(params)
        if len(made) == 2:
            raise driver_error("cuGraphAddMemsetNode", 1)
        return add(self, graph, params)

    monkeypatch.setattr(type(device), "graph_add_memset_node", refuse_the_second)
    with pytest.raises(DriverError) as caught:
        demo().instantiate(device)
    assert caught.value.node == "clear"
    assert heard.open == []


def test_an_update_that_is_refused_ends_its_range(monkeypatch):
    heard = listen(monkeypatch)
    with demo().instantiate(gd.emulator()) as exe, pytest.raises(UpdateError):
        exe.update(count="many")
    assert heard.open == []


def test_a_launch_without_a_listener_runs_the_same_code_as_ever():
    with demo().instantiate(gd.emulator()) as exe:
        assert type(exe).launch is GraphExec.launch
        assert type(exe).update is GraphExec.update
