"""Rules GD701, GD702 and GD704: what a correct graph may do, and had better not."""

from __future__ import annotations

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.check import check
from graphdsl.declare.definition import Definition
from tests.check.conftest import scale
from tests.check.findings import cheap, in_any_order, judged


def test_pageable_memory_in_copies(demo):
    demo.g.memcpy(demo.x, demo.staged, name="from_pageable")
    demo.g.memcpy(demo.g.external("out", np.zeros(1024, np.float32)), demo.x, name="to_pageable")
    demo.g.memcpy(demo.x, demo.raw, name="from_pinned")
    demo.g.memcpy(demo.staged, demo.raw, name="on_the_host")
    report = cheap(in_any_order(demo.g))
    assert judged(report) == [("GD701", "from_pageable", "source"), ("GD701", "to_pageable", "destination")]
    assert report.ok
    assert len([found for found in report.advice if found.code == "GD701"]) == 2


def test_operands_that_no_node_uses():
    g = gd.Graph()
    n, lost = g.param("n", np.int32, default=4), g.param("lost", np.int32, default=4)
    x, y, z = (g.device_array(name, 8, np.float32) for name in "xyz")
    g.kernel(scale, grid=n, block=4, args=((x, (y[1:],)), x, 1.0, 4))
    report = cheap(g)
    assert [(each.severity, each.node, each.field) for each in report] == [
        ("warning", None, "param 'lost'"),
        ("warning", None, "buffer 'z'"),
    ]
    assert report[0].location == lost.location
    assert report[1].location == z.location
    g.host(print, args=(lost,))
    g.memset(z[:n], 0)
    assert not cheap(g)


@pytest.mark.parametrize(("before", "after", "advised"), [(5, 5, True), (4, 4, True), (3, 4, False), (1, 20, False)])
def test_many_before_many_are_told_of_a_barrier(before, after, advised):
    g = Definition("wide")
    first = [g.empty(name=f"a{i}") for i in range(before)]
    second = [g.empty(name=f"b{i}") for i in range(after)]
    g.edge(first, second)
    found = [each for each in check(g) if each.code == "GD704"]
    assert [(each.node, each.field, each.severity) for each in found] == [("a0", "edges", "advice")] * advised
    if advised:
        assert found[0].nodes == tuple(node.name for node in first)


def test_a_barrier_and_programmatic_edges_need_none():
    g = Definition("wide")
    barrier = g.empty(name="barrier")
    g.edge([g.empty() for _ in range(6)], barrier)
    g.edge(barrier, [g.empty() for _ in range(6)])
    g.edge([g.empty() for _ in range(6)], [g.empty() for _ in range(6)], programmatic=True)
    assert [each for each in check(g) if each.code == "GD704"] == []
