"""C-9: instantiate, launch, upload; user objects; DOT."""

from __future__ import annotations

import ctypes
import tempfile
import time
from pathlib import Path

from cuda.bindings import driver

from tests.conformance.behaviour.answers import SUCCESS, Answer, ask, must
from tests.conformance.behaviour.gpu import Gpu
from tests.conformance.behaviour.graph import Graph
from tests.conformance.behaviour.trials import Recorder, trial

REFUSED = "INVALID_VALUE"
_AUTO_FREE, _UPLOAD, _DEVICE_LAUNCH = 1, 2, 4


def _simple(gpu: Gpu, memory: int = 0) -> Graph:
    graph = Graph(gpu)
    graph.kernel("put", memory or gpu.memory(), 1).must()
    return graph


@trial("C-9.1", "Instantiate with parameters tells why it failed and which node is to blame.")
def blamed_nodes(t: Recorder, gpu: Gpu) -> None:
    graph = _simple(gpu)
    a, b = graph.empty(), graph.empty()
    graph.edges([(a, b), (b, a)]).must()
    t.expect("a cycle", graph.instantiate(), f"{REFUSED}, INVALID_STRUCTURE")
    graph = Graph(gpu)
    graph.handle()
    t.expect("a handle that is not used", graph.instantiate(), f"{REFUSED}, CONDITIONAL_HANDLE_UNUSED")
    graph = Graph(gpu)
    graph.conditional(graph.handle()).bodies[0].host(lambda: None).must()
    t.expect("a host node in a body", graph.instantiate(), f"{REFUSED}, NODE_OPERATION_NOT_SUPPORTED")
    graph = _simple(gpu)
    graph.host(lambda: None).must()
    t.expect(
        "a host node in a device graph", graph.instantiate(_DEVICE_LAUNCH), f"{REFUSED}, NODE_OPERATION_NOT_SUPPORTED"
    )
    graph = Graph(gpu)
    graph.alloc(1 << 20).must()
    graph.instantiate().must()
    t.note("a second exec of an allocating graph", graph.instantiate())


@trial(
    "C-9.2",
    "Flags: UPLOAD goes with parameters only, DEVICE_LAUNCH not with AUTO_FREE_ON_LAUNCH, unknown ones are refused.",
)
def instantiate_flags(t: Recorder, gpu: Gpu) -> None:
    graph = _simple(gpu)
    t.expect("UPLOAD, with parameters", graph.instantiate(_UPLOAD).launch(), SUCCESS)
    t.expect("UPLOAD, without", ask(driver.cuGraphInstantiate, graph.raw, _UPLOAD), REFUSED)
    t.expect("DEVICE_LAUNCH", graph.instantiate(_DEVICE_LAUNCH), SUCCESS)
    t.expect("DEVICE_LAUNCH and AUTO_FREE_ON_LAUNCH", graph.instantiate(_DEVICE_LAUNCH | _AUTO_FREE), REFUSED)
    t.expect("16", graph.instantiate(16), REFUSED)
    for flags in (0, _AUTO_FREE, _UPLOAD, 8):
        read = must(driver.cuGraphExecGetFlags, graph.instantiate(flags).must())
        t.note(f"flags of an exec instantiated with {flags}", int(read))


@trial("C-9.3", "A graph may have several execs, unless it allocates, has conditionals or device-updatable nodes.")
def several_execs(t: Recorder, gpu: Gpu) -> None:
    memory, graph = gpu.memory(), Graph(gpu)
    node = graph.kernel("put", memory, 1)
    first, second = graph.instantiate(), graph.instantiate()
    t.expect("two execs", second, SUCCESS)
    first.set_kernel(node, "put", memory, 2).must()
    second.launch().must()
    t.expect("an update of one does not reach the other", gpu.read(memory), 1)
    node = graph.kernel("put", memory, 3)
    t.expect("a node added after they were made: update", first.set_kernel(node, "put", memory, 4), REFUSED)
    first.launch().must()
    t.expect("launch of the first", gpu.read(memory), 2)


def _overlap(gpu: Gpu, first: Answer, second: Answer, times: int) -> bool:
    """Launch on two streams; whether the two kernels ran at the same time."""
    streams = [gpu.new_stream(), gpu.new_stream()]
    for ready, stream in zip((first, second), streams):
        must(driver.cuGraphLaunch, ready.must(), stream)
    for stream in streams:
        must(driver.cuStreamSynchronize, stream)
    begun, ended, begun_too, ended_too = gpu.times(times + 8, 4)
    return begun_too < ended and begun < ended_too


@trial("C-9.4", "An exec does not overlap itself, whatever the streams; two execs do.", alone=True)
def overlapping_launches(t: Recorder, gpu: Gpu) -> None:
    times, graph = gpu.memory(), Graph(gpu)
    graph.kernel("interval", times, 3_000_000).must()
    first, second = graph.instantiate(), graph.instantiate()
    for ready in (first, second):
        ready.launch().must()
    gpu.clear(times)
    t.expect("one exec, two streams", _overlap(gpu, first, first, times), False)
    gpu.clear(times)
    t.expect("two execs, two streams", _overlap(gpu, first, second, times), True)


