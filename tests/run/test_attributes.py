"""Launch attributes on their way to the driver: none is lost, and nodes without any cost nothing."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.declare.attributes import ATTRIBUTES
from graphdsl.drivers.structs import ACCESS_POLICY_WINDOW, PRIORITY
from tests.conformance import kernels
from tests.conformance.test_attributes import attribute

SET = "cuGraphKernelNodeSetAttribute"


def graph(grid=4, size=1024, **attributes) -> gd.Graph:
    g = gd.Graph("demo")
    x = g.device_array("x", size, np.float32)
    g.kernel(kernels.add_to, grid=grid, block=256, args=(x, np.float32(1), size), name="add", **attributes)
    return g


def test_every_attribute_is_a_call_in_the_order_of_the_driver():
    g = graph(
        cooperative=True,
        cluster=2,
        preferred_cluster=4,
        cluster_policy="load_balancing",
        priority=-2,
        sync_domain="remote",
        sync_domain_map={"default": 0, "remote": 2},
    )
    calls = [str(call) for call in g.trace("sm_100") if call.function in (SET, "cuGraphInstantiateWithParams")]
    assert calls == [
        f"{SET}(add, COOPERATIVE=True)",
        f"{SET}(add, CLUSTER_DIMENSION=(2, 1, 1))",
        f"{SET}(add, CLUSTER_SCHEDULING_POLICY_PREFERENCE=load_balancing)",
        f"{SET}(add, PRIORITY=-2)",
        f"{SET}(add, MEM_SYNC_DOMAIN_MAP=(0, 2))",
        f"{SET}(add, MEM_SYNC_DOMAIN=remote)",
        f"{SET}(add, PREFERRED_CLUSTER_DIMENSION=(4, 1, 1))",
        "cuGraphInstantiateWithParams(demo, flags=USE_NODE_PRIORITY)",
    ]


def test_a_graph_without_attributes_makes_no_call_for_them():
    device = gd.emulator()
    with graph().instantiate(device) as exe:
        assert SET not in device.history
        assert str(exe.calls[-3]) == "cuGraphInstantiateWithParams(demo)"


def test_attributes_are_set_in_canonical_order():
    def made(names):
        g = gd.Graph("demo")
        x = g.device_array("x", 256, np.float32)
        for name in names:
            g.kernel(kernels.add_to, grid=1, block=256, args=(x, np.float32(1), 256), name=name, priority=-1)
        g.independent(g.nodes, g.nodes, why="this is about calls")
        return [str(call) for call in g.trace()]

    assert made("abc") == made("cab")


def test_a_window_lies_where_its_array_does():
    g = gd.Graph("demo")
    g.device_array("a", 100, np.int8)
    x = g.device_array("x", 1024, np.float32)
    policy = gd.AccessPolicy(x[256:512], hit_ratio=0.5, hit="streaming", miss="normal")
    g.kernel(kernels.add_to, grid=4, block=256, args=(x, np.float32(1), 1024), name="add", access_policy=policy)
    with g.instantiate(gd.emulator()) as exe:
        found = attribute(exe, "add", ACCESS_POLICY_WINDOW)
        start = exe["x"].__cuda_array_interface__["data"][0]
        assert found.tolist() == (start + 1024, 1024, 0.5, 1, 0)


def test_a_window_that_no_kernel_reads_is_an_operand_all_the_same():
    g = graph(access_policy=gd.AccessPolicy(gd.Graph("other").device_array("y", 8, np.float32)))
    assert [(found.code, found.field) for found in g.check(compile=False)] == [("GD105", "access_policy")]


def test_external_memory_below_a_window_stays():
    device = gd.emulator()
    first, second = (gd.to_device(device, np.zeros(1024, np.float32)) for _ in range(2))
    g = gd.Graph("demo")
    x = g.external("x", first)
    policy = gd.AccessPolicy(x)
    g.kernel(kernels.add_to, grid=4, block=256, args=(x, np.float32(1), 1024), name="add", access_policy=policy)
    with g.instantiate(device) as exe:
        exe.update(x=first)
        with pytest.raises(gd.UpdateError, match="access_policy") as caught:
            exe.update(x=second)
        assert (caught.value.node, caught.value.field) == ("add", "x")
        assert exe["x"] is first
        exe.launch()
        exe.synchronize()
        assert (first.copy_to_host() == 1).all()


def test_large_clusters_are_allowed_once_for_each_kernel():
    g = graph(16, cluster=16)
    x = g.operands["x"]
    g.kernel(kernels.add_to, grid=32, block=256, args=(x, np.float32(1), 1024), cluster=8, preferred_cluster=16)
    g.independent(g.nodes, g.nodes, why="this is about calls")
    calls = [str(call) for call in g.trace("sm_100") if "NON_PORTABLE" in str(call)]
    assert calls == ["cuKernelSetAttribute(add_to, NON_PORTABLE_CLUSTER_SIZE_ALLOWED=1)"]


class TestSharedMemory:
    """More than 48 KiB is allowed for the user, and what one node was allowed no other takes away."""

    def graph(self, nbytes: int) -> gd.Graph:
        g = gd.Graph("shared")
        n = g.param("n", np.int32, default=nbytes)
        x, out = g.device_array("x", 64, np.float32), g.device_array("out", 1, np.float32)
        g.kernel(kernels.sum_dynamic_shared, grid=1, block=64, args=(x, out), shared_bytes=n, name="sum")
        return g

    def test_the_most_over_nodes_execs_and_updates_stays_allowed(self):
        device = gd.emulator()
        small, large = self.graph(60_000).instantiate(device), self.graph(150_000).instantiate(device)
        small.update(n=100_000)
        small.update(n=1_000)
        large.update(n=149_000)
        large.node("sum").update(shared_bytes=200_000)
        third = self.graph(50_000).instantiate(device)
        for exe in (small, large, third):
            exe["x"].copy_from_host(np.ones(64, np.float32))
            exe.launch()
            exe.synchronize()
            assert exe["out"].copy_to_host()[0] == 64
        with pytest.raises(gd.UpdateError) as caught:
            third.update(n=300_000)
        assert caught.value.field == "shared_bytes"
        third.update(n=200_000)

    def test_execs_that_ask_at_once_get_the_most(self):
        device = gd.emulator()
        exe = self.graph(0).instantiate(device)
        kernel = exe._shadow.packing.kernels[0]
        at_driver = []
        first_asks = threading.Event()

        def slow(handle: int, nbytes: int) -> None:
            first_asks.set()
            at_driver.append(nbytes)

        device.kernel_set_max_shared_bytes = slow
        threads = [threading.Thread(target=kernel.allow_shared_bytes, args=(nbytes,)) for nbytes in (90_000, 60_000)]
        with kernel._lock:
            for thread in threads:
                thread.start()
            assert not first_asks.wait(0.05), "one at a time"
        for thread in threads:
            thread.join()
        assert max(at_driver) == at_driver[-1] == 90_000


@pytest.mark.parametrize("field", ATTRIBUTES)
def test_no_update_changes_an_attribute(field):
    with graph(cluster=2).instantiate(gd.emulator()) as exe:
        with pytest.raises(gd.UpdateError, match="carries no attributes") as caught:
            exe.node("add").update(**{field: 2})
        assert (caught.value.node, caught.value.field) == ("add", field)


def test_a_clone_has_the_same_attributes():
    device = gd.emulator()
    g = graph(priority=-1, cluster=2)
    with g.instantiate(device) as exe, exe.clone() as clone:
        assert [str(call) for call in clone.calls if call.function == SET] == [
            str(call) for call in exe.calls if call.function == SET
        ]
        assert attribute(clone, "add", PRIORITY)["priority"] == -1


def test_priorities_reach_the_driver_as_they_were_given():
    with graph(priority=-1).instantiate(gd.emulator()) as exe:
        assert attribute(exe, "add", PRIORITY)["priority"] == -1
