"""C-10: updates of single nodes of an exec."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver

from tests.conformance.behaviour import params
from tests.conformance.behaviour.answers import SUCCESS, ask, handle, must
from tests.conformance.behaviour.attributes import shape_of, valid_attributes_of
from tests.conformance.behaviour.gpu import Gpu
from tests.conformance.behaviour.graph import Graph, get_attribute, set_attribute
from tests.conformance.behaviour.params import CLUSTER, COOPERATIVE, PREFERRED_CLUSTER, PRIORITY
from tests.conformance.behaviour.trials import Recorder, trial

REFUSED = "INVALID_VALUE"
_REFUSALS = (REFUSED, "NOT_SUPPORTED")


@trial("C-10.1", "An update is for later launches of the exec alone, and names a node that its graph still has.")
def updated_nodes(t: Recorder, gpu: Gpu) -> None:
    memory, graph = gpu.memory(), Graph(gpu)
    node, other = graph.kernel("put", memory, 1), graph.empty()
    ready = graph.instantiate()
    busy = graph.kernel("busy", memory + 64, 10_000_000)
    slow = graph.instantiate()
    slow.start().must()
    t.expect("update while another exec runs", ready.set_kernel(node, "put", memory, 2), SUCCESS)
    t.expect("update of the exec that runs", slow.set_kernel(node, "put", memory, 3), SUCCESS)
    gpu.synchronise().must()
    t.note("what the launch before that update wrote", gpu.read(memory))
    t.expect("a node that was added after the exec was made", ready.set_kernel(busy, "put", memory, 2), REFUSED)
    t.expect("a node of another type", ready.set_kernel(other, "put", memory, 2), REFUSED)
    t.expect(
        "a node of another graph", ready.set_kernel(Graph(gpu).kernel("put", memory, 1), "put", memory, 2), REFUSED
    )
    must(driver.cuGraphDestroyNode, handle(node))
    t.expect("a node that was destroyed", ready.set_kernel(node, "put", memory, 2), REFUSED)
    t.expect("launch after that", ready.launch(), SUCCESS)
    t.expect("destroyed nodes still run", gpu.read(memory), 2)


@trial("C-10.1", "The graph has to outlive updates of its execs, but not their launches.")
def updates_after_the_graph(t: Recorder, gpu: Gpu) -> None:
    memory, graph = gpu.memory(), Graph(gpu)
    node = graph.kernel("put", memory, 1)
    ready = graph.instantiate()
    ready.must()
    graph.destroy().must()
    t.expect("update", ready.set_kernel(node, "put", memory, 2), REFUSED)
    t.expect("disable", ready.enable(node, False), REFUSED)
    t.expect("launch", ready.launch(), SUCCESS)


@trial(
    "C-10.2",
    "A kernel node may change function, grid, block, shared memory and arguments, within the limits of an add.",
)
def kernel_updates(t: Recorder, gpu: Gpu) -> None:
    memory, graph = gpu.memory(), Graph(gpu)
    node = graph.kernel("put", memory, 1)
    ready = graph.instantiate()
    for name, launch, wanted in (
        ("grid 2", {"grid": 2}, SUCCESS),
        ("block 64", {"block": 64}, SUCCESS),
        ("shared 1024", {"shared": 1024}, SUCCESS),
        ("grid 0", {"grid": 0}, REFUSED),
        ("block 2048", {"block": 2048}, REFUSED),
        ("shared 50000", {"shared": 50000}, REFUSED),
    ):
        t.expect(name, ready.set_kernel(node, "put", memory, 2, **launch), wanted)
    t.expect("another function with other parameters", ready.set_kernel(node, "put_sum", memory, 2, 40), SUCCESS)
    ready.launch().must()
    t.expect("what it wrote", gpu.read(memory), 42)
    made = gpu.launch_params("put", memory, 1)
    made.kernelParams = 0
    t.expect("kernelParams NULL", ready.set_kernel_with(node, made), REFUSED)
    made.func = 0
    t.expect("no kernel", ready.set_kernel_with(node, made), ("INVALID_HANDLE", REFUSED))


@trial("C-10.2", "A kernel node keeps the context of its function, and does not come to launch work from the device.")
def forbidden_kernel_updates(t: Recorder, gpu: Gpu) -> None:
    memory, graph = gpu.memory(), Graph(gpu)
    node = graph.kernel("put", memory, 1)
    ready = graph.instantiate()
    answer = ready.set_kernel(node, "launch_kernel", memory, 2, library="launching")
    t.expect("to a kernel that launches a kernel", answer, _REFUSALS)
    answer = ready.set_kernel(node, "set_enabled", memory, gpu.memory(), 1, library="launching")
    t.expect("to a kernel that updates nodes", answer, _REFUSALS)
    answer = ready.set_kernel(node, "launch_graphs", memory, gpu.memory(), 0, 0, library="launching")
    t.expect("to a kernel that launches a graph", answer, _REFUSALS)
    other = must(driver.cuCtxCreate, None, 0, gpu.device)
    must(driver.cuCtxSetCurrent, gpu.context)
    made = gpu.launch_params("put", memory, 2)
    made.func, made.kern, made.ctx = 0, gpu.kernel("put"), other
    t.expect("to another context of the device", ready.set_kernel_with(node, made), _REFUSALS)


@trial("C-10.5", "A host node may change function and data.")
def host_updates(t: Recorder, gpu: Gpu) -> None:
    before: list[int] = []
    after: list[int] = []
    graph = Graph(gpu)
    node = graph.host(lambda: before.append(1))
    ready = graph.instantiate()
    t.expect("another function", ready.set_host(node, lambda: after.append(1)), SUCCESS)
    ready.launch().must()
    t.expect("calls of the old and the new", [len(before), len(after)], [0, 1])


@trial("C-10.6", "Event nodes may change their event.")
def event_updates(t: Recorder, gpu: Gpu) -> None:
    graph, new = Graph(gpu), gpu.new_event(timing=True)
    record, wait = graph.record(gpu.new_event()), graph.wait(gpu.new_event())
    ready = graph.instantiate()
    t.expect("record: one with timing for one without", ready.set_record(record, new), SUCCESS)
    t.expect("wait: the same event", ready.set_wait(wait, new), SUCCESS)
    t.expect("a record node, as a wait", ready.set_wait(record, new), REFUSED)
    t.expect("launch", ready.launch(), SUCCESS)


@trial("C-10.7", "Child nodes: see C-8.4.")
def child_updates(t: Recorder, gpu: Gpu) -> None:
    memory, parent, inner = gpu.memory(), Graph(gpu), Graph(gpu)
    inner.kernel("put", memory, 1).must()
    node = parent.child(inner)
    other = Graph(gpu)
    other.memset(memory, 1).must()
    answer = parent.instantiate().set_child(node, other)
    t.expect("a memset where a kernel was", answer, "GRAPH_EXEC_UPDATE_FAILURE")


@trial("C-10.8", "Semaphore nodes may change parameters, and not their number.")
def semaphore_updates(t: Recorder, gpu: Gpu) -> None:
    t.cannot("it needs a semaphore that Vulkan or Direct3D made")


@trial(
    "C-10.9",
    "A batch may change values, addresses and the comparison, and not its operations, their number, or flushes.",
)
def batch_updates(t: Recorder, gpu: Gpu) -> None:
    memory, graph, equal = gpu.memory(), Graph(gpu), 1
    node = graph.batch(("write", memory, 5), ("wait", memory, 5))
    ready = graph.instantiate()
    for name, operations, wanted in (
        ("values", [("write", memory, 6), ("wait", memory, 6)], SUCCESS),
        ("addresses", [("write", memory + 64, 7), ("wait", memory + 64, 7)], SUCCESS),
        ("comparison", [("write", memory, 6), ("wait", memory, 6, equal)], SUCCESS),
        ("fewer", [("write", memory, 6)], REFUSED),
        ("more", [("write", memory, 6), ("wait", memory, 6), ("write", memory, 7)], REFUSED),
        ("another order of operations", [("wait", memory, 0), ("write", memory, 6)], REFUSED),
        ("64 bits", [("write64", memory, 6), ("wait", memory, 6)], REFUSED),
        ("misaligned", [("write", memory + 2, 6), ("wait", memory, 6)], REFUSED),
    ):
        t.expect(name, ready.set_batch(node, *operations), wanted)
    t.expect("launch", ready.launch(), SUCCESS)


@trial("C-10.10", "Allocation and free nodes: see C-6.7.")
def allocation_updates(t: Recorder, gpu: Gpu) -> None:
    memory, graph = gpu.memory(), Graph(gpu)
    alloc = graph.alloc(1 << 20)
    kernel = graph.kernel("put", memory, 1, after=[alloc])
    ready = graph.instantiate()
    t.expect(
        "a kernel beside them, to the allocation's address", ready.set_kernel(kernel, "put", alloc.address, 4), SUCCESS
    )
    ready.launch().must()
    t.expect("what it wrote", gpu.read(alloc.address), 4)


@trial("C-10.11", "Conditional nodes: see C-7.9.")
def conditional_updates(t: Recorder, gpu: Gpu) -> None:
    graph = Graph(gpu)
    condition = graph.handle(1)
    node = graph.conditional(condition)
    answer = graph.instantiate().set_generic(node, params.conditional(gpu, condition, 0, 1))
    t.expect("its own parameters again", answer, "NOT_SUPPORTED")


@trial(
    "C-10.12",
    "A kernel stays cooperative or not: an update of the node keeps the attribute, and asks for a fitting grid.",
)
def cooperative_updates(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()
    for cooperative in (0, 1):
        graph = Graph(gpu)
        node = graph.kernel("shape", memory, grid=8, block=32)
        set_attribute(node, COOPERATIVE, cooperative=cooperative).must()
        ready = graph.instantiate()
        set_attribute(node, COOPERATIVE, cooperative=1 - cooperative).must()
        ready.set_kernel(node, "shape", memory, grid=4, block=32).must()
        wanted = "cluster of 1, grid of 4" + (", cooperative" if cooperative else "")
        name = "cooperative" if cooperative else "plain"
        t.expect(f"{name}, the graph's node changed to the other, exec updated", shape_of(gpu, ready, memory), wanted)


@trial("C-10.13", "An update of a node carries no attributes: the exec keeps those that it was instantiated with.")
def attributes_over_updates(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()
    for cluster in (1, 2):
        graph = Graph(gpu)
        node = graph.kernel("shape", memory, grid=8, block=32)
        set_attribute(node, CLUSTER, clusterDim=(cluster, 1, 1)).must()
        ready = graph.instantiate()
        set_attribute(node, CLUSTER, clusterDim=(4, 1, 1)).must()
        t.expect(
            f"cluster of {cluster}: update of the grid to 16",
            ready.set_kernel(node, "shape", memory, grid=16, block=32),
            SUCCESS,
        )
        t.expect(f"cluster of {cluster}: launched", shape_of(gpu, ready, memory), f"cluster of {cluster}, grid of 16")
    answer = ready.set_kernel(node, "shape", memory, grid=7, block=32)
    t.expect("cluster of 2: update of the grid to 7", answer, ("INVALID_CLUSTER_SIZE", REFUSED))
    t.expect("and the exec as before", shape_of(gpu, ready, memory), "cluster of 2, grid of 16")
    answer = ready.set_kernel(node, "put", memory, 1, grid=4, block=32)
    t.note("cluster of 2: update to another function", answer)


@trial("C-10.13", "Nodes with attributes whose effect cannot be seen take updates of their arguments.")
def updates_with_attributes(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()
    for name, number, fields in valid_attributes_of(gpu):
        graph = Graph(gpu)
        node = graph.kernel("shape", memory, grid=8, block=32)
        set_attribute(node, number, **fields).must()
        ready = graph.instantiate()
        t.expect(f"{name}: update", ready.set_kernel(node, "shape", memory + 64, grid=4, block=32), SUCCESS)
        t.expect(f"{name}: launch", ready.launch(), SUCCESS)


@trial("C-10.13", "An update of a node of the graph keeps its attributes.")
def attributes_over_changes_in_the_graph(t: Recorder, gpu: Gpu) -> None:
    memory, graph = gpu.memory(), Graph(gpu)
    node = graph.kernel("shape", memory, grid=8, block=32)
    set_attribute(node, CLUSTER, clusterDim=(2, 1, 1)).must()
    set_attribute(node, PREFERRED_CLUSTER, preferredClusterDim=(4, 1, 1))
    set_attribute(node, PRIORITY, priority=-1).must()
    must(driver.cuGraphKernelNodeSetParams, handle(node), gpu.launch_params("shape", memory, grid=16, block=32))
    t.expect("cluster", get_attribute(node, CLUSTER).must().clusterDim.x, 2)
    t.expect("priority", get_attribute(node, PRIORITY).must().priority, -1)
    t.expect("launched", shape_of(gpu, graph.instantiate(), memory), "cluster of 2, grid of 16")


def _enabled(t: Recorder, gpu: Gpu, kind: str, wanted: Any) -> None:
    graph, memory = Graph(gpu), gpu.memory()
    adders: dict[str, Any] = {
        "kernel": lambda: graph.kernel("put", memory, 1),
        "memcpy": lambda: graph.memcpy(memory, memory + 64, 4),
        "memset": lambda: graph.memset(memory, 1),
        "host": lambda: graph.host(lambda: None),
        "empty": graph.empty,
        "event record": lambda: graph.record(gpu.new_event()),
        "event wait": lambda: graph.wait(gpu.new_event()),
        "child": lambda: graph.child(Graph(gpu)),
        "batch": lambda: graph.batch(("write", memory, 1)),
        "allocation": lambda: graph.alloc(1 << 20),
        "conditional": lambda: graph.conditional(graph.handle()),
    }
    node = adders[kind]()
    ready = graph.instantiate()
    t.expect(f"disable: {kind}", ready.enable(node, False), wanted)
    state = ask(driver.cuGraphNodeGetEnabled, ready.must(), handle(node))
    t.note(f"ask whether it is enabled: {kind}", state.value if state.code == SUCCESS else state)


@trial("C-10.14", "Kernel, memset and memcpy nodes can be disabled in an exec, and no others.")
def disabled_kinds(t: Recorder, gpu: Gpu) -> None:
    for kind in ("kernel", "memcpy", "memset"):
        _enabled(t, gpu, kind, SUCCESS)
    for kind in ("host", "empty", "event record", "event wait", "child", "batch", "allocation", "conditional"):
        _enabled(t, gpu, kind, _REFUSALS)


@trial("C-10.14", "A disabled node does nothing, and keeps the order of those before and after it.")
def order_over_disabled_nodes(t: Recorder, gpu: Gpu) -> None:
    memory, graph = gpu.memory(), Graph(gpu)
    busy = graph.kernel("busy", memory + 64, 2_000_000)
    chain = [graph.kernel("append", memory, 1, after=[busy])]
    for value in (2, 3, 4):
        chain.append(graph.kernel("append", memory, value, after=[chain[-1]]))
    ready = graph.instantiate()
    ready.enable(busy, False).must()
    for node in chain[1:3]:
        t.expect("disable two in the middle", ready.enable(node, False), SUCCESS)
    for _ in range(3):
        gpu.clear(memory, 64)
        ready.launch().must()
        t.expect("what the others wrote, in order", gpu.read(memory, 4), [2, 1, 4, 0])


@trial("C-10.14", "A disabled node takes updates, and stays disabled over them until it is enabled.")
def updates_while_disabled(t: Recorder, gpu: Gpu) -> None:
    memory, graph = gpu.memory(), Graph(gpu)
    node = graph.kernel("put", memory, 1)
    ready = graph.instantiate()
    ready.enable(node, False).must()
    t.expect("update", ready.set_kernel(node, "put", memory, 2), SUCCESS)
    ready.launch().must()
    t.expect("what it wrote", gpu.read(memory), 0)
    t.expect("enable", ready.enable(node, True), SUCCESS)
    ready.launch().must()
    t.expect("what it wrote then", gpu.read(memory), 2)


@trial("C-10.15", "The call for nodes of any kind wants the node's type, and unused bytes that are 0.")
def generic_updates(t: Recorder, gpu: Gpu) -> None:
    memory, graph = gpu.memory(), Graph(gpu)
    node, fill = graph.kernel("put", memory, 1), graph.memset(memory + 64, 1)
    ready = graph.instantiate()
    made = params.generic_kernel(gpu.launch_params("put", memory, 5))
    t.expect("a kernel's parameters for a kernel", ready.set_generic(node, made), SUCCESS)
    ready.launch().must()
    t.expect("what it wrote", gpu.read(memory), 5)
    t.expect("a kernel's parameters for a memset", ready.set_generic(fill, made), REFUSED)
    soiled = params.soiled(made)
    t.expect("bytes beyond the kernel's that are not 0", ready.set_generic(node, soiled), REFUSED)
