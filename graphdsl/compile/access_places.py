"""Where in an array a kernel touches it, as bytes: ranges of places with the sizes of a launch in them.

Numba is not needed for it. This module must not know how ranges are found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from graphdsl.compile.access_numbers import MOST_EXTENT, constant, plus
from graphdsl.declare.expressions import Expr, extent_expr
from graphdsl.declare.nodes import KernelNode
from graphdsl.declare.operands import Array, Extent, times

if TYPE_CHECKING:
    from graphdsl.compile.access import ArgumentAccess, Range, Ranges
    from graphdsl.compile.access_numbers import Poly, Symbol

Bytes = tuple[Extent, Extent] | None
"""How many bytes of an array are skipped, and how many are touched; None for all of it."""

_FAR = 2**48  # more bytes than any memory has


class Sizes(NamedTuple):
    """What the symbols of a range stand for."""

    node: KernelNode
    arrays: list[Array]
    scalars: dict[tuple[int, ...], Extent]

    @property
    def fit(self) -> bool:
        """True if extents are within what they are taken to be."""
        return all(extent <= MOST_EXTENT for array in self.arrays for extent in array.buffer.shape)

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


def symbols_of(each: Range) -> Iterator[Symbol]:
    """The symbols whose sizes a range needs."""
    for poly in (*each.low, *each.high):
        for monomial, _ in poly:
            yield from monomial
    yield from each.assumed


def places(argument: ArgumentAccess, array: Array, sizes: Sizes) -> tuple[Bytes, Bytes]:
    """Where an argument is read, and where it is written; the same object for both if it is the same."""
    read, written = (_bytes(ranges, array, sizes) for ranges in (argument.read_ranges, argument.write_ranges))
    same = read is not None and written is not None and all(map(_same, read, written))
    return (read, read) if same else (read, written)


def _bytes(ranges: Ranges, array: Array, sizes: Sizes) -> Bytes:
    """The bytes of ranges; all where they cannot be told to be fewer."""
    if not ranges or not sizes.fit:
        return None
    flat = ranges[0].flat
    if any(each.flat != flat for each in ranges) or not array.shape or any(map(_is_zero, array.shape)):
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
    if not _same(rest, step):
        nbytes = _joined("+", nbytes, times(_joined("minimum", count, 1), _joined("-", rest, step)))
    return times(start, step), nbytes


def _ends(each: Range, limit: Extent, sizes: Sizes) -> tuple[Extent, Extent]:
    """The first place of a range, and the one behind the last; all places where it does not hold."""
    first = _folded("maximum", map(sizes.value, each.low))
    behind = _folded("minimum", (sizes.value(plus(poly, constant(1))) for poly in _telling(each.high, sizes)))
    doubts = [] if each.natural else [_joined("-", 0, first)]
    for symbol in each.assumed:
        value = sizes.of(symbol)
        doubts += [_joined("-", value, symbol.most), _joined("-", symbol.least, value)]
    doubt = times(_folded("maximum", [0, *doubts]), _FAR)
    start = _joined("maximum", _joined("-", first, doubt), 0)
    return start, _joined("minimum", _joined("+", behind, doubt), limit)


def _telling(bounds: tuple[Poly, ...], sizes: Sizes) -> tuple[Poly, ...]:
    """The bounds but for those of a grid that follows from params: it covers what other bounds say, and takes time."""
    own = tuple(
        poly
        for poly in bounds
        if not any(symbol.name == "grid" and isinstance(sizes.of(symbol), Expr) for part, _ in poly for symbol in part)
    )
    return own or bounds


def _is_zero(extent: Extent) -> bool:
    return isinstance(extent, int) and extent == 0


def _same(left: Extent, right: Extent) -> bool:
    return left is right or (isinstance(left, int) and isinstance(right, int) and left == right)


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
    return extent_expr(function, left, right)
