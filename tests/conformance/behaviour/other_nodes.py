"""C-5: host, event, semaphore and batch-memory-operation nodes."""

from __future__ import annotations

import ctypes
import time

from cuda.bindings import driver

from tests.conformance.behaviour import params
from tests.conformance.behaviour.answers import SUCCESS, ask, must
from tests.conformance.behaviour.gpu import Gpu
from tests.conformance.behaviour.graph import Graph, set_attribute
from tests.conformance.behaviour.trials import Recorder, trial

REFUSED = "INVALID_VALUE"


@trial("C-5.1", "A host function makes no CUDA calls.")
def calls_in_host_functions(t: Recorder, gpu: Gpu) -> None:
    answers: dict[str, str] = {}

    def calls() -> None:
        answers["allocation"] = ask(driver.cuMemAlloc, 16).code
        answers["new graph"] = ask(driver.cuGraphCreate, 0).code
        answers["synchronise"] = ask(driver.cuStreamSynchronize, gpu.stream).code

    graph = Graph(gpu)
    graph.host(calls).must()
    t.expect("launch", graph.instantiate().launch(), SUCCESS)
    for name, answer in answers.items():
        t.expect(f"{name} in a host function", answer, "NOT_PERMITTED")


@trial("C-5.1", "A query of an event in a host function: nothing is promised.", ending="any")
def queries_in_host_functions(t: Recorder, gpu: Gpu) -> None:
    event, graph = gpu.new_event(), Graph(gpu)
    graph.host(lambda: t.note("query", ask(driver.cuEventQuery, event))).must()
    t.note("launch", graph.instantiate().launch())


@trial("C-5.1", "A host function is not called if the context is in error.")
def host_functions_after_errors(t: Recorder, gpu: Gpu) -> None:
    called: list[int] = []
    graph = Graph(gpu)
    bad = graph.kernel("fault")
    graph.host(lambda: called.append(1), after=[bad]).must()
    t.expect(
        "launch of a kernel that faults, then the host function",
        graph.instantiate().launch(),
        "ILLEGAL_ADDRESS at synchronise",
    )
    t.expect("calls", len(called), 0)


@trial("C-5.1", "A host node has a function.")
def host_function_null(t: Recorder, gpu: Gpu) -> None:
    graph = Graph(gpu)
    empty = driver.CUDA_HOST_NODE_PARAMS()
    t.expect("NULL at add", ask(driver.cuGraphAddHostNode, graph.raw, [], 0, empty), REFUSED)
    node = graph.host(lambda: None)
    ready = graph.instantiate()
    t.expect(
        "NULL at an exec update", ask(driver.cuGraphExecHostNodeSetParams, ready.must(), node.must(), empty), REFUSED
    )


@trial("C-5.2", "Whatever a Python function does, no exception reaches the driver: the graph goes on.")
def exceptions_in_host_functions(t: Recorder, gpu: Gpu) -> None:
    memory, graph = gpu.memory(), Graph(gpu)

    def fails() -> None:
        raise ValueError("on purpose")

    graph.kernel("put", memory, 3, after=[graph.host(fails)]).must()
    t.expect("launch", graph.instantiate().launch(), SUCCESS)
    t.expect("what the node after it wrote", gpu.read(memory), 3)


@trial("C-5.3", "Event nodes record and wait for events of any owner, outside the graph, too.")
def events(t: Recorder, gpu: Gpu) -> None:
    event, other, times = gpu.new_event(), gpu.new_event(), gpu.memory()
    graph = Graph(gpu)
    node = graph.record(event, after=[graph.kernel("busy", times, 2_000_000)])
    ready = graph.instantiate()
    ready.start().must()
    t.expect("query while the graph runs", ask(driver.cuEventQuery, event), "NOT_READY")
    t.expect("synchronise with the event", ask(driver.cuEventSynchronize, event), SUCCESS)
    t.expect("exec update to another event", ready.set_record(node, other), SUCCESS)
    t.expect("launch", ready.launch(), SUCCESS)
    graph = Graph(gpu)
    node = graph.wait(event)
    ready = graph.instantiate()
    t.expect("wait for an event that was recorded", ready.launch(), SUCCESS)
    t.expect("exec update to one that never was", ready.set_wait(node, gpu.new_event()), SUCCESS)
    t.expect("launch", ready.launch(), SUCCESS)
    t.expect("record NULL", Graph(gpu).record(0), (REFUSED, "INVALID_HANDLE"))
    t.expect("wait for NULL", Graph(gpu).wait(0), (REFUSED, "INVALID_HANDLE"))
    t.expect("exec update to NULL", ready.set_wait(node, 0), (REFUSED, "INVALID_HANDLE"))


