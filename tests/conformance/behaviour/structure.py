"""C-1: nodes, edges and the shape of a graph."""

from __future__ import annotations

import ctypes
from typing import Any

from cuda.bindings import driver

from tests.conformance.behaviour import params
from tests.conformance.behaviour.answers import SUCCESS, Answer, ask, handle, short
from tests.conformance.behaviour.gpu import Gpu, driver_has
from tests.conformance.behaviour.graph import FULL, LAUNCH_ORDER, PROGRAMMATIC, Graph, child_of, set_attribute
from tests.conformance.behaviour.params import DEVICE_UPDATABLE
from tests.conformance.behaviour.trials import Recorder, trial

REFUSED = "INVALID_VALUE"


def _pair(gpu: Gpu) -> tuple[Graph, Answer, Answer]:
    graph, memory = Graph(gpu), gpu.memory()
    return graph, graph.kernel("put", memory, 1), graph.kernel("put", memory, 2)


@trial("C-1.1", "An edge is added once: a second one between the same nodes, or a dependency named twice, is refused.")
def duplicate_edges(t: Recorder, gpu: Gpu) -> None:
    graph, a, b = _pair(gpu)
    t.expect("the same edge twice in one call", graph.edges([(a, b), (a, b)]), REFUSED)
    t.note("edges after that call: it is not atomic", graph.edge_count())
    t.expect("the same edge again", graph.edge(a, b), REFUSED)
    t.expect("a node named twice in the dependencies of a new one", graph.empty([a, a]), REFUSED)
    t.note("nodes after that", len(graph.nodes()))
    t.expect("programmatic, where a full edge is", graph.edge(a, b, PROGRAMMATIC), REFUSED)
    c = graph.empty()
    t.expect("a new edge and then the old one in one call", graph.edges([(b, c), (a, b)]), REFUSED)
    t.note("edges after that: pairs before the refused one stay", graph.edge_count())
    t.expect("no edges", graph.edges([]), SUCCESS)


@trial("C-1.1", "Of a call with a wrong edge, are the edges before it kept?")
def edges_before_a_wrong_one(t: Recorder, gpu: Gpu) -> None:
    for name, wrong, data in (
        ("a second one between the same nodes", "ab", FULL),
        ("one from a node to itself", "aa", FULL),
        ("one to a node of another graph", "ax", FULL),
        ("one from a node of another graph", "xa", FULL),
        ("one with ports that there are none of", "ac", (3, 0, 1)),
        ("a programmatic one from an empty node", "ca", PROGRAMMATIC),
    ):
        graph, a, b = _pair(gpu)
        nodes = {"a": a, "b": b, "c": graph.empty(), "x": _pair(gpu)[1]}
        graph.edge(a, b).must()
        answer = graph.edges([(b, nodes["c"]), (nodes[wrong[0]], nodes[wrong[1]])], [FULL, data])
        t.expect(f"a good edge and {name}", answer, REFUSED)
        t.note(f"is the good one there: {name}", graph.edge_count() == 2)


@trial("C-1.2", "Both ends of an edge belong to the graph; it joins no node inside a child or a body with one outside.")
def foreign_edges(t: Recorder, gpu: Gpu) -> None:
    graph, a, b = _pair(gpu)
    other, c, _ = _pair(gpu)
    t.expect("to a node of another graph", graph.edge(a, c), REFUSED)
    t.expect("from a node of another graph", graph.edge(c, b), REFUSED)
    t.expect("a node of another graph as a dependency of a new node", graph.empty([c]), REFUSED)
    inner = child_of(graph.child(other), gpu)
    t.expect("to a node inside a child", graph.edge(a, inner.nodes()[0]), REFUSED)
    condition = graph.conditional(graph.handle())
    inside = condition.bodies[0].empty()
    t.expect("to a node inside a body", graph.edge(a, inside), REFUSED)
    t.expect("from the conditional to a node of its body", graph.edge(condition, inside), REFUSED)
    t.note("edges after all that", graph.edge_count())
    node = c.must()
    other.destroy().must()
    t.expect("to a node of a destroyed graph", graph.edge(a, node), REFUSED)


