"""Rules GD301, GD303, GD309 and GD321: what copies, memsets and host functions are given."""

from __future__ import annotations

import numpy as np
import pytest

import graphdsl as gd
from tests.check.conftest import scale
from tests.check.findings import cheap, errors_of, judged, only


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


# Copies and memsets


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


def test_read_only_memory(demo):
    constant = np.zeros(1024, np.float32)
    constant.flags.writeable = False
    table = demo.g.external("constant", constant)
    demo.g.memcpy(table, demo.x, name="into")
    demo.g.memcpy(table[:10], demo.x[:10], name="into_view")
    demo.g.memcpy(demo.x, table, name="out_of")
    assert [(each.code, each.node, each.field) for each in errors_of(cheap(demo.g))] == [
        ("GD309", "into", "destination"),
        ("GD309", "into_view", "destination"),
    ]


# Host functions


def test_device_memory_in_host_functions(demo):
    demo.g.host(print, args=(demo.raw, demo.x), name="direct")
    demo.g.host(print, args=(1, (demo.staged, demo.y[: demo.n])), name="in_tuple")
    demo.g.host(print, args=(demo.raw, demo.staged, demo.n, "text"), name="right")
    assert judged(cheap(demo.g)) == [
        ("GD321", "direct", "args[1]"),
        ("GD321", "in_tuple", "args[1]"),
    ]
