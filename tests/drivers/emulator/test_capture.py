"""Stream capture in the emulator: what is recorded, what is refused, and how a capture ends."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.drivers.structs import CHILD_GRAPH_NODE, NODE_PARAMS, NODE_TYPE_CHILD, UNION_OFFSET
from graphdsl.errors import DriverError

UNSUPPORTED, INVALIDATED, ILLEGAL_STATE, WRONG_THREAD = 900, 901, 401, 908


@pytest.fixture
def device():
    return gd.emulator()


@pytest.fixture
def stream(device):
    made = device.stream_create()
    yield made
    device.stream_destroy(made)


def code_of(call, *args) -> int:
    with pytest.raises(DriverError) as caught:
        call(*args)
    return caught.value.code


def child(graph: int) -> np.ndarray:
    """A packed child graph node."""
    row = np.zeros((), NODE_PARAMS)
    row["type"] = NODE_TYPE_CHILD
    fields = np.zeros((), CHILD_GRAPH_NODE)
    fields["graph"] = graph
    data = np.frombuffer(bytearray(row.tobytes()), np.uint8)
    data[UNION_OFFSET : UNION_OFFSET + fields.nbytes] = np.frombuffer(fields.tobytes(), np.uint8)
    return data


def recorded(device, stream, *works) -> int:
    device.stream_begin_capture(stream)
    for work in works:
        device.stream_emulate(stream, work)
    return device.stream_end_capture(stream)


def test_work_is_recorded_in_order_and_runs_in_launches(device, stream):
    ran = []
    graph = recorded(device, stream, lambda view: ran.append(1), lambda view: ran.append(2))
    assert ran == []
    assert len(device.graph_get_nodes(graph)) == 2
    graph_exec = device.graph_instantiate_with_params(graph)
    device.graph_launch(graph_exec, stream)
    assert ran == [1, 2]


def test_without_a_capture_work_runs_at_once(device, stream):
    ran = []
    device.stream_emulate(stream, ran.append)
    assert len(ran) == 1


def test_work_sees_device_memory_as_it_is_then(device, stream):
    address = device.mem_alloc(16)
    graph = recorded(device, stream, lambda view: view(address, (4,), (4,), np.dtype(np.int32)).fill(7))
    graph_exec = device.graph_instantiate_with_params(graph)
    device.graph_launch(graph_exec, stream)
    out = np.zeros(4, np.int32)
    device.memcpy_dtoh(out, address, stream)
    assert out.tolist() == [7] * 4
    device.mem_free(address)
    device.graph_launch(graph_exec, stream)
    assert code_of(device.stream_synchronize, stream) == 700


def test_work_makes_no_driver_calls(device, stream):
    codes = []
    device.stream_emulate(stream, lambda view: codes.append(code_of(device.mem_alloc, 4)))
    assert codes == [800]


def test_waiting_for_a_captured_stream_fails_the_capture(device, stream):
    device.stream_begin_capture(stream)
    assert code_of(device.stream_synchronize, stream) == UNSUPPORTED
    assert code_of(device.stream_emulate, stream, print) == INVALIDATED
    assert code_of(device.stream_end_capture, stream) == INVALIDATED
    device.stream_synchronize(stream)
    assert recorded(device, stream)


def test_allocating_in_the_thread_that_captures_fails_the_capture(device, stream):
    address = device.mem_alloc(4)
    for call, args in ((device.mem_alloc, (4,)), (device.mem_free, (address,)), (device.mem_host_alloc, (4,))):
        device.stream_begin_capture(stream)
        assert code_of(call, *args) == UNSUPPORTED
        assert code_of(device.stream_end_capture, stream) == INVALIDATED


def test_other_threads_may_allocate(device, stream):
    device.stream_begin_capture(stream)
    thread = threading.Thread(target=lambda: device.mem_free(device.mem_alloc(4)))
    thread.start()
    thread.join()
    device.stream_end_capture(stream)


def test_a_capture_ends_in_the_thread_that_began_it(device, stream):
    device.stream_begin_capture(stream)
    codes = []
    thread = threading.Thread(target=lambda: codes.append(code_of(device.stream_end_capture, stream)))
    thread.start()
    thread.join()
    assert codes == [WRONG_THREAD]
    device.stream_end_capture(stream)


def test_a_stream_is_captured_once_and_ended_once(device, stream):
    device.stream_begin_capture(stream)
    assert code_of(device.stream_begin_capture, stream) == ILLEGAL_STATE
    device.stream_end_capture(stream)
    assert code_of(device.stream_end_capture, stream) == ILLEGAL_STATE


def test_the_legacy_stream_is_not_captured(device):
    assert code_of(device.stream_begin_capture, 0) == UNSUPPORTED


def test_a_child_of_an_exec_takes_a_recording_of_the_same_shape(device, stream):
    ran = []
    first, second = (recorded(device, stream, lambda view, what=what: ran.append(what)) for what in (1, 2))
    longer = recorded(device, stream, print, print)
    packed = [child(each) for each in (first, second, longer)]
    graph = device.graph_create()
    node = device.graph_add_node(graph, packed[0].ctypes.data)
    graph_exec = device.graph_instantiate_with_params(graph)
    update = device.graph_exec_child_graph_node_set_params
    update(graph_exec, node, packed[1].ctypes.data)
    assert code_of(update, graph_exec, node, packed[2].ctypes.data) == 910
    device.graph_launch(graph_exec, stream)
    assert ran == [2]


def test_graphs_inside_are_gone_with_the_graph(device, stream):
    inner = recorded(device, stream, print)
    graph = device.graph_create()
    packed = child(inner)
    device.graph_add_node(graph, packed.ctypes.data)
    device.graph_destroy(inner)
    assert device.live["graphs"] == 2
    device.graph_destroy(graph)
    assert device.live["graphs"] == 0