@trial("C-1.3", "A graph has no cycle; the driver says so only at instantiate, and blames one node of it.")
def cycles(t: Recorder, gpu: Gpu) -> None:
    graph, memory = Graph(gpu), gpu.memory()
    nodes = [graph.kernel("put", memory, value) for value in range(5)]
    wanted = (REFUSED, "INVALID_STRUCTURE")
    t.expect(
        "edges 0 to 1, 1 to 2, 2 to 1, 3 alone", graph.edges([(nodes[0], nodes[1]), (nodes[1], nodes[2])]), SUCCESS
    )
    t.expect("the edge that closes the cycle", graph.edge(nodes[2], nodes[1]), SUCCESS)
    t.expect(
        "instantiate: the node that closes the cycle in a search by insertion", graph.instantiate(), ", ".join(wanted)
    )
    graph, a, b = _pair(gpu)
    graph.edges([(b, a), (a, b)]).must()
    t.expect("instantiate 1 to 0, 0 to 1", graph.instantiate(), ", ".join(wanted))
    t.expect("an empty graph", Graph(gpu).instantiate().launch(), SUCCESS)


@trial("C-1.4", "No edge from a node to itself.")
def self_edges(t: Recorder, gpu: Gpu) -> None:
    graph, a, _ = _pair(gpu)
    code = graph.edge(a, a)
    t.expect("at once, or at instantiate", graph.instantiate() if code.code == SUCCESS else code, REFUSED)


@trial("C-1.5", "A graph is created with flags 0.")
def create_flags(t: Recorder, gpu: Gpu) -> None:
    for flags in (1, 2, 0xFFFFFFFF):
        t.expect(f"flags {flags:#x}", ask(driver.cuGraphCreate, flags), REFUSED)


@trial(
    "C-1.6",
    "Ports: type programmatic goes with port 1 or 2 of a kernel, port 1 with that type only, into port 0 of a kernel; "
    "reserved bytes are 0.",
)
def edge_data(t: Recorder, gpu: Gpu) -> None:
    for port, to, kind, wanted in (
        (0, 0, 0, SUCCESS),
        (1, 0, 1, SUCCESS),
        (2, 0, 1, SUCCESS),
        (2, 0, 0, SUCCESS),
        (1, 0, 0, REFUSED),
        (0, 0, 1, REFUSED),
        (3, 0, 1, REFUSED),
        (3, 0, 0, REFUSED),
        (1, 1, 1, REFUSED),
        (0, 1, 0, REFUSED),
        (1, 0, 2, REFUSED),
    ):
        graph, a, b = _pair(gpu)
        t.expect(f"between kernels: port {port} to {to}, type {kind}", graph.edge(a, b, (port, to, kind)), wanted)
    graph, a, b = _pair(gpu)
    data = params.edge(*PROGRAMMATIC)
    ctypes.c_uint8.from_address(data.getPtr() + 3).value = 1
    answer = ask(driver.cuGraphAddDependencies, graph.raw, [handle(a)], [handle(b)], [data], 1)
    t.expect("a reserved byte of 1", answer, REFUSED)


