"""Calls of the CUDA driver that build graphs."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from cuda.bindings import driver

from graphdsl.drivers.base import Address, Handle
from graphdsl.drivers.cuda import loops
from graphdsl.drivers.cuda.calling import error_of, invoke
from graphdsl.drivers.cuda.context import Context, context_in
from graphdsl.drivers.structs import ATTRIBUTE_VALUE_BYTES, EDGE_DATA, MEMCPY_NODE, MEMSET_NODE


class Building(Context):
    """Graphs, their nodes and edges."""

    def graph_create(self) -> Handle:
        return int(invoke(driver.cuGraphCreate, 0))

    def graph_add_kernel_node(self, graph: Handle, params: Address) -> Handle:
        return int(invoke(driver.cuGraphAddKernelNode, graph, None, 0, driver.CUDA_KERNEL_NODE_PARAMS(_ptr=params)))

    def graph_add_memcpy_node(self, graph: Handle, params: Address) -> Handle:
        struct = driver.CUDA_MEMCPY3D(_ptr=params)
        return int(invoke(driver.cuGraphAddMemcpyNode, graph, None, 0, struct, context_in(MEMCPY_NODE, params)))

    def graph_add_memset_node(self, graph: Handle, params: Address) -> Handle:
        struct = driver.CUDA_MEMSET_NODE_PARAMS(_ptr=params)
        return int(invoke(driver.cuGraphAddMemsetNode, graph, None, 0, struct, context_in(MEMSET_NODE, params)))

    def graph_add_host_node(self, graph: Handle, params: Address) -> Handle:
        return int(invoke(driver.cuGraphAddHostNode, graph, None, 0, driver.CUDA_HOST_NODE_PARAMS(_ptr=params)))

    def graph_add_empty_node(self, graph: Handle) -> Handle:
        return int(invoke(driver.cuGraphAddEmptyNode, graph, None, 0))

    def graph_kernel_node_set_attribute(self, node: Handle, attribute: int, value: Address) -> None:
        written = driver.CUkernelNodeAttrValue(_ptr=value)
        with self._current():
            invoke(driver.cuGraphKernelNodeSetAttribute, node, driver.CUkernelNodeAttrID(attribute), written)

    def graph_kernel_node_get_attribute(self, node: Handle, attribute: int, value: Address) -> None:
        with self._current():
            found = invoke(driver.cuGraphKernelNodeGetAttribute, node, driver.CUkernelNodeAttrID(attribute))
        ctypes.memmove(value, found.getPtr(), ATTRIBUTE_VALUE_BYTES)

    def graph_add_node(
        self, graph: Handle, params: Address, dependencies: np.ndarray[Any, Any] | None = None
    ) -> Handle:
        before = None if dependencies is None else [driver.CUgraphNode(handle) for handle in dependencies.tolist()]
        struct = driver.CUgraphNodeParams(_ptr=params)
        return int(invoke(driver.cuGraphAddNode, graph, before, None, len(before or ()), struct))

    def graph_child_graph_node_get_graph(self, node: Handle) -> Handle:
        return int(invoke(driver.cuGraphChildGraphNodeGetGraph, node))

    def graph_conditional_handle_create(self, graph: Handle, default: int, flags: int) -> Handle:
        return int(invoke(driver.cuGraphConditionalHandleCreate, graph, self.context, default, flags))

    def graph_add_dependencies(
        self,
        graph: Handle,
        sources: np.ndarray[Any, Any],
        targets: np.ndarray[Any, Any],
        edge_data: np.ndarray[Any, Any] | None = None,
    ) -> None:
        data = 0 if edge_data is None else edge_data.ctypes.data
        compiled = loops.compiled()
        if compiled is not None:
            code = compiled.loops.add_dependencies(
                compiled.current, self.context, compiled.add_dependencies, graph, sources, targets, data
            )
            if code:
                raise error_of("cuGraphAddDependencies", code)
            return
        befores = [driver.CUgraphNode(handle) for handle in sources.tolist()]
        afters = [driver.CUgraphNode(handle) for handle in targets.tolist()]
        size = EDGE_DATA.itemsize
        edges = [driver.CUgraphEdgeData(_ptr=data + size * i) for i in range(len(befores))] if data else None
        invoke(driver.cuGraphAddDependencies, graph, befores, afters, edges, len(befores))

    def graph_add_nodes(
        self, graph: Handle, kinds: np.ndarray[Any, Any], params: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any]:
        compiled = loops.compiled()
        if compiled is None:
            return super().graph_add_nodes(graph, kinds, params)
        handles = np.zeros(len(kinds), np.uint64)
        outcome = compiled.loops.add_nodes(
            compiled.current, compiled.add, compiled.forms, kinds, graph, self.context, params, handles
        )
        compiled.require(outcome, kinds, loops.ADD_CALLS)
        return handles

    def graph_destroy(self, graph: Handle) -> None:
        invoke(driver.cuGraphDestroy, graph)
