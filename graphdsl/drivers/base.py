"""The seam between graphs and what runs them: one method for each driver function that is used.

Names are the driver's, in snake case without the ``cu``. What crosses is the same on both sides: handles and
addresses are integers, node parameters are the addresses of packed structs (`graphdsl.drivers.structs`). A method
raises `DriverError` with the driver's name of the function and its result code. This module must not decide anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, runtime_checkable

import numpy as np

from graphdsl.compile.image import KernelImage
from graphdsl.declare.limits import Limits
from graphdsl.drivers.results import driver_error
from graphdsl.drivers.structs import CHILD, EMPTY, GENERIC, HOST, KERNEL, MEMCPY, MEMSET
from graphdsl.errors import DriverError, GraphdslError

Handle = int
Address = int


@runtime_checkable
class Driver(Protocol):
    """What runs graphs: one device of `graphdsl.drivers.cuda` or one of `graphdsl.drivers.emulator`.

    Attributes
    ----------
    name : str
        What messages call it, such as ``"NVIDIA H200 (cuda:0)"`` or ``"emulator (sm_90)"``.
    emulated : bool
        True for the emulator.
    survives_fork : bool
        True if a forked child has a copy that works.
    limits : Limits
        What the device can do.
    context : int
        Handle of its context, which its nodes run in.
    ordinal : int
        Its number among the devices of the computer.
    device_count : int
        How many devices the computer has.
    """

    @property
    def name(self) -> str: ...
    @property
    def emulated(self) -> bool: ...
    @property
    def survives_fork(self) -> bool: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def context(self) -> Handle: ...
    @property
    def ordinal(self) -> int: ...
    @property
    def device_count(self) -> int: ...

    # Other devices

    def sibling(self, ordinal: int) -> Driver:
        """Another device of the computer, or this one; raises `GraphdslError` if there is none of that number.

        Handles of graphs, execs, streams, events and kernels, and addresses of memory, are good on all of them.
        """

    def device_can_access_peer(self, peer: int) -> bool:
        """True if kernels of this device can reach memory of the device ``peer`` (`cuDeviceCanAccessPeer`)."""

    def ctx_enable_peer_access(self, context: Handle) -> None:
        """Let kernels of this device reach the memory of the context's device (`cuCtxEnablePeerAccess`).

        That they do already is no error.
        """

    def pointer_get_memory_type(self, address: Address) -> int | None:
        """The ``CUmemorytype`` of memory (`cuPointerGetAttribute`); None for what the driver does not know."""

    def pointer_get_device(self, address: Address) -> int | None:
        """Number of the device that has the memory at an address (`cuPointerGetAttribute`); None of host memory."""

    # Kernels

    def library_load_data(self, image: KernelImage) -> Handle:
        """Load the machine code of an image (`cuLibraryLoadData`); gives the library."""

    def library_get_kernel(self, library: Handle, image: KernelImage) -> Handle:
        """The kernel of an image of that machine code (`cuLibraryGetKernel`), its code loaded (`cuFuncLoad`)."""

    def kernel_adopt(self, image: KernelImage) -> Handle:
        """The kernel of an image that cuda.core has loaded (`cuKernelGetFunction`), its code loaded (`cuFuncLoad`)."""

    def kernel_get_param_info(self, kernel: Handle) -> tuple[tuple[int, int], ...]:
        """Offset and size in bytes of each parameter of the kernel (`cuKernelGetParamInfo`)."""

    def kernel_set_max_shared_bytes(self, kernel: Handle, nbytes: int) -> None:
        """Allow that much dynamic shared memory (`cuKernelSetAttribute`)."""

    def kernel_allow_large_clusters(self, kernel: Handle) -> None:
        """Allow clusters of more blocks than every device has (`cuKernelSetAttribute`)."""

    def library_unload(self, library: Handle) -> None:
        """Unload an image (`cuLibraryUnload`); no graph may refer to it any more."""

    # Memory

    def mem_alloc(self, nbytes: int) -> Address:
        """Allocate device memory (`cuMemAlloc`), its contents undefined; 256-byte aligned."""

    def mem_get_info(self) -> tuple[int, int]:
        """Bytes of device memory that are free, and that there are (`cuMemGetInfo`)."""

    def mem_free(self, address: Address) -> None:
        """Free it (`cuMemFree`)."""

    def mem_enter(self, address: Address, nbytes: int, tenant: int, writes: bool) -> None:
        """Say that a tenant, which is known by a number, is about to use memory that several have by turns.

        What another one left there is undefined from then on if it ``writes``, and refused to it if it only reads. The
        emulator holds everybody to it; a GPU cannot, and is not told.
        """

    def mem_host_alloc(self, nbytes: int) -> np.ndarray[Any, Any]:
        """Allocate page-locked host memory that the device can reach (`cuMemHostAlloc`), as bytes."""

    def mem_free_host(self, array: np.ndarray[Any, Any]) -> None:
        """Free what `mem_host_alloc` gave (`cuMemFreeHost`)."""

    def memcpy_htod(self, destination: Address, source: np.ndarray[Any, Any], stream: Handle) -> None:
        """Copy a C contiguous host array to the device, ordered on ``stream``; returns when done."""

    def memcpy_dtoh(self, destination: np.ndarray[Any, Any], source: Address, stream: Handle) -> None:
        """Copy device memory to a C contiguous host array, ordered on ``stream``; returns when done."""

    def memcpy_3d(self, params: Address, stream: Handle) -> None:
        """Copy rows as a `MEMCPY_NODE` says, ordered on ``stream`` (`cuMemcpy3DAsync`); returns when done."""

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """DLPack's type and number of the device that exported memory is on."""

    def dlpack_export(
        self,
        address: Address,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: np.dtype[Any],
        owner: Any,
    ) -> Any:
        """An object with ``__dlpack__`` over device memory; it keeps ``owner`` alive."""

    # Streams and events

    def stream_create(self) -> Handle:
        """A non-blocking stream (`cuStreamCreate`)."""

    def stream_synchronize(self, stream: Handle) -> None:
        """Wait for all work of the stream (`cuStreamSynchronize`); raises what went wrong in it."""

    def stream_destroy(self, stream: Handle) -> None:
        """Destroy a stream (`cuStreamDestroy`)."""

    def stream_export(self, stream: Handle, owner: Any) -> Any:
        """A stream as other libraries take it, which lives as long as ``owner``, an object with ``__cuda_stream__``."""

    def stream_begin_capture(self, stream: Handle) -> None:
        """Record what is put into the stream from now on, instead of running it (`cuStreamBeginCapture`).

        The mode is thread-local: this thread may not do meanwhile what would not be recorded, such as allocating.
        """

    def stream_end_capture(self, stream: Handle) -> Handle:
        """End the recording, whatever has become of it (`cuStreamEndCapture`); gives the graph of what was put in."""

    def made_current(self) -> AbstractContextManager[None]:
        """Around calls of other libraries in this thread: they find the device's context current."""

    def event_create(self, timing: bool = False) -> Handle:
        """An event (`cuEventCreate`), without timing by default."""

    def event_elapsed_time(self, start: Handle, end: Handle) -> float:
        """Milliseconds between the last records of two events with timing (`cuEventElapsedTime`)."""

    def event_record(self, event: Handle, stream: Handle) -> None:
        """Record it after the work now in the stream (`cuEventRecord`)."""

    def event_query(self, event: Handle) -> bool:
        """True if the work before the last record is done (`cuEventQuery`)."""

    def event_synchronize(self, event: Handle) -> None:
        """Wait until it is done (`cuEventSynchronize`)."""

    def event_destroy(self, event: Handle) -> None:
        """Destroy an event (`cuEventDestroy`)."""

    # Building graphs

    def graph_create(self) -> Handle:
        """An empty graph (`cuGraphCreate`)."""

    def graph_add_kernel_node(self, graph: Handle, params: Address) -> Handle:
        """Add a kernel node without dependencies (`cuGraphAddKernelNode`); ``params`` is a `KERNEL_NODE`."""

    def graph_add_memcpy_node(self, graph: Handle, params: Address) -> Handle:
        """Add a memcpy node without dependencies (`cuGraphAddMemcpyNode`); ``params`` is a `MEMCPY_NODE`."""

    def graph_add_memset_node(self, graph: Handle, params: Address) -> Handle:
        """Add a memset node without dependencies (`cuGraphAddMemsetNode`); ``params`` is a `MEMSET_NODE`."""

    def graph_add_host_node(self, graph: Handle, params: Address) -> Handle:
        """Add a host node without dependencies (`cuGraphAddHostNode`); ``params`` is a `HOST_NODE`."""

    def graph_add_empty_node(self, graph: Handle) -> Handle:
        """Add an empty node without dependencies (`cuGraphAddEmptyNode`)."""

    def graph_add_nodes(
        self, graph: Handle, kinds: np.ndarray[Any, Any], params: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any]:
        """Add nodes one after the other, each by the call of its kind; gives their handles.

        ``kinds`` are uint8 of `graphdsl.drivers.structs`, ``params`` uint64 addresses. A `DriverError` has the index of
        the node that was refused as ``index``.
        """

    def graph_kernel_node_set_attribute(self, node: Handle, attribute: int, value: Address) -> None:
        """Give a kernel node an attribute (`cuGraphKernelNodeSetAttribute`); see `ATTRIBUTE_VALUES` for the value."""

    def graph_kernel_node_get_attribute(self, node: Handle, attribute: int, value: Address) -> None:
        """Write the value that an attribute of a kernel node has to an address (`cuGraphKernelNodeGetAttribute`)."""

    def graph_add_node(
        self, graph: Handle, params: Address, dependencies: np.ndarray[Any, Any] | None = None
    ) -> Handle:
        """Add a node of any kind (`cuGraphAddNode`); ``params`` is a `NODE_PARAMS`.

        What the driver gives back besides the node, it writes into the params. ``dependencies`` are the handles
        (uint64) of the nodes that it comes after: where memory is allocated, the driver wants to know them now.
        """

    def graph_child_graph_node_get_graph(self, node: Handle) -> Handle:
        """The graph inside of a child graph node (`cuGraphChildGraphNodeGetGraph`): what is added to it is in it."""

    def graph_conditional_handle_create(self, graph: Handle, default: int, flags: int) -> Handle:
        """What a kernel sets and a conditional node asks (`cuGraphConditionalHandleCreate`)."""

    def graph_add_dependencies(
        self,
        graph: Handle,
        sources: np.ndarray[Any, Any],
        targets: np.ndarray[Any, Any],
        edge_data: np.ndarray[Any, Any] | None = None,
    ) -> None:
        """Add edges, one for each pair of node handles (`cuGraphAddDependencies`).

        ``sources`` and ``targets`` are uint64; ``edge_data`` has an `EDGE_DATA` for each edge, None makes all full.
        """

    def graph_destroy(self, graph: Handle) -> None:
        """Destroy a graph (`cuGraphDestroy`)."""

    # Looking into graphs

    def graph_get_nodes(self, graph: Handle) -> list[Handle]:
        """The nodes of a graph (`cuGraphGetNodes`)."""

    def graph_node_get_type(self, node: Handle) -> int:
        """What kind of node it is, a ``CUgraphNodeType`` (`cuGraphNodeGetType`)."""

    def graph_get_edges(self, graph: Handle) -> tuple[list[Handle], list[Handle], np.ndarray[Any, Any]]:
        """Source, target and `EDGE_DATA` of each edge of a graph (`cuGraphGetEdges`)."""

    def graph_kernel_node_get_params(self, node: Handle, params: Address) -> None:
        """Write what a kernel node was made from to a `KERNEL_NODE` (`cuGraphKernelNodeGetParams`).

        What it points to belongs to the node.
        """

    def graph_memcpy_node_get_params(self, node: Handle, params: Address) -> None:
        """Write what a memcpy node was made from to a `MEMCPY_NODE`, but the context (`cuGraphMemcpyNodeGetParams`)."""

    def graph_memset_node_get_params(self, node: Handle, params: Address) -> None:
        """Write what a memset node was made from to a `MEMSET_NODE`, but the context (`cuGraphMemsetNodeGetParams`)."""

    def graph_host_node_get_params(self, node: Handle, params: Address) -> None:
        """Write what a host node was made from to a `HOST_NODE` (`cuGraphHostNodeGetParams`)."""

    def graph_event_record_node_get_event(self, node: Handle) -> Handle:
        """The event that a node records (`cuGraphEventRecordNodeGetEvent`)."""

    def graph_event_wait_node_get_event(self, node: Handle) -> Handle:
        """The event that a node waits for (`cuGraphEventWaitNodeGetEvent`)."""

    def kernel_get_function(self, kernel: Handle) -> Handle:
        """The function that a kernel is in the context of the device (`cuKernelGetFunction`)."""

    def func_get_name(self, function: Handle) -> str:
        """The symbol of a function (`cuFuncGetName`)."""

    def func_get_param_info(self, function: Handle) -> tuple[tuple[int, int], ...]:
        """Offset and size in bytes of each parameter of a function (`cuFuncGetParamInfo`)."""

    def func_get_attribute(self, function: Handle, attribute: int) -> int:
        """An attribute of a function, by its ``CUfunction_attribute`` (`cuFuncGetAttribute`)."""

    # Running graphs

    def graph_instantiate_with_params(self, graph: Handle, flags: int = 0) -> Handle:
        """Make an exec (`cuGraphInstantiateWithParams`); raises `InstantiateError`."""

    def graph_upload(self, graph_exec: Handle, stream: Handle) -> None:
        """Bring the exec to the device, so that the first launch need not (`cuGraphUpload`)."""

    def graph_launch(self, graph_exec: Handle, stream: Handle) -> None:
        """Launch the exec (`cuGraphLaunch`)."""

    def graph_launcher(self, graph_exec: Handle, stream: Handle) -> Callable[[], int]:
        """A call that launches the exec into the stream, for the ten-thousandth time too; gives the result code."""

    def launch_failure(self, code: int) -> DriverError:
        """What a result code of `graph_launcher` means."""

    def graph_exec_let_share(self, graph_exec: Handle, shared: Sequence[tuple[Address, int, Sequence[Handle]]]) -> None:
        """Say when memory of an exec is defined: in each launch from the first to the last of the nodes that use it.

        ``shared`` has the address, the bytes and the nodes of each piece. The emulator holds the nodes to it; a GPU
        cannot, and is not told.
        """

    def graph_exec_let_enter(self, graph_exec: Handle, address: Address, nbytes: int, tenant: int) -> None:
        """Say that each launch of an exec uses memory as `mem_enter` does, to write to it."""

    def graph_exec_destroy(self, graph_exec: Handle) -> None:
        """Destroy the exec (`cuGraphExecDestroy`)."""

    # Updating execs

    def graph_exec_kernel_node_set_params(self, graph_exec: Handle, node: Handle, params: Address) -> None:
        """Change a kernel node of an exec (`cuGraphExecKernelNodeSetParams`)."""

    def graph_exec_memcpy_node_set_params(self, graph_exec: Handle, node: Handle, params: Address) -> None:
        """Change a memcpy node of an exec (`cuGraphExecMemcpyNodeSetParams`)."""

    def graph_exec_memset_node_set_params(self, graph_exec: Handle, node: Handle, params: Address) -> None:
        """Change a memset node of an exec (`cuGraphExecMemsetNodeSetParams`)."""

    def graph_exec_host_node_set_params(self, graph_exec: Handle, node: Handle, params: Address) -> None:
        """Change a host node of an exec (`cuGraphExecHostNodeSetParams`)."""

    def graph_exec_node_set_params(self, graph_exec: Handle, node: Handle, params: Address) -> None:
        """Change a node of any kind of an exec (`cuGraphExecNodeSetParams`); ``params`` is a `NODE_PARAMS`."""

    def graph_exec_child_graph_node_set_params(self, graph_exec: Handle, node: Handle, params: Address) -> None:
        """Give the nodes inside of a child graph node the parameters of those of a graph.

        This is `cuGraphExecChildGraphNodeSetParams`, with the graph in a `NODE_PARAMS`; it has the same nodes and
        edges, added in the same order, and can be destroyed afterwards.
        """

    def graph_exec_set_params(
        self,
        graph_exec: Handle,
        kinds: np.ndarray[Any, Any],
        nodes: np.ndarray[Any, Any],
        params: np.ndarray[Any, Any],
    ) -> None:
        """Change nodes of an exec one after the other, each by the call of its kind.

        Arrays and errors are as in `graph_add_nodes`; the nodes before the one that was refused are changed.
        """

    def graph_exec_update(self, graph_exec: Handle, graph: Handle) -> None:
        """Give all nodes of an exec the parameters of those of a graph (`cuGraphExecUpdate`).

        Nodes are paired by the order in which nodes and edges were added. Raises `ExecUpdateError` if the graph differs
        in what no update changes; then the exec is as it was. The graph can be destroyed afterwards.
        """

    def graph_node_set_enabled(self, graph_exec: Handle, node: Handle, enabled: bool) -> None:
        """Enable or disable a kernel, memcpy or memset node of an exec (`cuGraphNodeSetEnabled`)."""


