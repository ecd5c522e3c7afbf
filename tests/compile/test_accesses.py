"""What nodes read and write, with what the code of their kernels tells, and where."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cuda

import graphdsl as gd
from graphdsl import device
from graphdsl.compile.accesses import accesses


@cuda.jit
def shifted(x, y, n):
    i = cuda.grid(1)
    if i < n:
        y[i] = x[i + 1]


@cuda.jit
def placed(x, y, place):
    i = cuda.threadIdx.x + cuda.blockIdx.x * cuda.blockDim.x
    if i < x.size:
        y[place + i] = x[i]


@cuda.jit
def strided(x, y, n):
    for i in range(cuda.grid(1), n, cuda.gridsize(1)):
        y[i] += x[i]


@pytest.fixture
def graph():
    g = gd.Graph("graph")
    for name in "xy":
        g.device_array(name, 1024, np.float32)
    g.param("n", np.int32, default=100)
    g.param("far", np.int64, default=100)
    return g


def spans(node, **values):
    return [
        (each.array.buffer.name, "r" * each.reads + "w" * each.writes, each.span(values)) for each in accesses(node)
    ]


def launched(g, kernel, *args, grid=4, block=256):
    return g.kernel(kernel, grid=grid, block=block, args=args)


def test_a_guard_narrows_to_what_it_lets_through(graph):
    x, y, n, _ = graph.operands.values()
    node = launched(graph, shifted, x, y, n, grid=gd.cdiv(n, 256))
    assert spans(node, n=100) == [("x", "r", (4, 404)), ("y", "w", (0, 400))]
    assert spans(node, n=3000) == [("x", "r", (4, 4096)), ("y", "w", (0, 4096))]
    assert spans(node, n=-1) == [("x", "r", (4, 4)), ("y", "w", (0, 0))]
    assert [each.span({}) for each in accesses(node)] == [(0, 4096), (0, 4096)], "without values it is everything"


def test_the_launch_bounds_it_too(graph):
    x, y, n, _ = graph.operands.values()
    node = launched(graph, shifted, x, y, n, grid=1, block=32)
    assert spans(node, n=100) == [("x", "r", (4, 132)), ("y", "w", (0, 128))]


def test_a_stride_of_the_grid_goes_up_to_the_end(graph):
    x, y, n, _ = graph.operands.values()
    node = launched(graph, strided, x, y[256:], n, grid=1, block=32)
    assert spans(node, n=100) == [("x", "r", (0, 400)), ("y", "rw", (1024, 1424))]


def test_a_place_shifts_the_range_and_a_negative_one_counts_from_the_end(graph):
    x, y, n, far = graph.operands.values()
    for place in (n, far):
        node = launched(graph, placed, x[:64], y, place)
        assert spans(node, n=100, far=100) == [("x", "r", (0, 256)), ("y", "w", (400, 656))]
        assert spans(node, n=-100, far=-100) == [("x", "r", (0, 256)), ("y", "w", (0, 4096))]
        assert [each.scattered for each in accesses(node)] == [False, True]
    assert spans(node, far=2**63 - 1) == [("x", "r", (0, 256)), ("y", "w", (0, 4096))], "the sum may not fit"


@cuda.jit
def in_rows(x, y, width, height):
    i, j = cuda.grid(2)
    if i < height and j < width:
        y[i * width + j] = x[i, j]


@cuda.jit
def by_flat(x, y, n):
    i = cuda.grid(1)
    if i < n:
        x.ravel()[i] = y[1:][i]


@cuda.jit
def row(x, y, n):
    x[n + 1][:] = y[0]
    x[2, 3] = 1


@cuda.jit
def both_ends(x, y, n):
    i = cuda.grid(1)
    if i == 0:
        y[8] = x[n]
    elif i < n:
        y[i] = x[i]


@cuda.jit
def looped(x, y, n):
    i = cuda.grid(1)
    while i < n:
        y[i] = x[i // 2 + i % 4]
        i += cuda.gridsize(1)


@cuda.jit
def wrapping(x, y, n):
    i = cuda.grid(1)
    if i < n:
        y[i - 1] = x[i]


def test_products_of_sizes_bound_flat_rows(graph):
    _, y, n, _ = graph.operands.values()
    m = graph.device_array("m", (8, 16), np.float32)
    node = graph.kernel(in_rows, grid=(8, 8), block=(8, 8), args=(m, y, n, 3))
    assert spans(node, n=5) == [("m", "r", (0, 192)), ("y", "w", (0, 60))]
    assert spans(node, n=-5) == [("m", "r", (0, 192)), ("y", "w", (0, 0))]


def test_flat_views_and_slices_keep_their_place(graph):
    _, y, n, _ = graph.operands.values()
    m = graph.device_array("m", (8, 16), np.float32)
    assert spans(launched(graph, by_flat, m, y, n), n=20) == [("m", "w", (0, 80)), ("y", "r", (4, 84))]
    strided = graph.device_array("strided", (8, 16), np.float32, pitch=128)
    assert spans(launched(graph, by_flat, strided, y, n), n=20)[0] == ("strided", "w", (0, 960))


def test_rows_count_the_first_axis(graph):
    _, y, n, _ = graph.operands.values()
    m = graph.device_array("m", (8, 16), np.float32)
    assert spans(launched(graph, row, m, y, n), n=4) == [("m", "w", (128, 384)), ("y", "r", (0, 4))]
    assert spans(launched(graph, row, m, y, n), n=-4)[0] == ("m", "w", (0, 512)), "it is counted from the end"
    m = graph.device_array("column", (8, 16), np.float32)[:, 2:]
    assert spans(launched(graph, row, m, y, n), n=4)[0] == ("column", "w", (136, 384))


def test_several_places_are_all_within_the_range(graph):
    x, y, n, _ = graph.operands.values()
    node = launched(graph, both_ends, x, y, n)
    assert spans(node, n=4) == [("x", "r", (0, 20)), ("y", "w", (0, 36))]


def test_a_loop_is_judged_by_all_its_rounds(graph):
    x, y, n, _ = graph.operands.values()
    assert spans(launched(graph, looped, x, y, n), n=40) == [("x", "r", (0, 172)), ("y", "w", (0, 160))]


def test_what_may_be_negative_is_anywhere(graph):
    x, y, n, _ = graph.operands.values()
    assert spans(launched(graph, wrapping, x, y, n), n=40) == [("x", "r", (0, 160)), ("y", "w", (0, 4096))]


def test_parts_of_ranges_are_those_of_the_views_that_are_passed(graph):
    x, y, *_ = graph.operands.values()
    node = launched(graph, strided, x[100:200:2], y[8:], 20)
    assert spans(node) == [("x", "r", (400, 556)), ("y", "rw", (32, 112))]


def test_a_read_only_external_is_never_written(graph):
    memory = np.zeros(1024, np.float32)
    memory.flags.writeable = False
    _, y, n, _ = graph.operands.values()
    node = launched(graph, shifted, graph.external("fixed", memory), y, n)
    assert [each.writes for each in accesses(node) if each.array.buffer.name == "fixed"] == [False]


def test_other_nodes_are_as_declared(graph):
    x, y, *_ = graph.operands.values()
    assert [(each.reads, each.writes) for each in accesses(graph.memcpy(y, x))] == [(False, True), (True, False)]
    source = gd.cuda_source('extern "C" __global__ void k(float* x) {}', "k")
    (found,) = accesses(launched(graph, source, x))
    assert (found.reads, found.writes, found.known) == (True, True, False)


def test_arguments_that_misfit_are_unknown(graph):
    x, *_ = graph.operands.values()
    (found,) = accesses(launched(graph, shifted, x))
    assert (found.reads, found.writes, found.known) == (True, True, False)


def test_a_global_that_changes_is_noticed(graph, monkeypatch):
    x, y, *_ = graph.operands.values()
    node = launched(graph, by_global, x, y)
    assert [each.array.buffer.name for each in accesses(node)] == ["x"]
    monkeypatch.setitem(globals(), "helper", second)
    assert [each.array.buffer.name for each in accesses(node)] == ["y"]


@cuda.jit(device=True)
def first(x, y):
    x[0] = 1


@cuda.jit(device=True)
def second(x, y):
    y[0] = 1


helper = first


@cuda.jit
def by_global(x, y):
    helper(x, y)


def test_numbas_simulator_leaves_kernels_unknown():
    code = """
