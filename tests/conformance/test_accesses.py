"""What kernels write lies where their code said, and nowhere else; what they do not write stays as it was."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda

import graphdsl as gd
from graphdsl.compile.accesses import accesses

SIZE, KEPT = 1024, -7.0


@cuda.jit
def guarded(x, y, n, place):
    i = cuda.grid(1)
    if i < n:
        y[i] = x[i]


@cuda.jit
def placed(x, y, n, place):
    i = cuda.grid(1)
    if i < n:
        y[place + i] = x[i]


@cuda.jit
def strided(x, y, n, place):
    for i in range(cuda.grid(1) + 3, n, cuda.gridsize(1)):
        y[i] = x[i]


@cuda.jit
def in_view(x, y, n, place):
    y[2:][cuda.blockIdx.x] = x[0]


@cuda.jit
def counted_down(x, y, n, place):
    for i in range(n, 4, -1):
        y[i] = x[i]


@cuda.jit
def in_rows(x, y, n, place):
    i, j = cuda.grid(2)
    if i < 3 and j < n:
        y[i * n + j] = x[i]


@cuda.jit
def from_the_end(x, y, n, place):
    y[place - 9] = x[0]


KERNELS = [guarded, placed, strided, in_view, counted_down, in_rows, from_the_end]


@pytest.mark.parametrize("place", [-4, 0, 5])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.py_func.__name__)
def test_nothing_else_is_written(device, kernel, place):
    g = gd.Graph("graph")
    n, at = g.param("n", np.int32, default=7), g.param("place", np.int64, default=place)
    x, y = g.device_array("x", SIZE, np.float32), g.device_array("y", SIZE, np.float32)
    out = g.host_array("out", SIZE, np.float32)
    with g.sequence():
        g.memset(x, 1)
        g.memset(y, np.float32(KEPT))
        node = g.kernel(kernel, grid=2, block=(4, 8) if kernel is in_rows else 16, args=(x, y, n, at))
        g.memcpy(out, y)
    (told,) = [each for each in accesses(node) if each.array is y]
    assert (told.reads, told.writes) == (False, True)
    start, stop = (end // 4 for end in told.span({"n": 7, "place": place}))
    with g.instantiate(device) as exe:
        exe.launch()
        exe.synchronize()
        found = np.array(exe["out"])
    written = np.flatnonzero(found != KEPT)
    assert len(written)
    assert start <= written.min()
    assert written.max() < stop
    if kernel is not from_the_end and not (kernel is placed and place < 0):  # what may wrap is anywhere
        assert (start, stop) == (written.min(), written.max() + 1), "the range is as narrow as it can be"
