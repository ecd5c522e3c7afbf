"""What the driver refuses, call by call, asked of every driver: the emulator gives the GPU's codes.

Numbers in comments are those of docs/driver-behaviour.md. What kills the process on a GPU is not asked here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba.cuda import types

from graphdsl.compile.image import ArrayValue
from graphdsl.drivers.base import Driver
from graphdsl.drivers.results import InstantiateError
from tests.conformance.seam import (
    INVALID_HANDLE,
    INVALID_VALUE,
    NOT_SUPPORTED,
    Seam,
    code_of,
    refusal,
)

I4 = types.Array(types.int32, 1, "C")
FILL = (I4, types.int32)
SIZE = 1 << 20


def fill(out, value):
    out[0] = value


def nothing():
    pass


@pytest.fixture
def seam(device: Driver) -> Seam:
    return Seam(device)


@pytest.fixture
def memory(seam: Seam) -> dict[str, int]:
    """Addresses of a MiB of each kind, written, so that it can be read."""
    device, fresh = seam.device, np.zeros(SIZE, np.uint8)
    pinned, pageable = device.mem_host_alloc(SIZE), np.zeros(SIZE, np.uint8)
    pinned[:] = 0
    seam.kept += [pinned, pageable]
    found = {
        "device": seam.upload(fresh),
        "other": seam.upload(fresh),
        "pinned": pinned.ctypes.data,
        "pageable": pageable.ctypes.data,
        "released": device.mem_alloc(64 * 2**20),  # more than a GPU takes from a block that others have a part of
        "null": 0,
    }
    device.mem_free(found["released"])
    return found


def filling(seam: Seam, address: int, value: int = 1, **fields: Any) -> int:
    """Parameters of a kernel that writes one number."""
    kernel = seam.load(fill, *FILL)
    return seam.kernel(kernel, FILL, (ArrayValue(address, (4,), (4,)), value), **fields)


def number(seam: Seam, address: int) -> int:
    return int(seam.download(address, 1, np.int32)[0])


# C-1: edges


def test_edges_before_a_refused_one_stay(seam):
    graph = seam.device.graph_create()
    a, b, c = (seam.node(graph, "empty") for _ in range(3))
    assert code_of(seam.edges, graph, (a, b), (a, b)) == INVALID_VALUE
    assert code_of(seam.edges, graph, (a, b)) == INVALID_VALUE  # the first of both is there
    assert code_of(seam.edges, graph, (b, c), (a, a)) == INVALID_VALUE
    assert code_of(seam.edges, graph, (b, c)) == 0  # an edge of a node to itself is seen before any is added
    seam.finish(seam.exec_of(graph))


def test_both_ends_of_an_edge_are_nodes_of_the_graph_itself(seam):
    device = seam.device
    graph, other = device.graph_create(), device.graph_create()
    a, foreign = seam.node(graph, "empty"), seam.node(other, "empty")
    child = seam.child(graph, other)
    inside = seam.node(device.graph_child_graph_node_get_graph(child), "empty")
    for stranger in (foreign, inside):
        assert code_of(seam.edges, graph, (a, stranger)) == INVALID_VALUE
        assert code_of(seam.edges, graph, (stranger, a)) == INVALID_VALUE


def test_a_cycle_is_found_when_the_graph_is_instantiated_and_blamed_on_the_node_that_closes_it(seam):
    graph = seam.device.graph_create()
    nodes = [seam.node(graph, "empty") for _ in range(5)]
    seam.edges(graph, (nodes[0], nodes[1]), (nodes[1], nodes[2]), (nodes[2], nodes[3]), (nodes[3], nodes[1]))
    problem = refusal(seam.exec_of, graph)
    assert isinstance(problem, InstantiateError)
    assert (problem.code, problem.result) == (INVALID_VALUE, "CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE")
    assert problem.node_handle == nodes[3]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ((0, 0, 0), 0),
        ((1, 0, 1), 0),
        ((2, 0, 1), 0),
        ((2, 0, 0), 0),
        ((1, 0, 0), INVALID_VALUE),
        ((0, 0, 1), INVALID_VALUE),
        ((3, 0, 1), INVALID_VALUE),
        ((3, 0, 0), INVALID_VALUE),
        ((1, 1, 1), INVALID_VALUE),
        ((0, 1, 0), INVALID_VALUE),
        ((1, 0, 2), INVALID_VALUE),
        ((1, 0, 1, 1), INVALID_VALUE),
    ],
)
def test_ports_and_types_of_edges_between_kernels(seam, memory, data, code):
    graph = seam.device.graph_create()
    a, b = (seam.node(graph, "kernel", filling(seam, memory["device"])) for _ in range(2))
    assert code_of(seam.edges, graph, (a, b), data=data) == code
    seam.finish(seam.exec_of(graph))


@pytest.mark.parametrize(("data", "into_others"), [((1, 0, 1), INVALID_VALUE), ((2, 0, 0), 0)])
@pytest.mark.parametrize("kind", ["memset", "memcpy", "empty"])
def test_only_kernels_have_ports_and_wait_for_programmatic_edges(seam, memory, data, into_others, kind):
    graph, address = seam.device.graph_create(), memory["device"]
    params = {"memset": seam.memset(address, 1, 1), "memcpy": seam.memcpy(address, memory["other"], 4), "empty": 0}
    kernel, other = seam.node(graph, "kernel", filling(seam, address)), seam.node(graph, kind, params[kind])
    assert code_of(seam.edges, graph, (other, kernel), data=data) == INVALID_VALUE
    assert code_of(seam.edges, graph, (kernel, other), data=data) == into_others


# C-2: kernels


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, 0),
        ({"ctx": 0}, 0),
        ({"kernel_params": 0}, INVALID_VALUE),
        ({"kern": 0}, INVALID_HANDLE),
        ({"grid": (0, 1, 1)}, INVALID_VALUE),
        ({"grid": (1, 1, 65536)}, INVALID_VALUE),
        ({"grid": (2**31, 1, 1)}, INVALID_VALUE),
        ({"block": (1, 0, 1)}, INVALID_VALUE),
        ({"block": (1025, 1, 1)}, INVALID_VALUE),
        ({"block": (32, 64, 1)}, INVALID_VALUE),
        ({"block": (1, 1, 65)}, INVALID_VALUE),
        ({"shared_bytes": 49152}, 0),
        ({"shared_bytes": 49153}, INVALID_VALUE),
    ],
)
def test_kernel_nodes(seam, memory, fields, code):
    graph = seam.device.graph_create()
    good = seam.node(graph, "kernel", filling(seam, memory["device"]))
    params = filling(seam, memory["device"], **fields)
    assert code_of(seam.node, graph, "kernel", params) == code
    assert code_of(seam.update, seam.exec_of(graph), good, "kernel", params) == code  # C-10.2


def test_a_pointer_to_an_argument_may_not_be_null(seam, memory):
    kernel = seam.load(fill, *FILL)
    pointers = np.zeros(len(seam.device.kernel_get_param_info(kernel)), np.uint64)
    seam.kept.append(pointers)
    params = seam.kernel(kernel, kernel_params=pointers.ctypes.data)
    assert code_of(seam.node, seam.device.graph_create(), "kernel", params) == INVALID_VALUE


def test_dynamic_shared_memory_can_be_allowed_up_to_a_most(seam):
    device, kernel = seam.device, seam.load(nothing)
    most, graph = device.limits.shared_optin_bytes, device.graph_create()
    assert code_of(device.kernel_set_max_shared_bytes, kernel, most + 1) == INVALID_VALUE
    assert code_of(device.kernel_set_max_shared_bytes, kernel, -1) == INVALID_VALUE
    for allowed in (most, 10, 0):
        device.kernel_set_max_shared_bytes(kernel, allowed)
        assert code_of(seam.node, graph, "kernel", seam.kernel(kernel, shared_bytes=allowed)) == 0
        assert code_of(seam.node, graph, "kernel", seam.kernel(kernel, shared_bytes=allowed + 1)) == INVALID_VALUE


def test_arguments_are_copied_by_the_call(seam, memory):
    graph = seam.device.graph_create()
    params = filling(seam, memory["device"], 5)
    leaves = seam.kept[-3]  # behind it lie the pointers to them and the struct
    seam.node(graph, "kernel", params)
    for leaf in leaves:
        leaf[:] = 0
    seam.finish(seam.exec_of(graph))
    assert number(seam, memory["device"]) == 5


# C-3 and C-4: copies and memsets


@pytest.mark.parametrize(
    ("source", "kinds", "fields", "code"),
    [
        ("other", "dd", {}, 0),
        ("other", "dd", {"ctx": 0}, 0),
        ("other", "dh", {}, 0),  # the address decides
        ("pinned", "dd", {}, 0),
        ("pinned", "dh", {}, 0),
        ("pageable", "dh", {}, 0),
        ("pageable", "dd", {}, INVALID_VALUE),
        ("released", "dd", {}, INVALID_VALUE),
        ("null", "dd", {}, INVALID_VALUE),
        ("null", "dh", {}, INVALID_VALUE),
        ("other", "dd", {"width": 0}, INVALID_VALUE),
        ("other", "dd", {"height": 0}, INVALID_VALUE),
        ("other", "dd", {"depth": 0}, INVALID_VALUE),
        ("other", "dd", {"source_x_bytes": SIZE - 16}, 0),
        ("other", "dd", {"source_x_bytes": SIZE - 15}, INVALID_VALUE),
        ("pinned", "dh", {"source_x_bytes": SIZE - 15}, INVALID_VALUE),
        ("other", "dd", {"source_lod": 1}, 0),
        ("other", "dd", {"source_pitch": 8}, INVALID_VALUE),
        ("other", "dd", {"source_pitch": 2**31}, 0),
        ("other", "dd", {"height": 2, "source_pitch": 2**31}, INVALID_VALUE),
        ("other", "dd", {"height": 4}, 0),
        ("other", "dd", {"height": 4, "source_pitch": 16, "destination_pitch": 17}, 0),
        ("other", "dd", {"height": 4, "source_pitch": 15}, INVALID_VALUE),
        ("other", "dd", {"height": 4, "source_pitch": 64, "source_x_bytes": 56}, INVALID_VALUE),
        ("other", "dd", {"height": 2, "source_pitch": 64, "source_x_bytes": SIZE - 80}, INVALID_VALUE),
        ("other", "dd", {"height": 4, "depth": 2, "source_height": 4, "destination_height": 6}, 0),
        ("other", "dd", {"height": 4, "destination_pitch": 15}, INVALID_VALUE),
        ("other", "dd", {"height": 4, "depth": 2, "source_height": 3}, INVALID_VALUE),
        ("other", "dd", {"height": 4, "depth": 2, "destination_height": 3}, INVALID_VALUE),
        ("other", "dd", {"height": 4, "depth": 2, "source_height": SIZE // 16 - 4}, 0),
        ("other", "dd", {"height": 4, "depth": 2, "source_height": SIZE // 16 - 3}, INVALID_VALUE),
        ("other", "dd", {"height": 4, "depth": 2, "source_height": 4, "source_y": 1}, INVALID_VALUE),
    ],
)
def test_copies(seam, memory, source, kinds, fields, code):
    graph = seam.device.graph_create()
    params = seam.memcpy(memory["device"], memory[source], 16, kinds, **fields)
    assert code_of(seam.node, graph, "memcpy", params) == code
    seam.finish(seam.exec_of(graph))


@pytest.mark.parametrize(
    ("target", "shift", "count", "size", "fields", "code"),
    [
        ("device", 0, 4, 4, {}, 0),
        ("device", 0, 4, 4, {"ctx": 0}, 0),
        ("pinned", 0, 4, 4, {}, 0),
        ("pageable", 0, 4, 4, {}, INVALID_VALUE),
        ("released", 0, 4, 4, {}, INVALID_VALUE),
        ("null", 0, 4, 4, {}, INVALID_VALUE),
        ("device", 0, 4, 0, {}, INVALID_VALUE),
        ("device", 0, 4, 3, {}, INVALID_VALUE),
        ("device", 0, 4, 8, {}, INVALID_VALUE),
        ("device", 0, 0, 4, {}, INVALID_VALUE),
        ("device", 0, 4, 4, {"height": 0}, INVALID_VALUE),
        ("device", 2, 4, 4, {}, INVALID_VALUE),
        ("device", 1, 4, 2, {}, INVALID_VALUE),
        ("device", 1, 4, 1, {}, 0),
        ("device", SIZE - 16, 4, 4, {}, 0),
        ("device", SIZE - 16, 5, 4, {}, INVALID_VALUE),
        ("device", 0, 8, 4, {"pitch": 3}, 0),
        ("device", 0, 3, 4, {"height": 4, "pitch": 12}, 0),
        ("device", 0, 3, 4, {"height": 4, "pitch": 8}, INVALID_VALUE),
        ("device", 0, 3, 4, {"height": 4, "pitch": 0}, INVALID_VALUE),
        ("device", 0, 1, 4, {"height": 4, "pitch": 6}, INVALID_VALUE),
        ("device", 0, 1, 2, {"height": 4, "pitch": 6}, 0),
        ("device", 0, 1, 2, {"height": 4, "pitch": 7}, INVALID_VALUE),
        ("device", 0, 1, 1, {"height": 4, "pitch": 7}, 0),
        ("device", 0, 16, 4, {"height": SIZE // 64, "pitch": 64}, 0),
        ("device", 0, 16, 4, {"height": SIZE // 64 + 1, "pitch": 64}, INVALID_VALUE),
    ],
)
def test_memsets(seam, memory, target, shift, count, size, fields, code):
    graph = seam.device.graph_create()
    params = seam.memset(memory[target] + shift, 1, count, size, **fields)
    assert code_of(seam.node, graph, "memset", params) == code
    seam.finish(seam.exec_of(graph))


def test_a_pitch_of_nothing_is_the_width(seam, memory):
    numbers = np.arange(64, dtype=np.int32)
    seam.device.memcpy_htod(memory["other"], numbers, seam.stream)
    graph = seam.device.graph_create()
    params = seam.memcpy(memory["device"], memory["other"], 16, height=3, depth=2, destination_pitch=32)
    seam.node(graph, "memcpy", params)
    seam.finish(seam.exec_of(graph))
    found = seam.download(memory["device"], (8, 8), np.int32)
    np.testing.assert_array_equal(found[:6, :4], numbers[:24].reshape(6, 4))
    assert not found[:, 4:].any()
    assert not found[6:].any()


@pytest.mark.parametrize(("size", "value"), [(1, 0x1FF), (2, 0x1FFFF)])
def test_a_value_is_cut_to_its_element(seam, memory, size, value):
    graph = seam.device.graph_create()
    seam.node(graph, "memset", seam.memset(memory["device"], value, 4, size))
    seam.finish(seam.exec_of(graph))
    assert number(seam, memory["device"]) == -1


# C-7: conditionals


@pytest.mark.parametrize(("flags", "code"), [(0, 0), (1, 0), (2, INVALID_VALUE), (3, INVALID_VALUE)])
def test_flags_of_conditions(seam, flags, code):
    assert code_of(seam.device.graph_conditional_handle_create, seam.device.graph_create(), 1, flags) == code


def test_a_condition_has_one_node_in_its_graph(seam):
    device = seam.device
    graph, other = device.graph_create(), device.graph_create()
    condition = device.graph_conditional_handle_create(graph, 0, 1)
    problem = refusal(seam.exec_of, graph)
    assert (problem.code, problem.result) == (INVALID_VALUE, "CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED")
    assert code_of(seam.conditional, other, condition) == INVALID_VALUE
    _, (body,) = seam.conditional(graph, condition)
    for place in (graph, body):
        assert code_of(seam.conditional, place, condition) == INVALID_VALUE
    for wrong in (0, 12345):
        assert code_of(seam.conditional, graph, wrong) == INVALID_VALUE
    seam.conditional(body, device.graph_conditional_handle_create(graph, 0, 1))
    seam.finish(seam.exec_of(graph))


@pytest.mark.parametrize(
    ("form", "size", "code"),
    [
        (form, size, 0 if size in allowed else 1)
        for form, allowed in enumerate(((1, 2), (1,), (1, 2, 3)))
        for size in range(4)
    ],
)
def test_numbers_of_bodies(seam, form, size, code):
    graph = seam.device.graph_create()
    condition = seam.device.graph_conditional_handle_create(graph, 0, 1)
    assert code_of(seam.conditional, graph, condition, form, size) == code


def body_of(seam: Seam) -> tuple[int, int]:
    """A graph, and the body of an `if` in it that is run."""
    graph = seam.device.graph_create()
    _, (body,) = seam.conditional(graph, seam.device.graph_conditional_handle_create(graph, 1, 1))
    return graph, body


def test_what_a_body_cannot_hold_is_told_when_the_graph_is_instantiated(seam, memory):
    cases = (
        ("host", seam.host(lambda data: None), "NODE_OPERATION_NOT_SUPPORTED"),
        ("memcpy", seam.memcpy(memory["device"], memory["pageable"], 4, "dh"), "MULTIPLE_CTXS_NOT_SUPPORTED"),
    )
    for kind, params, result in cases:
        graph, body = body_of(seam)
        node = seam.node(body, kind, params)
        problem = refusal(seam.exec_of, graph)
        assert (problem.code, problem.result) == (INVALID_VALUE, f"CUDA_GRAPH_INSTANTIATE_{result}")
        assert problem.node_handle == node


def test_a_graph_with_a_conditional_has_one_exec_and_is_no_child(seam, memory):
    graph, body = body_of(seam)
    seam.node(body, "memset", seam.memset(memory["device"], 7, 1))
    assert code_of(seam.child, seam.device.graph_create(), graph) == NOT_SUPPORTED
    first = seam.exec_of(graph)
    assert refusal(seam.exec_of, graph).code == NOT_SUPPORTED
    seam.finish(first)
    assert number(seam, memory["device"]) == 7
    seam.device.graph_exec_destroy(first)
    seam.finish(seam.exec_of(graph))


# C-8: children


def test_a_child_is_a_copy_that_is_changed_by_the_handles_inside(seam, memory):
    device, address = seam.device, memory["device"]
    source, parent = device.graph_create(), device.graph_create()
    before = seam.node(source, "memset", seam.memset(address, 1, 1))
    child = seam.child(parent, source)
    inside = device.graph_child_graph_node_get_graph(child)
    seam.node(source, "memset", seam.memset(address + 4, 1, 1))
    device.graph_destroy(source)
    added = seam.node(inside, "memset", seam.memset(address + 8, 3, 1))
    graph_exec, second = seam.exec_of(parent), seam.exec_of(parent)
    seam.update(graph_exec, added, "memset", seam.memset(address + 8, 4, 1))
    assert code_of(seam.update, graph_exec, before, "memset", seam.memset(address, 2, 1)) == INVALID_VALUE
    seam.finish(graph_exec)
    assert seam.download(address, 3, np.int32).tolist() == [1, 0, 4]
    assert code_of(device.graph_node_set_enabled, graph_exec, child, False) == INVALID_VALUE
    seam.finish(second)
    assert seam.download(address, 3, np.int32).tolist() == [1, 0, 3]


# C-9 and C-10: execs and their updates


def test_flags_of_execs(seam):
    graph = seam.device.graph_create()
    problem = refusal(seam.device.graph_instantiate_with_params, graph, 16)
    assert (problem.code, problem.result) == (INVALID_VALUE, "CUDA_GRAPH_INSTANTIATE_ERROR")
    seam.finish(seam.device.graph_instantiate_with_params(graph, 8))


def test_graphs_and_execs_are_destroyed_once(seam):
    device = seam.device
    graph = device.graph_create()
    graph_exec = seam.exec_of(graph)
    device.graph_destroy(graph)
    assert code_of(device.graph_destroy, graph) == INVALID_VALUE
    seam.finish(graph_exec)
    device.graph_exec_destroy(graph_exec)
    assert code_of(device.graph_exec_destroy, graph_exec) == INVALID_VALUE
    assert code_of(device.graph_launch, graph_exec, seam.stream) == INVALID_VALUE


def test_an_update_names_a_node_of_its_kind_that_the_graph_had_and_has(seam, memory):
    device, address = seam.device, memory["device"]
    graph, other = device.graph_create(), device.graph_create()
    node, empty = seam.node(graph, "memset", seam.memset(address, 1, 1)), seam.node(graph, "empty")
    graph_exec, params = seam.exec_of(graph), seam.memset(address, 2, 1)
    late, foreign = (seam.node(place, "memset", params) for place in (graph, other))
    for wrong in (empty, late, foreign):
        assert code_of(seam.update, graph_exec, wrong, "memset", params) == INVALID_VALUE
    device.graph_destroy(graph)
    assert code_of(seam.update, graph_exec, node, "memset", params) == INVALID_VALUE
    assert code_of(device.graph_node_set_enabled, graph_exec, node, False) == INVALID_VALUE
    seam.finish(graph_exec)
    assert number(seam, address) == 1


PLACES = {
    "device": ("other", "d"),
    "pinned": ("pinned", "h"),
    "pinned as device": ("pinned", "d"),
    "pageable": ("pageable", "h"),
}


@pytest.mark.parametrize("before", PLACES)
@pytest.mark.parametrize("after", PLACES)
def test_an_update_of_a_copy_keeps_the_declared_types(seam, memory, before, after):
    def params(place: str, **fields: Any) -> int:
        name, kind = PLACES[place]
        return seam.memcpy(memory["device"], memory[name] + 64, 16, "d" + kind, **fields)

    graph = seam.device.graph_create()
    node = seam.node(graph, "memcpy", params(before))
    graph_exec = seam.exec_of(graph)
    same = PLACES[before][1] == PLACES[after][1]
    assert code_of(seam.update, graph_exec, node, "memcpy", params(after, width=32)) == (0 if same else INVALID_VALUE)
    assert code_of(seam.update, graph_exec, node, "memcpy", params(before, height=2)) == INVALID_VALUE
    assert code_of(seam.update, graph_exec, node, "memcpy", params(before, width=0)) == INVALID_VALUE
    seam.finish(graph_exec)


@pytest.mark.parametrize(
    ("shift", "fields", "code"),
    [
        (0, {}, 0),
        (4096, {}, INVALID_VALUE),
        (0, {"width": 32}, INVALID_VALUE),
        (0, {"height": 3}, INVALID_VALUE),
        (0, {"destination_pitch": 128}, INVALID_VALUE),
        (0, {"height": 1}, INVALID_VALUE),
    ],
)
def test_a_copy_of_rows_is_not_changed(seam, memory, shift, fields, code):
    given = {"height": 4, "source_pitch": 64, "destination_pitch": 64}
    graph = seam.device.graph_create()
    node = seam.node(graph, "memcpy", seam.memcpy(memory["device"], memory["other"], 16, **given))
    params = seam.memcpy(memory["device"] + shift, memory["other"], 16, **(given | fields))
    assert code_of(seam.update, seam.exec_of(graph), node, "memcpy", params) == code


@pytest.mark.parametrize("fields", [{}, {"width": 32}, {"source_pitch": 128}, {"destination_pitch": 0}])
def test_a_copy_of_one_row_is_changed_whatever_its_pitch(seam, memory, fields):
    given = {"source_pitch": 64, "destination_pitch": 64}
    graph = seam.device.graph_create()
    node = seam.node(graph, "memcpy", seam.memcpy(memory["device"], memory["other"], 16, **given))
    params = seam.memcpy(memory["device"] + 64, memory["other"], 16, **(given | fields))
    assert code_of(seam.update, seam.exec_of(graph), node, "memcpy", params) == 0


@pytest.mark.parametrize(
    ("rows", "target", "count", "size", "fields", "code"),
    [
        (False, "other", 8, 4, {}, 0),
        (False, "pinned", 8, 4, {}, 0),
        (False, "device", 16, 4, {}, 0),
        (False, "device", 2, 4, {}, 0),
        (False, "device", 8, 1, {}, 0),
        (False, "device", 8, 2, {}, 0),
        (False, "pageable", 8, 4, {}, INVALID_VALUE),
        (False, "device", 0, 4, {}, INVALID_VALUE),
        (False, "device", 8, 4, {"height": 2, "pitch": 64}, INVALID_VALUE),
        (True, "other", 8, 4, {}, 0),
        (True, "device", 9, 4, {}, INVALID_VALUE),
        (True, "device", 7, 4, {}, INVALID_VALUE),
        (True, "device", 8, 4, {"height": 2}, INVALID_VALUE),
        (True, "device", 8, 4, {"pitch": 128}, INVALID_VALUE),
        (True, "device", 8, 1, {}, INVALID_VALUE),
    ],
)
def test_updates_of_memsets(seam, memory, rows, target, count, size, fields, code):
    given = {"height": 3, "pitch": 64} if rows else {}
    graph = seam.device.graph_create()
    node = seam.node(graph, "memset", seam.memset(memory["device"], 1, 8, 4, **given))
    params = seam.memset(memory[target], 9, count, size, **(given | fields))
    graph_exec = seam.exec_of(graph)
    assert code_of(seam.update, graph_exec, node, "memset", params) == code
    seam.finish(graph_exec)


def test_only_kernels_copies_and_memsets_are_disabled(seam, memory):
    graph, address = seam.device.graph_create(), memory["device"]
    cases = {
        "kernel": filling(seam, address),
        "memcpy": seam.memcpy(address, memory["other"], 4),
        "memset": seam.memset(address, 1, 1),
        "host": seam.host(lambda data: None),
        "empty": 0,
    }
    nodes = {kind: seam.node(graph, kind, params) for kind, params in cases.items()}
    graph_exec = seam.exec_of(graph)
    for kind, node in nodes.items():
        wanted = 0 if kind in ("kernel", "memcpy", "memset") else INVALID_VALUE
        assert code_of(seam.device.graph_node_set_enabled, graph_exec, node, False) == wanted


# C-14: memory


def test_allocations_are_freed_once_by_their_first_address(seam, memory):
    device = seam.device
    assert code_of(device.mem_alloc, 0) == INVALID_VALUE
    assert device.mem_host_alloc(0).size == 0
    for name, shift, code in (
        ("null", 0, 0),
        ("device", 16, INVALID_VALUE),
        ("pinned", 0, INVALID_VALUE),
        ("released", 0, INVALID_VALUE),
        ("device", 0, 0),
        ("device", 0, INVALID_VALUE),
    ):
        assert code_of(device.mem_free, memory[name] + shift) == code, name
