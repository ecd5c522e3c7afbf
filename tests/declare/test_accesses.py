"""What nodes read and write, and which bytes."""

from __future__ import annotations

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.declare.accesses import accesses
from tests.conformance import kernels


def spans(node, **values):
    return [(each.array.buffer.name, each.reads, each.writes, each.span({"n": 4} | values)) for each in accesses(node)]


@pytest.fixture
def graph():
    g = gd.Graph("accesses")
    g.param("n", np.int32, default=4)
    g.device_array("x", 16, np.float32)
    g.device_array("y", 16, np.float32)
    g.host_array("h", (4, 4), np.float32)
    return g


def test_copies_and_memsets_are_known_by_the_byte(graph):
    n, x, y, _ = graph.operands.values()
    copy = graph.memcpy(y[n : n + n], x[:n])
    assert spans(copy) == [("y", False, True, (16, 32)), ("x", True, False, (0, 16))]
    assert spans(copy, n=2) == [("y", False, True, (8, 16)), ("x", True, False, (0, 8))]
    assert spans(graph.memcpy(y, x, nbytes=n * 2)) == [("y", False, True, (0, 8)), ("x", True, False, (0, 8))]
    assert spans(graph.memset(x[2:5], 1)) == [("x", False, True, (8, 20))]


def test_kernels_and_host_functions_may_do_anything_to_what_can_be_written(graph):
    n, x, _, h = graph.operands.values()
    data = np.zeros(4, np.float32)
    data.flags.writeable = False
    fixed = graph.external("fixed", data)
    kernel = graph.kernel(kernels.weighted, grid=1, block=4, args=((x[:n], x[4:8]), (0.5, 2.0), h[:, 1]))
    assert spans(kernel) == [
        ("x", True, True, (0, 16)),
        ("x", True, True, (16, 32)),
        ("h", True, True, (4, 4 + 3 * 16 + 4)),
    ]
    assert spans(graph.host(print, (fixed, n, (h,)))) == [("fixed", True, False, (0, 16)), ("h", True, True, (0, 64))]
    assert spans(graph.empty()) == []


def test_words_are_written_or_waited_for(graph):
    flags = graph.device_array("flags", 4, np.uint32)
    operations = [gd.write_value(flags[0], 1), gd.memory_barrier(), gd.wait_value(flags[2], 1)]
    node = graph.batch_mem_ops(operations, may_deadlock=True)
    assert spans(node) == [("flags", False, True, (0, 4)), ("flags", True, False, (8, 12))]


def test_all_of_the_buffer_where_a_param_has_no_value(graph):
    n, x, *_ = graph.operands.values()
    (access,) = accesses(graph.memset(x[n:], 0))
    assert access.span({}) == (0, 64)
    assert access.span({"n": 16}) == (64, 64)
