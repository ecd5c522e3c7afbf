"""What nodes read and write, with what the code of Numba kernels tells: where `graphdsl.declare.accesses` says unknown.

Numba is imported for graphs that have such kernels, and for no others. This module must not judge.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from graphdsl.compile.access_places import Bytes, Sizes, places, symbols_of
from graphdsl.declare import accesses as declared
from graphdsl.declare.accesses import Access
from graphdsl.declare.elementwise import ElementwiseKernel
from graphdsl.declare.expressions import Expr
from graphdsl.declare.kernel import Kernel
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import KernelNode
from graphdsl.declare.operands import Array, Extent
from graphdsl.declare.sources import SourceKernel
from graphdsl.declare.touches import Touches
from graphdsl.errors import CompileError

if TYPE_CHECKING:
    from graphdsl.compile.access import ArgumentAccess
    from graphdsl.compile.reads import Reads


def accesses(node: Node) -> Iterator[Access]:
    """What a node reads and writes.

    Examples
    --------
    >>> import numpy as np
    >>> from numba import cuda
    >>> from graphdsl.declare.definition import Definition
    >>> def half(x, y, n):
    ...     i = cuda.grid(1)
    ...     if i < n:
    ...         y[i] = x[i] / 2
    >>> graph = Definition()
    >>> x, y = (graph.device_array(name, 8, np.float32) for name in "xy")
    >>> node = graph.kernel(half, grid=1, block=8, args=(x, y, np.int32(4)))
    >>> [(each.array.name, each.reads, each.writes, each.span({})) for each in accesses(node)]
    [('x', True, False, (0, 16)), ('y', False, True, (0, 16))]
    """
    found = _asked(node)
    if found is None:
        return declared.accesses(node)
    args: Any = node.args  # type: ignore[attr-defined]  # it is a kernel node
    return iter([Access(_operand(args, path), *done) for path, done in found.done(node)])


class Told(NamedTuple):
    """One row of what is said of a node.

    Attributes
    ----------
    field : str
        What holds the array, as messages call it.
    array : Buffer or View
        The array.
    access : Access or None
        What is done to it; None for nothing.
    why : str
        Why it is not known, if it is not.
    """

    field: str
    array: Array
    access: Access | None
    why: str


def explained(node: Node) -> Iterator[Told]:
    """What a node reads and writes, with the field that holds each array, and the reason where it is not known.

    Examples
    --------
    >>> from graphdsl.declare.definition import Definition
    >>> graph = Definition()
    >>> x = graph.device_array("x", 8, "f4")
    >>> def clear(x):
    ...     x[0] = 0
    >>> [(each.field, each.access.writes) for each in explained(graph.kernel(clear, grid=1, block=1, args=x))]
    [("argument 'x'", True)]
    """
    found = _asked(node)
    if found is None:
        for access in declared.accesses(node):
            field = next((name for name, operand in node.fields() if _holds(operand, access.array)), "")
            yield Told(field, access.array, access, "" if access.known else _unread(node))
        return
    done = found.done(node)
    for argument in found.arguments:
        array, field = _operand(node.args, argument.path), f"argument {argument.name!r}"  # type: ignore[attr-defined]
        own = [Access(array, *each) for path, each in done if path == argument.path]
        if not own:
            yield Told(field, array, None, "")
        yield from (Told(field, array, access, "" if access.known else argument.why) for access in own)


def written_by(nodes: Iterable[Node]) -> set[str]:
    """Names of the buffers that nodes write."""
    return {access.array.buffer.name for node in nodes for access in accesses(node) if access.writes}


def _holds(operand: Any, array: Array) -> bool:
    return operand is array or (isinstance(operand, tuple) and any(_holds(item, array) for item in operand))


def _unread(node: Node) -> str:
    if isinstance(node, KernelNode) and not isinstance(node.kernel, SourceKernel):
        return "its arguments do not fit the kernel, or NUMBA_ENABLE_CUDASIM is set"
    what = "a kernel that is not Numba's" if isinstance(node, KernelNode) else f"a {node.kind} function"
    return f"nobody reads {what}: say it with reads= and writes="


def steers(node: KernelNode, argument: int) -> bool:
    """True if the number that is an argument of a kernel tells where it touches arrays."""
    found = _asked(node)
    return found is not None and (argument,) in found.scalars


def argument_accesses(node: KernelNode) -> tuple[ArgumentAccess, ...] | None:
    """What the code of a node's kernel does with each array; None if it is no Numba kernel, or the arguments misfit."""
    found = _inferred(node)
    return None if found is None else found.arguments


Done = tuple[tuple[int, ...], tuple[Any, ...]]
"""Path of an argument, and the fields of an `Access` behind the array."""