@trial("C-9.5", "An upload may come before any launch, and again.")
def uploads(t: Recorder, gpu: Gpu) -> None:
    ready = _simple(gpu).instantiate()
    for name in ("before a launch", "again"):
        t.expect(f"upload {name}", ask(driver.cuGraphUpload, ready.must(), gpu.stream), SUCCESS)
    t.expect("launch", ready.launch(), SUCCESS)
    t.expect("upload after it", ask(driver.cuGraphUpload, ready.must(), gpu.new_stream()), SUCCESS)


@trial("C-9.6", "An exec and its graph may be destroyed while the exec runs.")
def destroyed_in_flight(t: Recorder, gpu: Gpu) -> None:
    memory, graph = gpu.memory(), Graph(gpu)
    busy = graph.kernel("busy", memory + 64, 20_000_000)
    graph.kernel("put", memory, 5, after=[busy]).must()
    ready = graph.instantiate()
    ready.start().must()
    t.expect("destroy the graph", graph.destroy(), SUCCESS)
    t.expect("destroy the exec", ready.destroy(), SUCCESS)
    t.note("its stream then", ask(driver.cuStreamQuery, gpu.stream))
    t.expect("synchronise", gpu.synchronise(), SUCCESS)
    t.expect("what its last kernel wrote", gpu.read(memory), 5)


@trial("C-9.6", "Graphs and execs are destroyed once; a destroyed exec is not launched; an exec outlives its graph.")
def destroyed_twice(t: Recorder, gpu: Gpu) -> None:
    graph = _simple(gpu)
    ready = graph.instantiate()
    ready.must()
    t.expect("destroy the graph", graph.destroy(), SUCCESS)
    t.expect("destroy it again", graph.destroy(), REFUSED)
    t.expect("launch of its exec", ready.launch(), SUCCESS)
    t.expect("destroy the exec", ready.destroy(), SUCCESS)
    t.expect("destroy it again", ready.destroy(), REFUSED)
    t.expect("launch of the destroyed exec", ready.launch(), f"{REFUSED} at launch")
    t.expect("add a node to graph NULL", ask(driver.cuGraphAddEmptyNode, 0, [], 0), REFUSED)


@trial("C-9.7", "User objects are made without destructor synchronisation, and with counts from 1 to 2**31 - 1.")
def user_objects(t: Recorder, gpu: Gpu) -> None:
    destroyed: list[int] = []
    callback = gpu.keep(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: destroyed.append(1)))
    function, flag = ctypes.cast(callback, ctypes.c_void_p).value, 1

    def create(count: int, flags: int) -> Answer:
        return ask(driver.cuUserObjectCreate, 0, driver.CUhostFn(function), count, flags)

    t.expect("flags 0", create(1, 0), REFUSED)
    t.expect("count 0", create(0, flag), REFUSED)
    t.expect("count 2**31", create(2**31, flag), REFUSED)
    made = create(1, flag)
    t.expect("count 1, NO_DESTRUCTOR_SYNC", made, SUCCESS)
    graph = _simple(gpu)
    t.expect("retain 0 for a graph", ask(driver.cuGraphRetainUserObject, graph.raw, made.must(), 0, 1), REFUSED)
    t.expect("move to a graph", ask(driver.cuGraphRetainUserObject, graph.raw, made.must(), 1, 1), SUCCESS)
    ready = graph.instantiate()
    graph.destroy().must()
    t.expect("destructor calls while an exec is left", len(destroyed), 0)
    ready.launch().must()
    ready.destroy().must()
    gpu.synchronise().must()
    deadline = time.monotonic() + 2
    while not destroyed and time.monotonic() < deadline:
        time.sleep(0.01)
    t.note("destructor calls within two seconds once all is destroyed", len(destroyed))


@trial("C-9.8", "The driver's DOT is written to a file; a path that cannot be written is an operating-system error.")
def dot_files(t: Recorder, gpu: Gpu) -> None:
    graph = _simple(gpu)
    with tempfile.TemporaryDirectory() as folder:
        for flags in (0, 1, 0xFFFF):
            path = Path(folder) / f"{flags}.dot"
            t.expect(
                f"flags {flags:#x}", ask(driver.cuGraphDebugDotPrint, graph.raw, str(path).encode(), flags), SUCCESS
            )
            t.expect(f"flags {flags:#x}: it begins with digraph", path.read_text().startswith("digraph"), True)
    missing = b"/no/such/folder/graph.dot"
    t.expect("a folder that is not there", ask(driver.cuGraphDebugDotPrint, graph.raw, missing, 0), "OPERATING_SYSTEM")
