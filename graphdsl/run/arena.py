"""Memory that an exec is given for its own device arrays, which other execs may be given too.

What lies in it is undefined whenever another exec has run there since. This module must not allocate anything.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from math import prod
from typing import Any, NamedTuple

from graphdsl.declare.interop import ForeignArray, foreign_array
from graphdsl.declare.operands import layout_of
from graphdsl.drivers.base import Address, Driver
from graphdsl.errors import GraphdslError, UpdateError
from graphdsl.plan import Plan
from graphdsl.plan.memory import ALIGNMENT
from graphdsl.run.blocks import size_text
from graphdsl.run.device_array import DeviceArray

_tenants = itertools.count(1)


class Arena(NamedTuple):
    """Memory for the device arrays of one exec.

    Attributes
    ----------
    address : int
        Of the first byte.
    nbytes : int
        Its size.
    keep : object
        What keeps it where it is.
    tenant : int
        A number that no other exec has: whose the contents are.
    """

    address: Address
    nbytes: int
    keep: Any
    tenant: int

    def enter(self, device: Driver, writes: bool) -> None:
        """Note that the exec is about to use its memory; an emulator refuses to read what others left there."""
        device.mem_enter(self.address, self.nbytes, self.tenant, writes)


def given_arena(memory: Any, made: Plan, device: Driver) -> Arena:
    """Memory that somebody gives for the arrays of a plan; see `graphdsl.run.graph_exec.instantiate`.

    Raises
    ------
    GraphdslError
        If it cannot hold them: it is too small, begins at the wrong address, has gaps, is read-only, or lies elsewhere.
    """
    try:
        found = place_for(memory, made.nbytes_on(device.ordinal), device, "arena")
    except GraphdslError as problem:
        raise problem.about(graph=made.name) from None
    return Arena(found.address, _nbytes(found), found.keep, next(_tenants))


def place_for(memory: Any, needed: int, device: Driver, field: str) -> ForeignArray:
    """Where memory lies that is to be an arena of so many bytes; ``field`` is what messages call it.

    Raises
    ------
    GraphdslError
        If it cannot be one; see `given_arena`.
    """
    found = foreign_array(memory, field)
    defect, remedy = None, 'Pass graphdsl.device_array(device, nbytes, "u1").'
    if found.space != "device" or _is_elsewhere(memory, found.address, device):
        defect = f"it lies elsewhere than on {device.name}"
    elif found.readonly:
        defect = "it is read-only"
    elif layout_of(found.shape, found.strides, found.dtype.itemsize) != "C":
        defect = "it has gaps"
    elif needed and found.address % ALIGNMENT:
        defect = f"it begins at {found.address:#x}, which is no multiple of {ALIGNMENT}"
        remedy = "Cut it at a multiple of that."
    elif _nbytes(found) < needed:
        defect = f"it has {size_text(_nbytes(found))} ({_nbytes(found)}), and the graph needs {needed}"
        remedy = "Pass as much as graph.plan().nbytes_on(device.ordinal) says."
    if defect is not None:
        raise GraphdslError(
            f"an arena is memory of the device that holds the arrays of an exec, and {defect}",
            field=field,
            value=repr(memory) if isinstance(memory, DeviceArray) else f"an object of type {type(memory).__name__}",
            remedy=remedy,
        )
    return found


def _nbytes(array: ForeignArray) -> int:
    return prod(array.shape) * array.dtype.itemsize


def require_no_memory(made: Plan, bound: Collection[str], ordinal: int) -> None:
    """Refuse to build an exec anew in its arena, where a plan has arrays that do not lie in it yet."""
    needed = [name for number in made.numbers_of(ordinal) for name in made.memory[number].without(bound).places]
    if needed:
        raise UpdateError(
            "an exec in an arena has the arrays that it was instantiated with, and an update would place others",
            graph=made.name,
            field="arena",
            value=", ".join(needed),
            remedy="Instantiate the graph with arena=, and close this exec.",
        )


def _is_elsewhere(memory: Any, address: Address, device: Driver) -> bool:
    if getattr(device, "build_only", False):
        return False
    if isinstance(memory, DeviceArray):
        return memory.device.context != device.context
    return device.device_count > 1 and device.pointer_get_device(address) not in (None, device.ordinal)
