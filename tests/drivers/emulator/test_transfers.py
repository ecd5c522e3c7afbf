"""Copies and memsets: what is refused, with the codes that driver 580 gave on an H200, and what they do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphdsl.drivers.emulator.problems import NEVER_WRITTEN, RELEASED
from graphdsl.errors import MemoryFault
from tests.drivers.emulator.conftest import Bench, refused, sync_fault, updated

# Memcpy nodes


@pytest.mark.parametrize(
    ("source", "nbytes", "kinds", "fields", "code"),
    [
        ("b", 64, "dd", {}, 0),
        ("b", 4096, "dd", {}, 0),
        ("b", 0, "dd", {}, 1),
        ("b", 64, "dd", {"height": 0}, 1),
        ("b", 64, "dd", {"depth": 0}, 1),
        ("b", 64, "dd", {"height": 2}, 0),
        ("b", 64, "dd", {"height": 64}, 0),
        ("b", 64, "dd", {"height": 65}, 1),
        ("b", 64, "dd", {"height": 8, "depth": 8}, 0),
        ("b", 64, "dd", {"height": 8, "depth": 9}, 1),
        ("b", 64, "dd", {"height": 2, "source_pitch": 64}, 0),
        ("b", 64, "dd", {"height": 2, "source_pitch": 63}, 1),
        ("b", 64, "dd", {"height": 2, "source_pitch": 4032}, 0),
        ("b", 64, "dd", {"height": 2, "source_pitch": 4033}, 1),
        ("b", 64, "dd", {"height": 2, "destination_pitch": 4033}, 1),
        ("b", 64, "dd", {"height": 2, "source_pitch": 128, "source_x_bytes": 64}, 0),
        ("b", 64, "dd", {"height": 2, "source_pitch": 128, "source_x_bytes": 65}, 1),
        ("b", 64, "dd", {"height": 4, "source_pitch": 1024}, 0),
        ("b", 64, "dd", {"height": 4, "source_pitch": 1024, "source_y": 1}, 1),
        ("b", 64, "dd", {"source_pitch": 1024, "source_y": 3}, 0),
        ("b", 64, "dd", {"height": 2, "depth": 2, "source_pitch": 64, "source_height": 2}, 0),
        ("b", 64, "dd", {"height": 2, "depth": 2, "source_pitch": 64, "source_height": 1}, 1),
        ("b", 64, "dd", {"height": 2, "depth": 2, "source_pitch": 64, "source_height": 3, "source_y": 1}, 0),
        ("b", 64, "dd", {"height": 2, "depth": 2, "source_pitch": 64, "source_height": 3, "source_y": 2}, 1),
        ("b", 64, "dd", {"height": 2, "depth": 2, "source_pitch": 64, "source_height": 62}, 0),
        ("b", 64, "dd", {"height": 2, "depth": 2, "source_pitch": 64, "source_height": 63}, 1),
        ("pageable", 64, "dh", {"height": 2, "source_pitch": 2**31}, 1),
        ("pageable", 64, "dd", {}, 1),
        ("pinned", 64, "dd", {}, 0),
        ("b", 64, "dh", {}, 0),
        ("pinned", 64, "dh", {}, 0),
        ("pageable", 64, "dh", {}, 0),
        ("pageable", 64, "dd", {"source_memory_type": 4}, 0),
        ("b", 64, "dd", {"source_memory_type": 4}, 0),
        ("b", 64, "dd", {"source_memory_type": 3}, 801),
        ("b", 64, "dd", {"source_memory_type": 9}, 1),
        ("b", 4097, "dd", {}, 1),
        ("b", 64, "dd", {"source_x_bytes": 4032}, 0),
        ("b", 64, "dd", {"source_x_bytes": 4033}, 1),
        ("pinned", 4097, "dh", {}, 1),
        ("b", 2**63, "dd", {}, 1),
        ("b", 64, "dd", {"source_lod": 1}, 0),
        ("null", 64, "dd", {}, 1),
        ("null", 64, "dh", {}, 1),
        ("released", 64, "dd", {}, 1),
    ],
)
def test_memcpy_nodes(
    bench: Bench, memory: dict[str, int], source: str, nbytes: int, kinds: str, fields: dict[str, int], code: int
) -> None:
    params = bench.memcpy(memory["a"], memory[source], nbytes, kinds, **fields)
    graph = bench.device.graph_create()
    if code:
        assert refused(bench.device.graph_add_memcpy_node, code, graph, params).call == "cuGraphAddMemcpyNode"
    else:
        assert bench.device.graph_add_memcpy_node(graph, params)


def test_copies_between_all_kinds_of_memory(bench: Bench) -> None:
    device = bench.device
    pageable, pinned = np.arange(16, dtype=np.uint8), device.mem_host_alloc(16)
    back = np.zeros(16, np.uint8)
    first, second = device.mem_alloc(16), device.mem_alloc(16)
    graph, _ = bench.chain(
        (device.graph_add_memcpy_node, bench.memcpy(first, pageable.ctypes.data, 16, "dh")),
        (device.graph_add_memcpy_node, bench.memcpy(second, first, 16, "dd", source_x_bytes=0)),
        (device.graph_add_memcpy_node, bench.memcpy(pinned.ctypes.data, second, 16, "hd")),
        (device.graph_add_memcpy_node, bench.memcpy(back.ctypes.data + 8, pinned.ctypes.data, 8, "hh")),
    )
    bench.launch(graph)
    device.stream_synchronize(bench.stream)
    assert pinned.tolist() == list(range(16))
    assert back.tolist() == [0] * 8 + list(range(8))


def test_a_copy_of_never_written_bytes(bench: Bench) -> None:
    source, destination = bench.device.mem_alloc(16), bench.device.mem_alloc(16)
    graph, (node,) = bench.chain((bench.device.graph_add_memcpy_node, bench.memcpy(destination, source, 8)))
    bench.launch(graph)
    fault = sync_fault(bench)
    assert fault.node_handle == node
    assert (fault.kind, fault.address) == (NEVER_WRITTEN, source)  # type: ignore[attr-defined]


# Memset nodes


@pytest.mark.parametrize(
    ("destination", "offset", "fields", "code"),
    [
        ("a", 0, {}, 0),
        ("pinned", 0, {}, 0),
        ("a", 0, {"element_size": 1, "value": 0x1FF}, 0),
        ("a", 0, {"element_size": 3}, 1),
        ("a", 0, {"element_size": 8}, 1),
        ("a", 0, {"element_size": 0}, 1),
        ("a", 0, {"width": 0}, 1),
        ("a", 0, {"height": 0}, 1),
        ("a", 0, {"height": 2, "pitch": 128}, 0),
        ("a", 0, {"height": 2, "pitch": 8}, 1),
        ("a", 0, {"height": 2, "pitch": 0}, 1),
        ("a", 0, {"height": 1, "pitch": 8}, 0),
        ("a", 0, {"height": 2, "pitch": 66}, 1),
        ("a", 0, {"height": 2, "pitch": 66, "element_size": 2}, 0),
        ("a", 0, {"height": 2, "pitch": 4032}, 0),
        ("a", 0, {"height": 2, "pitch": 4036}, 1),
        ("a", 0, {"height": 64, "pitch": 64}, 0),
        ("a", 0, {"height": 65, "pitch": 64}, 1),
        ("a", 2, {}, 1),
        ("a", 2, {"element_size": 2}, 0),
        ("a", 1, {"element_size": 2}, 1),
        ("a", 4092, {"width": 1}, 0),
        ("a", 4092, {"width": 2}, 1),
        ("pageable", 0, {}, 1),
        ("null", 0, {}, 1),
        ("released", 0, {}, 1),
    ],
)
def test_memset_nodes(
    bench: Bench, memory: dict[str, int], destination: str, offset: int, fields: dict[str, int], code: int
) -> None:
    params = bench.memset(memory[destination] + offset, 0, 16, **fields)
    graph = bench.device.graph_create()
    if code:
        assert refused(bench.device.graph_add_memset_node, code, graph, params).call == "cuGraphAddMemsetNode"
    else:
        assert bench.device.graph_add_memset_node(graph, params)


@pytest.mark.parametrize(
    ("size", "value", "kept"), [(1, 0x1AB, 0xAB), (2, 0x10BEEF, 0xBEEF), (4, 0xDEADBEEF, 0xDEADBEEF)]
)
def test_memsets_repeat_the_low_bytes(bench: Bench, size: int, value: int, kept: int) -> None:
    address = bench.device.mem_alloc(8 * size)
    params = bench.memset(address + size, value, 6, size)
    bench.launch(bench.chain((bench.device.graph_add_memset_node, params))[0])
    assert bench.download(address + size, 6, f"u{size}").tolist() == [kept] * 6
    with pytest.raises(MemoryFault):
        bench.download(address, 1, np.uint8)


def test_rows_and_slices_are_copied_and_what_lies_between_them_is_not(bench: Bench) -> None:
    device = bench.device
    source = np.arange(4 * 5 * 16, dtype=np.int16).reshape(4, 5, 16)
    whole, kept = bench.upload(source), bench.upload(np.full((3, 4, 8), -1, np.int16))
    params = bench.memcpy(
        kept,
        whole,
        6,
        **{"height": 2, "depth": 3},
        **{"source_x_bytes": 4, "source_y": 1, "source_z": 1, "source_pitch": 32, "source_height": 5},
        **{"destination_x_bytes": 2, "destination_y": 1, "destination_pitch": 16, "destination_height": 4},
    )
    bench.launch(bench.chain((device.graph_add_memcpy_node, params))[0])
    expected = np.full((3, 4, 8), -1, np.int16)
    expected[:, 1:3, 1:4] = source[1:, 1:3, 2:5]
    np.testing.assert_array_equal(bench.download(kept, (3, 4, 8), np.int16), expected)


def test_rows_may_have_bytes_between_them_that_nobody_wrote(bench: Bench) -> None:
    device = bench.device
    source, destination = device.mem_alloc(64), device.mem_alloc(64)
    fill = bench.memset(source, 7, 8, 1, height=4, pitch=16)
    copy = bench.memcpy(destination, source, 8, height=4, source_pitch=16, destination_pitch=8)
    graph_exec = bench.launch(
        bench.chain((device.graph_add_memset_node, fill), (device.graph_add_memcpy_node, copy))[0]
    )
    assert bench.download(destination, 32, np.uint8).tolist() == [7] * 32
    with pytest.raises(MemoryFault, match="never-written") as caught:
        bench.download(source, 16, np.uint8)
    assert caught.value.address == source + 8
    wider = bench.memcpy(destination, source, 9, height=4, source_pitch=16, destination_pitch=16)
    bench.launch(bench.chain((device.graph_add_memcpy_node, wider))[0])
    assert sync_fault(bench).address == source + 8  # type: ignore[attr-defined]
    assert graph_exec


@pytest.mark.parametrize(("size", "value"), [(1, 0xAB), (2, 0xBEEF), (4, 0xDEADBEEF)])
def test_memsets_of_rows(bench: Bench, size: int, value: int) -> None:
    address = bench.upload(np.zeros((5, 8), f"u{size}"))
    params = bench.memset(address + 10 * size, value, 3, size, height=4, pitch=8 * size)
    bench.launch(bench.chain((bench.device.graph_add_memset_node, params))[0])
    expected = np.zeros((5, 8), f"u{size}")
    expected[1:, 2:5] = value
    np.testing.assert_array_equal(bench.download(address, (5, 8), f"u{size}"), expected)


def test_memory_freed_under_a_node(bench: Bench) -> None:
    device = bench.device
    address = device.mem_alloc(64)
    other = device.mem_alloc(64)
    graph, (first, second) = bench.chain(
        (device.graph_add_memset_node, bench.memset(other, 1, 16)),
        (device.graph_add_memset_node, bench.memset(address, 1, 16)),
    )
    device.mem_free(address)
    bench.launch(graph)
    fault = sync_fault(bench)
    assert (fault.node_handle, fault.kind) == (second, RELEASED)  # type: ignore[attr-defined]
    assert first != second
    assert bench.download(other, 16, np.int32).tolist() == [1] * 16


# Updates of execs


@pytest.mark.parametrize(
    ("before", "after", "fields", "code"),
    [
        (("b", "dd"), ("b", "dd"), {"width": 128}, 0),
        (("b", "dd"), ("b", "dd"), {"width": 0}, 1),
        (("b", "dd"), ("b", "dd"), {"width": 2**30}, 1),
        (("b", "dd"), ("pinned", "dd"), {}, 0),
        (("b", "dd"), ("pinned", "dh"), {}, 1),
        (("b", "dd"), ("pageable", "dh"), {}, 1),
        (("pinned", "dh"), ("pageable", "dh"), {}, 0),
        (("pageable", "dh"), ("pinned", "dh"), {}, 0),
        (("pinned", "dh"), ("b", "dd"), {}, 1),
        (("b", "dd"), ("b", "dd"), {"height": 2}, 1),
        (("b", "dd"), ("b", "dd"), {"depth": 2}, 1),
    ],
)
def test_updates_of_memcpy_nodes(
    bench: Bench, memory: dict[str, int], before: tuple[str, str], after: tuple[str, str], fields: Any, code: int
) -> None:
    device = bench.device
    params = bench.memcpy(memory["a"], memory[before[0]], 64, before[1])
    graph, (node,) = bench.chain((device.graph_add_memcpy_node, params))
    new = bench.memcpy(memory["a"], memory[after[0]], 64, after[1], **fields)
    updated(bench, device.graph_exec_memcpy_node_set_params, bench.launch(graph), node, new, code)


@pytest.mark.parametrize(
    ("destination", "fields", "code"),
    [
        ("a", {"value": 7}, 0),
        ("b", {}, 0),
        ("pinned", {}, 0),
        ("pageable", {}, 1),
        ("a", {"width": 8}, 0),
        ("a", {"width": 32}, 0),
        ("a", {"width": 0}, 1),
        ("a", {"width": 2**28}, 1),
        ("a", {"element_size": 1}, 0),
        ("a", {"element_size": 3}, 1),
        ("a", {"height": 2, "pitch": 64}, 1),
    ],
)
def test_updates_of_memset_nodes(
    bench: Bench, memory: dict[str, int], destination: str, fields: dict[str, int], code: int
) -> None:
    device = bench.device
    graph, (node,) = bench.chain((device.graph_add_memset_node, bench.memset(memory["a"], 0, 16)))
    new = bench.memset(memory[destination], 0, 16, **fields)
    updated(bench, device.graph_exec_memset_node_set_params, bench.launch(graph), node, new, code)


@pytest.mark.parametrize(
    ("fields", "code"), [({}, 0), ({"height": 1}, 1), ({"width": 32}, 1), ({"source_pitch": 256}, 1)]
)
def test_copies_of_several_rows_stay_what_they_are(
    bench: Bench, memory: dict[str, int], fields: dict[str, int], code: int
) -> None:
    device = bench.device
    given = {"height": 2, "source_pitch": 128, "destination_pitch": 64}
    graph, (node,) = bench.chain((device.graph_add_memcpy_node, bench.memcpy(memory["a"], memory["b"], 64, **given)))
    new = bench.memcpy(memory["a"], memory["b"], 64, **(given | fields))
    updated(bench, device.graph_exec_memcpy_node_set_params, bench.launch(graph), node, new, code)


@pytest.mark.parametrize(
    ("destination", "fields", "code"),
    [
        ("a", {}, 0),
        ("a", {"value": 7}, 0),
        ("b", {}, 0),
        ("a", {"height": 1}, 1),
        ("a", {"height": 3}, 1),
        ("a", {"width": 15}, 1),
        ("a", {"pitch": 256}, 1),
        ("a", {"element_size": 2}, 1),
        ("a", {"element_size": 2, "width": 32}, 1),
    ],
)
def test_updates_of_memsets_of_several_rows(
    bench: Bench, memory: dict[str, int], destination: str, fields: dict[str, int], code: int
) -> None:
    device = bench.device
    given = {"height": 2, "pitch": 128}
    graph, (node,) = bench.chain((device.graph_add_memset_node, bench.memset(memory["a"], 0, 16, **given)))
    new = bench.memset(memory[destination], 0, 16, **(given | fields))
    updated(bench, device.graph_exec_memset_node_set_params, bench.launch(graph), node, new, code)


def test_copies_of_rows_outside_of_graphs(bench: Bench) -> None:
    device = bench.device
    host, address = np.arange(12, dtype=np.uint8), device.mem_alloc(64)
    into = bench.memcpy(address, host.ctypes.data, 4, "dh", height=3, destination_pitch=16)
    device.memcpy_3d(into, bench.stream)
    back = np.zeros(12, np.uint8)
    device.memcpy_3d(bench.memcpy(back.ctypes.data, address, 4, "hd", height=3, source_pitch=16), bench.stream)
    assert back.tolist() == host.tolist()
    wider = bench.memcpy(back.ctypes.data, address, 6, "hd", height=2, source_pitch=16)
    fault = refused(device.memcpy_3d, 1, wider, bench.stream)
    assert (fault.call, fault.kind) == ("cuMemcpy3DAsync", NEVER_WRITTEN)  # type: ignore[attr-defined]
    refused(device.memcpy_3d, 1, bench.memcpy(address, host.ctypes.data, 4, "dh", height=0), bench.stream)
    refused(device.memcpy_3d, 400, into, 12345)
