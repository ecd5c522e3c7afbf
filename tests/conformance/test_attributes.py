"""Launch attributes: they reach the driver, kernels run by them, and what cannot run is refused by node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from llvmlite import ir
from numba import cuda
from numba.cuda import types
from numba.cuda.extending import intrinsic

import graphdsl as gd
from graphdsl.drivers.base import Driver
from graphdsl.drivers.structs import (
    ACCESS_POLICY_WINDOW,
    ATTRIBUTE_VALUES,
    CLUSTER_DIMENSION,
    CLUSTER_SCHEDULING_POLICY,
    COOPERATIVE,
    MEM_SYNC_DOMAIN,
    MEM_SYNC_DOMAIN_MAP,
    PRIORITY,
)
from graphdsl.plan import plan
from graphdsl.run.graph_exec import GraphExec
from tests.conformance import kernels
from tests.conformance.kernels import add_to
from tests.conformance.seam import INVALID_CLUSTER, INVALID_VALUE

COOPERATIVE_LAUNCH_TOO_LARGE = 720


@cuda.jit
def reversed_twice(x, y, rounds):
    """Reverses x through y, over and over: right only if all blocks wait for each other."""
    i = cuda.grid(1)
    grid = cuda.cg.this_grid()
    for _ in range(rounds):
        y[i] = x[x.size - 1 - i]
        grid.sync()
        x[i] = y[i] + 1
        grid.sync()


def added(size: int = 1024, block: int = 128, external: Any = None, **attributes: Any) -> gd.Graph:
    """One node that adds 1 to the first n numbers of x."""
    g = gd.Graph("added")
    n = g.param("n", np.int32, default=size)
    x = g.device_array("x", size, np.float32) if external is None else g.external("x", external)
    args = (x, np.float32(1), n)
    g.kernel(add_to, grid=gd.cdiv(n, block), block=block, args=args, name="add", **attributes)
    return g


def run(exe: GraphExec, size: int = 1024) -> np.ndarray:
    exe["x"].copy_from_host(np.zeros(size, np.float32))
    exe.launch()
    exe.synchronize()
    return exe["x"].copy_to_host()


def attribute(exe: GraphExec, name: str, number: int) -> Any:
    """What the driver has for an attribute of a node of the graph."""
    row = np.zeros(1, ATTRIBUTE_VALUES[number])
    handle = int(exe._sender.handles[exe._index[name]])
    exe.device.graph_kernel_node_get_attribute(handle, number, row.ctypes.data)
    return row[0]


# They reach the driver


@pytest.mark.parametrize(
    ("attributes", "number", "expected"),
    [
        ({"cooperative": True}, COOPERATIVE, (1,)),
        ({"cluster": (2, 1, 1)}, CLUSTER_DIMENSION, ([2, 1, 1],)),
        ({"cluster": 2, "cluster_policy": "spread"}, CLUSTER_SCHEDULING_POLICY, (1,)),
        ({"cluster": 2, "cluster_policy": "load_balancing"}, CLUSTER_SCHEDULING_POLICY, (2,)),
        ({"priority": -1}, PRIORITY, (-1,)),
        ({"priority": 0}, PRIORITY, (0,)),
        ({"sync_domain": "remote"}, MEM_SYNC_DOMAIN, (1,)),
        ({"sync_domain_map": {"default": 1, "remote": 2}}, MEM_SYNC_DOMAIN_MAP, (1, 2)),
    ],
)
def test_the_driver_has_what_was_given_and_the_kernel_runs(device: Driver, attributes, number, expected):
    with added(**attributes).instantiate(device) as exe:
        found = attribute(exe, "add", number)
        assert tuple(part.tolist() for part in found) == expected
        assert (run(exe) == 1).all()


def test_a_node_without_attributes_has_the_defaults_of_the_driver(device: Driver):
    with added().instantiate(device) as exe:
        assert attribute(exe, "add", COOPERATIVE)["cooperative"] == 0
        assert attribute(exe, "add", PRIORITY)["priority"] == 0


@pytest.mark.parametrize(("hit", "miss"), [("persisting", "streaming"), ("streaming", "normal"), ("normal", "normal")])
def test_a_window_lies_over_its_array(device: Driver, hit, miss):
    g = gd.Graph("windows")
    g.device_array("a", 100, np.int8)
    x = g.device_array("x", 1024, np.float32)
    policy = gd.AccessPolicy(x[256:512], hit_ratio=0.5, hit=hit, miss=miss)
    g.kernel(add_to, grid=8, block=128, args=(x, np.float32(1), 1024), name="add", access_policy=policy)
    with g.instantiate(device) as exe:
        found = attribute(exe, "add", ACCESS_POLICY_WINDOW)
        numbers = ["normal", "streaming", "persisting"]
        start = exe["x"].__cuda_array_interface__["data"][0]
        assert (int(found["base"]), int(found["nbytes"])) == (start + 1024, 1024)
        assert (found["hit_ratio"], found["hit"], found["miss"]) == (0.5, numbers.index(hit), numbers.index(miss))
        assert (run(exe) == 1).all()


def test_graphs_with_and_without_priorities_run(device: Driver):
    g = gd.Graph("priorities")
    x = g.device_array("x", 1024, np.float32)
    parts = [x[256 * i : 256 * (i + 1)] for i in range(4)]
    for i, part in enumerate(parts):
        options = {} if i == 3 else {"priority": -i}
        g.kernel(add_to, grid=2, block=128, args=(part, np.float32(i), 256), name=f"add{i}", **options)
    with g.instantiate(device) as exe:
        assert "flags=USE_NODE_PRIORITY" in str(exe.calls[-3])
        np.testing.assert_array_equal(run(exe), np.repeat(np.arange(4), 256))


def test_attributes_of_nodes_in_children_reach_the_driver(device: Driver):
    child = added(cluster=2, priority=-1)
    g = gd.Graph("outer")
    x = g.device_array("x", 1024, np.float32)
    g.child(child, {"x": x}, name="inner")
    with g.instantiate(device) as exe:
        assert attribute(exe, "inner/add", CLUSTER_DIMENSION)["dims"].tolist() == [2, 1, 1]
        assert any("USE_NODE_PRIORITY" in str(call) for call in exe.calls)
        assert (run(exe) == 1).all()


# Kernels run by them


@pytest.mark.parametrize(("grid", "block"), [(1, 32), (6, 32), (16, 8)])
def test_blocks_of_a_cooperative_launch_wait_for_each_other(device: Driver, grid, block):
    size = grid * block
    g = gd.Graph("cooperative")
    rounds = g.param("rounds", np.int32, default=3)
    x, y = g.device_array("x", size, np.int32), g.device_array("y", size, np.int32)
    g.kernel(reversed_twice, grid=grid, block=block, args=(x, y, rounds), name="reverse", cooperative=True)
    with g.instantiate(device) as exe:
        for count in (3, 4):
            exe.update(rounds=count)
            exe["x"].copy_from_host(np.arange(size, dtype=np.int32))
            exe.launch()
            exe.synchronize()
            expected = np.arange(size)[:: -1 if count % 2 else 1] + count
            np.testing.assert_array_equal(exe["x"].copy_to_host(), expected)


def test_updates_keep_the_attributes(device: Driver):
    with added(cluster=2, priority=-1).instantiate(device) as exe:
        for n in (512, 1024, 256):
            exe.update(n=n)
            np.testing.assert_array_equal(run(exe), np.arange(1024) < n)
        exe.node("add").update(args={"value": np.float32(3)})
        np.testing.assert_array_equal(run(exe), 3 * (np.arange(1024) < 256))
        for update in (lambda: exe.update(n=128 * 5), lambda: exe.node("add").update(grid=7)):
            with pytest.raises(gd.UpdateError) as caught:
                update()
            assert (caught.value.node, caught.value.field) == ("add", "cluster")
        exe.node("add").update(grid=8)
        np.testing.assert_array_equal(run(exe), 3 * (np.arange(1024) < 256))


def test_execs_have_shared_memory_above_48_kib_whatever_the_others_ask_for(device: Driver):
    def graph(nbytes: int) -> gd.Graph:
        g = gd.Graph("shared")
        n = g.param("n", np.int32, default=nbytes)
        x, out = g.device_array("x", 64, np.float32), g.device_array("out", 1, np.float32)
        g.kernel(kernels.sum_dynamic_shared, grid=1, block=64, args=(x, out), shared_bytes=n, name="sum")
        return g

    def works(exe: GraphExec) -> bool:
        exe["x"].copy_from_host(np.ones(64, np.float32))
        exe.launch()
        exe.synchronize()
        return exe["out"].copy_to_host()[0] == 64

    with graph(60_000).instantiate(device) as first, graph(90_000).instantiate(device) as second:
        assert works(first)
        assert works(second)
        first.update(n=98_000)
        second.update(n=1_000)
        with graph(50_000).instantiate(device) as third:
            assert works(first)
            assert works(second)
            assert works(third)
            third.node("sum").update(shared_bytes=97_000)
            assert works(third)
        second.update(n=90_000)
        assert works(second)


# What cannot run is refused by the driver itself, with the node's name


def unchecked(graph: gd.Graph, device: Driver) -> GraphExec:
    """An exec of a graph that the checks would refuse."""
    return GraphExec(plan(graph), device, {})


def _window(**options: Any) -> Callable[[gd.Graph], dict[str, Any]]:
    return lambda g: {"access_policy": gd.AccessPolicy(g.operands["x"], **options)}


@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        pytest.param(_window(hit_ratio=1.5), INVALID_VALUE, id="ratio"),
        pytest.param(_window(miss="persisting"), INVALID_VALUE, id="miss"),
        pytest.param(lambda g: {"cluster": 3}, INVALID_CLUSTER, id="divides"),
        pytest.param(lambda g: {"preferred_cluster": 4}, INVALID_VALUE, id="preferred"),
        pytest.param(lambda g: {"sync_domain_map": {"default": 0, "remote": 200}}, INVALID_VALUE, id="domains"),
    ],
)
def test_the_driver_refuses_what_the_checks_do(device: Driver, attributes, code):
    g = gd.Graph("refused")
    x = g.device_array("x", 4096, np.float32)
    args = (x, np.float32(1), 4096)
    g.kernel(add_to, grid=32, block=128, args=args, name="right")
    g.kernel(add_to, grid=32, block=128, args=args, name="wrong", **attributes(g))
    assert not g.check(device).ok
    with pytest.raises(gd.DriverError) as caught:
        unchecked(g, device)
    assert (caught.value.node, caught.value.code) == ("wrong", code)


@pytest.mark.parametrize("block", [1024, 96])
def test_a_cooperative_grid_fits_exactly_as_the_check_says(device: Driver, block):
    g = gd.Graph("residence")
    x = g.device_array("x", 1, np.float32)
    node = g.kernel(add_to, grid=1, block=block, args=(x, np.float32(1), 0), name="add", cooperative=True)
    most = _resident(g, device)
    node.grid = (most + 1, 1, 1)
    with pytest.raises(gd.DriverError) as caught:
        unchecked(g, device)
    assert (caught.value.node, caught.value.code) == ("add", COOPERATIVE_LAUNCH_TOO_LARGE)
    node.grid = (most, 1, 1)
    with unchecked(g, device) as exe:
        if not device.emulated:  # there it takes a while
            exe.launch()
            exe.synchronize()


def _resident(graph: gd.Graph, device: Driver) -> int:
    """Most blocks that the check lets a cooperative node have, by bisection."""
    low, high = 1, 1 << 20
    while high - low > 1:
        middle = (low + high) // 2
        graph.node("add").grid = (middle, 1, 1)
        low, high = (middle, high) if graph.check(device).ok else (low, middle)
    return low


# On a GPU, kernels see their clusters


@intrinsic
def cluster_blocks(typing_context):
    """Blocks in the cluster that the thread runs in."""

    def generate(context, builder, signature, args):
        kind = ir.FunctionType(ir.IntType(32), [])
        return builder.asm(kind, "mov.u32 $0, %cluster_nctarank;", "=r", [], side_effect=True)

    return types.int32(), generate


@cuda.jit
def note_cluster(out):
    if cuda.threadIdx.x == 0:
        out[cuda.blockIdx.x] = cluster_blocks()


@pytest.fixture
def gpu() -> Driver:
    found = gd.cuda(0)
    if not found.limits.max_cluster:
        pytest.skip("the GPU has no clusters")
    return found


def clusters(graph_exec: GraphExec) -> list[int]:
    graph_exec["out"].copy_from_host(np.zeros(32, np.int32))
    graph_exec.launch()
    graph_exec.synchronize()
    return graph_exec["out"].copy_to_host().tolist()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("attributes", "sizes"),
    [
        ({}, {1}),
        ({"cluster": 2}, {2}),
        ({"cluster": 8, "cluster_policy": "spread"}, {8}),
        ({"cluster": 16}, {16}),
        ({"cluster": 2, "preferred_cluster": 4}, {2, 4}),
        ({"cluster": 2, "cooperative": True}, {2}),
        ({"cluster": 4, "priority": -1, "sync_domain": "remote"}, {4}),
    ],
)
def test_blocks_run_in_the_clusters_that_were_asked_for(gpu: Driver, attributes, sizes):
    if "preferred_cluster" in attributes and not gpu.limits.preferred_clusters:
        pytest.skip("the GPU has no preferred clusters")
    g = gd.Graph("clusters")
    n = g.param("n", np.int32, default=32)
    out = g.device_array("out", 32, np.int32)
    g.kernel(note_cluster, grid=n, block=32, args=out, name="note", **attributes)
    with g.instantiate(gpu) as exe:
        assert set(clusters(exe)) <= sizes
        exe.update(n=16)
        found = clusters(exe)
        assert set(found[:16]) <= sizes
        assert set(found[16:]) == {0}
