"""What nodes read and write, with what the code of their kernels tells, and where."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from numba import cuda

import graphdsl as gd
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
