"""Several devices of one emulated computer: one address space, a context and limits for each, and what they reach."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from numba.cuda import types

from graphdsl.compile.image import ArrayValue
from graphdsl.drivers.emulator import Emulator
from graphdsl.drivers.structs import CONDITIONAL_NODE, KERNEL_NODE, NODE_PARAMS, NODE_TYPE_CONDITIONAL
from graphdsl.errors import DeclarationError, GraphdslError
from tests.drivers.emulator.conftest import Bench, refused, sync_fault, updated

BYTES = types.Array(types.uint8, 1, "C")


def fill(x):
    x[0] = 7


@pytest.fixture
def device() -> Emulator:
    return Emulator(devices=2)


@pytest.fixture
def other(device: Emulator) -> Emulator:
    return device.sibling(1)


def kernel_over(bench: Bench, address: int, **fields: int) -> int:
    value = ArrayValue(address, (16,), (1,))
    return bench.kernel(bench.load(fill, BYTES), [BYTES], [value], **fields)


def test_siblings_are_always_the_same(device, other):
    assert (device.ordinal, other.ordinal) == (0, 1)
    assert device.sibling(0) is device
    assert other.sibling(0) is device
    assert other.sibling(1) is other
    assert Emulator().sibling(0).device_count == 1


def test_siblings_are_told_apart(device, other):
    assert device.context != other.context
    assert (device.name, other.name) == ("emulator (sm_90, device 0)", "emulator (sm_90, device 1)")
    assert other.limits.name == other.name
    assert Emulator().name == "emulator (sm_90)"


def test_devices_can_differ():
    device = Emulator(target=["sm_90", "sm_80"])
    assert device.device_count == 2
    assert device.limits.compute_capability == (9, 0)
    assert device.sibling(1).limits.compute_capability == (8, 0)


@pytest.mark.parametrize("options", [{"devices": 0}, {"target": []}, {"devices": 1, "target": ["sm_90", "sm_80"]}])
def test_each_device_has_a_target(options):
    with pytest.raises(DeclarationError, match="each has one target"):
        Emulator(**options)


@pytest.mark.parametrize("ordinal", [2, -1, True, "1"])
def test_a_number_that_no_device_has_is_refused(device, ordinal):
    with pytest.raises(GraphdslError, match="has 2 devices, numbered from 0"):
        device.sibling(ordinal)


def test_memory_is_in_one_address_space(device, other):
    mine, theirs = device.mem_alloc(16), other.mem_alloc(16)
    pinned, pageable = device.mem_host_alloc(16), np.zeros(16, np.uint8)
    found = [device.pointer_get_device(address + 3) for address in (mine, theirs)]
    assert found == [other.pointer_get_device(address) for address in (mine, theirs)] == [0, 1]
    assert device.pointer_get_device(pinned.ctypes.data) is device.pointer_get_device(pageable.ctypes.data) is None
    device.mem_free(theirs)
    assert device.live["allocations"] == other.live["allocations"] == 1


def test_each_device_has_memory_of_its_own():
    device = Emulator(devices=2, memory_bytes=100)
    device.mem_alloc(100)
    refused(device.mem_alloc, 2, 1)
    assert device.sibling(1).mem_alloc(100)


def test_a_kernel_does_not_reach_memory_of_another_device(bench, other):
    address = other.mem_alloc(16)
    bench.launch(bench.chain((bench.device.graph_add_kernel_node, kernel_over(bench, address)))[0])
    fault = sync_fault(bench)
    assert fault.kind == "access to memory of another device"
    assert "which device 1 has" in str(fault)


def test_a_kernel_with_peer_access_does(bench, other):
    address = other.mem_alloc(16)
    bench.device.ctx_enable_peer_access(other.context)
    bench.device.ctx_enable_peer_access(other.context)  # a second time is no error
    bench.launch(bench.chain((bench.device.graph_add_kernel_node, kernel_over(bench, address)))[0])
    bench.device.stream_synchronize(bench.stream)
    assert bench.download(address, 1, np.uint8).tolist() == [7]


def test_peer_access_has_a_direction(bench, other):
    address = bench.device.mem_alloc(16)
    bench.device.ctx_enable_peer_access(other.context)
    params = kernel_over(bench, address, ctx=other.context)
    bench.launch(bench.chain((bench.device.graph_add_kernel_node, params))[0])
    assert sync_fault(bench).kind == "access to memory of another device"


def test_a_kernel_runs_on_the_device_of_its_context(bench, other):
    address = other.mem_alloc(16)
    params = kernel_over(bench, address, ctx=other.context)
    bench.launch(bench.chain((bench.device.graph_add_kernel_node, params))[0])
    bench.device.stream_synchronize(bench.stream)
    assert bench.download(address, 1, np.uint8).tolist() == [7]


def test_peers_that_there_are_not():
    device = Emulator(devices=2, peer_access=False)
    other = device.sibling(1)
    assert not device.device_can_access_peer(1)
    refused(device.ctx_enable_peer_access, 217, other.context)
    assert Emulator(devices=2).device_can_access_peer(1)
    assert not device.device_can_access_peer(0)
    refused(device.ctx_enable_peer_access, 217, device.context)
    refused(device.ctx_enable_peer_access, 201, 12345)


@pytest.mark.parametrize("where", [0, 1])
def test_copies_between_devices_need_no_peer_access(bench, other, where):
    source = bench.upload(np.arange(16, dtype=np.uint8))
    there, back = other.mem_alloc(16), bench.device.mem_alloc(16)
    add, context = bench.device.graph_add_memcpy_node, bench.device.sibling(where).context
    copies = [bench.memcpy(there, source, 16, ctx=context), bench.memcpy(back, there, 16, ctx=context)]
    bench.launch(bench.chain(*((add, params) for params in copies))[0])
    bench.device.stream_synchronize(bench.stream)
    assert bench.download(back, 16, np.uint8).tolist() == list(range(16))


def test_a_memset_runs_in_any_context(bench, device, other):
    address, graph = other.mem_alloc(16), device.graph_create()
    device.graph_add_memset_node(graph, bench.memset(address, 1, 4))
    device.graph_add_memset_node(graph, bench.memset(address, 1, 4, ctx=other.context))


def test_contexts_that_there_are_not(bench, device):
    a, graph, wrong = device.mem_alloc(16), device.graph_create(), 12345
    refused(device.graph_add_kernel_node, 201, graph, kernel_over(bench, a, ctx=wrong))
    refused(device.graph_add_memset_node, 201, graph, bench.memset(a, 1, 4, ctx=wrong))
    refused(device.graph_add_memcpy_node, 201, graph, bench.memcpy(a, a, 4, ctx=wrong))
    elsewhere = Emulator(devices=2).sibling(1).context
    refused(device.graph_add_memset_node, 201, graph, bench.memset(a, 1, 4, ctx=elsewhere))


def test_code_for_one_device_does_not_run_on_another():
    device = Emulator(target=["sm_90", "sm_80"])
    bench = Bench(device)
    graph, params = device.graph_create(), kernel_over(bench, device.mem_alloc(16), ctx=device.sibling(1).context)
    refused(device.graph_add_kernel_node, 209, graph, params)


def test_shared_memory_is_allowed_on_one_device(bench, device, other):
    kernel, graph = bench.load(lambda: None), device.graph_create()
    other.kernel_set_max_shared_bytes(kernel, 100_000)
    add = device.graph_add_kernel_node
    refused(add, 1, graph, bench._struct(KERNEL_NODE, kern=kernel, grid=1, block=1, shared_bytes=100_000))
    add(graph, bench._struct(KERNEL_NODE, kern=kernel, grid=1, block=1, shared_bytes=100_000, ctx=other.context))


@pytest.mark.parametrize(("side", "code"), [("mine", 0), ("theirs", 1)])
def test_an_update_keeps_the_devices_of_memory(bench, device, other, side, code):
    mine, theirs = device.mem_alloc(16), other.mem_alloc(16)
    new = {"mine": mine, "theirs": theirs}[side]
    graph, nodes = bench.chain(
        (device.graph_add_memcpy_node, bench.memcpy(mine, device.mem_alloc(16), 16)),
        (device.graph_add_memset_node, bench.memset(mine, 0, 4)),
    )
    made = device.graph_instantiate_with_params(graph)
    device.ctx_enable_peer_access(other.context)
    source = bench.memcpy(device.mem_alloc(16), new, 16)
    updated(bench, device.graph_exec_memcpy_node_set_params, made, nodes[0], source, code)
    updated(bench, device.graph_exec_memset_node_set_params, made, nodes[1], bench.memset(new, 0, 4), code)


def test_an_update_keeps_the_context_of_a_kernel_alone(bench, device, other):
    a = device.mem_alloc(16)
    graph, nodes = bench.chain(
        (device.graph_add_kernel_node, kernel_over(bench, a)),
        (device.graph_add_memcpy_node, bench.memcpy(a, device.mem_alloc(16), 16)),
    )
    made = device.graph_instantiate_with_params(graph)
    there = {"ctx": other.context}
    refused(device.graph_exec_kernel_node_set_params, 1, made, nodes[0], kernel_over(bench, a, **there))
    copy = bench.memcpy(a, device.mem_alloc(16), 16, **there)
    device.graph_exec_memcpy_node_set_params(made, nodes[1], copy)


# Conditional nodes


def if_node(bench: Bench, handle: int, context: int) -> np.ndarray:
    fields = np.zeros(1, CONDITIONAL_NODE)
    fields["handle"], fields["size"], fields["ctx"] = handle, 1, context
    row = np.zeros(1, NODE_PARAMS)
    row["type"] = NODE_TYPE_CONDITIONAL
    row["union"][0, : fields.nbytes // 8] = fields.view(np.uint64)
    bench.kept.append(row)
    return row


def conditional(bench: Bench, where: Emulator) -> tuple[int, int]:
    """A graph with an if on a device; gives it, and the graph in the body."""
    graph = bench.device.graph_create()
    row = if_node(bench, where.graph_conditional_handle_create(graph, 1, 1), where.context)
    bench.device.graph_add_node(graph, row.ctypes.data)
    bodies = row["union"][0, CONDITIONAL_NODE.fields["bodies"][1] // 8]
    return graph, ctypes.c_uint64.from_address(int(bodies)).value


def test_a_body_runs_on_the_device_of_its_node(bench, device, other):
    graph, body = conditional(bench, other)
    address = other.mem_alloc(16)
    device.graph_add_kernel_node(body, kernel_over(bench, address, ctx=other.context))
    bench.launch(graph)
    device.stream_synchronize(bench.stream)
    assert bench.download(address, 1, np.uint8).tolist() == [7]


def test_a_body_has_no_kernel_of_another_device(bench, device, other):
    graph, body = conditional(bench, other)
    device.graph_add_kernel_node(body, kernel_over(bench, device.mem_alloc(16)))
    refusal = refused(device.graph_instantiate_with_params, 1, graph)
    assert refusal.result == "CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED"


def test_a_body_copies_between_memory_that_its_device_reaches(bench, device, other):
    graph, body = conditional(bench, device)
    device.graph_add_memcpy_node(body, bench.memcpy(bench.upload(np.zeros(16, np.uint8)), other.mem_alloc(16), 16))
    refused(device.graph_instantiate_with_params, 1, graph)
    device.ctx_enable_peer_access(other.context)
    device.graph_instantiate_with_params(graph)


def test_the_context_of_a_conditional_node_is_that_of_its_condition(bench, device, other):
    graph = device.graph_create()
    row = if_node(bench, device.graph_conditional_handle_create(graph, 1, 1), other.context)
    refused(device.graph_add_node, 1, graph, row.ctypes.data)


def test_events_are_recorded_in_streams_of_their_device(bench, device, other):
    event, stream = device.event_create(), other.stream_create()
    refused(device.event_record, 400, event, stream)
    device.event_record(event, bench.stream)
    device.event_record(other.event_create(), stream)
    other.event_record(other.event_create(), 0)  # the default stream is the device's own
