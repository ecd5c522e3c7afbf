"""C-12: graphs launched from the device, and nodes that it updates."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from cuda.bindings import driver

from tests.conformance.behaviour.answers import SUCCESS, Answer, ask, must
from tests.conformance.behaviour.gpu import U64, Gpu
from tests.conformance.behaviour.graph import Exec, Graph, get_attribute, set_attribute
from tests.conformance.behaviour.params import COOPERATIVE, DEVICE_UPDATABLE
from tests.conformance.behaviour.trials import Recorder, trial

REFUSED = "INVALID_VALUE"
_DEVICE_LAUNCH = int(driver.CUgraphInstantiate_flags.CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
_FIRE_AND_FORGET, _TAIL, _SIBLING, _ORDINARY = range(4)
_STREAMS = ("fire and forget", "tail", "sibling", "an ordinary stream")


@trial(
    "C-12.1", "A device graph holds kernel, memcpy, memset and child nodes, at least one, on device or pinned memory."
)
def contents_of_device_graphs(t: Recorder, gpu: Gpu) -> None:
    memory, pinned = gpu.memory(), gpu.pinned()
    inner = Graph(gpu)
    inner.kernel("put", memory, 1).must()

    def cooperative(graph: Graph) -> Answer:
        node = graph.kernel("grid_sync", memory, grid=4, block=32)
        set_attribute(node, COOPERATIVE, cooperative=1).must()
        return node

    cases: tuple[tuple[str, Callable[[Graph], Answer], str], ...] = (
        ("a kernel", lambda graph: graph.kernel("put", memory, 1), SUCCESS),
        ("a memcpy", lambda graph: graph.memcpy(memory, memory + 64, 4), SUCCESS),
        ("a memcpy from pinned memory", lambda graph: graph.memcpy(memory, pinned, 4, of="HOST"), SUCCESS),
        ("a memcpy from pageable memory", lambda graph: graph.memcpy(memory, gpu.pageable(), 4, of="HOST"), REFUSED),
        ("a memset", lambda graph: graph.memset(memory, 1), SUCCESS),
        ("a child", lambda graph: graph.child(inner), SUCCESS),
        ("a cooperative kernel", cooperative, SUCCESS),
        ("an empty node", lambda graph: graph.empty(), REFUSED),
        ("a host node", lambda graph: graph.host(lambda: None), REFUSED),
        ("an event record", lambda graph: graph.record(gpu.new_event()), REFUSED),
        ("an event wait", lambda graph: graph.wait(gpu.new_event()), REFUSED),
        ("an allocation", lambda graph: graph.alloc(1 << 20), REFUSED),
        ("a batch", lambda graph: graph.batch(("write", memory, 1)), REFUSED),
        ("a conditional", lambda graph: graph.conditional(graph.handle()), REFUSED),
        (
            "a kernel that launches kernels",
            lambda graph: graph.kernel("launch_kernel", memory, 1, library="launching"),
            REFUSED,
        ),
    )
    t.expect("nothing", Graph(gpu).instantiate(_DEVICE_LAUNCH), REFUSED)
    for name, add, wanted in cases:
        graph = Graph(gpu)
        add(graph).must()
        t.expect(name, graph.instantiate(_DEVICE_LAUNCH), wanted)


def _device_graphs(gpu: Gpu, count: int, memory: int, nanoseconds: int = 0, *, upload: bool = True) -> list[Exec]:
    """Graphs that the device may launch; each counts up in memory, and then works for a while."""
    made = []
    for _ in range(count):
        graph = Graph(gpu)
        node = graph.kernel("add", memory, 1)
        if nanoseconds:
            graph.kernel("busy", memory + 64, nanoseconds, after=[node]).must()
        ready = graph.instantiate(_DEVICE_LAUNCH)
        ready.must()
        if upload:
            must(driver.cuGraphUpload, ready.must(), gpu.stream)
        made.append(ready)
    gpu.synchronise().must()
    return made


def _launch_from_kernel(gpu: Gpu, graphs: list[Exec], stream: int) -> str:
    """Launch graphs from a kernel of another graph: how many launches were accepted, and the first other code."""
    out, outer = gpu.memory(), Graph(gpu)
    outer.kernel("launch_graphs", out, _array(gpu, graphs), len(graphs), stream, library="launching").must()
    ended = outer.instantiate().launch()
    return _told(gpu, out) if ended.code == SUCCESS else ended.code


def _array(gpu: Gpu, graphs: list[Exec]) -> int:
    """Address of the handles in device memory."""
    array = (ctypes.c_uint64 * len(graphs))(*(int(ready.must()) for ready in graphs))
    address = gpu.memory(ctypes.sizeof(array))
    must(driver.cuMemcpyHtoD, address, ctypes.addressof(array), ctypes.sizeof(array))
    return address


def _told(gpu: Gpu, out: int) -> str:
    accepted, code = gpu.read(out, 2)
    return f"{accepted} accepted" + (f", then error {code} of the runtime" if code else "")


@trial("C-12.2", "A device graph is uploaded, or launched once from the host, before the device launches it.")
def uploads_of_device_graphs(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()
    t.expect("uploaded", _launch_from_kernel(gpu, _device_graphs(gpu, 1, memory), _FIRE_AND_FORGET), "1 accepted")
    t.expect("runs of it", gpu.read(memory), 1)
    (ready,) = _device_graphs(gpu, 1, memory, upload=False)
    ready.launch().must()
    t.expect("launched once from the host", _launch_from_kernel(gpu, [ready], _FIRE_AND_FORGET), "1 accepted")
    t.expect("runs in all", gpu.read(memory), 3)


@trial("C-12.2", "A device graph that was never uploaded is not launched.")
def device_graphs_without_upload(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()
    graphs = _device_graphs(gpu, 1, memory, upload=False)
    t.note("launch from a kernel", _launch_from_kernel(gpu, graphs, _FIRE_AND_FORGET))
    t.note("runs of it", gpu.read(memory))


@trial("C-12.2", "After an update a device graph is uploaded anew.")
def updated_device_graphs(t: Recorder, gpu: Gpu) -> None:
    memory, graph = gpu.memory(), Graph(gpu)
    node = graph.kernel("put", memory, 1)
    ready = graph.instantiate(_DEVICE_LAUNCH)
    must(driver.cuGraphUpload, ready.must(), gpu.stream)
    t.expect("update", ready.set_kernel(node, "put", memory, 2), SUCCESS)
    t.note("launch without a new upload", _launch_from_kernel(gpu, [ready], _FIRE_AND_FORGET))
    t.note("what it wrote: 1 before the update, 2 after", gpu.read(memory))
    must(driver.cuGraphUpload, ready.must(), gpu.stream)
    t.expect("launch after a new upload", _launch_from_kernel(gpu, [ready], _FIRE_AND_FORGET), "1 accepted")
    t.expect("what it wrote", gpu.read(memory), 2)


@trial("C-12.2", "A device graph that still runs is not launched again by the device.")
def device_graphs_launched_twice(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()
    (ready,) = _device_graphs(gpu, 1, memory, 5_000_000)
    wanted = "1 accepted, then error 1 of the runtime"
    t.expect("twice, fire and forget", _launch_from_kernel(gpu, [ready, ready], _FIRE_AND_FORGET), wanted)


@trial("C-12.3", "The device launches graphs from kernels of graphs only, and only into three streams of their own.")
def streams_of_device_launches(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()
    for stream in (_FIRE_AND_FORGET, _TAIL, _SIBLING):
        gpu.clear(memory)
        graphs = _device_graphs(gpu, 1, memory)
        t.expect(_STREAMS[stream], _launch_from_kernel(gpu, graphs, stream), "1 accepted")
        t.expect(f"{_STREAMS[stream]}: runs", gpu.read(memory), 1)
    graphs = _device_graphs(gpu, 1, memory)
    t.expect(_STREAMS[_ORDINARY], _launch_from_kernel(gpu, graphs, _ORDINARY), "0 accepted")


@trial("C-12.3", "A kernel outside a graph launches no graphs.")
def device_launches_outside_graphs(t: Recorder, gpu: Gpu) -> None:
    out, graphs = gpu.memory(), _device_graphs(gpu, 1, gpu.memory())
    function = gpu.function("launch_graphs", "launching")
    arguments = gpu.arguments(out, _array(gpu, graphs), 1, _FIRE_AND_FORGET)
    t.note("launch of the kernel", ask(driver.cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, gpu.stream, arguments, 0))
    t.note("synchronise", gpu.synchronise())
    t.expect("what it was told", _told(gpu, out), "0 accepted")


@trial("C-12.3", "One run of a graph fires at most 120 graphs, and has at most 255 waiting as tails.")
def numbers_of_device_launches(t: Recorder, gpu: Gpu) -> None:
    for stream, most in ((_FIRE_AND_FORGET, 120), (_TAIL, 255)):
        memory = gpu.memory()
        graphs = _device_graphs(gpu, most + 1, memory)
        t.expect(f"{most}, {_STREAMS[stream]}", _launch_from_kernel(gpu, graphs[:most], stream), f"{most} accepted")
        t.expect(f"runs of {most}", gpu.read(memory), most)
        answer = _launch_from_kernel(gpu, graphs, stream)
        t.expect(f"{most + 1}, {_STREAMS[stream]}", answer, f"{most} accepted")


@trial("C-12.3", "A graph may launch itself once as its own tail.")
def self_launches(t: Recorder, gpu: Gpu) -> None:
    out, graph = gpu.memory(), Graph(gpu)
    graph.kernel("launch_self", out, 2, library="launching").must()
    ready = graph.instantiate(_DEVICE_LAUNCH)
    t.expect("launch", ready.launch(), SUCCESS)
    runs, first, second = gpu.read(out, 3)
    t.expect("code of the first self launch", first, 0)
    t.expect("the second is refused", second != 0, True)
    t.note("code of the second", second)
    t.expect("runs", runs, 2)


def _updatable(graph: Graph, memory: int, value: int = 1) -> tuple[Answer, int]:
    """A device-updatable kernel and its handle for the device."""
    node = graph.kernel("put", memory, value)
    set_attribute(node, DEVICE_UPDATABLE, deviceUpdatableKernelNode={"deviceUpdatable": 1}).must()
    return node, int(get_attribute(node, DEVICE_UPDATABLE).must().deviceUpdatableKernelNode.devNode)


@trial("C-12.4", "A device-updatable node stays one, and its graph has one exec at a time.")
def device_updatable_nodes(t: Recorder, gpu: Gpu) -> None:
    memory, graph = gpu.memory(), Graph(gpu)
    node, device_node = _updatable(graph, memory)
    t.expect("it has a handle for the device", device_node != 0, True)
    again = set_attribute(node, DEVICE_UPDATABLE, deviceUpdatableKernelNode={"deviceUpdatable": 0})
    t.note("attribute cleared", again)
    t.expect(
        "attribute afterwards",
        get_attribute(node, DEVICE_UPDATABLE).must().deviceUpdatableKernelNode.deviceUpdatable,
        1,
    )
    ready = graph.instantiate()
    t.expect("first exec", ready, SUCCESS)
    t.expect("second exec", graph.instantiate(), ("NOT_SUPPORTED", REFUSED))
    t.note("update from the host", ready.set_kernel(node, "put", memory, 2))
    t.note("clone", graph.clone())
    t.note("a child of another graph", Graph(gpu).child(graph))
    t.expect("launch", ready.launch(), SUCCESS)


@trial("C-12.4", "A kernel disables a device-updatable node of its own graph, which was uploaded.")
def updates_from_the_device(t: Recorder, gpu: Gpu) -> None:
    memory, out, graph = gpu.memory(), gpu.memory(), Graph(gpu)
    node, device_node = _updatable(graph, memory, 5)
    switch = graph.kernel("set_enabled", out, U64(device_node), 0, library="launching")
    graph.edge(switch, node).must()
    ready = graph.instantiate()
    must(driver.cuGraphUpload, ready.must(), gpu.stream)
    t.expect("launch", ready.launch(), SUCCESS)
    t.expect("code of the update", gpu.read(out), 0)
    t.expect("what the disabled kernel wrote", gpu.read(memory), 0)
    t.note("launch again", ready.launch())
    t.note("what it wrote then", gpu.read(memory))