@trial("C-5.3", "Events with timing measure the time between two nodes.")
def timing_events(t: Recorder, gpu: Gpu) -> None:
    graph, begin, end = Graph(gpu), gpu.new_event(timing=True), gpu.new_event(timing=True)
    kernel = graph.kernel("busy", gpu.memory(), 1_000_000, after=[graph.record(begin)])
    graph.record(end, after=[kernel]).must()
    graph.instantiate().launch().must()
    elapsed = ask(driver.cuEventElapsedTime, begin, end)
    t.expect("elapsed time", elapsed, SUCCESS)
    t.expect("it is at least that of the kernel between them, 1 ms", elapsed.must() >= 1, True)
    plain = gpu.new_event()
    graph = Graph(gpu)
    graph.record(plain).must()
    graph.instantiate().launch().must()
    t.expect("elapsed time to an event without timing", ask(driver.cuEventElapsedTime, begin, plain), "INVALID_HANDLE")


@trial("C-5.3", "One event may be recorded and waited for in one graph, and recorded twice.")
def events_used_twice(t: Recorder, gpu: Gpu) -> None:
    for name, nodes in (("recorded twice", "rr"), ("recorded and waited for", "rw"), ("waited for twice", "ww")):
        graph, event = Graph(gpu), gpu.new_event()
        for kind in nodes:
            (graph.record if kind == "r" else graph.wait)(event).must()
        t.expect(f"{name}, without an edge", graph.instantiate().launch(), SUCCESS)


@trial("C-5.3", "An event lives until the graph is instantiated: destroyed before, the process dies.", ending="dies")
def event_destroyed_before_instantiate(t: Recorder, gpu: Gpu) -> None:
    graph, event = Graph(gpu), gpu.new_event()
    graph.record(event).must()
    must(driver.cuEventDestroy, event)
    t.note("instantiate", graph.instantiate())


@trial("C-5.3", "An event that is recorded, destroyed before the launch: nothing is promised.", ending="any")
def event_destroyed_before_launch(t: Recorder, gpu: Gpu) -> None:
    graph, event = Graph(gpu), gpu.new_event()
    graph.record(event).must()
    ready = graph.instantiate()
    ready.must()
    must(driver.cuEventDestroy, event)
    t.note("launch", ready.launch())


@trial("C-5.3", "An event that is waited for, destroyed before the launch: nothing is promised.", ending="any")
def awaited_event_destroyed_before_launch(t: Recorder, gpu: Gpu) -> None:
    graph, event = Graph(gpu), gpu.new_event()
    graph.wait(event).must()
    ready = graph.instantiate()
    ready.must()
    t.note("destroy the event", ask(driver.cuEventDestroy, event))
    t.note("launch", ready.start())
    for _ in range(20):
        time.sleep(0.1)
        if ask(driver.cuStreamQuery, gpu.stream).code != "NOT_READY":
            break
    t.note("its stream within two seconds", ask(driver.cuStreamQuery, gpu.stream))
    gpu.leave()


@trial("C-5.3", "The event of a node belongs to the context of the node.")
def events_of_other_contexts(t: Recorder, gpu: Gpu) -> None:
    graph, other = Graph(gpu), must(driver.cuCtxCreate, None, 0, gpu.device)
    event = gpu.new_event()
    must(driver.cuCtxSetCurrent, gpu.context)
    added = graph.record(event)
    t.note("add with an event of another context of the device", added)
    if added.code == SUCCESS:
        t.note("instantiate and launch", graph.instantiate().launch())
    must(driver.cuCtxDestroy, other)


