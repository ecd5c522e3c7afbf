"""Where the device arrays that an exec owns lie in its arenas, one for each device.

Pure arithmetic: nothing is allocated here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from graphdsl.declare.operands import Buffer

ALIGNMENT = 256
"""Bytes; what `cuMemAlloc` gives, and enough for any vector load."""


@dataclass(frozen=True)
class MemoryPlan:
    """Offsets of buffers in one arena.

    Attributes
    ----------
    offsets : dict of str to int
        Bytes from the start of the arena, by the name of the buffer.
    nbytes : int
        Bytes of the arena.
    """

    offsets: dict[str, int]
    nbytes: int


def aligned(nbytes: int, alignment: int = ALIGNMENT) -> int:
    """``nbytes`` rounded up to a multiple of ``alignment``.

    Examples
    --------
    >>> aligned(1000)
    1024
    """
    return -(-nbytes // alignment) * alignment


def place(buffers: Iterable[Buffer]) -> dict[int | None, MemoryPlan]:
    """Place buffers one behind the other, by name, each aligned; a buffer of no bytes still gets an address.

    Gives the plan of each device that has one of them.
    """
    offsets: dict[int | None, dict[str, int]] = defaultdict(dict)
    ends: Counter[int | None] = Counter()
    for buffer in sorted(buffers, key=lambda buffer: buffer.name):
        offsets[buffer.device][buffer.name] = ends[buffer.device]
        ends[buffer.device] += max(aligned(buffer.allocation_nbytes), ALIGNMENT)
    return {device: MemoryPlan(placed, ends[device]) for device, placed in offsets.items()}
