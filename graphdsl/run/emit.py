"""Issues the driver calls that build a graph: level by level nodes, their attributes and dependencies, then the exec.

Stream capture is never used. The calls are those of the plan, in its order; what was called is kept as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphdsl.compile.image import KernelImage
from graphdsl.declare.nodes import (
    ChildNode,
    ConditionalNode,
    EmptyNode,
    EventNode,
    EventRecordNode,
    EventWaitNode,
    HostNode,
    KernelNode,
    MemcpyNode,
    MemsetNode,
    Node,
)
from graphdsl.drivers.base import Driver, Handle, InstantiateError
from graphdsl.drivers.structs import (
    CONDITION_ASSIGN_DEFAULT,
    EDGE_DATA,
    EDGE_TYPE_PROGRAMMATIC,
    PRIORITY,
    USE_NODE_PRIORITY,
)
from graphdsl.errors import DriverError
from graphdsl.plan import Level, Plan
from graphdsl.plan.levels import PORTS
from graphdsl.run.calls import Call, CallLog
from graphdsl.run.packing import Packing
from graphdsl.run.rows import copied_rows, set_rows
from graphdsl.run.templates import body_count

Handles = np.ndarray[Any, np.dtype[np.uint64]]

ADD_CALLS: dict[type[Node], str] = {
    KernelNode: "cuGraphAddKernelNode",
    MemcpyNode: "cuGraphAddMemcpyNode",
    MemsetNode: "cuGraphAddMemsetNode",
    HostNode: "cuGraphAddHostNode",
    EmptyNode: "cuGraphAddEmptyNode",
    ChildNode: "cuGraphAddNode",
    ConditionalNode: "cuGraphAddNode",
    EventRecordNode: "cuGraphAddNode",
    EventWaitNode: "cuGraphAddNode",
}


@dataclass(frozen=True)
class Emitted:
    """What the driver gave.

    Attributes
    ----------
    graph_exec : int
        Handle of the exec.
    handles : numpy.ndarray of uint64
        Handle of each node of the plan.
    """

    graph_exec: Handle
    handles: Handles


def begin(plan: Plan, device: Driver, values: dict[str, Any], resources: ExitStack, log: CallLog) -> Handle:
    """Make the driver's graph, and its conditions, whose handles kernels are given; ``values`` takes these by name."""
    graph = device.graph_create()
    resources.callback(device.graph_destroy, graph)
    log.add("cuGraphCreate", plan.name)
    for condition in plan.conditions:
        flags = 0 if condition.default is None else CONDITION_ASSIGN_DEFAULT
        values[condition.name] = device.graph_conditional_handle_create(graph, condition.default or 0, flags)
        log.add("cuGraphConditionalHandleCreate", condition.name, default=condition.default)
    return graph


def emit(
    plan: Plan,
    graph: Handle,
    packing: Packing,
    device: Driver,
    stream: Handle,
    resources: ExitStack,
    log: CallLog,
) -> Emitted:
    """Fill, instantiate and upload the graph of a plan.

    Parameters
    ----------
    plan : Plan
        Nodes in canonical order, and edges.
    graph : int
        What `begin` gave.
    packing : Packing
        The packed structs of the nodes.
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
    handles = _fill(plan, graph, packing, device, log)
    flags = _flags(packing)
    graph_exec = _instantiate(plan, handles, device, graph, sum(flags.values()))
    resources.callback(device.graph_exec_destroy, graph_exec)
    log.add("cuGraphInstantiateWithParams", plan.name, **({"flags": "|".join(flags)} if flags else {}))
    device.graph_upload(graph_exec, stream)
    log.add("cuGraphUpload", plan.name)
    device.stream_synchronize(stream)  # the first launch would wait for it otherwise
    log.add("cuStreamSynchronize")
    return Emitted(graph_exec, handles)


def _fill(plan: Plan, graph: Handle, packing: Packing, device: Driver, log: CallLog) -> Handles:
    """Add the nodes and edges of every level; gives the handle of each node."""
    handles = np.zeros(len(plan.nodes), np.uint64)
    with _empty_graph(plan, device, log) as empty:
        for level in plan.levels:
            inside = graph if level.owner < 0 else _body(plan, level, handles, packing, device)
            _add_nodes(plan, level, inside, handles, packing, device, log, empty)
            _set_attributes(plan, level, packing, handles, device, log)
            _add_dependencies(plan, level, inside, handles, device, log)
    return handles


def _set_attributes(plan: Plan, level: Level, packing: Packing, handles: Handles, device: Driver, log: CallLog) -> None:
    for index, attributes in packing.attributes.items():
        if not level.start <= index < level.stop:
            continue
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


@contextmanager
def _empty_graph(plan: Plan, device: Driver, log: CallLog) -> Iterator[Handle]:
    """What child nodes are made from: the driver copies it into the node, and the copy is filled in place."""
    if not any(isinstance(node, ChildNode) for node in plan.nodes):
        yield 0
        return
    graph = device.graph_create()
    log.add("cuGraphCreate", "nothing")
    try:
        yield graph
    finally:
        device.graph_destroy(graph)
        log.add("cuGraphDestroy", "nothing")


def _body(plan: Plan, level: Level, handles: Handles, packing: Packing, device: Driver) -> Handle:
    """The driver's graph inside of a node that was added before."""
    owner = plan.nodes[level.owner]
    if isinstance(owner, ChildNode):
        return device.graph_child_graph_node_get_graph(int(handles[level.owner]))
    assert isinstance(owner, ConditionalNode), owner
    return packing.bodies(level.owner, body_count(owner))[level.body]


