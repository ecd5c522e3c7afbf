"""The emulated device: every driver function of the seam, with the driver's rules and codes, on a machine with no GPU.

Handles are numbers that are never used twice. A launch runs its nodes at once, in the calling thread, unless it calls
host nodes or follows one that does (`in_flight`). What goes wrong in a node ends the launch, is kept, and is raised by
the next call that would wait for it or follows it: a synchronise, a copy to or from the host, an upload or a launch.
Then the emulator can be used again; on a GPU the context would be lost. One lock guards everything; it is open while a
host node runs.
"""

from __future__ import annotations

import copy
import ctypes
import itertools
import random
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from graphdsl.compile.image import KernelImage
from graphdsl.declare.interop import host_view
from graphdsl.declare.limits import DEFAULT_CAPABILITY, Limits, Target, limits_of
from graphdsl.drivers.base import Address, Handle, OneByOne, require_device
from graphdsl.drivers.emulator import nodes, transfers
from graphdsl.drivers.emulator.allocations import (
    ALLOC,
    FREE,
    read_alloc,
    read_free,
    require_unallocated,
    require_unfreed,
)
from graphdsl.drivers.emulator.attributes import default_attribute
from graphdsl.drivers.emulator.batch import BATCH_MEM_OP
from graphdsl.drivers.emulator.capture import EMULATED, Captures, Work, exposed, run_work
from graphdsl.drivers.emulator.events import EVENT_RECORD, EVENT_WAIT, Event, event_of
from graphdsl.drivers.emulator.gate import Gate, driver_call
from graphdsl.drivers.emulator.graph import Condition, Exec, Graph, Node, Order
from graphdsl.drivers.emulator.in_flight import InFlight
from graphdsl.drivers.emulator.instantiate import require_instantiable
from graphdsl.drivers.emulator.kernels import Library
from graphdsl.drivers.emulator.machine import Device, LoadedKernel, Machine
from graphdsl.drivers.emulator.memory import AddressSpace, Bytes
from graphdsl.drivers.emulator.nesting import CHILD, CONDITIONAL, Branch, read_conditional
from graphdsl.drivers.emulator.nodes import NodeKind
from graphdsl.drivers.emulator.problems import (
    CAPTURE_UNSUPPORTED,
    ILLEGAL_ADDRESS,
    INVALID_DEVICE,
    INVALID_HANDLE,
    LAUNCH_FAILED,
    NOT_FOUND,
    NOT_READY,
    NOT_SUPPORTED,
    PEER_ACCESS_UNSUPPORTED,
    AccessError,
    Problem,
    UpdateProblem,
)
from graphdsl.drivers.emulator.queries import write_params
from graphdsl.drivers.emulator.running import run
from graphdsl.drivers.emulator.whole_update import update_whole
from graphdsl.drivers.releases import settle
from graphdsl.drivers.structs import (
    ALLOC_NODE,
    ATTRIBUTE_VALUE_BYTES,
    CHILD_GRAPH_NODE,
    CONDITION_ASSIGN_DEFAULT,
    CONDITIONAL_NODE,
    EDGE_DATA,
    FREE_NODE,
    FUNC_BINARY_VERSION,
    FUNC_MAX_DYNAMIC_SHARED_BYTES,
    FUNC_MAX_THREADS,
    FUNC_REGISTERS,
    FUNC_SHARED_BYTES,
    HOST_NODE,
    KERNEL_NODE,
    MEMCPY_NODE,
    MEMORY_TYPE_DEVICE,
    MEMORY_TYPE_HOST,
    MEMSET_NODE,
    NODE_PARAMS,
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
    OWNERSHIP_MOVE,
    UNION_OFFSET,
    USE_NODE_PRIORITY,
)
from graphdsl.errors import DeclarationError

_handles = itertools.count(0xE000_0000, 0x10)
_DLPACK_CPU = 1
_INSTEAD = "emulate=, a Python function with the same parameters that runs in its place"
_INSTANTIATE_FLAGS = 0b1111  # free on launch, upload, device launch, use node priority
_LEGACY_STREAMS = (0, 1)  # NULL, CU_STREAM_LEGACY
_DEFAULT_STREAMS = (*_LEGACY_STREAMS, 2)  # CU_STREAM_PER_THREAD


