"""Packs nodes into the driver's structs, and remembers where each changeable value lies.

One arena of bytes holds all that the driver is given: node structs, the parameter bytes of kernels, and the arrays
of pointers to them. A value that depends on a param or on re-bindable memory leaves a `Site` behind, by which an
update finds it again. This module must not call the driver.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from graphdsl.compile.image import KernelImage, Leaf, ParameterLayout
from graphdsl.compile.signature import encode
from graphdsl.declare.expressions import Expr, convert_scalar
from graphdsl.declare.nodes import EmptyNode, HostNode, KernelNode, MemcpyNode, MemsetNode, Node
from graphdsl.declare.operands import Array
from graphdsl.declare.pattern import element_size, memset_pattern
from graphdsl.drivers.structs import (
    EMPTY,
    HOST,
    HOST_NODE,
    KERNEL,
    KERNEL_NODE,
    MEMCPY,
    MEMCPY_NODE,
    MEMORY_TYPE_DEVICE,
    MEMORY_TYPE_HOST,
    MEMSET,
    MEMSET_NODE,
)
from graphdsl.errors import UpdateError
from graphdsl.run.callbacks import TRAMPOLINE_ADDRESS
from graphdsl.run.modules import LoadedKernel

LeafCache = dict[tuple[int, Any], tuple[Any, ...]]
"""Leaf values of operands by their identity and type."""

_ALIGNMENT = 16
_KINDS: dict[type[Node], tuple[int, np.dtype[Any] | None]] = {
    KernelNode: (KERNEL, KERNEL_NODE),
    MemcpyNode: (MEMCPY, MEMCPY_NODE),
    MemsetNode: (MEMSET, MEMSET_NODE),
    HostNode: (HOST, HOST_NODE),
    EmptyNode: (EMPTY, None),
}
_UINT64 = np.dtype(np.uint64)
_UINT32 = np.dtype(np.uint32)
_ROW = struct.Struct("=Q3I3II4xQQQQ")  # KERNEL_NODE
_GRID = KERNEL_NODE.fields["grid"][1]  # type: ignore[index]


class Derived(Expr):
    """A value that the driver is given and that follows from an expression or a buffer.

    Attributes
    ----------
    names : frozenset of str
        Params and buffers that it depends on.
    """

    __slots__ = ("key", "names")
    names: frozenset[str]
    key: tuple[Any, ...]

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return " ".join(map(str, self.key))


class AddressOf(Derived):
    """The address of an array: that of its buffer, and the offset in it."""

    __slots__ = ("external",)

    def __init__(self, array: Array) -> None:
        self.key = (array.buffer.name, array.offset)
        self.external = array.buffer.external
        self.dtype = _UINT64
        self.params = array.params
        self.names = frozenset({array.buffer.name, *(param.name for param in array.params)})

    def evaluate(self, values: Mapping[str, Any], memo: dict[Expr, Any] | None = None) -> int:
        name, offset = self.key
        return int(values[name] + (offset.evaluate(values, memo) if isinstance(offset, Expr) else offset))


class Part(Derived):
    """The real or imaginary part of a complex expression."""

    __slots__ = ()

    def __init__(self, expression: Expr, part: str) -> None:
        self.key = (expression, part)
        self.dtype = np.dtype(f"f{expression.dtype.itemsize // 2}")
        self.params = expression.params
        self.names = names_of(expression)

    def evaluate(self, values: Mapping[str, Any], memo: dict[Expr, Any] | None = None) -> float:
        expression, part = self.key
        return float(getattr(complex(expression.evaluate(values, memo)), part))


class Pattern(Derived):
    """The bits that a memset repeats for the value of an expression."""

    __slots__ = ("node",)

    def __init__(self, expression: Expr, dtype: np.dtype[Any], node: Node) -> None:
        self.key = (expression, dtype)
        self.dtype = _UINT32
        self.params = expression.params
        self.names = names_of(expression)
        self.node = node

    def evaluate(self, values: Mapping[str, Any], memo: dict[Expr, Any] | None = None) -> int:
        expression, dtype = self.key
        value = expression.evaluate(values, memo)
        return pattern_of(value, dtype, self.node)


def settled(value: Any, values: Mapping[str, Any]) -> Any:
    """An address that no update can change as the number it is; anything else as it came."""
    if isinstance(value, AddressOf) and not value.params and not value.external:
        return value.evaluate(values)
    return value


def pattern_of(value: Any, dtype: np.dtype[Any], node: Node) -> int:
    """The bits that a memset repeats, or an `UpdateError` that names the node."""
    value = convert_scalar(value, dtype, field="value", error=UpdateError, node=node.name, location=node.location)
    bits = memset_pattern(value, dtype)
    if bits is None:
        raise UpdateError(
            f"a memset repeats 4 bytes, and those of this {dtype} do not repeat",
            node=node.name,
            field="value",
            value=value,
            remedy="Use a kernel to fill with this value.",
            location=node.location,
        )
    return bits


def names_of(expression: Expr) -> frozenset[str]:
    """Params and buffers that the value depends on, by name."""
    if isinstance(expression, Derived):
        return expression.names
    return frozenset(param.name for param in expression.params)


@dataclass(frozen=True)
class Site:
    """A place in the arena whose value can change.

    Attributes
    ----------
    offset : int
        Bytes from the start of the arena.
    dtype : numpy.dtype
        What lies there.
    value : Expr
        What it follows from.
    field : str
        The node's field, as messages call it.
    rules : "none", "launch" or "node"
        Which rules a new value must keep besides fitting ``dtype``: those about launches, or any about the node.
    """

    offset: int
    dtype: np.dtype[Any]
    value: Expr
    field: str
    rules: Literal["none", "launch", "node"]


class Packing:
    """The packed nodes of a graph.

    Attributes
    ----------
    arena : numpy.ndarray of uint8
        Everything that the driver is given.
    kinds : numpy.ndarray of uint8
        Kind of each node, as the seam counts them.
    offsets : list of int
        Where the struct of each node begins in the arena; -1 for a node without one.
    params : numpy.ndarray of uint64
        Address of the struct of each node.
    sites : list of lists of Site
        The changeable values of each node.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        kernels: Sequence[LoadedKernel | None],
        context: int,
        values: Mapping[str, Any],
    ) -> None:
        self.kernels = kernels
        self.images = images = [None if kernel is None else kernel.image for kernel in kernels]
        self.context = context
        self._structs = [_KINDS[type(node)][1] for node in nodes]
        self.offsets, self._parameters, self._pointers, nbytes = _place(nodes, images)
        # NumPy aligns to 16 bytes or more only by luck, so ask for room and cut.
        room = np.zeros(nbytes + 64, np.uint8)
        start = -room.ctypes.data % 64
        self.arena = room[start : start + nbytes]
        self.address: int = self.arena.ctypes.data
        self._bytes = self.arena.data
        self._words = self.arena.view(np.uint32)
        self.kinds = np.array([_KINDS[type(node)][0] for node in nodes], np.uint8)
        self.params = np.array([self.address + max(offset, 0) for offset in self.offsets], np.uint64)
        self.sites: list[list[Site]] = [[] for _ in nodes]
        memo: dict[Expr, Any] = {}
        leaves: LeafCache = {}
        for index, node in enumerate(nodes):
            self.write(index, node, values, memo, leaves)

    def write(
        self, index: int, node: Node, values: Mapping[str, Any], memo: dict[Expr, Any], leaves: LeafCache
    ) -> None:
        """Pack a node: its fields as they are now, and the sites of those that can change.

        ``memo`` and ``leaves`` share work between nodes that are packed with the same values; operands must outlive
        them. Host nodes are packed by whoever holds their callbacks, see `write_host`.
        """
        sites: list[Site] = []
        self.sites[index] = sites
        if isinstance(node, KernelNode):
            self._write_kernel(index, node, values, memo, sites)
            self._write_arguments(index, node, values, memo, sites, leaves)
        elif isinstance(node, MemcpyNode):
            self._write_fields(index, node, MEMCPY_NODE, _memcpy_fields(node), values, memo)
        elif isinstance(node, MemsetNode):
            self._write_fields(index, node, MEMSET_NODE, _memset_fields(node), values, memo)

    def write_number(self, index: int, node: KernelNode, argument: int) -> None:
        """Pack one argument of a kernel node that is a number; its sites, if it had any, are gone."""
        image = self.images[index]
        assert image is not None, node
        layout = image.layout
        start, packer = _argument_struct(layout, argument)
        leaves = layout.codecs[argument].encode(node.args[argument], node.kernel.parameters[argument])
        start += self._parameters[index]
        packer.pack_into(self._bytes, start, *leaves)
        if self.sites[index]:
            end = start + packer.size
            self.sites[index] = [site for site in self.sites[index] if not start <= site.offset < end]

    def dims(self, index: int) -> list[int]:
        """Grid, block and dynamic shared memory of a kernel node, as they are packed."""
        start = (self.offsets[index] + _GRID) // 4
        found: list[int] = self._words[start : start + 7].tolist()
        return found

    def save(self, index: int) -> list[tuple[int, bytes]]:
        """The bytes that `write` may change for a node, with their offsets."""
        node_struct, image = self._structs[index], self.images[index]
        spans = [(self.offsets[index], 0 if node_struct is None else node_struct.itemsize)]
        if image is not None:
            spans.append((self._parameters[index], image.layout.nbytes))
        return [(start, self.arena[start : start + nbytes].tobytes()) for start, nbytes in spans]

    def restore(self, index: int, saved: list[tuple[int, bytes]], sites: list[Site]) -> None:
        """Put back what `save` gave, and the sites that belong to it."""
        for start, data in saved:
            self.arena[start : start + len(data)] = np.frombuffer(data, np.uint8)
        self.sites[index] = sites

    def write_host(self, index: int, token: int) -> None:
        """Pack a host node: the trampoline, and the token of the call."""
        struct.pack_into("=QQ", self._bytes, self.offsets[index], TRAMPOLINE_ADDRESS, token)

    def _write_kernel(
        self, index: int, node: KernelNode, values: Mapping[str, Any], memo: dict[Expr, Any], sites: list[Site]
    ) -> None:
        kernel = self.kernels[index]
        assert kernel is not None, node
        base = self.offsets[index]
        dims = [*node.grid, *node.block, node.shared_bytes]
        for i, extent in enumerate(dims):
            if isinstance(extent, Expr):
                field = "grid" if i < 3 else "block" if i < 6 else "shared_bytes"
                sites.append(Site(base + _GRID + 4 * i, _UINT32, extent, field, "launch"))
                dims[i] = evaluated(extent, _UINT32, node, field, values, memo)
        pointers = self._pointers[index]
        _ROW.pack_into(self._bytes, base, 0, *dims, self.address + pointers, 0, kernel.handle, self.context)

    def _write_arguments(
        self,
        index: int,
        node: KernelNode,
        values: Mapping[str, Any],
        memo: dict[Expr, Any],
        sites: list[Site],
        cache: LeafCache,
    ) -> None:
        image = self.images[index]
        assert image is not None, node
        layout = image.layout
        leaves = _leaf_values(node.args, image, values, cache)
        start = self._parameters[index]
        for i, (leaf, value) in enumerate(zip(layout.leaves, leaves)):
            if isinstance(value, Expr):
                field = f"argument {node.kernel.parameters[leaf.argument]!r}"
                sites.append(Site(start + leaf.offset, leaf.dtype, value, field, _rules_of(leaf, value)))
                leaves[i] = evaluated(value, leaf.dtype, node, field, values, memo)
        layout.struct.pack_into(self._bytes, start, *leaves)
        address = self.address + start
        pointers = [address + leaf.offset for leaf in layout.leaves]
        struct.pack_into(f"={len(pointers)}Q", self._bytes, self._pointers[index], *pointers)

    def _write_fields(
        self,
        index: int,
        node: Node,
        dtype: np.dtype[Any],
        fields: Mapping[str, tuple[Any, str]],
        values: Mapping[str, Any],
        memo: dict[Expr, Any],
    ) -> None:
        base = self.offsets[index]
        row = self.arena[base : base + dtype.itemsize].view(dtype)
        row[...] = 0
        for name, (value, field) in fields.items():
            value = settled(value, values)
            if isinstance(value, Expr):
                place, offset = dtype.fields[name][:2]  # type: ignore[index]
                self.sites[index].append(Site(base + offset, place, value, field, "node"))
                value = evaluated(value, place, node, field, values, memo)
            row[name] = value


