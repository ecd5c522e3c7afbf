"""What nodes read and write, in words and at edges."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda

import graphdsl as gd
from graphdsl.draw.flows import Flow, Flows, rows


def scale(x, y, n):
    i = cuda.grid(1)
    if i < n:
        y[i] = 2 * x[i]


def count(x, bins):
    cuda.atomic.add(bins, int(x[0]), 1)


def append(cache, x, place):
    cache[place] = x[0]


@pytest.fixture
def g():
    g = gd.Graph("demo")
    n = g.param("n", np.int32, default=4)
    x, y, bins = (g.device_array(name, 8, np.float32) for name in ("x", "y", "bins"))
    with g.sequence():
        g.memset(x, 1, name="set")
        g.kernel(scale, grid=1, block=8, args=(x[2:], y, n), name="scale")
        g.kernel(count, grid=1, block=1, args=(y, bins), name="count")
        g.memset(y, 0, name="again")
    return g


def told(g, name):
    return [row[1:] for row in rows(g) if row.node is g.node(name)]


def test_rows_say_what_where_and_why(g):
    x, y, bins = (g.operands[name] for name in ("x", "y", "bins"))
    g.kernel(append, grid=1, block=1, args=(bins, y, 3), name="append")
    g.kernel(gd.cuda_source('extern "C" __global__ void k(float* x) {}', "k"), grid=1, block=1, args=x, name="other")
    g.kernel(lambda a, b: None, grid=1, block=1, args=(x, y), name="nothing")
    g.host(print, (g.host_array("h", 4, np.float32), 3), name="say")
    assert told(g, "set") == [("destination", "x", "writes", "all of it", "")]
    assert told(g, "scale") == [
        ("x", "x[2:]", "reads", "bytes 0 to 16", ""),
        ("y", "y", "writes", "bytes 0 to 16", ""),
    ]
    assert told(g, "count")[1] == ("bins", "bins", "atomic add", "all of it, scattered", "")
    assert told(g, "append")[0][:4] == ("cache", "bins", "writes", "bytes 12 to 16, scattered")
    assert told(g, "nothing") == [("a", "x", "nothing", "", ""), ("b", "y", "nothing", "", "")]
    assert told(g, "other") == [
        (
            "x",
            "x",
            "unknown, so reads and writes",
            "all of it",
            "nobody reads a kernel that is not Numba's: say it with reads= and writes=",
        )
    ]
    assert told(g, "say")[0][-1] == "nobody reads a host function: say it with reads= and writes="


def test_an_edge_carries_what_is_written_and_read_and_keeps_the_rest_from_being_written_early(g):
    flows = Flows(g)
    pairs = [("set", "scale"), ("scale", "count"), ("count", "again"), ("scale", "again"), ("set", "count")]
    assert [flows.along(g.node(one), g.node(other)) for one, other in pairs] == [
        Flow(("x",), ()),
        Flow(("y",), ()),
        Flow((), ("y",)),
        Flow((), ("y",)),
        Flow((), ()),
    ]


def test_only_bytes_that_both_touch_flow(g):
    y = g.operands["y"]
    low, high = g.memset(y[:4], 0, name="low"), g.memset(y[4:], 0, name="high")
    flows = Flows(g)
    assert flows.along(g.node("scale"), low) == Flow((), ("y",))
    assert flows.along(g.node("scale"), high) == Flow((), ())


def test_a_node_that_holds_others_does_what_they_do(g):
    inner = gd.Graph("inner")
    inner.memset(inner.device_array("z", 8, np.float32), 0)
    holder = g.child(inner, {"z": g.operands["x"]}, name="child")
    assert Flows(g).along(g.node("scale"), holder) == Flow((), ("x",))


def test_labels_are_short_and_explanations_are_not():
    flow = Flow(("a", "b", "c"), ("d", "e"))
    assert flow.text == "a, b, c and 2 more"
    assert flow.explanation == "carries a, b, c; lets be used again: d, e"
    assert Flow((), ("d",)).text == "(d)"
    assert Flow((), ()).text == ""


def test_edges_of_the_drawing_are_marked_if_asked_for(g):
    plain, marked = g.to_dot(), g.to_dot(access=True)
    assert "lets be used again" not in plain
    line = next(line for line in marked.splitlines() if '"count" -> "again"' in line)
    assert "> (y) <" in line
    assert 'tooltip="lets be used again: y"' in line
    assert g.draw.__doc__


def test_a_cycle_is_drawn_with_marks_too(g):
    g.node("again") >> g.node("set")
    assert "carries x" in g.to_dot(access=True)
