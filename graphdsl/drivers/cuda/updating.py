"""Calls of the CUDA driver that change execs."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from cuda.bindings import driver

from graphdsl.drivers.base import Address, Handle
from graphdsl.drivers.cuda import loops
from graphdsl.drivers.cuda.calling import address_of, invoke, three_words
from graphdsl.drivers.cuda.context import Context, context_in
from graphdsl.drivers.results import UPDATE_RESULTS, ExecUpdateError
from graphdsl.drivers.structs import CHILD_GRAPH_NODE, EXEC_UPDATE_RESULT, MEMCPY_NODE, MEMSET_NODE, UNION_OFFSET

_GRAPH_OFFSET = UNION_OFFSET + int(CHILD_GRAPH_NODE.fields["graph"][1])  # type: ignore[index]


class Updating(Context):
    """Changes of execs."""

    def graph_exec_kernel_node_set_params(self, graph_exec: Handle, node: Handle, params: Address) -> None:
        struct = driver.CUDA_KERNEL_NODE_PARAMS(_ptr=params)
        invoke(driver.cuGraphExecKernelNodeSetParams, graph_exec, node, struct)

    def graph_exec_memcpy_node_set_params(self, graph_exec: Handle, node: Handle, params: Address) -> None:
        struct = driver.CUDA_MEMCPY3D(_ptr=params)
        invoke(driver.cuGraphExecMemcpyNodeSetParams, graph_exec, node, struct, context_in(MEMCPY_NODE, params))

    def graph_exec_memset_node_set_params(self, graph_exec: Handle, node: Handle, params: Address) -> None:
        struct = driver.CUDA_MEMSET_NODE_PARAMS(_ptr=params)
        invoke(driver.cuGraphExecMemsetNodeSetParams, graph_exec, node, struct, context_in(MEMSET_NODE, params))

    def graph_exec_host_node_set_params(self, graph_exec: Handle, node: Handle, params: Address) -> None:
        struct = driver.CUDA_HOST_NODE_PARAMS(_ptr=params)
        invoke(driver.cuGraphExecHostNodeSetParams, graph_exec, node, struct)

    def graph_exec_node_set_params(self, graph_exec: Handle, node: Handle, params: Address) -> None:
        invoke(driver.cuGraphExecNodeSetParams, graph_exec, node, driver.CUgraphNodeParams(_ptr=params))

    def graph_exec_child_graph_node_set_params(self, graph_exec: Handle, node: Handle, params: Address) -> None:
        graph = ctypes.c_uint64.from_address(params + _GRAPH_OFFSET).value
        invoke(driver.cuGraphExecChildGraphNodeSetParams, graph_exec, node, graph)

    def graph_exec_set_params(
        self,
        graph_exec: Handle,
        kinds: np.ndarray[Any, Any],
        nodes: np.ndarray[Any, Any],
        params: np.ndarray[Any, Any],
    ) -> None:
        compiled = loops.compiled()
        if compiled is None:
            super().graph_exec_set_params(graph_exec, kinds, nodes, params)
            return
        outcome = compiled.set_params(
            compiled.current, compiled.change, compiled.forms, kinds, graph_exec, self.context, nodes, params
        )
        if outcome != compiled.loops.NO_FAILURE:
            compiled.require(outcome, kinds, loops.SET_CALLS)

    def graph_exec_update(self, graph_exec: Handle, graph: Handle) -> None:
        # Not through cuda.bindings, which keeps to itself what the driver says of a failure.
        told = np.zeros(1, EXEC_UPDATE_RESULT)
        with self._current():
            code = three_words(address_of("cuGraphExecUpdate"))(graph_exec, graph, told.ctypes.data)
        if code:
            result, _, node, dependency = told[0].tolist()
            raise ExecUpdateError(code, list(UPDATE_RESULTS)[result], node, dependency)

    def graph_node_set_enabled(self, graph_exec: Handle, node: Handle, enabled: bool) -> None:
        invoke(driver.cuGraphNodeSetEnabled, graph_exec, node, int(enabled))
