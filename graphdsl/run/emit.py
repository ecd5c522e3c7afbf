"""Issues the driver calls that build a graph: level by level nodes, their attributes and dependencies, then the exec.

The calls are those of the plan, in its order; what was called is kept as text. What captured nodes do is recorded by
`graphdsl.run.captured`; nothing else is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import repeat
from time import perf_counter
from typing import Any

import numpy as np

from graphdsl import profiler
from graphdsl.declare.definition import Definition
from graphdsl.declare.nesting import ChildNode, ConditionalNode
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import AllocNode, CapturedNode, FreeNode, HostNode
from graphdsl.drivers.base import Driver, Handle
from graphdsl.drivers.results import InstantiateError, is_fault, remedy_of
from graphdsl.drivers.structs import (
    CONDITION_ASSIGN_DEFAULT,
    EDGE_DATA,
    EDGE_TYPE_PROGRAMMATIC,
    OWNERSHIP_COPY,
    OWNERSHIP_MOVE,
    PRIORITY,
    USE_NODE_PRIORITY,
)
from graphdsl.errors import DriverError
from graphdsl.plan import Level, Plan
from graphdsl.plan.levels import Edges
from graphdsl.run.adding import add_nodes
from graphdsl.run.calls import CallLog
from graphdsl.run.describe import describe_edges, describe_node
from graphdsl.run.devices import Devices
from graphdsl.run.packing import Packing
from graphdsl.run.shadow import Shadow
from graphdsl.run.templates import Shared, body_count

Handles = np.ndarray[Any, np.dtype[np.uint64]]


@dataclass(frozen=True)
class Emitted:
    """What the driver gave.

    Attributes
    ----------
    graph_exec : int
        Handle of the exec.
    handles : numpy.ndarray of uint64
        Handle of each node of the plan.
    upload_seconds : float
        What it took to bring it to the device.
    """

    graph_exec: Handle
    handles: Handles
    upload_seconds: float


def begin(plan: Plan, devices: Devices, values: dict[str, Any], resources: ExitStack, log: CallLog) -> Handle:
    """Make the driver's graph, and its conditions, whose handles kernels are given; ``values`` takes these by name."""
    graph = devices.home.graph_create()
    resources.callback(devices.home.graph_destroy, graph)
    log.add("cuGraphCreate", plan.name)
    numbers = {node.condition.name: node.device for node in plan.nodes if isinstance(node, ConditionalNode)}
    for condition in plan.conditions:
        flags = 0 if condition.default is None else CONDITION_ASSIGN_DEFAULT
        number = numbers.get(condition.name)
        handle = devices[number].graph_conditional_handle_create(graph, condition.default or 0, flags)
        values[condition.name] = handle
        said = devices.said(number)
        log.add("cuGraphConditionalHandleCreate", condition.name, default=condition.default, **said)
    return graph


