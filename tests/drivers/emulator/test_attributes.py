"""Launch attributes of kernel nodes: what is kept, what is refused when it is set, and what when a graph is made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from graphdsl.compile.placement import Placement
from graphdsl.declare.limits import limits_of
from graphdsl.drivers.emulator import Emulator
from graphdsl.drivers.results import InstantiateError
from graphdsl.drivers.structs import (
    ACCESS_POLICY_WINDOW,
    ATTRIBUTE_VALUES,
    CLUSTER_DIMENSION,
    CLUSTER_SCHEDULING_POLICY,
    COOPERATIVE,
    MEM_SYNC_DOMAIN,
    MEM_SYNC_DOMAIN_MAP,
    PREFERRED_CLUSTER_DIMENSION,
    PRIORITY,
    USE_NODE_PRIORITY,
)
from graphdsl.errors import DriverError
from tests.drivers.emulator.conftest import Bench


def nothing():
    pass


def value(number: int, **fields: Any) -> np.ndarray:
    row = np.zeros(1, ATTRIBUTE_VALUES[number])
    for name, given in fields.items():
        row[name] = given
    return row


class Nodes:
    """A graph of one kernel node, whose attributes are set one by one."""

    def __init__(self, bench: Bench, grid: Any = (8, 4, 2), kernel: int | None = None) -> None:
        self.device = bench.device
        self.bench = bench
        self.kernel = bench.load(nothing) if kernel is None else kernel
        self.params = bench.kernel(self.kernel, grid=grid)
        self.graph = self.device.graph_create()
        self.node = self.device.graph_add_kernel_node(self.graph, self.params)

    def set(self, number: int, **fields: Any) -> None:
        row = value(number, **fields)
        self.device.graph_kernel_node_set_attribute(self.node, number, row.ctypes.data)

    def get(self, number: int) -> np.void:
        row = value(number)
        self.device.graph_kernel_node_get_attribute(self.node, number, row.ctypes.data)
        return row[0]


@pytest.fixture
def nodes(bench: Bench) -> Nodes:
    return Nodes(bench)


def refused(call: Any, code: int, *args: Any, **options: Any) -> DriverError:
    with pytest.raises(DriverError) as caught:
        call(*args, **options)
    assert caught.value.code == code, caught.value
    return caught.value


def test_what_was_set_is_kept(nodes):
    nodes.set(PRIORITY, priority=-3)
    nodes.set(CLUSTER_DIMENSION, dims=(2, 2, 1))
    nodes.set(MEM_SYNC_DOMAIN_MAP, default=1, remote=3)
    assert nodes.get(PRIORITY)["priority"] == -3
    assert nodes.get(CLUSTER_DIMENSION)["dims"].tolist() == [2, 2, 1]
    assert nodes.get(MEM_SYNC_DOMAIN_MAP).tolist() == (1, 3)
    assert nodes.get(COOPERATIVE)["cooperative"] == 0
    assert nodes.device.graph_instantiate_with_params(nodes.graph)


@pytest.mark.parametrize(
    ("number", "fields"),
    [
        (ACCESS_POLICY_WINDOW, {"base": 4096, "nbytes": 134213632 + 1}),
        (ACCESS_POLICY_WINDOW, {"base": 4096, "nbytes": 64, "hit_ratio": 1.01}),
        (ACCESS_POLICY_WINDOW, {"base": 4096, "nbytes": 64, "hit_ratio": -0.5}),
        (ACCESS_POLICY_WINDOW, {"base": 4096, "nbytes": 64, "miss": 2}),
        (ACCESS_POLICY_WINDOW, {"base": 4096, "nbytes": 64, "hit": 3}),
        (CLUSTER_DIMENSION, {"dims": (2, 0, 1)}),
        (CLUSTER_SCHEDULING_POLICY, {"policy": 3}),
        (MEM_SYNC_DOMAIN_MAP, {"default": 0, "remote": 4}),
        (MEM_SYNC_DOMAIN, {"domain": 2}),
    ],
)
def test_a_value_that_is_none_is_refused_when_it_is_set(nodes, number, fields):
    refused(nodes.set, 1, number, **fields)
    assert not any(nodes.get(number).tobytes()) or number == MEM_SYNC_DOMAIN_MAP


@pytest.mark.parametrize("number", [0, 3, 6, 7, 12, 99])
def test_attributes_of_streams_and_launches_are_none_of_nodes(nodes, number):
    row = np.zeros(64, np.uint8)
    refused(nodes.device.graph_kernel_node_set_attribute, 1, nodes.node, number, row.ctypes.data)
    refused(nodes.device.graph_kernel_node_get_attribute, 1, nodes.node, number, row.ctypes.data)


def test_only_kernel_nodes_have_attributes(nodes):
    row = value(PRIORITY, priority=-1)
    empty = nodes.device.graph_add_empty_node(nodes.graph)
    for handle in (empty, 12345):
        refused(nodes.device.graph_kernel_node_set_attribute, 1, handle, PRIORITY, row.ctypes.data)
    refused(nodes.device.graph_kernel_node_set_attribute, 1, nodes.node, PRIORITY, 0)


@pytest.mark.parametrize(
    ("number", "fields"), [(CLUSTER_DIMENSION, {"dims": (2, 1, 1)}), (PREFERRED_CLUSTER_DIMENSION, {"dims": (2, 1, 1)})]
)
def test_devices_without_clusters(number, fields):
    limits = replace(limits_of("sm_90"), max_cluster=0, preferred_clusters=True)
    refused(Nodes(Bench(Emulator(target=limits))).set, 801, number, **fields)


@pytest.mark.parametrize(
    ("dims", "fits"),
    [((2, 2, 2), True), ((8, 1, 1), True), ((3, 1, 1), False), ((1, 1, 4), False), ((8, 2, 1), False)],
)
def test_clusters_fill_the_grid_and_are_small(nodes, dims, fits):
    nodes.set(CLUSTER_DIMENSION, dims=(2, 1, 1))
    if fits:
        nodes.set(CLUSTER_DIMENSION, dims=dims)
    else:
        refused(nodes.set, 912, CLUSTER_DIMENSION, dims=dims)
    assert nodes.get(CLUSTER_DIMENSION)["dims"].tolist() == (list(dims) if fits else [2, 1, 1])
    nodes.set(CLUSTER_DIMENSION, dims=(0, 0, 0))
    nodes.device.graph_instantiate_with_params(nodes.graph)


@pytest.mark.parametrize(
    ("dims", "preferred", "fits"),
    [
        ((2, 1, 1), (4, 1, 1), True),
        ((2, 1, 1), (4, 2, 1), True),
        ((4, 1, 1), (6, 1, 1), False),
        ((4, 1, 1), (2, 1, 1), False),
        ((2, 1, 1), (2, 1, 2), False),
        ((2, 1, 1), (6, 1, 1), False),
        ((0, 0, 0), (2, 1, 1), False),
    ],
)
def test_preferred_clusters_are_made_of_regular_ones(dims, preferred, fits):
    limits = replace(limits_of("sm_90"), preferred_clusters=True)
    nodes = Nodes(Bench(Emulator(target=limits)))
    nodes.set(CLUSTER_DIMENSION, dims=dims)
    if fits:
        nodes.set(PREFERRED_CLUSTER_DIMENSION, dims=preferred)
    else:
        refused(nodes.set, 1, PREFERRED_CLUSTER_DIMENSION, dims=preferred)


def test_an_h200_has_no_preferred_clusters(nodes):
    nodes.set(CLUSTER_DIMENSION, dims=(2, 1, 1))
    refused(nodes.set, 1, PREFERRED_CLUSTER_DIMENSION, dims=(4, 1, 1))


def test_large_clusters_are_allowed_by_the_kernel(bench):
    kernel = bench.load(nothing)
    nodes = Nodes(bench, (16, 2, 1), kernel)
    refused(nodes.set, 912, CLUSTER_DIMENSION, dims=(16, 1, 1))
    bench.device.kernel_allow_large_clusters(kernel)
    nodes.set(CLUSTER_DIMENSION, dims=(16, 1, 1))
    bench.device.graph_instantiate_with_params(nodes.graph)
    nodes.set(CLUSTER_DIMENSION, dims=(16, 2, 1))
    problem = refused(bench.device.graph_instantiate_with_params, 912, nodes.graph)
    assert isinstance(problem, InstantiateError)
    assert problem.node_handle == nodes.node


@pytest.mark.parametrize(("given", "kept"), [(-100, -5), (-5, -5), (-3, -3), (0, 0), (7, 0)])
def test_priorities_are_clamped(nodes, given, kept):
    nodes.set(PRIORITY, priority=given)
    assert nodes.get(PRIORITY)["priority"] == kept


def test_an_update_of_an_exec_keeps_the_attributes(nodes):
    nodes.set(CLUSTER_DIMENSION, dims=(4, 1, 1))
    device, graph_exec = nodes.device, nodes.device.graph_instantiate_with_params(nodes.graph)
    fitting = nodes.bench.kernel(nodes.kernel, grid=(12, 1, 1))
    unfitting = nodes.bench.kernel(nodes.kernel, grid=(6, 1, 1))
    device.graph_exec_kernel_node_set_params(graph_exec, nodes.node, fitting)
    refused(device.graph_exec_kernel_node_set_params, 912, graph_exec, nodes.node, unfitting)
    device.graph_launch(graph_exec, nodes.bench.stream)


def test_flags(nodes):
    nodes.device.graph_instantiate_with_params(nodes.graph, USE_NODE_PRIORITY)
    refused(nodes.device.graph_instantiate_with_params, 801, nodes.graph, 4)
    refused(nodes.device.graph_instantiate_with_params, 1, nodes.graph, 1 << 20)


def test_clusters_that_a_kernel_was_compiled_for(bench):
    def made(placement, grid=8):
        kernel = bench.load(nothing)
        bench.device._machine.kernels[kernel].image.__dict__["placement"] = placement
        return Nodes(bench, (grid, 1, 1), kernel)

    compiled = made(Placement((2, 1, 1)))
    compiled.set(CLUSTER_DIMENSION, dims=(2, 1, 1))
    refused(compiled.set, 912, CLUSTER_DIMENSION, dims=(4, 1, 1))
    refused(made, 912, Placement((2, 1, 1)), 7)
    bounded = made(Placement(max_cluster=4))
    bounded.set(CLUSTER_DIMENSION, dims=(4, 1, 1))
    refused(bounded.set, 912, CLUSTER_DIMENSION, dims=(8, 1, 1))
    needing = made(Placement(needs_cluster=True))
    refused(bench.device.graph_instantiate_with_params, 912, needing.graph)
    needing.set(CLUSTER_DIMENSION, dims=(4, 1, 1))
    for each in (compiled, bounded, needing):
        bench.device.graph_instantiate_with_params(each.graph)


def test_a_cooperative_grid_runs_at_once(bench):
    kernel = bench.load(nothing)
    fitting, larger = (bench.kernel(kernel, grid=(132 * 2 + i, 1, 1), block=(1024, 1, 1)) for i in (0, 1))
    nodes = Nodes(bench)
    nodes.node = bench.device.graph_add_kernel_node(nodes.graph, larger)
    refused(nodes.set, 720, COOPERATIVE, cooperative=1)
    assert nodes.get(COOPERATIVE)["cooperative"] == 0
    nodes.node = bench.device.graph_add_kernel_node(nodes.graph, fitting)
    nodes.set(COOPERATIVE, cooperative=1)
    graph_exec = bench.device.graph_instantiate_with_params(nodes.graph)
    refused(bench.device.graph_exec_kernel_node_set_params, 720, graph_exec, nodes.node, larger)


def test_devices_without_cooperative_launches():
    limits = replace(limits_of("sm_90"), cooperative=False)
    nodes = Nodes(Bench(Emulator(target=limits)))
    refused(nodes.set, 801, COOPERATIVE, cooperative=1)
    nodes.set(COOPERATIVE, cooperative=0)
