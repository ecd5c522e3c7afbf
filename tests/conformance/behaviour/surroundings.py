"""C-14: what graphs stand on: memory, modules, streams, events, and a context in error."""

from __future__ import annotations

import ctypes

from cuda.bindings import driver

from tests.conformance.behaviour.answers import SUCCESS, ask, must
from tests.conformance.behaviour.gpu import Gpu
from tests.conformance.behaviour.graph import Graph
from tests.conformance.behaviour.trials import Recorder, trial

REFUSED = "INVALID_VALUE"


@trial("C-14.1", "Memory: sizes of 0, too large ones, and addresses that are not to be freed.")
def allocations_and_frees(t: Recorder, gpu: Gpu) -> None:
    memory, pinned = gpu.memory(), gpu.pinned()
    t.expect("cuMemAlloc of 0 bytes", ask(driver.cuMemAlloc, 0), REFUSED)
    nothing = ask(driver.cuMemHostAlloc, 0, 0)
    t.expect("cuMemHostAlloc of 0 bytes", nothing, SUCCESS)
    t.note("its address", "NULL" if not nothing.value else "not NULL")
    t.expect("cuMemAlloc of 2**50 bytes", ask(driver.cuMemAlloc, 1 << 50), "OUT_OF_MEMORY")
    t.expect("cuMemHostAlloc of 2**50 bytes", ask(driver.cuMemHostAlloc, 1 << 50, 0), "OUT_OF_MEMORY")
    for name, address, wanted in (
        ("NULL", 0, SUCCESS),
        ("an inner address", memory + 16, REFUSED),
        ("pinned memory", pinned, REFUSED),
        ("its address", memory, SUCCESS),
        ("it again", memory, REFUSED),
    ):
        t.expect(f"cuMemFree of {name}", ask(driver.cuMemFree, address), wanted)
    for name, address, wanted in (
        ("pageable memory", gpu.pageable(), REFUSED),
        ("device memory", gpu.memory(), REFUSED),
        ("an inner address", pinned + 16, REFUSED),
        ("its address", pinned, SUCCESS),
        ("it again", pinned, REFUSED),
    ):
        t.expect(f"cuMemFreeHost of {name}", ask(driver.cuMemFreeHost, address), wanted)


@trial("C-14.1", "Copies outside graphs: of nothing, and beyond what is allocated.")
def copies_outside_graphs(t: Recorder, gpu: Gpu) -> None:
    memory, released, host = gpu.memory(), gpu.memory(1 << 20), gpu.pageable(8192)
    must(driver.cuMemFree, released)
    for name, target, nbytes, wanted in (
        ("0 bytes", memory, 0, SUCCESS),
        ("NULL", 0, 16, REFUSED),
        ("released memory", released, 16, REFUSED),
    ):
        t.expect(f"cuMemcpyHtoDAsync, {name}", ask(driver.cuMemcpyHtoDAsync, target, host, nbytes, gpu.stream), wanted)
    large = gpu.memory(1 << 20)
    answer = ask(driver.cuMemcpyHtoDAsync, large + (1 << 20) - 16, host, 8192, gpu.stream)
    t.note("cuMemcpyHtoDAsync, beyond the allocation", answer)


@trial("C-14.2", "Modules: what is loaded is looked at late; nodes need the module until the launch is over.")
def modules(t: Recorder, gpu: Gpu) -> None:
    garbage = b"no cubin at all" * 64
    t.note("cuLibraryLoadData of garbage", ask(driver.cuLibraryLoadData, garbage, None, None, 0, None, None, 0))
    memory, graph = gpu.memory(), Graph(gpu)
    params = gpu.launch_params("put", memory, 1)
    graph.kernel_with(params).must()
    ready = graph.instantiate()
    ready.launch().must()
    must(driver.cuLibraryUnload, gpu.library())
    t.note("launch after cuLibraryUnload", ready.launch())
    t.note("add a kernel of the unloaded library", graph.kernel_with(params))


@trial("C-14.2", "A library unloaded twice: the process dies.", ending="dies")
def library_unloaded_twice(t: Recorder, gpu: Gpu) -> None:
    library = gpu.library()
    must(driver.cuLibraryUnload, library)
    t.note("again", ask(driver.cuLibraryUnload, library))


