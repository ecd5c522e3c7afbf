"""What the driver tells of the nodes of a graph: the structs that they were made from, as it writes them.

This module must not change a graph.
"""

from __future__ import annotations

import ctypes

import numpy as np

from graphdsl.drivers.base import Address
from graphdsl.drivers.emulator.graph import Node
from graphdsl.drivers.emulator.nodes import NodeKind
from graphdsl.drivers.emulator.problems import Problem
from graphdsl.drivers.structs import KERNEL_NODE, MEMCPY_NODE, MEMSET_NODE

_WITHOUT_CONTEXT = (MEMCPY_NODE, MEMSET_NODE)
"""Where the driver writes no context: it takes that beside the struct."""


def write_params(node: Node, kind: NodeKind, dtype: np.dtype[np.void], address: Address) -> None:
    """Write the struct that a node of a kind was made from to an address.

    The parameters of a kernel lie in memory of the node.
    """
    if node.kind is not kind:
        raise Problem(f"node {node.handle:#x} is a {node.kind.name} node, not a {kind.name} node")
    row = np.frombuffer(bytearray(node.given), dtype)
    if dtype in _WITHOUT_CONTEXT:
        row["ctx"] = 0
    elif dtype is KERNEL_NODE:
        row["kernel_params"] = _parameters(node)
    ctypes.memmove(address, row.ctypes.data, dtype.itemsize)


def _parameters(node: Node) -> Address:
    """Where the node has an array of pointers to the parameters of its kernel."""
    if node.shown is None:
        launch = node.params
        data = np.frombuffer(launch.parameters + b"\0", np.uint8)
        offsets = [offset for offset, _ in launch.kernel.image.layout.parameters]
        node.shown = data, np.array([data.ctypes.data + offset for offset in offsets] + [0], np.uint64)
    return int(node.shown[1].ctypes.data)
