"""What the driver does with graphs over two devices: contexts of nodes, memory of the other device, streams, events.

``driver-rules.md`` says little of it; these rules are what `graphdsl` counts on.
"""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver

from tests.conformance.behaviour import params
from tests.conformance.behaviour.answers import SUCCESS, Answer, ask, must
from tests.conformance.behaviour.gpu import Gpu
from tests.conformance.behaviour.graph import PROGRAMMATIC, Graph
from tests.conformance.behaviour.trials import Recorder, trial

REFUSED = "INVALID_VALUE"


def _second(t: Recorder, gpu: Gpu) -> tuple[Gpu, int]:
    """The second device, and memory of it."""
    if must(driver.cuDeviceGetCount) < 2:
        t.cannot("it needs two GPUs")
    second = gpu.second()
    with second.current():
        return second, second.memory()


def _let_reach(t: Recorder, gpu: Gpu, second: Gpu) -> None:
    """Enable peer access in both directions."""
    if not must(driver.cuDeviceCanAccessPeer, gpu.device, second.device):
        t.cannot("the two GPUs do not reach each other")
    must(driver.cuCtxEnablePeerAccess, second.context, 0)
    with second.current():
        must(driver.cuCtxEnablePeerAccess, gpu.context, 0)


def _put(gpu: Gpu, context: Any, address: int, value: int) -> Any:
    """A kernel node that writes a number, in a context: the kernel is of the library, which knows no context."""
    made = gpu.launch_params("put", address, value)
    made.func, made.kern, made.ctx = 0, gpu.kernel("put"), context
    return made


@trial("C-15.1", "A node runs on the device of its context, whatever context is current; one library serves all.")
def nodes_of_two_devices(t: Recorder, gpu: Gpu) -> None:
    (second, there), here, graph = _second(t, gpu), gpu.memory(), Graph(gpu)
    first = graph.kernel_with(_put(gpu, gpu.context, here, 3))
    t.expect("a kernel on the first", first, SUCCESS)
    t.expect("one on the second, behind it", graph.kernel_with(_put(gpu, second.context, there, 4), [first]), SUCCESS)
    t.expect("launch", graph.instantiate().launch(), SUCCESS)
    t.expect("what the first wrote", gpu.read(here), 3)
    t.expect("what the second wrote", gpu.read(there), 4)


@trial("C-15.1", "A conditional node runs on the device of its context, with its bodies.")
def conditionals_on_the_second_device(t: Recorder, gpu: Gpu) -> None:
    (second, there), graph = _second(t, gpu), Graph(gpu)
    flags = driver.CU_GRAPH_COND_ASSIGN_DEFAULT
    condition = must(driver.cuGraphConditionalHandleCreate, graph.raw, second.context, 1, flags)
    inside = Graph(second, graph.raw).conditional(condition)
    t.expect("add", inside, SUCCESS)
    (body,) = inside.bodies
    t.expect("a kernel in the body", body.kernel_with(_put(gpu, second.context, there, 4)), SUCCESS)
    t.expect("launch", graph.instantiate().launch(), SUCCESS)
    t.expect("what it wrote", gpu.read(there), 4)


@trial("C-15.2", "A kernel that follows an address of another device faults, unless peer access is enabled.")
def kernels_without_peer_access(t: Recorder, gpu: Gpu) -> None:
    (_, there), graph = _second(t, gpu), Graph(gpu)
    graph.kernel_with(_put(gpu, gpu.context, there, 4)).must()
    t.expect("launch", graph.instantiate().launch(), "ILLEGAL_ADDRESS at synchronise")


@trial("C-15.2", "With peer access a kernel reaches the memory of another device; that it has it already is told.")
def kernels_with_peer_access(t: Recorder, gpu: Gpu) -> None:
    (second, there), graph = _second(t, gpu), Graph(gpu)
    _let_reach(t, gpu, second)
    again = ask(driver.cuCtxEnablePeerAccess, second.context, 0)
    t.expect("enable again", again, "PEER_ACCESS_ALREADY_ENABLED")
    t.expect("of itself", ask(driver.cuCtxEnablePeerAccess, gpu.context, 0), "INVALID_DEVICE")
    graph.kernel_with(_put(gpu, gpu.context, there, 4)).must()
    t.expect("launch", graph.instantiate().launch(), SUCCESS)
    t.expect("what it wrote", gpu.read(there), 4)


@trial("C-15.3", "A memset runs in a context that reaches its memory.")
def memsets_of_other_devices(t: Recorder, gpu: Gpu) -> None:
    second, there = _second(t, gpu)

    def ran(context: Any) -> Answer:
        graph = Graph(gpu)
        added = ask(driver.cuGraphAddMemsetNode, graph.raw, [], 0, params.fill(there, 7, 4), context)
        return graph.instantiate().launch() if added.code == SUCCESS else added

    t.expect("in the context of the memory", ran(second.context), SUCCESS)
    t.expect("in the other one", ran(gpu.context), REFUSED)
    _let_reach(t, gpu, second)
    t.expect("in the other one, with peer access", ran(gpu.context), SUCCESS)


