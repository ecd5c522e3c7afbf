"""What the driver says of memory that graphs allocate, and of events, call by call, asked of every driver.

Numbers in comments are those of docs/driver-behaviour.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphdsl.drivers.base import Driver
from graphdsl.drivers.structs import (
    ALLOC_NODE,
    ALLOCATION_PINNED,
    EVENT_NODE,
    FREE_NODE,
    LOCATION_DEVICE,
    NODE_TYPE_ALLOC,
    NODE_TYPE_EVENT_RECORD,
    NODE_TYPE_EVENT_WAIT,
    NODE_TYPE_FREE,
    UNION_OFFSET,
)
from tests.conformance.seam import INVALID_VALUE, NOT_SUPPORTED, Seam, code_of, refusal

OUT_OF_MEMORY = 2
SIZE = 1 << 20


@pytest.fixture
def seam(device: Driver) -> Seam:
    return Seam(device)


def add(seam: Seam, graph: int, row: np.ndarray, after: tuple[int, ...] = ()) -> int:
    return seam.device.graph_add_node(graph, row.ctypes.data, np.array(after, np.uint64))


def allocation(seam: Seam, nbytes: int = SIZE, **fields: Any) -> np.ndarray:
    given = {"allocation_type": ALLOCATION_PINNED, "location_type": LOCATION_DEVICE, "location": seam.device.ordinal}
    return seam.packed(NODE_TYPE_ALLOC, ALLOC_NODE, nbytes=nbytes, **(given | fields))


def alloc(seam: Seam, graph: int, after: tuple[int, ...] = ()) -> tuple[int, int]:
    """An alloc node and the address that it gives."""
    row = allocation(seam)
    node = add(seam, graph, row, after)
    return node, int(
        row.view(np.uint8)[UNION_OFFSET : UNION_OFFSET + ALLOC_NODE.itemsize].view(ALLOC_NODE)["address"][0]
    )


def free(seam: Seam, graph: int, address: int, after: tuple[int, ...] = ()) -> int:
    return add(seam, graph, seam.packed(NODE_TYPE_FREE, FREE_NODE, address=address), after)


def used_and_freed(seam: Seam, graph: int) -> tuple[int, int, int]:
    """Nodes that allocate, write and free."""
    node, address = alloc(seam, graph)
    fill = seam.node(graph, "memset", seam.memset(address, 7, 4))
    end = free(seam, graph, address)
    seam.edges(graph, (node, fill), (fill, end))
    return node, fill, end


# C-6.1


@pytest.mark.parametrize(
    ("fields", "code"),
    [({}, 0), ({"nbytes": 1}, 0), ({"nbytes": 0}, 1), ({"nbytes": 1 << 45}, OUT_OF_MEMORY), ({"handle_types": 1}, 801)],
)
def test_what_can_be_allocated(seam, fields, code):
    assert code_of(add, seam, seam.device.graph_create(), allocation(seam, **fields)) == code


# C-6.3


def test_the_driver_leaves_the_order_of_users_to_the_user(seam):
    graph = seam.device.graph_create()
    _, address = alloc(seam, graph)
    assert code_of(seam.node, graph, "memset", seam.memset(address, 1, 4)) == 0
    assert code_of(seam.node, graph, "memcpy", seam.memcpy(address + 64, address, 4)) == 0
    assert code_of(seam.node, graph, "memcpy", seam.memcpy(address + SIZE - 4, address, 8)) == INVALID_VALUE
    assert code_of(free, seam, graph, address) == 0
    seam.exec_of(graph)


# C-6.4


def test_what_is_freed_is_an_allocation_once(seam):
    device = seam.device
    graph, other, plain = device.graph_create(), device.graph_create(), device.mem_alloc(SIZE)
    node, address = alloc(seam, graph)
    for wrong in (address + 16, plain, 0):
        assert code_of(free, seam, graph, wrong, (node,)) == INVALID_VALUE
    assert code_of(free, seam, graph, address, (node,)) == 0
    assert code_of(free, seam, graph, address, (node,)) == INVALID_VALUE
    assert code_of(free, seam, other, address) == INVALID_VALUE


# C-6.5


def test_a_graph_that_allocates_has_one_exec(seam):
    graph = seam.device.graph_create()
    used_and_freed(seam, graph)
    first = seam.exec_of(graph)
    problem = refusal(seam.exec_of, graph)
    assert (problem.code, problem.result) == (NOT_SUPPORTED, "CUDA_GRAPH_INSTANTIATE_ERROR")
    seam.finish(first)
    seam.finish(first)
    seam.device.graph_exec_destroy(first)
    seam.finish(seam.exec_of(graph))


def test_a_graph_that_allocates_is_no_copied_child(seam):
    graph = seam.device.graph_create()
    used_and_freed(seam, graph)
    assert code_of(seam.child, seam.device.graph_create(), graph) == NOT_SUPPORTED


# C-6.6


def test_memory_that_was_not_freed_keeps_the_exec_from_being_launched_again(seam):
    graph = seam.device.graph_create()
    node, address = alloc(seam, graph)
    seam.edges(graph, (node, seam.node(graph, "memset", seam.memset(address, 7, 4))))
    graph_exec = seam.exec_of(graph)
    seam.finish(graph_exec)
    assert seam.download(address, 4, np.int32).tolist() == [7] * 4
    assert code_of(seam.device.graph_launch, graph_exec, seam.stream) == INVALID_VALUE
    seam.device.mem_free(address)
    seam.finish(graph_exec)
    seam.device.mem_free(address)


# C-6.7


def test_what_allocates_and_frees_does_not_change(seam):
    graph = seam.device.graph_create()
    node, fill, end = used_and_freed(seam, graph)
    graph_exec = seam.exec_of(graph)
    for which, row in ((node, allocation(seam, 2 * SIZE)), (end, seam.packed(NODE_TYPE_FREE, FREE_NODE, address=0))):
        assert code_of(seam.update, graph_exec, which, "generic", row.ctypes.data) == NOT_SUPPORTED
        assert code_of(seam.device.graph_node_set_enabled, graph_exec, which, False) == INVALID_VALUE
    seam.device.graph_node_set_enabled(graph_exec, fill, False)
    seam.finish(graph_exec)


# C-5.3, C-10.6


def event_node(seam: Seam, kind: int, event: int) -> np.ndarray:
    return seam.packed(kind, EVENT_NODE, event=event)


def test_events_of_nodes(seam):
    device = seam.device
    graph, event, other = device.graph_create(), device.event_create(), device.event_create(timing=True)
    for kind in (NODE_TYPE_EVENT_RECORD, NODE_TYPE_EVENT_WAIT):
        assert code_of(add, seam, graph, event_node(seam, kind, 0)) == INVALID_VALUE
    record, again = (add(seam, graph, event_node(seam, NODE_TYPE_EVENT_RECORD, event)) for _ in range(2))
    wait = add(seam, graph, event_node(seam, NODE_TYPE_EVENT_WAIT, event), (again,))
    graph_exec = seam.exec_of(graph)
    seam.finish(graph_exec)
    cases = (
        (record, NODE_TYPE_EVENT_RECORD, other, 0),
        (wait, NODE_TYPE_EVENT_WAIT, other, 0),
        (record, NODE_TYPE_EVENT_WAIT, event, INVALID_VALUE),
        (wait, NODE_TYPE_EVENT_WAIT, 0, INVALID_VALUE),
    )
    for node, kind, chosen, code in cases:
        params = event_node(seam, kind, chosen).ctypes.data
        assert code_of(seam.update, graph_exec, node, "generic", params) == code
    assert code_of(device.graph_node_set_enabled, graph_exec, record, False) == INVALID_VALUE
    seam.finish(graph_exec)
