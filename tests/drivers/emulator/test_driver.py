"""The emulated device as a whole: the seam, faults and their report, streams and events, what tests can ask of it."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from numba import cuda, types

from graphdsl.compile.image import ArrayValue
from graphdsl.drivers.base import Driver
from graphdsl.drivers.emulator import Emulator
from graphdsl.drivers.results import InstantiateError
from graphdsl.errors import DeclarationError, DriverError, MemoryFault
from tests.drivers.emulator.conftest import Bench, Fresh, image_of


def test_it_is_a_driver() -> None:
    device = Emulator(target="sm_80")
    assert isinstance(device, Driver)
    assert device.emulated
    assert device.name == device.limits.name == "emulator (sm_80)"
    assert (device.limits.compute_capability, device.limits.shared_optin_bytes) == ((8, 0), 163 * 1024)
    assert device.context
    with pytest.raises(DeclarationError):
        Emulator(target="sm_1")


def faulty(bench: Bench) -> tuple[int, int]:
    """An exec whose second of three nodes reads what was never written; and the handle of that node."""
    device = bench.device
    source, destination = device.mem_alloc(16), bench.upload(np.zeros(16, np.uint8))
    after = bench.upload(np.zeros(16, np.uint8))
    graph, nodes = bench.chain(
        (device.graph_add_memset_node, bench.memset(destination, 1, 4)),
        (device.graph_add_memcpy_node, bench.memcpy(destination, source, 16)),
        (device.graph_add_memset_node, bench.memset(after, 1, 4)),
    )
    bench.kept.append(after)
    return device.graph_instantiate_with_params(graph), nodes[1]


def test_a_fault_ends_the_launch_and_is_reported_once(bench: Bench) -> None:
    device = bench.device
    graph_exec, node = faulty(bench)
    device.graph_launch(graph_exec, bench.stream)
    with pytest.raises(MemoryFault) as caught:
        device.stream_synchronize(bench.stream)
    assert (caught.value.call, caught.value.node_handle) == ("cuStreamSynchronize", node)
    device.stream_synchronize(bench.stream)
    assert bench.download(bench.kept[-1], 4, np.int32).tolist() == [0] * 4


@pytest.mark.parametrize(
    "call",
    [
        *("stream_synchronize", "event_synchronize", "event_query", "launch", "upload"),
        *("memcpy_htod", "memcpy_dtoh", "memcpy_3d"),
    ],
)
def test_calls_that_report_a_fault(bench: Bench, call: str) -> None:
    device = bench.device
    graph_exec, node = faulty(bench)
    event, host = device.event_create(), np.zeros(16, np.uint8)
    device.event_record(event, bench.stream)
    calls: dict[str, Any] = {
        "stream_synchronize": lambda: device.stream_synchronize(bench.stream),
        "event_synchronize": lambda: device.event_synchronize(event),
        "event_query": lambda: device.event_query(event),
        "launch": lambda: device.graph_launch(graph_exec, bench.stream),
        "upload": lambda: device.graph_upload(graph_exec, bench.stream),
        "memcpy_htod": lambda: device.memcpy_htod(bench.kept[-1], host, bench.stream),
        "memcpy_dtoh": lambda: device.memcpy_dtoh(host, bench.kept[-1], bench.stream),
        "memcpy_3d": lambda: device.memcpy_3d(0, bench.stream),
    }
    device.graph_launch(graph_exec, bench.stream)
    with pytest.raises(MemoryFault) as caught:
        calls[call]()
    assert caught.value.node_handle == node
    assert caught.value.call == device.history[-1]
    device.stream_synchronize(bench.stream)


def test_a_fault_does_not_keep_resources_from_being_given_back(bench: Bench) -> None:
    graph_exec, _ = faulty(bench)
    bench.device.graph_launch(graph_exec, bench.stream)
    bench.device.graph_exec_destroy(graph_exec)
    bench.device.stream_destroy(bench.stream)


def test_streams_and_events(device: Emulator) -> None:
    stream, event = device.stream_create(), device.event_create()
    assert device.event_query(event)  # never recorded: as cuEventQuery
    for given in (stream, 0, 1, 2):  # the default streams are always there
        device.event_record(event, given)
        device.stream_synchronize(given)
    device.event_synchronize(event)
    device.stream_destroy(stream)
    device.event_destroy(event)
    for call, *args in (
        (device.stream_destroy, stream),
        (device.stream_synchronize, stream),
        (device.event_destroy, event),
        (device.event_query, event),
        (device.event_synchronize, event),
        (device.event_record, event, 0),
    ):
        with pytest.raises(DriverError) as caught:
            call(*args)  # type: ignore[operator]
        assert caught.value.code == 400
    graph_exec = device.graph_instantiate_with_params(device.graph_create())
    with pytest.raises(DriverError) as caught:
        device.graph_launch(graph_exec, stream)
    assert caught.value.code == 400


def test_the_history_names_the_drivers_functions(bench: Bench) -> None:
    bench.device.history.clear()
    params = bench.memset(bench.device.mem_alloc(16), 0, 4)
    bench.launch(bench.chain((bench.device.graph_add_memset_node, params))[0])
    assert list(bench.device.history) == [
        "cuMemAlloc",
        "cuGraphCreate",
        "cuGraphAddMemsetNode",
        "cuGraphAddDependencies",
        "cuGraphInstantiateWithParams",
        "cuGraphLaunch",
    ]


def test_what_is_not_given_back_is_counted(device: Emulator) -> None:
    nothing = dict.fromkeys(("allocations", "pinned", "libraries", "streams", "events", "graphs", "execs"), 0)
    assert device.live == nothing
    address, pinned = device.mem_alloc(100), device.mem_host_alloc(100)
    stream, event, graph = device.stream_create(), device.event_create(), device.graph_create()
    graph_exec = device.graph_instantiate_with_params(graph)
    library = device.library_load_data(image_of(lambda: None))
    assert device.live == dict.fromkeys(nothing, 1)
    assert device.allocations == [(address, 100)]
    device.mem_free(address)
    device.mem_free_host(pinned)
    device.stream_destroy(stream)
    device.event_destroy(event)
    device.graph_exec_destroy(graph_exec)
    device.graph_destroy(graph)
    device.library_unload(library)
    assert device.live == nothing


def test_planned_failures(device: Emulator) -> None:
    device.fail_next("cuMemAlloc", 2, after=1)
    device.fail_next("cuMemAlloc", 999, after=2)
    device.fail_next("cuStreamCreate", 1)
    device.mem_alloc(16)
    codes = []
    for _ in range(2):
        with pytest.raises(DriverError) as caught:
            device.mem_alloc(16)
        codes.append((caught.value.call, caught.value.code, caught.value.code_name))
    assert codes == [("cuMemAlloc", 2, "CUDA_ERROR_OUT_OF_MEMORY"), ("cuMemAlloc", 999, "CUDA_ERROR_UNKNOWN")]
    device.mem_alloc(16)
    with pytest.raises(DriverError):
        device.stream_create()
    assert device.live == {**dict.fromkeys(device.live, 0), "allocations": 2}


def test_a_planned_failure_of_an_update_leaves_the_exec_as_it_was(bench: Bench) -> None:
    device = bench.device
    address = bench.upload(np.zeros(4, np.int32))
    graph, (node,) = bench.chain((device.graph_add_memset_node, bench.memset(address, 1, 4)))
    graph_exec = device.graph_instantiate_with_params(graph)
    device.fail_next("cuGraphExecMemsetNodeSetParams", 910)
    with pytest.raises(DriverError) as caught:
        device.graph_exec_memset_node_set_params(graph_exec, node, bench.memset(address, 2, 4))
    assert caught.value.code_name == "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE"
    device.graph_launch(graph_exec, bench.stream)
    assert bench.download(address, 4, np.int32).tolist() == [1] * 4


def test_a_planned_failure_of_an_instantiation(device: Emulator) -> None:
    device.fail_next("cuGraphInstantiateWithParams", 2)
    graph = device.graph_create()
    with pytest.raises(InstantiateError) as caught:
        device.graph_instantiate_with_params(graph)
    assert (caught.value.code, caught.value.result, caught.value.node_handle) == (2, "CUDA_GRAPH_INSTANTIATE_ERROR", 0)


def test_messages_say_call_code_and_rule(device: Emulator) -> None:
    with pytest.raises(DriverError) as caught:
        device.mem_free(0x1234)
    assert str(caught.value) == (
        "cuMemFree returned CUDA_ERROR_INVALID_VALUE (1): no allocation of device memory begins at 0x1234."
    )


def test_one_emulator_in_several_threads(device: Emulator) -> None:
    def increment(out):
        out[cuda.threadIdx.x] += 1
        cuda.syncthreads()

    setup = Bench(device)
    address = setup.upload(np.zeros(4, np.int32))
    kinds = (types.Array(types.int32, 1, "C"),)
    kernel = setup.load(increment, *kinds)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            bench = Bench(device)
            params = bench.kernel(kernel, kinds, (ArrayValue(address, (4,), (4,)),), block=(4, 1, 1))
            graph_exec = bench.launch(bench.chain((device.graph_add_kernel_node, params))[0])
            for _ in range(9):
                device.graph_launch(graph_exec, bench.stream)
        except BaseException as problem:
            failures.append(problem)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert setup.download(address, 4, np.int32).tolist() == [40] * 4


def test_an_interrupt_leaves_the_emulator_usable(bench: Bench) -> None:
    def interrupted(out):
        cuda.syncthreads()
        raise KeyboardInterrupt

    def well(out):
        out[0] = 1

    with pytest.raises(KeyboardInterrupt):
        bench.run(interrupted, 1, 4, Fresh(1, np.int32))
    out = Fresh(1, np.int32)
    bench.run(well, 1, 1, out)
    assert out.result[0] == 1
