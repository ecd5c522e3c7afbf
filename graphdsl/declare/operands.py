"""What nodes work on: buffers and views of them.

A `Buffer` is memory with a name, a shape and a dtype; a `View` is part of one. Neither has an address: memory is
bound when a graph is instantiated. This module must know nothing of nodes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, Union

import numpy as np

from graphdsl.declare.expressions import Expr, cdiv
from graphdsl.errors import DeclarationError, Location

if TYPE_CHECKING:
    from graphdsl.declare.definition import Definition

Space = Literal["device", "pinned", "pageable"]
"""Where memory lives: on the device; page-locked on the host (the device can reach it); ordinary host memory."""

Extent = Union[int, Expr]
"""A size or an index: a number, or an expression on params."""

Layout = Literal["C", "F", "A"]
"""Memory order, in Numba's letters: C contiguous, Fortran contiguous, or any strides."""


class Array:
    """What `Buffer` and `View` share: an n-dimensional array of a dtype at an offset in a buffer.

    Attributes
    ----------
    buffer : Buffer
        The memory that holds the elements.
    offset : int or Expr
        Bytes from the start of the buffer to the first element.
    shape : tuple of int or Expr
        Extent of each dimension, in elements.
    strides : tuple of int
        Bytes between neighbours in each dimension.
    dtype : numpy.dtype
        Type of an element.
    layout : "C", "F" or "A"
        Memory order that holds for any value of the params.
    """

    __slots__ = ("buffer", "offset", "shape", "strides", "dtype", "layout", "params")
    buffer: Buffer
    offset: Extent
    shape: tuple[Extent, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    layout: Layout
    params: frozenset[Any]

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def space(self) -> Space:
        """Where the memory lives."""
        return self.buffer.space

    @property
    def nbytes(self) -> Extent:
        """Bytes of all elements: the product of the shape and the item size."""
        return _product(self.shape) * self.dtype.itemsize

    def __getitem__(self, key: Any) -> View:
        return _slice(self, key)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-dimensional array")
        return self.shape[0]  # type: ignore[return-value]  # an Expr refuses to be an int, with its own message

    def __iter__(self) -> Any:
        raise DeclarationError(
            "an operand cannot be iterated over",
            field=self.buffer.name,
            remedy="Slice it, as in x[0], or pass it whole to a kernel.",
        )


class Buffer(Array):
    """Memory with a name: made by `Graph.device_array`, `Graph.host_array` or `Graph.external`.

    Attributes
    ----------
    name : str
        Unique among the operands of the graph; `GraphExec` gives the memory under this name.
    space : "device", "pinned" or "pageable"
        Where the memory lives.
    owner : object or None
        For external memory, the object that owns it; None where every exec owns its own.
    readonly : bool
        True if the owner of external memory forbids writing.
    """

    __slots__ = ("name", "definition", "owner", "readonly", "location", "_space")

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        space: Space,
        definition: Definition,
        *,
        strides: tuple[int, ...] | None = None,
        owner: Any = None,
        readonly: bool = False,
        location: Location | None = None,
    ) -> None:
        self.name = name
        self.buffer = self
        self.offset = 0
        self.shape = shape
        self.dtype = dtype
        self.strides = contiguous_strides(shape, dtype.itemsize) if strides is None else strides
        self.layout = layout_of(shape, self.strides, dtype.itemsize)
        self.params = frozenset()
        self.definition = definition
        self.owner = owner
        self.readonly = readonly
        self.location = location
        self._space: Space = space

    @property
    def space(self) -> Space:
        return self._space

    @property
    def external(self) -> bool:
        """True if somebody else owns the memory."""
        return self.owner is not None

    @property
    def allocation_nbytes(self) -> int:
        """Bytes from the first element to the end of the last, which the memory must have."""
        if 0 in self.shape:
            return 0
        spans = (stride * (extent - 1) for stride, extent in zip(self.strides, self.shape))
        return sum(spans) + self.dtype.itemsize  # type: ignore[operator]  # the shape of a buffer is made of ints

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)} {self.space}"


class View(Array):
    """Part of a buffer, made by slicing: ``x[:n]``, ``x[2]``, ``x[::2, 1:]``. Bounds may be expressions on params."""

    __slots__ = ("text",)

    def __init__(
        self,
        buffer: Buffer,
        offset: Extent,
        shape: tuple[Extent, ...],
        strides: tuple[int, ...],
        text: str,
    ) -> None:
        self.buffer = buffer
        self.offset = offset
        self.shape = shape
        self.strides = strides
        self.dtype = buffer.dtype
        self.layout = layout_of(shape, strides, buffer.dtype.itemsize)
        extents = [extent for extent in (offset, *shape) if isinstance(extent, Expr)]
        self.params = frozenset().union(*(extent.params for extent in extents))
        self.text = text

    def __repr__(self) -> str:
        return self.text


def contiguous_strides(shape: tuple[int, ...], itemsize: int, order: str = "C") -> tuple[int, ...]:
    """Strides in bytes of a contiguous array of ``shape`` in C or Fortran order.

    Examples
    --------
    >>> contiguous_strides((2, 3), 4), contiguous_strides((2, 3), 4, "F")
    ((12, 4), (4, 8))
    """
    strides = []
    step = itemsize
    for extent in reversed(shape) if order == "C" else shape:
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides)) if order == "C" else tuple(strides)


