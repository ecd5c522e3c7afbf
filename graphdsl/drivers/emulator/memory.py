"""The emulator's address space: device memory of its own, and the pinned host memory that it gave out.

Device addresses are numbers in a range that no process uses, so nothing outside the emulator can follow them. They are
256-byte aligned, at least 256 bytes apart, and never used twice while the process lives, so that an access beyond an
allocation or after its release is always found. Every byte of device memory remembers whether it was written; who sees
bytes that nobody wrote finds ``0xCD`` there. Pinned memory lies at its real address; the host writes it unseen, so all
of it counts as written, and fresh it begins with ``0xCD``.

Only what is touched takes memory of this machine, so that a graph for a large GPU can be built on a small computer.
This module must not know nodes or kernels.
"""

from __future__ import annotations

import bisect
import mmap
import os
import sys
import weakref
from collections import Counter
from collections.abc import Collection
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from graphdsl.declare.interop import host_bytes
from graphdsl.drivers.emulator.problems import (
    NEVER_WRITTEN,
    NOT_ALLOCATED,
    OTHER_DEVICE,
    OUT_OF_MEMORY,
    OUTSIDE,
    RELEASED,
    AccessError,
    Problem,
)
from graphdsl.forks import Lock

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
SingleBytes = TypeVar("SingleBytes", Bytes, Flags)
Kind = Literal["device", "pinned", "shared", "local", "constant"]

POISON = 0xCD
"""What fresh memory holds."""

POISONED_PINNED_BYTES = 64 * 2**10
"""So much of fresh pinned memory holds it, from the start: more would take memory before anybody touches it."""

# Windows has no sysconf, and refuses by itself what it cannot give.
THIS_MACHINE_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else sys.maxsize
"""Memory of the computer that emulates."""

_ALIGNMENT = 256
# Beyond what any processor gives to programs, and wide enough that large graphs can be built for weeks.
_DEVICE_RANGE = range(2**60, 2**62)

_next_address = _DEVICE_RANGE.start
_process_lock = Lock()