@trial("C-14.3", "An event that was never recorded counts as passed.")
def events_never_recorded(t: Recorder, gpu: Gpu) -> None:
    event = gpu.new_event()
    t.expect("query", ask(driver.cuEventQuery, event), SUCCESS)
    t.expect("synchronise", ask(driver.cuEventSynchronize, event), SUCCESS)


@trial("C-14.3", "A stream that is destroyed twice: nothing is promised.", ending="any")
def stream_destroyed_twice(t: Recorder, gpu: Gpu) -> None:
    stream = gpu.new_stream()
    must(driver.cuStreamDestroy, stream)
    t.note("cuStreamDestroy again", ask(driver.cuStreamDestroy, stream))


@trial("C-14.3", "An event that is destroyed twice: nothing is promised.", ending="any")
def event_destroyed_twice(t: Recorder, gpu: Gpu) -> None:
    event = gpu.new_event()
    must(driver.cuEventDestroy, event)
    t.note("cuEventDestroy again", ask(driver.cuEventDestroy, event))


@trial("C-14.3", "A stream that never was: the process dies.", ending="dies")
def garbage_streams(t: Recorder, gpu: Gpu) -> None:
    garbage = ctypes.create_string_buffer(b"\xa5" * 4096)
    t.note("cuStreamSynchronize", ask(driver.cuStreamSynchronize, ctypes.addressof(garbage)))


@trial(
    "C-14.4",
    "A kernel's illegal address is reported at synchronise, and by every call after it that needs the context.",
)
def illegal_addresses(t: Recorder, gpu: Gpu) -> None:
    memory, graph, event = gpu.memory(), Graph(gpu), gpu.new_event()
    node, params, kernel = graph.kernel("fault"), gpu.launch_params("nothing"), gpu.kernel("put")
    ready, other = graph.instantiate(), Graph(gpu)
    broken = "ILLEGAL_ADDRESS"
    t.expect("launch", ready.start(), SUCCESS)
    t.expect("synchronise", gpu.synchronise(), broken)
    for name, answer in (
        ("synchronise again", gpu.synchronise()),
        ("launch again", ready.start()),
        ("cuMemAlloc", ask(driver.cuMemAlloc, 16)),
        ("cuMemFree", ask(driver.cuMemFree, memory)),
        ("cuEventCreate", ask(driver.cuEventCreate, 0)),
        ("cuEventQuery", ask(driver.cuEventQuery, event)),
        ("add a kernel node", other.kernel_with(params)),
        ("cuKernelGetFunction", ask(driver.cuKernelGetFunction, kernel)),
    ):
        t.expect(name, answer, broken)
    t.note("add an empty node", other.empty())
    t.note("update of the exec", ready.set_kernel_with(node, params))
    t.note("instantiate", other.instantiate())
    t.expect("destroy the exec", ready.destroy(), SUCCESS)
    t.expect("destroy the graph", graph.destroy(), SUCCESS)


@trial("C-14.4", "Memory that was freed after instantiate: its use fails at synchronise.")
def memory_freed_after_instantiate(t: Recorder, gpu: Gpu) -> None:
    memory, graph = gpu.memory(1 << 26), Graph(gpu)
    graph.memset(memory, 1, 1 << 20).must()
    ready = graph.instantiate()
    ready.must()
    must(driver.cuMemFree, memory)
    t.expect(
        "launch of a memset of it", ready.launch(), ("LAUNCH_FAILED at synchronise", "ILLEGAL_ADDRESS at synchronise")
    )


@trial("C-14.5", "What this device can do.")
def device_attributes(t: Recorder, gpu: Gpu) -> None:
    for name in (
        "COOPERATIVE_LAUNCH",
        "CLUSTER_LAUNCH",
        "UNIFIED_ADDRESSING",
        "CONCURRENT_MANAGED_ACCESS",
        "PAGEABLE_MEMORY_ACCESS",
        "CAN_USE_64_BIT_STREAM_MEM_OPS",
        "CAN_USE_STREAM_WAIT_VALUE_NOR",
        "CAN_FLUSH_REMOTE_WRITES",
        "MEM_SYNC_DOMAIN_COUNT",
        "MAX_PITCH",
        "MAX_PERSISTING_L2_CACHE_SIZE",
        "MAX_ACCESS_POLICY_WINDOW_SIZE",
        "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
        "MULTIPROCESSOR_COUNT",
    ):
        t.note(name, gpu.attribute(name))
    lowest, highest = must(driver.cuCtxGetStreamPriorityRange)
    t.note("priorities, lowest and highest", f"{lowest} and {highest}")
