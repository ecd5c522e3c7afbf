"""Copies and memsets of rows and slices: what they do. What is refused of them is in `test_driver_rules`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphdsl as gd
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
    x = g.device_array("x", (4, 6, 10), np.float32, pitch=pitch, lifetime="persistent")
    y = g.device_array("y", (6, 10), np.float32, pitch=pitch, lifetime="persistent")
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
