"""All kernels of a graph are compiled ahead, each once, and what comes later finds them."""

import numpy as np
import pytest
from numba import cuda

import graphdsl as gd
from graphdsl.compile import numba


def graph():
    @cuda.jit
    def double(x, y):
        y[cuda.grid(1)] = 2 * x[cuda.grid(1)]

    @cuda.jit
    def add(x, y):
        y[cuda.grid(1)] += x[cuda.grid(1)]

    g = gd.Graph("ahead")
    x, y = (g.device_array(name, 32, np.float32) for name in "xy")
    z = g.device_array("z", 32, np.float64)
    with g.sequence():
        g.memset(x, 1.0)
        for _ in range(5):
            g.kernel(double, grid=1, block=32, args=(x, y))
        g.kernel(add, grid=1, block=32, args=(x, y))
        g.kernel(double, grid=1, block=32, args=(y, z))
    return g


def test_each_kernel_is_compiled_once_for_its_types(monkeypatch):
    built = []
    build = numba._build
    monkeypatch.setattr(numba, "_build", lambda kernel, *rest: built.append(kernel.name) or build(kernel, *rest))
    g, seen = graph(), []
    g.compile("sm_80", progress=lambda *told: seen.append(told))
    assert seen == [(0, 3, "double"), (1, 3, "add"), (2, 3, "double"), (3, 3, "")]
    built.clear()
    g.check("sm_80")
    with g.instantiate(gd.emulator(target="sm_80")):
        assert not built
    g.compile("sm_80")
    assert not built
    g.compile(gd.emulator(target="sm_90"))


def test_what_does_not_compile_is_named():
    g = gd.Graph("wrong")

    def broken(x):
        x[0] = undefined_name  # noqa: F821

    g.kernel(broken, grid=1, block=1, args=(g.device_array("x", 1, np.float32),), name="culprit")
    with pytest.raises(gd.CompileError) as caught:
        g.compile()
    assert caught.value.node == "culprit"


def test_a_graph_without_kernels_has_nothing_to_compile():
    seen = []
    gd.Graph("empty").compile(progress=lambda *told: seen.append(told))
    assert seen == [(0, 0, "")]
