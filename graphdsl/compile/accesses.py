"""What nodes read and write, with what the code of Numba kernels tells: where `graphdsl.declare.accesses` says unknown.

Numba is imported for graphs that have such kernels, and for no others. This module must not judge.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from graphdsl.declare import accesses as declared
from graphdsl.declare.accesses import Access
from graphdsl.declare.elementwise import ElementwiseKernel
from graphdsl.declare.expressions import BinaryExpr, Expr, extent_expr
from graphdsl.declare.kernel import Kernel
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import KernelNode
from graphdsl.declare.operands import Array, Extent, times
from graphdsl.declare.sources import SourceKernel
from graphdsl.declare.touches import Touches
from graphdsl.errors import CompileError

if TYPE_CHECKING:
    from graphdsl.compile.access import ArgumentAccess, Range
    from graphdsl.compile.access_numbers import Poly, Symbol
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
    return (access for _, access in _of_kernel(node, found))


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
    done = list(_of_kernel(node, found))
    for argument in found.arguments:
        array, field = _operand(node.args, argument.path), f"argument {argument.name!r}"  # type: ignore[attr-defined]
        own = [access for path, access in done if path == argument.path]
        if not own:
            yield Told(field, array, None, "")
        yield from (Told(field, array, access, "" if access.known else argument.why) for access in own)


def _holds(operand: Any, array: Array) -> bool:
    return operand is array or (isinstance(operand, tuple) and any(_holds(item, array) for item in operand))


def _unread(node: Node) -> str:
    if isinstance(node, KernelNode) and not isinstance(node.kernel, SourceKernel):
        return "its arguments do not fit the kernel"
    what = "a kernel that is not Numba's" if isinstance(node, KernelNode) else f"a {node.kind} function"
    return f"nobody reads {what}: say it with reads= and writes="


def _of_kernel(node: Any, found: _Found) -> Iterator[tuple[tuple[int, ...], Access]]:
    """What a kernel node does, with the place of the argument."""
    for argument, place in found.placed(node):
        if node.touches is not None:
            argument, place = _told(node.touches, argument, place)
        array = _operand(node.args, argument.path)
        for access in place.accesses(array, argument, argument.writes and not array.buffer.readonly):
            yield argument.path, access


def _told(touches: Touches, argument: ArgumentAccess, place: _Place) -> tuple[ArgumentAccess, _Place]:
    """What the user says of an argument, and for the rest what its code tells: where, if it tells of it at all."""
    reads = touches.reads_at(argument.path, argument.reads)
    writes = touches.writes_at(argument.path, argument.writes)
    same = (reads, writes) == (argument.reads, argument.writes)
    told = argument._replace(
        reads=reads,
        writes=writes,
        atomic=argument.atomic if same else None,
        why="" if touches.complete else argument.why,
        scattered=writes and argument.scattered and (argument.known or touches.writes is None),
    )
    read = place.read if argument.reads else None
    written = place.written if argument.writes else None
    together = place.together if argument.reads and argument.writes else read is written
    return told, _Place(read, written, together)


def argument_accesses(node: KernelNode) -> tuple[ArgumentAccess, ...] | None:
    """What the code of a node's kernel does with each array; None if it is no Numba kernel, or the arguments misfit."""
    found = _inferred(node)
    return None if found is None else found.arguments