@trial("C-5.4", "Events for programmatic launches and launch completion have no timing; kernel nodes take neither.")
def programmatic_events(t: Recorder, gpu: Gpu) -> None:
    for name, number, field in (
        ("programmatic", params.PROGRAMMATIC_EVENT, "programmaticEvent"),
        ("launch completion", params.COMPLETION_EVENT, "launchCompletionEvent"),
    ):
        for timing in (False, True):
            node = Graph(gpu).kernel("nothing")
            answer = set_attribute(node, number, **{field: {"event": gpu.new_event(timing=timing)}})
            t.expect(f"{name}, {'with' if timing else 'without'} timing", answer, (REFUSED, "NOT_SUPPORTED"))


@trial("C-5.5", "Semaphores of other libraries: arrays are the node's, and their number is fixed.")
def external_semaphores(t: Recorder, gpu: Gpu) -> None:
    t.cannot("it needs a semaphore that Vulkan or Direct3D made")


@trial(
    "C-5.6",
    "Batches write and wait for values; addresses are aligned; forms need attributes of the device; fewer than 256.",
)
def batches(t: Recorder, gpu: Gpu) -> None:
    memory, pinned = gpu.memory(), gpu.pinned()
    by_attribute = {
        "wait for NOR": "CAN_USE_STREAM_WAIT_VALUE_NOR",
        "wait and flush": "CAN_FLUSH_REMOTE_WRITES",
        "flush": "CAN_FLUSH_REMOTE_WRITES",
        "write 64 bits": "CAN_USE_64_BIT_STREAM_MEM_OPS",
    }
    flush, nor = 1 << 30, 3
    for name, operations, wanted in (
        ("write, and wait for it", [("write", memory, 5), ("wait", memory, 5)], SUCCESS),
        ("write pinned memory", [("write", pinned, 1)], SUCCESS),
        ("write 64 bits", [("write64", memory, 1 << 40)], SUCCESS),
        ("wait for NOR", [("wait", memory + 64, 1, nor)], SUCCESS),
        ("wait and flush", [("wait", memory + 64, 0, flush)], SUCCESS),
        ("flush", [("flush",)], SUCCESS),
        ("barrier", [("barrier",)], SUCCESS),
        ("nothing", [], (SUCCESS, REFUSED)),
        ("write 2 bytes off", [("write", memory + 2, 1)], REFUSED),
        ("write 64 bits 4 bytes off", [("write64", memory + 4, 1)], REFUSED),
        ("write with flag 8", [("write", memory, 1, 8)], REFUSED),
        ("255 operations", [("write", memory, 1)] * 255, SUCCESS),
        ("256 operations", [("write", memory, 1)] * 256, REFUSED),
    ):
        graph = Graph(gpu)
        answer = graph.batch(*operations)
        if answer.code == SUCCESS:
            answer = graph.instantiate().launch()
        if name in by_attribute and not gpu.attribute(by_attribute[name]):
            t.expect(f"{name}, which this device lacks", answer, ("NOT_SUPPORTED", REFUSED))
        else:
            t.expect(name, answer, wanted)
    graph = Graph(gpu)
    t.note("write to NULL: add", graph.batch(("write", 0, 1)))
    t.note("write to NULL: launch", graph.instantiate().launch())


@trial("C-5.6", "A wait holds back what comes after it, until something writes the value: the host, too.")
def waits_for_values(t: Recorder, gpu: Gpu) -> None:
    memory, pinned, graph = gpu.memory(), gpu.pinned(), Graph(gpu)
    graph.kernel("put", memory, 4, after=[graph.batch(("wait", pinned, 1))]).must()
    graph.instantiate().start().must()
    time.sleep(0.2)
    t.expect("the stream, while the value is not there", ask(driver.cuStreamQuery, gpu.stream), "NOT_READY")
    ctypes.c_int.from_address(pinned).value = 1
    t.expect("synchronise, once the host has written it", gpu.synchronise(), SUCCESS)
    t.expect("what the kernel after it wrote", gpu.read(memory), 4)