@trial("C-1.6", "Only kernels have ports other than 0, and only kernels wait for a programmatic edge.")
def edge_data_of_others(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()
    for name, ports in (("programmatic", PROGRAMMATIC), ("launch order", LAUNCH_ORDER)):
        graph = Graph(gpu)
        kernel, fill, empty = graph.kernel("put", memory, 1), graph.memset(memory, 1), graph.empty()
        copy, more = graph.memcpy(memory, memory + 64, 4), graph.kernel("put", memory, 2)
        t.expect(f"{name} from a memset to a kernel", graph.edge(fill, kernel, ports), REFUSED)
        t.expect(f"{name} from an empty node to a kernel", graph.edge(empty, kernel, ports), REFUSED)
        wanted = REFUSED if ports == PROGRAMMATIC else (SUCCESS, REFUSED)
        for kind, target in (("a memset", fill), ("a memcpy", copy), ("an empty node", empty)):
            t.expect(f"{name} from a kernel to {kind}", graph.edge(more, target, ports), wanted)
        t.note(f"instantiate with what was accepted of {name}", graph.instantiate())


@trial("C-1.6", "Edges of several types may meet in one kernel, and one kernel may have several programmatic edges.")
def edge_mixtures(t: Recorder, gpu: Gpu) -> None:
    times = gpu.memory()

    def started(graph: Graph, *edges: Any) -> Answer:
        for source, target, ports in edges:
            graph.edge(source, target, ports).must()
        return graph.instantiate().launch()

    graph = Graph(gpu)
    first, fill, last = (
        graph.kernel("triggering", times, 1000),
        graph.memset(times + 64, 1),
        graph.kernel("waiting", times),
    )
    t.expect(
        "a programmatic and a full edge in", started(graph, (first, last, PROGRAMMATIC), (fill, last, FULL)), SUCCESS
    )
    graph = Graph(gpu)
    both = [graph.kernel("triggering", times + 64 * part, 1000) for part in range(2)]
    last = graph.kernel("waiting", times)
    t.expect("two programmatic edges in", started(graph, *((one, last, PROGRAMMATIC) for one in both)), SUCCESS)
    graph = Graph(gpu)
    first = graph.kernel("triggering", times, 1000)
    ends = [graph.kernel("waiting", times + 64 * part) for part in range(2)]
    t.expect("two programmatic edges out", started(graph, *((first, end, PROGRAMMATIC) for end in ends)), SUCCESS)


def _overlap(gpu: Gpu, first: str, second: str, ports: tuple[int, int, int], place: str = "graph") -> tuple[str, str]:
    """When the second kernel began, and when its wait was over, as seen from the end of the first."""
    nanoseconds = 3_000_000
    times, outer = gpu.memory(), Graph(gpu)
    graph = (
        outer.conditional(outer.handle(1)).bodies[0] if place == "body" else Graph(gpu) if place == "child" else outer
    )
    a, b = graph.kernel(first, times, nanoseconds), graph.kernel(second, times)
    graph.edge(a, b, ports).must()
    if place == "child":
        outer.child(graph).must()
    ready = outer.instantiate()
    for _ in range(2):  # the first launch may load code between the two
        ready.launch().must()
    ended, began, waited = gpu.times(times, 3)
    return tuple(
        "before its end" if moment < ended - nanoseconds // 10 else "after its end" for moment in (began, waited)
    )  # type: ignore[return-value]


@trial(
    "C-1.7",
    "Over a programmatic edge the second kernel starts once all blocks of the first have triggered or ended, and its "
    "wait lasts to the end of the first.",
    alone=True,
)
def programmatic_timing(t: Recorder, gpu: Gpu) -> None:
    before, after = "before its end", "after its end"
    cases = (
        ("full", FULL, "triggering", "waiting", after, after),
        ("programmatic", PROGRAMMATIC, "triggering", "waiting", before, after),
        ("programmatic, first never triggers", PROGRAMMATIC, "busy", "waiting", after, after),
        ("programmatic, second never waits", PROGRAMMATIC, "triggering", "unwaiting", before, before),
        ("programmatic, neither", PROGRAMMATIC, "busy", "unwaiting", after, after),
    )
    for name, ports, first, second, begins, waited in cases:
        began, done = _overlap(gpu, first, second, ports)
        t.expect(f"{name}: second begins", began, begins)
        t.expect(f"{name}: its wait is over", done, waited)
    for place in ("child", "body"):
        began, done = _overlap(gpu, "triggering", "waiting", PROGRAMMATIC, place)
        t.expect(f"programmatic in a {place}: second begins", began, before)
        t.expect(f"programmatic in a {place}: its wait is over", done, after)


@trial(
    "C-1.7",
    "A launch-order edge only orders the starts, and may not be seen by the wait of the second kernel.",
    alone=True,
)
def launch_order_timing(t: Recorder, gpu: Gpu) -> None:
    for name, ports in (("type 0", LAUNCH_ORDER), ("type programmatic", (2, 0, 1))):
        for first in ("triggering", "busy"):
            began, done = _overlap(gpu, first, "waiting", ports)
            t.note(f"{name}, first kernel {first}: second begins", began)
            t.note(f"{name}, first kernel {first}: its wait is over", done)


@trial("C-1.8", "A query of edges without room for edge data is refused as lossy where an edge is not a full one.")
def lossy_queries(t: Recorder, gpu: Gpu) -> None:
    graph, a, b = _pair(gpu)
    for name, ports, wanted in (("full", FULL, SUCCESS), ("programmatic", PROGRAMMATIC, "LOSSY_QUERY")):
        graph.edge(a, b, ports).must()
        t.expect(f"edges of the graph, {name}", _query("cuGraphGetEdges", graph.raw, 2), wanted)
        t.expect(f"dependencies, {name}", _query("cuGraphNodeGetDependencies", handle(b), 1), wanted)
        t.expect(f"dependents, {name}", _query("cuGraphNodeGetDependentNodes", handle(a), 1), wanted)
        graph.remove_edge(a, b, ports).must()


def _query(name: str, of: Any, arrays: int) -> str:
    """A query with arrays of eight handles and none for edge data."""
    function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * (arrays + 3))(driver_has(name))
    found = [(ctypes.c_void_p * 8)() for _ in range(arrays)]
    count = ctypes.c_size_t(8)
    code = function(int(of), *map(ctypes.addressof, found), None, ctypes.addressof(count))
    return short(driver.CUresult(code))


