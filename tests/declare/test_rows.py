"""The fewest dimensions of arrays that are walked through together."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphdsl as gd
from graphdsl.declare.rows import Dimension, dimensions, padded


@pytest.fixture
def demo():
    g = gd.Graph()
    return SimpleNamespace(
        g=g,
        n=g.param("n", np.int32, default=4),
        table=g.device_array("table", (8, 16), np.float32),
        cube=g.device_array("cube", (4, 8, 16), np.float32),
        fortran=g.external("fortran", np.zeros((8, 16), np.float32, order="F")),
    )


def extents(found):
    return [each.extent for each in found]


def test_contiguous_arrays_are_one_run_of_bytes(demo):
    assert dimensions(demo.table, demo.table) == (Dimension(512, (1, 1)),)
    assert dimensions(demo.fortran) == (Dimension(512, (1,)),)
    assert dimensions(demo.table[2:5]) == (Dimension(192, (1,)),)
    assert dimensions(demo.table[3, 4:]) == (Dimension(48, (1,)),)
    assert dimensions(demo.cube[1, 2, 3]) == (Dimension(4, (1,)),)


def test_what_is_contiguous_on_one_side_alone_stays_apart(demo):
    part = demo.g.host_array("part", (8, 4), np.float32)
    assert dimensions(part, demo.table[:, 4:8]) == (Dimension(8, (16, 64)), Dimension(16, (1, 1)))
    assert dimensions(demo.table[:, 4:8], part) == (Dimension(8, (64, 16)), Dimension(16, (1, 1)))


def test_slices_and_rows(demo):
    assert dimensions(demo.cube[:, 1:3, :5]) == (Dimension(4, (512,)), Dimension(2, (64,)), Dimension(20, (1,)))
    assert dimensions(demo.cube[:, :, :5]) == (Dimension(32, (64,)), Dimension(20, (1,)))
    assert dimensions(demo.cube[:, :2]) == (Dimension(4, (512,)), Dimension(128, (1,)))
    assert dimensions(demo.cube[:, ::2]) == (Dimension(16, (128,)), Dimension(64, (1,)))
    assert dimensions(demo.cube[:, 3, 2]) == (Dimension(4, (512,)), Dimension(4, (1,)))


def test_dimensions_of_one_element_are_none(demo):
    assert dimensions(demo.cube[1:2, :, :5]) == (Dimension(8, (64,)), Dimension(20, (1,)))
    assert dimensions(demo.cube[1:2, 3:4]) == (Dimension(64, (1,)),)


def test_extents_that_follow_params(demo):
    n = demo.n
    (run,) = dimensions(demo.table[:n])
    assert str(run.extent) == "(n * 64)"
    assert [str(each.extent) for each in dimensions(demo.table[:, :n])] == ["8", "(n * 4)"]
    assert [str(each.extent) for each in dimensions(demo.cube[:n, :, :5])] == ["(n * 8)", "20"]
    # Whether the rows are whole depends on the param, so they count as rows.
    assert len(dimensions(demo.cube[:, :n])) == 2


def test_both_in_fortran_order_are_alike(demo):
    other = demo.g.external("other", np.zeros((8, 16), np.float32, order="F"))
    assert dimensions(demo.fortran, other) == (Dimension(512, (1, 1)),)
    assert dimensions(demo.fortran[:4], other[:4]) == (Dimension(16, (32, 32)), Dimension(16, (1, 1)))


def test_padding(demo):
    assert padded(dimensions(demo.table)) == (Dimension(1, (0,)), Dimension(1, (0,)), Dimension(512, (1,)))
    assert extents(padded(dimensions(demo.table[:, :2]))) == [1, 8, 8]
    assert extents(padded(dimensions(demo.cube[:, :2, :2]))) == [4, 2, 8]


@given(st.data())
def test_the_same_bytes_are_paired(data):
    """Every byte of one array stands beside the same byte of the other as in a loop over all dimensions."""
    shape = tuple(data.draw(st.lists(st.integers(1, 4), max_size=4)))
    itemsize = data.draw(st.sampled_from([1, 2, 4]))
    g, arrays = gd.Graph(), []
    for i in range(2):
        steps = [data.draw(st.integers(1, 3)) for _ in shape]
        room = tuple(extent * step for extent, step in zip(shape, steps, strict=True))
        whole = g.external(f"x{i}", np.zeros(room, f"u{itemsize}", order=data.draw(st.sampled_from("CF"))))
        arrays.append(whole[tuple(slice(None, None, step) for step in steps)])
    found = dimensions(*arrays)
    assert paired([each.extent for each in found], [each.strides for each in found]) == paired(
        [*shape, itemsize], [*zip(*(array.strides for array in arrays), strict=True), (1, 1)]
    )
    assert all(outer.strides[0] >= inner.strides[0] for outer, inner in itertools.pairwise(found))


def paired(shape, strides):
    """Offsets of the bytes of both arrays."""
    walked = itertools.product(*map(range, shape))
    return {
        tuple(sum(i * step[side] for i, step in zip(index, strides, strict=True)) for side in range(2))
        for index in walked
    }
