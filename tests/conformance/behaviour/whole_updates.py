"""C-11: update of a whole exec from another graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cuda.bindings import driver

from tests.conformance.behaviour import params
from tests.conformance.behaviour.answers import SUCCESS, must
from tests.conformance.behaviour.attributes import shape_of
from tests.conformance.behaviour.gpu import Gpu
from tests.conformance.behaviour.graph import FULL, LAUNCH_ORDER, PROGRAMMATIC, Graph, set_attribute
from tests.conformance.behaviour.params import CLUSTER, COOPERATIVE, DEVICE_UPDATABLE, PRIORITY
from tests.conformance.behaviour.trials import Recorder, trial

_TOPOLOGY = "TOPOLOGY_CHANGED"
_USE_PRIORITY = int(driver.CUgraphInstantiate_flags.CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)
_DIAMOND = ("ab", "ac", "bd", "cd")


def _diamond(
    gpu: Gpu,
    memory: int,
    order: str = "abcd",
    edges: tuple[str, ...] = _DIAMOND,
    *,
    how: str = "one by one",
    c: str = "kernel",
    value: int = 1,
    grid: int = 1,
) -> Graph:
    """A graph of four kernels, or three and a memset for ``c``, each writing to a place of its own."""
    graph, nodes = Graph(gpu), {}
    for name in order:
        place = memory + 4 * "abcd".index(name)
        after = [nodes[edge[0]] for edge in edges if edge[1] == name] if how == "with the nodes" else []
        if name == "c" and c == "memset":
            nodes[name] = graph.memset(place, value, after=after)
        else:
            nodes[name] = graph.kernel("put", place, value, after=after, grid=grid)
    pairs = [(nodes[edge[0]], nodes[edge[1]]) for edge in edges]
    if how == "in one call":
        graph.edges(pairs).must()
    elif how == "one by one":
        for pair in pairs:
            graph.edge(*pair).must()
    return graph


@trial(
    "C-11.1",
    "The graphs have to match: as many nodes, sinks and dependencies of each node, or the topology has changed.",
)
def changed_topologies(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()
    larger = _diamond(gpu, memory)
    larger.kernel("put", memory, 1).must()
    for name, graph in (
        ("a node more", larger),
        ("an edge less", _diamond(gpu, memory, edges=("ab", "ac", "bd"))),
        ("an edge more", _diamond(gpu, memory, edges=(*_DIAMOND, "ad"))),
        ("as many edges, one elsewhere", _diamond(gpu, memory, edges=("ab", "bc", "bd", "cd"))),
        ("an empty graph", Graph(gpu)),
    ):
        t.expect(name, _diamond(gpu, memory).instantiate().update(graph), _TOPOLOGY)
    t.expect("empty, from empty", Graph(gpu).instantiate().update(Graph(gpu)), SUCCESS)


@trial("C-11.1", "The same graph built in the same way matches, however its edges were added.")
def equal_topologies(t: Recorder, gpu: Gpu) -> None:
    memory, ways = gpu.memory(), ("one by one", "in one call", "with the nodes")
    for before in ways:
        for after in ways:
            ready = _diamond(gpu, memory, how=before).instantiate()
            t.expect(f"edges {before}, then {after}", ready.update(_diamond(gpu, memory, how=after, value=2)), SUCCESS)
            ready.launch().must()
            t.expect(f"edges {before}, then {after}: written", gpu.read(memory, 4), [2] * 4)


@trial(
    "C-11.1",
    "Nodes are paired by the order of edge calls, of dependencies and of sinks, so that another order may not match.",
)
def pairing(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()
    for kind in ("kernel", "memset"):
        for name, order, edges in (
            ("nodes b and c", "acbd", _DIAMOND),
            ("all nodes, reversed", "dcba", _DIAMOND),
            ("edges out of a", "abcd", ("ac", "ab", "bd", "cd")),
            ("edges into d", "abcd", ("ab", "ac", "cd", "bd")),
            ("all edges, reversed", "abcd", ("cd", "bd", "ac", "ab")),
        ):
            ready = _diamond(gpu, memory, c=kind).instantiate()
            answer = ready.update(_diamond(gpu, memory, order, edges, c=kind, value=3))
            t.note(f"c a {kind}, other order of {name}", answer)
            if answer.code == SUCCESS:
                gpu.clear(memory)
                ready.launch().must()
                t.expect("what an exec wrote after success", gpu.read(memory, 4), [3] * 4)


@trial("C-11.1", "Sinks are paired in the order in which they were created.")
def sinks(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()

    def build(order: str) -> Graph:
        graph = Graph(gpu)
        for kind in order:
            (graph.kernel("put", memory, 1) if kind == "k" else graph.memset(memory + 64, 1)).must()
        return graph

    t.expect("kernel, memset, to the same", build("km").instantiate().update(build("km")), SUCCESS)
    t.note("kernel, memset, to memset, kernel", build("km").instantiate().update(build("mk")))


@trial("C-11.2", "Each way of not matching has a result of its own, and the node is blamed.")
def failure_kinds(t: Recorder, gpu: Gpu) -> None:
    memory, pinned = gpu.memory(), gpu.pinned()

    def one(add: Callable[[Graph], Any]) -> Graph:
        graph = Graph(gpu)
        graph.empty([add(graph)]).must()
        return graph

    kernel = one(lambda graph: graph.kernel("put", memory, 1))
    copy = one(lambda graph: graph.memcpy(memory, memory + 64, 4))
    fill = one(lambda graph: graph.memset(memory, 1, 4))
    cases: tuple[tuple[str, Graph, Callable[[Graph], Any], Any], ...] = (
        ("kernel: other values", kernel, lambda g: g.kernel("put", memory, 2, grid=4, block=64, shared=64), SUCCESS),
        ("kernel: other function", kernel, lambda g: g.kernel("put_sum", memory, 2, 3), SUCCESS),
        ("kernel to memset", kernel, lambda g: g.memset(memory, 1), "NODE_TYPE_CHANGED"),
        (
            "kernel: to one that launches a kernel",
            kernel,
            lambda g: g.kernel("launch_kernel", memory, 1, library="launching"),
            ("UNSUPPORTED_FUNCTION_CHANGE", "PARAMETERS_CHANGED"),
        ),
        ("memcpy: other addresses", copy, lambda g: g.memcpy(memory + 128, memory + 256, 4), SUCCESS),
        ("memcpy: wider", copy, lambda g: g.memcpy(memory, memory + 64, 8), SUCCESS),
        ("memcpy: from pinned, as HOST", copy, lambda g: g.memcpy(memory, pinned, 4, of="HOST"), "PARAMETERS_CHANGED"),
        ("memcpy: from pinned, as DEVICE", copy, lambda g: g.memcpy(memory, pinned, 4), "PARAMETERS_CHANGED"),
        ("memcpy: two rows", copy, lambda g: g.memcpy(memory, memory + 64, 4, 2), "PARAMETERS_CHANGED"),
        ("memset: other value and address", fill, lambda g: g.memset(memory + 64, 2, 4), SUCCESS),
        ("memset: of pinned memory", fill, lambda g: g.memset(pinned, 1, 4), "PARAMETERS_CHANGED"),
        ("memset: two rows", fill, lambda g: g.memset(memory, 1, 4, 2, pitch=64), "PARAMETERS_CHANGED"),
    )
    for name, before, add, wanted in cases:
        t.expect(name, before.instantiate().update(one(add)), wanted)
    for name, width, size in (("wider", 8, 4), ("elements of 1 byte", 4, 1)):
        graph = one(lambda g: g.memset(memory, 1, width, size=size))  # noqa: B023  called at once
        t.note(f"memset: {name}", fill.instantiate().update(graph))


@trial("C-11.2", "Host functions and events are taken over; so is what is inside children, if it matches.")
def other_kinds(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()
    called: list[int] = []

    def parent(value: int, nodes: int = 1, depth: int = 1) -> Graph:
        graph = Graph(gpu)
        for _ in range(nodes):
            graph.kernel("put", memory, value).must()
        for _ in range(depth):
            outer = Graph(gpu)
            outer.child(graph).must()
            graph = outer
        return graph

    def host(number: int) -> Graph:
        graph = Graph(gpu)
        graph.host(lambda: called.append(number)).must()
        return graph

    def event(*kinds: str) -> Graph:
        graph = Graph(gpu)
        for kind in kinds:
            (graph.record if kind == "record" else graph.wait)(gpu.new_event()).must()
        return graph

    ready = host(1).instantiate()
    t.expect("host: another function", ready.update(host(2)), SUCCESS)
    ready.launch().must()
    t.expect("host: function that was called", called, [2])
    t.expect("event record: another event", event("record").instantiate().update(event("record")), SUCCESS)
    t.expect("event wait: another event", event("wait").instantiate().update(event("wait")), SUCCESS)
    t.expect("event record to wait", event("record").instantiate().update(event("wait")), "NODE_TYPE_CHANGED")
    for depth in (1, 2):
        ready = parent(1, depth=depth).instantiate()
        t.expect(f"child, {depth} deep: other values", ready.update(parent(2, depth=depth)), SUCCESS)
        ready.launch().must()
        t.expect(f"child, {depth} deep: what it wrote", gpu.read(memory), 2)
        t.expect(f"child, {depth} deep: a node more inside", ready.update(parent(3, 2, depth)), _TOPOLOGY)


@trial("C-11.2", "Batches: values and addresses are taken over; their operations are fixed.")
def batches_over_whole_updates(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()

    def build(*operations: params.Operation) -> Graph:
        graph = Graph(gpu)
        graph.batch(*operations).must()
        return graph

    ready = build(("write", memory, 1)).instantiate()
    t.expect("another value and address", ready.update(build(("write", memory + 4, 2))), SUCCESS)
    ready.launch().must()
    t.expect("what it wrote", gpu.read(memory, 2), [0, 2])
    more = build(("write", memory, 1), ("write", memory + 4, 2))
    t.expect("one operation more", ready.update(more), ("PARAMETERS_CHANGED", "NOT_SUPPORTED", "ERROR"))


@trial("C-11.2", "The types of edges are part of the topology.")
def edges_over_whole_updates(t: Recorder, gpu: Gpu) -> None:
    times = gpu.memory()

    def build(ports: tuple[int, int, int]) -> Graph:
        graph = Graph(gpu)
        graph.edge(graph.kernel("triggering", times, 10), graph.kernel("waiting", times), ports).must()
        return graph

    kinds = (("full", FULL), ("programmatic", PROGRAMMATIC), ("launch order", LAUNCH_ORDER))
    for before, ports in kinds:
        for after, others in kinds:
            answer = build(ports).instantiate().update(build(others))
            t.expect(f"{before} to {after}", answer, SUCCESS if before == after else _TOPOLOGY)


@trial(
    "C-11.3",
    "A kernel stays cooperative or not; with USE_NODE_PRIORITY its priority stays, compared before it is clamped.",
)
def fixed_attributes(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()
    _, highest = must(driver.cuCtxGetStreamPriorityRange)

    def build(number: int = 0, **fields: Any) -> Graph:
        graph = Graph(gpu)
        node = graph.kernel("shape", memory, grid=8, block=32)
        if number:
            set_attribute(node, number, **fields).must()
        return graph

    changed = ("ATTRIBUTES_CHANGED", "PARAMETERS_CHANGED")
    plain, cooperative = build(), build(COOPERATIVE, cooperative=1)
    t.expect("plain to cooperative", plain.instantiate().update(cooperative), changed)
    t.expect("cooperative to plain", cooperative.instantiate().update(plain), changed)
    t.expect("cooperative to the same", cooperative.instantiate().update(cooperative), SUCCESS)
    high, higher = build(PRIORITY, priority=highest), build(PRIORITY, priority=highest - 10)
    for name, flags, wanted in (("with USE_NODE_PRIORITY", _USE_PRIORITY, changed), ("without", 0, SUCCESS)):
        t.expect(f"priority to highest, {name}", plain.instantiate(flags).update(high), wanted)
        t.expect(f"priority from highest to one beyond it, {name}", high.instantiate(flags).update(higher), wanted)


@trial("C-11.3", "Neither graph has device-updatable nodes.")
def device_updatable_over_whole_updates(t: Recorder, gpu: Gpu) -> None:
    def build(updatable: bool) -> Graph:
        graph = Graph(gpu)
        node = graph.kernel("nothing")
        if updatable:
            set_attribute(node, DEVICE_UPDATABLE, deviceUpdatableKernelNode={"deviceUpdatable": 1}).must()
        return graph

    refused = ("NOT_SUPPORTED", "ATTRIBUTES_CHANGED", "ERROR", "PARAMETERS_CHANGED")
    t.expect("to a graph with one", build(False).instantiate().update(build(True)), refused)
    t.expect("from an exec with one", build(True).instantiate().update(build(False)), refused)


@trial("C-11.3", "Copies keep kinds and shape; memsets of several rows change only value and address.")
def rows_over_whole_updates(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory(1 << 20)
    source, changed = memory + 65536, "PARAMETERS_CHANGED"
    pitches = {"srcPitch": 64, "dstPitch": 64}

    def copy(*args: Any, **fields: Any) -> Graph:
        graph = Graph(gpu)
        graph.memcpy(*args, **fields).must()
        return graph

    def fill(*args: Any, **fields: Any) -> Graph:
        graph = Graph(gpu)
        graph.memset(*args, **fields).must()
        return graph

    for name, graph, wanted in (
        ("the same", copy(memory, source, 16, 4, **pitches), SUCCESS),
        ("other addresses", copy(memory + 4096, source, 16, 4, **pitches), changed),
        ("wider", copy(memory, source, 32, 4, **pitches), changed),
        ("a row less", copy(memory, source, 16, 3, **pitches), changed),
        ("one row", copy(memory, source, 16), changed),
    ):
        t.expect(f"copy of rows: {name}", copy(memory, source, 16, 4, **pitches).instantiate().update(graph), wanted)
    for name, graph, wanted in (
        ("value and address", fill(memory + 4096, 2, 3, 4, pitch=64), SUCCESS),
        ("wider", fill(memory, 1, 4, 4, pitch=64), changed),
        ("a row less", fill(memory, 1, 3, 3, pitch=64), changed),
        ("other pitch", fill(memory, 1, 3, 4, pitch=128), changed),
    ):
        t.expect(f"memset of rows: {name}", fill(memory, 1, 3, 4, pitch=64).instantiate().update(graph), wanted)


@trial("C-11.4", "After a failure the exec is to be made anew: what it does then is not promised.")
def execs_after_failures(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()

    def build(value: int, last: str = "kernel") -> Graph:
        graph = Graph(gpu)
        first = graph.kernel("put", memory, value)
        if last == "kernel":
            graph.kernel("put", memory + 4, value, after=[first]).must()
        else:
            graph.memset(memory + 4, value, after=[first]).must()
        return graph

    for name, wrong in (("another type", build(2, "memset")), ("another topology", Graph(gpu))):
        ready = build(1).instantiate()
        t.note(f"{name}: update", ready.update(wrong))
        gpu.clear(memory)
        t.note(f"{name}: launch afterwards", ready.launch())
        t.note(f"{name}: what it wrote: 1 before, 2 in the failed update", gpu.read(memory, 2))
        t.note(f"{name}: a good update after that", ready.update(build(3)))
        ready.launch().must()
        t.note(f"{name}: what it wrote then", gpu.read(memory, 2))


@trial("C-11.4", "After a success nodes are still named by the graph that the exec was made from.")
def handles_after_whole_updates(t: Recorder, gpu: Gpu) -> None:
    memory, first, second = gpu.memory(), Graph(gpu), Graph(gpu)
    old, new = first.kernel("put", memory, 1), second.kernel("put", memory, 2)
    ready = first.instantiate()
    ready.update(second).must()
    t.expect("update of a node of the first graph", ready.set_kernel(old, "put", memory, 3), SUCCESS)
    t.expect("update of a node of the second", ready.set_kernel(new, "put", memory, 4), "INVALID_VALUE")
    second.destroy().must()
    ready.launch().must()
    t.expect("what it wrote, with the second graph destroyed", gpu.read(memory), 3)


@trial("C-11.4", "Disabled nodes stay disabled over a whole update, and take its parameters.")
def disabled_over_whole_updates(t: Recorder, gpu: Gpu) -> None:
    memory, first, second = gpu.memory(), Graph(gpu), Graph(gpu)
    node, _ = first.kernel("put", memory, 1), second.kernel("put", memory, 2)
    ready = first.instantiate()
    ready.enable(node, False).must()
    t.expect("update", ready.update(second), SUCCESS)
    ready.launch().must()
    t.expect("what it wrote", gpu.read(memory), 0)
    ready.enable(node, True).must()
    ready.launch().must()
    t.expect("what it wrote, enabled", gpu.read(memory), 2)


@trial("C-11.5", "Cluster dimensions over a whole update: set and changed, but not taken back?")
def clusters_over_whole_updates(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()

    def build(cluster: int, grid: int = 8, name: str = "shape") -> Graph:
        graph = Graph(gpu)
        node = graph.kernel(name, memory, grid=grid, block=32)
        if cluster:
            set_attribute(node, CLUSTER, clusterDim=(cluster, 1, 1)).must()
        return graph

    for before, after, grid in ((0, 2, 8), (2, 4, 8), (4, 2, 8), (2, 0, 8), (2, 0, 7), (2, 2, 16)):
        ready = build(before).instantiate()
        name = f"{before or 'none'} to {after or 'none'}, grid of {grid}"
        t.note(name, ready.update(build(after, grid)))
        t.note(f"{name}: launched", shape_of(gpu, ready, memory))
    ready = build(0).instantiate()
    t.note("to a kernel compiled for a cluster of 2", ready.update(build(0, name="shape_of_pairs")))
    t.note("launched", shape_of(gpu, ready, memory))


@trial("C-11.5", "Attributes whose effect cannot be seen: is a whole update with and without them accepted?")
def unseen_attributes_over_whole_updates(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()
    spread = driver.CUclusterSchedulingPolicy.CU_CLUSTER_SCHEDULING_POLICY_SPREAD
    remote = driver.CUlaunchMemSyncDomain.CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE
    for name, number, fields in (
        ("access-policy window", params.WINDOW, {"accessPolicyWindow": params.window(memory)}),
        ("cluster scheduling", params.SCHEDULING, {"clusterSchedulingPolicyPreference": spread}),
        ("memory domain", params.DOMAIN, {"memSyncDomain": remote}),
        ("memory domain map", params.DOMAIN_MAP, {"memSyncDomainMap": {"default_": 1, "remote": 0}}),
        ("priority, without USE_NODE_PRIORITY", PRIORITY, {"priority": -1}),
    ):
        plain, special = Graph(gpu), Graph(gpu)
        plain.kernel("shape", memory, grid=8, block=32).must()
        set_attribute(special.kernel("shape", memory, grid=8, block=32), number, **fields).must()
        t.note(f"{name}: none to set", plain.instantiate().update(special))
        t.note(f"{name}: set to none", special.instantiate().update(plain))
