"""Copies between any two places, at once: not by a node of a graph.

This module must not wait for launches, nor decide whether a copy is allowed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from graphdsl.declare.rows import dimensions
from graphdsl.drivers.base import Address, Driver, Handle
from graphdsl.drivers.structs import MEMCPY_NODE, MEMORY_TYPE_DEVICE, MEMORY_TYPE_HOST
from graphdsl.run.rows import SIDES, copied_rows


class Side(NamedTuple):
    """An end of a copy.

    Attributes
    ----------
    array : object
        Has a shape, strides and a dtype.
    address : int
        Of its first element.
    on_device : bool
        Where that is.
    """

    array: Any
    address: Address
    on_device: bool


def copy_rows(device: Driver, destination: Side, source: Side, stream: Handle) -> None:
    """Copy between arrays of one shape, whose rows may lie apart; returns when it is done."""
    struct = np.zeros(1, MEMCPY_NODE)
    struct["ctx"] = device.context
    for name, value in copied_rows(dimensions(destination.array, source.array)).items():
        struct[name] = value
    for side, end in zip(SIDES, (destination, source), strict=True):
        struct[f"{side}_memory_type"] = MEMORY_TYPE_DEVICE if end.on_device else MEMORY_TYPE_HOST
        struct[f"{side}_{'device' if end.on_device else 'host'}"] = end.address
    device.memcpy_3d(struct.ctypes.data, stream)
