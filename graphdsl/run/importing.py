"""Reads a graph of the driver's into a definition: what libraries and other builders have made, with names.

Functions stay loaded as they are, and memory is where it was; what the nodes do is read once, and from then on the
definition is like any other. This module must not change the graph that it reads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, get_args

import numpy as np

from graphdsl.compile.demangle import demangled, title_of
from graphdsl.declare.attributes import Access, AccessPolicy, ClusterPolicy, LaunchAttributes, SyncDomain
from graphdsl.declare.definition import Definition
from graphdsl.declare.event import Event
from graphdsl.declare.imported import (
    FunctionAttributes,
    ImportedKernel,
    Keeper,
    LoadedFunction,
    ParameterPlace,
    RawBytes,
    RawMemory,
)
from graphdsl.declare.interop import host_view
from graphdsl.declare.nodes import (
    ChildNode,
    EmptyNode,
    EventRecordNode,
    EventWaitNode,
    KernelNode,
    MemcpyNode,
    MemsetNode,
    NativeHostNode,
    Node,
)
from graphdsl.declare.operands import Buffer
from graphdsl.declare.store import declared_here
from graphdsl.drivers.base import Driver, Handle
from graphdsl.drivers.structs import (
    ACCESS_POLICY_WINDOW,
    ATTRIBUTE_VALUES,
    CLUSTER_DIMENSION,
    CLUSTER_SCHEDULING_POLICY,
    COOPERATIVE,
    EDGE_TYPE_PROGRAMMATIC,
    FUNC_BINARY_VERSION,
    FUNC_MAX_DYNAMIC_SHARED_BYTES,
    FUNC_MAX_THREADS,
    FUNC_REGISTERS,
    FUNC_SHARED_BYTES,
    HOST_NODE,
    KERNEL_NODE,
    MEM_SYNC_DOMAIN,
    MEM_SYNC_DOMAIN_MAP,
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
    PREFERRED_CLUSTER_DIMENSION,
    PRIORITY,
)
from graphdsl.errors import DeclarationError, DriverError
from graphdsl.plan.levels import PORTS

_BYTE = np.dtype(np.uint8)
_MEMORY_TYPE_ARRAY = 3
_BUFFER_POINTER, _BUFFER_SIZE = 1, 2  # CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE

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
        self._kernels: dict[tuple[Handle, bool], ImportedKernel] = {}
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
        row = np.zeros(1, KERNEL_NODE)
        self._device.graph_kernel_node_get_params(handle, row.ctypes.data)
        fields = row[0]
        number = self._number_of(int(fields["ctx"]), where)
        kernel = self._kernel(int(fields["func"]), int(fields["kern"]))
        made: KernelNode = self._add(
            definition,
            KernelNode,
            kernel.short,
            kernel,
            tuple(fields["grid"].tolist()),
            tuple(fields["block"].tolist()),
            int(fields["shared_bytes"]),
            _parameters(fields, kernel.origin.arguments_info, where),
            None,
            self._attributes(handle),
        )
        made.on = number
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

    def _kernel(self, function: Handle, kernel: Handle) -> ImportedKernel:
        """The kernel of a handle; one object for all its nodes."""
        key = (function, True) if function else (kernel, False)
        if key not in self._kernels:
            device = self._device
            own = function or device.kernel_get_function(kernel)
            symbol = device.func_get_name(own)
            name = demangled(symbol)
            attributes = FunctionAttributes(
                device.func_get_attribute(own, FUNC_REGISTERS),
                device.func_get_attribute(own, FUNC_SHARED_BYTES),
                device.func_get_attribute(own, FUNC_MAX_THREADS),
                device.func_get_attribute(own, FUNC_MAX_DYNAMIC_SHARED_BYTES),
                device.func_get_attribute(own, FUNC_BINARY_VERSION),
            )
            places = tuple(ParameterPlace(*place) for place in device.func_get_param_info(own))
            loaded = LoadedFunction(*key, name, attributes, places, self._keeper)
            self._kernels[key] = ImportedKernel(loaded, symbol, title_of(name))
        return self._kernels[key]

    def _attributes(self, handle: Handle) -> LaunchAttributes | None:
        """The launch attributes of a node that are not as the driver has them by default."""
        given: dict[str, Any] = {}
        for number, dtype in ATTRIBUTE_VALUES.items():
            value = np.zeros(1, dtype)
            try:
                self._device.graph_kernel_node_get_attribute(handle, number, value.ctypes.data)
            except DriverError:  # an older driver, or a device without it: then no node has it
                continue
            given |= _ATTRIBUTES[number](self, value[0])
        given = {name: value for name, value in given.items() if value is not None}
        if "preferred_cluster" in given and given["preferred_cluster"] == given.get("cluster"):
            del given["preferred_cluster"]
        return LaunchAttributes(**given) if given else None

    def _window(self, value: np.void) -> dict[str, Any]:
        nbytes = int(value["nbytes"])
        if not nbytes:
            return {}
        array = self._memory(int(value["base"]), (nbytes,), (1,), _BYTE, MEMORY_TYPE_DEVICE)
        hit, miss = (get_args(Access)[int(value[field])] for field in ("hit", "miss"))
        return {"access_policy": AccessPolicy(array, float(value["hit_ratio"]), hit, miss)}

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


def _dims(name: str) -> Callable[[_Importer, np.void], dict[str, Any]]:
    def read(importer: _Importer, value: np.void) -> dict[str, Any]:
        dims = tuple(value["dims"].tolist())
        return {name: dims if max(dims) > 1 else None}

    return read


def _choice(name: str, field: str, options: Any) -> Callable[[_Importer, np.void], dict[str, Any]]:
    return lambda importer, value: {name: get_args(options)[int(value[field])] if value[field] else None}


_ATTRIBUTES: dict[int, Callable[[_Importer, np.void], dict[str, Any]]] = {
    ACCESS_POLICY_WINDOW: _Importer._window,
    COOPERATIVE: lambda importer, value: {"cooperative": True if value["cooperative"] else None},
    CLUSTER_DIMENSION: _dims("cluster"),
    CLUSTER_SCHEDULING_POLICY: _choice("cluster_policy", "policy", ClusterPolicy),
    PRIORITY: lambda importer, value: {"priority": int(value["priority"]) or None},
    MEM_SYNC_DOMAIN_MAP: lambda importer, value: {
        "sync_domain_map": _domains(int(value["default"]), int(value["remote"]))
    },
    MEM_SYNC_DOMAIN: _choice("sync_domain", "domain", SyncDomain),
    PREFERRED_CLUSTER_DIMENSION: _dims("preferred_cluster"),
}
"""How the value of an attribute is read; None stands for what the driver has by default."""


def _domains(default: int, remote: int) -> tuple[int, int] | None:
    return None if (default, remote) in ((0, 1), (0, 0)) else (default, remote)


def _parameters(fields: np.void, places: tuple[ParameterPlace, ...], where: str) -> tuple[RawBytes, ...]:
    """The bytes of each parameter: each has an address, or all lie in one buffer."""
    pointers, extra = int(fields["kernel_params"]), int(fields["extra"])
    if pointers:
        addresses = [_word(pointers + 8 * index) for index in range(len(places))]
    elif extra:
        buffer = _buffer(extra, where)
        addresses = [buffer + place.offset for place in places]
    elif places:
        raise DeclarationError(
            "the driver does not say what the kernel is given",
            node=where,
            field="kernelParams",
            value="NULL",
            remedy="Build the node with kernelParams.",
        )
    else:
        addresses = []
    return tuple(RawBytes(ctypes.string_at(address, place.size)) for address, place in zip(addresses, places))


def _buffer(extra: int, where: str) -> int:
    """The buffer among the options of a launch: pairs of a number and a value, up to a 0."""
    while key := _word(extra):
        if key == _BUFFER_POINTER:
            return _word(extra + 8)
        extra += 16
    raise DeclarationError(
        "the options of the launch name no buffer of parameters", node=where, field="extra", remedy="Use kernelParams."
    )


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def _not_importable(where: str, kind: int) -> DeclarationError:
    why = _REFUSED.get(kind, "graphdsl does not know this kind of node")
    return DeclarationError(
        f"the node cannot be built again: {why}",
        node=where,
        field="kind",
        value=_KINDS.get(kind, f"CUgraphNodeType {kind}"),
        remedy="Build that part of the graph with graphdsl, and import the rest.",
    )
