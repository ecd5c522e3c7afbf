"""Rules GD322 to GD327 and GD330: copies and memsets of rows and slices."""

from __future__ import annotations

import numpy as np
import pytest

from tests.check.findings import cheap, errors_of, in_any_order, judged


def described(strides, shape, typestr="<f4", address=4096):
    """An object with device memory of those strides, for checks alone."""
    interface = {"shape": shape, "strides": strides, "typestr": typestr, "data": (address, False), "version": 3}
    return type("Described", (), {"__cuda_array_interface__": interface})()


def errors(graph, **options):
    return [(each.code, each.node, each.field) for each in errors_of(cheap(graph, **options))]


@pytest.fixture
def cubes(demo):
    demo.cube = demo.g.device_array("cube", (4, 10, 16), np.float32)
    demo.four = demo.g.device_array("four", (4, 6, 8, 10), np.float32)
    return demo


def test_right_copies_of_rows_and_slices(cubes):
    g, host = cubes.g, cubes.g.host_array
    g.memcpy(cubes.table[2:10, 4:20], cubes.raw[:128], nbytes=None, name="wrong_shape")
    assert errors(g) == [("GD305", "wrong_shape", "source")]
    g.memcpy(host("a", (8, 16), np.float32), cubes.table[2:10, 4:20], name="rows")
    g.memcpy(host("b", (4, 5, 8), np.float32), cubes.cube[:, :5, :8], name="slices")
    g.memcpy(host("c", (4, 6, 3, 10), np.float32), cubes.four[:, :, 2:5], name="merged_outside")
    g.memcpy(host("d", (4, 2, 8, 10), np.float32), cubes.four[:, 1:3], name="merged_inside")
    g.memcpy(cubes.table[:, 3], cubes.raw[:32], name="column")
    g.memcpy(host("e", (4, 6, 1, 5), np.float32), cubes.four[:, :, 7:, 5:], name="one_row_each")
    assert errors(g) == [("GD305", "wrong_shape", "source")]


def test_copies_of_four_dimensions(cubes):
    cubes.g.memcpy(cubes.g.host_array("h", (4, 4, 4, 4), np.float32), cubes.four[:, :4, :4, :4], name="source")
    cubes.g.memcpy(cubes.four[:, :4, :4, :4], cubes.g.host_array("i", (4, 4, 4, 4), np.float32), name="destination")
    report = cheap(cubes.g)
    assert [(each.code, each.node, each.field) for each in errors_of(report)] == [
        ("GD322", "source", "source"),
        ("GD322", "destination", "source"),
    ]
    assert "4 do not follow one another" in report.errors[0].rule


def test_elements_that_lie_apart_are_a_dimension_of_their_own(cubes):
    cubes.g.memcpy(cubes.g.host_array("h", (4, 10, 8), np.float32), cubes.cube[:, :, ::2], name="even")
    cubes.g.memcpy(cubes.g.host_array("i", (4, 5, 6), np.float32), cubes.cube[:, :5, ::3], name="four")
    assert errors(cubes.g) == [("GD322", "four", "source")]


def test_memsets_of_three_dimensions(cubes):
    cubes.g.memset(cubes.cube[:, :4, :8], 0, name="wrong")
    cubes.g.memset(cubes.cube[:, :4], 0, name="whole_rows")
    cubes.g.memset(cubes.cube[2, :4, :8], 0, name="one_slice")
    cubes.g.memset(cubes.table[:, : cubes.n], 0, name="by_a_param")
    assert errors(cubes.g, values={"n": 32}) == [("GD323", "wrong", "destination")]


def test_slices_between_rows(cubes):
    host = cubes.g.host_array
    cubes.g.memcpy(host("a", (4, 4, 8), np.float32), cubes.cube[:, ::3, :8], name="thirds")
    cubes.g.memcpy(cubes.cube[:, ::3, :8], host("b", (4, 4, 8), np.float32), name="thirds_back")
    cubes.g.memcpy(host("c", (4, 5, 8), np.float32), cubes.cube[:, ::2, :8], name="halves")
    cubes.g.memcpy(host("d", (1, 4, 8), np.float32), cubes.cube[:1, ::3, :8], name="one_slice")
    report = cheap(cubes.g)
    assert [(each.code, each.node, each.field) for each in errors_of(report)] == [
        ("GD324", "thirds", "source"),
        ("GD324", "thirds_back", "destination"),
    ]
    assert "640 bytes with rows 192 bytes apart" in report.errors[0].rule


