"""Buffers, and views of them: by the measure of NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphdsl.declare.definition import Definition
from graphdsl.declare.expressions import extent_expr, value_of
from graphdsl.declare.operands import Bounds, contiguous_strides, layout_of
from graphdsl.errors import DeclarationError

GRAPH = Definition()
N, M = GRAPH.param("n", np.int32), GRAPH.param("m", np.int32)
ROW = GRAPH.param("row", np.uint8)
X = GRAPH.device_array("x", 1024, np.float32)
T = GRAPH.device_array("t", (4, 5, 6), np.int16)

SHAPES = st.lists(st.integers(0, 5), min_size=1, max_size=4).map(tuple)
INDICES = st.one_of(
    st.integers(-7, 7),
    st.builds(slice, *[st.none() | st.integers(-7, 7)] * 2, st.none() | st.integers(1, 3)),
)


def place(view, values=None):
    """Offset, shape and strides as numbers."""
    values = values or {}
    return value_of(view.offset, values), tuple(value_of(e, values) for e in view.shape), view.strides


def numpy_place(array, key):
    part = array[(*key, ...)]  # with an ellipsis, an element too is a view
    return part.__array_interface__["data"][0] - array.__array_interface__["data"][0], part.shape, part.strides


@settings(max_examples=300, deadline=None)
@given(SHAPES, st.data())
def test_views_lie_where_those_of_numpy_lie(shape, data):
    graph = Definition()
    buffer = graph.device_array("x", shape, np.float32)
    array = np.zeros(shape, np.float32)
    key = tuple(data.draw(st.lists(INDICES, min_size=1, max_size=len(shape))))
    try:
        wanted = numpy_place(array, key)
    except IndexError:
        with pytest.raises(DeclarationError, match="an index of a dimension"):
            buffer[key]
        return
    view = buffer[key]
    if 0 in view.shape:
        assert view.shape == wanted[1]  # where an empty array lies means nothing
    else:
        assert place(view) == wanted
    assert view.nbytes == array[key].nbytes
    assert view.bounds == ()


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 1024), st.integers(0, 1024), st.integers(1, 5))
def test_views_by_params_lie_where_those_by_numbers_lie(n, m, step):
    n, m = sorted((n, m))
    values = {"n": n, "m": m}
    assert place(X[N:M:step], values)[1:] == place(X[n:m:step])[1:]
    assert place(X[N:], values) == place(X[n:])
    assert place(X[:M], values) == place(X[:m])
    assert value_of(X[N:M].nbytes, values) == 4 * (m - n)


def test_views_of_views():
    assert place(X[100:200][10:20]) == (440, (10,), (4,))
    assert place(T[1][2]) == place(T[1, 2])
    assert place(T[1:][..., ::2][0]) == (60, (5, 3), (12, 4))
    assert place(X[N:][M:], {"n": 10, "m": 5}) == (60, (1009,), (4,))


def test_bounds_that_only_params_can_judge_are_kept():
    assert X[:10].bounds == ()
    assert X[:N].bounds == (Bounds(0, 0, N, 1024),)
    assert T[1, :, M].bounds == (Bounds(2, M, extent_expr("+", M, 1), 6),)
    inner = X[:N][4:]
    assert inner.bounds == (Bounds(0, 0, N, 1024), Bounds(0, 4, N, N))
    assert X[:N][:].bounds == X[:N].bounds
    assert T[M][1:3].bounds == T[M].bounds


def test_an_index_from_the_end_of_a_view_by_a_param():
    last = X[:N][-1]
    assert place(last, {"n": 10}) == (36, (), ())
    assert [value_of(part, {"n": 10}) for part in last.bounds[-1]] == [0, 9, 10, 10]


def test_params_of_a_view():
    assert X[:10].params == frozenset()
    assert X[N:M].params == {N, M}
    assert X[:N][2:M].params == {N, M}
    assert GRAPH.external("zeros", np.broadcast_to(np.float32(0), 8))[N].params == {N}  # a stride of 0 hides nothing


def test_offsets_do_not_overflow_the_dtype_of_a_narrow_param():
    wide = GRAPH.device_array("wide", (256, 1000), np.float64)
    view = wide[ROW]
    assert view.offset.dtype == np.int64
    assert place(view, {"row": 255})[0] == 255 * 8000
    assert value_of(wide[:ROW].nbytes, {"row": 200}) == 200 * 8000


@pytest.mark.parametrize(
    ("view", "text"),
    [
        (X[2:10], "x[2:10]"),
        (X[:N], "x[:n]"),
        (X[N : N + 4], "x[n:(n + 4)]"),
        (T[1, ..., ::2], "t[1, ..., ::2]"),
        (T[1][:, 2], "t[1][:, 2]"),
        (X[-1], "x[-1]"),
    ],
)
def test_a_view_prints_as_it_was_written(view, text):
    assert str(view) == text


def test_a_buffer_prints_its_kind():
    assert str(X) == "x: float32[1024] device"
    assert str(GRAPH.host_array("h", (2, 3), np.int8, pinned=False)) == "h: int8[2, 3] pageable"


@pytest.mark.parametrize(
    "key",
    [1.5, "a", None, True, (0, 0), np.zeros(3), [0, 1], slice(1.5), slice(None, "a"), slice(None, None, 0)],
)
def test_keys_that_are_refused(key):
    with pytest.raises(DeclarationError) as caught:
        X[key]
    assert caught.value.field == "x"
    assert caught.value.remedy


@pytest.mark.parametrize("step", [-1, N])
def test_steps_are_positive_numbers(step):
    with pytest.raises(DeclarationError, match="step"):
        X[::step]


@pytest.mark.parametrize("index", [1024, -1025, 10**20])
def test_an_index_out_of_range_says_the_range(index):
    with pytest.raises(DeclarationError, match="from -1024 to 1023"):
        X[index]


def test_a_float_param_is_no_index():
    gain = GRAPH.param("gain", np.float32)
    with pytest.raises(DeclarationError, match="indexed by integers"):
        X[gain]
    with pytest.raises(DeclarationError, match="indexed by integers"):
        X[:gain]


def test_two_ellipses_are_refused():
    with pytest.raises(DeclarationError, match="one ellipsis"):
        T[..., 0, ...]


def test_operands_are_not_iterated_over():
    with pytest.raises(DeclarationError, match="cannot be iterated over"):
        list(X)


def test_len():
    assert len(X) == 1024
    assert len(T[1:3]) == 2
    with pytest.raises(DeclarationError, match="has no value"):
        len(X[:N])
    with pytest.raises(DeclarationError, match="no length"):
        len(X[0])


# Layout


@settings(max_examples=300, deadline=None)
@given(SHAPES, st.data())
def test_layout_is_that_of_numpy(shape, data):
    array = np.zeros(shape, np.float32)
    if data.draw(st.booleans()):
        array = array.transpose(data.draw(st.permutations(range(len(shape)))))
    array = array[tuple(data.draw(st.builds(slice, st.integers(0, 2), st.integers(0, 5))) for _ in shape)]
    flags = array.flags
    wanted = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
    assert layout_of(array.shape, array.strides, 4) == wanted


@pytest.mark.parametrize(
    ("view", "layout"),
    [
        (X[:N], "C"),
        (X[N:M], "C"),
        (X[:N:2], "A"),
        (T[:N], "C"),
        (T[N], "C"),
        (T[:, N], "A"),
        (T[:, :N], "A"),
        (T[0, :N], "C"),
        (T[0, 1:2, :N], "C"),
    ],
)
def test_layout_of_a_view_holds_for_any_value(view, layout):
    assert view.layout == layout


@settings(deadline=None)
@given(SHAPES, st.sampled_from("CF"))
def test_contiguous_strides_are_those_of_numpy(shape, order):
    array = np.zeros(shape, np.int64, order=order)
    if 0 not in shape:  # NumPy's strides of empty arrays have changed between versions
        assert contiguous_strides(shape, 8, order) == array.strides


@pytest.mark.parametrize(
    ("array", "nbytes"),
    [
        (np.zeros((3, 4), np.float32), 48),
        (np.zeros((3, 4), np.float32)[:, ::2], 44),
        (np.zeros((0, 4), np.float32), 0),
        (np.zeros((), np.float64), 8),
        (np.broadcast_to(np.float32(1), (100,)), 4),
    ],
)
def test_bytes_that_an_allocation_must_have(array, nbytes):
    buffer = Definition().external("x", array)
    assert buffer.allocation_nbytes == nbytes
    assert buffer.nbytes == array.size * array.itemsize


def test_what_a_buffer_is():
    graph = Definition()
    x = graph.host_array("x", (2, 3), np.int16)
    assert (x.shape, x.dtype, x.strides, x.ndim, x.space) == ((2, 3), np.int16, (6, 2), 2, "pinned")
    assert (x.buffer, x.offset, x.external, x.readonly) == (x, 0, False, False)
    assert x.definition is graph
    assert x.location[0] == __file__
    assert x[1].space == "pinned"
    assert x[1].buffer is x
