"""The driver's node parameter structs as NumPy dtypes: the same bytes for the GPU and for the emulator.

Layouts are those of cuda.h 13 on 64-bit machines; the tests compare them with `cuda.bindings`. This module must not
call the driver.
"""

from __future__ import annotations

from typing import Any

import numpy as np

KERNEL_NODE = np.dtype(
    [
        ("func", np.uint64),
        ("grid", np.uint32, 3),
        ("block", np.uint32, 3),
        ("shared_bytes", np.uint32),
        ("padding", np.uint32),
        ("kernel_params", np.uint64),
        ("extra", np.uint64),
        ("kern", np.uint64),
        ("ctx", np.uint64),
    ]
)
"""``CUDA_KERNEL_NODE_PARAMS_v2``: ``kern`` and ``ctx`` are given and ``func`` is NULL."""


def _memcpy_side(side: str) -> list[tuple[str, type]]:
    fields = ("x_bytes", "y", "z", "lod")
    return [
        *((f"{side}_{field}", np.uint64) for field in fields),
        (f"{side}_memory_type", np.uint32),
        (f"{side}_padding", np.uint32),
        *((f"{side}_{field}", np.uint64) for field in ("host", "device", "array", "reserved", "pitch", "height")),
    ]


MEMCPY_NODE = np.dtype(
    [
        *_memcpy_side("source"),
        *_memcpy_side("destination"),
        ("width", np.uint64),
        ("height", np.uint64),
        ("depth", np.uint64),
        ("ctx", np.uint64),
    ]
)
"""``CUDA_MEMCPY3D``, and behind it the context, which the driver takes beside it. A 1-D copy has height and depth 1."""

MEMSET_NODE = np.dtype(
    [
        ("destination", np.uint64),
        ("pitch", np.uint64),
        ("value", np.uint32),
        ("element_size", np.uint32),
        ("width", np.uint64),
        ("height", np.uint64),
        ("ctx", np.uint64),
    ]
)
"""``CUDA_MEMSET_NODE_PARAMS_v2``: the width counts elements."""

HOST_NODE = np.dtype([("function", np.uint64), ("user_data", np.uint64)])
"""``CUDA_HOST_NODE_PARAMS``."""

ATTRIBUTE_VALUE_BYTES = 64
"""Of ``CUlaunchAttributeValue``, a union: what an attribute says stands at its start, and the rest is zero."""


def _attribute(*fields: tuple[Any, ...]) -> np.dtype[Any]:
    places: Any = np.dtype(list(fields), align=True).fields
    formats, offsets = zip(*(place[:2] for place in places.values()))
    return np.dtype({"names": list(places), "formats": formats, "offsets": offsets, "itemsize": ATTRIBUTE_VALUE_BYTES})


ACCESS_POLICY_WINDOW, COOPERATIVE, CLUSTER_DIMENSION, CLUSTER_SCHEDULING_POLICY = 1, 2, 4, 5
PRIORITY, MEM_SYNC_DOMAIN_MAP, MEM_SYNC_DOMAIN, PREFERRED_CLUSTER_DIMENSION = 8, 9, 10, 11
"""``CUlaunchAttributeID`` of the attributes that kernel nodes can have."""

ATTRIBUTE_VALUES: dict[int, np.dtype[Any]] = {
    ACCESS_POLICY_WINDOW: _attribute(
        ("base", np.uint64), ("nbytes", np.uint64), ("hit_ratio", np.float32), ("hit", np.uint32), ("miss", np.uint32)
    ),
    COOPERATIVE: _attribute(("cooperative", np.int32)),
    CLUSTER_DIMENSION: _attribute(("dims", np.uint32, 3)),
    CLUSTER_SCHEDULING_POLICY: _attribute(("policy", np.uint32)),
    PRIORITY: _attribute(("priority", np.int32)),
    MEM_SYNC_DOMAIN_MAP: _attribute(("default", np.uint8), ("remote", np.uint8)),
    MEM_SYNC_DOMAIN: _attribute(("domain", np.uint32)),
    PREFERRED_CLUSTER_DIMENSION: _attribute(("dims", np.uint32, 3)),
}
"""``CUlaunchAttributeValue`` as each attribute reads it."""

USE_NODE_PRIORITY = 8
"""``CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY``: without it, the priorities of nodes do nothing."""

EDGE_DATA = np.dtype([("from_port", np.uint8), ("to_port", np.uint8), ("type", np.uint8), ("reserved", np.uint8, 5)])
"""``CUgraphEdgeData``: all zero is a full dependency."""

EDGE_TYPE_PROGRAMMATIC = 1

NODE_PARAMS = np.dtype(
    {
        "names": ["type", "union", "reserved"],
        "formats": [np.int32, (np.uint64, 29), np.int64],
        "offsets": [0, 16, 248],
        "itemsize": 256,
    }
)
"""``CUgraphNodeParams``: what nodes of all other kinds are packed into; the union holds a struct of the kind."""

