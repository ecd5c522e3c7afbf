"""What nodes read and write: of copies, memsets, words and elements known exactly, of what calls code as it shows.

Of a kernel the code tells more than its operands do: `graphdsl.compile.accesses` asks it. This module must not judge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from graphdsl.declare.elementwise import ElementwiseKernel
from graphdsl.declare.expressions import Expr, value_of
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import BatchMemOpNode, CapturedNode, HostNode, KernelNode, MemcpyNode, MemsetNode
from graphdsl.declare.operands import Array, Extent, span_nbytes
from graphdsl.declare.touches import Touches, arrays_in

Span = tuple[int, int]
"""Bytes of a buffer: the first, and the one behind the last."""


class Access(NamedTuple):
    """Memory that a node works on.

    Attributes
    ----------
    array : Buffer or View
        The memory.
    reads, writes : bool
        What is done to it; both where it is not known.
    nbytes : int, Expr or None
        Bytes touched at most, from the first on; None for all that the array spans.
    skipped : int or Expr
        Bytes between the first element of the array and the first that is touched.
    atomic : str or None
        The one kind of atomic operation that is all that is done to it, such as ``"add"``.
    known : bool
        False where what is done could not be told, and was taken to be both.
    scattered : bool
        True where a kernel writes at places that follow from what it reads, or from a number other than a bound, and
        where that is not known: what an earlier launch wrote elsewhere in the array may be meant to stay.
    """

    array: Array
    reads: bool
    writes: bool
    nbytes: Extent | None = None
    skipped: Extent = 0
    atomic: str | None = None
    known: bool = True
    scattered: bool = False

    def span(self, values: Mapping[str, Any], memo: dict[Expr, Any] | None = None) -> Span:
        """The bytes of the buffer; all of it where params have no value.

        Between the rows of a strided array lie bytes that are not touched, and counted all the same. ``memo`` shares
        values of expressions between calls with the same values of params.
        """
        array = self.array
        try:
            start = int(value_of(array.offset, values, memo)) + int(value_of(self.skipped, values, memo))
            if self.nbytes is not None:
                return start, start + int(value_of(self.nbytes, values, memo))
            shape = tuple(int(value_of(extent, values, memo)) for extent in array.shape)
        except (ArithmeticError, KeyError):
            return 0, array.buffer.allocation_nbytes
        return start, start + span_nbytes(shape, array.strides, array.dtype.itemsize)


def accesses(node: Node) -> Iterator[Access]:
    """What a node reads and writes; of what calls code, what the user says.

    Examples
    --------
    >>> import numpy as np
    >>> from graphdsl.declare.definition import Definition
    >>> graph = Definition()
    >>> x, y = (graph.device_array(name, 8, np.float32) for name in "xy")
    >>> [(each.array.name, each.reads, each.writes) for each in accesses(graph.memcpy(y, x))]
    [('y', False, True), ('x', True, False)]
    """
    if isinstance(node, MemcpyNode):
        yield Access(node.destination, False, True, node.nbytes)
        yield Access(node.source, True, False, node.nbytes)
    elif isinstance(node, MemsetNode):
        yield Access(node.destination, False, True)
    elif isinstance(node, BatchMemOpNode):
        for operation in node.operations:
            if operation.array is not None:
                yield Access(operation.array, operation.form == "wait", operation.form == "write")
    elif isinstance(node, KernelNode) and isinstance(node.kernel, ElementwiseKernel):
        for index, array in enumerate(node.args):
            if isinstance(array, Array):
                yield Access(array, node.kernel.reads(index), node.kernel.writes(index))
    elif isinstance(node, (KernelNode, HostNode, CapturedNode)):
        told = node.touches or _NOTHING
        for path, array in arrays_in(node.args):
            reads = told.reads_at(path, True)
            writes = told.writes_at(path, True) and not array.buffer.readonly
            if reads or writes:
                yield Access(array, reads, writes, known=told.complete, scattered=writes and told.writes is None)


_NOTHING = Touches(None, None)
