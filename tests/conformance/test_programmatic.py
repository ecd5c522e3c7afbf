"""Kernels that wait for and trigger each other over programmatic edges."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda

import graphdsl as gd
from graphdsl.device import grid_dependency_wait, launch_dependents
from graphdsl.drivers.base import Driver

SIZE = 1024


@cuda.jit
def step(x):
    i = cuda.grid(1)
    launch_dependents()
    grid_dependency_wait()
    if i < x.size:
        x[i] += 1


@cuda.jit
def late_step(x):
    i = cuda.grid(1)
    grid_dependency_wait()
    if i < x.size:
        x[i] += 1
    gd.device.launch_dependents()


@cuda.jit
def fill(x, value):
    i = cuda.grid(1)
    launch_dependents()
    if i < x.size:
        x[i] = value


@cuda.jit
def weighted(x, table, y):
    i = cuda.grid(1)
    if i < x.size:
        weight = table[i % table.size]
        gd.device.grid_dependency_wait()
        y[i] = weight * x[i]


@cuda.jit
def add(x, y, out):
    i = cuda.grid(1)
    launch_dependents()
    grid_dependency_wait()
    if i < out.size:
        out[i] = x[i] + y[i]


@cuda.jit
def slow_fill(x, value):
    """Writes long after it has let others start, so that a wait that does not wait is caught."""
    i = cuda.grid(1)
    launch_dependents()
    total = 0
    for k in range(20_000 if cuda.threadIdx.x == 0 and cuda.blockIdx.x == 0 else 0):
        total += x[k % 7]
    cuda.syncthreads()
    if i < x.size:
        x[i] = value + (1 if total == 12345 else 0)


def launched(exe: gd.GraphExec) -> np.ndarray:
    exe.launch()
    exe.synchronize()
    return exe["out"]


def chain(kernels, programmatic: bool, size: int = SIZE) -> gd.Graph:
    g = gd.Graph("chain")
    x = g.device_array("x", size, np.int32)
    before = g.memset(x, 0, name="clear")
    for number, kernel in enumerate(kernels):
        node = g.kernel(kernel, grid=gd.cdiv(size, 256), block=256, args=x, name=f"step{number}")
        g.edge(before, node, programmatic=programmatic and number > 0)
        before = node
    before >> g.memcpy(g.host_array("out", size, np.int32), x, name="store")
    return g


@pytest.mark.parametrize("programmatic", [True, False])
@pytest.mark.parametrize("kernel", [step, late_step])
def test_a_chain_of_steps_is_in_order(device: Driver, kernel, programmatic):
    with chain([kernel] * 20, programmatic).instantiate(device) as exe:
        for _ in range(2):
            assert (launched(exe) == 20).all()


def test_what_is_in_front_is_waited_for(device: Driver):
    g = gd.Graph("overlap")
    weights, table = g.host_array("weights", 8, np.int32), g.device_array("table", 8, np.int32)
    value = g.param("value", np.int32, default=3)
    x, y = g.device_array("x", SIZE, np.int32), g.device_array("y", SIZE, np.int32)
    shape = {"grid": gd.cdiv(SIZE, 256), "block": 256}
    clear = g.memset(x, 0, name="clear")
    first = g.kernel(slow_fill, args=(x, value), name="first", after=clear, **shape)
    second = g.kernel(weighted, args=(x, table, y), name="second", **shape)
    g.memcpy(table, weights, name="load") >> second
    g.edge(first, second, programmatic=True)
    second >> g.memcpy(g.host_array("out", SIZE, np.int32), y, name="store")
    with g.instantiate(device) as exe:
        exe["weights"][:] = range(8)
        for number in (3, 4):
            exe.update(value=number)
            assert (launched(exe) == number * (np.arange(SIZE) % 8)).all()


def test_edges_that_fork_and_join(device: Driver):
    g = gd.Graph("diamond")
    a, b, c, d = (g.device_array(name, SIZE, np.int32) for name in "abcd")
    shape = {"grid": gd.cdiv(SIZE, 256), "block": 256}
    top = g.kernel(fill, args=(a, np.int32(1)), name="top", **shape)
    left = g.kernel(add, args=(a, a, b), name="left", **shape)
    right = g.kernel(add, args=(a, a, c), name="right", **shape)
    bottom = g.kernel(add, args=(b, c, d), name="bottom", **shape)
    g.edge(top, [left, right], programmatic=True)
    g.edge(left, bottom, programmatic=True)
    g.edge(right, bottom)
    bottom >> g.memcpy(g.host_array("out", SIZE, np.int32), d, name="store")
    with g.instantiate(device) as exe:
        for _ in range(2):
            assert (launched(exe) == 4).all()


def test_starts_in_order_are_all_that_a_launch_order_edge_promises(device: Driver):
    g = gd.Graph("starts")
    both = g.device_array("both", 2 * SIZE, np.int32)
    shape = {"grid": gd.cdiv(SIZE, 256), "block": 256}
    first = g.kernel(fill, args=(both[:SIZE], np.int32(1)), name="first", **shape)
    second = g.kernel(fill, args=(both[SIZE:], np.int32(2)), name="second", **shape)
    g.edge(first, second, programmatic=True, port="launch_order")
    [first, second] >> g.memcpy(g.host_array("out", 2 * SIZE, np.int32), both, name="store")
    with g.instantiate(device) as exe:
        assert launched(exe).tolist() == [1] * SIZE + [2] * SIZE


def test_edges_inside_of_a_child(device: Driver):
    inner = gd.Graph("inner")
    x = inner.device_array("x", SIZE, np.int32)
    shape = {"grid": gd.cdiv(SIZE, 256), "block": 256, "args": x}
    inner.edge(inner.kernel(step, name="a", **shape), inner.kernel(step, name="b", **shape), programmatic=True)
    g = gd.Graph("outer")
    y = g.device_array("y", SIZE, np.int32)
    child = g.child(inner, {"x": y}, name="inner", after=g.memset(y, 5, name="set"))
    child >> g.memcpy(g.host_array("out", SIZE, np.int32), y, name="store")
    with g.instantiate(device) as exe:
        assert (launched(exe) == 7).all()