@trial("C-1.9", "An edge is removed with the edge data that it was added with.")
def removed_edges(t: Recorder, gpu: Gpu) -> None:
    graph, a, b = _pair(gpu)
    for name, data in (("no edge data", None), ("the data of a full edge", FULL)):
        graph.edge(a, b, PROGRAMMATIC).must()
        t.expect(f"a programmatic edge, removed with {name}", graph.remove_edge(a, b, data), REFUSED)
        t.note(f"edges left by {name}", graph.edge_count())
        graph, a, b = _pair(gpu)
    graph.edge(a, b, PROGRAMMATIC).must()
    t.expect("removed as it was added", graph.remove_edge(a, b, PROGRAMMATIC), SUCCESS)
    t.expect("an edge that is not there", graph.remove_edge(a, b), REFUSED)


@trial(
    "C-1.9", "Nodes and edges cannot be removed from graphs that allocate or free; device-updatable nodes stay, too."
)
def removed_nodes(t: Recorder, gpu: Gpu) -> None:
    refused = ("NOT_SUPPORTED", REFUSED, "NOT_PERMITTED")
    graph = Graph(gpu)
    alloc = graph.alloc(1 << 20)
    kernel = graph.kernel("put", alloc.address, 1, after=[alloc])
    t.expect("an edge, in a graph with an allocation", graph.remove_edge(alloc, kernel), refused)
    t.expect("a kernel, in a graph with an allocation", ask(driver.cuGraphDestroyNode, handle(kernel)), refused)
    t.expect("the allocation", ask(driver.cuGraphDestroyNode, handle(alloc)), refused)
    graph, a, b = _pair(gpu)
    t.expect("a kernel, elsewhere", ask(driver.cuGraphDestroyNode, handle(a)), SUCCESS)
    set_attribute(b, DEVICE_UPDATABLE, deviceUpdatableKernelNode={"deviceUpdatable": 1}).must()
    t.expect("a device-updatable kernel", ask(driver.cuGraphDestroyNode, handle(b)), refused)


@trial("C-1.10", "Edge data needs CUDA 12.3.")
def edge_data_version(t: Recorder, gpu: Gpu) -> None:
    t.cannot("it needs an older driver")


@trial("C-1.11", "A graph is changed by one thread at a time.")
def graph_threads(t: Recorder, gpu: Gpu) -> None:
    t.cannot("what two threads at once would do is undefined, so no answer would tell anything")


@trial("C-1.12", "An empty node between n and m nodes orders them with n + m edges in place of n times m.")
def barriers(t: Recorder, gpu: Gpu) -> None:
    memory, count = gpu.memory(), 64
    graph = Graph(gpu)
    before = [graph.kernel("append", memory, 1) for _ in range(count)]
    barrier = graph.empty(before)
    for _ in range(count):
        graph.kernel("append", memory, 2, after=[barrier]).must()
    t.expect("edges for 64 and 64 nodes", graph.edge_count(), 2 * count)
    t.expect("launch", graph.instantiate().launch(), SUCCESS)
    values = gpu.read(memory + 4, 2 * count)
    t.expect("all of the first ran before all of the second", values == [1] * count + [2] * count, True)
