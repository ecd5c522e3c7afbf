"""Calls of the emulator that change execs."""

from __future__ import annotations

from graphdsl.drivers.base import Address, Handle
from graphdsl.drivers.emulator import nodes, transfers
from graphdsl.drivers.emulator.allocations import ALLOC, FREE
from graphdsl.drivers.emulator.calls.kinds import kind_of
from graphdsl.drivers.emulator.calls.state import State, known
from graphdsl.drivers.emulator.gate import driver_call
from graphdsl.drivers.emulator.nesting import CHILD, CONDITIONAL
from graphdsl.drivers.emulator.nodes import NodeKind
from graphdsl.drivers.emulator.problems import NOT_SUPPORTED, Problem, UpdateProblem
from graphdsl.drivers.emulator.whole_update import update_whole
from graphdsl.drivers.structs import CHILD_GRAPH_NODE, NODE_PARAMS, UNION_OFFSET


class Updating(State):
    """Changes of execs."""

    @driver_call("cuGraphExecKernelNodeSetParams")
    def graph_exec_kernel_node_set_params(self, graph_exec: Handle, node: Handle, params: Address) -> None:
        self._set_params(graph_exec, node, nodes.KERNEL, params)

    @driver_call("cuGraphExecMemcpyNodeSetParams")
    def graph_exec_memcpy_node_set_params(self, graph_exec: Handle, node: Handle, params: Address) -> None:
        self._set_params(graph_exec, node, transfers.MEMCPY, params)

    @driver_call("cuGraphExecMemsetNodeSetParams")
    def graph_exec_memset_node_set_params(self, graph_exec: Handle, node: Handle, params: Address) -> None:
        self._set_params(graph_exec, node, transfers.MEMSET, params)

    @driver_call("cuGraphExecHostNodeSetParams")
    def graph_exec_host_node_set_params(self, graph_exec: Handle, node: Handle, params: Address) -> None:
        self._set_params(graph_exec, node, nodes.HOST, params)

    @driver_call("cuGraphExecNodeSetParams")
    def graph_exec_node_set_params(self, graph_exec: Handle, node: Handle, params: Address) -> None:
        found = known(self._execs, graph_exec, "exec").node(node)
        if found.kind in (CHILD, CONDITIONAL, ALLOC, FREE):
            raise Problem(f"the params of a {found.kind.name} node of an exec are fixed", NOT_SUPPORTED)
        fields = nodes.struct_at(params, NODE_PARAMS)
        self._set_params(graph_exec, node, kind_of(int(fields["type"])), params + UNION_OFFSET)

    def _set_params(self, graph_exec: Handle, node: Handle, kind: NodeKind, params: Address) -> None:
        found = known(self._execs, graph_exec, "exec").node(node)
        if found.kind is not kind:
            raise Problem(f"node {node:#x} is a {found.kind.name} node, not a {kind.name} node")
        new = kind.read(self._machine, params)
        found.params = kind.accept(self._machine, found.params, new)

    @driver_call("cuGraphExecChildGraphNodeSetParams")
    def graph_exec_child_graph_node_set_params(self, graph_exec: Handle, node: Handle, params: Address) -> None:
        found = known(self._execs, graph_exec, "exec")
        if found.node(node).kind is not CHILD:
            raise Problem(f"node {node:#x} is no child graph node")
        fields = nodes.struct_at(params + UNION_OFFSET, CHILD_GRAPH_NODE)
        given = known(self._graphs, int(fields["graph"]), "graph")
        (inside,) = found.inside(node)
        try:
            update_whole(self._machine, inside, given)
        except UpdateProblem as problem:
            raise Problem(problem.rule, problem.code) from problem

    @driver_call("cuGraphExecUpdate")
    def graph_exec_update(self, graph_exec: Handle, graph: Handle) -> None:
        found, given = known(self._execs, graph_exec, "exec"), known(self._graphs, graph, "graph")
        update_whole(self._machine, found, given)

    @driver_call("cuGraphNodeSetEnabled")
    def graph_node_set_enabled(self, graph_exec: Handle, node: Handle, enabled: bool) -> None:
        found = known(self._execs, graph_exec, "exec").node(node)
        if not found.kind.can_disable:
            raise Problem(
                f"node {node:#x} is of kind {found.kind.name}; only kernel, memcpy and memset nodes can be disabled"
            )
        found.enabled = bool(enabled)
