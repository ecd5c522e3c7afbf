"""Nodes that allocate memory of the device and free it."""

from __future__ import annotations

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.drivers.base import Driver
from graphdsl.errors import CheckError, DriverError, UpdateError
from tests.conformance.kernels import scale

N = 1024


def scratched(graph: gd.Graph, x, y) -> list:
    """Scale x to y through memory of the graph: the nodes, in order."""
    with graph.sequence():
        alloc = graph.alloc("scratch", N, np.float32)
        first = graph.kernel(scale, grid=4, block=256, args=(x, alloc.array, 2.0, N), name="there")
        second = graph.kernel(scale, grid=4, block=256, args=(alloc.array, y, 3.0, N), name="back")
        return [alloc, first, second, graph.free(alloc)]


@pytest.fixture
def graph() -> gd.Graph:
    graph = gd.Graph("demo")
    raw, out = (graph.host_array(name, N, np.float32) for name in ("raw", "out"))
    x, y = (graph.device_array(name, N, np.float32) for name in ("x", "y"))
    first, *_, last = scratched(graph, x, y)
    graph.memcpy(x, raw) >> first
    last >> graph.memcpy(out, y)
    return graph


def launched(exe) -> np.ndarray:
    exe["raw"][:] = np.arange(N)
    exe.launch()
    exe.synchronize()
    return exe["out"].copy()


def test_memory_of_the_graph_is_there_between_alloc_and_free(device: Driver, graph):
    with graph.instantiate(device) as exe:
        for _ in range(3):
            assert (launched(exe) == 6 * np.arange(N)).all()
        exe.node("back").update(args={"gain": 1.0})
        assert (launched(exe) == 2 * np.arange(N)).all()


def test_two_execs_have_memory_of_their_own(device: Driver, graph):
    with graph.instantiate(device) as one, graph.instantiate(device) as other:
        other.node("there").update(args={"gain": 1.0})
        one.launch()
        assert (launched(other) == 3 * np.arange(N)).all()
        assert (launched(one) == 6 * np.arange(N)).all()


def test_a_view_of_it_is_an_argument_and_a_copy(device: Driver):
    graph = gd.Graph("demo")
    out = graph.host_array("out", 4, np.float32)
    n = graph.param("n", np.int32, default=0)
    alloc = graph.alloc("scratch", 8, np.float32)
    set_all, set_part = graph.memset(alloc.array, 0, name="all"), graph.memset(alloc.array[n : n + 2], 1, name="part")
    alloc >> set_all >> set_part >> graph.memcpy(out, alloc.array[:4]) >> graph.free(alloc)
    with graph.instantiate(device) as exe:
        for start, expected in ((0, [1, 1, 0, 0]), (1, [0, 1, 1, 0]), (4, [0] * 4)):
            exe.update(n=start)
            exe.launch()
            exe.synchronize()
            assert exe["out"].tolist() == expected


def test_a_child_allocates_for_itself(device: Driver):
    inner = gd.Graph("inner")
    x, y = (inner.device_array(name, N, np.float32) for name in ("x", "y"))
    scratched(inner, x, y)
    outer = gd.Graph("outer")
    raw, out = (outer.host_array(name, N, np.float32) for name in ("raw", "out"))
    a, b = (outer.device_array(name, N, np.float32) for name in ("a", "b"))
    outer.memcpy(a, raw) >> outer.child(inner, {"x": a, "y": b}, name="child") >> outer.memcpy(out, b)
    with outer.instantiate(device) as exe:
        assert (launched(exe) == 6 * np.arange(N)).all()
        exe.node("child/back").update(args={"gain": 1.0})
        assert (launched(exe) == 2 * np.arange(N)).all()


def test_a_child_works_on_memory_that_its_holder_allocates(device: Driver):
    inner = gd.Graph("inner")
    x, y = (inner.device_array(name, N, np.float32) for name in ("x", "y"))
    inner.kernel(scale, grid=4, block=256, args=(x, y, 2.0, N))
    outer = gd.Graph("outer")
    raw, out = (outer.host_array(name, N, np.float32) for name in ("raw", "out"))
    a, alloc = outer.device_array("a", N, np.float32), outer.alloc("scratch", N, np.float32)
    child = outer.child(inner, {"x": a, "y": alloc.array}, after=[outer.memcpy(a, raw), alloc])
    child >> outer.memcpy(out, alloc.array) >> outer.free(alloc)
    with outer.instantiate(device) as exe:
        assert (launched(exe) == 2 * np.arange(N)).all()


def test_copies_and_memsets_inside_work_on_memory_that_the_graph_allocates(device: Driver):
    inner = gd.Graph("inner")
    inner.memset(inner.device_array("x", N, np.uint8), 7, name="set")
    outer = gd.Graph("outer")
    alloc = outer.alloc("scratch", N, np.uint8)
    child = outer.child(inner, {"x": alloc.array}, name="child", after=alloc)
    branch = outer.if_(outer.condition("taken", default=1), name="branch", after=child)
    with branch as body:
        body.memset(alloc.array[4:], 8, name="set")
    store = outer.memcpy(outer.host_array("out", N, np.uint8), alloc.array, after=branch)
    store >> outer.free(alloc)
    with outer.instantiate(device) as exe:
        for value in (7, 9):
            exe.launch()
            exe.synchronize()
            assert exe["out"][:8].tolist() == [value] * 4 + [8] * 4
            exe.node("child/set").update(value=9)


def test_it_is_not_there_outside_of_a_launch(device: Driver, graph):
    with graph.instantiate(device) as exe:
        with pytest.raises(UpdateError, match="only while the graph runs") as caught:
            exe["scratch"]
        assert caught.value.field == "scratch"
        for name in ("alloc_scratch", "free_scratch"):
            with pytest.raises(UpdateError, match="no update changes the array"):
                exe.node(name).update(array=None)
            with pytest.raises(UpdateError, match="can be disabled"):
                exe.node(name).disable()


def test_the_graph_is_cloned_with_memory_of_its_own(device: Driver, graph):
    with graph.instantiate(device) as exe, exe.clone() as other:
        assert (launched(other) == 6 * np.arange(N)).all()


def test_more_than_there_is_names_the_node(device: Driver):
    graph = gd.Graph("demo")
    alloc = graph.alloc("huge", 1 << 50, np.uint8)
    alloc >> graph.free(alloc)
    with pytest.raises(DriverError) as caught:
        graph.instantiate(device)
    assert (caught.value.node, caught.value.code_name) == ("alloc_huge", "CUDA_ERROR_OUT_OF_MEMORY")


def test_what_is_not_ordered_is_refused_before_the_driver(device: Driver):
    graph = gd.Graph("demo")
    alloc = graph.alloc("scratch", 8, np.float32)
    graph.memset(alloc.array, 0, name="stray")
    alloc >> graph.free(alloc)
    with pytest.raises(CheckError) as caught:
        graph.instantiate(device)
    assert [(each.code, each.node) for each in caught.value.report.errors] == [("GD401", "stray"), ("GD402", "stray")]
