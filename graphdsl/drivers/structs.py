"""The driver's node parameter structs as NumPy dtypes: the same bytes for the GPU and for the emulator.

Layouts are those of cuda.h 13 on 64-bit machines; the tests compare them with `cuda.bindings`. This module must not
call the driver.
"""

from __future__ import annotations

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
    ]
)
"""``CUDA_MEMCPY3D``: a 1-D copy has height and depth 1."""

MEMSET_NODE = np.dtype(
    [
        ("destination", np.uint64),
        ("pitch", np.uint64),
        ("value", np.uint32),
        ("element_size", np.uint32),
        ("width", np.uint64),
        ("height", np.uint64),
    ]
)
"""``CUDA_MEMSET_NODE_PARAMS``: the width counts elements."""

HOST_NODE = np.dtype([("function", np.uint64), ("user_data", np.uint64)])
"""``CUDA_HOST_NODE_PARAMS``."""

KERNEL, MEMCPY, MEMSET, HOST, EMPTY = range(5)
"""Kinds of node, as the seam counts them."""

MEMORY_TYPE_HOST = 1
MEMORY_TYPE_DEVICE = 2
