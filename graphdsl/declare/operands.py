"""What nodes work on: buffers and views of them.

A `Buffer` is memory with a name, a shape and a dtype; a `View` is part of one. Neither has an address: memory is
bound when a graph is instantiated. This module must know nothing of nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from graphdsl.declare.expressions import Expr, cdiv, extent_expr
from graphdsl.errors import DeclarationError, Location

if TYPE_CHECKING:
    from graphdsl.declare.store import Level

Space = Literal["device", "pinned", "pageable"]
"""Where memory lives: on the device; page-locked on the host (the device can reach it); ordinary host memory."""

Lifetime = Literal["auto", "launch", "persistent"]
"""How long the contents of an array are there: as the graph uses it, during a launch, or from launch to launch."""

LIFETIMES: tuple[Lifetime, ...] = get_args(Lifetime)

Extent = int | Expr
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

    __slots__ = ("buffer", "dtype", "layout", "offset", "params", "shape", "strides")
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
    def size(self) -> Extent:
        """Number of elements: the product of the shape."""
        size: Extent = 1
        for extent in self.shape:
            size = times(size, extent)
        return size

    @property
    def nbytes(self) -> Extent:
        """Bytes of all elements: the product of the shape and the item size."""
        size: Extent = self.dtype.itemsize
        for extent in self.shape:
            size = times(size, extent)
        return size

    def __getitem__(self, key: Any) -> View:
        return _slice(self, key)

    def __len__(self) -> int:
        if not self.shape:
            raise DeclarationError(
                "an operand of no dimensions has no length", field=self.buffer.name, remedy="Pass it as it is."
            )
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
    keep : object or None
        For external memory, what keeps it where it is, such as an export of the owner's buffer.
    address : int or None
        Of external memory, where it lay when it was declared.
    readonly : bool
        True if the owner of external memory forbids writing.
    allocated : bool
        True for memory that a node of the graph allocates and another one frees: it is there between them alone.
    device : int or None
        Number of the device that has device memory; None for that which the graph is instantiated on.
    lifetime : "auto", "launch" or "persistent"
        Of device memory of the exec, whether it may share its bytes with other arrays; see `Graph.device_array`.
    """

    shape: tuple[int, ...]

    __slots__ = (
        "_space",
        "address",
        "allocated",
        "definition",
        "device",
        "keep",
        "lifetime",
        "location",
        "name",
        "owner",
        "readonly",
    )

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        space: Space,
        definition: Level,
        *,
        strides: tuple[int, ...] | None = None,
        owner: Any = None,
        keep: Any = None,
        address: int | None = None,
        readonly: bool = False,
        allocated: bool = False,
        location: Location | None = None,
        device: int | None = None,
        lifetime: Lifetime = "auto",
    ) -> None:
        self.name = name
        self.lifetime = lifetime
        self.allocated = allocated
        self.buffer = self
        self.offset = 0
        self.shape = shape
        self.dtype = dtype
        self.strides = contiguous_strides(shape, dtype.itemsize) if strides is None else strides
        self.layout = layout_of(shape, self.strides, dtype.itemsize)
        self.params = frozenset()
        self.definition = definition
        self.owner = owner
        self.keep = keep
        self.address = address
        self.readonly = readonly
        self.location = location
        self.device = device
        self._space: Space = space

    @property
    def space(self) -> Space:
        return self._space

    @property
    def place(self) -> str:
        """Where the memory lives, with the number of the device if it has one."""
        return self.space if self.device is None else f"device {self.device}"

    @property
    def external(self) -> bool:
        """True if somebody else owns the memory."""
        return self.owner is not None

    @property
    def allocation_nbytes(self) -> int:
        """Bytes from the first element to the end of the last, which the memory must have."""
        return span_nbytes(self.shape, self.strides, self.dtype.itemsize)

    def renamed(self, name: str, definition: Level, device: int | None = None) -> Buffer:
        """The same buffer in another graph, by another name; external memory is adopted there too.

        Parameters
        ----------
        name : str
            The name there.
        definition : Level
            The graph.
        device : int, optional
            Number of the device that has it if it is memory of the device that the graph is instantiated on.
        """
        made = object.__new__(Buffer)
        for slot in (*Array.__slots__, *Buffer.__slots__):
            setattr(made, slot, getattr(self, slot))
        made.buffer, made.name, made.definition = made, name, definition
        if self.space == "device" and self.device is None:
            made.device = device
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Buffer:
        # A copy of a graph adopts the same external memory: that is not the graph's to copy.
        made = memo[id(self)] = object.__new__(Buffer)
        for name in (*Array.__slots__, *Buffer.__slots__):
            value = getattr(self, name)
            setattr(made, name, value if name in ("owner", "keep") else deepcopy(value, memo))
        return made

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)} {self.place}"


