"""Copies and memsets of rows and slices: what they do, and what the driver refuses of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.drivers.base import Driver
from graphdsl.drivers.structs import MEMCPY_NODE, MEMORY_TYPE_DEVICE, MEMORY_TYPE_HOST, MEMSET_NODE
from graphdsl.errors import DriverError
from tests.conformance import kernels

ROWS = [
    ((8, 16), np.s_[2:7, 4:12]),
    ((8, 16), np.s_[:, 3]),
    ((8, 16), np.s_[1::2, ::4]),
    ((8, 16), np.s_[::2]),
    ((64,), np.s_[3::5]),
    ((4, 6, 16), np.s_[1:, 2:5, 4:12]),
    ((4, 6, 16), np.s_[:, ::2, :5]),
    ((4, 6, 16), np.s_[::2, :, 15:]),
    ((4, 6, 16), np.s_[:, 2:4]),
    ((3, 4, 6, 8), np.s_[:, :, 1:3]),
    ((3, 4, 6, 8), np.s_[2, 1:, ::3, 5:]),
    ((3, 4, 6, 8), np.s_[:, 3, 5, 7]),
]
"""Shapes and slices; most slices reach the last element of the memory."""


def counted(shape: Any, dtype: Any) -> np.ndarray:
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.complex128], ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize(("shape", "key"), ROWS, ids=str)
def test_strided_copies_between_host_and_device(device, shape, key, dtype):
    """Out of the host's rows into the device's, and from those into rows of the host again."""
    g = gd.Graph("rows")
    whole, back = g.host_array("whole", shape, dtype), g.host_array("back", shape, dtype)
    x = g.device_array("x", shape, dtype)
    part = np.empty(shape)[key].shape
    dense = g.device_array("dense", part, dtype)
    with g.sequence():
        g.memset(x, 0, name="clear")
        g.memcpy(x[key], whole[key], name="in")
        g.memcpy(dense, x[key], name="gather")
        g.memset(x, 0, name="clear_again")
        g.memcpy(x[key], dense, name="scatter")
        g.memcpy(back, x, name="whole_out")
        g.memcpy(back[key], x[key], name="out")
    with g.instantiate(device) as exe:
        exe["whole"][...] = counted(shape, dtype) + 1
        exe.launch()
        exe.synchronize()
        expected = np.zeros(shape, dtype)
        expected[key] = exe["whole"][key]
        np.testing.assert_array_equal(exe["back"], expected)


@pytest.mark.parametrize("pinned", [True, False])
def test_rows_of_the_last_bytes_of_an_allocation(device, pinned):
    """The pitch of the last row reaches beyond it; what is copied does not."""
    table = gd.to_device(device, counted((8, 128), np.float32))
    g = gd.Graph("end")
    x = g.external("table", table)
    corner = g.host_array("corner", (3, 5), np.float32, pinned=pinned)
    with g.sequence():
        g.memset(x[6:, 120:], 1.5)
        g.memcpy(corner, x[-3:, -5:])
    with g.instantiate(device) as exe:
        exe.launch()
        exe.synchronize()
        expected = counted((8, 128), np.float32)
        expected[6:, 120:] = 1.5
        np.testing.assert_array_equal(exe["corner"], expected[-3:, -5:])
        np.testing.assert_array_equal(table.copy_to_host(), expected)


def test_copies_of_external_arrays_in_fortran_order(device):
    data, result = np.asfortranarray(counted((6, 8), np.int16)), np.zeros((6, 8), np.int16, order="F")
    g = gd.Graph("fortran")
    source, target = g.external("source", data), g.external("target", result)
    middle = g.external("middle", np.zeros((4, 3), np.int16, order="F"))
    g.memcpy(middle, source[1:5, 2:5]) >> g.memcpy(target[2:, :3], middle)
    with g.instantiate(device) as exe:
        exe.launch()
        exe.synchronize()
        expected = np.zeros((6, 8), np.int16)
        expected[2:, :3] = data[1:5, 2:5]
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (np.int8, -3),
        (np.bool_, True),
        (np.float16, 1.5),
        (np.uint16, 0xBEEF),
        (np.float32, -0.1),
        (np.int64, -1),
        (np.complex64, 2 + 2j),
        (np.complex128, 0),
    ],
)
@pytest.mark.parametrize("key", [np.s_[1:4, 2:7], np.s_[:, 5], np.s_[::2], np.s_[3, ::2], np.s_[4:, 7:], np.s_[:, 1:]])
def test_memsets_of_rows(device, dtype, value, key):
    g = gd.Graph("fill")
    x, out = g.device_array("x", (5, 8), dtype), g.host_array("out", (5, 8), dtype)
    pinned = g.host_array("pinned", (5, 8), dtype)
    with g.sequence():
        g.memset(x, 0)
        g.memset(x[key], value)
        g.memcpy(out, x)
        g.memset(pinned, 0)
        g.memset(pinned[key], value)
    with g.instantiate(device) as exe:
        exe.launch()
        exe.synchronize()
        expected = np.zeros((5, 8), dtype)
        expected[key] = value
        np.testing.assert_array_equal(exe["out"], expected)
        np.testing.assert_array_equal(exe["pinned"], expected)


def test_extents_by_params_are_those_of_the_instantiation(device):
    g = gd.Graph("params")
    n, m = g.param("n", np.int32, default=2), g.param("m", np.int32, default=3)
    x, out = g.device_array("x", (6, 8), np.float32), g.host_array("out", (6, 8), np.float32)
    with g.sequence():
        g.memset(x, 0)
        g.memset(x[:n, :m], 1)
        g.memcpy(out, x)
    for rows, columns in ((2, 3), (1, 8), (6, 8), (6, 1)):
        with g.instantiate(device, values={"n": rows, "m": columns}) as exe:
            exe.launch()
            exe.synchronize()
            assert exe["out"].sum() == rows * columns


@pytest.mark.parametrize("pitch", ["auto", 44, 40])
def test_arrays_with_a_pitch(device, pitch):
    """Kernels, copies, memsets and the user see rows; nobody sees what lies between them."""
    g = gd.Graph("pitched")
    x = g.device_array("x", (4, 6, 10), np.float32, pitch=pitch)
    y = g.device_array("y", (6, 10), np.float32, pitch=pitch)
    raw, out = g.host_array("raw", (4, 6, 10), np.float32), g.host_array("out", (10, 6), np.float32)
    z = g.device_array("z", (10, 6), np.float32)
    with g.sequence():
        g.memcpy(x, raw, name="in")
        g.memset(y, -1, name="fill")
        g.memcpy(y[:, 2:], x[1, :, 2:], name="within")
        g.kernel(kernels.transpose, grid=1, block=(8, 16), args=(y, z))
        g.memcpy(out, z, name="out")
    with g.instantiate(device) as exe:
        exe["raw"][...] = counted((4, 6, 10), np.float32)
        exe.launch()
        exe.synchronize()
        expected = counted((4, 6, 10), np.float32)[1]
        expected[:, :2] = -1
        np.testing.assert_array_equal(exe["out"], expected.T)
        np.testing.assert_array_equal(exe["y"].copy_to_host(), expected)
        np.testing.assert_array_equal(exe["x"].copy_to_host(), exe["raw"])
        exe["y"].copy_from_host(np.ones((6, 10)))
        exe.node("within").disable()
        exe.node("fill").disable()
        exe.launch()
        exe.synchronize()
        assert (exe["out"] == 1).all()
        assert exe["y"].__cuda_array_interface__["strides"] == y.strides
        exe["y"].__dlpack__()


def test_memory_with_a_pitch_in_another_graph(device):
    g = gd.Graph("first")
    x = g.device_array("x", (3, 5), np.int16, pitch="auto")
    g.memset(x, 3)
    with g.instantiate(device) as exe:
        exe.launch()
        exe.synchronize()
        other = gd.Graph("second")
        view, out = other.external("view", exe["x"]), other.host_array("out", (3, 5), np.int16)
        assert view.strides == (512, 2)
        other.memcpy(out, view)
        with other.instantiate(device) as second:
            second.launch()
            second.synchronize()
            assert (second["out"] == 3).all()


# The driver itself


class Structs:
    """A graph of the driver, and structs for nodes that copy and set 1,024 bytes of device and of host memory."""

    def __init__(self, device: Driver) -> None:
        self.device = device
        self.graph = device.graph_create()
        self.a, self.b = device.mem_alloc(1024), device.mem_alloc(1024)
        self.host = device.mem_host_alloc(1024)
        self.kept: list[Any] = []

    def copy(self, width: int = 16, **fields: int) -> int:
        given = {"width": width, "height": 2, "depth": 1, "source_device": self.a, "destination_device": self.b}
        given |= {"source_memory_type": MEMORY_TYPE_DEVICE, "destination_memory_type": MEMORY_TYPE_DEVICE}
        given |= {"source_pitch": 64, "destination_pitch": 16, "ctx": self.device.context}
        return self._struct(MEMCPY_NODE, **(given | fields))

    def copy_out(self, **fields: int) -> int:
        host = {"destination_memory_type": MEMORY_TYPE_HOST, "destination_host": self.host.ctypes.data}
        return self.copy(**(host | fields))

    def fill(self, width: int = 4, **fields: int) -> int:
        given = {"destination": self.a, "value": 1, "element_size": 4, "width": width, "height": 2, "pitch": 64}
        given["ctx"] = self.device.context
        return self._struct(MEMSET_NODE, **(given | fields))

    def _struct(self, dtype: Any, **fields: int) -> int:
        row = np.zeros(1, dtype)
        row["ctx"] = self.device.context
        for name, value in fields.items():
            row[name] = value
        self.kept.append(row)
        return row.ctypes.data


@pytest.fixture
def structs(device: Driver) -> Iterator[Structs]:
    made = Structs(device)
    yield made
    device.graph_destroy(made.graph)
    device.mem_free(made.a)
    device.mem_free(made.b)
    device.mem_free_host(made.host)


@contextmanager
def refused_if(code: int) -> Iterator[None]:
    """Holds the driver to a result code; 0 is success."""
    if not code:
        yield
        return
    with pytest.raises(DriverError) as caught:
        yield
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, 0),
        ({"source_pitch": 16}, 0),
        ({"source_pitch": 15}, 1),
        ({"destination_pitch": 15}, 1),
        ({"source_pitch": 64, "source_x_bytes": 48}, 0),
        ({"source_pitch": 64, "source_x_bytes": 49}, 1),
        ({"height": 16}, 0),
        ({"height": 17}, 1),
        ({"source_y": 14}, 0),
        ({"source_y": 15}, 1),
        ({"source_pitch": 1008}, 0),
        ({"source_pitch": 1009}, 1),
        ({"depth": 2, "source_height": 2, "destination_height": 2}, 0),
        ({"depth": 2, "source_height": 1, "destination_height": 2}, 1),
        ({"depth": 2, "source_height": 2, "destination_height": 1}, 1),
        ({"depth": 2, "source_height": 3, "source_y": 1, "destination_height": 2}, 0),
        ({"depth": 2, "source_height": 3, "source_y": 2, "destination_height": 2}, 1),
        ({"depth": 9, "source_height": 2, "destination_height": 2}, 1),
        ({"source_pitch": 2**31}, 1),
    ],
    ids=str,
)
def test_pitches_and_heights_of_copies(structs, fields, code):
    with refused_if(code):
        structs.device.graph_add_memcpy_node(structs.graph, structs.copy(**fields))


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, 0),
        ({"pitch": 16}, 0),
        ({"pitch": 15}, 1),
        ({"pitch": 12}, 1),
        ({"pitch": 66}, 1),
        ({"pitch": 66, "element_size": 2}, 0),
        ({"pitch": 67, "element_size": 2}, 1),
        ({"pitch": 67, "element_size": 1}, 0),
        ({"height": 16}, 0),
        ({"height": 17}, 1),
        ({"pitch": 1008}, 0),
        ({"pitch": 1012}, 1),
        ({"height": 1, "pitch": 3}, 0),
    ],
    ids=str,
)
def test_pitches_of_memsets(structs, fields, code):
    with refused_if(code):
        structs.device.graph_add_memset_node(structs.graph, structs.fill(**fields))


def test_a_pitch_of_nothing_is_the_width(structs):
    """Measured on driver 580: such a copy is taken."""
    device = structs.device
    fill = structs.fill(width=1, height=8, pitch=4, value=0x04030201)
    wider = structs.fill(destination=structs.a + 32, width=16, height=1, value=0x08070605)
    copy = structs.copy_out(source_pitch=0, destination_pitch=0)
    nodes = [
        device.graph_add_memset_node(structs.graph, fill),
        device.graph_add_memset_node(structs.graph, wider),
        device.graph_add_memcpy_node(structs.graph, copy),
    ]
    pairs = np.array(nodes, np.uint64)
    device.graph_add_dependencies(structs.graph, pairs[:-1], pairs[1:])
    graph_exec, stream = device.graph_instantiate_with_params(structs.graph), device.stream_create()
    structs.host[:] = 0
    device.graph_launch(graph_exec, stream)
    device.stream_synchronize(stream)
    assert structs.host[:36].tolist() == [1, 2, 3, 4] * 8 + [0] * 4
    device.graph_exec_destroy(graph_exec)
    device.stream_destroy(stream)


ONE_ROW = {"height": 1, "source_pitch": 0, "destination_pitch": 0}


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        (ONE_ROW, ONE_ROW, 0),
        (ONE_ROW, {**ONE_ROW, "width": 32}, 0),
        ({"height": 1}, {"height": 1}, 0),
        ({"height": 1}, {"height": 1, "source_pitch": 128}, 0),
        (ONE_ROW, {}, 1),
        ({}, ONE_ROW, 1),
        ({}, {}, 1),
        ({}, {"height": 3}, 1),
        ({}, {"source_pitch": 128}, 1),
    ],
    ids=str,
)
def test_updates_of_copies_of_rows(structs, before, after, code):
    device = structs.device
    node = device.graph_add_memcpy_node(structs.graph, structs.copy(**before))
    graph_exec = device.graph_instantiate_with_params(structs.graph)
    with refused_if(code):
        device.graph_exec_memcpy_node_set_params(graph_exec, node, structs.copy(**after))
    device.graph_exec_destroy(graph_exec)


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ({}, {}, 0),
        ({}, {"value": 7}, 0),
        ({}, {"destination": 256}, 0),
        ({}, {"width": 3}, 1),
        ({}, {"height": 3}, 1),
        ({}, {"height": 1}, 1),
        ({}, {"pitch": 128}, 1),
        ({}, {"element_size": 2}, 1),
        ({"height": 1}, {"height": 1, "width": 8}, 0),
        ({"height": 1}, {"height": 2}, 1),
        ({"height": 1}, {"height": 1, "pitch": 128}, 0),
    ],
    ids=str,
)
def test_updates_of_memsets_of_rows(structs, before, after, code):
    device = structs.device
    node = device.graph_add_memset_node(structs.graph, structs.fill(**before))
    graph_exec = device.graph_instantiate_with_params(structs.graph)
    if "destination" in after:
        after = {**after, "destination": structs.a + after["destination"]}
    with refused_if(code):
        device.graph_exec_memset_node_set_params(graph_exec, node, structs.fill(**after))
    device.graph_exec_destroy(graph_exec)
