"""Calls of the emulator that tell what a graph is made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphdsl.drivers.base import Address, Handle
from graphdsl.drivers.emulator import nodes, transfers
from graphdsl.drivers.emulator.calls.kinds import NODE_TYPES
from graphdsl.drivers.emulator.calls.state import State, known
from graphdsl.drivers.emulator.events import EVENT_RECORD, EVENT_WAIT
from graphdsl.drivers.emulator.gate import driver_call
from graphdsl.drivers.emulator.nodes import NodeKind
from graphdsl.drivers.emulator.problems import Problem
from graphdsl.drivers.emulator.queries import write_params
from graphdsl.drivers.structs import EDGE_DATA, HOST_NODE, KERNEL_NODE, MEMCPY_NODE, MEMSET_NODE


class Looking(State):
    """What is in graphs."""

    @driver_call("cuGraphGetNodes")
    def graph_get_nodes(self, graph: Handle) -> list[Handle]:
        return list(known(self._graphs, graph, "graph").nodes)

    @driver_call("cuGraphGetEdges")
    def graph_get_edges(self, graph: Handle) -> tuple[list[Handle], list[Handle], np.ndarray[Any, Any]]:
        found = known(self._graphs, graph, "graph").successors
        edges = [(source, target, data) for source, targets in found.items() for target, data in targets.items()]
        data = np.frombuffer(b"".join(data for *_, data in edges), EDGE_DATA)
        return [source for source, *_ in edges], [target for _, target, _ in edges], data

    @driver_call("cuGraphKernelNodeGetParams")
    def graph_kernel_node_get_params(self, node: Handle, params: Address) -> None:
        write_params(self._node(node), nodes.KERNEL, KERNEL_NODE, params)

    @driver_call("cuGraphMemcpyNodeGetParams")
    def graph_memcpy_node_get_params(self, node: Handle, params: Address) -> None:
        write_params(self._node(node), transfers.MEMCPY, MEMCPY_NODE, params)

    @driver_call("cuGraphMemsetNodeGetParams")
    def graph_memset_node_get_params(self, node: Handle, params: Address) -> None:
        write_params(self._node(node), transfers.MEMSET, MEMSET_NODE, params)

    @driver_call("cuGraphHostNodeGetParams")
    def graph_host_node_get_params(self, node: Handle, params: Address) -> None:
        write_params(self._node(node), nodes.HOST, HOST_NODE, params)

    @driver_call("cuGraphEventRecordNodeGetEvent")
    def graph_event_record_node_get_event(self, node: Handle) -> Handle:
        return self._event_of(node, EVENT_RECORD)

    @driver_call("cuGraphEventWaitNodeGetEvent")
    def graph_event_wait_node_get_event(self, node: Handle) -> Handle:
        return self._event_of(node, EVENT_WAIT)

    def _event_of(self, node: Handle, kind: NodeKind) -> Handle:
        found = self._node(node)
        if found.kind is not kind:
            raise Problem(f"node {node:#x} is a {found.kind.name} node, not one of kind {kind.name}")
        return int(found.params)

    @driver_call("cuGraphNodeGetType")
    def graph_node_get_type(self, node: Handle) -> int:
        return NODE_TYPES[self._node(node).kind.name]