def _place(nodes: Sequence[Node], images: Sequence[KernelImage | None]) -> tuple[list[int], list[int], list[int], int]:
    """Offsets of the structs, parameter bytes and pointer arrays of each node, and the bytes in all."""
    end = 0

    def take(nbytes: int) -> int:
        nonlocal end
        start = end
        end += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        return start

    offsets, parameters, pointers = [], [], []
    for node, image in zip(nodes, images):
        dtype = _KINDS[type(node)][1]
        offsets.append(-1 if dtype is None else take(dtype.itemsize))
        parameters.append(-1 if image is None else take(image.layout.nbytes))
        pointers.append(-1 if image is None else take(8 * len(image.layout.leaves)))
    return offsets, parameters, pointers, end


def _rules_of(leaf: Leaf, value: Expr) -> Literal["none", "node"]:
    """A scalar, and an address that is re-bound as a whole, can be any; a view must stay in its buffer."""
    is_scalar = leaf.path == () or leaf.path[-1] in ("real", "imag")
    is_whole = isinstance(value, AddressOf) and not value.params
    return "none" if is_scalar or is_whole else "node"


def evaluated(
    value: Expr, dtype: np.dtype[Any], node: Node, field: str, values: Mapping[str, Any], memo: dict[Expr, Any]
) -> Any:
    """The value of an expression as ``dtype`` holds it, or an `UpdateError` that names the node and the field."""
    try:
        found = value.evaluate(values, memo)
    except ZeroDivisionError:
        raise UpdateError(
            f"{value} divides by zero",
            node=node.name,
            field=field,
            remedy="Choose other values for its params.",
            location=node.location,
        ) from None
    if isinstance(found, (np.datetime64, np.timedelta64)):
        found = int(found.astype(np.int64))  # a kernel is passed the count of units
    return convert_scalar(found, dtype, field=field, error=UpdateError, node=node.name, location=node.location)