def layout_of(shape: tuple[Extent, ...], strides: tuple[int, ...], itemsize: int) -> Layout:
    """The memory order that holds whatever the params are."""
    if _packed(shape, strides, itemsize):
        return "C"
    return "F" if _packed(shape[::-1], strides[::-1], itemsize) else "A"


def _packed(shape: tuple[Extent, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """True if each dimension from the last to the first steps over exactly what the later ones hold."""
    step: Extent = itemsize
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if isinstance(step, Expr) or stride != step:
            return False
        step = step * extent
    return True


def _product(shape: tuple[Extent, ...]) -> Extent:
    return math.prod(shape)  # type: ignore[arg-type]  # an Expr multiplies like a number


def _slice(array: Array, key: Any) -> View:
    keys = _expand(array, key if isinstance(key, tuple) else (key,))
    offset: Extent = array.offset
    shape: list[Extent] = []
    strides: list[int] = []
    for item, extent, stride in zip(keys, array.shape, array.strides):
        if isinstance(item, slice):
            start, length, step = _bounds(array, item, extent)
            offset = offset + start * stride
            shape.append(length)
            strides.append(stride * step)
        else:
            offset = offset + _index(array, item, extent) * stride
    text = f"{array!r}" if isinstance(array, View) else array.buffer.name
    return View(array.buffer, offset, tuple(shape), tuple(strides), f"{text}[{_key_text(key)}]")


def _expand(array: Array, keys: tuple[Any, ...]) -> list[Any]:
    """One key for each dimension: an ellipsis and missing ends become full slices."""
    ellipses = sum(item is Ellipsis for item in keys)
    missing = array.ndim - (len(keys) - ellipses)
    if missing < 0 or ellipses > 1:
        raise DeclarationError(
            f"a {array.ndim}-dimensional operand takes at most {array.ndim} indices and one ellipsis",
            field=array.buffer.name,
            value=f"[{_key_text(keys)}]",
            remedy="Give one index or slice for each dimension.",
        )
    if not ellipses:
        return [*keys, *[slice(None)] * missing]
    place = next(i for i, item in enumerate(keys) if item is Ellipsis)
    return [*keys[:place], *[slice(None)] * missing, *keys[place + 1 :]]


def _is_extent(item: Any) -> bool:
    if isinstance(item, Expr):
        return item.dtype.kind in "iu"
    return isinstance(item, (int, np.integer)) and not isinstance(item, bool)


def _index(array: Array, item: Any, extent: Extent) -> Extent:
    if not _is_extent(item):
        raise DeclarationError(
            "an operand is indexed by integers, slices, an ellipsis, and integer expressions on params",
            field=array.buffer.name,
            value=f"[{_key_text(item)}]",
            remedy="Use a slice, or index inside the kernel.",
        )
    if isinstance(item, Expr):
        return item
    item = int(item)
    if item < 0:
        return extent + item
    if isinstance(extent, int) and item >= extent:
        raise _out_of_range(array, item, extent)
    return item


def _bounds(array: Array, item: slice, extent: Extent) -> tuple[Extent, Extent, int]:
    """Start, length and step; integer bounds are clipped as NumPy clips them, expressions are checked later."""
    step = 1 if item.step is None else item.step
    if isinstance(step, Expr) or not _is_extent(step) or step < 1:
        raise DeclarationError(
            "the step of a slice is a positive integer",
            field=array.buffer.name,
            value=f"[{_key_text(item)}]",
            remedy="Reverse or gather inside the kernel.",
        )
    for bound in (item.start, item.stop):
        if bound is not None and not _is_extent(bound):
            _index(array, bound, extent)
    if not any(isinstance(part, Expr) for part in (item.start, item.stop, extent)):
        start, stop, step = item.indices(extent)  # type: ignore[arg-type]
        return start, len(range(start, stop, step)), int(step)
    start = 0 if item.start is None else _from_end(item.start, extent)
    stop = extent if item.stop is None else _from_end(item.stop, extent)
    length = stop - start if isinstance(start, Expr) or start else stop
    return start, (length if step == 1 else cdiv(length, step)), int(step)


def _from_end(bound: Extent, extent: Extent) -> Extent:
    return extent + bound if not isinstance(bound, Expr) and bound < 0 else bound


def _out_of_range(array: Array, item: int, extent: int) -> DeclarationError:
    return DeclarationError(
        f"the index must be less than the extent {extent}",
        field=array.buffer.name,
        value=f"[{item}]",
        remedy="Index inside the operand.",
    )


def _key_text(key: Any) -> str:
    if isinstance(key, tuple):
        return ", ".join(map(_key_text, key))
    if isinstance(key, slice):
        parts = ["" if part is None else str(part) for part in (key.start, key.stop, key.step)]
        return ":".join(parts if key.step is not None else parts[:2])
    return "..." if key is Ellipsis else str(key)
