"""Issues the driver calls that build a graph: nodes one by one, then their attributes and dependencies, then the exec.

Stream capture is never used. The calls are those of the plan, in its order; what was called is kept as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphdsl.compile.image import KernelImage
from graphdsl.declare.nodes import EmptyNode, HostNode, KernelNode, MemcpyNode, MemsetNode, Node
from graphdsl.drivers.base import Driver, Handle, InstantiateError
from graphdsl.drivers.structs import PRIORITY, USE_NODE_PRIORITY
from graphdsl.errors import DriverError
from graphdsl.plan import Plan
from graphdsl.run.calls import Call, CallLog
from graphdsl.run.packing import Packing

Handles = np.ndarray[Any, np.dtype[np.uint64]]

ADD_CALLS: dict[type[Node], str] = {
    KernelNode: "cuGraphAddKernelNode",
    MemcpyNode: "cuGraphAddMemcpyNode",
    MemsetNode: "cuGraphAddMemsetNode",
    HostNode: "cuGraphAddHostNode",
    EmptyNode: "cuGraphAddEmptyNode",
}


@dataclass(frozen=True)
class Emitted:
    """What the driver gave.

    Attributes
    ----------
    graph, graph_exec : int
        Handles of the graph and its exec.
    handles : numpy.ndarray of uint64
        Handle of each node of the plan.
    """

    graph: Handle
    graph_exec: Handle
    handles: Handles


def emit(plan: Plan, packing: Packing, device: Driver, stream: Handle, resources: ExitStack, log: CallLog) -> Emitted:
    """Build, instantiate and upload the graph of a plan.

    Parameters
    ----------
    plan : Plan
        Nodes in canonical order, and edges.
    packing : Packing
        Their packed structs.
    device : Driver
        Where it is built.
    stream : int
        The stream that the upload is ordered on.
    resources : ExitStack
        Takes what undoes each step.
    log : CallLog
        Takes the calls made.

    Raises
    ------
    DriverError
        With the name of the node that the driver refused or blames.
    """
    graph = device.graph_create()
    resources.callback(device.graph_destroy, graph)
    log.add("cuGraphCreate", plan.name)
    handles = _add_nodes(plan, packing, device, graph, log)
    _set_attributes(plan, packing, handles, device, log)
    _add_dependencies(plan, handles, device, graph, log)
    flags = _flags(packing)
    graph_exec = _instantiate(plan, handles, device, graph, sum(flags.values()))
    resources.callback(device.graph_exec_destroy, graph_exec)
    log.add("cuGraphInstantiateWithParams", plan.name, **({"flags": "|".join(flags)} if flags else {}))
    device.graph_upload(graph_exec, stream)
    log.add("cuGraphUpload", plan.name)
    device.stream_synchronize(stream)  # the first launch would wait for it otherwise
    log.add("cuStreamSynchronize")
    return Emitted(graph, graph_exec, handles)


def _add_nodes(plan: Plan, packing: Packing, device: Driver, graph: Handle, log: CallLog) -> Handles:
    try:
        handles = device.graph_add_nodes(graph, packing.kinds, packing.params)
    except DriverError as problem:
        raise named(problem, plan.nodes[problem.index]) from problem
    log.later(lambda: [describe_node(node, image) for node, image in zip(plan.nodes, packing.images, strict=True)])
    return handles


def _set_attributes(plan: Plan, packing: Packing, handles: Handles, device: Driver, log: CallLog) -> None:
    for index, attributes in packing.attributes.items():
        node = plan.nodes[index]
        for attribute in attributes:
            try:
                device.graph_kernel_node_set_attribute(int(handles[index]), attribute.number, attribute.address)
            except DriverError as problem:
                raise named(problem, node) from problem
            log.add("cuGraphKernelNodeSetAttribute", node.name, **{attribute.name: attribute.given})


def _flags(packing: Packing) -> dict[str, int]:
    """What the graph is instantiated with, by the driver's names."""
    numbers = (attribute.number for attributes in packing.attributes.values() for attribute in attributes)
    return {"USE_NODE_PRIORITY": USE_NODE_PRIORITY} if PRIORITY in numbers else {}


def _add_dependencies(plan: Plan, handles: Handles, device: Driver, graph: Handle, log: CallLog) -> None:
    if not len(plan.edges):
        return
    device.graph_add_dependencies(graph, handles[plan.edges[:, 0]], handles[plan.edges[:, 1]])
    log.later(lambda: [_describe_edges(plan)])


def _describe_edges(plan: Plan) -> Call:
    names = [node.name for node in plan.nodes]
    edges = ", ".join(f"{names[source]} -> {names[target]}" for source, target in plan.edges.tolist())
    return Call("cuGraphAddDependencies", plan.name, (("edges", f"[{edges}]"),))


def _instantiate(plan: Plan, handles: Handles, device: Driver, graph: Handle, flags: int) -> Handle:
    try:
        return device.graph_instantiate_with_params(graph, flags)
    except InstantiateError as problem:
        blamed = dict(zip(handles.tolist(), plan.nodes, strict=True)).get(problem.node_handle)
        if blamed is None:
            raise
        raise named(problem, blamed) from problem


def named(problem: DriverError, node: Node) -> DriverError:
    """The same failure, said of a node."""
    remedy = "graph.check() with this device as target names what it can of the cause."
    return problem.named(node.name, node.location, remedy)


def describe_node(node: Node, image: KernelImage | None) -> Call:
    """The call that adds a node, as text: the same for every driver."""
    return Call(ADD_CALLS[type(node)], node.name, tuple(_fields(node, image)))


def _fields(node: Node, image: KernelImage | None) -> list[tuple[str, Any]]:
    if isinstance(node, KernelNode):
        assert image is not None, node
        types = ", ".join(map(str, image.layout.types))
        return [
            ("kern", f"{node.kernel.name}({types})"),
            ("grid", _dims(node.grid)),
            ("block", _dims(node.block)),
            ("sharedMemBytes", node.shared_bytes),
            ("kernelParams", "(" + ", ".join(map(_operand, node.args)) + ")"),
        ]
    if isinstance(node, MemcpyNode):
        return [("dst", _operand(node.destination)), ("src", _operand(node.source)), ("WidthInBytes", node.size)]
    if isinstance(node, MemsetNode):
        return [("dst", _operand(node.destination)), ("value", node.value)]
    if isinstance(node, HostNode):
        return [("fn", getattr(node.function, "__name__", type(node.function).__name__))]
    return []


def _dims(dims: Sequence[Any]) -> str:
    return "(" + ", ".join(map(str, dims)) + ")"


def _operand(operand: Any) -> str:
    return getattr(operand, "name", None) or str(operand)