def require_device(device: Driver, ordinal: Any) -> None:
    """Refuse a number that no device of the computer has."""
    count = device.device_count
    if type(ordinal) is not int or not 0 <= ordinal < count:
        raise GraphdslError(
            f"the computer of {device.name} has {count} device{'s' if count != 1 else ''}, numbered from 0",
            field="device",
            value=ordinal,
            remedy="Choose one of them.",
        )


class OneByOne:
    """The calls for many nodes and for many launches made of single ones: for a driver without compiled loops."""

    def graph_launcher(self: Any, graph_exec: Handle, stream: Handle) -> Callable[[], int]:
        """See `Driver.graph_launcher`; what goes wrong is raised at once."""

        def launch() -> int:
            self.graph_launch(graph_exec, stream)
            return 0

        return launch

    def launch_failure(self, code: int) -> DriverError:
        """See `Driver.launch_failure`."""
        return driver_error("cuGraphLaunch", code)

    def graph_add_nodes(
        self: Any, graph: Handle, kinds: np.ndarray[Any, Any], params: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any]:
        """See `Driver.graph_add_nodes`."""
        add = {
            KERNEL: self.graph_add_kernel_node,
            MEMCPY: self.graph_add_memcpy_node,
            MEMSET: self.graph_add_memset_node,
            HOST: self.graph_add_host_node,
            EMPTY: lambda graph, params: self.graph_add_empty_node(graph),
            GENERIC: self.graph_add_node,
            CHILD: self.graph_add_node,
        }
        handles = np.zeros(len(kinds), np.uint64)
        for index, (kind, address) in enumerate(zip(kinds.tolist(), params.tolist(), strict=True)):
            with _indexed(index):
                handles[index] = add[kind](graph, address)
        return handles

    def graph_exec_set_params(
        self: Any,
        graph_exec: Handle,
        kinds: np.ndarray[Any, Any],
        nodes: np.ndarray[Any, Any],
        params: np.ndarray[Any, Any],
    ) -> None:
        """See `Driver.graph_exec_set_params`."""
        change = {
            KERNEL: self.graph_exec_kernel_node_set_params,
            MEMCPY: self.graph_exec_memcpy_node_set_params,
            MEMSET: self.graph_exec_memset_node_set_params,
            HOST: self.graph_exec_host_node_set_params,
            GENERIC: self.graph_exec_node_set_params,
            CHILD: self.graph_exec_child_graph_node_set_params,
        }
        calls = zip(kinds.tolist(), nodes.tolist(), params.tolist(), strict=True)
        for index, (kind, node, address) in enumerate(calls):
            with _indexed(index):
                change[kind](graph_exec, node, address)


@contextmanager
def _indexed(index: int) -> Iterator[None]:
    """Gives a refusal the index of the node that it is about."""
    try:
        yield
    except DriverError as problem:
        problem.index = index
        raise
