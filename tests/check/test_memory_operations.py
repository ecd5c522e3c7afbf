"""Rules GD301 to GD321: views, copies, memsets, and what host functions are given."""

from __future__ import annotations

import numpy as np
import pytest

import graphdsl as gd
from tests.check.conftest import scale
from tests.check.findings import cheap, codes, judged, only


def launch(demo, x, **options):
    return demo.g.kernel(scale, grid=4, block=256, args=(x, demo.y, demo.gain, demo.n), **options)


# Views


@pytest.mark.parametrize("value", [0, 1, 1023, 1024])
def test_slices_inside_their_buffer(demo, value):
    launch(demo, demo.x[: demo.n])
    launch(demo, demo.x[demo.n :])
    launch(demo, demo.table.buffer[:, : gd.minimum(demo.n, 32)])
    assert judged(cheap(demo.g, values={"n": value})) == []


def test_a_view_outside_its_buffer_is_found_in_every_node(demo):
    view = demo.x[: demo.n]
    launch(demo, view, name="kernel")
    demo.g.kernel(scale, grid=4, block=256, args=(demo.x, (demo.y, view), demo.gain, demo.n), name="in_tuple")
    demo.g.memcpy(view, demo.raw[: demo.n], name="copy")
    demo.g.memset(view, 0, name="memset")
    demo.g.host(print, args=demo.raw[: demo.n], name="host")
    assert judged(cheap(demo.g, values={"n": 1025})) == [
        ("GD301", "kernel", "argument 'x'"),
        ("GD301", "in_tuple", "argument 'y'"),
        ("GD301", "copy", "destination"),
        ("GD301", "copy", "source"),
        ("GD301", "memset", "destination"),
        ("GD301", "host", "args[0]"),
    ]


@pytest.mark.parametrize(
    ("view", "value", "said"),
    [
        (lambda x, n: x[:n], -1, "the slice 0:-1"),
        (lambda x, n: x[n:], 1025, "the slice 1025:1024"),
        (lambda x, n: x[n - 5 : n + 5], 2, "the slice -3:7"),
        (lambda x, n: x[n:10], 11, "the slice 11:10"),
        (lambda x, n: x[n : n + 10], 1020, "the slice 1020:1030"),
        (lambda x, n: x[n], 1024, "index 1024"),
        (lambda x, n: x[n], -1, "index -1"),
        (lambda x, n: x[:n][5], 5, "index 5"),
        (lambda x, n: x[:n][-1], 0, "index -1"),
        (lambda x, n: x[: n * 2 : 2], 513, "the slice 0:1026"),
        (lambda x, n: x[:n][4:8], 7, "the slice 4:8"),
    ],
)
def test_views_outside_say_where_they_reach(demo, view, value, said):
    launch(demo, view(demo.x, demo.n))
    found = only(cheap(demo.g, values={"n": value}))
    assert found.code == "GD301"
    assert found.rule.endswith(f"and this is {said}")
    assert f"n = {value}" in found.remedy


def test_a_slice_that_stays_in_memory_but_leaves_its_dimension_is_outside(demo):
    """Row 0 of the table, 40 columns of 32: the bytes are those of row 1."""
    launch(demo, demo.table[0, : demo.n])
    found = only(cheap(demo.g, values={"n": 40}))
    assert (found.code, found.field) == ("GD301", "argument 'x'")
    assert "dimension 1 has 32 elements" in found.rule


# Copies


def test_right_copies(demo):
    demo.g.memcpy(demo.x, demo.raw)
    demo.g.memcpy(demo.x[: demo.n], demo.raw[: demo.n])
    demo.g.memcpy(demo.x, demo.y)
    demo.g.memcpy(demo.table, demo.raw, nbytes=4096)
    demo.g.memcpy(demo.table[3], demo.raw[10:42])
    assert judged(cheap(demo.g)) == []


def test_more_bytes_than_the_destination_has(demo):
    demo.g.memcpy(demo.x[:100], demo.raw, nbytes=401)
    found = only(cheap(demo.g))
    assert (found.code, found.node, found.field, found.value) == ("GD302", "raw_to_x", "nbytes", 401)
    assert "destination x[:100] has 400 bytes" in found.rule


def test_more_bytes_than_the_source_has(demo):
    demo.g.memcpy(demo.x, demo.raw[1000:], nbytes=97)
    found = only(cheap(demo.g))
    assert (found.code, found.field, found.value) == ("GD302", "nbytes", 97)
    assert "source raw[1000:] has 96 bytes" in found.rule


