"""What arrays are to a graph: each role, and how it shows."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda

import graphdsl as gd
from graphdsl.compile.roles import roles
from graphdsl.declare.ancestry import insides
from graphdsl.declare.operands import Buffer

PTX = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 x)\n{\nret;\n}\n"
N = 64


def copy(x, y):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = x[i]


def first(x, y, n):
    i = cuda.grid(1)
    if i < n:
        y[i] = x[i]


def add(x, y):
    y[cuda.grid(1)] += x[cuda.grid(1)]


def put(x, place, y):
    y[place[0]] = x[0]


@pytest.fixture
def g() -> gd.Graph:
    return gd.Graph("demo")


@pytest.fixture
def x(g) -> Buffer:
    return g.device_array("x", N, np.float32)


@pytest.fixture
def out(g) -> Buffer:
    return g.host_array("out", N, np.float32)


@pytest.fixture
def raw(g) -> Buffer:
    return g.host_array("raw", N, np.float32)


def launched(graph, kernel, *args, name, **more):
    return graph.kernel(kernel, grid=1, block=N, args=args, name=name, **more)


def role(array: Buffer) -> tuple[str, str | None, str]:
    graph = array.definition
    nodes = graph.all_nodes
    found = roles(nodes, insides(graph, nodes), [array])[array]
    return found.kind, found.node and found.node.name, found.why


def test_what_is_written_and_then_read_lies_between(g, x, raw, out):
    g.memcpy(x, raw) >> g.memcpy(out, x)
    assert role(x)[0] == "between"


def test_kernels_count_with_what_their_code_tells(g, x, raw, out):
    y = g.device_array("y", N, np.float32)
    g.memcpy(x, raw) >> launched(g, copy, x, y, name="copy") >> g.memcpy(out, y)
    assert (role(x)[0], role(y)[0]) == ("between", "between")


def test_what_is_read_first_is_an_input(g, x, out):
    g.memcpy(out, x, name="read") >> g.memset(x, 0)
    assert role(x) == ("input", "read", "node 'read' reads it, and nothing writes it before")


def test_what_is_read_beside_its_writer_is_an_input(g, x, raw, out):
    g.memcpy(x, raw), g.memcpy(out, x, name="read")
    assert role(x)[:2] == ("input", "read")


def test_a_sum_that_goes_on_is_an_input(g, x, raw, out):
    launched(g, add, raw, x, name="add") >> g.memcpy(out, x)
    assert role(x)[:2] == ("input", "add")


def test_a_sum_that_begins_anew_lies_between(g, x, raw, out):
    g.memset(x, 0) >> launched(g, add, raw, x, name="add") >> g.memcpy(out, x)
    assert role(x)[0] == "between"


def test_what_nothing_reads_is_an_output(g, x, raw, out):
    load = g.memcpy(x, raw)
    load >> g.memcpy(out, x) >> g.memset(x, 0, name="last")
    assert role(x) == ("output", "last", "nothing reads what node 'last' writes")


def test_a_writer_beside_the_reader_writes_an_output(g, x, raw, out):
    load = g.memcpy(x, raw)
    load >> [g.memcpy(out, x), g.memset(x, 0, name="other")]
    assert role(x)[:2] == ("output", "other")


def test_code_that_nobody_can_read(g, x, raw, out):
    kernel = gd.ptx(PTX, "k", signature="float* x")
    unknown = launched(g, kernel, x, name="unknown")
    unknown >> g.memcpy(out, x)
    assert role(x) == ("unknown", "unknown", "what node 'unknown' does to it is not known")
    g.memset(x, 0) >> unknown
    assert role(x)[0] == "between"


def test_code_that_nobody_can_read_may_write_last(g, x):
    g.memset(x, 0) >> launched(g, gd.ptx(PTX, "k", signature="float* x"), x, name="unknown")
    assert role(x) == ("output", "unknown", "node 'unknown' may write it, and nothing reads it after")


def test_what_is_said_of_code_counts(g, x, out):
    kernel = gd.ptx(PTX, "k", signature="float* x")
    launched(g, kernel, x, name="fill", reads=[], writes=[x]) >> g.memcpy(out, x)
    assert role(x)[0] == "between"


def test_what_is_written_at_a_place_that_data_tells_is_state(g, x, raw, out):
    place = g.host_array("place", 1, np.int32)
    launched(g, put, raw, place, x, name="put") >> g.memcpy(out, x, name="read")
    assert role(x) == ("state", "read", "node 'read' reads it, and where it is written before depends on data")


def test_a_part_is_not_the_whole(g, x, raw, out):
    g.memcpy(x[: N // 2], raw[: N // 2]) >> g.memcpy(out, x, name="read")
    assert role(x) == ("state", "read", "node 'read' reads it, and only a part of that is written before")


def test_a_kernel_that_a_param_holds_back_writes_a_part(g, x, raw, out):
    n = g.param("n", np.int32, default=N)
    launched(g, first, raw, x, n, name="some") >> g.memcpy(out, x, name="read")
    assert role(x)[:2] == ("state", "read")


def test_the_same_part_is_the_whole_of_what_is_read(g, x, raw, out):
    n = g.param("n", np.int32, default=N)
    g.memcpy(x[:n], raw[:n]) >> g.memcpy(out[:n], x[:n])
    assert role(x)[0] == "between"


def test_another_param_is_another_part(g, x, raw, out):
    n, m = (g.param(name, np.int32, default=N) for name in "nm")
    g.memcpy(x[:n], raw[:n]) >> g.memcpy(out[:m], x[:m], name="read")
    assert role(x)[:2] == ("state", "read")


def test_parts_make_the_whole(g, x, raw, out):
    halves = [g.memcpy(x[:32], raw[:32]), g.memcpy(x[32:], raw[32:])]
    halves >> g.empty() >> g.memcpy(out, x)
    assert role(x)[0] == "between"


def test_rows_apart_are_not_what_lies_between_them(g, x, raw, out):
    g.memcpy(x[::2], raw[::2]) >> g.memcpy(out, x, name="read")
    assert role(x)[:2] == ("state", "read")


def test_a_body_that_may_not_run_writes_nothing_for_sure(g, x, raw, out):
    with g.if_(g.condition("again", default=0), name="branch") as body:
        body.memcpy(x, raw) >> body.memcpy(out, x, name="inside")
    assert role(x)[0] == "between"
    g.memcpy(out, x, name="read", after=g.node("branch"))
    assert role(x) == (
        "state",
        "read",
        "node 'read' reads it, and what writes it before is in a body that may not run",
    )
    g.memset(x, 0) >> g.node("branch")
    assert role(x)[0] == "between"


def test_a_child_runs_for_sure(g, x, raw, out):
    inner = gd.Graph("inner")
    inner.memset(inner.device_array("y", N, np.float32), 0)
    g.child(inner, {"y": x}) >> g.memcpy(out, x)
    assert role(x)[0] == "between"


def test_what_a_loop_carries_is_written_before_it(g, x, raw, out):
    with g.while_(g.condition("more", default=1), name="loop") as body:
        launched(body, add, raw, x, name="add")
    loop = g.node("loop")
    loop >> g.memcpy(out, x)
    assert role(x)[:2] == ("input", "loop/add")
    g.memset(x, 0) >> loop
    assert role(x)[0] == "between"


def test_a_programmatic_edge_orders_what_is_read_and_a_launch_order_does_not(g, x, raw, out):
    before = launched(g, copy, raw, x, name="before")
    behind = launched(g, copy, x, out, name="behind")
    g.edge(before, behind, programmatic=True, port="launch_order")
    assert role(x)[:2] == ("input", "behind")
    again = gd.Graph("again")
    x, raw, out = again.device_array("x", N, "f4"), again.host_array("raw", N, "f4"), again.host_array("out", N, "f4")
    before = launched(again, copy, raw, x, name="before")
    again.edge(before, launched(again, copy, x, out, name="behind"), programmatic=True)
    assert role(x)[0] == "between"


def test_nothing_uses_it(x):
    assert role(x) == ("unused", None, "no node works on it")