def _reserve(nbytes: int) -> int:
    """An address with room for ``nbytes`` and a gap behind it, given to nobody else in this process."""
    global _next_address
    with _process_lock:
        address = _next_address
        _next_address += -(-nbytes // _ALIGNMENT) * _ALIGNMENT + _ALIGNMENT
    if _next_address > _DEVICE_RANGE.stop:
        raise Problem("the emulator has used up its addresses", OUT_OF_MEMORY, "Start a new process.")
    return address


class Contents(NamedTuple):
    """What memory holds.

    Attributes
    ----------
    data : numpy.ndarray of uint8
        The bytes.
    written : numpy.ndarray of bool
        Which of them somebody has written.
    """

    data: Bytes
    written: Flags


class Region:
    """Consecutive bytes of memory.

    Attributes
    ----------
    kind : str
        ``"device"`` or ``"pinned"``; in kernels ``"shared"``, ``"local"`` and ``"constant"``, which have no address.
    base : int
        Address of the first byte.
    nbytes : int
        Size.
    data : numpy.ndarray of uint8
        The contents; empty once released.
    written : numpy.ndarray of bool, or None
        Which bytes were written; None if all count as written.
    device : int
        Number of the device that has the memory; of host memory it says nothing.
    alignment : int
        What the address is a multiple of, where there is none that can be seen.
    occupied : int
        Bytes of this machine that bulk writes have made it take.
    alive : bool
        False once released.
    access : frozenset of int, or None
        The other devices that reach memory which a graph allocates; None where peer access decides.
    has_free_node : bool
        True once a node of the graph that allocates it frees it.
    of_graph : bool
        True for memory that a graph allocates.
    pending : bool
        True while memory that a graph allocates is not allocated: nodes may be given its address, and may not use it.
    """

    __slots__ = (
        "access",
        "alignment",
        "alive",
        "base",
        "data",
        "device",
        "has_free_node",
        "kind",
        "nbytes",
        "occupied",
        "of_graph",
        "pending",
        "written",
    )

    def __init__(self, kind: Kind, base: int, data: Bytes, written: Flags | None = None, device: int = 0) -> None:
        self.kind = kind
        self.device = device
        self.base = base
        self.nbytes = data.size
        self.data = data
        self.written = written
        self.alignment = 1
        self.occupied = 0
        self.alive = True
        self.access: frozenset[int] | None = None
        self.of_graph = False
        self.has_free_node = False
        self.pending = False

    def begin(self) -> None:
        """Begin the life of memory that a graph allocates."""
        self.pending = False

    def end(self) -> None:
        """End the life of memory that a graph allocates, until a launch begins it again."""
        if self.pending:
            raise Problem(f"{self} is freed, and is not allocated")
        self.pending = True

    def release(self) -> None:
        """Give the contents back; what remains tells later accesses what was here."""
        self.alive = False
        self.data = self.data[:0].copy()
        self.written = None

    def __str__(self) -> str:
        return f"the {self.nbytes} bytes of {self.kind} memory at {self.base:#x}"


def span(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Bytes from the first of several, ``strides`` apart, to the end of the last.

    Examples
    --------
    >>> span((2, 3, 4), (100, 10, 1))
    124
    """
    return 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))


def _strided(data: SingleBytes, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> SingleBytes:
    """Part of an array of single bytes; NumPy refuses what would reach outside of it."""
    return np.ndarray(shape, data.dtype, data, offset, strides)  # type: ignore[no-any-return]


def fresh(kind: Kind, nbytes: int, base: int = 0) -> Region:
    """Memory that nobody has written."""
    return Region(kind, base, np.full(nbytes, POISON, np.uint8), np.zeros(nbytes, np.bool_))


class Reach(Protocol):
    """Memory that a kernel can be given addresses of."""

    def locate(self, address: int, nbytes: int, *, used: bool = True) -> tuple[Region, int]:
        """The allocation that holds ``nbytes`` at an address, and the offset in it; see `AddressSpace.locate`."""


class AddressSpace:
    """The memory of the emulated devices of one computer.

    Parameters
    ----------
    capacity : int
        Bytes of memory of each device.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._used: Counter[int] = Counter()
        self._occupied = 0
        self._bases: list[int] = []
        self._regions: list[Region] = []
        # The pages of released pinned memory go back to the system, but its addresses stay taken: were they used
        # again, a dangling address could not be told from a good one.
        self._mappings: dict[int, mmap.mmap] = {}
        with _process_lock:
            _spaces.add(self)

    def live(self, kind: Kind) -> list[Region]:
        """Allocations of a kind that have not been released, by address."""
        return [region for region in self._regions if region.alive and region.kind == kind]

    def left(self, device: int) -> int:
        """Bytes of a device that are not allocated."""
        return self.capacity - self._used[device]

    def allocate(self, nbytes: int, device: int = 0) -> Region:
        """Allocate memory of a device.

        Raises
        ------
        Problem
            If ``nbytes`` is not positive, or more than is left.
        """
        if nbytes < 1:
            raise Problem(f"an allocation of {nbytes} bytes; at least 1 is needed")
        if nbytes > self.left(device):
            raise Problem(
                "the emulated device has too little memory left",
                OUT_OF_MEMORY,
                "Release memory, or give the emulator more with memory_bytes=.",
            )
        data, written = (np.frombuffer(_mapped(nbytes, "to emulate device memory with"), np.uint8) for _ in range(2))
        region = Region("device", _reserve(nbytes), data, written.view(np.bool_), device)
        self._used[device] += nbytes
        return self._add(region)

    def allocate_pinned(self, nbytes: int) -> Bytes:
        """Allocate page-aligned host memory; no bytes need no memory."""
        if nbytes < 0:
            raise Problem(f"an allocation of {nbytes} bytes; the size cannot be negative")
        if nbytes == 0:
            return np.empty(0, np.uint8)
        mapping = _mapped(nbytes, "of host memory")
        data = np.frombuffer(mapping, np.uint8)
        data[:POISONED_PINNED_BYTES] = POISON
        region = self._add(Region("pinned", data.ctypes.data, data))
        self._mappings[region.base] = mapping
        return data

    def _add(self, region: Region) -> Region:
        place = bisect.bisect(self._bases, region.base)
        self._regions.insert(place, region)  # first: another space may look in here meanwhile
        self._bases.insert(place, region.base)
        return region

    def release(self, address: int, kind: Kind) -> None:
        """Release the allocation that begins at ``address``."""
        region = self.find(address)
        if region is None or region.base != address or region.kind != kind:
            raise Problem(f"no allocation of {kind} memory begins at {address:#x}{_nearest(self._before(address))}")
        if not region.alive:
            raise Problem(f"{region} were released before")
        region.release()
        if kind == "pinned":
            _return_pages(self._mappings[address])
        else:
            self._used[region.device] -= region.nbytes
            self._occupied -= region.occupied

    def free(self, address: int) -> None:
        """Free device memory; what a graph allocates is there again with its next launch."""
        region = self.find(address)
        if region is not None and region.of_graph and region.alive and region.base == address:
            region.end()
        else:
            self.release(address, "device")

    def _before(self, address: int) -> Region | None:
        """The last allocation, released ones too, that begins at or before an address."""
        place = bisect.bisect(self._bases, address)
        return self._regions[place - 1] if place else None

    def find(self, address: int) -> Region | None:
        """The allocation, released ones too, that an address lies in; None for ordinary host memory."""
        region = self._before(address)
        return region if region is not None and address < region.base + region.nbytes else None

    def owner(self, address: int) -> int | None:
        """Number of the device that has the memory at an address; None of host memory."""
        region = self.find(address)
        return None if region is None or region.kind != "device" else region.device

    def is_pageable(self, address: int) -> bool:
        """True for an address that is neither device memory nor pinned memory."""
        return self.find(address) is None and address not in _DEVICE_RANGE

    def locate(self, address: int, nbytes: int, *, used: bool = True) -> tuple[Region, int]:
        """The allocation that holds ``nbytes`` at an address, and the offset in it.

        Parameters
        ----------
        address, nbytes : int
            Where, and how much.
        used : bool
            False for who only wants to know that the memory will be there when it is used.

        Raises
        ------
        AccessError
            If no live allocation holds all of them.
        """
        region = self.find(address)
        if region is None:
            text = f"{nbytes} bytes at {address:#x}"
            if _is_elsewhere(address):
                raise _access_error(OTHER_DEVICE, text, address, nbytes, None)
            nearest = self._before(address)
            raise _access_error(OUTSIDE, f"{text}{_nearest(nearest)}", address, nbytes, nearest)
        if not region.alive:
            raise _access_error(RELEASED, f"{nbytes} bytes at {address:#x} in {region}", address, nbytes, region)
        if region.pending and used:
            raise _access_error(NOT_ALLOCATED, f"{nbytes} bytes at {address:#x} in {region}", address, nbytes, region)
        offset = address - region.base
        if offset + nbytes > region.nbytes:
            text = f"{nbytes} bytes at offset {offset} of {region}"
            raise _access_error(OUTSIDE, text, address, nbytes, region)
        return region, offset

    def reached_by(self, device: int, owners: Collection[int]) -> Reach:
        """The memory of a device and of some others, and all host memory; of what graphs allocate, what they let it."""
        return _Part(self, device, owners)

    def reading(self, address: int, shape: int | tuple[int, ...], strides: tuple[int, ...] = (1,)) -> Bytes:
        """The bytes at an address, to read; ordinary host memory is taken as it is.

        Parameters
        ----------
        address : int
            Of the first byte.
        shape, strides : int or tuple of int
            How many bytes in each dimension, and how far apart they are; what lies between them is not looked at.
        """
        shape = shape if isinstance(shape, tuple) else (shape,)
        nbytes = span(shape, strides)
        if self.is_pageable(address):
            return _strided(host_bytes(address, nbytes), 0, shape, strides)
        region, offset = self.locate(address, nbytes)
        written = None if region.written is None else _strided(region.written, offset, shape, strides)
        if written is not None and not written.all():
            place = np.unravel_index(int(written.argmin()), shape)
            first = offset + sum(int(index) * stride for index, stride in zip(place, strides, strict=True))
            text = f"byte {first} of {region}, in a read of {written.size} bytes from offset {offset}"
            raise _access_error(NEVER_WRITTEN, text, region.base + first, nbytes, region)
        return _strided(region.data, offset, shape, strides)

    def writing(self, address: int, shape: int | tuple[int, ...], strides: tuple[int, ...] = (1,)) -> Bytes:
        """The bytes at an address, to write all of them; the parameters are those of `reading`."""
        shape = shape if isinstance(shape, tuple) else (shape,)
        nbytes = span(shape, strides)
        if self.is_pageable(address):
            return _strided(host_bytes(address, nbytes), 0, shape, strides)
        region, offset = self.locate(address, nbytes)
        if region.written is not None:
            written = _strided(region.written, offset, shape, strides)
            self._occupy(region, written)
            written[...] = True
        return _strided(region.data, offset, shape, strides)

    def exposed(self, address: int, nbytes: int) -> Bytes:
        """The bytes at an address, for somebody who reads and writes them unseen: from now on all count as written."""
        region, offset = self.locate(address, nbytes)
        data = region.data[offset : offset + nbytes]
        if region.written is not None:
            written = region.written[offset : offset + nbytes]
            self._occupy(region, written)
            np.copyto(data, POISON, where=~written)
            written[:] = True
        return data

    def contents(self, address: int, nbytes: int) -> Contents:
        """A copy of what memory holds, of the host too; what a graph has not allocated now holds nothing."""
        if self.is_pageable(address):
            return Contents(host_bytes(address, nbytes).copy(), np.ones(nbytes, np.bool_))
        region, offset = self.locate(address, nbytes, used=False)
        data = region.data[offset : offset + nbytes].copy()
        if region.written is None or region.pending:
            return Contents(data, np.full(nbytes, not region.pending))
        return Contents(data, region.written[offset : offset + nbytes].copy())

    def restore(self, address: int, contents: Contents) -> None:
        """Let memory hold what it held when `contents` was asked."""
        nbytes = contents.data.size
        if self.is_pageable(address):
            host_bytes(address, nbytes)[:] = contents.data
            return
        region, offset = self.locate(address, nbytes, used=False)
        region.data[offset : offset + nbytes] = contents.data
        if region.written is not None:
            region.written[offset : offset + nbytes] = contents.written

    def discard(self, address: int, nbytes: int) -> None:
        """Forget what was written: whoever reads the bytes from now on must find them written anew."""
        region, offset = self.locate(address, nbytes, used=False)
        if region.written is None:
            return
        written = region.written[offset : offset + nbytes]
        count = int(np.count_nonzero(written))
        if count:  # pages that nobody has touched stay so
            written[:] = False
            occupied = min(2 * count, region.occupied)
            region.occupied -= occupied
            self._occupied -= occupied

    def _occupy(self, region: Region, written: Flags) -> None:
        """Refuse a bulk write for which this machine has no memory: the system would end the process."""
        added = 2 * (written.size - int(np.count_nonzero(written)))  # a byte, and whether it was written
        if self._occupied + added > THIS_MACHINE_BYTES:
            raise Problem(
                f"the memory written so far and {written.size} bytes more of {region} would take "
                f"{self._occupied + added} bytes of this machine, which has {THIS_MACHINE_BYTES}",
                OUT_OF_MEMORY,
                "Emulate the graph with smaller arrays; it can be traced as it is.",
            )
        region.occupied += added
        self._occupied += added


class _Part:
    """What is within reach; see `AddressSpace.reached_by`."""

    def __init__(self, space: AddressSpace, device: int, owners: Collection[int]) -> None:
        self._space = space
        self._device = device
        self._owners = owners

    def locate(self, address: int, nbytes: int, *, used: bool = True) -> tuple[Region, int]:
        region, offset = self._space.locate(address, nbytes, used=used)
        if region.kind == "device" and region.device != self._device and not self._is_shared(region):
            text = f"{nbytes} bytes at offset {offset} of {region}, which device {region.device} has"
            raise _access_error(OTHER_DEVICE, text, address, nbytes, region)
        return region, offset

    def _is_shared(self, region: Region) -> bool:
        return region.device in self._owners if region.access is None else self._device in region.access


_spaces: weakref.WeakSet[AddressSpace] = weakref.WeakSet()
"""All there are."""


def _is_elsewhere(address: int) -> bool:
    """True if an address belongs to any emulated device: one that does not know it asks whether others do."""
    with _process_lock:
        spaces = tuple(_spaces)
    return any(space.find(address) is not None for space in spaces)


# Linux refuses a private mapping larger than its memory, unless told that the pages may never be needed. Python knows
# the flag by name from 3.13 on.
_NO_RESERVE = 0x4000 if sys.platform == "linux" else 0
_PRIVATE: dict[str, int] = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE} if hasattr(mmap, "MAP_PRIVATE") else {}
)


def _mapped(nbytes: int, purpose: str) -> mmap.mmap:
    """Pages full of zeros, which take memory once they are touched."""
    try:
        return mmap.mmap(-1, nbytes, **_PRIVATE)
    except (OSError, OverflowError, ValueError) as cause:
        raise Problem(f"this machine has no {nbytes} bytes {purpose}", OUT_OF_MEMORY) from cause


def _return_pages(mapping: mmap.mmap) -> None:
    if hasattr(mmap, "MADV_DONTNEED"):
        mapping.madvise(mmap.MADV_DONTNEED)


def _nearest(region: Region | None) -> str:
    if region is None:
        return ""
    return f"; the nearest allocation before it is {region}{'' if region.alive else ', released'}"


def _access_error(kind: str, text: str, address: int, nbytes: int, region: Region | None) -> AccessError:
    details: dict[str, Any] = {"address": address, "nbytes": nbytes}
    if region is not None:
        details |= {"allocation": (region.base, region.nbytes), "offset": address - region.base}
    return AccessError(kind, text, **details)
