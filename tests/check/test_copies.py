"""Rules GD302 and GD304 to GD308: copies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphdsl as gd
from tests.check.findings import cheap, codes, errors_of, judged, only


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
    errors = errors_of(cheap(demo.g))
    assert [(each.code, each.node, each.field) for each in errors] == [("GD306", "wrong", "source")]


def test_one_row_is_contiguous_in_either_order(demo):
    fortran = demo.g.external("fortran", np.zeros((1, 32), np.float32, order="F"))
    demo.g.memcpy(demo.table[3:4], fortran)
    assert cheap(demo.g).ok


def test_counted_bytes_of_strided_operands(demo):
    demo.g.memcpy(demo.x[:512], demo.raw[::2], nbytes=64, name="source")
    demo.g.memcpy(demo.x[::2], demo.raw[:512], nbytes=64, name="destination")
    demo.g.memcpy(demo.table[:, : demo.n], demo.raw, nbytes=64, name="whatever_the_value")
    demo.g.memcpy(demo.table[2:4], demo.raw, nbytes=64, name="right")
    assert judged(cheap(demo.g, values={"n": 32})) == [
        ("GD307", "source", "source"),
        ("GD307", "destination", "destination"),
        ("GD307", "whatever_the_value", "destination"),
    ]


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


def test_rows_that_overlap_and_rows_between_rows(demo):
    table = demo.table
    demo.g.memcpy(table[:8, :8], table[8:16, 8:16], name="elsewhere")
    demo.g.memcpy(table[:8, :8], table[:8, 8:16], name="beside")
    demo.g.memcpy(table[::2], table[1::2], name="between")
    demo.g.memcpy(table[:8, :9], table[:8, 8:17], name="column")
    demo.g.memcpy(table[:8], table[7:15], name="row")
    demo.g.memcpy(table[::2], table[:16], name="row_0")
    demo.g.memcpy(demo.x[: 2 * demo.n : 2], demo.x[1 : 2 * demo.n + 1 : 2], name="by_params")
    assert [each for each in judged(cheap(demo.g, values={"n": 8})) if each[0] != "GD330"] == [
        ("GD308", "column", "source"),
        ("GD308", "row", "source"),
        ("GD308", "row_0", "source"),
    ]


@given(st.data())
def test_overlap_is_what_numpy_says(data):
    """Two views of one buffer: NumPy knows whether they share an element."""

    def bounds(extent, count):
        step = data.draw(st.integers(1, max(extent // max(count, 1), 1)))
        start = data.draw(st.integers(0, extent - (count - 1) * step - 1))
        return slice(start, start + (count - 1) * step + 1, step)

    shape = data.draw(st.sampled_from([(12,), (6, 8), (3, 4, 5)]))
    counts = [data.draw(st.integers(1, extent)) for extent in shape]
    keys = [tuple(bounds(extent, count) for extent, count in zip(shape, counts, strict=True)) for _ in range(2)]
    g, whole = gd.Graph(), np.zeros(shape, np.float32)
    x = g.device_array("x", shape, np.float32)
    g.memcpy(x[keys[0]], x[keys[1]])
    said = "GD308" in codes(cheap(g))
    assert said == np.shares_memory(whole[keys[0]], whole[keys[1]])