class Emulator(OneByOne):
    """One emulated device, the first of an emulated computer; see `graphdsl.drivers.base.Driver` for the functions.

    Parameters
    ----------
    order : "declared", "random" or "reverse"
        In which topological order a launch runs its nodes: ties by insertion, drawn anew for each launch, or ties by
        reverse insertion. A result that depends on it needs an edge.
    seed : int, optional
        Of the random order; by default another each time.
    target : str, tuple of int, or Limits, or a list of them
        Compute capability of the device, such as ``"sm_90"``; a list has one for each device of the computer.
    memory_bytes : int
        Memory of each device; that of the largest GPU by default. A byte takes two of this machine's once it is
        touched, and nothing before.
    build_only : bool
        Build graphs only, to look at the driver calls: external memory may lie on other devices, and launches are
        refused.
    devices : int, optional
        How many devices the computer has; by default one, or as many as ``target`` lists. `sibling` gives the others.
    peer_access : bool
        Whether each device can reach the memory of the others.

    Attributes
    ----------
    name, emulated, limits, context, ordinal, device_count
        As `Driver` has them.
    gate : Gate
        What all calls pass through.
    history : collections.deque of str
        Names of the driver functions that were called, the last 1,000 of them.
    fail_next : callable
        Plans a failure of a coming call, for tests of what happens then; see `Gate.fail_next`.

    Raises
    ------
    DeclarationError
        If ``order`` or ``target`` is not known, or there would be no device.

    Examples
    --------
    >>> emulator = Emulator(order="random", seed=1)
    >>> address = emulator.mem_alloc(1024)
    >>> emulator.live["allocations"]
    1
    >>> emulator.mem_free(address)
    """

    emulated = True
    survives_fork = True

    def __init__(
        self,
        order: Order = "declared",
        seed: int | None = None,
        target: Target | list[Target] = DEFAULT_CAPABILITY,
        memory_bytes: int = 288 * 2**30,
        build_only: bool = False,
        devices: int | None = None,
        peer_access: bool = True,
    ) -> None:
        if order not in ("declared", "random", "reverse"):
            raise DeclarationError(
                "the order of execution is declared, random or reverse",
                field="order",
                value=repr(order),
                remedy='Pass order="declared".',
            )
        self.order = order
        self.gate = Gate()
        self.history = self.gate.history
        self.fail_next = self.gate.fail_next
        self.build_only = build_only
        made = _devices(target, devices)
        self._machine = Machine(AddressSpace(memory_bytes), made, made[0], self.gate, build_only=build_only)
        self._peer_access = peer_access
        self._rng = random.Random(seed)
        self._libraries: dict[Handle, Library] = {}
        self._in_flight = InFlight(self.gate)
        self._streams: dict[Handle, int] = {}  # device of each
        self._graphs: dict[Handle, Graph] = {}
        self._execs: dict[Handle, Exec] = {}
        self._nodes_with_graphs: dict[Handle, Handle] = {}  # graph inside of each child graph node
        self._captures = Captures()
        self._faults: list[Problem] = []  # one at most
        self._siblings: list[Emulator] = []  # all devices, where there are several
        if len(made) > 1:
            self._siblings += [self, *(copy.copy(self) for _ in made[1:])]
            for sibling, device in zip(self._siblings, made):
                sibling._machine = replace(self._machine, device=device)

    @property
    def ordinal(self) -> int:
        return self._machine.device.ordinal

    @property
    def limits(self) -> Limits:
        return self._machine.device.limits

    @property
    def name(self) -> str:
        return self._machine.device.limits.name

    @property
    def context(self) -> Handle:
        return self._machine.device.context

    @property
    def device_count(self) -> int:
        return len(self._machine.devices)

    def sibling(self, ordinal: int) -> Emulator:
        require_device(self, ordinal)
        return self._siblings[ordinal] if self._siblings else self

    def __repr__(self) -> str:
        return f"<{self.name}, order={self.order!r}>"

    # For tests

    @property
    def live(self) -> dict[str, int]:
        """How many of each kind of resource have not been given back, once all that was dropped is."""
        settle()
        space = self._machine.space
        with self.gate.lock:
            return {
                "allocations": len(space.live("device")),
                "pinned": len(space.live("pinned")),
                "libraries": len(self._libraries),
                "streams": len(self._streams),
                "events": len(self._machine.events),
                "graphs": len(self._graphs),
                "execs": len(self._execs),
            }

    @property
    def allocations(self) -> list[tuple[Address, int]]:
        """Address and size of each allocation of device memory that has not been freed."""
        with self.gate.lock:
            return [(region.base, region.nbytes) for region in self._machine.space.live("device")]

    def _report_fault(self) -> None:
        """Raise what went wrong in a node since the last report."""
        if self._faults:
            raise self._faults.pop()

    # Kernels

    @driver_call("cuLibraryLoadData")
    def library_load_data(self, image: KernelImage) -> Handle:
        library = next(_handles)
        self._libraries[library] = Library(image, self._add_kernel(image))
        return library

    @driver_call("cuLibraryGetKernel")
    def library_get_kernel(self, library: Handle, image: KernelImage) -> Handle:
        found = _known(self._libraries, library, "library")
        if not found.has(image):
            raise Problem(f"the library has no kernel {image.entry!r}", NOT_FOUND)
        if image not in found.kernels:
            found.kernels[image] = self._add_kernel(image)
        return found.kernels[image]

    @driver_call("cuKernelGetFunction")
    def kernel_adopt(self, image: KernelImage) -> Handle:
        own = int(image.loaded.handle)
        return own if own in self._machine.kernels else self._add_kernel(image)

    def _add_kernel(self, image: KernelImage) -> Handle:
        self._machine.device.require_runs(image)
        if image.function is None and not self.build_only:
            raise Problem(
                f"the emulator runs Python, and {image.name!r} is machine code",
                NOT_SUPPORTED,
                f"Pass {_INSTEAD}, run it on a GPU, or look at the graph with trace()."
                if image.loaded is None
                else f"Run it on a GPU, or pass the code itself to graphdsl.cubin with {_INSTEAD}.",
            )
        handle = next(_handles)
        self._machine.kernels[handle] = LoadedKernel(image)
        return handle

    @driver_call("cuKernelGetParamInfo")
    def kernel_get_param_info(self, kernel: Handle) -> tuple[tuple[int, int], ...]:
        return _known(self._machine.kernels, kernel, "kernel").image.layout.parameters

    @driver_call("cuKernelSetAttribute")
    def kernel_set_max_shared_bytes(self, kernel: Handle, nbytes: int) -> None:
        _known(self._machine.kernels, kernel, "kernel").set_max_shared_bytes(self._machine.device, nbytes)

    @driver_call("cuKernelSetAttribute")
    def kernel_allow_large_clusters(self, kernel: Handle) -> None:
        _known(self._machine.kernels, kernel, "kernel").large_clusters.add(self.ordinal)

    @driver_call("cuLibraryUnload")
    def library_unload(self, library: Handle) -> None:
        found = _known(self._libraries, library, "library")
        del self._libraries[library]
        for handle in found.kernels.values():
            self._machine.kernels.pop(handle).loaded = False

    # Memory

    @driver_call("cuMemAlloc")
    def mem_alloc(self, nbytes: int) -> Address:
        self._captures.refuse_here("allocates nothing")
        return self._machine.space.allocate(nbytes, self.ordinal).base

    @driver_call("cuMemGetInfo")
    def mem_get_info(self) -> tuple[int, int]:
        return self._machine.space.left(self.ordinal), self._machine.space.capacity

    @driver_call("cuMemFree")
    def mem_free(self, address: Address) -> None:
        self._captures.refuse_here("frees nothing")
        if address:
            self._machine.space.free(address)

    @driver_call("cuMemHostAlloc")
    def mem_host_alloc(self, nbytes: int) -> Bytes:
        self._captures.refuse_here("allocates nothing")
        return self._machine.space.allocate_pinned(nbytes)

    @driver_call("cuMemFreeHost")
    def mem_free_host(self, array: np.ndarray[Any, Any]) -> None:
        self._captures.refuse_here("frees nothing")
        if array.size:
            self._machine.space.release(array.ctypes.data, "pinned")

    @driver_call("cuMemcpyHtoDAsync")
    def memcpy_htod(self, destination: Address, source: np.ndarray[Any, Any], stream: Handle) -> None:
        self._wait_for_stream(stream)
        if source.size:
            self._on_device(destination)
            self._machine.space.writing(destination, source.nbytes)[:] = _bytes(source)

    @driver_call("cuMemcpyDtoHAsync")
    def memcpy_dtoh(self, destination: np.ndarray[Any, Any], source: Address, stream: Handle) -> None:
        self._wait_for_stream(stream)
        if destination.size:
            self._on_device(source)
            _bytes(destination)[:] = self._machine.space.reading(source, destination.nbytes)

    @driver_call("cuMemcpy3DAsync")
    def memcpy_3d(self, params: Address, stream: Handle) -> None:
        self._wait_for_stream(stream)
        transfers.MEMCPY.run(self._machine, transfers.MEMCPY.read(self._machine, params))

    def _on_device(self, address: Address) -> None:
        if self._machine.space.is_pageable(address):
            raise Problem(f"{address:#x} is ordinary host memory, not memory of the device")

    @property
    def dlpack_device(self) -> tuple[int, int]:
        return _DLPACK_CPU, 0

    @driver_call("cuMemGetAddressRange")
    def dlpack_export(
        self,
        address: Address,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: np.dtype[Any],
        owner: Any,
    ) -> np.ndarray[Any, Any]:
        """The emulated memory as an array of the host; what was not written before holds ``0xCD``."""
        array = exposed(self._machine, address, shape, strides, dtype)
        return host_view(array.ctypes.data, shape, strides, dtype, owner)

    # Other devices

    @driver_call("cuDeviceCanAccessPeer")
    def device_can_access_peer(self, peer: int) -> bool:
        require_device(self, peer)
        return self._peer_access and peer != self.ordinal

    @driver_call("cuCtxEnablePeerAccess")
    def ctx_enable_peer_access(self, context: Handle) -> None:
        peer = self._machine.device_of(context)
        if peer is self._machine.device:
            raise Problem("a device is no peer of itself", INVALID_DEVICE)
        if not self._peer_access:
            raise Problem(f"{self.name} does not reach the memory of {peer.limits.name}", PEER_ACCESS_UNSUPPORTED)
        self._machine.peers.add((self.ordinal, peer.ordinal))

    @driver_call("cuPointerGetAttribute")
    def pointer_get_memory_type(self, address: Address) -> int | None:
        region = self._machine.space.find(address)
        return None if region is None else {"device": MEMORY_TYPE_DEVICE, "pinned": MEMORY_TYPE_HOST}[region.kind]

    @driver_call("cuPointerGetAttribute")
    def pointer_get_device(self, address: Address) -> int | None:
        return self._machine.space.owner(address)

    # Streams and events

    @driver_call("cuStreamCreate")
    def stream_create(self) -> Handle:
        handle = next(_handles)
        self._streams[handle] = self.ordinal
        return handle

    @driver_call("cuStreamSynchronize")
    def stream_synchronize(self, stream: Handle) -> None:
        self._wait_for_stream(stream)

    def _wait_for_stream(self, stream: Handle) -> None:
        self._check_stream(stream)
        self._captures.refuse(stream, "is not waited for")
        self._in_flight.wait(self._in_flight.last(stream))
        self._report_fault()

    @driver_call("cuStreamBeginCapture")
    def stream_begin_capture(self, stream: Handle) -> None:
        self._check_stream(stream)
        if stream in _LEGACY_STREAMS:
            raise Problem("the legacy default stream is not captured", CAPTURE_UNSUPPORTED)
        self._captures.begin(stream)

    @driver_call("cuStreamEndCapture")
    def stream_end_capture(self, stream: Handle) -> Handle:
        self._check_stream(stream)
        handle, graph = next(_handles), self._captures.end(stream)
        self._graphs[handle] = graph
        return handle

    @driver_call("cuLaunchKernel")
    def stream_emulate(self, stream: Handle, work: Work) -> None:
        """Put Python code into a stream, in the place of what a library would launch there; see `Work`."""
        self._check_stream(stream)
        if not self._captures.record(stream, lambda: Node(next(_handles), EMULATED, work)):
            run_work(self._machine, work)

    def made_current(self) -> AbstractContextManager[None]:
        return nullcontext()

    @driver_call("cuStreamDestroy")
    def stream_destroy(self, stream: Handle) -> None:
        if stream not in self._streams:
            raise Problem(f"{stream:#x} is no stream of this device, or it was destroyed before", INVALID_HANDLE)
        del self._streams[stream]

    @driver_call("cuEventCreate")
    def event_create(self, timing: bool = False) -> Handle:
        handle = next(_handles)
        self._machine.events[handle] = Event(timing, self.ordinal)
        return handle

    @driver_call("cuEventElapsedTime")
    def event_elapsed_time(self, start: Handle, end: Handle) -> float:
        self._report_fault()
        first, last = self._event(start), self._event(end)
        if not first.done or not last.done:
            raise Problem("an event is recorded behind work that has not ended", NOT_READY)
        if not first.timing or not last.timing or first.recorded is None or last.recorded is None:
            raise Problem("the time is between two events with timing that were recorded", INVALID_HANDLE)
        return (last.recorded - first.recorded) * 1e3

    @driver_call("cuEventRecord")
    def event_record(self, event: Handle, stream: Handle) -> None:
        found = self._event(event)
        self._check_stream(stream)
        if self._streams.get(stream, self.ordinal) != found.device:
            raise Problem("an event is recorded in streams of its own device", INVALID_HANDLE)
        found.record(self._in_flight.last(stream))

    @driver_call("cuEventQuery")
    def event_query(self, event: Handle) -> bool:
        found = self._event(event)
        self._report_fault()
        return found.done

    @driver_call("cuEventSynchronize")
    def event_synchronize(self, event: Handle) -> None:
        found = self._event(event)
        self.gate.wait_until(lambda: found.done)
        self._report_fault()

    @driver_call("cuEventDestroy")
    def event_destroy(self, event: Handle) -> None:
        self._event(event)
        del self._machine.events[event]

    def _check_stream(self, stream: Handle) -> None:
        if stream not in _DEFAULT_STREAMS and stream not in self._streams:
            raise Problem(f"{stream:#x} is no stream of this device", INVALID_HANDLE)

    def _event(self, event: Handle) -> Event:
        return event_of(self._machine, event, INVALID_HANDLE)

    # Building graphs

    @driver_call("cuGraphCreate")
    def graph_create(self) -> Handle:
        handle = next(_handles)
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
        found = _known(self._graphs, graph, "graph")
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
        handle = self._add_node(graph, _kind_of(node_type), address) if add is None else add(found, address)
        for source in before:
            found.connect(source, handle)
        return handle

    def _add_alloc(self, graph: Graph, address: Address) -> Handle:
        region = read_alloc(self._machine, nodes.struct_at(address, ALLOC_NODE))
        graph.root.allocations.append(region)
        ctypes.c_uint64.from_address(address + ALLOC_NODE.fields["address"][1]).value = region.base  # type: ignore[index]
        node = Node(next(_handles), ALLOC, region)
        graph.add(node)
        return node.handle

    def _add_free(self, graph: Graph, address: Address) -> Handle:
        region = read_free(self._machine, graph, nodes.struct_at(address, FREE_NODE))
        region.has_free_node = True
        node = Node(next(_handles), FREE, region)
        graph.add(node)
        return node.handle

    def _add_child(self, graph: Graph, address: Address) -> Handle:
        fields = nodes.struct_at(address, CHILD_GRAPH_NODE)
        source = _known(self._graphs, int(fields["graph"]), "graph")
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
            handle, inside = next(_handles), source.clone(graph.root, lambda: next(_handles))
            self._graphs[handle] = inside
        node = Node(next(_handles), CHILD, handle)
        graph.add(node)
        graph.inner[node.handle] = (inside,)
        self._nodes_with_graphs[node.handle] = handle
        return node.handle

    def _add_conditional(self, graph: Graph, address: Address) -> Handle:
        fields = nodes.struct_at(address, CONDITIONAL_NODE)
        conditions = graph.root.conditions
        form, size = read_conditional(fields, conditions)
        handles = np.array([next(_handles) for _ in range(size)], np.uint64)
        inside = tuple(Graph(graph.root) for _ in range(size))
        self._graphs.update(zip(handles.tolist(), inside))
        condition = int(fields["handle"])
        node = Node(
            next(_handles),
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
        return _known(self._nodes_with_graphs, node, "child graph node")

    @driver_call("cuGraphConditionalHandleCreate")
    def graph_conditional_handle_create(self, graph: Handle, default: int, flags: int) -> Handle:
        found = _known(self._graphs, graph, "graph")
        if flags not in (0, CONDITION_ASSIGN_DEFAULT):
            raise Problem(f"flags {flags} of a condition; they are 0 or {CONDITION_ASSIGN_DEFAULT}")
        handle = next(_handles)
        found.root.conditions[handle] = self._machine.conditions[handle] = Condition(default, bool(flags), self.context)
        return handle

    def _add_node(self, graph: Handle, kind: NodeKind, params: Address) -> Handle:
        found = _known(self._graphs, graph, "graph")
        given = _STRUCTS.get(kind.name)
        read = kind.read(self._machine, params)  # which refuses NULL
        node = Node(next(_handles), kind, read, ctypes.string_at(params, given.itemsize) if given else b"")
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

    def _node(self, handle: Handle) -> Node:
        """A node of any graph."""
        found = next((graph.nodes[handle] for graph in self._graphs.values() if handle in graph.nodes), None)
        if found is None:
            raise Problem(f"{handle:#x} is no node of a graph of this device")
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
        found = _known(self._graphs, graph, "graph")
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
        found = _known(self._graphs, graph, "graph")
        if found.root is not found:
            raise Problem("a graph inside of another one is destroyed with that")
        for handle in [handle for handle, other in self._graphs.items() if other.root is found]:
            self._graphs.pop(handle).destroy()
        self._release_allocations(found)

    # Looking into graphs

    @driver_call("cuGraphGetNodes")
    def graph_get_nodes(self, graph: Handle) -> list[Handle]:
        return list(_known(self._graphs, graph, "graph").nodes)

    @driver_call("cuGraphGetEdges")
    def graph_get_edges(self, graph: Handle) -> tuple[list[Handle], list[Handle], np.ndarray[Any, Any]]:
        found = _known(self._graphs, graph, "graph").successors
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

    @driver_call("cuKernelGetFunction")
    def kernel_get_function(self, kernel: Handle) -> Handle:
        _known(self._machine.kernels, kernel, "kernel")
        return kernel

    @driver_call("cuFuncGetName")
    def func_get_name(self, function: Handle) -> str:
        return _known(self._machine.kernels, function, "kernel").image.entry

    @driver_call("cuFuncGetParamInfo")
    def func_get_param_info(self, function: Handle) -> tuple[tuple[int, int], ...]:
        return _known(self._machine.kernels, function, "kernel").image.layout.parameters

    @driver_call("cuFuncGetAttribute")
    def func_get_attribute(self, function: Handle, attribute: int) -> int:
        found = _known(self._machine.kernels, function, "kernel")
        major, minor = found.image.target
        known = {
            FUNC_MAX_THREADS: found.image.max_threads,
            FUNC_SHARED_BYTES: found.image.shared_bytes,
            FUNC_REGISTERS: found.image.registers,
            FUNC_BINARY_VERSION: 10 * major + minor,
            FUNC_MAX_DYNAMIC_SHARED_BYTES: found.max_shared_bytes(self._machine.device),
        }
        if attribute not in known:
            raise Problem(f"the emulator knows no attribute {attribute} of kernels", NOT_SUPPORTED)
        return known[attribute]

    @driver_call("cuGraphNodeGetType")
    def graph_node_get_type(self, node: Handle) -> int:
        return _NODE_TYPES[self._node(node).kind.name]

    # Running graphs

    @driver_call("cuGraphInstantiateWithParams")
    def graph_instantiate_with_params(self, graph: Handle, flags: int = 0) -> Handle:
        found = _known(self._graphs, graph, "graph")
        if flags & ~_INSTANTIATE_FLAGS:
            raise Problem(f"there are no flags {flags & ~_INSTANTIATE_FLAGS:#x} of instantiate")
        if flags & ~USE_NODE_PRIORITY:
            raise Problem(f"the emulator does not know the flags {flags:#x}", NOT_SUPPORTED)
        require_instantiable(found, self._machine)
        handle = next(_handles)
        found.execs += 1
        self._execs[handle] = Exec(found, self.order, self._rng, bool(flags & USE_NODE_PRIORITY))
        return handle

    @driver_call("cuGraphUpload")
    def graph_upload(self, graph_exec: Handle, stream: Handle) -> None:
        found = _known(self._execs, graph_exec, "exec")
        self._in_flight.wait(found.last)
        self._wait_for_stream(stream)

    @driver_call("cuGraphLaunch")
    def graph_launch(self, graph_exec: Handle, stream: Handle) -> None:
        self._report_fault()
        found = _known(self._execs, graph_exec, "exec")
        self._check_stream(stream)
        if self._machine.build_only:
            raise Problem("this emulator only builds graphs", NOT_SUPPORTED, "Make one without build_only=True.")
        if found.last is None or found.last.done:
            require_unallocated(found)
        if self._in_flight.last(stream) or not (found.last is None or found.last.done) or self._may_block(found):
            found.last = self._in_flight.leave(stream, partial(self._run_left, found.as_now()), found.last)
            for node in found.of_kind(EVENT_RECORD):
                event_of(self._machine, node.params, INVALID_HANDLE).behind = found.last
        else:
            self._run_launch(found)

    def _may_block(self, found: Exec) -> bool:
        """True if a node may have to wait for something that happens outside of the launch."""
        waits = found.of_kind(EVENT_WAIT)
        events = (self._machine.events.get(node.params) for node in waits)
        return bool(found.of_kind(nodes.HOST)) or any(event is not None and not event.done for event in events)

    def _run_left(self, found: Exec) -> None:
        """Run a launch in a thread of the emulator, behind others that may have failed."""
        try:
            if not self._faults:
                self._run_launch(found)
        except BaseException as problem:
            self._faults.append(Problem(f"{type(problem).__name__}: {problem}", LAUNCH_FAILED))

    def _run_launch(self, found: Exec) -> None:
        found.reset_conditions()
        try:
            require_unallocated(found)
            run(found, self._machine)
        except Problem as problem:
            # Kept for the next call that waits.
            if isinstance(problem, AccessError):
                problem.code = ILLEGAL_ADDRESS
            self._faults.append(problem)

    @driver_call("cuGraphExecDestroy")
    def graph_exec_destroy(self, graph_exec: Handle) -> None:
        found = _known(self._execs, graph_exec, "exec")
        source = found.source
        if source.allocations:  # which are given back with it
            self._in_flight.wait(found.last)
        source.execs -= 1
        del self._execs[graph_exec]
        self._release_allocations(source)

    def _release_allocations(self, graph: Graph) -> None:
        """Give back what a graph allocates, once neither it nor an exec of it is there."""
        if not graph.alive and not graph.execs:
            for region in graph.allocations:
                self._machine.space.release(region.base, "device")
            graph.allocations.clear()

    # Updating execs

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
        found = _known(self._execs, graph_exec, "exec").node(node)
        if found.kind in (CHILD, CONDITIONAL, ALLOC, FREE):
            raise Problem(f"the params of a {found.kind.name} node of an exec are fixed", NOT_SUPPORTED)
        fields = nodes.struct_at(params, NODE_PARAMS)
        self._set_params(graph_exec, node, _kind_of(int(fields["type"])), params + UNION_OFFSET)

    def _set_params(self, graph_exec: Handle, node: Handle, kind: NodeKind, params: Address) -> None:
        found = _known(self._execs, graph_exec, "exec").node(node)
        if found.kind is not kind:
            raise Problem(f"node {node:#x} is a {found.kind.name} node, not a {kind.name} node")
        new = kind.read(self._machine, params)
        found.params = kind.accept(self._machine, found.params, new)

    @driver_call("cuGraphExecChildGraphNodeSetParams")
    def graph_exec_child_graph_node_set_params(self, graph_exec: Handle, node: Handle, params: Address) -> None:
        found = _known(self._execs, graph_exec, "exec")
        if found.node(node).kind is not CHILD:
            raise Problem(f"node {node:#x} is no child graph node")
        fields = nodes.struct_at(params + UNION_OFFSET, CHILD_GRAPH_NODE)
        given = _known(self._graphs, int(fields["graph"]), "graph")
        (inside,) = found.inside(node)
        try:
            update_whole(self._machine, inside, given)
        except UpdateProblem as problem:
            raise Problem(problem.rule, problem.code) from problem

    @driver_call("cuGraphExecUpdate")
    def graph_exec_update(self, graph_exec: Handle, graph: Handle) -> None:
        found, given = _known(self._execs, graph_exec, "exec"), _known(self._graphs, graph, "graph")
        update_whole(self._machine, found, given)

    @driver_call("cuGraphNodeSetEnabled")
    def graph_node_set_enabled(self, graph_exec: Handle, node: Handle, enabled: bool) -> None:
        found = _known(self._execs, graph_exec, "exec").node(node)
        if not found.kind.can_disable:
            raise Problem(
                f"node {node:#x} is of kind {found.kind.name}; only kernel, memcpy and memset nodes can be disabled"
            )
        found.enabled = bool(enabled)


_STRUCTS = {"kernel": KERNEL_NODE, "memcpy": MEMCPY_NODE, "memset": MEMSET_NODE, "host": HOST_NODE}
"""What nodes of these kinds are made from."""

_NODE_TYPES = {
    "kernel": NODE_TYPE_KERNEL,
    "memcpy": NODE_TYPE_MEMCPY,
    "memset": NODE_TYPE_MEMSET,
    "host": NODE_TYPE_HOST,
    "child": NODE_TYPE_CHILD,
    "empty": NODE_TYPE_EMPTY,
    "event wait": NODE_TYPE_EVENT_WAIT,
    "event record": NODE_TYPE_EVENT_RECORD,
    "alloc": NODE_TYPE_ALLOC,
    "free": NODE_TYPE_FREE,
    "conditional": NODE_TYPE_CONDITIONAL,
    "batch mem op": NODE_TYPE_BATCH_MEM_OP,
    "captured": -1,  # no GPU driver has nodes of Python code
}


def _kind_of(node_type: int) -> NodeKind:
    """The kind of node that a type in a `NODE_PARAMS` stands for."""
    kind = {
        NODE_TYPE_EVENT_RECORD: EVENT_RECORD,
        NODE_TYPE_EVENT_WAIT: EVENT_WAIT,
        NODE_TYPE_BATCH_MEM_OP: BATCH_MEM_OP,
    }.get(node_type)
    if kind is None:
        raise Problem(f"the emulator has no nodes of type {node_type}", NOT_SUPPORTED)
    return kind


def _devices(target: Target | list[Target], count: int | None) -> tuple[Device, ...]:
    """The devices of a computer; what messages call them tells them apart."""
    targets = target if isinstance(target, list) else [target] * (1 if count is None else count)
    if not targets or count not in (None, len(targets)):
        raise DeclarationError(
            "an emulated computer has one device at least, and each has one target",
            field="devices",
            value=count,
            remedy="Pass how many there are, or a list of targets, one for each.",
        )
    made = []
    for ordinal, limits in enumerate(map(limits_of, targets)):
        which = f", device {ordinal}" if len(targets) > 1 else ""
        made.append(Device(ordinal, replace(limits, name=f"emulator ({limits.name}{which})"), next(_handles)))
    return tuple(made)


T = TypeVar("T")


def _known(table: dict[Handle, T], handle: Handle, what: str) -> T:
    """What a handle stands for."""
    if handle not in table:
        raise Problem(f"{int(handle):#x} is no {what} of this device, or it was destroyed before")
    return table[handle]


def _bytes(array: np.ndarray[Any, Any]) -> Bytes:
    """The memory of a host array."""
    if not array.flags.c_contiguous:
        raise Problem(
            "the host array of a copy must be C contiguous", remedy="Copy it with numpy.ascontiguousarray first."
        )
    return array.reshape(-1).view(np.uint8)
