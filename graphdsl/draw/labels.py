"""What drawings say of a node: its short name, and the essentials of what it does in one line of text.

Dot and terminal drawings share it, so that they say the same. This module must not know how text is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

from graphdsl.declare.attributes import LaunchAttributes
from graphdsl.declare.expressions import BinaryExpr
from graphdsl.declare.nesting import ChildNode, ConditionalNode
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import (
    AllocNode,
    BatchMemOpNode,
    CapturedNode,
    EventNode,
    FreeNode,
    HostNode,
    KernelNode,
    MemcpyNode,
    MemsetNode,
    NativeHostNode,
)
from graphdsl.declare.operands import Array, Buffer, Extent
from graphdsl.errors import text_of


def scope_path(node: Node) -> tuple[str, ...]:
    """The scopes that hold a node, outermost first.

    Examples
    --------
    >>> from graphdsl.declare.definition import Definition
    >>> scope_path(Definition().empty(name="encoder/layer0/start"))
    ('encoder', 'layer0')
    """
    return tuple(node.scope.split("/")) if node.scope else ()


def short_name(node: Node) -> str:
    """The name of a node inside its scope; the whole name where nothing else would be left."""
    return (node.name[len(node.scope) + 1 :] if node.scope else node.name) or node.name


@singledispatch
def essentials(node: Node) -> str:
    """What a node does, in one line; empty where its kind says all.

    Examples
    --------
    >>> import numpy as np
    >>> from graphdsl.declare.definition import Definition
    >>> from graphdsl.declare.expressions import cdiv
    >>> graph = Definition()
    >>> n = graph.param("n", np.int32)
    >>> def scale(x, n): ...
    >>> x, y = graph.device_array("x", 1024, np.float32), graph.device_array("y", 1024, np.float32)
    >>> essentials(graph.kernel(scale, grid=cdiv(n, 256), block=256, args=(x, n)))
    'scale<<<cdiv(n, 256), 256>>>'
    >>> essentials(graph.memcpy(y, x)), essentials(graph.memcpy(y[:n], x[:n]))
    ('x → y, 4 KiB', 'x[:n] → y[:n], 4 * n bytes')
    >>> table = graph.device_array("table", (32, 32), np.float32)
    >>> essentials(graph.memcpy(table[:8, :8], table[8:16, 8:16]))
    'table[8:16, 8:16] → table[:8, :8], 8 rows of 32 B'
    """
    return ""


@essentials.register
def _(node: KernelNode) -> str:
    shared = "" if _is_zero(node.shared_bytes) else f", {bytes_text(node.shared_bytes)}"
    launch = f"{node.kernel.name}<<<{dims_text(node.grid)}, {dims_text(node.block)}{shared}>>>"
    return launch if node.attributes is None else f"{launch} {_attributes_text(node.attributes)}"


def _attributes_text(attributes: LaunchAttributes) -> str:
    return ", ".join(
        name if value is True else f"{name}={dims_text(value) if name.endswith('cluster') else operand_text(value)}"
        for name, value in attributes.given()
    )


@essentials.register
def _(node: MemcpyNode) -> str:
    return f"{operand_text(node.source)} → {operand_text(node.destination)}, {_copied_text(node)}"


def _copied_text(node: MemcpyNode) -> str:
    """How much is copied: bytes, or rows of bytes, or slices of them."""
    extents = [each.extent for each in node.dimensions]
    if len(extents) not in (2, 3):
        return bytes_text(node.size)
    *slices, rows, row = extents
    text = f"{operand_text(rows)} rows of {bytes_text(row)}"
    return f"{operand_text(slices[0])} slices of {text}" if slices else text


@essentials.register
def _(node: MemsetNode) -> str:
    return f"{operand_text(node.destination)} = {operand_text(node.value)}"


@essentials.register
def _(node: NativeHostNode) -> str:
    return "a C function"


@essentials.register(HostNode)
@essentials.register(CapturedNode)
def _(node: HostNode | CapturedNode) -> str:
    return f"{getattr(node.function, '__name__', type(node.function).__name__)}()"


@essentials.register
def _(node: ChildNode) -> str:
    return f"graph {node.graph}"


@essentials.register
def _(node: ConditionalNode) -> str:
    return f"{node.form} {node.condition}"


@essentials.register
def _(node: EventNode) -> str:
    return str(node.event)


@essentials.register
def _(node: AllocNode) -> str:
    return f"{operand_text(node.array)}, {bytes_text(node.array.allocation_nbytes)}"


@essentials.register
def _(node: BatchMemOpNode) -> str:
    return ", ".join(map(str, node.operations))


@essentials.register
def _(node: FreeNode) -> str:
    return operand_text(node.array)


def described(node: Node, several: bool) -> str:
    """What a node does, in one line, and where; ``several`` is True in a graph over several devices.

    Examples
    --------
    >>> import numpy as np
    >>> from graphdsl.declare.definition import Definition
    >>> graph = Definition()
    >>> with graph.on(1):
    ...     clear = graph.memset(graph.device_array("x", 4, np.float32), 0)
    >>> described(clear, True), described(clear, False)
    ('x = 0, device 1', 'x = 0')
    """
    where = f"device {node.device}" if several and node.device is not None else ""
    return ", ".join(filter(None, (essentials(node), where)))


def operand_text(operand: Any) -> str:
    """An operand as a person would write it.

    Examples
    --------
    >>> operand_text(3), operand_text((1, 2.5))
    ('3', '(1, 2.5)')
    """
    if isinstance(operand, Buffer):
        return operand.name
    if isinstance(operand, Array):
        return repr(operand)
    if isinstance(operand, tuple):
        return f"({', '.join(map(operand_text, operand))})"
    text = text_of(operand)
    return text[1:-1] if isinstance(operand, BinaryExpr) and text.startswith("(") else text


def dims_text(dims: Sequence[Extent]) -> str:
    """Grid or block dimensions without the trailing ones.

    Examples
    --------
    >>> dims_text((4, 1, 1)), dims_text((4, 2, 1)), dims_text((1, 1, 8))
    ('4', '(4, 2)', '(1, 1, 8)')
    """
    kept = list(dims)
    while len(kept) > 1 and _is_one(kept[-1]):
        kept.pop()
    return operand_text(kept[0]) if len(kept) == 1 else operand_text(tuple(kept))


def bytes_text(size: Extent) -> str:
    """A number of bytes, never rounded: in KiB, MiB or GiB where it is a whole number of them.

    Examples
    --------
    >>> bytes_text(4096), bytes_text(4100), bytes_text(3 << 20)
    ('4 KiB', '4,100 B', '3 MiB')
    """
    if not isinstance(size, int):
        return f"{operand_text(size)} bytes"
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size and size % (1 << shift) == 0:
            return f"{size >> shift:,} {unit}"
    return f"{size:,} B"


def count_text(number: int, what: str) -> str:
    """A number of things.

    Examples
    --------
    >>> count_text(1, "node"), count_text(1200, "edge")
    ('1 node', '1,200 edges')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _is_one(extent: Extent) -> bool:
    return isinstance(extent, int) and extent == 1


def _is_zero(extent: Extent) -> bool:
    return isinstance(extent, int) and extent == 0
