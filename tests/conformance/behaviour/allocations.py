"""C-6: memory that a graph allocates and frees."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver

from tests.conformance.behaviour.answers import SUCCESS, Answer, ask, handle, must
from tests.conformance.behaviour.gpu import Gpu
from tests.conformance.behaviour.graph import Alloc, Graph, child_of
from tests.conformance.behaviour.trials import Recorder, trial

REFUSED = "INVALID_VALUE"
_SIZE = 1 << 20
_AUTO_FREE = int(driver.CUgraphInstantiate_flags.CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)
_DEVICE_LAUNCH = int(driver.CUgraphInstantiate_flags.CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)


def _used_and_freed(graph: Graph, value: int = 1, after: Any = ()) -> tuple[Alloc, Answer, Answer]:
    """Allocate, write and free."""
    alloc = graph.alloc(_SIZE, after)
    kernel = graph.kernel("put", alloc.address, value, after=[alloc])
    return alloc, kernel, graph.free(alloc.address, [kernel])


@trial("C-6.1", "Allocations cannot be shared with other processes; only reading and writing by devices can be given.")
def pool_properties(t: Recorder, gpu: Gpu) -> None:
    graph = Graph(gpu)
    t.expect("plain", graph.alloc(_SIZE), SUCCESS)
    refused = (REFUSED, "NOT_SUPPORTED")
    t.expect("shared as a file descriptor", graph.alloc(_SIZE, shared_as="POSIX_FILE_DESCRIPTOR"), refused)
    t.expect("read and write for its own device", graph.alloc(_SIZE, access=["READWRITE"]), SUCCESS)
    t.expect("read only for its own device", graph.alloc(_SIZE, access=["READ"]), refused)
    too_many = ["READWRITE"] * (must(driver.cuDeviceGetCount) + 1)
    t.expect("more rights than there are devices", graph.alloc(_SIZE, access=too_many), refused)


@trial("C-6.1", "An allocation has a size, and fits the device.")
def allocation_sizes(t: Recorder, gpu: Gpu) -> None:
    for nbytes, wanted in ((0, REFUSED), (1, SUCCESS), (1 << 45, "OUT_OF_MEMORY")):
        t.expect(f"{nbytes} bytes", Graph(gpu).alloc(nbytes), wanted)


@trial("C-6.2", "The address is known when the node is added, and is the same in every launch and exec.")
def addresses(t: Recorder, gpu: Gpu) -> None:
    graph, memory = Graph(gpu), gpu.memory()
    alloc = graph.alloc(_SIZE)
    kernel = graph.kernel("put", alloc.address, 7, after=[alloc])
    copy = graph.memcpy(memory, alloc.address, 4, after=[kernel])
    graph.free(alloc.address, [copy]).must()
    t.expect("an address at add", alloc.address != 0, True)
    read = must(driver.cuGraphMemAllocNodeGetParams, handle(alloc))
    t.expect("the node tells the same", int(read.dptr) == alloc.address, True)
    ready = graph.instantiate()
    for launch in ("first", "second"):
        gpu.clear(memory)
        t.expect(f"{launch} launch", ready.launch(), SUCCESS)
        t.expect(f"{launch} launch: what came through that address", gpu.read(memory), 7)


@trial("C-6.2", "Allocations whose lifetimes are disjoint may have one address.")
def shared_addresses(t: Recorder, gpu: Gpu) -> None:
    graph = Graph(gpu)
    first, _, freed = _used_and_freed(graph)
    second, _, _ = _used_and_freed(graph, after=[freed])
    t.note("dependencies given when the nodes are added: one address", first.address == second.address)
    t.expect("launch", graph.instantiate().launch(), SUCCESS)
    graph = Graph(gpu)
    first, second = graph.alloc(_SIZE), graph.alloc(_SIZE)
    ends = [graph.free(alloc.address) for alloc in (first, second)]
    graph.edges([(first, ends[0]), (ends[0], second), (second, ends[1])]).must()
    t.note("edges added after the nodes: one address", first.address == second.address)
    t.expect("launch", graph.instantiate().launch(), SUCCESS)
    graph = Graph(gpu)
    first = graph.alloc(_SIZE)
    second = graph.alloc(_SIZE, [first])
    ends = [graph.free(alloc.address, [second]) for alloc in (first, second)]
    t.expect("lifetimes that overlap: one address", first.address == second.address, False)
    t.expect("launch", graph.instantiate().launch(), SUCCESS)


@trial("C-6.3", "The driver does not check that users of an allocation come after it and before its free.")
def unordered_users(t: Recorder, gpu: Gpu) -> None:
    graph = Graph(gpu)
    alloc = graph.alloc(_SIZE)
    for name, answer in (
        ("a kernel that is not ordered after the allocation", graph.kernel("put", alloc.address, 1)),
        ("a copy that is not", graph.memcpy(alloc.address + 64, alloc.address, 4)),
        ("a memset that is not", graph.memset(alloc.address, 1)),
        ("a free that is not", graph.free(alloc.address)),
    ):
        t.expect(f"add {name}", answer, SUCCESS)
    t.expect("instantiate", graph.instantiate(), SUCCESS)
    outside = graph.memcpy(alloc.address + _SIZE - 4, alloc.address, 8)
    t.note("add a copy that ends beyond the allocation", outside)


@trial("C-6.3", "Where and when copies, memsets and kernels of an allocation can be added.")
def places_of_users(t: Recorder, gpu: Gpu) -> None:
    for name, freed in (("before its free node is added", False), ("after its free node is added", True)):
        graph = Graph(gpu)
        alloc = graph.alloc(_SIZE)
        inside = child_of(graph.child(Graph(gpu), [alloc], move=True), gpu)
        body = graph.conditional(graph.handle(), after=[alloc]).bodies[0]
        if freed:
            graph.free(alloc.address, [alloc]).must()
        for place, where in (
            ("the graph", graph),
            ("a child", inside),
            ("a body", body),
            ("another graph", Graph(gpu)),
        ):
            t.note(f"memset in {place}, {name}", where.memset(alloc.address, 1))
            t.note(f"memcpy in {place}, {name}", where.memcpy(alloc.address, alloc.address + 64, 4))
            t.note(f"kernel in {place}, {name}", where.kernel("put", alloc.address, 1))


@trial("C-6.4", "What is freed is an allocation of a graph, once.")
def frees(t: Recorder, gpu: Gpu) -> None:
    graph = Graph(gpu)
    alloc = graph.alloc(_SIZE)
    t.expect("an inner address", graph.free(alloc.address + 16, [alloc]), REFUSED)
    t.expect("its address", graph.free(alloc.address, [alloc]), SUCCESS)
    t.expect("again", graph.free(alloc.address, [alloc]), REFUSED)
    t.expect("in another graph, where its own frees it", Graph(gpu).free(alloc.address), REFUSED)
    t.expect("an address of cuMemAlloc", graph.free(gpu.memory()), REFUSED)
    t.expect("NULL", graph.free(0), REFUSED)


@trial(
    "C-6.4", "An allocation that its graph does not free is freed by another graph, by cuMemFree or by cuMemFreeAsync."
)
def frees_elsewhere(t: Recorder, gpu: Gpu) -> None:
    graph, other = Graph(gpu), Graph(gpu)
    alloc = graph.alloc(_SIZE)
    ready = graph.instantiate()
    t.note("cuMemFree before a launch", ask(driver.cuMemFree, alloc.address))
    t.expect("launch", ready.launch(), SUCCESS)
    t.expect("cuMemFree", ask(driver.cuMemFree, alloc.address), SUCCESS)
    t.expect("launch after it", ready.launch(), SUCCESS)
    t.expect("cuMemFreeAsync", ask(driver.cuMemFreeAsync, alloc.address, gpu.stream), SUCCESS)
    t.expect("launch after it", ready.launch(), SUCCESS)
    t.expect("a free node in another graph", other.free(alloc.address), SUCCESS)
    t.expect("a free node in its own, too", graph.free(alloc.address, [alloc]), REFUSED)
    freeing = other.instantiate()
    t.expect("launch of the other graph", freeing.launch(), SUCCESS)
    t.expect("launch of the other graph, with nothing to free", freeing.launch(), "INVALID_VALUE at launch")
    t.expect("launch of the first after it", ready.launch(), SUCCESS)


@trial(
    "C-6.5",
    "A graph that allocates or frees is not cloned, has one exec at a time, and is a child only if it is moved.",
)
def allocating_graphs(t: Recorder, gpu: Gpu) -> None:
    graph, refused = Graph(gpu), "NOT_SUPPORTED"
    _used_and_freed(graph)
    t.expect("clone", graph.clone(), refused)
    t.expect("a cloned child", Graph(gpu).child(graph), refused)
    first = graph.instantiate()
    t.expect("first exec", first, SUCCESS)
    t.expect("second exec", graph.instantiate(), refused)
    first.destroy().must()
    t.expect("an exec after the first was destroyed", graph.instantiate(), SUCCESS)
    parent, moved = Graph(gpu), Graph(gpu)
    _used_and_freed(moved)
    t.expect("a moved child", parent.child(moved, move=True), SUCCESS)
    ready = parent.instantiate()
    t.expect("launch", ready.launch(), SUCCESS)
    t.expect("launch again", ready.launch(), SUCCESS)
    t.expect("second exec of the parent", parent.instantiate(), refused)


@trial("C-6.5", "A child may allocate what its parent frees.")
def allocations_of_children(t: Recorder, gpu: Gpu) -> None:
    parent, moved = Graph(gpu), Graph(gpu)
    alloc = moved.alloc(_SIZE)
    node = parent.child(moved, move=True)
    t.expect("child", node, SUCCESS)
    t.expect("free in the parent", parent.free(alloc.address, [node]), SUCCESS)
    ready = parent.instantiate()
    t.expect("launch", ready.launch(), SUCCESS)
    t.expect("launch again", ready.launch(), SUCCESS)


@trial("C-6.6", "With an allocation that nobody freed, a launch fails, unless the exec frees at launch.")
def unfreed_allocations(t: Recorder, gpu: Gpu) -> None:
    for flags, wanted in ((0, "INVALID_VALUE at launch"), (_AUTO_FREE, SUCCESS)):
        graph = Graph(gpu)
        alloc = graph.alloc(_SIZE)
        graph.kernel("put", alloc.address, 6, after=[alloc]).must()
        ready, name = graph.instantiate(flags), "with AUTO_FREE_ON_LAUNCH" if flags else "plain"
        t.expect(f"{name}: first launch", ready.launch(), SUCCESS)
        t.expect(f"{name}: what it wrote, read afterwards", gpu.read(alloc.address), 6)
        t.expect(f"{name}: second launch", ready.launch(), wanted)
        t.expect(f"{name}: destroy the exec", ready.destroy(), SUCCESS)
        t.expect(f"{name}: the memory is still there", gpu.read(alloc.address), 6)
        t.note(f"{name}: launch of a new exec", graph.instantiate(flags).launch())
    graph = Graph(gpu)
    graph.kernel("nothing").must()
    t.expect("AUTO_FREE_ON_LAUNCH and DEVICE_LAUNCH", graph.instantiate(_AUTO_FREE | _DEVICE_LAUNCH), REFUSED)


@trial(
    "C-6.7", "Parameters of allocation and free nodes never change, in the graph or in an exec; nor are they disabled."
)
def allocations_are_fixed(t: Recorder, gpu: Gpu) -> None:
    graph = Graph(gpu)
    alloc, _, free = _used_and_freed(graph)
    ready, kinds = graph.instantiate(), driver.CUgraphNodeType
    for name, node, kind in (
        ("alloc", alloc, kinds.CU_GRAPH_NODE_TYPE_MEM_ALLOC),
        ("free", free, kinds.CU_GRAPH_NODE_TYPE_MEM_FREE),
    ):
        made = driver.CUgraphNodeParams()
        made.type = kind
        if name == "alloc":
            made.alloc.poolProps.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
            made.alloc.poolProps.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
            made.alloc.bytesize = 2 * _SIZE
        else:
            made.free.dptr = alloc.address
        t.expect(f"exec update of {name}", ready.set_generic(node, made), "NOT_SUPPORTED")
        t.expect(
            f"update of {name} in the graph", ask(driver.cuGraphNodeSetParams, handle(node), made), "NOT_SUPPORTED"
        )
        t.expect(f"disable {name}", ready.enable(node, False), REFUSED)


@trial("C-6.8", "An exec is not updated from an allocating graph that has an exec of its own.")
def updates_from_allocating_graphs(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()

    def build(value: int) -> Graph:
        graph = Graph(gpu)
        alloc = graph.alloc(_SIZE)
        kernel = graph.kernel("put", alloc.address, value, after=[alloc])
        copy = graph.memcpy(memory, alloc.address, 4, after=[kernel])
        graph.free(alloc.address, [copy]).must()
        return graph

    first, second = build(1), build(2)
    ready = first.instantiate()
    ready.launch().must()
    t.expect("from a graph without an exec", ready.update(second), SUCCESS)
    t.expect("launch", ready.launch(), SUCCESS)
    t.expect("what it wrote: the other graph's", gpu.read(memory), 2)
    t.expect("instantiate the graph that it was updated from", second.instantiate(), "NOT_SUPPORTED")
    third = build(3)
    third.instantiate().must()
    t.expect("from a graph with an exec", ready.update(third), ("NOT_SUPPORTED", "PARAMETERS_CHANGED", "ERROR"))
    t.note("launch after that", ready.launch())


@trial("C-6.9", "One stream for all launches saves remapping; another stream is allowed.")
def allocations_and_streams(t: Recorder, gpu: Gpu) -> None:
    graph = Graph(gpu)
    _used_and_freed(graph)
    ready = graph.instantiate()
    t.expect("first stream", ready.launch(), SUCCESS)
    t.expect("another stream", ready.launch(gpu.new_stream()), SUCCESS)


@trial(
    "C-6.10",
    "Memory goes back when the device's graph memory is trimmed; marks of the highest use are only reset to 0.",
)
def trimming(t: Recorder, gpu: Gpu) -> None:
    kinds = driver.CUgraphMem_attribute
    reserved, high = kinds.CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, kinds.CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH

    def read(kind: Any) -> int:
        return int(must(driver.cuDeviceGetGraphMemAttribute, gpu.device, kind))

    graph = Graph(gpu)
    _used_and_freed(graph)
    ready = graph.instantiate()
    ready.launch().must()
    t.expect("memory is reserved after a launch", read(reserved) > 0, True)
    t.note("after a trim", (must(driver.cuDeviceGraphMemTrim, gpu.device), read(reserved) > 0)[1] and "still reserved")
    ready.destroy().must()
    graph.destroy().must()
    must(driver.cuDeviceGraphMemTrim, gpu.device)
    t.expect("reserved after exec and graph are destroyed, and a trim", read(reserved), 0)
    t.expect(
        "highest, set to 1", ask(driver.cuDeviceSetGraphMemAttribute, gpu.device, high, driver.cuuint64_t(1)), REFUSED
    )
    t.expect(
        "highest, set to 0", ask(driver.cuDeviceSetGraphMemAttribute, gpu.device, high, driver.cuuint64_t(0)), SUCCESS
    )
    t.note("highest, afterwards", read(high))
