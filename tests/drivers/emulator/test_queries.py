"""What the emulator tells of graphs: nodes, edges with their data, and the structs that nodes were made from."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda

import graphdsl as gd
from graphdsl.drivers.structs import FUNC_REGISTERS, HOST_NODE, KERNEL_NODE, MEMCPY_NODE, MEMSET_NODE
from graphdsl.errors import DriverError


@cuda.jit
def fill(x, value):
    x[cuda.grid(1)] = value


@pytest.fixture
def exe():
    graph = gd.Graph("demo")
    x = graph.device_array("x", 8, np.int32, lifetime="persistent")
    with graph.sequence():
        graph.memset(x, 3, name="a_set")
        graph.kernel(fill, grid=(2, 1, 1), block=4, args=(x, 5), name="b_fill")
        graph.memcpy(graph.host_array("out", 8, np.int32), x, name="c_copy")
        graph.host(print, name="d_host")
    with graph.instantiate(gd.emulator()) as made:
        yield made


def told(call, node: int, dtype: np.dtype) -> np.void:
    row = np.zeros(1, dtype)
    call(node, row.ctypes.data)
    return row[0]


def test_nodes_and_edges_come_in_the_order_of_insertion(exe):
    device = exe.device
    nodes = device.graph_get_nodes(exe.graph_handle)
    assert [device.graph_node_get_type(node) for node in nodes] == [2, 0, 1, 3]
    sources, targets, data = device.graph_get_edges(exe.graph_handle)
    assert (sources, targets) == (nodes[:-1], nodes[1:])
    assert data["type"].tolist() == [0, 0, 0]


def test_structs_are_those_that_nodes_were_made_from(exe):
    device = exe.device
    memset, kernel, memcpy, host = device.graph_get_nodes(exe.graph_handle)
    fields = told(device.graph_memset_node_get_params, memset, MEMSET_NODE)
    assert (fields["value"], fields["width"], fields["element_size"], fields["ctx"]) == (3, 8, 4, 0)
    fields = told(device.graph_memcpy_node_get_params, memcpy, MEMCPY_NODE)
    assert (fields["width"], fields["height"], fields["depth"]) == (32, 1, 1)
    fields = told(device.graph_kernel_node_get_params, kernel, KERNEL_NODE)
    assert fields["grid"].tolist() == [2, 1, 1]
    assert device.func_get_param_info(int(fields["kern"]))[-1][1] == 8
    assert device.func_get_attribute(int(fields["kern"]), FUNC_REGISTERS) > 0
    fields = told(device.graph_host_node_get_params, host, HOST_NODE)
    assert fields["function"] != 0


def test_a_node_of_another_kind_and_no_node(exe):
    device = exe.device
    memset, *_ = device.graph_get_nodes(exe.graph_handle)
    for call, dtype in (
        (device.graph_kernel_node_get_params, KERNEL_NODE),
        (device.graph_memcpy_node_get_params, MEMCPY_NODE),
        (device.graph_host_node_get_params, HOST_NODE),
    ):
        with pytest.raises(DriverError, match="is a memset node"):
            told(call, memset, dtype)
        with pytest.raises(DriverError, match="no node"):
            told(call, 7, dtype)
    for call in (device.graph_event_record_node_get_event, device.graph_event_wait_node_get_event):
        with pytest.raises(DriverError, match="is a memset node"):
            call(memset)


def test_kinds_of_memory(exe):
    device = exe.device
    assert device.pointer_get_memory_type(exe["x"].address) == 2
    assert device.pointer_get_memory_type(exe["out"].ctypes.data) == 1
    assert device.pointer_get_memory_type(np.zeros(1).ctypes.data) is None


def test_attributes_of_functions_that_the_emulator_lacks(exe):
    kernel = exe.device.graph_get_nodes(exe.graph_handle)[1]
    fields = told(exe.device.graph_kernel_node_get_params, kernel, KERNEL_NODE)
    with pytest.raises(DriverError, match="no attribute 3"):
        exe.device.func_get_attribute(int(fields["kern"]), 3)
