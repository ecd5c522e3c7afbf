"""Padding: what is written into the rows that a request does not fill, and what is not written again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphdsl as gd


@pytest.mark.parametrize(
    ("axes", "found"),
    [
        ("batch", {0: "batch"}),
        (("batch", "seq"), {0: "batch", 1: "seq"}),
        (["batch", None, "seq"], {0: "batch", 2: "seq"}),
        ({2: "seq", 0: "batch"}, {0: "batch", 2: "seq"}),
        ((), {}),
        ("batch + 1", {0: "batch + 1"}),
        ((None, "seq+12 "), {1: "seq + 12"}),
        ("batch + 0", {0: "batch"}),
    ],
)
def test_axes_are_named_by_dimension(axes, found):
    padding = gd.Padding(axes)
    assert padding.axes == found
    assert list(padding.axes) == sorted(found)
    assert gd.Padding(padding.axes).axes == found


@pytest.mark.parametrize(
    "axes",
    [
        *(3, None, "", ("batch", 2), {"batch": 0}, {-1: "batch"}, {0: None}, {True: "x"}),
        *("batch +", "+ 1", "1 + batch + 1", "batch - 1", "2*batch", "batch + seq", {0: "batch + -1"}),
    ],
)
def test_axes_of_another_kind_are_refused(axes):
    with pytest.raises(gd.DeclarationError, match="the axes of an operand are"):
        gd.Padding(axes)


SHAPE, AXES = (4, 2, 5), ("batch", None, "seq")
MORE = [(AXES, (0, 0)), (("batch + 1", None, "seq"), (1, 0)), (("batch + 2", None, "seq + 1"), (2, 1))]
"""Axes, and how many more than the sizes on batch and seq their dimensions have."""


def extents(sizes, more) -> tuple[int, ...]:
    return sizes["batch"] + more[0], 2, sizes["seq"] + more[1]


MOST = {"batch": 4, "seq": 5}


def padded(data, fill, shape):
    """What is wanted, by NumPy."""
    widths = [(0, most - extent) for most, extent in zip(shape, data.shape)]
    return np.pad(data, widths, mode="edge") if fill == "last" else np.pad(data, widths, constant_values=fill)


SIZES = st.fixed_dictionaries({"batch": st.integers(1, 4), "seq": st.integers(1, 5)})


@given(st.lists(SIZES, min_size=1, max_size=6), st.sampled_from([0, -7, "last"]), st.sampled_from(MORE))
@settings(max_examples=40, deadline=None)
def test_write_after_write_holds_the_real_rows_and_the_fill(requests, fill, of):
    axes, more = of
    out = np.full(extents(MOST, more), 99, np.int32)
    padding, before = gd.Padding(axes, fill=fill), None
    padding.check("x", out.shape, out.dtype, MOST)
    for number, sizes in enumerate(requests):
        shape = extents(sizes, more)
        data = np.arange(1, 1 + np.prod(shape)).reshape(shape) + 100 * number
        padding.write(out, data, sizes, before=before)
        np.testing.assert_array_equal(out, padded(data, fill, out.shape))
        np.testing.assert_array_equal(padding.slice(out, sizes), data)
        before = sizes


@given(SIZES, SIZES, st.sampled_from(MORE))
@settings(max_examples=30, deadline=None)
def test_only_what_was_real_and_is_no_longer_is_filled(before, sizes, of):
    axes, more = of
    shape = extents(MOST, more)
    out = np.full(shape, 99, np.int32)
    gd.Padding(axes, fill=-7).write(out, np.ones(extents(sizes, more), np.int32), sizes, before=before)
    was, now = np.zeros(shape, bool), np.zeros(shape, bool)
    was[tuple(map(slice, extents(before, more)))] = True
    now[tuple(map(slice, extents(sizes, more)))] = True
    np.testing.assert_array_equal(out, np.where(now, 1, np.where(was, -7, 99)))


def test_no_part_is_filled_twice():
    out = np.zeros(SHAPE, np.int32)
    for sizes in ({"batch": b, "seq": s} for b in range(1, 5) for s in range(1, 6)):
        out[:] = 0
        for part in gd.Padding(AXES)._rest(SHAPE, sizes, None):
            out[part] += 1
        assert out.max(initial=0) <= 1
        assert out.sum() == out.size - sizes["batch"] * 2 * sizes["seq"]


def test_without_a_fill_the_rest_is_left_as_it_is():
    out = np.full(4, 9, np.float32)
    gd.Padding("n").write(out, [1.0], {"n": 1})
    assert out.tolist() == [1, 9, 9, 9]
    gd.Padding("n").fill_rest(out, np.nan, {"n": 3})
    assert np.isnan(out).tolist() == [False, False, False, True]


def test_padded_rows_point_to_the_scrap_slot():
    out = np.zeros(4, np.int64)
    gd.Padding("n", scrap=31).write(out, [5, 6], {"n": 2})
    assert out.tolist() == [5, 6, 31, 31]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"scrap": -1}, "one of -1 is the last slot"),
        ({"scrap": True}, "index of 0 or more"),
        ({"scrap": 1.5}, "index of 0 or more"),
        ({"scrap": 3, "fill": 0}, "takes the place of a fill"),
        ({"fill": "first"}, 'a fill is a number, "last" or None'),
        ({"fill": [1, 2]}, 'a fill is a number, "last" or None'),
    ],
)
def test_fills_of_another_kind_are_refused(given, said):
    with pytest.raises(gd.DeclarationError, match=said):
        gd.Padding("n", **given)


@pytest.mark.parametrize(
    ("padding", "dtype", "said"),
    [
        (gd.Padding("n", fill=-1), np.uint8, "uint8 takes|uint8 holds 0 to 255"),
        (gd.Padding("n", fill=300), np.uint8, "uint8 holds 0 to 255"),
        (gd.Padding("n", fill=0.5), np.int32, "int32 takes an integer"),
        (gd.Padding("n", fill=float("nan")), np.int32, "int32 takes an integer"),
        (gd.Padding("n", fill=1e300), np.float32, "cannot hold a number so large"),
        (gd.Padding("n", scrap=200), np.int8, "int8 holds -128 to 127"),
        (gd.Padding("n", scrap=2), np.float32, "for indices, which are integers, and this holds float32"),
        (gd.Padding("n", fill=0), np.dtype([("a", "i4")]), "no number fills"),
    ],
)
def test_a_fill_that_the_dtype_does_not_have_is_refused_before_anything_is_written(padding, dtype, said):
    out = np.ones(4, dtype)
    kept = out.copy()
    for call in (
        lambda: padding.write(out, kept[:2] * 0 if out.dtype.kind != "V" else kept[:2], {"n": 2}, name="x"),
        lambda: padding.check("x", (4,), out.dtype, {"n": 4}),
    ):
        with pytest.raises(gd.DeclarationError, match=said) as caught:
            call()
        assert caught.value.field == "padding of x"
    assert (out == kept).all()


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((3, 2, 3), r"batch=2, seq=3 this has the shape \(2, 2, 3\); dimension 0, 3 here, is the axis 'batch'"),
        ((2, 1, 3), "dimension 1, 1 here, is the same in every bucket"),
        ((2, 2, 5), "dimension 2, 5 here, is the axis 'seq'"),
        ((2, 6), r"has the shape \(2, 2, 3\)\."),
        ((), r"has the shape \(2, 2, 3\)\."),
    ],
)
def test_data_of_another_shape_is_refused(shape, said):
    out = np.zeros(SHAPE, np.int32)
    with pytest.raises(gd.DeclarationError, match=said) as caught:
        gd.Padding(AXES, fill=1).write(out, np.ones(shape, np.int32), {"batch": 2, "seq": 3}, name="tokens")
    assert (caught.value.field, caught.value.value) == ("shape of tokens", shape)
    assert not out.any()


def test_sizes_that_the_operand_does_not_hold_are_refused():
    out = np.zeros((4, 8), np.int32)
    with pytest.raises(gd.DeclarationError, match="no room for 9 on the axis 'seq', which is dimension 1") as caught:
        gd.Padding(("batch", "seq")).slice(out, {"batch": 2, "seq": 9}, name="y")
    assert caught.value.field == "shape of y"
    with pytest.raises(gd.DeclarationError, match="no room for 1 on the axis 'seq', which is dimension 2"):
        gd.Padding({2: "seq"}).slice(out, {"seq": 1})
    with pytest.raises(gd.DeclarationError, match="no size on the axis 'seq'"):
        gd.Padding(("batch", "seq")).slice(out, {"batch": 2})


def test_what_has_more_than_its_axis_says_so():
    padding = gd.Padding("batch + 1", fill="last")
    assert repr(padding) == "Padding({0: 'batch + 1'}, fill='last')"
    i4 = np.dtype("i4")
    with pytest.raises(gd.DeclarationError, match=r"the axis 'batch \+ 1', which is 5 here, and it has 4"):
        padding.check("x", (4,), i4, {"batch": 4})
    with pytest.raises(gd.DeclarationError, match=r"dimension 0, 2 here, is the axis 'batch \+ 1'"):
        padding.write(np.zeros(5, i4), [0, 1], {"batch": 2})
    with pytest.raises(gd.DeclarationError, match=r"no room for 6 on the axis 'batch \+ 1'"):
        padding.slice(np.zeros(5, i4), {"batch": 5})
    with pytest.raises(gd.DeclarationError, match="no size on the axis 'batch'"):
        padding.slice(np.zeros(5, i4), {"seq": 1})


def test_an_operand_is_checked_against_its_bucket():
    padding = gd.Padding(("batch", None), fill=0)
    padding.check("x", (4, 8), np.dtype("f4"), {"batch": 4})
    with pytest.raises(gd.DeclarationError, match="dimension 0 is the axis 'batch', which is 4 here, and it has 3"):
        padding.check("x", (3, 8), np.dtype("f4"), {"batch": 4})
    with pytest.raises(gd.DeclarationError, match="and it is not there") as caught:
        padding.check("x", (), np.dtype("f4"), {"batch": 4})
    assert caught.value.field == "shape of x"


@pytest.mark.parametrize(
    ("data", "dtype", "said"),
    [
        ([1, 300], np.uint8, "uint8 holds 0 to 255, and 300 is among the numbers"),
        ([1, -2], np.uint32, "and -2 is among the numbers"),
        ([1.0, 2.0], np.int32, "does not take float64"),
        ([1j, 2j], np.float32, "does not take complex128"),
        (["a", "b"], np.float32, "does not take"),
    ],
)
def test_numbers_that_would_change_are_refused(data, dtype, said):
    with pytest.raises(gd.DeclarationError, match=said) as caught:
        gd.Padding("n", fill=0).write(np.zeros(4, dtype), data, {"n": 2}, name="x")
    assert caught.value.field == "dtype of x"


@pytest.mark.parametrize(
    ("data", "dtype", "said"),
    [
        ([1.0, -1e300], np.float32, r"float32 cannot hold -1e\+300"),
        ([1, 2**40], np.float16, f"float16 cannot hold {2**40}"),
        ([1, 1e300j], np.complex64, r"complex64 cannot hold .*1e\+300j"),
    ],
)
def test_numbers_that_would_be_infinite_are_refused(data, dtype, said):
    out = np.zeros(4, dtype)
    with pytest.raises(gd.DeclarationError, match=rf"^dtype of x = .*: {said}") as caught:
        gd.Padding("n", fill=0).write(out, data, {"n": 2}, name="x")
    assert caught.value.field == "dtype of x"
    assert not out.any()
    gd.Padding("n", fill=0).write(out, [np.inf, np.nan], {"n": 2})  # those are told apart from it
    assert np.isinf(out[0])


@pytest.mark.parametrize("data", [[[1], [2, 3]], np.ma.array([1, 2], mask=[False, True])], ids=["ragged", "masked"])
def test_what_is_no_array_is_refused_and_named(data):
    out = np.zeros(4)
    with pytest.raises(gd.DeclarationError, match=r"^x = an object of type .*: this is what NumPy makes an array of: "):
        gd.Padding("n", fill=0).write(out, data, {"n": 2}, name="x")
    assert not out.any()


@pytest.mark.parametrize("size", [0, -1, 2.0, True])
def test_sizes_are_positive_integers(size):
    padding = gd.Padding("n", fill="last")
    with pytest.raises(gd.DeclarationError, match=f"^n = {size}.*: a size is a positive integer"):
        padding.slice(np.arange(4), {"n": size})
    with pytest.raises(gd.DeclarationError, match="a size is a positive integer"):
        padding.write(np.zeros(4), [], {"n": size})
    assert padding.slice(np.arange(4), {"n": np.int8(2)}).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("data", "dtype"), [([1, 2], np.uint8), ([1.5, 2.0], np.float16), ([True, False], np.int8), ([1, 2], np.float32)]
)
def test_numbers_that_fit_are_converted(data, dtype):
    out = np.zeros(4, dtype)
    gd.Padding("n", fill=0).write(out, data, {"n": 2})
    assert out.tolist() == [*data, 0, 0]


def test_who_relies_on_a_fill():
    f4, i4 = np.dtype("f4"), np.dtype("i4")
    assert not gd.Padding("n", fill=0).relied_on(f4)
    assert gd.Padding("n", fill=0).relied_on(i4)
    assert gd.Padding("n", scrap=3).relied_on(i4)
    assert not gd.Padding("n").relied_on(i4)
    assert gd.Padding("n", fill=0, relied_on=True).relied_on(f4)
    assert not gd.Padding("n", fill=0, relied_on=False).relied_on(i4)


def test_a_padding_is_shown():
    assert repr(gd.Padding("n", fill=0)) == "Padding({0: 'n'}, fill=0)"
    assert repr(gd.Padding("n", scrap=3)) == "Padding({0: 'n'}, scrap=3)"