class Bounds(NamedTuple):
    """A slice or index that only the values of params can judge: ``0 <= start <= stop <= extent`` must hold.

    Attributes
    ----------
    axis : int
        Dimension of what was sliced.
    start, stop : int or Expr
        First index, and the one behind the last; of an index ``i`` they are ``i`` and ``i + 1``.
    extent : int or Expr
        Extent of that dimension.
    """

    axis: int
    start: Extent
    stop: Extent
    extent: Extent


class View(Array):
    """Part of a buffer, made by slicing: ``x[:n]``, ``x[2]``, ``x[::2, 1:]``. Bounds may be expressions on params.

    Attributes
    ----------
    bounds : tuple of Bounds
        What `graphdsl.check` holds the values of params to. Numbers alone are clipped by a slice, as NumPy does, and
        need no check.
    text : str
        The view as it was written.
    """

    __slots__ = ("bounds", "text")

    def __init__(
        self,
        buffer: Buffer,
        offset: Extent,
        shape: tuple[Extent, ...],
        strides: tuple[int, ...],
        bounds: tuple[Bounds, ...],
        text: str,
    ) -> None:
        self.buffer = buffer
        self.offset = offset
        self.shape = shape
        self.strides = strides
        self.dtype = buffer.dtype
        self.layout = layout_of(shape, strides, buffer.dtype.itemsize)
        self.bounds = bounds
        extents = (extent for bound in bounds for extent in bound[1:])
        self.params = frozenset().union(*(extent.params for extent in extents if isinstance(extent, Expr)))
        self.text = text

    def __repr__(self) -> str:
        return self.text


