"""C-7: conditional nodes and their bodies."""

from __future__ import annotations

from collections.abc import Callable

from cuda.bindings import driver

from tests.conformance.behaviour import params
from tests.conformance.behaviour.answers import SUCCESS, Answer, ask, must
from tests.conformance.behaviour.gpu import U32, U64, Gpu
from tests.conformance.behaviour.graph import IF, SWITCH, WHILE, Graph, child_of, set_attribute
from tests.conformance.behaviour.params import COOPERATIVE
from tests.conformance.behaviour.trials import Recorder, trial

REFUSED = "INVALID_VALUE"
_KINDS = {IF: "if", WHILE: "while", SWITCH: "switch"}


def with_body(gpu: Gpu, kind: int = IF, size: int = 1, default: int = 1) -> tuple[Graph, U64, Answer, list[Graph]]:
    """A graph of one conditional: graph, handle, node and bodies."""
    graph = Graph(gpu)
    condition = graph.handle(default)
    node = graph.conditional(condition, kind, size)
    node.must()
    return graph, U64(int(condition)), node, node.bodies


@trial("C-7.1", "A handle is made for a graph and a context, with flags 0 or ASSIGN_DEFAULT.")
def handles(t: Recorder, gpu: Gpu) -> None:
    for flags, wanted in ((0, SUCCESS), (1, SUCCESS), (2, REFUSED), (3, REFUSED)):
        answer = ask(driver.cuGraphConditionalHandleCreate, Graph(gpu).raw, gpu.context, 1, flags)
        t.expect(f"flags {flags}", answer, wanted)
    t.note("context NULL", ask(driver.cuGraphConditionalHandleCreate, Graph(gpu).raw, 0, 1, 0))


@trial(
    "C-7.1",
    "A handle belongs to one conditional node, in its graph or a body; one that is not used cannot be instantiated.",
)
def uses_of_handles(t: Recorder, gpu: Gpu) -> None:
    graph = Graph(gpu)
    graph.handle()
    t.expect("unused: instantiate", graph.instantiate(), f"{REFUSED}, CONDITIONAL_HANDLE_UNUSED")
    graph = Graph(gpu)
    condition = graph.handle()
    node = graph.conditional(condition)
    t.expect("first node", node, SUCCESS)
    t.expect("second node", graph.conditional(condition), REFUSED)
    t.expect("a node of its own body", node.bodies[0].conditional(condition), REFUSED)
    inner = graph.handle()
    t.expect("another handle of the graph, in the body", node.bodies[0].conditional(inner), SUCCESS)
    t.note("a handle made on the body graph", (made := node.bodies[0].conditional(node.bodies[0].handle())))
    t.expect("instantiate all that", graph.instantiate() if made.code == SUCCESS else made, SUCCESS)
    t.expect("a handle of another graph", Graph(gpu).conditional(Graph(gpu).handle()), REFUSED)
    for wrong in (0, 12345):
        t.expect(f"handle {wrong}", Graph(gpu).conditional(wrong), REFUSED)