def emit(
    plan: Plan,
    graph: Handle,
    shadow: Shadow,
    shared: Shared,
    devices: Devices,
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
    shadow : Shadow
        Packs the nodes as they are added.
    shared : Shared
        Values of params and addresses; it takes those of what the graph allocates.
    devices : Devices
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
    device = devices.home
    handles = fill(plan, graph, shadow, shared, devices, log)
    flags = _flags(shadow.packing)
    graph_exec = _instantiate(plan, handles, device, graph, sum(flags.values()))
    resources.callback(device.graph_exec_destroy, graph_exec)
    log.add("cuGraphInstantiateWithParams", plan.name, **({"flags": "|".join(flags)} if flags else {}))
    began = perf_counter()
    device.graph_upload(graph_exec, stream)
    log.add("cuGraphUpload", plan.name)
    device.stream_synchronize(stream)  # the first launch would wait for it otherwise
    log.add("cuStreamSynchronize")
    return Emitted(graph_exec, handles, perf_counter() - began)


def fill(plan: Plan, graph: Handle, shadow: Shadow, shared: Shared, devices: Devices, log: CallLog) -> Handles:
    """Add the nodes and edges of every level, packed with the values that are shared; gives the handle of each node."""
    filler = _Filler(plan, shadow, shared, devices, log)
    filler.fill(graph)
    return filler.handles


class _Filler:
    """Adds the nodes and edges of every level.

    Attributes
    ----------
    handles : numpy.ndarray of uint64
        Handle of each node of the plan, once it is added.
    """

    def __init__(self, plan: Plan, shadow: Shadow, shared: Shared, devices: Devices, log: CallLog) -> None:
        self.handles: Handles = np.zeros(len(plan.nodes), np.uint64)
        self._plan = plan
        self._shadow = shadow
        self._packing = shadow.packing
        self._shared = shared
        self._devices = devices
        self._device = devices.home
        self._log = log
        self._bodies = {(level.owner, level.body): level for level in plan.levels}
        self._empty: Handle = 0

    def fill(self, graph: Handle) -> None:
        """Fill the graph of the plan."""
        with self._empty_graph():
            self._level(self._plan.levels[0], graph)

    @contextmanager
    def _empty_graph(self) -> Iterator[None]:
        """Make what child nodes are made from: the driver copies it into the node, and the copy is filled in place."""
        if not any(isinstance(node, ChildNode) for node in self._plan.nodes):
            yield
            return
        self._empty = self._device.graph_create()
        self._log.add("cuGraphCreate", "nothing")
        try:
            yield
        finally:
            self._device.graph_destroy(self._empty)
            self._log.add("cuGraphDestroy", "nothing")

    def _level(self, level: Level, graph: Handle) -> None:
        for part in self._parts(level):
            moved = self._prepare(part)
            if isinstance(self._plan.nodes[part.start], AllocNode):
                self._add_alloc(level, graph, part.start)
            else:
                self._add_nodes(graph, part)
                self._add_dependencies(level, graph, part)
            for index in part:
                if index not in moved:
                    self._fill_bodies(index)
        self._add_edges(f"{level.name}, planned", graph, level.added, np.zeros(len(level.added), np.uint8))

    def _parts(self, level: Level) -> Iterator[range]:
        """The nodes of a level in as few runs as can be.

        What is allocated has an address only once it is added, and what is inside of nodes is added before a free node:
        then the driver no longer takes copies of the memory.
        """
        start, holds = level.start, False
        for index in range(level.start, level.stop):
            node = self._plan.nodes[index]
            if isinstance(node, AllocNode) or (isinstance(node, FreeNode) and holds):
                if start < index:
                    yield range(start, index)
                start, holds = index, False
            if isinstance(node, AllocNode):
                yield range(index, index + 1)
                start = index + 1
            holds = holds or bool(node.bodies)
        if start < level.stop:
            yield range(start, level.stop)

    def _prepare(self, part: range) -> set[int]:
        """Pack nodes; gives the children whose graphs are full already."""
        moved = set()
        for index in part:
            node = self._plan.nodes[index]
            self._packing.add(index, node, self._shared)
            if isinstance(node, HostNode):
                self._shadow.bind_first(index)
            elif isinstance(node, CapturedNode):
                self._shadow.bind_first(index)
                self._log.add("cuStreamBeginCapture", node.name, mode="THREAD_LOCAL")
                self._log.add("cuStreamEndCapture", node.name)
            elif isinstance(node, ChildNode):
                if allocates(node.body):
                    self._packing.write_child(index, self._full_graph(index), OWNERSHIP_MOVE)
                    moved.add(index)
                else:
                    self._packing.write_child(index, self._empty, OWNERSHIP_COPY)
        return moved

    def _full_graph(self, index: int) -> Handle:
        """A graph with the nodes of a child, for the driver to take over: it allows no allocation in a copy."""
        graph = self._device.graph_create()
        self._log.add("cuGraphCreate", self._plan.nodes[index].name)
        try:
            self._level(self._bodies[index, 0], graph)
        except BaseException:
            self._device.graph_destroy(graph)
            raise
        return graph

    def _fill_bodies(self, index: int) -> None:
        node = self._plan.nodes[index]
        for number in range(len(node.bodies)):
            level = self._bodies.get((index, number))
            if level is not None:
                self._level(level, self._inside(index, number))

    def _inside(self, index: int, number: int) -> Handle:
        """The driver's graph inside of a node that was added before."""
        node = self._plan.nodes[index]
        if isinstance(node, ChildNode):
            return self._device.graph_child_graph_node_get_graph(int(self.handles[index]))
        assert isinstance(node, ConditionalNode), node
        return self._packing.bodies(index, body_count(node))[number]

    def _add_nodes(self, graph: Handle, part: range) -> None:
        packing, where = self._packing, slice(part.start, part.stop)
        nodes = self._plan.nodes[where]
        added = part
        try:
            self.handles[where] = add_nodes(self._device, graph, nodes, packing.kinds[where], packing.params[where])
        except DriverError as problem:
            added = part[: problem.index]
            blame(problem, nodes[problem.index])
            raise
        finally:
            for index in added:
                if isinstance(self._plan.nodes[index], CapturedNode):
                    self._shadow.note_added(index)
        self._log.later(lambda: list(map(describe_node, nodes, packing.images[where], repeat(self._devices))))
        for index in sorted(packing.attributes.keys() & set(part)):
            self._set_attributes(index)

    def _add_alloc(self, level: Level, graph: Handle, index: int) -> None:
        node = self._plan.nodes[index]
        assert isinstance(node, AllocNode), node
        before = level.edges[level.edges[:, 1] == index, 0]
        try:
            with profiler.named(f"node {node.name}"):
                self.handles[index] = self._device.graph_add_node(
                    graph, int(self._packing.params[index]), self.handles[before]
                )
        except DriverError as problem:
            blame(problem, node)
            raise
        self._shared.values[node.array.name] = self._packing.allocated(index)
        names = ", ".join(self._plan.nodes[source].name for source in before.tolist())
        call = describe_node(node, None, self._devices)
        self._log.add(call.function, call.subject, **dict(call.fields), dependencies=f"[{names}]")

    def _set_attributes(self, index: int) -> None:
        node = self._plan.nodes[index]
        for attribute in self._packing.attributes[index]:
            try:
                self._device.graph_kernel_node_set_attribute(
                    int(self.handles[index]), attribute.number, attribute.address
                )
            except DriverError as problem:
                blame(problem, node)
                raise
            self._log.add("cuGraphKernelNodeSetAttribute", node.name, **{attribute.name: attribute.given})

    def _add_dependencies(self, level: Level, graph: Handle, part: range) -> None:
        edges, ports = level.edges, level.ports
        if len(part) < level.stop - level.start:
            into = (edges[:, 1] >= part.start) & (edges[:, 1] < part.stop)
            edges, ports = edges[into], ports[into]
        self._add_edges(level.name, graph, edges, ports)

    def _add_edges(self, name: str, graph: Handle, edges: Edges, ports: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        if len(edges):
            sources, targets = self.handles[edges[:, 0]], self.handles[edges[:, 1]]
            self._device.graph_add_dependencies(graph, sources, targets, _edge_data(ports))
            self._log.later(lambda: [describe_edges(self._plan, name, edges, ports)])


def allocates(level: Definition) -> bool:
    """True if a node of a level, or of a child in it, allocates or frees memory."""
    return any(
        isinstance(node, (AllocNode, FreeNode)) or (isinstance(node, ChildNode) and allocates(node.body))
        for node in level.nodes
    )


def _edge_data(ports: np.ndarray[Any, np.dtype[np.uint8]]) -> np.ndarray[Any, Any] | None:
    if not ports.any():
        return None
    data = np.zeros(len(ports), EDGE_DATA)
    data["from_port"] = ports
    data["type"] = np.where(ports, EDGE_TYPE_PROGRAMMATIC, 0)
    return data


def _flags(packing: Packing) -> dict[str, int]:
    """What the graph is instantiated with, by the driver's names."""
    numbers = (attribute.number for attributes in packing.attributes.values() for attribute in attributes)
    return {"USE_NODE_PRIORITY": USE_NODE_PRIORITY} if PRIORITY in numbers else {}


def _instantiate(plan: Plan, handles: Handles, device: Driver, graph: Handle, flags: int) -> Handle:
    try:
        return device.graph_instantiate_with_params(graph, flags)
    except InstantiateError as problem:
        blame_handle(problem, plan, handles, device)
        raise


def blame_handle(problem: DriverError, plan: Plan, handles: Handles, device: Driver) -> None:
    """Say a failure of the node whose handle the driver gives, and of its graph."""
    problem.about(graph=plan.name)
    node = node_of(plan.nodes, handles, problem.node_handle, device)
    if node is not None:
        blame(problem, node)
    elif problem.node_handle:
        stranger = f"the driver blames node {problem.node_handle:#x}, which the graph does not declare"
        problem.about(rule=f"{problem.rule}; {stranger}: it lies in a graph that was imported")


def blame(problem: DriverError, node: Node) -> None:
    """Say a failure of a node."""
    if not is_fault(problem):  # which is of work that ran before: this node only heard of it
        problem.about(node=node.name, location=node.location, remedy=remedy_of(problem))


def node_of(nodes: Sequence[Node], handles: Handles, handle: Handle, device: Driver) -> Node | None:
    """The node that the driver knows by a handle, or in whose recorded work it knows one; None if there is none."""
    if not handle:
        return None
    for node, own in zip(nodes, handles.tolist(), strict=True):
        if own == handle:
            return node
        if isinstance(node, CapturedNode):
            inside = device.graph_child_graph_node_get_graph(own)
            if handle in device.graph_get_nodes(inside):
                return node
    return None
