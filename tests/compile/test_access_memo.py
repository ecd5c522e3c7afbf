"""What is remembered of kernels and expressions keeps no graph, nor the memory that the graph adopted."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.compile.accesses import accesses
from tests.conformance import kernels


@pytest.mark.parametrize("by", ["param", "view", "grid", "number"])
def test_a_graph_that_is_dropped_is_gone(by):
    owner = np.zeros(64, np.float32)
    g = gd.Graph("dropped")
    n = g.param("n", np.int32, default=8)
    x, y = g.external("x", owner), g.device_array("y", 64, np.float32)
    part = x[:n] if by == "view" else x
    grid = gd.cdiv(n, 8) if by == "grid" else 1
    node = g.kernel(kernels.scale, grid=grid, block=8, args=(part, y, 2.0, n if by == "param" else 8))
    assert len(list(accesses(node))) == 2
    graph, memory = weakref.ref(g), weakref.ref(owner)
    del g, n, x, y, part, grid, node, owner
    gc.collect()
    assert graph() is None
    assert memory() is None
