"""What the driver says of launch attributes, call by call, asked of every driver: the emulator gives the GPU's codes.

Numbers in comments are those of docs/driver-behaviour.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphdsl.drivers.base import Driver
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
from tests.conformance.seam import INVALID_CLUSTER, INVALID_VALUE, Seam, code_of

TOO_LARGE = 720  # COOPERATIVE_LAUNCH_TOO_LARGE


def nothing():
    pass


class Node:
    """A kernel node in a graph of its own."""

    def __init__(self, seam: Seam, grid: int = 8, block: int = 32, kernel: int = 0) -> None:
        self.seam, self.device = seam, seam.device
        self.kernel = kernel or seam.load(nothing)
        self.graph = self.device.graph_create()
        self.handle = seam.node(self.graph, "kernel", self.params(grid, block))

    def params(self, grid: int, block: int = 32) -> int:
        return self.seam.kernel(self.kernel, grid=(grid, 1, 1), block=(block, 1, 1))

    def set(self, number: int, **fields: Any) -> int:
        """The code of setting an attribute."""
        row = np.zeros(1, ATTRIBUTE_VALUES[number])
        for name, value in fields.items():
            row[name] = value
        return code_of(self.device.graph_kernel_node_set_attribute, self.handle, number, row.ctypes.data)

    def cluster(self, width: int) -> int:
        return self.set(CLUSTER_DIMENSION, dims=(width, min(width, 1), min(width, 1)))

    def get(self, number: int) -> np.void:
        row = np.zeros(1, ATTRIBUTE_VALUES[number])
        self.device.graph_kernel_node_get_attribute(self.handle, number, row.ctypes.data)
        return row[0]


@pytest.fixture
def seam(device: Driver) -> Seam:
    return Seam(device)


@pytest.fixture
def node(seam: Seam) -> Node:
    return Node(seam)


@pytest.fixture
def clusters(device: Driver) -> None:
    if not device.limits.max_cluster:
        pytest.skip("the device has no clusters")


# C-2.8, C-10.12


def test_a_cooperative_grid_is_judged_with_the_attribute_and_with_updates(seam):
    resident = 1
    while Node(seam, resident * 2, 1024).set(COOPERATIVE, cooperative=1) == 0:
        resident *= 2
    step = resident
    while step := step // 2:
        resident += step if Node(seam, resident + step, 1024).set(COOPERATIVE, cooperative=1) == 0 else 0
    assert resident % seam.device.limits.multiprocessors == 0
    larger = Node(seam, resident + 1, 1024)
    assert larger.set(COOPERATIVE, cooperative=1) == TOO_LARGE
    assert larger.get(COOPERATIVE)["cooperative"] == 0
    node = Node(seam, resident, 1024)
    assert node.set(COOPERATIVE, cooperative=1) == 0
    graph_exec = seam.exec_of(node.graph)
    assert code_of(seam.update, graph_exec, node.handle, "kernel", node.params(resident + 1, 1024)) == TOO_LARGE
    assert code_of(seam.update, graph_exec, node.handle, "kernel", node.params(resident - 1, 1024)) == 0


# C-2.9, C-10.13


@pytest.mark.usefixtures("clusters")
class TestClusters:
    @pytest.mark.parametrize(
        ("width", "grid", "code"), [(2, 8, 0), (8, 8, 0), (3, 8, INVALID_CLUSTER), (16, 16, INVALID_CLUSTER)]
    )
    def test_they_are_judged_with_the_attribute(self, seam, width, grid, code):
        node = Node(seam, grid)
        assert node.cluster(width) == code
        assert (node.get(CLUSTER_DIMENSION)["dims"].tolist() == [width, 1, 1]) is (code == 0)
        seam.finish(seam.exec_of(node.graph))

    def test_zeros_take_the_attribute_back(self, seam, node):
        assert (node.cluster(2), node.cluster(0)) == (0, 0)
        seam.finish(seam.exec_of(node.graph))

    def test_more_than_eight_blocks_need_leave(self, seam):
        kernel = seam.load(nothing)
        seam.device.kernel_allow_large_clusters(kernel)
        node = Node(seam, 32, kernel=kernel)
        assert node.cluster(16) == 0
        seam.finish(seam.exec_of(node.graph))
        assert node.cluster(32) == 0  # what becomes of it is not known

    def test_updates_keep_them_and_need_a_fitting_grid(self, seam, node):
        assert node.cluster(2) == 0
        graph_exec = seam.exec_of(node.graph)
        assert code_of(seam.update, graph_exec, node.handle, "kernel", node.params(16)) == 0
        assert code_of(seam.update, graph_exec, node.handle, "kernel", node.params(7)) == INVALID_CLUSTER
        seam.finish(graph_exec)

    @pytest.mark.parametrize(("regular", "preferred"), [(2, 4), (2, 3), (4, 2), (0, 4)])
    def test_preferred_ones(self, node, regular, preferred):
        limits = node.device.limits
        assert node.cluster(regular) == 0
        right = limits.preferred_clusters and (regular, preferred) == (2, 4)
        code = node.set(PREFERRED_CLUSTER_DIMENSION, dims=(preferred, 1, 1))
        assert code == (0 if right else INVALID_VALUE)

    @pytest.mark.parametrize("policy", [0, 1, 2])
    def test_scheduling_policies(self, seam, node, policy):
        assert (node.cluster(2), node.set(CLUSTER_SCHEDULING_POLICY, policy=policy)) == (0, 0)
        seam.finish(seam.exec_of(node.graph))


# C-2.10


def test_memory_domains(seam, node):
    assert node.set(MEM_SYNC_DOMAIN, domain=1) == 0
    if node.device.limits.sync_domains > 1:
        assert node.set(MEM_SYNC_DOMAIN_MAP, default=1, remote=0) == 0
        assert node.get(MEM_SYNC_DOMAIN_MAP).tolist() == (1, 0)
    seam.finish(seam.exec_of(node.graph))


@pytest.mark.parametrize("number", [3, 6, 7, 12])
def test_attributes_of_streams_and_launches_are_none_of_nodes(node, number):
    row = np.zeros(64, np.uint8)  # no event at all: a garbage handle could kill the process
    for call in (node.device.graph_kernel_node_set_attribute, node.device.graph_kernel_node_get_attribute):
        assert code_of(call, node.handle, number, row.ctypes.data) == INVALID_VALUE


# C-2.12


def test_priorities_are_clamped_to_the_range_of_the_device(seam, node):
    least, greatest = seam.device.limits.priorities
    for given, kept in ((-100, greatest), (100, least), (greatest, greatest)):
        assert node.set(PRIORITY, priority=given) == 0
        assert node.get(PRIORITY)["priority"] == kept
    seam.finish(seam.device.graph_instantiate_with_params(node.graph, USE_NODE_PRIORITY))


def test_only_kernel_nodes_have_attributes(seam, node):
    node.handle = seam.node(node.graph, "empty")
    assert node.set(PRIORITY, priority=-1) == INVALID_VALUE


# C-2.14


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, 0),
        ({"miss": 0}, 0),
        ({"miss": 2}, INVALID_VALUE),
        ({"hit_ratio": 1.0}, 0),
        ({"hit_ratio": 1.5}, INVALID_VALUE),
        ({"hit_ratio": -0.5}, INVALID_VALUE),
        ({"nbytes": "most"}, 0),
        ({"nbytes": "more"}, INVALID_VALUE),
    ],
)
def test_windows(seam, node, fields, code):
    most = seam.device.limits.window_bytes
    if not most:
        pytest.skip("the device has no access policies")
    sizes = {"most": most, "more": most + 1, 1024: 1024}
    given = {"base": seam.device.mem_alloc(1024), "nbytes": 1024, "hit_ratio": 0.5, "hit": 2, "miss": 1} | fields
    assert node.set(ACCESS_POLICY_WINDOW, **(given | {"nbytes": sizes[given["nbytes"]]})) == code