def _add_nodes(
    plan: Plan,
    level: Level,
    graph: Handle,
    handles: Handles,
    packing: Packing,
    device: Driver,
    log: CallLog,
    empty: Handle,
) -> None:
    part = slice(level.start, level.stop)
    nodes = plan.nodes[part]
    for index, node in enumerate(nodes, level.start):
        if isinstance(node, ChildNode):
            packing.write_child(index, empty)
    try:
        handles[part] = device.graph_add_nodes(graph, packing.kinds[part], packing.params[part])
    except DriverError as problem:
        raise named(problem, nodes[problem.index]) from problem
    log.later(lambda: [describe_node(node, image) for node, image in zip(nodes, packing.images[part], strict=True)])


def _add_dependencies(plan: Plan, level: Level, graph: Handle, handles: Handles, device: Driver, log: CallLog) -> None:
    if not len(level.edges):
        return
    sources, targets = handles[level.edges[:, 0]], handles[level.edges[:, 1]]
    device.graph_add_dependencies(graph, sources, targets, _edge_data(level))
    log.later(lambda: [_describe_edges(plan, level)])


def _edge_data(level: Level) -> np.ndarray[Any, Any] | None:
    if not level.ports.any():
        return None
    data = np.zeros(len(level.ports), EDGE_DATA)
    data["from_port"] = level.ports
    data["type"] = np.where(level.ports, EDGE_TYPE_PROGRAMMATIC, 0)
    return data


def _describe_edges(plan: Plan, level: Level) -> Call:
    names = [node.name for node in plan.nodes]
    arrows = {number: "->" if port == "default" else f"-{port}->" for port, number in PORTS.items()}
    edges = ", ".join(
        f"{names[source]} {arrows[port]} {names[target]}"
        for (source, target), port in zip(level.edges.tolist(), level.ports.tolist(), strict=True)
    )
    return Call("cuGraphAddDependencies", level.name, (("edges", f"[{edges}]"),))


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
        shown = [(_COPIED[name], extent) for name, extent in _shown(copied_rows(node.dimensions))]
        return [("dst", _operand(node.destination)), ("src", _operand(node.source)), *shown]
    if isinstance(node, MemsetNode):
        return [("dst", _operand(node.destination)), ("value", node.value), *_shown(set_rows(node))]
    if isinstance(node, HostNode):
        return [("fn", getattr(node.function, "__name__", type(node.function).__name__))]
    if isinstance(node, ChildNode):
        return [("type", "GRAPH"), ("graph", node.graph)]
    if isinstance(node, EventNode):
        return [("type", "EVENT_RECORD" if isinstance(node, EventRecordNode) else "WAIT_EVENT"), ("event", node.event)]
    if isinstance(node, ConditionalNode):
        return [
            ("type", "CONDITIONAL"),
            ("handle", node.condition),
            ("conditionalType", node.form.upper()),
            ("size", body_count(node)),
        ]
    return []


# The driver's names of what says how much is copied. Of one row, only the width needs saying.
_COPIED = {
    "width": "WidthInBytes",
    "height": "Height",
    "depth": "Depth",
    "destination_pitch": "dstPitch",
    "source_pitch": "srcPitch",
    "destination_height": "dstHeight",
    "source_height": "srcHeight",
}
_OF_ONE_ROW = {"height": 1, "depth": 1}


def _shown(extents: Mapping[str, Any]) -> list[tuple[str, Any]]:
    def missing(name: str, extent: Any) -> bool:
        return type(extent) is int and extent == _OF_ONE_ROW.get(name, 0)

    return [(name, extent) for name, extent in extents.items() if name == "width" or not missing(name, extent)]


def _dims(dims: Sequence[Any]) -> str:
    return "(" + ", ".join(map(str, dims)) + ")"


def _operand(operand: Any) -> str:
    return getattr(operand, "name", None) or str(operand)
