"""Calls of the CUDA driver that tell what a graph is made of."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from cuda.bindings import driver

from graphdsl.drivers.base import Address, Handle
from graphdsl.drivers.cuda.calling import invoke
from graphdsl.drivers.cuda.context import Context, context_offset
from graphdsl.drivers.structs import EDGE_DATA, HOST_NODE, KERNEL_NODE, MEMCPY_NODE, MEMSET_NODE


class Looking(Context):
    """What is in graphs."""

    def graph_get_nodes(self, graph: Handle) -> list[Handle]:
        _, count = invoke(driver.cuGraphGetNodes, graph)
        nodes, _ = invoke(driver.cuGraphGetNodes, graph, count)
        return list(map(int, nodes))

    def graph_node_get_type(self, node: Handle) -> int:
        return int(invoke(driver.cuGraphNodeGetType, node))

    def graph_get_edges(self, graph: Handle) -> tuple[list[Handle], list[Handle], np.ndarray[Any, Any]]:
        *_, count = invoke(driver.cuGraphGetEdges, graph)
        sources, targets, data, _ = invoke(driver.cuGraphGetEdges, graph, count)
        rows = np.zeros(count, EDGE_DATA)
        for row, each in zip(rows, data):
            row["from_port"], row["to_port"], row["type"] = each.from_port, each.to_port, int(each.type)
        return list(map(int, sources)), list(map(int, targets)), rows

    def graph_kernel_node_get_params(self, node: Handle, params: Address) -> None:
        found = invoke(driver.cuGraphKernelNodeGetParams, node)
        ctypes.memmove(params, found.getPtr(), KERNEL_NODE.itemsize)

    def graph_memcpy_node_get_params(self, node: Handle, params: Address) -> None:
        found = invoke(driver.cuGraphMemcpyNodeGetParams, node)
        ctypes.memmove(params, found.getPtr(), context_offset(MEMCPY_NODE))

    def graph_memset_node_get_params(self, node: Handle, params: Address) -> None:
        found = invoke(driver.cuGraphMemsetNodeGetParams, node)
        ctypes.memmove(params, found.getPtr(), context_offset(MEMSET_NODE))

    def graph_host_node_get_params(self, node: Handle, params: Address) -> None:
        found = invoke(driver.cuGraphHostNodeGetParams, node)
        ctypes.memmove(params, found.getPtr(), HOST_NODE.itemsize)

    def graph_event_record_node_get_event(self, node: Handle) -> Handle:
        return int(invoke(driver.cuGraphEventRecordNodeGetEvent, node))

    def graph_event_wait_node_get_event(self, node: Handle) -> Handle:
        return int(invoke(driver.cuGraphEventWaitNodeGetEvent, node))