@functools.cache
def _argument_struct(layout: ParameterLayout, argument: int) -> tuple[int, struct.Struct]:
    """Where the leaves of an argument begin in the parameters, and how they are packed."""
    own = [leaf for leaf in layout.leaves if leaf.argument == argument]
    start = own[0].offset
    alone = ParameterLayout(
        tuple(replace(leaf, offset=leaf.offset - start) for leaf in own), layout.nbytes - start, (), ()
    )
    return start, alone.struct


def _leaf_values(args: Sequence[Any], image: KernelImage, values: Mapping[str, Any], cache: LeafCache) -> list[Any]:
    """What the leaves of all arguments hold: numbers, or expressions for what can change."""
    leaves: list[Any] = []
    for argument, (operand, numba_type) in enumerate(zip(args, image.layout.types)):
        if not isinstance(operand, (Expr, Array, tuple)):
            leaves += encode(numba_type, operand)
            continue
        key = (id(operand), numba_type)
        found = cache.get(key)
        if found is None:
            paths = [leaf.path for leaf in image.layout.leaves if leaf.argument == argument]
            found = tuple(settled(_leaf_value(operand, numba_type, path), values) for path in paths)
            cache[key] = found
        leaves += found
    return leaves


def _leaf_value(operand: Any, numba_type: Any, path: tuple[Any, ...]) -> Any:
    """What one leaf of an argument holds: a number, or an expression."""
    if path and path[0] == "item":
        item = operand[path[1]]
        return _leaf_value(item, numba_type[path[1]], path[2:])
    if isinstance(operand, Array):
        return _array_leaf(operand, path)
    if isinstance(operand, Expr):
        return Part(operand, path[0]) if path else operand
    parts = encode(numba_type, operand)
    return parts[0 if path in ((), ("real",)) else 1]


