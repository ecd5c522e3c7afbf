"""Calls of the emulator that build graphs."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from graphdsl.drivers.base import Address, Handle
from graphdsl.drivers.emulator import nodes, transfers
from graphdsl.drivers.emulator.allocations import ALLOC, FREE, read_alloc, read_free, require_unfreed
from graphdsl.drivers.emulator.attributes import default_attribute
from graphdsl.drivers.emulator.calls.kinds import STRUCTS, kind_of
from graphdsl.drivers.emulator.calls.state import State, known, new_handle
from graphdsl.drivers.emulator.gate import driver_call
from graphdsl.drivers.emulator.graph import Condition, Graph, Node
from graphdsl.drivers.emulator.nesting import CHILD, CONDITIONAL, Branch, read_conditional
from graphdsl.drivers.emulator.nodes import NodeKind
from graphdsl.drivers.emulator.problems import NOT_SUPPORTED, Problem
from graphdsl.drivers.structs import (
    ALLOC_NODE,
    ATTRIBUTE_VALUE_BYTES,
    CHILD_GRAPH_NODE,
    CONDITION_ASSIGN_DEFAULT,
    CONDITIONAL_NODE,
    EDGE_DATA,
    FREE_NODE,
    NODE_PARAMS,
    NODE_TYPE_ALLOC,
    NODE_TYPE_CHILD,
    NODE_TYPE_CONDITIONAL,
    NODE_TYPE_FREE,
    OWNERSHIP_MOVE,
    UNION_OFFSET,
)


class Building(State):
    """Graphs, their nodes and edges."""

    @driver_call("cuGraphCreate")
    def graph_create(self) -> Handle:
        handle = new_handle()
        self._graphs[handle] = Graph()
        return handle

    @driver_call("cuGraphAddKernelNode")
    def graph_add_kernel_node(self, graph: Handle, params: Address) -> Handle:
        return self._add_node(graph, nodes.KERNEL, params)

    @driver_call("cuGraphAddMemcpyNode")
    def graph_add_memcpy_node(self, graph: Handle, params: Address) -> Handle:
        return self._add_node(graph, transfers.MEMCPY, params)

    @driver_call("cuGraphAddMemsetNode")
    def graph_add_memset_node(self, graph: Handle, params: Address) -> Handle:
        return self._add_node(graph, transfers.MEMSET, params)

    @driver_call("cuGraphAddHostNode")
    def graph_add_host_node(self, graph: Handle, params: Address) -> Handle:
        return self._add_node(graph, nodes.HOST, params)

    @driver_call("cuGraphAddEmptyNode")
    def graph_add_empty_node(self, graph: Handle) -> Handle:
        return self._add_node(graph, nodes.EMPTY, 0)

    @driver_call("cuGraphAddNode")
    def graph_add_node(
        self, graph: Handle, params: Address, dependencies: np.ndarray[Any, Any] | None = None
    ) -> Handle:
        found = known(self._graphs, graph, "graph")
        before = [] if dependencies is None else dependencies.tolist()
        for handle in before:
            if handle not in found.nodes:
                raise Problem(f"node {handle:#x} is not of this graph")
        if len(set(before)) < len(before):
            raise Problem("a dependency is given twice")
        node_type, address = int(nodes.struct_at(params, NODE_PARAMS)["type"]), params + UNION_OFFSET
        add = {
            NODE_TYPE_CHILD: self._add_child,
            NODE_TYPE_CONDITIONAL: self._add_conditional,
            NODE_TYPE_ALLOC: self._add_alloc,
            NODE_TYPE_FREE: self._add_free,
        }.get(node_type)
        handle = self._add_node(graph, kind_of(node_type), address) if add is None else add(found, address)
        for source in before:
            found.connect(source, handle)
        return handle

    def _add_alloc(self, graph: Graph, address: Address) -> Handle:
        region = read_alloc(self._machine, nodes.struct_at(address, ALLOC_NODE))
        graph.root.allocations.append(region)
        ctypes.c_uint64.from_address(address + ALLOC_NODE.fields["address"][1]).value = region.base  # type: ignore[index]
        node = Node(new_handle(), ALLOC, region)
        graph.add(node)
        return node.handle

    def _add_free(self, graph: Graph, address: Address) -> Handle:
        region = read_free(self._machine, graph, nodes.struct_at(address, FREE_NODE))
        region.has_free_node = True
        node = Node(new_handle(), FREE, region)
        graph.add(node)
        return node.handle

    def _add_child(self, graph: Graph, address: Address) -> Handle:
        fields = nodes.struct_at(address, CHILD_GRAPH_NODE)
        source = known(self._graphs, int(fields["graph"]), "graph")
        if source is graph:
            raise Problem("a graph is no child of itself; the GPU driver crashes over it")
        if source.has_conditions:
            raise Problem("a graph with conditional nodes is not made into a child", NOT_SUPPORTED)
        if int(fields["ownership"]) == OWNERSHIP_MOVE:
            if source.root is not source or source.execs:
                raise Problem("a graph that has execs or is a child already is not moved", NOT_SUPPORTED)
            source.move(graph.root)
            handle, inside = int(fields["graph"]), source
        else:
            if source.allocations:
                raise Problem("a graph that allocates is not copied into a node", NOT_SUPPORTED)
            handle, inside = new_handle(), source.clone(graph.root, new_handle)
            self._graphs[handle] = inside
        node = Node(new_handle(), CHILD, handle)
        graph.add(node)
        graph.inner[node.handle] = (inside,)
        self._nodes_with_graphs[node.handle] = handle
        return node.handle

    def _add_conditional(self, graph: Graph, address: Address) -> Handle:
        fields = nodes.struct_at(address, CONDITIONAL_NODE)
        conditions = graph.root.conditions
        form, size = read_conditional(fields, conditions)
        handles = np.array([new_handle() for _ in range(size)], np.uint64)
        inside = tuple(Graph(graph.root) for _ in range(size))
        self._graphs.update(zip(handles.tolist(), inside))
        condition = int(fields["handle"])
        node = Node(
            new_handle(),
            CONDITIONAL,
            Branch(self._machine.device_of(int(fields["ctx"])), form, condition, conditions[condition], handles),
        )
        conditions[condition].used = True
        graph.add(node)
        graph.inner[node.handle] = inside
        ctypes.c_uint64.from_address(address + CONDITIONAL_NODE.fields["bodies"][1]).value = handles.ctypes.data  # type: ignore[index]
        return node.handle

    @driver_call("cuGraphChildGraphNodeGetGraph")
    def graph_child_graph_node_get_graph(self, node: Handle) -> Handle:
        return known(self._nodes_with_graphs, node, "child graph node")

    @driver_call("cuGraphConditionalHandleCreate")
    def graph_conditional_handle_create(self, graph: Handle, default: int, flags: int) -> Handle:
        found = known(self._graphs, graph, "graph")
        if flags not in (0, CONDITION_ASSIGN_DEFAULT):
            raise Problem(f"flags {flags} of a condition; they are 0 or {CONDITION_ASSIGN_DEFAULT}")
        handle = new_handle()
        found.root.conditions[handle] = self._machine.conditions[handle] = Condition(default, bool(flags), self.context)
        return handle

    def _add_node(self, graph: Handle, kind: NodeKind, params: Address) -> Handle:
        found = known(self._graphs, graph, "graph")
        given = STRUCTS.get(kind.name)
        read = kind.read(self._machine, params)  # which refuses NULL
        node = Node(new_handle(), kind, read, ctypes.string_at(params, given.itemsize) if given else b"")
        require_unfreed(self._machine, kind.addresses(node.params))
        found.add(node)
        return node.handle

    @driver_call("cuGraphKernelNodeSetAttribute")
    def graph_kernel_node_set_attribute(self, node: Handle, attribute: int, value: Address) -> None:
        found = self._kernel_node(node)
        found.params = nodes.with_attribute(self._machine, found.params, attribute, value)

    @driver_call("cuGraphKernelNodeGetAttribute")
    def graph_kernel_node_get_attribute(self, node: Handle, attribute: int, value: Address) -> None:
        attributes = self._kernel_node(node).params.attributes
        found = attributes.get(attribute)
        if found is None:
            found = default_attribute(attribute)
        ctypes.memmove(value, found.tobytes(), ATTRIBUTE_VALUE_BYTES)

    def _kernel_node(self, handle: Handle) -> Node:
        """A kernel node of a graph; attributes are asked for without naming the graph."""
        found = self._node(handle)
        if found.kind is not nodes.KERNEL:
            raise Problem(f"{handle:#x} is no kernel node of a graph of this device")
        return found

    @driver_call("cuGraphAddDependencies")
    def graph_add_dependencies(
        self,
        graph: Handle,
        sources: np.ndarray[Any, Any],
        targets: np.ndarray[Any, Any],
        edge_data: np.ndarray[Any, Any] | None = None,
    ) -> None:
        """Add edges; like the driver, keeps those before one that it refuses, but for an edge of a node to itself."""
        found = known(self._graphs, graph, "graph")
        if len(sources) != len(targets):
            raise Problem(f"{len(sources)} sources and {len(targets)} targets; edges need as many of both")
        data = np.zeros(len(sources), EDGE_DATA) if edge_data is None else edge_data
        itself = next((source for source, target in zip(sources.tolist(), targets.tolist()) if source == target), None)
        if itself is not None:
            raise Problem(f"an edge from node {itself:#x} to itself")
        for source, target, bits in zip(sources.tolist(), targets.tolist(), data):
            found.connect(source, target, bits.tobytes())

    @driver_call("cuGraphDestroy")
    def graph_destroy(self, graph: Handle) -> None:
        found = known(self._graphs, graph, "graph")
        if found.root is not found:
            raise Problem("a graph inside of another one is destroyed with that")
        for handle in [handle for handle, other in self._graphs.items() if other.root is found]:
            self._graphs.pop(handle).destroy()
        self._release_allocations(found)
