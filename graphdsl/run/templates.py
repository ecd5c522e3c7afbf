"""What the fields of a node are packed into, made once for all nodes that are alike.

A `Template` is a run of bytes with the places in it whose values can change. This module must know the driver's
structs and the leaves of parameters, and not where in memory anything goes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from graphdsl.compile.image import KernelImage, Leaf
from graphdsl.compile.signature import encode
from graphdsl.declare.batch import Comparison, MemoryOperation
from graphdsl.declare.expressions import Expr
from graphdsl.declare.nesting import ConditionalNode
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import (
    AllocNode,
    BatchMemOpNode,
    EventNode,
    EventRecordNode,
    FreeNode,
    KernelNode,
    MemcpyNode,
    MemsetNode,
)
from graphdsl.declare.operands import Array
from graphdsl.declare.pattern import element_size
from graphdsl.drivers.structs import (
    ACCESS_READ_WRITE,
    ALLOC_NODE,
    ALLOCATION_PINNED,
    BATCH_MEM_OP_NODE,
    CHILD_GRAPH_NODE,
    CONDITIONAL_NODE,
    EVENT_NODE,
    FREE_NODE,
    LOCATION_DEVICE,
    MEM_ACCESS,
    MEM_OP,
    MEM_OP_BARRIER,
    MEMCPY_NODE,
    MEMORY_TYPE_DEVICE,
    MEMORY_TYPE_HOST,
    MEMSET_NODE,
    NODE_PARAMS,
    NODE_TYPE_ALLOC,
    NODE_TYPE_BATCH_MEM_OP,
    NODE_TYPE_CHILD,
    NODE_TYPE_CONDITIONAL,
    NODE_TYPE_EVENT_RECORD,
    NODE_TYPE_EVENT_WAIT,
    NODE_TYPE_FREE,
    UNION_OFFSET,
    WAIT_VALUE_32,
    WAIT_VALUE_64,
    WRITE_VALUE_32,
    WRITE_VALUE_64,
)
from graphdsl.run.derived import AddressOf, HandleOf, Part, Pattern, Site, evaluated, pattern_of, settled
from graphdsl.run.rows import copied_rows, set_rows

_UINT32 = np.dtype(np.uint32)
_UINT64 = np.dtype(np.uint64)
_DIMS = struct.Struct("=7I")
_FORMS = ("if", "while", "switch")  # as the driver counts them


@dataclass(frozen=True, eq=False)
class Template:
    """Packed bytes, and what in them can change.

    Attributes
    ----------
    data : bytes
        The bytes, with the values that held when it was made.
    sites : tuple of Site
        The changeable values; offsets count from the start of the bytes.
    """

    data: bytes
    sites: tuple[Site, ...]


@dataclass(eq=False)
class Shared:
    """Work that nodes packed with the same values share. Operands, known by identity, must outlive it.

    Attributes
    ----------
    values : dict of str to number
        The value of each param and the address of each buffer, by name.
    """

    values: dict[str, Any]
    memo: dict[Expr, Any] = field(default_factory=dict)
    converted: dict[tuple[Expr, np.dtype[Any]], Any] = field(default_factory=dict)
    leaves: dict[tuple[int, Any], tuple[Any, ...]] = field(default_factory=dict)
    arguments: dict[tuple[Any, ...], Template] = field(default_factory=dict)
    launches: dict[tuple[Any, ...], Template] = field(default_factory=dict)

    def value(self, value: Expr, dtype: np.dtype[Any], node: Node, name: str) -> Any:
        """The value of an expression as ``dtype`` holds it; ``node`` and the field's ``name`` are for messages."""
        key = (value, dtype)
        found = self.converted.get(key)
        if found is None:
            found = self.converted[key] = evaluated(value, dtype, node, name, self.values, self.memo)
        return found


def launch_template(node: KernelNode, shared: Shared) -> Template:
    """Grid, block and dynamic shared memory of a kernel node, as they stand in its struct."""
    key = (node.grid, node.block, node.shared_bytes)
    found = shared.launches.get(key)
    if found is None:
        found = shared.launches[key] = _launch_template(node, shared)
    return found


def _launch_template(node: KernelNode, shared: Shared) -> Template:
    dims = [*node.grid, *node.block, node.shared_bytes]
    sites = []
    for i, extent in enumerate(dims):
        if isinstance(extent, Expr):
            name = "grid" if i < 3 else "block" if i < 6 else "shared_bytes"
            sites.append(Site(4 * i, _UINT32, extent, name, "launch"))
            dims[i] = shared.value(extent, _UINT32, node, name)
    return Template(_DIMS.pack(*dims), tuple(sites))