class _Found:
    """What was inferred for one kernel and types of its arguments."""

    def __init__(self, arguments: tuple[ArgumentAccess, ...], types: Any, reads: Reads) -> None:
        self.arguments = arguments
        self.types = types
        self.reads = reads
        ranges = [
            each for argument in arguments for each in (*(argument.read_ranges or ()), *(argument.write_ranges or ()))
        ]
        symbols = {symbol for each in ranges for symbol in symbols_of(each)}
        self.scalars = sorted(symbol.place for symbol in symbols if symbol.name == "scalar")
        self._done: dict[Any, list[Done]] = {}

    def done(self, node: Any) -> list[Done]:
        """What a kernel node does to its arguments; computed once for nodes that are alike."""
        args = node.args
        arrays = [_operand(args, argument.path) for argument in self.arguments]
        scalars = [_scalar(_operand(args, path)) for path in self.scalars]
        shapes = [(array.shape, array.strides, array.buffer.shape, array.buffer.readonly) for array in arrays]
        key = (node.grid, node.block, node.touches, *scalars, *shapes)
        found = self._done.get(key)
        if found is None and arrays:
            found = arrays[0].buffer.definition.root.memo.get((self, key))
        if found is None:
            sizes = Sizes(node, arrays, dict(zip(self.scalars, scalars, strict=True)))
            rows = zip(self.arguments, arrays, strict=True)
            found = [
                (argument.path, each)
                for argument, array in rows
                for each in _fields(argument, node.touches, places(argument, array, sizes), array.buffer.readonly)
            ]
            self._keep(key, found, node, arrays, scalars)
        return found

    def _keep(self, key: Any, found: list[Done], node: Any, arrays: list[Any], scalars: list[Any]) -> None:
        """Remember it: what is in terms of params with their graph, which the kernel would keep otherwise."""
        numbers = (*node.grid, *node.block, *scalars)
        if arrays and (any(array.params for array in arrays) or any(isinstance(each, Expr) for each in numbers)):
            arrays[0].buffer.definition.root.memo[self, key] = found
            return
        if len(self._done) >= _MEMO_LIMIT:
            self._done.clear()
        self._done[key] = found


def _fields(
    argument: ArgumentAccess, touches: Touches | None, where: tuple[Bytes, Bytes], readonly: bool
) -> Iterator[tuple[Any, ...]]:
    """What is done to an argument, as fields of an `Access`: in one piece if all of it is done in the same place.

    What the user says goes before what the code tells; where it is done is told by the code, if it tells of it at all.
    """
    told = touches or _NOTHING
    reads = told.reads_at(argument.path, argument.reads)
    writes = told.writes_at(argument.path, argument.writes)
    same = (reads, writes) == (argument.reads, argument.writes)
    writes = writes and not readonly
    details = (argument.atomic if same else None, argument.known or told.complete)
    scattered = argument.scattered and (argument.known or told.writes is None)
    read, written = where[0] if argument.reads else None, where[1] if argument.writes else None
    if reads and writes and read is written:
        yield True, True, *_extent(read), *details, scattered
        return
    if reads:
        yield True, False, *_extent(read), *details, False
    if writes:
        yield False, True, *_extent(written), *details, scattered


def _extent(where: Bytes) -> tuple[Extent | None, Extent]:
    skipped, nbytes = (0, None) if where is None else where
    return nbytes, skipped


_NOTHING = Touches(None, None)
_MEMO_LIMIT = 4096
_memos: weakref.WeakKeyDictionary[Kernel, dict[int, _Found]] = weakref.WeakKeyDictionary()


def _asked(node: Node) -> _Found | None:
    """As `_inferred`, of kernels whose operands do not say all themselves."""
    is_exact = isinstance(node, KernelNode) and isinstance(node.kernel, ElementwiseKernel)
    return None if is_exact else _inferred(node)


def _inferred(node: Node) -> _Found | None:
    """What the code of a node's kernel tells; None if there is none that can be read, or the arguments misfit."""
    if not isinstance(node, KernelNode) or isinstance(node.kernel, SourceKernel):
        return None
    from graphdsl.compile.signature import argument_types  # brings Numba

    try:
        types = argument_types(node.kernel, node.args, signature=node.signature)
    except CompileError:
        return None
    memo = _memos.get(node.kernel)
    if memo is None:
        memo = _memos.setdefault(node.kernel, {})
    found = memo.get(id(types))
    if found is None or found.types is not types or not found.reads.unchanged():
        from numba.cuda import config

        if config.ENABLE_CUDASIM:  # Numba's simulator stands where the code would be read
            return None
        from graphdsl.compile.access import infer
        from graphdsl.compile.reads import Reads

        if len(memo) >= _MEMO_LIMIT:
            memo.clear()
        reads = Reads(node.kernel.function, node.kernel.options)
        found = memo[id(types)] = _Found(infer(node.kernel, types), types, reads)
    return found


def _operand(args: Any, path: tuple[int, ...]) -> Any:
    if len(path) == 1:  # by far the most frequent
        return args[path[0]]
    for place in path:
        args = args[place]
    return args


def _scalar(operand: Any) -> Extent:
    return operand if isinstance(operand, Expr) else int(operand)