UNION_OFFSET = 16

CHILD_GRAPH_NODE = np.dtype([("graph", np.uint64), ("ownership", np.uint32), ("padding", np.uint32)])
"""``CUDA_CHILD_GRAPH_NODE_PARAMS``."""

CONDITIONAL_NODE = np.dtype(
    [
        ("handle", np.uint64),
        ("form", np.uint32),
        ("size", np.uint32),
        ("bodies", np.uint64),
        ("ctx", np.uint64),
    ]
)
"""``CUDA_CONDITIONAL_NODE_PARAMS``: the driver writes to ``bodies`` where it keeps the handles of the body graphs."""

EVENT_NODE = np.dtype([("event", np.uint64)])
"""``CUDA_EVENT_RECORD_NODE_PARAMS``, and ``CUDA_EVENT_WAIT_NODE_PARAMS``."""

ALLOC_NODE = np.dtype(
    {
        "names": [
            *("allocation_type", "handle_types", "location_type", "location"),
            *("access", "access_count", "nbytes", "address"),
        ],
        "formats": [np.uint32, np.uint32, np.uint32, np.int32, *[np.uint64] * 4],
        "offsets": [0, 4, 8, 12, 88, 96, 104, 112],
        "itemsize": 120,
    }
)
"""``CUDA_MEM_ALLOC_NODE_PARAMS_v2``: the driver writes to ``address`` where the memory is; ``access`` is the address of
a `MEM_ACCESS` for each other device that reaches it."""

MEM_ACCESS = np.dtype([("location_type", np.uint32), ("location", np.int32), ("flags", np.uint32)])
"""``CUmemAccessDesc``."""

ACCESS_READ_WRITE = 3
"""``CU_MEM_ACCESS_FLAGS_PROT_READWRITE``."""

ALLOCATION_PINNED = 1
LOCATION_DEVICE = 1
"""``CU_MEM_ALLOCATION_TYPE_PINNED``, which memory of a device is, too, and ``CU_MEM_LOCATION_TYPE_DEVICE``."""

FREE_NODE = np.dtype([("address", np.uint64)])
"""``CUDA_MEM_FREE_NODE_PARAMS``."""

OWNERSHIP_COPY, OWNERSHIP_MOVE = 0, 1
"""What becomes of the graph that a child node is made from."""

NODE_TYPE_KERNEL, NODE_TYPE_MEMCPY, NODE_TYPE_MEMSET, NODE_TYPE_HOST = range(4)
NODE_TYPE_CHILD = 4
NODE_TYPE_EMPTY = 5
NODE_TYPE_EVENT_WAIT = 6
NODE_TYPE_EVENT_RECORD = 7
BATCH_MEM_OP_NODE = np.dtype(
    {
        "names": ["ctx", "count", "operations", "flags"],
        "formats": [np.uint64, np.uint32, np.uint64, np.uint32],
        "offsets": [0, 8, 16, 24],
        "itemsize": 32,
    }
)
"""``CUDA_BATCH_MEM_OP_NODE_PARAMS``."""

MEM_OP = np.dtype(
    {
        "names": ["operation", "address", "value", "flags", "alias"],
        "formats": [np.uint32, np.uint64, np.uint64, np.uint32, np.uint64],
        "offsets": [0, 8, 16, 24, 32],
        "itemsize": 48,
    }
)
"""``CUstreamBatchMemOpParams``; a barrier has its flags where others have their address."""

WAIT_VALUE_32, WRITE_VALUE_32, WAIT_VALUE_64, WRITE_VALUE_64, MEM_OP_BARRIER = 1, 2, 4, 5, 6
"""``CUstreamBatchMemOpType``."""

NODE_TYPE_ALLOC = 10
NODE_TYPE_FREE = 11
NODE_TYPE_BATCH_MEM_OP = 12
NODE_TYPE_CONDITIONAL = 13
"""``CUgraphNodeType``, in `NODE_PARAMS` and elsewhere."""

CONDITION_ASSIGN_DEFAULT = 1

EXEC_UPDATE_RESULT = np.dtype([("result", np.uint32), ("padding", np.uint32), ("node", np.uint64), ("from", np.uint64)])
"""``CUgraphExecUpdateResultInfo``: what kept an exec from being updated, the node, and the dependency of it."""

FUNC_MAX_THREADS, FUNC_SHARED_BYTES, FUNC_REGISTERS, FUNC_BINARY_VERSION = 0, 1, 4, 6
FUNC_MAX_DYNAMIC_SHARED_BYTES = 8
"""``CUfunction_attribute``."""

KERNEL, MEMCPY, MEMSET, HOST, EMPTY, GENERIC, CHILD = range(7)
"""Kinds of node, as the seam counts them; `GENERIC` is all that is packed into a `NODE_PARAMS`, and so is a `CHILD`,
which an exec is told of by a call of its own."""

MEMORY_TYPE_HOST = 1
MEMORY_TYPE_DEVICE = 2