def span_nbytes(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> int:
    """Bytes from the first element of an array to the end of its last.

    Examples
    --------
    >>> span_nbytes((2, 3), (32, 4), 4), span_nbytes((2, 0), (4, 4), 4)
    (44, 0)
    """
    if 0 in shape:
        return 0
    return sum(stride * (extent - 1) for stride, extent in zip(strides, shape, strict=True)) + itemsize


def rebased(view: View, base: Array, extent: Callable[[Extent], Extent]) -> View:
    """The same part of another array, which has the shape and the strides of the buffer that ``view`` is part of.

    Parameters
    ----------
    view : View
        Stays as it is.
    base : Buffer or View
        What it becomes part of.
    extent : callable
        Gives the sizes and indices of the new view from those of the old.
    """
    offset = _plus(base.offset, extent(view.offset))
    bounds = [Bounds(axis, *map(extent, extents)) for axis, *extents in view.bounds]
    if isinstance(base, View):
        bounds = [*base.bounds, *bounds]
    text = (repr(base) if isinstance(base, View) else base.buffer.name) + view.text[len(view.buffer.name) :]
    return View(base.buffer, offset, tuple(map(extent, view.shape)), view.strides, tuple(bounds), text)


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
    """The memory order that holds whatever the params are; as in NumPy, the stride of an extent of 1 says nothing.

    Examples
    --------
    >>> layout_of((2, 3), (12, 4), 4), layout_of((2, 3), (4, 8), 4), layout_of((2, 3), (24, 4), 4)
    ('C', 'F', 'A')
    """
    if any(type(extent) is int and extent == 0 for extent in shape) or _packed(shape, strides, itemsize):
        return "C"
    return "F" if _packed(shape[::-1], strides[::-1], itemsize) else "A"


def _packed(shape: tuple[Extent, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """True if each dimension from the last to the first steps over exactly what the later ones hold."""
    step: Extent = itemsize
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if isinstance(extent, int) and extent == 1:
            continue
        if isinstance(step, Expr) or stride != step:
            return False
        step = times(step, extent)
    return True


def _plus(left: Extent, right: Extent) -> Extent:
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    if isinstance(left, int) and left == 0:
        return right
    return left if isinstance(right, int) and right == 0 else extent_expr("+", left, right)


def times(left: Extent, right: Extent) -> Extent:
    """The product; a number if both are numbers."""
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    if isinstance(left, int) and left == 1:
        return right
    return left if isinstance(right, int) and right == 1 else extent_expr("*", left, right)


def _minus(left: Extent, right: Extent) -> Extent:
    if isinstance(left, int) and isinstance(right, int):
        return left - right
    return left if isinstance(right, int) and right == 0 else extent_expr("-", left, right)


def _slice(array: Array, key: Any) -> View:
    keys = _expand(array, key if isinstance(key, tuple) else (key,))
    offset: Extent = array.offset
    shape: list[Extent] = []
    strides: list[int] = []
    bounds = list(array.bounds) if isinstance(array, View) else []
    for axis, (item, extent, stride) in enumerate(zip(keys, array.shape, array.strides, strict=True)):
        if isinstance(item, slice):
            start, stop, step = _slice_bounds(array, item, extent)
            length = _minus(stop, start)
            shape.append(length if step == 1 else cdiv(length, step))
            strides.append(stride * step)
        else:
            start = _index(array, item, extent)
            stop = _plus(start, 1)
        offset = _plus(offset, times(start, stride))
        whole = stop is extent and isinstance(start, int) and start == 0
        if not whole and any(isinstance(part, Expr) for part in (start, stop, extent)):
            bounds.append(Bounds(axis, start, stop, extent))
    text = f"{array!r}" if isinstance(array, View) else array.buffer.name
    return View(array.buffer, offset, tuple(shape), tuple(strides), tuple(bounds), f"{text}[{key_text(key)}]")


def _expand(array: Array, keys: tuple[Any, ...]) -> list[Any]:
    """One key for each dimension: an ellipsis and missing ends become full slices."""
    ellipses = sum(item is Ellipsis for item in keys)
    missing = array.ndim - (len(keys) - ellipses)
    if missing < 0 or ellipses > 1:
        raise DeclarationError(
            f"a {array.ndim}-dimensional operand takes at most {array.ndim} indices and one ellipsis",
            field=array.buffer.name,
            value=f"[{key_text(keys)}]",
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
        raise _no_index(array, item)
    if isinstance(item, Expr):
        return item
    start = _from_end(int(item), extent)
    if isinstance(start, int) and isinstance(extent, int) and not 0 <= start < extent:
        raise _out_of_range(array, item, extent)
    return start


def _slice_bounds(array: Array, item: slice, extent: Extent) -> tuple[Extent, Extent, int]:
    """Start, stop and step; numbers alone are clipped as NumPy clips them, expressions are checked later."""
    step = 1 if item.step is None else item.step
    if isinstance(step, Expr) or not _is_extent(step) or step < 1:
        raise DeclarationError(
            "the step of a slice is a positive integer",
            field=array.buffer.name,
            value=f"[{key_text(item)}]",
            remedy="Reverse or gather inside the kernel.",
        )
    for bound in (item.start, item.stop):
        if bound is not None and not _is_extent(bound):
            raise _no_index(array, item)
    if isinstance(extent, int) and not isinstance(item.start, Expr) and not isinstance(item.stop, Expr):
        first, last, _ = item.indices(extent)
        return first, max(first, last), int(step)
    start = 0 if item.start is None else _from_end(item.start, extent)
    stop = extent if item.stop is None else _from_end(item.stop, extent)
    return start, stop, int(step)


def _from_end(bound: Extent, extent: Extent) -> Extent:
    if isinstance(bound, Expr):
        return bound
    return int(bound) if bound >= 0 else _plus(extent, int(bound))


def _no_index(array: Array, item: Any) -> DeclarationError:
    return DeclarationError(
        "an operand is indexed by integers, slices, an ellipsis, and integer expressions on params",
        field=array.buffer.name,
        value=f"[{key_text(item)}]",
        remedy="Use a slice, or index inside the kernel.",
    )


def _out_of_range(array: Array, item: int, extent: int) -> DeclarationError:
    return DeclarationError(
        f"an index of a dimension of {extent} elements is from {-extent} to {extent - 1}",
        field=array.buffer.name,
        value=f"[{item}]",
        remedy="Index inside the operand.",
    )


def key_text(key: Any) -> str:
    """An index as it is written between brackets."""
    if isinstance(key, tuple):
        return ", ".join(map(key_text, key))
    if isinstance(key, slice):
        parts = ["" if part is None else str(part) for part in (key.start, key.stop, key.step)]
        return ":".join(parts if key.step is not None else parts[:2])
    return "..." if key is Ellipsis else str(key)


def require_array(operand: Any, node: str | None, field: str) -> None:
    """Refuse what is not an array of a graph."""
    if not isinstance(operand, Array):
        raise DeclarationError(
            "it must be an array of the graph, or a slice of one",
            node=node,
            field=field,
            value=f"{operand!r} of type {type(operand).__name__}",
            remedy="Declare it with device_array, host_array or external.",
        )
