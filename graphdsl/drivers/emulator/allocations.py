"""Nodes of the emulator that allocate memory and free it.

The address of an allocation is given when its node is added and is never given again; the memory is there from its
alloc node to its free node in each launch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from graphdsl.drivers.base import Address
from graphdsl.drivers.emulator.graph import Exec, Graph
from graphdsl.drivers.emulator.machine import Machine
from graphdsl.drivers.emulator.memory import Region
from graphdsl.drivers.emulator.nodes import NodeKind, struct_at
from graphdsl.drivers.emulator.problems import NOT_SUPPORTED, Problem
from graphdsl.drivers.structs import (
    ACCESS_READ_WRITE,
    ALLOC_NODE,
    ALLOCATION_PINNED,
    FREE_NODE,
    LOCATION_DEVICE,
    MEM_ACCESS,
)


def read_alloc(machine: Machine, fields: np.void) -> Region:
    """Reserve what an alloc node allocates; refuses what the driver refuses."""
    assert fields.dtype == ALLOC_NODE, fields.dtype
    if int(fields["handle_types"]):
        raise Problem("what a graph allocates is not shared with other processes", NOT_SUPPORTED)
    kind, where, number = (int(fields[name]) for name in ("allocation_type", "location_type", "location"))
    if kind != ALLOCATION_PINNED or where != LOCATION_DEVICE or not 0 <= number < len(machine.devices):
        raise Problem(f"an allocation of type {kind} at a location of type {where}, number {number}")
    access = _access(machine, int(fields["access"]), int(fields["access_count"]))
    region = machine.space.allocate(int(fields["nbytes"]), number)
    region.access = frozenset(access)
    region.of_graph = region.pending = True
    return region


def _access(machine: Machine, address: Address, count: int) -> Iterator[int]:
    """Numbers of the devices that reach an allocation besides the one that has it."""
    if count > len(machine.devices):
        raise Problem(f"{count} devices are to reach an allocation, and there are {len(machine.devices)}")
    for i in range(count):
        fields = struct_at(address + i * MEM_ACCESS.itemsize, MEM_ACCESS)
        where, number, flags = (int(fields[name]) for name in ("location_type", "location", "flags"))
        if where != LOCATION_DEVICE or not 0 <= number < len(machine.devices) or flags != ACCESS_READ_WRITE:
            raise Problem(f"access {flags} for a location of type {where}, number {number}")
        yield number


def read_free(machine: Machine, graph: Graph, fields: np.void) -> Region:
    """What a free node frees; refuses what the driver refuses."""
    assert fields.dtype == FREE_NODE, fields.dtype
    address: Address = int(fields["address"])
    region = machine.space.find(address)
    if region is None or region.base != address or region not in graph.root.allocations:
        raise Problem(f"no alloc node of the graph allocates at {address:#x}")
    if region.has_free_node:
        raise Problem(f"another node of the graph frees {region} already")
    return region


def require_unfreed(machine: Machine, addresses: Iterable[Address]) -> None:
    """Refuse a copy or memset that is added behind the free node of its memory."""
    for address in addresses:
        region = machine.space.find(address)
        if region is not None and region.has_free_node:
            raise Problem(f"{region} have a free node already", remedy="Add the node before.")


def _begin(machine: Machine, region: Region) -> None:
    region.begin()
    machine.space.discard(region.base, region.nbytes)


def _end(machine: Machine, region: Region) -> None:
    region.end()


def _unread(machine: Machine, address: Address) -> Region:
    raise AssertionError("the graph is needed to read it")


ALLOC = NodeKind("alloc", _unread, _begin)
FREE = NodeKind("free", _unread, _end)


def require_unallocated(found: Exec) -> None:
    """Refuse a launch of an exec whose last one left memory allocated."""
    for node in found.nodes.values():
        if node.kind is ALLOC and not node.params.pending:
            raise Problem(f"{node.params} is still allocated from the launch before", remedy="Free it in the graph.")
    for parts in found.inner.values():
        for part in parts:
            require_unallocated(part)


def end_allocations(found: Exec) -> None:
    """Free what a launch that failed has allocated and did not come to free."""
    for node in found.of_kind(ALLOC):
        if node.params.has_free_node:
            node.params.pending = True
