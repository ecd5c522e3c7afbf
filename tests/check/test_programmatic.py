"""Rules GD116 to GD118: programmatic edges join kernels, of which one waits and the other triggers."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda

import graphdsl as gd
from graphdsl import device
from graphdsl.check import check
from tests.check.findings import cheap, judged, only


@cuda.jit
def plain(x):
    x[0] += 1


@cuda.jit
def waits(x):
    device.grid_dependency_wait()
    x[0] += 1


@cuda.jit
def triggers(x):
    device.launch_dependents()
    x[0] += 1


@cuda.jit
def both(x):
    device.launch_dependents()
    device.grid_dependency_wait()
    x[0] += 1


def pair(first, second, **options) -> gd.Graph:
    """Two kernels with a programmatic edge between them."""
    g = gd.Graph("pair")
    x = g.device_array("x", 1, np.int32)
    g.memset(x, 0, name="clear") >> g.kernel(first, grid=1, block=1, args=x, name="first")
    g.edge(g.node("first"), g.kernel(second, grid=1, block=1, args=x, name="second"), programmatic=True, **options)
    return g


def test_a_kernel_that_triggers_and_one_that_waits_are_right():
    assert judged(check(pair(triggers, waits))) == []
    assert judged(check(pair(both, both))) == []


def test_a_kernel_that_never_waits_is_refused():
    found = only(check(pair(triggers, plain)))
    assert (found.code, found.severity, found.node, found.field) == ("GD117", "error", "second", "edges")
    assert found.value == "first -> second"
    assert found.nodes == ("first", "second")
    assert "may start before first has ended" in found.rule
    assert "grid_dependency_wait()" in found.remedy
    assert found.location[0] == __file__


def test_a_kernel_that_never_triggers_is_pointed_out():
    found = only(check(pair(waits, waits)))
    assert (found.code, found.severity, found.node, found.field) == ("GD118", "advice", "first", "edges")
    assert found.nodes == ("first", "second")
    assert "launch_dependents()" in found.remedy


def test_one_defect_does_not_hide_the_other():
    assert judged(check(pair(plain, plain))) == [("GD117", "second", "edges"), ("GD118", "first", "edges")]


def test_edges_that_only_order_starts_ask_for_nothing():
    assert judged(check(pair(plain, plain, port="launch_order"))) == []


def test_a_wait_in_some_threads_or_in_a_device_function_is_a_wait():
    @cuda.jit(device=True)
    def inner(n):
        if n:
            device.grid_dependency_wait()

    @cuda.jit
    def some(x):
        inner(cuda.threadIdx.x)
        x[0] = 1

    assert judged(check(pair(triggers, some))) == []


@pytest.mark.parametrize("port", ["programmatic", "launch_order"])
@pytest.mark.parametrize("which", [0, 1])
def test_ends_that_are_no_kernels_are_refused(which, port):
    g = gd.Graph("ends")
    x = g.device_array("x", 1, np.int32)
    nodes = [g.kernel(plain, grid=1, block=1, args=x, name="run"), g.memset(x, 0, name="clear")]
    first, second = nodes[::-1] if which else nodes
    g.edge(first, second, programmatic=True, port=port)
    found = only(check(g))
    assert (found.code, found.node, found.field) == ("GD116", "clear", "edges")
    assert found.value == f"{first.name} -> {second.name}"
    assert "clear is a memset node" in found.rule
    g = gd.Graph("ends")
    g.edge(g.empty(name="a"), g.empty(name="b"), programmatic=True, port=port)
    assert judged(cheap(g)) == [("GD116", "a", "edges"), ("GD116", "b", "edges")]


def test_what_is_not_compiled_is_not_judged():
    assert judged(cheap(pair(plain, plain))) == []


def test_edges_inside_of_children_are_judged():
    g = gd.Graph("outer")
    g.child(pair(triggers, plain), name="inner")
    assert [(found.code, found.node) for found in check(g).errors] == [("GD117", "inner/second")]