class _Found:
    """What was inferred for one kernel and types of its arguments."""

    def __init__(self, arguments: tuple[ArgumentAccess, ...], types: Any, reads: Reads) -> None:
        self.arguments = arguments
        self.types = types
        self.reads = reads
        ranges = [each for argument in arguments for found in _both(argument) for each in found or ()]
        self._narrow = bool(ranges)
        symbols = {symbol for each in ranges for symbol in _symbols(each)}
        self._scalars = sorted(symbol.place for symbol in symbols if symbol.name == "scalar")
        self._places: dict[Any, list[_Place]] = {}

    def placed(self, node: KernelNode) -> Iterable[tuple[ArgumentAccess, _Place]]:
        """The arguments, with where they are touched by the launch of a node."""
        if not self._narrow:
            return ((argument, _ANYWHERE) for argument in self.arguments)
        arrays = [_operand(node.args, argument.path) for argument in self.arguments]
        scalars = [_scalar(_operand(node.args, path)) for path in self._scalars]
        shapes = [(array.shape, array.strides, array.layout, array.dtype.itemsize) for array in arrays]
        key = (node.grid, node.block, *scalars, *shapes)
        places = self._places.get(key)
        if places is None:
            sizes = _Sizes(node, arrays, dict(zip(self._scalars, scalars, strict=True)))
            places = [_place(*pair, sizes) for pair in zip(self.arguments, arrays, strict=True)]
            if len(self._places) >= _MEMO_LIMIT:
                self._places.clear()
            self._places[key] = places
        return zip(self.arguments, places, strict=True)


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
        from graphdsl.compile.access import infer
        from graphdsl.compile.reads import Reads

        if len(memo) >= _MEMO_LIMIT:
            memo.clear()
        reads = Reads(node.kernel.function, node.kernel.options)
        found = memo[id(types)] = _Found(infer(node.kernel, types), types, reads)
    return found


def _operand(args: Any, path: tuple[int, ...]) -> Any:
    for place in path:
        args = args[place]
    return args


def _scalar(operand: Any) -> Extent:
    return operand if isinstance(operand, Expr) else int(operand)


# Where


class _Place(NamedTuple):
    """Bytes of an array that are read, and that are written: from where on, and how many; None for all."""

    read: tuple[Extent, Extent] | None
    written: tuple[Extent, Extent] | None
    together: bool

    def accesses(self, array: Array, argument: ArgumentAccess, writes: bool) -> Iterator[Access]:
        """What is done to the array, in one piece if all of it is done in the same place."""
        details = (argument.atomic, argument.known, argument.scattered)
        if self.together and argument.reads and writes:
            yield _access(array, True, True, self.read, *details)
            return
        if argument.reads:
            yield _access(array, True, False, self.read, *details[:2], False)
        if writes:
            yield _access(array, False, True, self.written, *details)


def _access(
    array: Array,
    reads: bool,
    writes: bool,
    place: tuple[Extent, Extent] | None,
    atomic: str | None,
    known: bool,
    scattered: bool,
) -> Access:
    skipped, nbytes = (0, None) if place is None else place
    return Access(array, reads, writes, nbytes, skipped, atomic, known, scattered)


_ANYWHERE = _Place(None, None, True)
_FAR = 2**48  # more bytes than any memory has


class _Sizes(NamedTuple):
    """What the symbols of a range stand for."""

    node: KernelNode
    arrays: list[Array]
    scalars: dict[tuple[int, ...], Extent]

    def of(self, symbol: Symbol) -> Extent:
        """The number or expression of a symbol."""
        if symbol.name == "scalar":
            return self.scalars[symbol.place]
        if symbol.name in ("grid", "block"):
            dims = self.node.grid if symbol.name == "grid" else self.node.block
            return dims[symbol.place[0]]
        array = self.arrays[symbol.place[0]]
        return array.size if symbol.name == "size" else array.shape[symbol.place[1]]

    def value(self, poly: Poly) -> Extent:
        """The number or expression of a poly."""
        total: Extent = 0
        for monomial, factor in poly:
            part: Extent = factor
            for symbol in monomial:
                part = times(self.of(symbol), part)
            total = _joined("+", total, part)
        return total


def _both(argument: ArgumentAccess) -> tuple[Any, Any]:
    return argument.read_ranges, argument.write_ranges


def _symbols(each: Range) -> Iterator[Symbol]:
    for poly in (*each.low, *each.high):
        for monomial, _ in poly:
            yield from monomial
    yield from each.assumed


