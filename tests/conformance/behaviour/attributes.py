"""C-2: attributes of kernel nodes: cooperative, clusters, priority, memory."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver

from tests.conformance.behaviour import params
from tests.conformance.behaviour.answers import SUCCESS, Answer, ask, handle, must
from tests.conformance.behaviour.gpu import Gpu
from tests.conformance.behaviour.graph import Exec, Graph, get_attribute, set_attribute
from tests.conformance.behaviour.params import CLUSTER, COOPERATIVE, DEVICE_UPDATABLE, PREFERRED_CLUSTER, PRIORITY
from tests.conformance.behaviour.trials import Recorder, trial

REFUSED = "INVALID_VALUE"
BAD_CLUSTER = ("INVALID_CLUSTER_SIZE", REFUSED)


def shape_of(gpu: Gpu, ready: Exec, memory: int) -> str:
    """How the kernel ``shape`` was launched, in words."""
    gpu.clear(memory)
    ended = ready.launch()
    if ended.code != SUCCESS:
        return ended.code
    cluster, cooperative, grid, _ = gpu.read(memory, 4)
    return f"cluster of {cluster}, grid of {grid}" + (", cooperative" if cooperative else "")


@trial("C-2.8", "A cooperative kernel can synchronise its grid, which has to fit the device at once.")
def cooperative_kernels(t: Recorder, gpu: Gpu) -> None:
    memory, graph = gpu.memory(), Graph(gpu)
    node = graph.kernel("grid_sync", memory, grid=4, block=32)
    t.expect("attribute set", set_attribute(node, COOPERATIVE, cooperative=1), SUCCESS)
    ready = graph.instantiate()
    t.expect("launch", ready.launch(), SUCCESS)
    t.expect("what it wrote after the barrier", gpu.read(memory), 7)
    fitting = must(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor, gpu.function("grid_sync"), 1024, 0)
    most, too_large = fitting * gpu.attribute("MULTIPROCESSOR_COUNT"), "COOPERATIVE_LAUNCH_TOO_LARGE"
    for grid, wanted in ((most, SUCCESS), (most + 1, too_large)):
        blocks = "as many blocks as fit" if grid == most else "one block more than fit"
        other = Graph(gpu).kernel("grid_sync", memory, grid=grid, block=1024)
        t.expect(f"{blocks}: attribute set", set_attribute(other, COOPERATIVE, cooperative=1), wanted)
        t.note(f"{blocks}: attribute afterwards", get_attribute(other, COOPERATIVE).must().cooperative)
        t.expect(f"{blocks}: exec update", ready.set_kernel(node, "grid_sync", memory, grid=grid, block=1024), wanted)


@trial("C-2.8", "A barrier over the grid needs the attribute; without it the launch fails.")
def grid_barrier_without_attribute(t: Recorder, gpu: Gpu) -> None:
    graph = Graph(gpu)
    graph.kernel("grid_sync", gpu.memory(), grid=4, block=32).must()
    t.expect("launch", graph.instantiate().launch(), "LAUNCH_FAILED at synchronise")


@trial("C-2.8", "Under MPS, device graphs and bodies have no cooperative kernels.")
def cooperative_under_mps(t: Recorder, gpu: Gpu) -> None:
    t.cannot("it needs a machine under MPS")


@trial("C-2.9", "Cluster dimensions divide the grid; the size is limited; 0 takes the attribute back.")
def clusters(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()
    for cluster, grid, wanted in ((2, 8, SUCCESS), (8, 8, SUCCESS), (3, 8, BAD_CLUSTER), (16, 16, BAD_CLUSTER)):
        graph = Graph(gpu)
        node = graph.kernel("shape", memory, grid=grid, block=32)
        asked = f"cluster of {cluster}, grid of {grid}"
        answer = set_attribute(node, CLUSTER, clusterDim=(cluster, 1, 1))
        t.expect(f"set {asked}", answer, wanted)
        launched = asked if answer.code == SUCCESS else f"cluster of 1, grid of {grid}"
        t.expect(f"launched after {asked}", shape_of(gpu, graph.instantiate(), memory), launched)
    graph = Graph(gpu)
    node = graph.kernel("shape", memory, grid=8, block=32)
    for width in (2, 0):
        t.expect(
            f"set a cluster of {width}",
            set_attribute(node, CLUSTER, clusterDim=(width, width and 1, width and 1)),
            SUCCESS,
        )
    t.expect("launched after 2 and then 0", shape_of(gpu, graph.instantiate(), memory), "cluster of 1, grid of 8")


@trial("C-2.9", "More than 8 blocks in a cluster need the kernel's leave for sizes that are not portable.")
def large_clusters(t: Recorder, gpu: Gpu) -> None:
    memory, graph = gpu.memory(), Graph(gpu)
    allowed = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
    must(driver.cuFuncSetAttribute, gpu.function("shape"), allowed, 1)
    node = graph.kernel("shape", memory, grid=32, block=32)
    t.expect(
        "set a cluster of 16 of 32 blocks, with leave", set_attribute(node, CLUSTER, clusterDim=(16, 1, 1)), SUCCESS
    )
    t.expect("launched", shape_of(gpu, graph.instantiate(), memory), "cluster of 16, grid of 32")
    graph = Graph(gpu)
    node = graph.kernel("shape", memory, grid=32, block=32)
    answer = set_attribute(node, CLUSTER, clusterDim=(32, 1, 1))
    t.note("set a cluster of 32, with leave", answer)
    if answer.code == SUCCESS:
        t.note("instantiate with a cluster of 32", answer := graph.instantiate())
    if answer.code == SUCCESS:
        t.note("launched with a cluster of 32", shape_of(gpu, answer, memory))


@trial(
    "C-2.9",
    "Preferred cluster dimensions are a multiple of the regular ones, and divide the grid; devices before compute "
    "capability 10.0 take none.",
)
def preferred_clusters(t: Recorder, gpu: Gpu) -> None:
    memory, taken = gpu.memory(), SUCCESS if gpu.attribute("COMPUTE_CAPABILITY_MAJOR") >= 10 else REFUSED
    for regular, preferred, wanted in ((2, 4, taken), (2, 3, BAD_CLUSTER), (4, 2, BAD_CLUSTER), (0, 4, BAD_CLUSTER)):
        node = Graph(gpu).kernel("shape", memory, grid=8, block=32)
        if regular:
            set_attribute(node, CLUSTER, clusterDim=(regular, 1, 1)).must()
        answer = set_attribute(node, PREFERRED_CLUSTER, preferredClusterDim=(preferred, 1, 1))
        t.expect(f"preferred {preferred}, regular {regular or 'not set'}", answer, wanted)


@trial("C-2.9", "Where a kernel is compiled for a cluster, grid and attribute have to match it.")
def compiled_clusters(t: Recorder, gpu: Gpu) -> None:
    memory, graph = gpu.memory(), Graph(gpu)
    node = graph.kernel("shape_of_pairs", memory, grid=8)
    t.expect("compiled for 2, grid of 8", node, SUCCESS)
    t.expect("launched", shape_of(gpu, graph.instantiate(), memory), "cluster of 2, grid of 8")
    t.expect("compiled for 2, grid of 7", Graph(gpu).kernel("shape_of_pairs", memory, grid=7), BAD_CLUSTER)
    t.expect("attribute of 2", set_attribute(node, CLUSTER, clusterDim=(2, 1, 1)), SUCCESS)
    t.expect("attribute of 4", set_attribute(node, CLUSTER, clusterDim=(4, 1, 1)), BAD_CLUSTER)


def valid_attributes_of(gpu: Gpu) -> list[tuple[str, int, dict[str, Any]]]:
    """What a kernel node takes: name, number and fields for `set_attribute`."""
    spread = driver.CUclusterSchedulingPolicy.CU_CLUSTER_SCHEDULING_POLICY_SPREAD
    remote = driver.CUlaunchMemSyncDomain.CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE
    return [
        ("access-policy window", params.WINDOW, {"accessPolicyWindow": params.window(gpu.memory())}),
        ("cooperative", COOPERATIVE, {"cooperative": 1}),
        ("cluster", CLUSTER, {"clusterDim": (2, 1, 1)}),
        ("cluster scheduling", params.SCHEDULING, {"clusterSchedulingPolicyPreference": spread}),
        ("priority", PRIORITY, {"priority": -1}),
        ("memory domain map", params.DOMAIN_MAP, {"memSyncDomainMap": {"default_": 1, "remote": 0}}),
        ("memory domain", params.DOMAIN, {"memSyncDomain": remote}),
        ("device-updatable", DEVICE_UPDATABLE, {"deviceUpdatableKernelNode": {"deviceUpdatable": 1}}),
    ]


def _invalid_attributes(gpu: Gpu) -> list[tuple[str, int, dict[str, Any]]]:
    event = {"event": gpu.new_event()}
    return [
        (
            "synchronisation policy",
            params.SYNC_POLICY,
            {"syncPolicy": driver.CUsynchronizationPolicy.CU_SYNC_POLICY_SPIN},
        ),
        (
            "programmatic stream serialisation",
            params.STREAM_SERIALIZATION,
            {"programmaticStreamSerializationAllowed": 1},
        ),
        ("programmatic event", params.PROGRAMMATIC_EVENT, {"programmaticEvent": event}),
        ("launch-completion event", params.COMPLETION_EVENT, {"launchCompletionEvent": event}),
        ("shared-memory carve-out", params.CARVEOUT, {"sharedMemCarveout": 50}),
    ]


@trial(
    "C-2.10",
    "Kernel nodes take the attributes of a launch that make sense in a graph: set, read, instantiated, launched.",
)
def valid_attributes(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()
    for name, number, fields in valid_attributes_of(gpu):
        graph = Graph(gpu)
        node = graph.kernel("shape", memory, grid=8, block=32)
        t.expect(f"{name}: set", set_attribute(node, number, **fields), SUCCESS)
        t.expect(f"{name}: read", get_attribute(node, number), SUCCESS)
        t.expect(f"{name}: instantiate and launch", graph.instantiate().launch(), SUCCESS)


@trial(
    "C-2.10",
    "Attributes for streams and for programmatic launches in streams, and the shared-memory carve-out, are refused.",
)
def invalid_attributes(t: Recorder, gpu: Gpu) -> None:
    for name, number, fields in _invalid_attributes(gpu):
        node = Graph(gpu).kernel("shape", gpu.memory(), grid=8, block=32)
        t.expect(f"{name}: set", set_attribute(node, number, **fields), (REFUSED, "NOT_SUPPORTED"))
        t.note(f"{name}: read", get_attribute(node, number))


@trial("C-2.11", "Attributes are copied between nodes of one context, but not with device-updatable nodes.")
def copied_attributes(t: Recorder, gpu: Gpu) -> None:
    memory, graph = gpu.memory(), Graph(gpu)
    source, target = (graph.kernel("shape", memory, grid=8, block=32) for _ in range(2))
    set_attribute(source, CLUSTER, clusterDim=(4, 1, 1)).must()

    def copy() -> Answer:
        return ask(driver.cuGraphKernelNodeCopyAttributes, handle(target), handle(source))

    t.expect("copy", copy(), SUCCESS)
    t.expect("cluster of the target", get_attribute(target, CLUSTER).must().clusterDim.x, 4)
    narrow = graph.kernel("shape", memory, grid=6, block=32)
    answer = ask(driver.cuGraphKernelNodeCopyAttributes, handle(narrow), handle(source))
    t.note("copy of a cluster that does not divide the target's grid", answer)
    set_attribute(source, DEVICE_UPDATABLE, deviceUpdatableKernelNode={"deviceUpdatable": 1}).must()
    t.expect("copy from a device-updatable node", copy(), (REFUSED, "NOT_SUPPORTED"))


@trial("C-2.12", "Only kernel nodes have attributes.")
def attributes_of_others(t: Recorder, gpu: Gpu) -> None:
    graph = Graph(gpu)
    for name, node in (("a memset", graph.memset(gpu.memory(), 1)), ("an empty", graph.empty())):
        t.expect(f"priority of {name} node", set_attribute(node, PRIORITY, priority=-1), (REFUSED, "INVALID_HANDLE"))


@trial(
    "C-2.12",
    "Priorities act only in execs instantiated with USE_NODE_PRIORITY; values out of range are clamped.",
    alone=True,
)
def priorities(t: Recorder, gpu: Gpu) -> None:
    _, highest = must(driver.cuCtxGetStreamPriorityRange)
    for name, flags in (
        ("with", int(driver.CUgraphInstantiate_flags.CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)),
        ("without", 0),
    ):
        graph, times = Graph(gpu), gpu.memory()
        blocks = 64 * gpu.attribute("MULTIPROCESSOR_COUNT")
        root = graph.kernel("busy", times + 256, 200_000)
        nodes = [
            graph.kernel("crowd", times + 64 * part, 20_000, grid=blocks, block=256, after=[root]) for part in range(2)
        ]
        set_attribute(nodes[1], PRIORITY, priority=highest).must()
        ready = graph.instantiate(flags)
        for _ in range(2):
            for part in range(2):
                must(driver.cuMemsetD8, times + 64 * part, 0x7F, 8)
                must(driver.cuMemsetD8, times + 64 * part + 8, 0, 8)
            ready.launch().must()
        low, high = (gpu.times(times + 64 * part, 2) for part in range(2))
        t.note(f"{name} the flag: the last block of high priority begins before that of normal", high[1] < low[1])
        t.note(f"{name} the flag: the two kernels overlap", max(low[0], high[0]) < min(low[1], high[1]))
    for value in (-100, 100):
        graph = Graph(gpu)
        node = graph.kernel("put", times, 1)
        t.expect(f"priority {value}: set", set_attribute(node, PRIORITY, priority=value), SUCCESS)
        t.note(f"priority {value}: read", get_attribute(node, PRIORITY).must().priority)
        t.expect(f"priority {value}: launch", graph.instantiate(flags).launch(), SUCCESS)


@trial("C-2.13", "Arrays that `cuGraphKernelNodeGetParams` gives belong to the node.")
def params_of_nodes(t: Recorder, gpu: Gpu) -> None:
    memory, graph = gpu.memory(), Graph(gpu)
    made = gpu.launch_params("put", memory, 5)
    node = graph.kernel_with(made)
    first, second = (must(driver.cuGraphKernelNodeGetParams, handle(node)) for _ in range(2))
    t.expect("the array is the one that was passed", int(first.kernelParams) == int(made.kernelParams), False)
    t.expect("two queries give the same array", int(first.kernelParams) == int(second.kernelParams), True)
    t.note("func, as it was added", int(first.func) == int(made.func))
    t.note("kern, where only func was given", "NULL" if not int(first.kern) else "set")


@trial(
    "C-2.14",
    "An access-policy window has a longest size, its misses normal or streaming, its ratio in 0 to 1.",
)
def access_windows(t: Recorder, gpu: Gpu) -> None:
    memory, most = gpu.memory(), gpu.attribute("MAX_ACCESS_POLICY_WINDOW_SIZE")
    node = Graph(gpu).kernel("put", memory, 1)
    for name, fields, wanted in (
        ("1 KiB, misses streaming", {}, SUCCESS),
        ("misses normal", {"miss": "NORMAL"}, SUCCESS),
        ("misses persisting", {"miss": "PERSISTING"}, REFUSED),
        ("of the largest size, over less memory", {"nbytes": most}, SUCCESS),
        ("one byte larger", {"nbytes": most + 1}, REFUSED),
        ("ratio 1", {"ratio": 1.0}, SUCCESS),
        ("ratio 1.5", {"ratio": 1.5}, REFUSED),
        ("ratio -0.5", {"ratio": -0.5}, REFUSED),
    ):
        answer = set_attribute(node, params.WINDOW, accessPolicyWindow=params.window(memory, **fields))
        t.expect(name, answer, wanted)
