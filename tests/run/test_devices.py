"""What an exec asks of the devices of a computer: those that its graph names, and no more than it needs."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cuda

import graphdsl as gd
from graphdsl.run.devices import Devices, targets
from tests.check.conftest import scale

N = 16


@cuda.jit
def twice(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = 2 * x[i]


def two(kernel_on: int = 1, memory_on: int = 1) -> gd.Graph:
    g = gd.Graph("two")
    with g.on(memory_on):
        y = g.device_array("y", N, np.float32)
    with g.on(kernel_on):
        g.kernel(scale, grid=1, block=N, args=(y, y, np.float32(2), N), name="run")
    return g


def history(device: gd.Driver, g: gd.Graph) -> list[str]:
    with g.instantiate(device):
        return list(device.history)


def test_devices_that_the_graph_does_not_name_are_not_asked(monkeypatch):
    device = gd.emulator(devices=8)
    asked = []
    monkeypatch.setattr(type(device), "sibling", lambda self, ordinal: asked.append(ordinal) or self._siblings[ordinal])
    with two(0, 0).instantiate(device):
        assert asked == []
    with two().instantiate(device):
        assert set(asked) == {1}


def test_a_graph_of_one_device_asks_for_no_peer():
    calls = history(gd.emulator(devices=2), two(0, 0))
    assert not {"cuDeviceCanAccessPeer", "cuCtxEnablePeerAccess"} & set(calls)


def test_peer_access_is_enabled_where_it_is_needed_and_once_for_an_exec():
    assert "cuCtxEnablePeerAccess" not in history(gd.emulator(devices=2), two())
    g = two(kernel_on=0)
    with g.on(0):
        g.kernel(scale, grid=1, block=N, args=(g.operands["y"], g.operands["y"], np.float32(2), N), name="again")
    g.independent(g.nodes, g.nodes, why="this is about calls")
    device = gd.emulator(devices=2)
    with g.instantiate(device) as exe:
        assert device.history.count("cuCtxEnablePeerAccess") == 1
        assert [str(call) for call in exe.calls if "Peer" in call.function] == [
            "cuCtxEnablePeerAccess(device=0, peer=1)"
        ]


def test_devices_are_found_by_the_numbers_of_nodes():
    home = gd.emulator(devices=3).sibling(2)
    devices = Devices(home)
    assert not devices.several
    assert devices.said(None) == {}
    devices.include([None, 2])
    assert not devices.several
    devices.include([0])
    assert devices.several
    assert devices[None] is devices[2] is home
    assert devices[0] is home.sibling(0)
    assert (devices.said(None), devices.said(0)) == ({"device": 2}, {"device": 0})


def test_targets_are_those_of_the_devices_that_are_named():
    device = gd.emulator(target=["sm_90", "sm_80", "sm_75"], peer_access=False)
    made = targets(device.sibling(1), [None, 0, 5])
    assert (made.home, made.count, sorted(made.limits)) == (1, 3, [0, 1])
    assert made.apart == {(0, 1), (1, 0)}
    assert made.limits_of(None).compute_capability == (8, 0)


def test_each_device_has_a_stream_for_copies_of_its_own():
    device = gd.emulator(devices=2)
    with two().instantiate(device) as exe:
        before = device.live["streams"]
        for _ in range(2):
            exe["y"].copy_from_host(np.ones(N, np.float32))
        assert device.live["streams"] == before + 1
    assert device.live["streams"] == 0


def test_a_refused_graph_leaves_nothing_on_any_device():
    device = gd.emulator(devices=2)
    device.fail_next("cuGraphAddKernelNode", 1)
    with pytest.raises(gd.DriverError):
        two().instantiate(device)
    live = {**device.live, "libraries": 0}  # kernels go with their image
    assert not any(live.values())


def test_an_update_of_the_whole_keeps_the_devices_of_nodes():
    device = gd.emulator(devices=2)
    with two().instantiate(device) as exe:
        with pytest.raises(gd.UpdateError, match="an update keeps the device of a node") as caught:
            exe.update_from(two(kernel_on=0))
        assert (caught.value.node, caught.value.field) == ("run", "device")
        assert not exe.update_from(two()).reinstantiated
        assert exe.update_from(two(kernel_on=0), on_mismatch="reinstantiate").reinstantiated
        exe["y"].copy_from_host(np.ones(N, np.float32))
        exe.launch()
        exe.synchronize()


def test_graph_memory_is_shared_with_the_devices_that_use_it_when_it_is_built():
    g = gd.Graph("alloc")
    args = (np.float32(2), N)
    with g.on(1):
        z = g.device_array("z", N, np.float32)
        scratch = g.alloc("scratch", N, np.float32)
        inside = g.kernel(scale, grid=1, block=N, args=(z, scratch.array, *args), name="inside", after=scratch)
    outside = g.kernel(scale, grid=1, block=N, args=(z, z, *args), name="outside", after=inside)
    g.free(scratch, after=outside)
    with g.instantiate(gd.emulator(devices=2)) as exe:
        with pytest.raises(gd.UpdateError, match="device 0 is none of them") as caught:
            exe.node("outside").update(args={"y": scratch.array})
        assert (caught.value.node, caught.value.value) == ("outside", "scratch")
        exe.node("inside").update(args={"x": scratch.array})


def test_shared_memory_is_raised_on_each_device():
    g = gd.Graph("shared")
    size = g.param("size", np.int32, default=1024)
    raw = g.host_array("raw", N, np.float32)
    for number in (0, 1):
        with g.on(number):
            g.kernel(scale, grid=1, block=N, args=(raw, raw, np.float32(1), N), shared_bytes=size)
    g.independent(g.nodes, g.nodes, why="this is about calls")
    with g.instantiate(gd.emulator(devices=2)) as exe:
        exe.update(size=100_000)
        assert [kernel.allowed_shared_bytes for kernel in exe._shadow.packing.kernels] == [100_000, 100_000]


@given(st.lists(st.tuples(st.sampled_from([None, 0, 1, 2]), st.booleans()), min_size=1, max_size=6), st.integers(0, 2))
@settings(max_examples=25, deadline=None)
def test_a_chain_gives_the_same_wherever_its_links_are(links, home):
    """Each link is an array on a device, copied to from the one before or doubled from it by a kernel."""
    g = gd.Graph("chain")
    raw, out = g.host_array("raw", N, np.float32), g.host_array("out", N, np.float32)
    expected = 1.0
    last = raw
    with g.sequence():
        for number, (device, doubled) in enumerate(links):
            with nullcontext() if device is None else g.on(device):
                here = g.device_array(f"x{number}", N, np.float32)
                if doubled:
                    g.kernel(twice, grid=1, block=N, args=(last, here))
                    expected *= 2
                else:
                    g.memcpy(here, last)
            last = here
        g.memcpy(out, last)
    device = gd.emulator(devices=3).sibling(home)
    with g.instantiate(device) as exe:
        exe["raw"][:] = 1
        exe.launch()
        exe.synchronize()
        assert set(exe["out"].tolist()) == {expected}
        assert [device.pointer_get_device(exe.addresses[f"x{i}"]) for i in range(len(links))] == [
            home if number is None else number for number, _ in links
        ]