def test_more_bytes_than_either_has_is_found_twice(demo):
    demo.g.memcpy(demo.x, demo.raw, nbytes=demo.n * 8)
    assert judged(cheap(demo.g)) == [("GD302", "raw_to_x", "nbytes")] * 2


def test_exactly_the_bytes_that_both_have(demo):
    demo.g.memcpy(demo.x, demo.raw, nbytes=4096)
    demo.g.memcpy(demo.x[:100], demo.raw, nbytes=400)
    assert judged(cheap(demo.g)) == []


@pytest.mark.parametrize("nbytes", [0, -4])
def test_no_bytes_to_copy(demo, nbytes):
    demo.g.memcpy(demo.x, demo.raw, nbytes=nbytes)
    found = only(cheap(demo.g))
    assert (found.code, found.node, found.field, found.value) == ("GD303", "raw_to_x", "nbytes", nbytes)


def test_empty_arrays_in_copies_and_memsets(demo):
    nothing = demo.g.device_array("nothing", (4, 0), np.float32)
    demo.g.memset(nothing, 0, name="memset")
    demo.g.memcpy(demo.x[: demo.n], demo.raw[: demo.n], name="copy")
    launch(demo, demo.x[: demo.n])  # a kernel may be given no elements
    report = cheap(demo.g, values={"n": 0})
    assert judged(report) == [
        ("GD303", "copy", "destination"),
        ("GD303", "memset", "destination"),
    ]
    assert [str(found.value) for found in report.errors] == ["x[:n]", str(nothing)]


def test_dtypes_that_differ(demo):
    counts = demo.g.host_array("counts", 1024, np.int32)
    demo.g.memcpy(demo.x, counts, name="wrong")
    demo.g.memcpy(demo.x, counts, nbytes=4096, name="right")
    found = only(cheap(demo.g))
    assert (found.code, found.node, found.field) == ("GD304", "wrong", "source")
    assert found.value is counts


def test_shapes_that_differ(demo):
    demo.g.memcpy(demo.x, demo.raw[:1023], name="shorter")
    demo.g.memcpy(demo.table, demo.raw, name="other_shape")
    demo.g.memcpy(demo.x[: demo.n], demo.raw[: demo.n - 1], name="by_a_param")
    assert judged(cheap(demo.g)) == [
        ("GD305", "shorter", "source"),
        ("GD305", "other_shape", "source"),
        ("GD305", "by_a_param", "source"),
    ]


def test_dtype_and_shape_do_not_hide_each_other(demo):
    demo.g.memcpy(demo.x, demo.g.host_array("half", 512, np.float64))
    assert codes(cheap(demo.g)) == {"GD304", "GD305"}


def test_orders_that_differ(demo):
    fortran = demo.g.external("fortran", np.zeros((32, 32), np.float32, order="F"))
    demo.g.memcpy(demo.table, fortran, name="wrong")
    demo.g.memcpy(demo.table, fortran, nbytes=4096, name="right")
    errors = cheap(demo.g).errors
    assert [(each.code, each.node, each.field) for each in errors] == [("GD306", "wrong", "source")]


def test_one_row_is_contiguous_in_either_order(demo):
    fortran = demo.g.external("fortran", np.zeros((1, 32), np.float32, order="F"))
    demo.g.memcpy(demo.table[3:4], fortran)
    assert cheap(demo.g).ok


def test_strided_operands(demo):
    demo.g.memcpy(demo.x[:512], demo.raw[::2], name="source")
    demo.g.memcpy(demo.x[::2], demo.raw[:512], name="destination")
    demo.g.memset(demo.table[:, 0], 0, name="column")
    demo.g.memset(demo.table[0], 0, name="row")
    assert judged(cheap(demo.g)) == [
        ("GD307", "source", "source"),
        ("GD307", "destination", "destination"),
        ("GD307", "column", "destination"),
    ]


def test_a_width_from_a_param_is_strided_whatever_its_value(demo):
    demo.g.memset(demo.table[:, : demo.n], 0)
    assert judged(cheap(demo.g, values={"n": 32})) == [("GD307", "set_table", "destination")]


@pytest.mark.parametrize(("start", "right"), [(0, False), (1, False), (99, False), (100, True), (101, True)])
def test_copies_that_overlap(demo, start, right):
    demo.g.memcpy(demo.x[:100], demo.x[start : start + 100], name="up")
    demo.g.memcpy(demo.x[start : start + 100], demo.x[:100], name="down")
    found = judged(cheap(demo.g))
    assert found == ([] if right else [("GD308", "up", "source"), ("GD308", "down", "source")])


