"""Packs the nodes of a graph into one arena of bytes: all that the driver is given.

The arena holds the structs of the nodes, the parameter bytes of the kernels, and the arrays of pointers to them. Each
value that can change is found again by its `Site`. This module must not call the driver.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from graphdsl.declare.nesting import ChildNode, ConditionalNode
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import (
    AllocNode,
    BatchMemOpNode,
    CapturedNode,
    EmptyNode,
    EventNode,
    EventRecordNode,
    EventWaitNode,
    FreeNode,
    HostNode,
    KernelNode,
    MemcpyNode,
    MemsetNode,
    NativeHostNode,
)
from graphdsl.drivers.structs import (
    ALLOC_NODE,
    CHILD,
    CONDITIONAL_NODE,
    EMPTY,
    GENERIC,
    HOST,
    HOST_NODE,
    KERNEL,
    KERNEL_NODE,
    MEM_OP,
    MEMCPY,
    MEMCPY_NODE,
    MEMSET,
    MEMSET_NODE,
    NODE_PARAMS,
    UNION_OFFSET,
)
from graphdsl.run.attributes import PackedAttribute, pack_attributes
from graphdsl.run.callbacks import TRAMPOLINE_ADDRESS
from graphdsl.run.derived import Site
from graphdsl.run.devices import Devices
from graphdsl.run.modules import LoadedKernel
from graphdsl.run.templates import (
    Shared,
    Template,
    access_to,
    alloc_template,
    argument_template,
    batch_template,
    child_template,
    conditional_template,
    event_template,
    free_template,
    launch_template,
    struct_template,
)

_ALIGNMENT = 16
_CACHE_LINE = 64
_NOWHERE = -1

# Kind of each node, and the bytes of its struct.
_KINDS: dict[type[Node], tuple[int, int]] = {
    KernelNode: (KERNEL, KERNEL_NODE.itemsize),
    MemcpyNode: (MEMCPY, MEMCPY_NODE.itemsize),
    MemsetNode: (MEMSET, MEMSET_NODE.itemsize),
    NativeHostNode: (HOST, HOST_NODE.itemsize),
    HostNode: (HOST, HOST_NODE.itemsize),
    EmptyNode: (EMPTY, 0),
    CapturedNode: (CHILD, NODE_PARAMS.itemsize),
    ChildNode: (GENERIC, NODE_PARAMS.itemsize),
    ConditionalNode: (GENERIC, NODE_PARAMS.itemsize),
    EventRecordNode: (GENERIC, NODE_PARAMS.itemsize),
    EventWaitNode: (GENERIC, NODE_PARAMS.itemsize),
    AllocNode: (GENERIC, NODE_PARAMS.itemsize),
    FreeNode: (GENERIC, NODE_PARAMS.itemsize),
    BatchMemOpNode: (GENERIC, NODE_PARAMS.itemsize),
}
_LAUNCH = KERNEL_NODE.fields["grid"][1]  # type: ignore[index]  # where grid, block and shared memory begin


class Slot(NamedTuple):
    """Where an argument of one node lies that is a single number."""

    memory: memoryview
    offset: int
    packer: struct.Struct
    dtype: np.dtype[Any]

    def read(self) -> Any:
        """What lies there."""
        return self.packer.unpack_from(self.memory, self.offset)[0]

    def write(self, value: Any) -> None:
        """Store a value that the dtype holds."""
        self.packer.pack_into(self.memory, self.offset, value)


class Packing:
    """The packed nodes of a graph.

    Attributes
    ----------
    arena : numpy.ndarray of uint8
        Everything that the driver is given.
    kinds : numpy.ndarray of uint8
        Kind of each node, as the seam counts them.
    params : numpy.ndarray of uint64
        Address of the struct of each node.
    kernels : sequence of LoadedKernel or None
        The kernel of each node.
    images : list of KernelImage or None
        Its image.
    attributes : dict of int to list of PackedAttribute
        The launch attributes of those kernel nodes that have some.
    """

    def __init__(self, nodes: Sequence[Node], kernels: Sequence[LoadedKernel | None], devices: Devices) -> None:
        self._devices = devices
        self.kernels = kernels
        self.images = [None if kernel is None else kernel.image for kernel in kernels]
        self.kinds = np.array([_KINDS[type(node)][0] for node in nodes], np.uint8)
        self._structs, self._parameters, pointers, nbytes = _place(list(map(_nbytes, nodes)), kernels)
        # NumPy aligns to 16 bytes or more only by luck, so ask for room and cut.
        room = np.zeros(nbytes + _CACHE_LINE, np.uint8)
        start = -room.ctypes.data % _CACHE_LINE
        self.arena = room[start : start + nbytes]
        self._bytes = self.arena.data
        self._words = self.arena.view(np.uint32)
        address = self.arena.ctypes.data
        self.params = (address + np.array(self._structs, np.int64)).astype(np.uint64)
        self._write_fixed(address, pointers)
        self._parts: list[tuple[tuple[int, Template], ...]] = [()] * len(nodes)
        self.attributes: dict[int, list[PackedAttribute]] = {}
        self._access: list[np.ndarray[Any, Any]] = []

    def add(self, index: int, node: Node, shared: Shared) -> None:
        """Pack a node for the first time: with its attributes, which no update changes."""
        self.write(index, node, shared)
        if isinstance(node, KernelNode) and node.attributes is not None:
            self.attributes[index] = list(pack_attributes(node.attributes, shared.values))

    def _write_fixed(self, address: int, pointers: Sequence[int]) -> None:
        """Write what no update changes: the kernels, their contexts, and the pointers to the parameters."""
        words = self.arena.view(np.uint64)
        alike: dict[LoadedKernel, list[int]] = {}
        for index, kernel in enumerate(self.kernels):
            if kernel is not None:
                alike.setdefault(kernel, []).append(index)
        for kernel, indices in alike.items():
            structs, parameters, begins = (
                np.array(offsets, np.int64)[indices] for offsets in (self._structs, self._parameters, pointers)
            )
            context = kernel.device.context
            own = np.array([offset for offset, _ in kernel.image.layout.parameters], np.int64)
            places = begins[:, None] // 8 + np.arange(len(own))
            words[places] = (address + parameters[:, None] + own).astype(np.uint64)
            fields = (("kernel_params", address + begins), (kernel.field, kernel.handle), ("ctx", context))
            for name, value in fields:
                words[(structs + KERNEL_NODE.fields[name][1]) // 8] = value  # type: ignore[index]

    def write(self, index: int, node: Node, shared: Shared) -> None:
        """Pack the fields of a node.

        Host nodes are packed by whoever holds their callbacks (`write_host`), and the graph that a child node is given
        by whoever makes it (`write_child`).
        """
        if isinstance(node, KernelNode):
            kernel = self.kernels[index]
            assert kernel is not None, node
            self._put(
                index,
                (self._structs[index] + _LAUNCH, launch_template(node, shared)),
                (self._parameters[index], argument_template(node, kernel.image, shared)),
            )
        elif isinstance(node, (MemcpyNode, MemsetNode)):
            self._put(index, (self._structs[index], struct_template(node, shared, self._devices.contexts[node.device])))
        elif isinstance(node, ConditionalNode):
            context = self._devices.contexts[node.device]
            self._put(index, (self._structs[index], conditional_template(node, shared, context)))
        elif isinstance(node, NativeHostNode):
            struct.pack_into("=QQ", self._bytes, self._structs[index], node.function, node.user_data)
        elif isinstance(node, EventNode):
            self._put(index, (self._structs[index], event_template(node, shared)))
        elif isinstance(node, AllocNode):
            location, access = self._devices[node.device].ordinal, access_to(self._devices.sharers(node.array))
            self._access.append(access)  # the driver reads it when the node is added
            self._put(index, (self._structs[index], alloc_template(node, location, access)))
        elif isinstance(node, FreeNode):
            self._put(index, (self._structs[index], free_template(node, shared)))
        elif isinstance(node, BatchMemOpNode):
            place = self.arena.ctypes.data + self._structs[index] + NODE_PARAMS.itemsize
            context = self._devices.contexts[node.device]
            self._put(index, (self._structs[index], batch_template(node, shared, context, place)))
        elif isinstance(node, (ChildNode, CapturedNode)):
            self._put(index, (self._structs[index], child_template()))

    def _put(self, index: int, *parts: tuple[int, Template]) -> None:
        for start, template in parts:
            self._bytes[start : start + len(template.data)] = template.data
        self._parts[index] = parts

    def sites(self, index: int) -> Iterator[Site]:
        """The values of a node that can change; their offsets count from the start of the arena."""
        for start, template in self._parts[index]:
            for site in template.sites:
                yield replace(site, offset=start + site.offset)

    def slot(self, index: int, argument: int) -> Slot | None:
        """Where an argument of a kernel node lies; None if the kernel takes it as more than one number."""
        kernel = self.kernels[index]
        assert kernel is not None, index
        layout = kernel.image.layout
        leaves = [leaf for leaf in layout.leaves if leaf.argument == argument]
        if len(leaves) != 1:
            return None
        start, packer = layout.arguments[argument]
        return Slot(self._bytes, self._parameters[index] + start, packer, leaves[0].dtype)

    def write_host(self, index: int, token: int) -> None:
        """Pack a host node: the trampoline, and the token of the call."""
        struct.pack_into("=QQ", self._bytes, self._structs[index], TRAMPOLINE_ADDRESS, token)

    def write_child(self, index: int, graph: int, ownership: int) -> None:
        """Pack the graph that a child or captured node is made from, and what becomes of that."""
        struct.pack_into("=QI", self._bytes, self._structs[index] + UNION_OFFSET, graph, ownership)

    def allocated(self, index: int) -> int:
        """Address of the memory of an alloc node, as the driver gave it when the node was added."""
        offset = self._structs[index] + UNION_OFFSET + ALLOC_NODE.fields["address"][1]  # type: ignore[index]
        return int(struct.unpack_from("=Q", self._bytes, offset)[0])

    def bodies(self, index: int, count: int) -> list[int]:
        """Handles of the graphs inside of a conditional node, as the driver gave them when it was added."""
        offset = self._structs[index] + UNION_OFFSET + CONDITIONAL_NODE.fields["bodies"][1]  # type: ignore[index]
        (address,) = struct.unpack_from("=Q", self._bytes, offset)
        return list((ctypes.c_uint64 * count).from_address(address))

    def dims(self, index: int) -> list[int]:
        """Grid, block and dynamic shared memory of a kernel node, as they are packed."""
        start = (self._structs[index] + _LAUNCH) // 4
        found: list[int] = self._words[start : start + 7].tolist()
        return found

    def save(self, index: int) -> Saved:
        """What `write` may change for a node."""
        parts = self._parts[index]
        return parts, [bytes(self._bytes[start : start + len(template.data)]) for start, template in parts]

    def restore(self, index: int, saved: Saved) -> None:
        """Put back what `save` gave."""
        parts, data = saved
        for (start, _), before in zip(parts, data, strict=True):
            self._bytes[start : start + len(before)] = before
        self._parts[index] = parts


Saved = tuple[tuple[tuple[int, Template], ...], list[bytes]]
"""The parts of a node, and the bytes that lay there."""


def _nbytes(node: Node) -> int:
    """Bytes of the struct of a node, and of what it leads to."""
    extra = MEM_OP.itemsize * len(node.operations) if isinstance(node, BatchMemOpNode) else 0
    return _KINDS[type(node)][1] + extra


def _place(sizes: Sequence[int], kernels: Sequence[LoadedKernel | None]) -> tuple[list[int], list[int], list[int], int]:
    """Offsets of the structs, parameter bytes and pointer arrays of each node, and the bytes in all."""
    structs, parameters, pointers = [], [], []
    end = 0
    for size, kernel in zip(sizes, kernels, strict=True):
        structs.append(end)
        end += _aligned(size)
        if kernel is None:
            parameters.append(_NOWHERE)
            pointers.append(_NOWHERE)
            continue
        layout = kernel.image.layout
        parameters.append(end)
        end += _aligned(layout.nbytes)
        pointers.append(end)
        end += _aligned(8 * len(layout.parameters))
    return structs, parameters, pointers, end


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