@trial(
    "C-7.2",
    "With ASSIGN_DEFAULT each launch begins with the default; else the value is undefined until a kernel sets it.",
)
def default_values(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()
    for assign, default in ((True, 1), (True, 0), (False, 1)):
        graph = Graph(gpu)
        node = graph.conditional(graph.handle(default, assign=assign))
        node.bodies[0].kernel("add", memory, 1).must()
        gpu.clear(memory)
        ready = graph.instantiate()
        for _ in range(2):
            ready.launch().must()
        name = f"default {default}{'' if assign else ' not assigned'}: bodies run in two launches"
        if assign:
            t.expect(name, gpu.read(memory), 2 * default)
        else:
            t.note(name, gpu.read(memory))


@trial("C-7.2", "A kernel before the node sets the value; an update of its arguments changes the choice.")
def setters(t: Recorder, gpu: Gpu) -> None:
    memory, graph = gpu.memory(), Graph(gpu)
    condition = graph.handle(0)
    setter = graph.kernel("set_condition", U64(int(condition)), U32(1))
    graph.conditional(condition, after=[setter]).bodies[0].kernel("add", memory, 1).must()
    ready = graph.instantiate()
    t.expect("launch, set to 1", ready.launch(), SUCCESS)
    t.expect("bodies run", gpu.read(memory), 1)
    ready.set_kernel(setter, "set_condition", U64(int(condition)), U32(0)).must()
    t.expect("launch, set to 0", ready.launch(), SUCCESS)
    t.expect("bodies run in all", gpu.read(memory), 1)


@trial("C-7.3", "An `if` has 1 or 2 bodies, a `while` 1, a `switch` at least 1.")
def body_counts(t: Recorder, gpu: Gpu) -> None:
    for kind, allowed in ((IF, (1, 2)), (WHILE, (1,)), (SWITCH, (1, 2, 5))):
        for size in (0, 1, 2, 3) if kind != SWITCH else (0, 1, 2, 5):
            graph = Graph(gpu)
            node = graph.conditional(graph.handle(0), kind, size)
            wanted = SUCCESS if size in allowed else REFUSED
            t.expect(f"{_KINDS[kind]} with {size}", node, wanted)
            if node.code == SUCCESS:
                t.expect(f"{_KINDS[kind]} with {size}: launch, bodies empty", graph.instantiate().launch(), SUCCESS)


@trial(
    "C-7.3",
    "The value chooses the body: `if` by 0 or not, `switch` by number and none beyond the last, `while` until 0.",
)
def choices(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()
    for kind, size, value, wanted in (
        (IF, 1, 0, 0),
        (IF, 1, 7, 10),
        (IF, 2, 1, 10),
        (IF, 2, 0, 11),
        (SWITCH, 3, 0, 10),
        (SWITCH, 3, 2, 12),
        (SWITCH, 3, 3, 0),
    ):
        graph, _, _, bodies = with_body(gpu, kind, size, value)
        for index, body in enumerate(bodies):
            body.kernel("put", memory, 10 + index).must()
        gpu.clear(memory)
        graph.instantiate().launch().must()
        t.expect(f"{_KINDS[kind]} of {size}, value {value}: written", gpu.read(memory), wanted)
    graph, condition, _, (body,) = with_body(gpu, WHILE)
    turn = body.kernel("add", memory + 64, 1)
    body.kernel("count_down", condition, memory, after=[turn]).must()
    ready = graph.instantiate()
    for turns in (5, 3):
        gpu.clear(memory)
        gpu.fill(memory, turns)
        ready.launch().must()
        t.expect(f"while counting down from {turns}: turns", gpu.read(memory + 64), turns)


@trial("C-7.4", "Node, handle and all kernels of the bodies are of one context.")
def contexts_of_conditionals(t: Recorder, gpu: Gpu) -> None:
    other = must(driver.cuCtxCreate, None, 0, gpu.device)
    must(driver.cuCtxSetCurrent, gpu.context)
    graph = Graph(gpu)
    made = params.conditional(gpu, graph.handle(1), IF, 1)
    made.conditional.ctx = other
    t.expect("node of another context than its handle", graph.generic(made), (REFUSED, "INVALID_CONTEXT"))
    graph, _, _, (body,) = with_body(gpu)
    launch = gpu.launch_params("put", gpu.memory(), 1)
    launch.func, launch.kern, launch.ctx = 0, gpu.kernel("put"), other
    added = body.kernel_with(launch)
    t.expect("a body's kernel of another context", added if added.code != SUCCESS else graph.instantiate(), REFUSED)


@trial(
    "C-7.5",
    "Bodies hold kernel, memset, memcpy, empty, child and conditional nodes; others are refused at instantiate.",
)
def nodes_of_bodies(t: Recorder, gpu: Gpu) -> None:
    memory, event = gpu.memory(), gpu.new_event()

    def nested(body: Graph) -> Answer:
        return body.conditional(body.handle())

    def kernels(*, host: bool = False) -> Graph:
        graph = Graph(gpu)
        (graph.host(lambda: None) if host else graph.kernel("put", memory, 1)).must()
        return graph

    refused = f"{REFUSED}, NODE_OPERATION_NOT_SUPPORTED"
    cases: tuple[tuple[str, Callable[[Graph], Answer], str], ...] = (
        ("kernel", lambda body: body.kernel("put", memory, 1), SUCCESS),
        ("memset", lambda body: body.memset(memory, 1), SUCCESS),
        ("memcpy", lambda body: body.memcpy(memory, memory + 64, 4), SUCCESS),
        ("2-D memcpy", lambda body: body.memcpy(memory, memory + 2048, 4, 3, srcPitch=64, dstPitch=64), SUCCESS),
        ("empty", lambda body: body.empty(), SUCCESS),
        ("child", lambda body: body.child(kernels()), SUCCESS),
        ("moved child", lambda body: body.child(kernels(), move=True), SUCCESS),
        ("conditional", nested, SUCCESS),
        ("host", lambda body: body.host(lambda: None), refused),
        ("event record", lambda body: body.record(event), refused),
        ("event wait", lambda body: body.wait(event), refused),
        ("allocation", lambda body: body.alloc(1 << 20), refused),
        ("batch", lambda body: body.batch(("write", memory, 1)), refused),
        ("child with a host node", lambda body: body.child(kernels(host=True)), refused),
    )
    for name, add, wanted in cases:
        graph, _, _, (body,) = with_body(gpu)
        t.expect(f"{name}: add", add(body), SUCCESS)
        ready = graph.instantiate()
        t.expect(f"{name}: instantiate", ready, wanted)
        if ready.code == SUCCESS:
            t.expect(f"{name}: launch", ready.launch(), SUCCESS)


@trial("C-7.6", "Copies and memsets of bodies work on device memory or on pinned memory that the device sees.")
def memory_of_bodies(t: Recorder, gpu: Gpu) -> None:
    memory, pinned, pageable = gpu.memory(), gpu.pinned(), gpu.pageable()
    unmapped = gpu.pinned(flags=0)
    cases: tuple[tuple[str, Callable[[Graph], Answer], str], ...] = (
        ("from pinned", lambda body: body.memcpy(memory, pinned, 4, of="HOST"), SUCCESS),
        ("to pinned", lambda body: body.memcpy(pinned, memory, 4, to="HOST"), SUCCESS),
        ("from pinned without DEVICEMAP", lambda body: body.memcpy(memory, unmapped, 4, of="HOST"), SUCCESS),
        ("memset of pinned", lambda body: body.memset(pinned, 4), SUCCESS),
        ("from pageable", lambda body: body.memcpy(memory, pageable, 4, of="HOST"), REFUSED),
        ("from pageable, as UNIFIED", lambda body: body.memcpy(memory, pageable, 4, of="UNIFIED"), REFUSED),
    )
    for name, add, wanted in cases:
        graph, _, _, (body,) = with_body(gpu)
        t.expect(f"{name}: add", add(body), SUCCESS)
        ready = graph.instantiate()
        t.expect(f"{name}: instantiate and launch", ready if ready.code != SUCCESS else ready.launch(), wanted)


@trial("C-7.7", "Kernels of bodies may be cooperative, but launch no kernels or graphs themselves.")
def kernels_of_bodies(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()
    graph, _, _, (body,) = with_body(gpu)
    node = body.kernel("grid_sync", memory, grid=4, block=32)
    t.expect("cooperative: attribute set", set_attribute(node, COOPERATIVE, cooperative=1), SUCCESS)
    t.expect("cooperative: launch", graph.instantiate().launch(), SUCCESS)
    t.expect("cooperative: what it wrote after its barrier", gpu.read(memory), 7)
    for name, kernel, arguments in (
        ("launches a kernel", "launch_kernel", (memory, 1)),
        ("launches graphs", "launch_graphs", (memory + 64, memory, 1, 0)),
    ):
        graph, _, _, (body,) = with_body(gpu)
        body.kernel(kernel, *arguments, library="launching").must()
        ready = graph.instantiate()
        t.expect(f"{name}: instantiate", ready, REFUSED)
        if ready.code == SUCCESS:
            t.note(f"{name}: launch, of a graph NULL", ready.launch())
            t.note(f"{name}: launches that the device accepted, and its code", gpu.read(memory + 64, 2))


@trial("C-7.8", "A graph with conditionals is not cloned, is no child, and has one exec at a time.")
def graphs_with_conditionals(t: Recorder, gpu: Gpu) -> None:
    graph, _, _, (body,) = with_body(gpu)
    body.kernel("put", gpu.memory(), 1).must()
    refused = "NOT_SUPPORTED"
    t.expect("clone", graph.clone(), refused)
    t.expect("a cloned child", Graph(gpu).child(graph), refused)
    t.expect("a moved child", Graph(gpu).child(graph, move=True), refused)
    first = graph.instantiate()
    t.expect("first exec", first, SUCCESS)
    t.expect("second exec", graph.instantiate(), refused)
    first.destroy().must()
    t.expect("an exec after the first was destroyed", graph.instantiate(), SUCCESS)


@trial("C-7.9", "An exec keeps its conditional nodes; nodes of bodies are updated like others, at any depth.")
def updates_of_bodies(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()
    gpu.fill(memory + 256, 9, 77)
    graph, condition, node, (body,) = with_body(gpu)
    kernel, copy = body.kernel("put", memory, 1), body.memcpy(memory + 64, memory + 256, 4)
    fill = body.memset(memory + 128, 5)
    inner = Graph(gpu)
    inner.kernel("put", memory + 192, 2).must()
    child = body.child(inner)
    nested = body.conditional(graph.handle(1)).bodies[0].kernel("put", memory + 196, 3)
    ready = graph.instantiate()
    ready.launch().must()
    t.expect(
        "the conditional's own parameters",
        ready.set_generic(node, params.conditional(gpu, condition.value, IF, 1)),
        "NOT_SUPPORTED",
    )
    t.expect("disable the conditional", ready.enable(node, False), REFUSED)
    deep = child_of(child, gpu).nodes()[0]
    for name, answer in (
        ("kernel", ready.set_kernel(kernel, "put", memory, 42)),
        ("copy", ready.set_memcpy(copy, memory + 64, memory + 260, 4)),
        ("memset", ready.set_memset(fill, memory + 128, 55)),
        ("kernel in a child in the body", ready.set_kernel(deep, "put", memory + 192, 21)),
        ("kernel in a body in the body", ready.set_kernel(nested, "put", memory + 196, 31)),
    ):
        t.expect(f"update of a {name}", answer, SUCCESS)
    ready.launch().must()
    seen = [gpu.read(memory + at) for at in (0, 64, 128, 192, 196)]
    t.expect("what they wrote then", seen, [42, 77, 55, 21, 31])
    gpu.clear(memory)
    for name, one in (("kernel", kernel), ("copy", copy), ("memset", fill)):
        t.expect(f"disable a {name} of the body", ready.enable(one, False), SUCCESS)
    ready.launch().must()
    t.expect("what these wrote then", [gpu.read(memory + at) for at in (0, 64, 128)], [0, 0, 0])


@trial(
    "C-7.9",
    "A whole update takes over the handle's default, and wants equal nodes with handles made in the same order.",
)
def whole_updates_of_conditionals(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()

    def build(kind: int = IF, size: int = 1, default: int = 1, value: int = 1, more: bool = False) -> Graph:
        graph, condition, _, bodies = with_body(gpu, kind, size, default)
        bodies[0].kernel("put", memory, value).must()
        if kind == WHILE:
            bodies[0].kernel("set_condition", condition, U32(0)).must()
        if more:
            bodies[0].kernel("put", memory, value).must()
        return graph

    ready = build(default=0).instantiate()
    ready.launch().must()
    t.expect("default 0: written", gpu.read(memory), 0)
    t.expect("to default 1 and another value", ready.update(build(value=22)), SUCCESS)
    ready.launch().must()
    t.expect("written then", gpu.read(memory), 22)
    t.expect("to a while", ready.update(build(kind=WHILE)), ("NOT_SUPPORTED", "PARAMETERS_CHANGED"))
    t.expect("to an if with else", ready.update(build(size=2)), ("NOT_SUPPORTED", "PARAMETERS_CHANGED"))
    t.expect("to a body with a node more", ready.update(build(more=True)), "TOPOLOGY_CHANGED")

    def two(swapped: bool) -> Graph:
        graph = Graph(gpu)
        conditions = [graph.handle(0), graph.handle(1)]
        for index, condition in enumerate(reversed(conditions) if swapped else conditions):
            graph.conditional(condition).bodies[0].kernel("put", memory + 64 * index, 5).must()
        return graph

    answer = two(False).instantiate().update(two(True))
    t.expect(
        "to handles given to the nodes in the other order", answer, ("PARAMETERS_CHANGED", "NOT_SUPPORTED", "ERROR")
    )


@trial("C-7.10", "The value is set in the handle's context; two setters at once are undefined.")
def racing_setters(t: Recorder, gpu: Gpu) -> None:
    t.cannot("what two setters at once do is undefined, so no answer would tell anything")


@trial("C-7.11", "A `while` whose body never sets the value does not end.")
def endless_loops(t: Recorder, gpu: Gpu) -> None:
    t.cannot("the loop would hold the GPU for ever")