def argument_template(node: KernelNode, image: KernelImage, shared: Shared) -> Template:
    """The parameter bytes of a kernel node."""
    key = (image, *map(id, node.args))
    found = shared.arguments.get(key)
    if found is None:
        found = shared.arguments[key] = _argument_template(node, image, shared)
    return found


def _argument_template(node: KernelNode, image: KernelImage, shared: Shared) -> Template:
    layout = image.layout
    leaves = _leaf_values(node.args, image, shared)
    sites = []
    for i, value in enumerate(leaves):
        if isinstance(value, Expr):
            leaf = layout.leaves[i]
            name = f"argument {layout.names[leaf.argument]!r}"
            rules = "node" if node.kernel.ruled(leaf.argument) else _rules_of(leaf, value)
            sites.append(Site(leaf.offset, leaf.dtype, value, name, rules))
            leaves[i] = shared.value(value, leaf.dtype, node, name)
    return Template(layout.struct.pack(*leaves), tuple(sites))


def _rules_of(leaf: Leaf, value: Expr) -> Literal["none", "node"]:
    """A scalar, and an address that is re-bound as a whole, can be any; a view must stay in its buffer."""
    is_scalar = leaf.path == () or leaf.path[-1] in ("real", "imag")
    is_whole = isinstance(value, AddressOf) and not value.params
    return "none" if is_scalar or is_whole else "node"


def _leaf_values(args: Sequence[Any], image: KernelImage, shared: Shared) -> list[Any]:
    """What the leaves of all arguments hold: numbers, or expressions for what can change."""
    layout = image.layout
    leaves: list[Any] = []
    for argument, (operand, codec) in enumerate(zip(args, layout.codecs, strict=True)):
        if not isinstance(operand, (Expr, Array, tuple)):
            leaves += codec.encode(operand, layout.names[argument])
            continue
        key = (id(operand), layout.types[argument])
        found = shared.leaves.get(key)
        if found is None:
            values = (_leaf_value(operand, layout.types[argument], path) for path, _ in codec.leaves)
            found = shared.leaves[key] = tuple(settled(value, shared.values) for value in values)
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
        return array.size
    if kind == "itemsize":
        return array.dtype.itemsize
    if kind in ("shape", "strides"):
        return getattr(array, kind)[path[1]]
    return 0  # meminfo and parent: no reference counting on a device


def conditional_template(node: ConditionalNode, shared: Shared, context: int) -> Template:
    """The struct of a conditional node."""
    fields = np.zeros((), CONDITIONAL_NODE)
    fields["handle"] = node.condition.evaluate(shared.values)
    fields["form"], fields["size"], fields["ctx"] = _FORMS.index(node.form), body_count(node), context
    return _generic(NODE_TYPE_CONDITIONAL, fields)


def body_count(node: ConditionalNode) -> int:
    """How many bodies the driver is asked for: an if without nodes in ``otherwise`` has one."""
    return 1 if node.form == "if" and not node.otherwise.dag else len(node.bodies)


def child_template() -> Template:
    """The struct of a child or captured node; the graph is packed when there is one."""
    return _generic(NODE_TYPE_CHILD, np.zeros((), CHILD_GRAPH_NODE))


def access_to(devices: Sequence[int]) -> np.ndarray[Any, Any]:
    """What says that devices besides the one that has it reach an allocation."""
    made = np.zeros(len(devices), MEM_ACCESS)
    made["location_type"], made["location"], made["flags"] = LOCATION_DEVICE, devices, ACCESS_READ_WRITE
    return made


def alloc_template(node: AllocNode, ordinal: int, access: np.ndarray[Any, Any]) -> Template:
    """The struct of an alloc node on a device; the driver writes the address into it."""
    fields = np.zeros((), ALLOC_NODE)
    fields["allocation_type"], fields["location_type"], fields["location"] = ALLOCATION_PINNED, LOCATION_DEVICE, ordinal
    if len(access):
        fields["access"], fields["access_count"] = access.ctypes.data, len(access)
    fields["nbytes"] = max(node.array.allocation_nbytes, 1)
    return _generic(NODE_TYPE_ALLOC, fields)


def free_template(node: FreeNode, shared: Shared) -> Template:
    """The struct of a free node."""
    fields = np.zeros((), FREE_NODE)
    fields["address"] = shared.values[node.array.name]
    return _generic(NODE_TYPE_FREE, fields)