def test_copies_that_overlap_by_a_param(demo):
    demo.g.memcpy(demo.x[: demo.n], demo.x[512 : demo.n + 512])
    assert judged(cheap(demo.g, values={"n": 512})) == []
    found = only(cheap(demo.g, values={"n": 500 + 13}))
    assert found.code == "GD301"  # a view outside its buffer, which has no bytes to compare
    demo.g = gd.Graph()
    n, x = demo.g.param("n", np.int32, default=100), demo.g.device_array("x", 1024, np.float32)
    demo.g.memcpy(x, x[64:], nbytes=n * 4)
    assert "144 bytes" in only(cheap(demo.g)).rule
    assert judged(cheap(demo.g, values={"n": 64})) == []


def test_read_only_memory(demo):
    constant = np.zeros(1024, np.float32)
    constant.flags.writeable = False
    table = demo.g.external("constant", constant)
    demo.g.memcpy(table, demo.x, name="into")
    demo.g.memcpy(table[:10], demo.x[:10], name="into_view")
    demo.g.memcpy(demo.x, table, name="out_of")
    assert [(each.code, each.node, each.field) for each in cheap(demo.g).errors] == [
        ("GD309", "into", "destination"),
        ("GD309", "into_view", "destination"),
    ]


# Memsets


def test_right_memsets(demo):
    wide = demo.g.device_array("wide", 8, np.complex128)
    demo.g.memset(demo.x, 1.5)
    demo.g.memset(demo.x[: demo.n], demo.gain)
    demo.g.memset(demo.raw, 0)
    demo.g.memset(wide, 0)
    demo.g.memset(demo.g.device_array("ids", 8, np.int64), -1)
    demo.g.memset(demo.g.device_array("flags", 8, np.bool_), True)
    assert judged(cheap(demo.g)) == []


@pytest.mark.parametrize(
    ("dtype", "value"),
    [(np.uint8, 256), (np.int8, -129), (np.int32, 1.5), (np.float16, 1e6), (np.bool_, 2), (np.float32, "zero")],
)
def test_values_that_the_dtype_does_not_hold(demo, dtype, value):
    demo.g.memset(demo.g.device_array("z", 8, dtype), value)
    found = only(cheap(demo.g))
    assert (found.code, found.node, found.field) == ("GD311", "set_z", "value")


def test_no_value_at_all(demo):
    demo.g.memset(demo.x, None)
    assert judged(cheap(demo.g)) == [("GD311", "set_x", "value")]


def test_a_value_from_a_param_that_the_dtype_does_not_hold(demo):
    demo.g.memset(demo.g.device_array("z", 8, np.uint8), demo.n)
    found = only(cheap(demo.g))
    assert (found.code, found.value) == ("GD311", 1024)
    assert "n = 1024" in found.remedy
    assert judged(cheap(demo.g, values={"n": 255})) == []


@pytest.mark.parametrize(
    ("dtype", "value", "right"),
    [
        (np.float64, 0.0, True),
        (np.float64, 1.0, False),
        (np.float64, -0.0, False),
        (np.int64, -1, True),
        (np.int64, 1, False),
        (np.int64, 0x12345678_12345678, True),
        (np.complex64, 1 + 1j, True),
        (np.complex64, 1 + 0j, False),
        (np.complex128, 0j, True),
        (np.complex128, 1 + 1j, False),
    ],
)
def test_values_whose_bytes_repeat(demo, dtype, value, right):
    demo.g.memset(demo.g.device_array("z", 8, dtype), value)
    assert judged(cheap(demo.g)) == ([] if right else [("GD312", "set_z", "value")])


def test_pageable_memory_cannot_be_set(demo):
    demo.g.memset(demo.staged, 0)
    assert judged(cheap(demo.g)) == [("GD313", "set_staged", "destination")]


def test_structures_cannot_be_set(demo):
    pairs = demo.g.device_array("pairs", 8, [("key", np.int32), ("count", np.int32)])
    demo.g.memset(pairs, 0)
    assert judged(cheap(demo.g)) == [("GD314", "set_pairs", "destination")]


# Host functions


def test_device_memory_in_host_functions(demo):
    demo.g.host(print, args=(demo.raw, demo.x), name="direct")
    demo.g.host(print, args=(1, (demo.staged, demo.y[: demo.n])), name="in_tuple")
    demo.g.host(print, args=(demo.raw, demo.staged, demo.n, "text"), name="right")
    assert judged(cheap(demo.g)) == [
        ("GD321", "direct", "args[1]"),
        ("GD321", "in_tuple", "args[1]"),
    ]
