"""What arrays hold where nobody says what."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda

import graphdsl as gd


@cuda.jit
def copied(x, y):
    i = cuda.grid(1)
    y[i] = x[i]


def test_what_is_read_first_is_drawn():
    g = gd.Graph("inputs")
    raw = g.host_array("raw", 4, np.float32)
    state, made, out = (g.device_array(name, 4, np.float32) for name in ("state", "made", "out"))
    theirs = g.external("theirs", np.ones(4, np.float32))
    with g.sequence():
        g.kernel(copied, grid=1, block=4, args=(state, made), name="step")
        g.memcpy(state, raw, name="next")
        g.memcpy(out, theirs, name="take")
        g.memcpy(raw, out, name="give")
    assert list(gd.testing.random_inputs(g)) == ["raw", "state"]
    assert gd.testing.assert_order_independent(g, gd.testing.random_inputs(g)).all


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.complex64, np.int8, np.uint64, np.bool_])
def test_every_type_of_number_is_drawn_by_the_seed(dtype):
    g = gd.Graph("types")
    g.host_array("raw", (5, 20), dtype)
    found, again, other = (gd.testing.random_inputs(g, seed)["raw"] for seed in (1, 1, 2))
    assert (found.dtype, found.shape) == (np.dtype(dtype), (5, 20))
    assert found.tobytes() == again.tobytes() != other.tobytes()
    assert len(np.unique(found)) > 1


def test_what_has_fields_holds_zeros():
    g = gd.Graph("fields")
    g.host_array("raw", 3, np.dtype([("a", np.int32), ("b", np.float32)]))
    assert gd.testing.random_inputs(g)["raw"].tolist() == [(0, 0.0)] * 3