import numpy as np
import graphdsl as gd
from graphdsl.compile.accesses import accesses
g = gd.Graph("g")
x = g.device_array("x", 4, np.float32)
(found,) = accesses(g.kernel(lambda x: None, grid=1, block=1, args=x))
assert (found.reads, found.writes, found.known) == (True, True, False)
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"})


def test_numba_is_not_imported_for_graphs_without_kernels():
    code = """
import sys
import numpy as np
import graphdsl as gd
from graphdsl.compile.accesses import accesses
g = gd.Graph("g")
x, y = (g.device_array(name, 4, np.float32) for name in "xy")
assert len(list(accesses(g.memcpy(x, y)))) == 2
assert "numba" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


VECTORS = {
    "load4": (lambda y, i: device.load4(y, i), 16),
    "load4_cg": (lambda y, i: device.load4_cg(y, i), 16),
    "load_word": (lambda y, i: device.load_word(y, i), 4),
    "prefetch_l2": (lambda y, i: device.prefetch_l2(y, i), 1),
    "store4": (lambda y, i: device.store4(y, i, 1, 1, 1, 1), 16),
    "atomic_add": (lambda y, i: device.atomic_add(y, i, 1), 4),
    "atomic_add4": (lambda y, i: device.atomic_add4(y, i, 1, 1, 1, 1), 16),
}


@pytest.mark.parametrize("name", VECTORS)
@settings(max_examples=30, deadline=None)
@given(
    step=st.integers(-6, 6), start=st.integers(0, 300), mask=st.sampled_from([7, 31, 1023]), bound=st.integers(1, 40),
    itemsize=st.sampled_from([1, 2, 4]), grid=st.integers(1, 3), block=st.integers(1, 40),
)  # fmt: skip
def test_what_vectors_touch_is_in_what_is_told(name, step, start, mask, bound, itemsize, grid, block):
    call, nbytes = VECTORS[name]
    if name.startswith(("store", "atomic")):
        itemsize = 4
    called = cuda.jit(call, device=True)

    @cuda.jit
    def kernel(y):
        i = cuda.blockIdx.x * cuda.blockDim.x + (cuda.threadIdx.x & mask)
        if i < bound:
            called(y, start + step * i)

    g = gd.Graph("vectors")
    y = g.device_array("y", 4096, {1: np.uint8, 2: np.float16, 4: np.float32}[itemsize])
    node = g.kernel(kernel, grid=grid, block=block, args=y)
    places = {b * block + (t & mask) for b in range(grid) for t in range(block)}
    touched = [(start + step * i) * itemsize for i in places if i < bound and start + step * i >= 0]
    found = [each.span({}) for each in accesses(node)]
    for first in touched:
        assert any(low <= first and first + nbytes <= high for low, high in found), (first, found)


def test_vectors_of_threads_are_told_closely(graph):
    x, y, *_ = graph.operands.values()

    def kernel(x, y):
        i = cuda.threadIdx.x & 1023
        a, b, c, d = device.load4(x, 4 * i)
        device.atomic_add4(y, 4 * i + 8, a, b, c, d)

    node = launched(graph, kernel, x, y, grid=1, block=32)
    assert spans(node) == [("x", "r", (0, 512)), ("y", "rw", (32, 544))]
    assert [each.atomic for each in accesses(node)] == [None, "add"]
