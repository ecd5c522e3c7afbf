"""Copies and memsets of the emulator: slices of rows of bytes, as `CUDA_MEMCPY3D` and `CUDA_MEMSET_NODE_PARAMS` say.

The rules are those of cuda.h 13, with the result codes that driver 580 gave on an H200.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphdsl.drivers.base import Address
from graphdsl.drivers.emulator.machine import Device, Machine
from graphdsl.drivers.emulator.memory import span
from graphdsl.drivers.emulator.nodes import NodeKind, struct_at
from graphdsl.drivers.emulator.problems import NOT_SUPPORTED, Problem
from graphdsl.drivers.structs import MEMCPY_NODE, MEMORY_TYPE_DEVICE, MEMORY_TYPE_HOST, MEMSET_NODE

Extents = tuple[int, int, int]

# Memcpy


@dataclass(frozen=True)
class _Side:
    """One side of a copy: where its first byte lies, and the bytes from a slice, a row, a byte to the next.

    ``owner`` is the number of the device that has the memory; None of host memory.
    """

    address: Address
    strides: Extents
    memory_type: int
    owner: int | None


@dataclass(frozen=True)
class _Copy:
    device: Device
    destination: _Side
    source: _Side
    shape: Extents

    @property
    def memory_types(self) -> tuple[int, int]:
        return self.destination.memory_type, self.source.memory_type

    @property
    def is_run(self) -> bool:
        """True for a copy of one dimension."""
        return self.shape[:2] == (1, 1)


_MEMORY_TYPE_ARRAY = 3
_MEMORY_TYPE_UNIFIED = 4


def _read_memcpy(machine: Machine, address: Address) -> _Copy:
    fields = struct_at(address, MEMCPY_NODE)
    device = machine.device_of(int(fields["ctx"]))
    width, height, depth = (int(fields[name]) for name in ("width", "height", "depth"))
    if not width or not height or not depth:
        raise Problem(f"a copy of width {width}, height {height} and depth {depth}; none may be 0")
    shape = (depth, height, width)
    destination, source = (_side(machine, device, fields, side, shape) for side in ("destination", "source"))
    return _Copy(device, destination, source, shape)


def _side(machine: Machine, device: Device, fields: np.void, side: str, shape: Extents) -> _Side:
    """Where a side of a copy lies; with unified addressing the address tells what memory it is."""
    kind = int(fields[f"{side}_memory_type"])
    if kind == _MEMORY_TYPE_ARRAY:
        raise Problem(f"the emulator has no CUDA arrays, and the {side} is one", NOT_SUPPORTED)
    if kind not in (MEMORY_TYPE_HOST, MEMORY_TYPE_DEVICE, _MEMORY_TYPE_UNIFIED):
        raise Problem(f"the {side} has memory type {kind}; there is none of that number")
    base = int(fields[f"{side}_{'host' if kind == MEMORY_TYPE_HOST else 'device'}"])
    if not base:
        raise Problem(f"the address of the {side} is NULL")
    offset, strides = _placed(device, fields, side, shape)
    address, nbytes = base + offset, span(shape, strides)
    if not machine.space.is_pageable(address):
        machine.require_memory(address, nbytes)
    elif kind == MEMORY_TYPE_DEVICE and not machine.build_only:
        raise Problem(
            f"the {side} {address:#x} is declared to be device memory, and is ordinary host memory",
            remedy="Declare it as host memory, or allocate it with mem_alloc or mem_host_alloc.",
        )
    return _Side(address, strides, kind, machine.space.owner(address))


def _placed(device: Device, fields: np.void, side: str, shape: Extents) -> tuple[int, Extents]:
    """Bytes from the base of a side to its first byte, and its strides; a pitch or height of 0 is the least."""
    _, height, width = shape
    x, y, z, pitch, rows = (int(fields[f"{side}_{name}"]) for name in ("x_bytes", "y", "z", "pitch", "height"))
    if pitch and pitch < width + x:
        raise Problem(f"the {side} has a pitch of {pitch} bytes, and rows of {width} from byte {x}")
    if pitch > device.limits.max_pitch and shape[:2] != (1, 1):
        raise Problem(f"the {side} has a pitch of {pitch} bytes, and the device takes {device.limits.max_pitch}")
    if rows and rows < height + y:
        raise Problem(f"the {side} has slices of {rows} rows, and {height} are copied from row {y}")
    pitch = pitch or width + x
    rows = rows or height + y
    return (z * rows + y) * pitch + x, (rows * pitch, pitch, 1)


def _run_memcpy(machine: Machine, copy: _Copy) -> None:
    source = machine.space.reading(copy.source.address, copy.shape, copy.source.strides)
    machine.space.writing(copy.destination.address, copy.shape, copy.destination.strides)[:] = source


def _accept_memcpy(machine: Machine, old: _Copy, new: _Copy) -> _Copy:
    _require_place("source", old.source.owner, new.source.owner)
    if old.memory_types != new.memory_types:
        raise Problem(
            f"the memory types (destination, source) of a copy must stay {old.memory_types}; {new.memory_types} given",
            remedy="Build the graph anew.",
        )
    if not (old.is_run and new.is_run) and new != old:
        raise Problem(
            f"a copy of several dimensions cannot be updated; it has {old.shape} slices, rows and bytes, and "
            f"{new.shape} are given",
            remedy="Build the graph anew.",
        )
    return new


def _require_place(side: str, was: int | None, is_now: int | None) -> None:
    """Refuse memory of another device in the place of memory of one: where a copy reads, and a memset writes."""
    if None not in (was, is_now) and was != is_now:
        raise Problem(
            f"the {side} is memory of device {is_now} in the place of memory of device {was}; an update keeps it",
            remedy="Build the graph anew.",
        )


# Memset


@dataclass(frozen=True)
class _Fill:
    """A memset; ``shape`` counts rows, elements and the bytes of an element; ``owner`` as for a copy."""

    device: Device
    owner: int | None
    destination: Address
    pattern: bytes
    shape: Extents
    strides: Extents


def _read_memset(machine: Machine, address: Address) -> _Fill:
    fields = struct_at(address, MEMSET_NODE)
    device = machine.device_of(int(fields["ctx"]))
    size, width, height = int(fields["element_size"]), int(fields["width"]), int(fields["height"])
    destination = int(fields["destination"])
    if size not in (1, 2, 4):
        raise Problem(f"elements of {size} bytes; they must be of 1, 2 or 4")
    if not width or not height:
        raise Problem(f"a memset of width {width} and height {height}; neither may be 0")
    pitch = int(fields["pitch"]) if height > 1 else size * width  # the driver looks at it for several rows only
    if pitch < size * width:
        raise Problem(f"a pitch of {pitch} bytes, and rows of {width} elements of {size} bytes")
    if destination % size or pitch % size:
        raise Problem(
            f"the destination {destination:#x} and the pitch {pitch} are not aligned to elements of {size} bytes"
        )
    shape, strides = (height, width, size), (pitch, size, 1)
    machine.require_memory(destination, span(shape, strides))
    # Bits of the value beyond the element are ignored, as the driver does.
    return _Fill(
        device,
        machine.space.owner(destination),
        destination,
        int(fields["value"]).to_bytes(4, "little")[:size],
        shape,
        strides,
    )


def _run_memset(machine: Machine, fill: _Fill) -> None:
    elements = machine.space.writing(fill.destination, fill.shape, fill.strides)
    elements[:] = np.frombuffer(fill.pattern, np.uint8)


def _accept_memset(machine: Machine, old: _Fill, new: _Fill) -> _Fill:
    _require_place("destination", old.owner, new.owner)
    height = old.shape[0]
    if new.shape[0] != height:
        raise Problem(f"a memset must keep its height, {height}; {new.shape[0]} given", remedy="Build the graph anew.")
    if height > 1 and (old.shape, old.strides) != (new.shape, new.strides):
        raise Problem(
            f"of a memset of several rows only destination and value change; it has {old.shape} rows, elements and "
            f"bytes {old.strides} apart, and {new.shape} rows {new.strides} apart are given",
            remedy="Build the graph anew.",
        )
    return new


MEMCPY = NodeKind(
    "memcpy",
    _read_memcpy,
    _run_memcpy,
    _accept_memcpy,
    addresses=lambda copy: (copy.destination.address, copy.source.address),
    can_disable=True,
)
MEMSET = NodeKind(
    "memset",
    _read_memset,
    _run_memset,
    _accept_memset,
    addresses=lambda fill: (fill.destination,),
    can_disable=True,
)