def _place(argument: ArgumentAccess, array: Array, sizes: _Sizes) -> _Place:
    read, written = (None if not found else _bytes(found, array, sizes) for found in _both(argument))
    together = read is written or (read is not None and written is not None and all(map(_same, read, written)))
    return _Place(read, written, together)


def _bytes(ranges: tuple[Range, ...], array: Array, sizes: _Sizes) -> tuple[Extent, Extent] | None:
    """Bytes skipped and bytes touched; None where they cannot be told to be fewer than all."""
    flat = ranges[0].flat
    if any(each.flat != flat for each in ranges) or not array.shape or any(map(_is_zero, array.shape)):
        return None
    if any(isinstance(extent, int) and extent > _MOST_EXTENT for extent in array.buffer.shape):
        return None
    if flat and array.layout != "C":
        return None
    limit, step = (array.size, array.dtype.itemsize) if flat else (array.shape[0], array.strides[0])
    rest: Extent = array.dtype.itemsize
    for extent, stride in () if flat else zip(array.shape[1:], array.strides[1:], strict=True):
        rest = _joined("+", rest, times(_joined("-", extent, 1), stride))
    starts, stops = zip(*(_ends(each, limit, sizes) for each in ranges), strict=True)
    start, stop = _folded("minimum", starts), _folded("maximum", stops)
    if step <= 0 or (_is_zero(start) and _same(stop, limit)):
        return None
    count = _joined("maximum", _joined("-", stop, start), 0)
    nbytes = times(count, step)
    if rest != step:
        nbytes = _joined("+", nbytes, times(_joined("minimum", count, 1), _joined("-", rest, step)))
    return times(start, step), nbytes


_MOST_EXTENT = 2**31


def _ends(each: Range, limit: Extent, sizes: _Sizes) -> tuple[Extent, Extent]:
    """The first place of a range, and the one behind the last; all places where it does not hold."""
    first = _folded("maximum", map(sizes.value, each.low))
    last = _folded("minimum", map(sizes.value, each.high))
    doubts = [] if each.natural else [_joined("-", 0, first)]
    for symbol in each.assumed:
        value = sizes.of(symbol)
        doubts += [_joined("-", value, symbol.most), _joined("-", symbol.least, value)]
    doubt = times(_folded("maximum", [0, *doubts]), _FAR)
    start = _joined("maximum", _joined("-", first, doubt), 0)
    return start, _joined("minimum", _joined("+", _joined("+", last, 1), doubt), limit)


def _is_zero(extent: Extent) -> bool:
    return isinstance(extent, int) and extent == 0


def _same(left: Extent, right: Extent) -> bool:
    return left is right or (isinstance(left, int) and isinstance(right, int) and left == right)


def _adds_number(extent: Extent) -> TypeGuard[Any]:
    return isinstance(extent, BinaryExpr) and extent.function == "+" and isinstance(extent.left, int)


def _folded(function: str, extents: Iterable[Extent]) -> Extent:
    first, *others = dict.fromkeys(extents)
    for each in others:
        first = _joined(function, first, each)
    return first


_ON_NUMBERS: dict[str, Callable[[int, int], int]] = {
    "+": int.__add__, "-": int.__sub__, "minimum": min, "maximum": max,
}  # fmt: skip


def _joined(function: str, left: Extent, right: Extent) -> Extent:
    """Arithmetic on extents: a number if both are numbers."""
    if isinstance(left, int) and isinstance(right, int):
        return _ON_NUMBERS[function](left, right)
    if function in ("minimum", "maximum") and left is right:
        return left
    if function in ("+", "-") and isinstance(right, int) and right == 0:
        return left
    if function == "+" and isinstance(left, int) and left == 0:
        return right
    if function == "+" and isinstance(right, int) and _adds_number(left):  # -1 + n + 1 is n, and known to be
        return _joined("+", left.left + right, left.right)
    return extent_expr(function, left, right)