@pytest.mark.parametrize(
    ("strides", "code"),
    [
        ((0, 4), "GD325"),
        ((4, 0), "GD325"),
        ((0, 0), "GD325"),
        ((4, 4), "GD325"),
        ((28, 4), "GD325"),
        ((4, 32), "GD306"),
        ((32, 4), None),
        ((36, 4), None),
        ((36, 8), None),
    ],
)
def test_rows_in_one_another(demo, strides, code):
    demo.g.memcpy(demo.table[:8, :8], demo.g.external("odd", described(strides, (8, 8))), name="copy")
    expected = [] if code is None else [(code, "copy", "source")]
    if strides == (36, 8):  # rows of one element, in slices that are no whole number of them apart
        expected = [("GD324", "copy", "source")]
    assert errors(demo.g) == expected


def test_windows_and_slices_in_one_another(demo):
    windows = demo.g.external("windows", described((64, 32, 4), (4, 4, 8)))
    demo.g.memcpy(demo.g.host_array("h", (4, 4, 8), np.float32), windows, name="copy")
    demo.g.memset(windows[0, :, :6], 0, name="rows_apart")
    demo.g.memset(demo.g.external("more", described((32, 4), (4, 9))), 0, name="rows_in_one_another")
    assert errors(demo.g) == [
        ("GD325", "copy", "source"),
        ("GD325", "rows_in_one_another", "destination"),
    ]


def test_the_largest_pitch(demo):
    g = demo.g
    wide = g.device_array("wide", (2, 2**31), np.uint8)
    wider = g.device_array("wider", (2, 2**31 - 1), np.uint8)
    ends = g.host_array("ends", (2, 16), np.uint8)
    g.memcpy(ends, wide[:, :16], name="source")
    g.memcpy(wide[:, :16], ends, name="destination")
    g.memcpy(ends, wider[:, :16], name="right")
    g.memcpy(ends[:1], wide[:1, :16], name="one_row")
    g.memcpy(ends[: demo.n], wide[: demo.n, :16], name="one_row_by_a_param")
    assert [(each.code, each.node, each.field) for each in errors_of(cheap(g, values={"n": 1}))] == [
        ("GD326", "source", "source"),
        ("GD326", "destination", "destination"),
    ]


@pytest.mark.parametrize(
    ("typestr", "stride", "index", "right"),
    [
        ("<f4", 6, slice(None), False),
        ("<f4", 8, slice(None), True),
        ("<i2", 6, slice(None), True),
        ("<i2", 5, slice(None), False),
        ("|u1", 5, slice(None), True),
        ("<f8", 12, slice(None), True),
        ("<f4", 6, slice(1, 2), False),
        ("<f4", 6, slice(2, 3), True),
    ],
)
def test_alignment_of_memsets(demo, typestr, stride, index, right):
    odd = demo.g.external("odd", described((stride,), (8,), typestr))
    demo.g.memset(odd[index], 0, name="fill")
    assert errors(demo.g) == ([] if right else [("GD327", "fill", "destination")])


def test_one_row_of_a_memset_needs_no_aligned_pitch(demo):
    demo.g.memset(demo.g.external("odd", described((6,), (8,)))[: demo.n], 0, name="fill")
    assert errors(demo.g, values={"n": 1}) == []
    assert errors(demo.g, values={"n": 2}) == [("GD327", "fill", "destination")]


def test_short_rows_are_pointed_out(demo):
    demo.g.memset(demo.table[:, :7], 0, name="short")
    demo.g.memset(demo.table[:, :8], 0, name="long_enough")
    demo.g.memset(demo.x[::2], 0, name="elements")
    demo.g.memset(demo.x[:2], 0, name="one_row")
    demo.g.memset(demo.table[: demo.n, :2], 0, name="one_row_by_a_param")
    found = judged(cheap(in_any_order(demo.g), values={"n": 1}))
    assert found == [("GD330", "short", "destination"), ("GD330", "elements", "destination")]
    assert cheap(demo.g, values={"n": 1}).ok


def test_broken_views_and_unset_params_are_left_to_their_own_rules(demo):
    m = demo.g.param("m", np.int32)
    demo.g.memcpy(demo.table[: demo.n, :8], demo.table[: demo.n, 8:16], name="broken")
    demo.g.memcpy(demo.table[:m, :8], demo.table[:m, 8:16], name="unset")
    found = {(each.code, each.node) for each in cheap(demo.g, values={"n": 33}).errors}
    assert found == {("GD111", "unset"), ("GD301", "broken")}
