"""Nothing half-done: failed builds free what they made, failed updates leave the values before in force."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import graphdsl as gd
from tests.conformance import kernels

OUT_OF_MEMORY = 2
LAUNCH_OUT_OF_RESOURCES = 701


def graph_of_every_kind() -> gd.Graph:
    g = gd.Graph("every kind")
    n = g.param("n", np.int32, default=8)
    value = g.param("value", np.float32, default=1.0)
    x = g.device_array("x", 8, np.float32, lifetime="persistent")
    h = g.host_array("h", 8, np.float32)
    with g.sequence():
        g.memset(x, value, name="set")
        g.kernel(kernels.add_to, grid=1, block=8, args=(x, value, n), shared_bytes=50_000, name="add0")
        g.kernel(kernels.add_to, grid=1, block=8, args=(x, value, n), name="add1")
        g.kernel(kernels.add_to, grid=1, block=8, args=(x, value, n), name="add2")
        g.empty(name="barrier")
        g.memcpy(h, x, name="store")
        g.host(lambda number: None, (value,), name="tell")
    return g


def building_calls() -> list[str]:
    """The driver calls that an instantiate makes, each as often as it is made."""
    device = gd.emulator()
    graph_exec = graph_of_every_kind().instantiate(device)
    calls = list(device.history)
    graph_exec.close()
    return calls


CALLS = building_calls()
STEPS = [(call, CALLS[:i].count(call)) for i, call in enumerate(CALLS)]


def test_every_kind_of_call_is_tried():
    assert {"cuMemAlloc", "cuGraphAddKernelNode", "cuGraphInstantiateWithParams", "cuGraphUpload"} <= set(CALLS)


@pytest.mark.parametrize(("call", "after"), STEPS)
def test_a_failed_build_leaves_nothing_behind(call, after):
    device = gd.emulator()
    device.fail_next(call, OUT_OF_MEMORY, after=after)
    with pytest.raises(gd.DriverError) as caught:
        graph_of_every_kind().instantiate(device)
    assert caught.value.call == call
    assert caught.value.code == OUT_OF_MEMORY
    del caught
    gc.collect()
    assert not any(device.live.values()), device.live
    with graph_of_every_kind().instantiate(device) as exe:
        exe.launch()
        exe.synchronize()
        assert (exe["h"] == 4).all()


def test_a_refused_node_is_named_with_its_line():
    device = gd.emulator()
    device.fail_next("cuGraphAddKernelNode", LAUNCH_OUT_OF_RESOURCES, after=1)
    with pytest.raises(gd.DriverError, match="add1") as caught:
        graph_of_every_kind().instantiate(device)
    assert caught.value.node == "add1"
    assert caught.value.location[0] == __file__
    assert caught.value.code_name == "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"


@pytest.mark.parametrize("call", ["cuMemAlloc", "cuGraphInstantiateWithParams", "cuGraphNodeSetEnabled"])
def test_a_failed_clone_leaves_nothing_behind(call):
    device = gd.emulator()
    with graph_of_every_kind().instantiate(device) as exe:
        exe.node("add1").disable()
        before = device.live
        device.fail_next(call, OUT_OF_MEMORY)
        with pytest.raises(gd.DriverError) as caught:
            exe.clone()
        assert caught.value.call == call
        del caught
        gc.collect()
        assert device.live == before
        with exe.clone() as twin:
            assert result(twin) == 3.0


def result(exe) -> float:
    exe.launch()
    exe.synchronize()
    assert (exe["h"] == exe["h"][0]).all()
    return float(exe["h"][0])


SET_CALLS = [
    ("cuGraphExecMemsetNodeSetParams", 0),
    ("cuGraphExecKernelNodeSetParams", 0),
    ("cuGraphExecKernelNodeSetParams", 1),
    ("cuGraphExecKernelNodeSetParams", 2),
    ("cuGraphExecHostNodeSetParams", 0),
]


@pytest.mark.parametrize(("call", "after"), SET_CALLS)
def test_a_refused_update_leaves_the_values_before_in_force(call, after):
    device = gd.emulator()
    with graph_of_every_kind().instantiate(device) as exe:
        device.fail_next(call, OUT_OF_MEMORY, after=after)
        with pytest.raises(gd.DriverError) as caught:
            exe.update(value=10.0)
        assert caught.value.call == call
        assert caught.value.node is not None
        assert exe["value"] == 1.0
        assert result(exe) == 4.0
        exe.update(value=10.0)
        assert result(exe) == 40.0


def test_a_refused_update_of_one_node_leaves_it_as_it_was():
    device = gd.emulator()
    with graph_of_every_kind().instantiate(device) as exe:
        device.fail_next("cuGraphExecKernelNodeSetParams", OUT_OF_MEMORY)
        with pytest.raises(gd.DriverError, match="add1"):
            exe.node("add1").update(args={"value": 100.0})
        assert result(exe) == 4.0
        exe.update(value=2.0)
        assert result(exe) == 8.0, "add1 still follows the param"


def test_an_exec_whose_values_cannot_be_restored_says_so():
    device = gd.emulator()
    with graph_of_every_kind().instantiate(device) as exe:
        device.fail_next("cuGraphExecKernelNodeSetParams", OUT_OF_MEMORY, after=1)
        device.fail_next("cuGraphExecKernelNodeSetParams", OUT_OF_MEMORY, after=2)
        with pytest.raises(gd.ExecUnusableError, match="add1") as caught:
            exe.update(value=10.0)
        assert "Instantiate the graph again" in str(caught.value)
        for call in (exe.launch, exe.synchronize, lambda: exe.update(value=1.0), lambda: exe["x"]):
            with pytest.raises(gd.ExecUnusableError, match="could not be restored"):
                call()


def test_only_touched_nodes_reach_the_driver():
    device = gd.emulator()
    with graph_of_every_kind().instantiate(device) as exe:
        exe.update(value=3.0)
        device.history.clear()
        exe.update(value=3.0)
        assert not device.history
        exe.update(n=4)
        assert list(device.history) == ["cuGraphExecKernelNodeSetParams"] * 3


def test_a_grid_that_stays_the_same_costs_nothing():
    g = gd.Graph("grids")
    n = g.param("n", np.int32, default=100)
    x = g.device_array("x", 1024, np.float32)
    g.kernel(kernels.add_to, grid=gd.cdiv(n, 256), block=256, args=(x, 1.0, 100), name="fixed")
    device = gd.emulator()
    with g.instantiate(device) as exe:
        device.history.clear()
        exe.update(n=200)
        assert not device.history
        exe.update(n=300)
        assert list(device.history) == ["cuGraphExecKernelNodeSetParams"]


def test_a_collected_exec_frees_everything():
    device = gd.emulator()
    exe = graph_of_every_kind().instantiate(device)
    exe.launch()
    view, array = exe["h"], exe["x"]
    del exe
    gc.collect()
    view[:] = 1
    del view, array
    gc.collect()
    assert not any(device.live.values()), device.live


def test_faults_name_the_node():
    g = gd.Graph("faulty")
    n = g.param("n", np.int32, default=8)
    x, out = g.device_array("x", 8, np.float32, lifetime="persistent"), g.host_array("out", 8, np.float32)
    run = g.kernel(kernels.scale, grid=1, block=16, args=(x, out, 1.0, n), name="scale")
    g.memset(x, 0, name="clear") >> run
    with g.instantiate(gd.emulator()) as exe:
        exe.update(n=16)
        exe.launch()
        with pytest.raises(gd.MemoryFault, match="scale") as caught:
            exe.synchronize()
        assert caught.value.node == "scale"
        exe.node("clear").disable()
        exe.update(n=8)
        exe.launch()
        exe.synchronize()


def test_reading_what_was_never_written_is_a_fault():
    g = gd.Graph("unwritten")
    x, out = g.device_array("x", 8, np.float32), g.host_array("out", 8, np.float32)
    g.memcpy(out, x, name="store")
    with g.instantiate(gd.emulator()) as exe:
        exe.launch()
        with pytest.raises(gd.MemoryFault, match="never") as caught:
            exe.synchronize()
        assert caught.value.node == "store"
