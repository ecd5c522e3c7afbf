"""What launches, updates and builds cost, in things that can be counted: driver calls, evaluations, objects.

Times differ from machine to machine; these numbers do not. A regression of cost shows here first.
"""

from __future__ import annotations

import gc
from collections import Counter

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.bench.measure import heap_growth
from graphdsl.bench.shapes import ELEMENTS, node_name, shape
from graphdsl.declare.expressions import Expr

SET = "cuGraphExecKernelNodeSetParams"
NODES = 100


@pytest.fixture
def device():
    return gd.emulator()


@pytest.fixture
def exe(device):
    with shape("chain", NODES).instantiate(device, values={"n": 1}) as graph_exec:
        graph_exec["x"].copy_from_host(np.zeros(ELEMENTS))
        device.history.clear()
        yield graph_exec


def calls(device) -> dict[str, int]:
    """How often each driver function was called since the last look."""
    found = Counter(device.history)
    device.history.clear()
    return dict(found)


# Building


def test_a_build_makes_one_call_for_each_node_and_one_for_all_edges(device):
    with shape("diamond", NODES).instantiate(device):
        assert calls(device) == {
            "cuStreamCreate": 1,
            "cuLibraryLoadData": 1,  # one kernel, however many nodes
            "cuLibraryGetKernel": 1,
            "cuKernelGetParamInfo": 1,
            "cuMemAlloc": 1,
            "cuGraphCreate": 1,
            "cuGraphAddKernelNode": NODES,
            "cuGraphAddDependencies": 1,
            "cuGraphInstantiateWithParams": 1,
            "cuGraphUpload": 1,
            "cuStreamSynchronize": 1,  # so that the first launch does not wait for the upload
        }


def test_a_second_exec_loads_nothing(device):
    graph = shape("chain", NODES)
    with graph.instantiate(device):
        device.history.clear()
        with graph.instantiate(device):
            assert not {call for call in calls(device) if call.startswith(("cuLibrary", "cuKernel", "cuModule"))}


# Launching


def test_the_first_launch_is_one_call_and_so_are_all_others(device, exe):
    for _ in range(3):
        exe.launch()
        assert calls(device) == {"cuGraphLaunch": 1}
        exe.synchronize()
        assert calls(device) == {"cuStreamSynchronize": 1}


def test_a_stream_of_the_users_costs_no_call_more(device, exe):
    stream = device.stream_create()
    device.history.clear()
    exe.launch(stream)
    assert calls(device) == {"cuGraphLaunch": 1}
    exe.synchronize()
    device.stream_destroy(stream)


# Updating


@pytest.mark.parametrize("touched", [0, 1, 10, NODES])
def test_an_update_reaches_the_nodes_that_follow_and_no_other(device, touched):
    with shape("chain", NODES, touched=touched).instantiate(device) as exe:
        device.history.clear()
        exe.update(gain=2.0)
        assert calls(device) == ({SET: touched} if touched else {})
        exe.update(gain=2.0)
        assert calls(device) == {}  # it has that value
        exe.update(gain=3.0, n=64)
        assert calls(device) == {SET: NODES}  # each once, though two values of some changed


def test_a_grid_that_stays_the_same_is_not_sent(device):
    graph = gd.Graph("blocks")
    n = graph.param("n", np.int32, default=10)
    x = graph.device_array("x", 64, np.float32)
    graph.kernel(fill, grid=gd.cdiv(n, 32), block=32, args=(x,))
    with graph.instantiate(device) as exe:
        device.history.clear()
        exe.update(n=20)
        assert calls(device) == {}
        exe.update(n=33)
        assert calls(device) == {SET: 1}


def fill(x):
    x[0] = 1


def test_updating_a_node_is_one_call(device, exe):
    exe.node(node_name(7)).update(args={"gain": 4.0})
    assert calls(device) == {SET: 1}
    exe.node(node_name(7)).update(block=16)
    assert calls(device) == {SET: 1}
    exe.node(node_name(7)).disable()
    assert calls(device) == {"cuGraphNodeSetEnabled": 1}


def test_an_update_that_is_refused_makes_no_call(device, exe):
    with pytest.raises(gd.UpdateError):
        exe.update(gain="much")
    with pytest.raises(gd.UpdateError):
        exe.update(gain=2.0, n=-(2**31))  # a grid of no blocks
    assert calls(device) == {}


def test_an_expression_is_evaluated_once_however_many_nodes_share_it(device, monkeypatch):
    evaluated = Counter()
    for kind in expression_kinds(Expr):
        if "evaluate" in vars(kind):
            monkeypatch.setattr(kind, "evaluate", counted(kind.evaluate, evaluated))
    counts = {}
    for nodes in (10, NODES):
        with shape("chain", nodes).instantiate(device) as exe:
            exe.update(n=64)
            evaluated.clear()
            exe.update(n=32)
            counts[nodes] = sum(evaluated.values())
    assert counts[10] == counts[NODES] <= 4


def expression_kinds(kind):
    return [kind, *(below for sub in kind.__subclasses__() for below in expression_kinds(sub))]


def counted(evaluate, evaluated):
    def counting(self, *args, **options):
        evaluated[type(self).__name__] += 1
        return evaluate(self, *args, **options)

    return counting


# Objects


def actions(exe):
    """Everything that is done thousands of times a second; each call changes something."""
    sign = [1.0]

    def turned() -> float:
        sign[0] = -sign[0]
        return sign[0]

    stream = exe.device.stream_create()
    return {
        "update": lambda: exe.update(gain=turned()),
        "update of a grid": lambda: exe.update(n=48 + int(16 * turned())),
        "update of two": lambda: exe.update(gain=turned(), n=48 + int(16 * turned())),
        "update of a node": lambda: exe.node(node_name(0)).update(args={"gain": turned()}),
        "update of a node's block": lambda: exe.node(node_name(1)).update(block=24 + int(8 * turned())),
        "disable": lambda: exe.node(node_name(2)).disable(),
        "launch": lambda: (exe.launch(), exe.synchronize()),
        "launch into a stream": lambda: (exe.launch(stream), exe.synchronize()),
    }


NAMES = list(actions(type("Exec", (), {"device": gd.emulator()})()))


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_left_of_what_is_done_often(device, name):
    device.history.extend(["filler"] * device.history.maxlen)  # the emulator keeps the last names: full, it stays so
    with shape("chain", 3).instantiate(device, values={"n": 1}) as exe:
        exe["x"].copy_from_host(np.zeros(ELEMENTS))
        action, often = actions(exe)[name], 100 if "launch" in name else 300
        for _ in range(30):
            action()
        gc.collect()
        before = len(gc.get_objects())
        for _ in range(often):
            action()
        gc.collect()
        assert len(gc.get_objects()) - before <= 1
        assert heap_growth(action, often) < 16 * often  # not even a number for each call


def test_updates_between_launches_release_what_they_replaced(device):
    graph = gd.Graph("rebound")
    x = graph.external("x", gd.to_device(device, np.zeros(4, np.float32)))
    graph.kernel(fill, grid=1, block=1, args=(x,))
    with graph.instantiate(device) as exe:
        for _ in range(20):
            exe.update(x=gd.to_device(device, np.zeros(4, np.float32)))
            exe.launch()
        exe.synchronize()
        gc.collect()
        assert device.live["allocations"] <= 2  # what is bound now, and what the definition holds
