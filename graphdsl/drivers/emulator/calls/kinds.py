"""Kinds of nodes of the emulator by the numbers and structs of the driver.

This module must not change a graph.
"""

from __future__ import annotations

from graphdsl.drivers.emulator.batch import BATCH_MEM_OP
from graphdsl.drivers.emulator.events import EVENT_RECORD, EVENT_WAIT
from graphdsl.drivers.emulator.nodes import NodeKind
from graphdsl.drivers.emulator.problems import NOT_SUPPORTED, Problem
from graphdsl.drivers.structs import (
    HOST_NODE,
    KERNEL_NODE,
    MEMCPY_NODE,
    MEMSET_NODE,
    NODE_TYPE_ALLOC,
    NODE_TYPE_BATCH_MEM_OP,
    NODE_TYPE_CHILD,
    NODE_TYPE_CONDITIONAL,
    NODE_TYPE_EMPTY,
    NODE_TYPE_EVENT_RECORD,
    NODE_TYPE_EVENT_WAIT,
    NODE_TYPE_FREE,
    NODE_TYPE_HOST,
    NODE_TYPE_KERNEL,
    NODE_TYPE_MEMCPY,
    NODE_TYPE_MEMSET,
)

STRUCTS = {"kernel": KERNEL_NODE, "memcpy": MEMCPY_NODE, "memset": MEMSET_NODE, "host": HOST_NODE}
"""What nodes of these kinds are made from."""

NODE_TYPES = {
    "kernel": NODE_TYPE_KERNEL,
    "memcpy": NODE_TYPE_MEMCPY,
    "memset": NODE_TYPE_MEMSET,
    "host": NODE_TYPE_HOST,
    "child": NODE_TYPE_CHILD,
    "empty": NODE_TYPE_EMPTY,
    "event wait": NODE_TYPE_EVENT_WAIT,
    "event record": NODE_TYPE_EVENT_RECORD,
    "alloc": NODE_TYPE_ALLOC,
    "free": NODE_TYPE_FREE,
    "conditional": NODE_TYPE_CONDITIONAL,
    "batch mem op": NODE_TYPE_BATCH_MEM_OP,
    "captured": -1,  # no GPU driver has nodes of Python code
}
"""The driver's number of each kind, by its name."""


def kind_of(node_type: int) -> NodeKind:
    """The kind of node that a type in a `NODE_PARAMS` stands for."""
    kind = {
        NODE_TYPE_EVENT_RECORD: EVENT_RECORD,
        NODE_TYPE_EVENT_WAIT: EVENT_WAIT,
        NODE_TYPE_BATCH_MEM_OP: BATCH_MEM_OP,
    }.get(node_type)
    if kind is None:
        raise Problem(f"the emulator has no nodes of type {node_type}", NOT_SUPPORTED)
    return kind
