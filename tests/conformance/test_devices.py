"""Graphs over two devices: the first two of an emulated computer always, and two GPUs where there are."""

from __future__ import annotations

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.device import set_condition
from graphdsl.drivers.base import Driver
from tests.conformance.kernels import add_to, scale

N = 256


@pytest.fixture(params=["emulator", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Driver:
    """The first of two devices or more."""
    if request.param == "emulator":
        return gd.emulator(devices=2)
    device = gd.cuda(0)
    if device.device_count < 2:
        pytest.skip("there is one GPU")
    return device


def ran(exe: gd.GraphExec) -> gd.GraphExec:
    exe.launch()
    exe.synchronize()
    return exe


def pipeline() -> gd.Graph:
    """A copy to each device, a kernel there, and a copy back; the second device works on what the first has made."""
    g = gd.Graph("pipeline")
    gain = g.param("gain", np.float32, default=2.0)
    raw, out = g.host_array("raw", N, np.float32), g.host_array("out", N, np.float32)
    x = g.device_array("x", N, np.float32, lifetime="persistent")
    with g.on(1):
        y, z = (g.device_array(name, N, np.float32, lifetime="persistent") for name in "yz")
    with g.sequence():
        g.memcpy(x, raw, name="load")
        g.kernel(scale, grid=1, block=N, args=(x, x, gain, N), name="first")
        g.memcpy(y, x, name="across")
        with g.on(1):
            g.kernel(scale, grid=1, block=N, args=(y, z, gain, N), name="second")
        g.memcpy(out, z, name="store")
    return g


def test_nodes_of_two_devices_in_one_graph(device):
    g = pipeline()
    assert [node.device for node in g.nodes] == [None, None, 1, 1, 1]
    with g.instantiate(device) as exe:
        exe["raw"][:] = np.arange(N)
        assert ran(exe)["out"].tolist() == [4.0 * i for i in range(N)]
        exe.update(gain=3.0)
        assert ran(exe)["out"].tolist() == [9.0 * i for i in range(N)]
        assert exe["z"].copy_to_host().tolist() == [9.0 * i for i in range(N)]
        assert exe["y"].copy_to_host().tolist() == [3.0 * i for i in range(N)]


def test_memory_is_where_the_graph_says(device):
    with pipeline().instantiate(device) as exe:
        places = [device.pointer_get_device(exe[name].address) for name in "xyz"]
        assert places == [0, 1, 1]
        assert [exe[name].device for name in "xy"] == [device, device.sibling(1)]
        exe["y"].copy_from_host(np.ones(N, np.float32))
        assert exe["y"].copy_to_host().tolist() == [1.0] * N


def test_a_graph_instantiated_on_the_second_device(device):
    with pipeline().instantiate(device.sibling(1)) as exe:
        exe["raw"][:] = 1
        assert ran(exe)["out"].tolist() == [4.0] * N
        assert device.pointer_get_device(exe["x"].address) == 1
        assert not any("device=" in str(call) for call in exe.calls)  # all of it is on one


def test_a_kernel_works_on_memory_of_the_other_device(device):
    if not device.device_can_access_peer(1):
        pytest.skip("the first GPU does not reach the memory of the second")
    g = gd.Graph("peer")
    out = g.host_array("out", N, np.float32)
    with g.on(1):
        y = g.device_array("y", N, np.float32)
    with g.sequence():
        g.memset(y, 1, name="ones")
        g.kernel(add_to, grid=1, block=N, args=(y, np.float32(2), N), name="add")
        g.memcpy(out, y, name="store")
    assert [node.device for node in g.nodes] == [1, None, 1]
    with g.instantiate(device) as exe:
        assert ran(exe)["out"].tolist() == [3.0] * N


def test_copies_push_and_pull(device):
    for number in (0, 1):
        g = gd.Graph("copies")
        raw, out = g.host_array("raw", N, np.int32), g.host_array("out", N, np.int32)
        with g.on(0):
            x, back = (g.device_array(name, N, np.int32) for name in ("x", "back"))
        with g.on(1):
            y = g.device_array("y", N, np.int32)
        with g.sequence():
            g.memcpy(x, raw)
            with g.on(number):
                g.memcpy(y, x)
                g.memcpy(back, y)
            g.memcpy(out, back)
        assert [node.device for node in g.nodes] == [0, number, number, 0]
        with g.instantiate(device) as exe:
            exe["raw"][:] = np.arange(N)
            assert ran(exe)["out"].tolist() == list(range(N))


def test_rows_are_copied_between_devices(device):
    g = gd.Graph("rows")
    raw, out = g.host_array("raw", (8, 32), np.int32), g.host_array("out", (8, 32), np.int32)
    x = g.device_array("x", (8, 32), np.int32)
    with g.on(1):
        y = g.device_array("y", (8, 64), np.int32)
    with g.sequence():
        g.memcpy(x, raw)
        g.memcpy(y[:, 32:], x)
        g.memcpy(out, y[:, 32:])
    with g.instantiate(device) as exe:
        exe["raw"][:] = np.arange(8 * 32).reshape(8, 32)
        assert ran(exe)["out"].tolist() == exe["raw"].tolist()


def test_pinned_memory_is_reached_from_both(device):
    g = gd.Graph("pinned")
    shared = g.host_array("shared", N, np.float32)
    with g.sequence():
        g.kernel(add_to, grid=1, block=N, args=(shared, np.float32(1), N))
        with g.on(1):
            g.kernel(add_to, grid=1, block=N, args=(shared, np.float32(10), N))
    with g.instantiate(device) as exe:
        exe["shared"][:] = 0
        assert ran(exe)["shared"].tolist() == [11.0] * N


def test_updates_of_nodes_on_both_devices(device):
    with pipeline().instantiate(device) as exe:
        exe["raw"][:] = 1
        exe.node("second").update(args={"gain": 5.0})
        assert ran(exe)["out"].tolist() == [10.0] * N
        exe.node("first").update(args={"n": 1})
        exe.node("second").disable()
        ran(exe)
        assert exe["y"].copy_to_host()[:2].tolist() == [2.0, 1.0]
        exe.node("second").enable()
        assert ran(exe)["out"][:2].tolist() == [10.0, 5.0]


def test_an_update_may_bring_in_memory_of_the_other_device(device):
    if not device.device_can_access_peer(1):
        pytest.skip("the first GPU does not reach the memory of the second")
    with pipeline().instantiate(device) as exe:
        exe["raw"][:] = 1
        g = exe.node("first").node.definition
        exe.node("first").update(args={"y": g.operands["z"]})
        exe.node("across").disable()
        exe.node("second").disable()
        assert ran(exe)["out"].tolist() == [2.0] * N


def test_node_by_node(device):
    with pipeline().instantiate(device) as exe:
        exe["raw"][:] = np.arange(N)
        exe.debug()
        assert exe["out"].tolist() == [4.0 * i for i in range(N)]


def test_clones(device):
    with pipeline().instantiate(device) as exe, exe.clone() as other:
        exe["raw"][:], other["raw"][:] = 1, 2
        exe.launch()
        other.launch()
        exe.synchronize()
        other.synchronize()
        assert (exe["out"][0], other["out"][0]) == (4.0, 8.0)


def test_external_memory_of_either_device(device):
    mine, theirs = (gd.to_device(where, np.ones(N, np.float32)) for where in (device, device.sibling(1)))
    g = gd.Graph("external")
    x, y = g.external("x", mine), g.external("y", theirs)
    assert (x.device, y.device) == (0, 1)
    with g.sequence():
        g.memcpy(y, x)
        with g.on(1):
            g.kernel(add_to, grid=1, block=N, args=(y, np.float32(1), N), name="add")
    with g.instantiate(device) as exe:
        ran(exe)
        assert theirs.copy_to_host().tolist() == [2.0] * N
        other = gd.to_device(device.sibling(1), np.zeros(N, np.float32))
        exe.update(y=other)
        ran(exe)
        assert other.copy_to_host().tolist() == [2.0] * N
        with pytest.raises(gd.UpdateError) as caught:
            exe.update(y=mine)
        assert caught.value.field == "y"
        assert ran(exe) is exe


class Silent:
    """Device memory whose owner does not tell which device has it."""

    def __init__(self, array: gd.DeviceArray) -> None:
        self.array = array
        self.__cuda_array_interface__ = array.__cuda_array_interface__


def test_external_memory_that_is_not_where_the_graph_says(device):
    theirs = Silent(gd.to_device(device.sibling(1), np.ones(N, np.float32)))
    g = gd.Graph("external")
    g.memset(g.external("y", theirs), 0)
    with pytest.raises(gd.GraphdslError, match="lies on device 1, and the graph says device 0") as caught:
        g.instantiate(device)
    assert caught.value.field == "y"
    g = gd.Graph("external")
    with g.on(1):
        g.memset(g.external("y", theirs), 0)
    with g.instantiate(device) as exe:
        ran(exe)
        assert theirs.array.copy_to_host().tolist() == [0.0] * N


def test_a_child_runs_where_its_node_is(device):
    double = gd.Graph("double")
    x = double.device_array("x", N, np.float32)
    own = double.device_array("own", N, np.float32)
    with double.sequence():
        double.memcpy(own, x, name="copy")
        double.kernel(scale, grid=1, block=N, args=(own, x, np.float32(2), N), name="scale")
    g = gd.Graph("parent")
    out = g.host_array("out", N, np.float32)
    with g.on(1), g.sequence():
        y = g.device_array("y", N, np.float32)
        g.kernel(scale, grid=1, block=N, args=(y, y, np.float32(0), N), name="clear")
        g.kernel(add_to, grid=1, block=N, args=(y, np.float32(3), N), name="three")
        g.child(double, {"x": y}, name="double")
        g.memcpy(out, y, name="store")
    assert [node.device for node in g.all_nodes if node.name.startswith("double/")] == [1, 1]
    assert g.operands["double/own"].device == 1
    with g.instantiate(device) as exe:
        exe["y"].copy_from_host(np.zeros(N, np.float32))
        assert ran(exe)["out"].tolist() == [6.0] * N


def halve(x, more):
    x[0] //= 2
    set_condition(more, x[0] > 1)


def test_a_conditional_node_on_the_second_device(device):
    g = gd.Graph("loop")
    out = g.host_array("out", 1, np.int32)
    with g.on(1):
        x = g.device_array("x", 1, np.int32)
        more = g.condition("more", default=1)
        with g.sequence():
            with g.while_(more, name="loop") as body:
                assert body.kernel(halve, grid=1, block=1, args=(x, more)).device == 1
            g.memcpy(out, x)
    with g.instantiate(device) as exe:
        exe["x"].copy_from_host(np.array([100], np.int32))
        assert ran(exe)["out"].tolist() == [1]


def test_events_of_either_device(device):
    g = pipeline()
    done = g.event("done")
    with g.on(1):
        there = g.event("there")
    g.record(done, after=g.node("first"))
    g.record(there, after=g.node("second"))
    with g.instantiate(device) as exe:
        exe["raw"][:] = 1
        exe.launch()
        exe["done"].synchronize()
        exe["there"].synchronize()
        exe.synchronize()
        assert exe["out"].tolist() == [4.0] * N


def test_calls_say_the_device_where_there_are_several(device):
    with pipeline().instantiate(device) as exe:
        calls = [str(call) for call in exe.calls]
    assert "cuMemAlloc(bytes=2048, holds=(y, z), device=1)" in calls
    assert any(call.startswith("cuGraphAddKernelNode(second") and call.endswith("device=1)") for call in calls)
    assert calls == [str(call) for call in pipeline().trace()] if device.emulated else True


def test_one_device_says_nothing_of_devices(device):
    g = gd.Graph("one")
    with g.on(0):
        g.memset(g.device_array("x", N, np.float32), 0)
    with g.instantiate(device) as exe:
        assert not any("device=" in str(call) for call in exe.calls)


def test_nothing_is_left(device):
    if not device.emulated:
        pytest.skip("the emulator counts what is live")
    with pipeline().instantiate(device) as exe:
        ran(exe)
    del exe
    assert not any(device.live.values())


def test_memory_that_the_graph_allocates_on_the_second_device(device):
    g = gd.Graph("alloc")
    out = g.host_array("out", N, np.float32)
    with g.on(1):
        scratch = g.alloc("scratch", N, np.float32)
    one = np.float32(1)
    with g.sequence():
        set_ = g.memset(scratch.array, 0, after=scratch)
        with g.on(1):
            g.kernel(add_to, grid=1, block=N, args=(scratch.array, one, N), name="there")
        if device.device_can_access_peer(1):
            g.kernel(add_to, grid=1, block=N, args=(scratch.array, one, N), name="here")
        g.memcpy(out, scratch.array)
        g.free(scratch)
    assert set_.device == 1
    with g.instantiate(device) as exe:
        expected = [2.0 if device.device_can_access_peer(1) else 1.0] * N
        for _ in range(2):
            assert ran(exe)["out"].tolist() == expected
        exe["out"][:] = 0
        exe.debug()
        assert exe["out"].tolist() == expected


def test_a_stream_of_the_other_device(device):
    other = device.sibling(1)
    stream = other.stream_create()
    first, second = (gd.to_device(device, np.full(N, value, np.float32)) for value in (1, 2))
    g = gd.Graph("elsewhere")
    out = g.host_array("out", N, np.float32)
    g.memcpy(out, g.external("x", first))
    with g.instantiate(device) as exe:
        exe.launch(stream)
        exe.update(x=second)  # what it replaces is released behind the launch, whatever its stream
        exe.launch(stream)
        exe.synchronize()
        assert exe["out"].tolist() == [2.0] * N
    other.stream_destroy(stream)
