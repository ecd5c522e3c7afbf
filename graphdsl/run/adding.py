"""Adds nodes to a graph of the driver: in one call, or one by one with their names while a profiler listens.

A profiler knows a node that runs by the call that added it, and so by the range around that call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphdsl import profiler
from graphdsl.declare.node import Node
from graphdsl.drivers.base import Driver, Handle
from graphdsl.errors import DriverError


def add_nodes(
    device: Driver, graph: Handle, nodes: Sequence[Node], kinds: np.ndarray[Any, Any], params: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Add nodes as `Driver.graph_add_nodes` does; gives their handles, and a `DriverError` the index of its node."""
    if not profiler.listens():
        return device.graph_add_nodes(graph, kinds, params)
    handles = np.zeros(len(kinds), np.uint64)
    for index, node in enumerate(nodes):
        one = slice(index, index + 1)
        with profiler.named(f"node {node.name}"):
            try:
                handles[one] = device.graph_add_nodes(graph, kinds[one], params[one])
            except DriverError as problem:
                problem.index = index
                raise
    return handles
