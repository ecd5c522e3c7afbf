"""Reads a graph of the driver's into a definition: what libraries and other builders have made, with names.

Functions stay loaded as they are, and memory is where it was; what the nodes do is read once, and from then on the
definition is like any other. This module must not change the graph that it reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphdsl.declare.definition import Definition
from graphdsl.declare.event import Event
from graphdsl.declare.imported import Keeper, RawMemory
from graphdsl.declare.interop import host_view
from graphdsl.declare.nesting import ChildNode
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import (
    EmptyNode,
    EventRecordNode,
    EventWaitNode,
    KernelNode,
    MemcpyNode,
    MemsetNode,
    NativeHostNode,
)
from graphdsl.declare.operands import Buffer
from graphdsl.declare.store import declared_here
from graphdsl.drivers.base import Driver, Handle
from graphdsl.drivers.structs import (
    EDGE_TYPE_PROGRAMMATIC,
    HOST_NODE,
    MEMCPY_NODE,
    MEMORY_TYPE_DEVICE,
    MEMORY_TYPE_HOST,
    MEMSET_NODE,
    NODE_TYPE_ALLOC,
    NODE_TYPE_BATCH_MEM_OP,
    NODE_TYPE_CHILD,
    NODE_TYPE_CONDITIONAL,
    NODE_TYPE_EMPTY,
    NODE_TYPE_EVENT_RECORD,
    NODE_TYPE_EVENT_WAIT,
    NODE_TYPE_FREE,
    NODE_TYPE_HOST,
    NODE_TYPE_KERNEL,
    NODE_TYPE_MEMCPY,
    NODE_TYPE_MEMSET,
)
from graphdsl.errors import DeclarationError
from graphdsl.plan.levels import PORTS
from graphdsl.run.imported_kernels import KernelReader

_BYTE = np.dtype(np.uint8)
_MEMORY_TYPE_ARRAY = 3

_REFUSED = {
    NODE_TYPE_ALLOC: "memory that a graph allocates is that graph's alone",
    NODE_TYPE_FREE: "memory that a graph allocates is that graph's alone",
    NODE_TYPE_CONDITIONAL: "its kernels are given the handle of a condition, and that is the graph's alone",
    NODE_TYPE_BATCH_MEM_OP: "batch memory operations are not read",
    8: "semaphores of other interfaces are not read",
    9: "semaphores of other interfaces are not read",
}
_KINDS = {NODE_TYPE_ALLOC: "alloc", NODE_TYPE_FREE: "free", NODE_TYPE_CONDITIONAL: "conditional"}


def import_graph(definition: Definition, graph: Handle, device: Driver, keeper: Keeper) -> None:
    """Declare the nodes and edges of a driver's graph.

    Parameters
    ----------
    definition : Definition
        Takes them; it is empty.
    graph : int
        The driver's graph.
    device : Driver
        Whose driver it is.
    keeper : Keeper
        What keeps alive what the nodes refer to.

    Raises
    ------
    DeclarationError
        If a node cannot be read or built again.
    DriverError
        If the driver does not know the graph.
    """
    _Importer(definition, device, keeper).read(definition, graph)


class _Importer:
    """Reads one graph, and the graphs inside of it."""

    def __init__(self, root: Definition, device: Driver, keeper: Keeper) -> None:
        self._root = root
        self._device = device
        self._keeper = keeper
        self._location = declared_here()
        self._kernels = KernelReader(device, keeper, self._window)
        self._buffers: dict[Any, Buffer] = {}
        self._events: dict[Handle, Event] = {}

    def read(self, definition: Definition, graph: Handle) -> None:
        """Read one level."""
        made: dict[Handle, Node] = {}
        for index, handle in enumerate(self._device.graph_get_nodes(graph)):
            where = f"node {index} of {definition.title}"
            kind = self._device.graph_node_get_type(handle)
            read = _READERS.get(kind)
            if read is None:
                raise _not_importable(where, kind)
            made[handle] = read(self, definition, handle, where)
        sources, targets, data = self._device.graph_get_edges(graph)
        ports = {number: port for port, number in PORTS.items()}
        for source, target, row in zip(sources, targets, data, strict=True):
            number, to_port, programmatic = int(row["from_port"]), int(row["to_port"]), int(row["type"])
            if to_port or number not in ports or programmatic not in (0, EDGE_TYPE_PROGRAMMATIC):
                raise DeclarationError(
                    "the edge has data that graphdsl does not know",
                    node=made[target].name,
                    field="edge",
                    value=f"{made[source].name} >> {made[target].name}: ports {number} and {to_port}, {programmatic=}",
                    remedy="Use a newer graphdsl.",
                )
            definition._add_edge(made[source], made[target], self._location, ports[number])

    def _add(self, definition: Definition, kind: type[Any], fallback: str, *fields: Any) -> Any:
        name = definition._node_name(None, fallback)
        return definition._add(kind(name, definition, self._location, *fields), ())

    # Kernels

    def kernel(self, definition: Definition, handle: Handle, where: str) -> Node:
        """A kernel node: its function as it is loaded, its parameters as bytes."""
        found = self._kernels.read(handle, where)
        launch = (found.grid, found.block, found.shared_bytes)
        made: KernelNode = self._add(
            definition, KernelNode, found.kernel.short, found.kernel, *launch, found.args, None, found.attributes
        )
        made.on = self._number_of(found.context, where)
        return made

    def _number_of(self, context: Handle, where: str) -> int | None:
        """The device of a context; None for that which the graph is read through."""
        device = self._device
        if context in (0, device.context):
            return None
        for number in range(device.device_count):
            if device.sibling(number).context == context:
                return number
        raise DeclarationError(
            "the node runs in a context that is not the primary one of a device",
            node=where,
            field="ctx",
            value=f"{context:#x}",
            remedy="Build the graph in primary contexts, which the CUDA runtime and most libraries use.",
        )

    # Memory

    def memcpy(self, definition: Definition, handle: Handle, where: str) -> Node:
        """A memcpy node: rows of bytes."""
        row = np.zeros(1, MEMCPY_NODE)
        self._device.graph_memcpy_node_get_params(handle, row.ctypes.data)
        destination, source = (self._side(row[0], side, where) for side in ("destination", "source"))
        return self._add(definition, MemcpyNode, "memcpy", destination, source, None)  # type: ignore[no-any-return]

    def _side(self, fields: np.void, side: str, where: str) -> Buffer:
        kind = int(fields[f"{side}_memory_type"])
        if kind == _MEMORY_TYPE_ARRAY:
            raise DeclarationError(
                "graphdsl copies to and from memory with addresses, and this is a CUDA array",
                node=where,
                field=side,
                remedy="Copy it outside of the graph.",
            )
        x, y, z, pitch, rows = (int(fields[f"{side}_{name}"]) for name in ("x_bytes", "y", "z", "pitch", "height"))
        extents = tuple(int(fields[name]) for name in ("depth", "height", "width"))
        _, height, width = extents
        pitch, rows = pitch or width + x, rows or height + y
        base = int(fields[f"{side}_{'host' if kind == MEMORY_TYPE_HOST else 'device'}"])
        steps = (rows * pitch, pitch, 1)
        # One dimension is enough for one row, and two for one slice; what is copied from must agree in this.
        first = 0 if extents[0] > 1 else 1 if height > 1 else 2
        return self._memory(base + (z * rows + y) * pitch + x, extents[first:], steps[first:], _BYTE, kind)

    def memset(self, definition: Definition, handle: Handle, where: str) -> Node:
        """A memset node: rows of elements."""
        row = np.zeros(1, MEMSET_NODE)
        self._device.graph_memset_node_get_params(handle, row.ctypes.data)
        fields = row[0]
        dtype = np.dtype(f"u{int(fields['element_size'])}")
        width, height = int(fields["width"]), int(fields["height"])
        shape = (width,) if height == 1 else (height, width)
        strides = (int(fields["pitch"]), dtype.itemsize)[-len(shape) :]
        array = self._memory(int(fields["destination"]), shape, strides, dtype, MEMORY_TYPE_DEVICE)
        value = int(fields["value"]) % 2 ** (8 * dtype.itemsize)
        return self._add(definition, MemsetNode, "memset", array, value)  # type: ignore[no-any-return]

    def _window(self, address: int, nbytes: int) -> Buffer:
        """The window of an access policy."""
        return self._memory(address, (nbytes,), (1,), _BYTE, MEMORY_TYPE_DEVICE)

    def _memory(
        self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any], declared: int
    ) -> Buffer:
        """The buffer over some memory; one for all that name just that memory."""
        key = (address, shape, strides, dtype)
        found = self._buffers.get(key)
        if found is None:
            name = f"mem{len(self._buffers)}"
            kind = self._device.pointer_get_memory_type(address)
            owner: Any = RawMemory(address, shape, strides, dtype, self._keeper)
            device = None
            if kind == MEMORY_TYPE_DEVICE or (kind is None and declared == MEMORY_TYPE_DEVICE):
                space: Any = "device"
                device = self._device.pointer_get_device(address)
                device = None if device == self._device.ordinal else device
            else:
                space = "pageable" if kind is None else "pinned"
                owner = host_view(address, shape, strides, dtype, self._keeper)
            found = self._buffers[key] = Buffer(
                name,
                shape,
                dtype,
                space,
                self._root,
                strides=strides,
                owner=owner,
                keep=owner,
                address=address,
                location=self._location,
                device=device,
            )
            self._root.operands[name] = found
        return found

    # Other nodes

    def host(self, definition: Definition, handle: Handle, where: str) -> Node:
        """A host node: the address of a C function and what it is called with."""
        row = np.zeros(1, HOST_NODE)
        self._device.graph_host_node_get_params(handle, row.ctypes.data)
        function, user_data = int(row[0]["function"]), int(row[0]["user_data"])
        return self._add(definition, NativeHostNode, "host", function, user_data, self._keeper)  # type: ignore[no-any-return]

    def empty(self, definition: Definition, handle: Handle, where: str) -> Node:
        """An empty node."""
        return self._add(definition, EmptyNode, "empty")  # type: ignore[no-any-return]

    def child(self, definition: Definition, handle: Handle, where: str) -> Node:
        """A child graph node, with what is inside of it."""
        name = definition._node_name(None, "child")
        body = definition._body(name)
        made = definition._add(ChildNode(name, definition, self._location, body, name), ())
        self.read(body, self._device.graph_child_graph_node_get_graph(handle))
        return made

    def event_record(self, definition: Definition, handle: Handle, where: str) -> Node:
        """A node that records an event of somebody else."""
        event = self._event(self._device.graph_event_record_node_get_event(handle))
        return self._add(definition, EventRecordNode, f"record_{event.name}", event)  # type: ignore[no-any-return]

    def event_wait(self, definition: Definition, handle: Handle, where: str) -> Node:
        """A node that waits for an event of somebody else."""
        event = self._event(self._device.graph_event_wait_node_get_event(handle))
        return self._add(definition, EventWaitNode, f"wait_{event.name}", event)  # type: ignore[no-any-return]

    def _event(self, handle: Handle) -> Event:
        found = self._events.get(handle)
        if found is None:
            name = f"event{len(self._events)}"
            found = self._events[handle] = Event(name, handle, False, self._root, self._location)
            self._root.operands[name] = found
        return found


_READERS: dict[int, Callable[[_Importer, Definition, Handle, str], Node]] = {
    NODE_TYPE_KERNEL: _Importer.kernel,
    NODE_TYPE_MEMCPY: _Importer.memcpy,
    NODE_TYPE_MEMSET: _Importer.memset,
    NODE_TYPE_HOST: _Importer.host,
    NODE_TYPE_CHILD: _Importer.child,
    NODE_TYPE_EMPTY: _Importer.empty,
    NODE_TYPE_EVENT_RECORD: _Importer.event_record,
    NODE_TYPE_EVENT_WAIT: _Importer.event_wait,
}


def _not_importable(where: str, kind: int) -> DeclarationError:
    why = _REFUSED.get(kind, "graphdsl does not know this kind of node")
    return DeclarationError(
        f"the node cannot be built again: {why}",
        node=where,
        field="kind",
        value=_KINDS.get(kind, f"CUgraphNodeType {kind}"),
        remedy="Build that part of the graph with graphdsl, and import the rest.",
    )
