"""C-8: graphs inside graphs."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver

from tests.conformance.behaviour.answers import SUCCESS, Answer, ask, handle, must
from tests.conformance.behaviour.gpu import Gpu
from tests.conformance.behaviour.graph import Graph, child_of, kind_of
from tests.conformance.behaviour.trials import Recorder, trial

REFUSED = "INVALID_VALUE"


def _one_of_each(gpu: Gpu, memory: int, called: list[int]) -> Graph:
    """Kernel, copy, memset and host function, inserted in this order and run in another."""
    graph = Graph(gpu)
    kernel = graph.kernel("put", memory, 1)
    graph.memcpy(memory + 64, memory + 256, 4).must()
    graph.memset(memory + 128, 5).must()
    graph.edge(graph.host(lambda: called.append(1)), kernel).must()
    return graph


def _nested(inner: Graph, depth: int, move: bool) -> tuple[Graph, Answer, Graph]:
    """Outermost graph, its child node, and what became of the inner graph inside it."""
    graph = inner
    for _ in range(depth):
        parent = Graph(graph.gpu)
        node = parent.child(graph, move=move)
        node.must()
        graph = parent
    found = graph
    for _ in range(depth):
        child = next(one for one in found.nodes() if kind_of(one) == "GRAPH")
        found = child_of(child, graph.gpu)
    return graph, node, found


@trial("C-8.1", "A cloned child is a copy: it does not see later changes of its source, which may be destroyed.")
def cloned_children(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()
    source, parent = Graph(gpu), Graph(gpu)
    source.kernel("put", memory, 1).must()
    inside = child_of(parent.child(source), gpu)
    source.kernel("put", memory + 64, 2).must()
    t.expect("nodes inside, after one was added to the source", len(inside.nodes()), 1)
    t.expect("destroy the source", source.destroy(), SUCCESS)
    t.expect("launch", parent.instantiate().launch(), SUCCESS)
    t.expect("an empty child", parent.child(Graph(gpu)), SUCCESS)
    t.expect("launch with it", parent.instantiate().launch(), SUCCESS)


@trial("C-8.1", "A graph as a child of itself: the process dies.", ending="dies")
def child_of_itself(t: Recorder, gpu: Gpu) -> None:
    parent = Graph(gpu)
    t.note("add", parent.child(parent))


@trial(
    "C-8.1",
    "Nodes inside keep the order in which they were inserted; the clone can be searched for those of its source.",
)
def handles_inside_clones(t: Recorder, gpu: Gpu) -> None:
    memory, types = gpu.memory(), ["KERNEL", "MEMCPY", "MEMSET", "HOST"]
    for depth in (1, 2):
        source = _one_of_each(gpu, memory, [])
        _, _, inside = _nested(source, depth, move=False)
        t.expect(f"{depth} deep: types in order", [kind_of(node) for node in inside.nodes()], types)
        found = [ask(driver.cuGraphNodeFindInClone, node, inside.raw) for node in source.nodes()]
        t.note(f"{depth} deep: find the source's nodes in it", ", ".join(dict.fromkeys(map(str, found))))


@trial("C-8.2", "A moved child belongs to its parent: it is neither instantiated, destroyed nor a child again.")
def moved_children(t: Recorder, gpu: Gpu) -> None:
    source, parent = _one_of_each(gpu, gpu.memory(), []), Graph(gpu)
    before = [int(node) for node in source.nodes()]
    node = parent.child(source, move=True)
    t.expect("move", node, SUCCESS)
    inside = child_of(node, gpu)
    t.expect("the graph inside is the one that was moved", int(inside.raw) == int(source.raw), True)
    t.expect("its nodes have the handles that they had", [int(one) for one in inside.nodes()] == before, True)
    refused = ("NOT_SUPPORTED", REFUSED)
    t.expect("instantiate it", source.instantiate(), refused)
    t.expect("a child of another graph", Graph(gpu).child(source), refused)
    t.expect("move it again", Graph(gpu).child(source, move=True), refused)
    t.expect("allocate in it", source.alloc(1 << 20), refused)
    t.expect("launch of the parent", parent.instantiate().launch(), SUCCESS)
    t.expect("update an exec from it", Graph(gpu).instantiate().update(source), (*refused, "ERROR"))


@trial("C-8.2", "A moved child is not destroyed by itself.")
def destroyed_moved_child(t: Recorder, gpu: Gpu) -> None:
    source, parent = _one_of_each(gpu, gpu.memory(), []), Graph(gpu)
    parent.child(source, move=True).must()
    t.expect("destroy it", source.destroy(), REFUSED)
    t.note("instantiate the parent afterwards", parent.instantiate())


@trial("C-8.2", "A graph with a moved child can be cloned.")
def cloned_parents(t: Recorder, gpu: Gpu) -> None:
    source, parent = _one_of_each(gpu, gpu.memory(), []), Graph(gpu)
    parent.child(source, move=True).must()
    answer = parent.clone()
    t.note("clone", answer)
    t.note("launch of the clone", Graph(gpu, answer.must()).instantiate().launch())


@trial("C-8.3", "The graph inside can be changed before the parent is instantiated, but nothing is allocated in it.")
def filled_in_place(t: Recorder, gpu: Gpu) -> None:
    memory, parent = gpu.memory(), Graph(gpu)
    inside = child_of(parent.child(Graph(gpu)), gpu)
    first = inside.kernel("append", memory, 1)
    t.expect("add a node", first, SUCCESS)
    second = inside.kernel("append", memory, 2)
    t.expect("add an edge", inside.edge(first, second), SUCCESS)
    t.expect("allocate", inside.alloc(1 << 20), ("NOT_SUPPORTED", REFUSED))
    ready = parent.instantiate()
    t.expect("launch", ready.launch(), SUCCESS)
    t.expect("what it wrote", gpu.read(memory, 3), [2, 1, 2])
    t.expect("exec update of a node that was added so", ready.set_kernel(first, "append", memory, 3), SUCCESS)
    gpu.clear(memory)
    ready.launch().must()
    t.expect("what it wrote then", gpu.read(memory, 3), [2, 3, 2])


@trial("C-8.3", "A graph with conditionals is no child, but a child can be given conditionals in place.")
def conditionals_filled_in(t: Recorder, gpu: Gpu) -> None:
    memory, parent = gpu.memory(), Graph(gpu)
    inside = child_of(parent.child(Graph(gpu)), gpu)
    for place, graph in (("the parent", parent), ("the child", inside)):
        gpu.clear(memory)
        condition = inside.conditional(graph.handle(1))
        t.expect(f"a conditional in the child, its handle made on {place}", condition, SUCCESS)
        kernel = condition.bodies[0].kernel("put", memory, 5)
        ready = parent.instantiate()
        t.expect(f"launch, handle made on {place}", ready.launch(), SUCCESS)
        t.expect(f"what its body wrote, handle made on {place}", gpu.read(memory), 5)
        t.expect(f"update of that kernel, handle made on {place}", ready.set_kernel(kernel, "put", memory, 6), SUCCESS)
        ready.destroy().must()


@trial(
    "C-8.4",
    "Nodes inside an exec's children are updated and disabled by the handles that they have inside, at any depth.",
)
def updates_inside_children(t: Recorder, gpu: Gpu) -> None:
    for move in (False, True):
        for depth in (1, 2):
            _update_inside(t, gpu, depth, move)


def _update_inside(t: Recorder, gpu: Gpu, depth: int, move: bool) -> None:
    memory, before, after = gpu.memory(), [], []  # type: ignore[var-annotated]
    gpu.fill(memory + 256, 9, 77)
    source = _one_of_each(gpu, memory, before)
    old = source.nodes()
    graph, child, inside = _nested(source, depth, move)
    name = f"{'moved' if move else 'cloned'}, {depth} deep"
    kernel, copy, fill, host = inside.nodes()
    ready = graph.instantiate()
    for kind, answer in (
        ("kernel", ready.set_kernel(kernel, "put", memory, 42)),
        ("copy", ready.set_memcpy(copy, memory + 64, memory + 260, 4)),
        ("memset", ready.set_memset(fill, memory + 128, 55)),
        ("host function", ready.set_host(host, lambda: after.append(1))),
    ):
        t.expect(f"{name}: update of a {kind}", answer, SUCCESS)
    ready.launch().must()
    seen = [*(gpu.read(memory + at) for at in (0, 64, 128)), len(before), len(after)]
    t.expect(f"{name}: what they did", seen, [42, 77, 55, 0, 1])
    if not move:
        t.expect(f"{name}: update by the source's handle", ready.set_kernel(old[0], "put", memory, 43), REFUSED)
    gpu.clear(memory)
    for kind, node in (("kernel", kernel), ("copy", copy), ("memset", fill)):
        t.expect(f"{name}: disable a {kind}", ready.enable(node, False), SUCCESS)
    ready.launch().must()
    t.expect(f"{name}: what was disabled wrote", [gpu.read(memory + at) for at in (0, 64, 128)], [0, 0, 0])
    t.expect(f"{name}: disable the child node", ready.enable(child, False), REFUSED)
    t.expect(f"{name}: a second exec", graph.instantiate().launch(), SUCCESS)
    t.expect(f"{name}: which has the old value", gpu.read(memory), 1)


@trial("C-8.4", "A child node of an exec is updated from a graph of the same shape, inserted in the same order.")
def updates_of_child_nodes(t: Recorder, gpu: Gpu) -> None:
    memory, parent = gpu.memory(), Graph(gpu)

    def build(value: int, order: str = "ab", **extra: Any) -> Graph:
        graph = Graph(gpu)
        nodes = {}
        for name in order:
            function, at = ("put", 0) if name == "a" else ("add", 64)
            nodes[name] = graph.kernel(function, memory + at, value, **extra)
        graph.edge(nodes["a"], nodes["b"]).must()
        return graph

    for move in (False, True):
        parent = Graph(gpu)
        node = parent.child(build(1), move=move)
        ready, name = parent.instantiate(), "moved" if move else "cloned"
        t.expect(f"{name}: same shape, other values", ready.set_child(node, build(2)), SUCCESS)
        ready.launch().must()
        t.expect(f"{name}: what it wrote", gpu.read(memory), 2)
        t.expect(f"{name}: other grid", ready.set_child(node, build(2, grid=3)), SUCCESS)
        failure = "GRAPH_EXEC_UPDATE_FAILURE"
        t.expect(f"{name}: inserted in another order", ready.set_child(node, build(3, "ba")), failure)
        larger = build(3)
        larger.empty().must()
        t.expect(f"{name}: a node more", ready.set_child(node, larger), failure)
        ready.launch().must()
        t.note(f"{name}: what it wrote after these", gpu.read(memory))


@trial(
    "C-8.4",
    "Parameters that a graph inside has at instantiate are the exec's; later changes of them there do not reach it.",
)
def later_changes_inside(t: Recorder, gpu: Gpu) -> None:
    memory, parent, source = gpu.memory(), Graph(gpu), Graph(gpu)
    source.kernel("put", memory, 1).must()
    inside = child_of(parent.child(source), gpu)
    (node,) = inside.nodes()
    ready = parent.instantiate()
    must(driver.cuGraphKernelNodeSetParams, handle(node), gpu.launch_params("put", memory, 2))
    ready.launch().must()
    t.expect("launch of the exec", gpu.read(memory), 1)
    parent.instantiate().launch().must()
    t.expect("launch of a new exec", gpu.read(memory), 2)