def batch_template(node: BatchMemOpNode, shared: Shared, context: int, place: int) -> Template:
    """The struct of a batch memory operation node, and behind it the operations, which lie at the address ``place``."""
    fields = np.zeros((), BATCH_MEM_OP_NODE)
    fields["ctx"], fields["count"], fields["operations"] = context, len(node.operations), place
    rows = np.zeros(len(node.operations), MEM_OP)
    sites: list[Site] = []
    for index, operation in enumerate(node.operations):
        rows[index]["operation"] = _mem_op(operation)
        if operation.array is None:
            continue
        rows[index]["flags"] = 0 if operation.comparison is None else get_args(Comparison).index(operation.comparison)
        start = NODE_PARAMS.itemsize + index * MEM_OP.itemsize
        word = operation.array.dtype
        for name, value, dtype in (("address", AddressOf(operation.array), _UINT64), ("value", operation.value, word)):
            offset = MEM_OP.fields[name][1]  # type: ignore[index]
            value = settled(value, shared.values)
            if isinstance(value, Expr):
                sites.append(Site(start + offset, dtype, value, f"operations[{index}].{name}", "node"))
                value = shared.value(value, dtype, node, f"operations[{index}].{name}")
            rows[index][name] = int(value) % 2 ** (8 * dtype.itemsize)
    made = _generic(NODE_TYPE_BATCH_MEM_OP, fields)
    return Template(made.data + rows.tobytes(), tuple(sites))


def _mem_op(operation: MemoryOperation) -> int:
    if operation.array is None:
        return MEM_OP_BARRIER
    wide = operation.array.dtype.itemsize == 8
    if operation.form == "wait":
        return WAIT_VALUE_64 if wide else WAIT_VALUE_32
    return WRITE_VALUE_64 if wide else WRITE_VALUE_32


def event_template(node: EventNode, shared: Shared) -> Template:
    """The struct of a node that records or waits for an event."""
    handle = HandleOf(node.event)
    fields = np.zeros((), EVENT_NODE)
    fields["event"] = handle.evaluate(shared.values)
    sites = (Site(UNION_OFFSET, fields.dtype["event"], handle, "event", "none"),) if node.event.external else ()
    return _generic(
        NODE_TYPE_EVENT_RECORD if isinstance(node, EventRecordNode) else NODE_TYPE_EVENT_WAIT, fields, sites
    )


def _generic(node_type: int, fields: np.ndarray[Any, Any], sites: tuple[Site, ...] = ()) -> Template:
    row = np.zeros((), NODE_PARAMS)
    row["type"] = node_type
    data = bytearray(row.tobytes())
    data[UNION_OFFSET : UNION_OFFSET + fields.nbytes] = fields.tobytes()
    return Template(bytes(data), sites)


def struct_template(node: MemcpyNode | MemsetNode, shared: Shared, context: int) -> Template:
    """The struct of a memcpy or memset node."""
    dtype, fields = (
        (MEMCPY_NODE, _memcpy_fields(node)) if isinstance(node, MemcpyNode) else (MEMSET_NODE, _memset_fields(node))
    )
    row = np.zeros((), dtype)
    row["ctx"] = context
    sites = []
    for name, (value, called) in fields.items():
        value = settled(value, shared.values)
        if isinstance(value, Expr):
            place, offset = dtype.fields[name][:2]  # type: ignore[index]
            sites.append(Site(offset, place, value, called, "node"))
            value = shared.value(value, place, node, called)
        row[name] = value
    return Template(row.tobytes(), tuple(sites))


def _memcpy_fields(node: MemcpyNode) -> dict[str, tuple[Any, str]]:
    called = "destination" if node.nbytes is None else "nbytes"
    fields: dict[str, tuple[Any, str]] = {
        name: (extent, called) for name, extent in copied_rows(node.dimensions).items()
    }
    for side, array in (("source", node.source), ("destination", node.destination)):
        on_device = array.space == "device"
        fields[f"{side}_memory_type"] = (MEMORY_TYPE_DEVICE if on_device else MEMORY_TYPE_HOST, side)
        fields[f"{side}_{'device' if on_device else 'host'}"] = (AddressOf(array), side)
    return fields


def _memset_fields(node: MemsetNode) -> dict[str, tuple[Any, str]]:
    dtype = node.destination.dtype
    if isinstance(node.value, Expr):
        bits: Any = Pattern(node.value, dtype, node)
    else:
        bits = pattern_of(node.value, dtype, node)
    fields: dict[str, tuple[Any, str]] = {name: (extent, "destination") for name, extent in set_rows(node).items()}
    fields["destination"] = (AddressOf(node.destination), "destination")
    fields["value"] = (bits, "value")
    fields["element_size"] = (element_size(dtype), "destination")
    return fields
