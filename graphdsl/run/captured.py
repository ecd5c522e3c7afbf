"""Records what libraries put into a stream, as graphs that captured nodes take over: the one use of stream capture.

The function of a node is called here, and nowhere else. This module must not build graphs: what is recorded is handed
to whoever does.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from graphdsl.declare.nodes import CapturedNode
from graphdsl.drivers.base import Driver, Handle
from graphdsl.drivers.releases import postponed
from graphdsl.drivers.structs import NODE_TYPE_ALLOC, NODE_TYPE_CHILD, NODE_TYPE_FREE, OWNERSHIP_COPY, OWNERSHIP_MOVE
from graphdsl.errors import CaptureError, DriverError
from graphdsl.forks import Lock
from graphdsl.run.binding import Memory
from graphdsl.run.callbacks import Failures, HostCall
from graphdsl.run.capture_failures import capture_failure
from graphdsl.run.device_array import DeviceArray
from graphdsl.run.devices import Devices


class CaptureStream:
    """The stream that the function of a captured node puts its work into.

    Attributes
    ----------
    handle : int
        The driver's, as ``torch.cuda.ExternalStream`` takes it.
    """

    def __init__(self, handle: Handle) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle

    def __int__(self) -> int:
        return self.handle

    __index__ = __int__

    def __repr__(self) -> str:
        return f"<stream {self.handle:#x}, recorded for a captured node>"


class NoUpdateError(CaptureError):
    """The work of a captured node can be recorded, but no update carries it to an exec."""


class Captures:
    """What the captured nodes of one exec have recorded.

    Attributes
    ----------
    built : bool
        True once the exec is built: from then on nothing is recorded that no update can carry.
    """

    def __init__(self, graph: str, devices: Devices, stream: Handle, failures: Failures) -> None:
        self._graph = graph
        self._devices = devices
        self._stream = stream
        self._failures = failures
        self._kept: dict[Handle, Any] = {}
        self._given_away: set[Handle] = set()
        self._allocating: set[Handle] = set()
        self.built = False

    def bind(self, node: CapturedNode, values: Mapping[str, Any], memory: Memory) -> Handle:
        """Record the work of a node with its arguments as ``values`` and ``memory`` make them; gives the graph of it.

        Raises
        ------
        CaptureError
            If the function raised, did what cannot be recorded, or put nothing into the stream.
        """
        graph, kept = self._recorded(node, values, memory)
        self._kept[graph] = kept
        try:
            self._require_fit(node, graph)
        except BaseException:
            self.release(graph)
            raise
        return graph

    def _recorded(self, node: CapturedNode, values: Mapping[str, Any], memory: Memory) -> tuple[Handle, Any]:
        device = self._devices[node.device]
        stream = self._stream if device is self._devices.home else self._devices.stream(node.device)
        # A device array that the function copies to or from waits for that stream, and so tells why that is refused.
        args = [memory.argument(arg, values, lambda: stream) for arg in node.args]
        work = self._emulated(node, args, stream) if device.emulated else _called(node, args, stream)
        try:
            device.stream_begin_capture(stream)
        except DriverError as problem:
            raise capture_failure(node, problem, None) from problem
        kept, raised = None, None
        try:
            with device.made_current(), _nothing_dropped():
                kept = work()
        except BaseException as problem:
            raised = problem
        graph, ended = _end(device, stream)
        if raised is None and ended is None:
            return graph, kept
        if graph:
            device.graph_destroy(graph)
        try:
            if raised is not None and not isinstance(raised, Exception):  # an interrupt
                raise raised
            raise capture_failure(node, ended, raised) from raised or ended
        finally:
            del raised, ended  # else their tracebacks, which have this frame, would keep them and all that called

    def _emulated(self, node: CapturedNode, args: list[Any], stream: Handle) -> Callable[[], Any]:
        """What is called while the stream of an emulator is recorded."""
        device: Any = self._devices[node.device]
        emulate = node.emulate
        if emulate is None and device.build_only:
            return lambda: device.stream_emulate(stream, lambda view: None)
        if emulate is None:
            raise CaptureError(
                "an emulator runs no work of libraries",
                node=node.name,
                field="emulate",
                value=emulate,
                remedy="Pass emulate=, a function that does the same to NumPy arrays, or instantiate on a GPU.",
                location=node.location,
            )

        def work(view: Any) -> None:
            shown = tuple(_shown(arg, view) for arg in args)
            HostCall(self._graph, node.name, emulate, shown, self._failures, node.location).run()

        return lambda: device.stream_emulate(stream, work)

    def _require_fit(self, node: CapturedNode, graph: Handle) -> None:
        types = list(self._types(graph))
        if not types:
            raise CaptureError(
                "the function put no work into the stream that it was given",
                node=node.name,
                field="function",
                value=_name(node.function),
                remedy="Make that stream the current one of the library, as `with "
                "cupy.cuda.Stream.from_external(stream):` does; work in any other stream has run already.",
                location=node.location,
            )
        if not {NODE_TYPE_ALLOC, NODE_TYPE_FREE} & set(types):
            return
        if self.built:
            raise NoUpdateError(
                "the recorded work allocates memory, and no update carries that",
                node=node.name,
                field="function",
                value=_name(node.function),
                remedy="Give it memory to work in, or instantiate the graph again.",
                location=node.location,
            )
        if types.count(NODE_TYPE_ALLOC) != types.count(NODE_TYPE_FREE):
            raise CaptureError(
                f"the recorded work allocates {types.count(NODE_TYPE_ALLOC)} times and frees "
                f"{types.count(NODE_TYPE_FREE)} times, and a second launch would fail over what is left",
                node=node.name,
                field="function",
                value=_name(node.function),
                remedy="Give it its results to write into, and let it free what it allocates.",
                location=node.location,
            )
        self._allocating.add(graph)

    def _types(self, graph: Handle) -> Iterator[int]:
        """The kinds of all nodes of a graph, and of those inside of it."""
        device = self._devices.home
        for node in device.graph_get_nodes(graph):
            kind = device.graph_node_get_type(node)
            yield kind
            if kind == NODE_TYPE_CHILD:
                yield from self._types(device.graph_child_graph_node_get_graph(node))

    def ownership(self, graph: Handle) -> int:
        """What becomes of a graph: the driver copies none that allocates into a node, but lets a node take it over."""
        return OWNERSHIP_MOVE if graph in self._allocating else OWNERSHIP_COPY

    def note_added(self, graph: Handle) -> None:
        """Note that a node was made from a graph."""
        if graph in self._allocating:
            self._given_away.add(graph)

    def release(self, graph: Handle) -> None:
        """Forget a graph that no update puts back any more; what keeps its memory alive goes, too."""
        if graph not in self._given_away:
            self._devices.home.graph_destroy(graph)
        del self._kept[graph]
        self._allocating.discard(graph)
        self._given_away.discard(graph)


def _called(node: CapturedNode, args: list[Any], stream: Handle) -> Callable[[], Any]:
    """What is called while a stream is recorded."""
    return lambda: node.function(CaptureStream(stream), *args)


def _end(device: Driver, stream: Handle) -> tuple[Handle, DriverError | None]:
    """End the recording: the graph, or 0 and what the driver says."""
    try:
        return device.stream_end_capture(stream), None
    except DriverError as problem:
        return 0, problem


_lock = Lock()
_recording: list[bool] = []
"""For each thread that records, whether garbage was collected before."""


@contextmanager
def _nothing_dropped() -> Iterator[None]:
    """Keeps garbage collection from freeing memory, ours and that of others: a thread that records may not."""
    with _lock:
        _recording.append(gc.isenabled())
        gc.disable()
    try:
        with postponed():
            yield
    finally:
        with _lock:
            collected = _recording.pop()  # the last to end takes what the first has found
            if collected:
                gc.enable()


def _shown(argument: Any, view: Any) -> Any:
    """An argument as the stand-in takes it: arrays of the emulated device as arrays of NumPy."""
    if isinstance(argument, DeviceArray):
        array = view(argument.address, argument.shape, argument.strides, argument.dtype)
        if argument.readonly:
            array.flags.writeable = False
        return array
    if type(argument) is tuple:
        return tuple(_shown(item, view) for item in argument)
    return argument


def _name(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)
