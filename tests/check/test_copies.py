"""Rules GD302 and GD304 to GD308: copies."""

from __future__ import annotations

import numpy as np
import pytest

import graphdsl as gd
from tests.check.findings import cheap, codes, judged, only


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