@trial("C-15.4", "An update of an exec keeps the devices that have the memory of copies and memsets, and contexts.")
def updates_to_other_devices(t: Recorder, gpu: Gpu) -> None:
    (second, there), memory, graph = _second(t, gpu), gpu.memory(), Graph(gpu)
    _let_reach(t, gpu, second)
    copy, fill = graph.memcpy(memory, memory + 64, 16), graph.memset(memory, 7, 4)
    ready = graph.instantiate()
    t.expect("copy, other destination", ready.set_memcpy(copy, there, memory, 16), REFUSED)
    t.expect("copy, other source", ready.set_memcpy(copy, memory, there, 16), REFUSED)
    t.expect("memset, other destination", ready.set_memset(fill, there, 7, 4), REFUSED)
    same, elsewhere = params.copy(memory, memory + 64, 16), params.fill(memory, 7, 4)
    answer = ask(driver.cuGraphExecMemcpyNodeSetParams, ready.must(), copy.must(), same, second.context)
    t.expect("copy, other context", answer, REFUSED)
    answer = ask(driver.cuGraphExecMemsetNodeSetParams, ready.must(), fill.must(), elsewhere, second.context)
    t.expect("memset, other context", answer, REFUSED)


@trial("C-15.5", "A graph is launched into a stream of any device; events are recorded in streams of their own device.")
def streams_and_events_of_other_devices(t: Recorder, gpu: Gpu) -> None:
    (second, there), memory, graph = _second(t, gpu), gpu.memory(), Graph(gpu)
    graph.kernel("put", memory, 5).must()
    t.expect("launch into a stream of the second", graph.instantiate().launch(second.stream), SUCCESS)
    t.expect("what it wrote", gpu.read(memory), 5)
    with second.current():
        event = second.new_event()
    t.expect("an event of the first in it", ask(driver.cuEventRecord, gpu.new_event(), second.stream), "INVALID_HANDLE")
    t.expect("an event of the second in it", ask(driver.cuEventRecord, event, second.stream), SUCCESS)
    recording = Graph(gpu)
    t.expect("a node that records it", recording.record(event), SUCCESS)
    t.expect("launch of that into a stream of the first", recording.instantiate().launch(), SUCCESS)
    copied = ask(driver.cuMemcpyDtoHAsync, gpu.pinned(), there, 16, gpu.stream)
    t.expect("copy memory of the second in a stream of the first", copied, SUCCESS)
    t.expect("synchronise", gpu.synchronise(), SUCCESS)


@trial("C-15.6", "Programmatic edges join kernels of one device.")
def programmatic_edges_between_devices(t: Recorder, gpu: Gpu) -> None:
    (second, there), graph = _second(t, gpu), Graph(gpu)
    first = graph.kernel_with(_put(gpu, gpu.context, gpu.memory(), 3))
    added = graph.edge(first, graph.kernel_with(_put(gpu, second.context, there, 4)), PROGRAMMATIC)
    t.note("the edge", added)
    refused = (REFUSED, "NOT_SUPPORTED")
    t.expect("it, or else instantiate", graph.instantiate() if added.code == SUCCESS else added, refused)


@trial("C-15.7", "What a graph allocates lies on the device of its location; kernels of that device work on it.")
def allocations_on_the_second_device(t: Recorder, gpu: Gpu) -> None:
    (second, _), graph = _second(t, gpu), Graph(gpu)
    alloc = Graph(second, graph.raw).alloc(256)
    t.expect("add", alloc, SUCCESS)
    put = graph.kernel_with(_put(gpu, second.context, alloc.address, 4), [alloc])
    t.expect("a kernel on it", put, SUCCESS)
    t.expect("free", graph.free(alloc.address, [put]), SUCCESS)
    t.expect("launch", graph.instantiate().launch(), SUCCESS)


@trial("C-15.7", "Peer access says nothing of what a graph allocates: its node names the devices that reach it.")
def access_to_allocations(t: Recorder, gpu: Gpu) -> None:
    second, _ = _second(t, gpu)
    _let_reach(t, gpu, second)
    shared = params.allocation(second, 256)
    shared.accessDescs, shared.accessDescCount = params.allocation(gpu, 256, access=["READWRITE"]).accessDescs, 1
    for name, made, ends in (
        ("named", gpu.keep(shared), SUCCESS),
        ("not named", params.allocation(second, 256), "ILLEGAL_ADDRESS at synchronise"),
    ):
        graph = Graph(gpu)
        added = ask(driver.cuGraphAddMemAllocNode, graph.raw, [], 0, made)
        t.expect(f"{name}: add", added, SUCCESS)
        put = graph.kernel_with(_put(gpu, gpu.context, int(made.dptr), 4), [added])
        graph.free(int(made.dptr), [put]).must()
        t.expect(f"{name}: launch of a kernel of the first", graph.instantiate().launch(), ends)
