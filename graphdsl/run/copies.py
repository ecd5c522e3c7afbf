"""Copies between any two places, at once: not by a node of a graph.

This module must not wait for launches, nor decide whether a copy is allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from graphdsl.declare.operands import span_nbytes
from graphdsl.declare.rows import dimensions
from graphdsl.drivers.base import Address, Driver, Handle
from graphdsl.drivers.results import OUT_OF_MEMORY
from graphdsl.drivers.structs import MEMCPY_NODE, MEMORY_TYPE_DEVICE, MEMORY_TYPE_HOST
from graphdsl.errors import DriverError, GraphdslError, MemoryFault
from graphdsl.run.blocks import DeviceBlock
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

    @property
    def span(self) -> tuple[Address, Address]:
        """Its first byte, and the one behind its last."""
        array = self.array
        return self.address, self.address + span_nbytes(array.shape, array.strides, array.dtype.itemsize)


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


class Copy(NamedTuple):
    """A copy that is asked for.

    Attributes
    ----------
    name : str
        What messages call the memory that is written.
    destination, source : Side
        Of one shape; the destination has no gaps.
    """

    name: str
    destination: Side
    source: Side


def copy_all(device: Driver, copies: Sequence[Copy], stream: Handle) -> None:
    """Make several copies, or none: what was written before one that fails is put back.

    What is there is kept before the first byte is written, so that all that could be short is short then: in memory of
    the device as long as there is some, in ordinary host memory otherwise. A single copy needs none of that: one that
    the driver refuses writes nothing.

    Raises
    ------
    DriverError
        If the driver refuses; all memory holds what it held. Where it refuses to put that back too, since the context
        is lost, the message names the memory that holds part of the new.
    """
    kept: list[Copy] = []
    copy, begun = None, False
    try:
        for copy in copies if len(copies) > 1 else ():
            kept += _kept(device, copy, stream)
        begun = True
        for copy in copies:
            copy_rows(device, copy.destination, copy.source, stream)
    except BaseException as problem:
        refused = [each.name for each in kept if begun and not _put_back(device, each, stream)]
        kept.clear()  # else it lives as long as the traceback
        if isinstance(problem, GraphdslError) and copy is not None:
            what = f"; {', '.join(refused)} may hold part of the new, which the driver lets nobody undo"
            problem.about(field=copy.name, rule=problem.rule + (what if refused else ""))
        raise


def _kept(device: Driver, copy: Copy, stream: Handle) -> list[Copy]:
    """The copy that would put back what memory holds; none where it holds nothing yet, as an emulator knows."""
    there, array = copy.destination, copy.destination.array
    nbytes = max(prod(array.shape) * array.dtype.itemsize, 1)
    block = _block(device, nbytes) if there.on_device else None
    if block is not None:
        side = Side(_Held(array.shape, array.strides, array.dtype, block), block.address, True)
    else:
        host = np.empty(nbytes, np.uint8)
        side = Side(_Held(array.shape, array.strides, array.dtype, host), host.ctypes.data, False)
    try:
        copy_rows(device, side, there, stream)
    except MemoryFault:
        return []
    return [Copy(copy.name, there, side)]


def _block(device: Driver, nbytes: int) -> DeviceBlock | None:
    """Memory of the device, if there is any."""
    try:
        return DeviceBlock(device, nbytes)
    except DriverError as problem:
        if problem.code != OUT_OF_MEMORY:
            raise
    return None


class _Held(NamedTuple):
    """Memory that a copy keeps, as an array."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    keep: Any


def _put_back(device: Driver, copy: Copy, stream: Handle) -> bool:
    try:
        copy_rows(device, copy.destination, copy.source, stream)
    except DriverError:
        return False
    return True