def _array_leaf(array: Array, path: tuple[Any, ...]) -> Any:
    kind = path[0]
    if kind == "address":
        return AddressOf(array)
    if kind == "size":
        size = array.nbytes // array.dtype.itemsize if isinstance(array.nbytes, int) else None
        return size if size is not None else _element_count(array)
    if kind == "itemsize":
        return array.dtype.itemsize
    if kind in ("shape", "strides"):
        return getattr(array, kind)[path[1]]
    return 0  # meminfo and parent: no reference counting on a device


def _element_count(array: Array) -> Any:
    count: Any = 1
    for extent in array.shape:
        count = extent if count == 1 else count * extent
    return count


def _memcpy_fields(node: MemcpyNode) -> dict[str, tuple[Any, str]]:
    fields: dict[str, tuple[Any, str]] = {"height": (1, ""), "depth": (1, ""), "width": (node.size, "nbytes")}
    for side, array in (("source", node.source), ("destination", node.destination)):
        on_device = array.space == "device"
        fields[f"{side}_memory_type"] = (MEMORY_TYPE_DEVICE if on_device else MEMORY_TYPE_HOST, side)
        fields[f"{side}_{'device' if on_device else 'host'}"] = (AddressOf(array), side)
    return fields


def _memset_fields(node: MemsetNode) -> dict[str, tuple[Any, str]]:
    array = node.destination
    size = element_size(array.dtype)
    if isinstance(node.value, Expr):
        bits: Any = Pattern(node.value, array.dtype, node)
    else:
        bits = pattern_of(node.value, array.dtype, node)
    return {
        "destination": (AddressOf(array), "destination"),
        "value": (bits, "value"),
        "element_size": (size, "destination"),
        "width": (array.nbytes // size, "destination"),
        "height": (1, ""),
    }
