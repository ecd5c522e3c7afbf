"""What indices, fields and attributes of an array or a record of a kernel mean: a view, an element, or a size.

This module must not record what is done.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from numba.cuda import types

from graphdsl.compile.access_numbers import ANY, MOST_EXTENT, Number, Symbol, add, between, constant, exact, symbolic
from graphdsl.compile.access_values import (
    PLAIN,
    Condition,
    Items,
    Known,
    Memory,
    Method,
    Slice,
    Window,
    taints_of,
)

_LOADED = frozenset({"loaded"})
_MOST_SIZE = 2**48  # bytes that any memory has
METHODS = frozenset(
    {"reshape", "ravel", "transpose", "view", "fill", "item", "sum", "prod", "min", "max", "mean", "any", "all",
     "argmin", "argmax", "copy", "astype"}
)  # fmt: skip


class Part(NamedTuple):
    """Part of an array, as an index or a field names it.

    Attributes
    ----------
    value : value
        What it gives if it is asked for.
    loads : bool
        True if asking for it reads memory, and does not only make a view.
    window : Window or None
        Where it lies in the argument.
    taints : frozenset
        What its place depends on.
    """

    value: Any
    loads: bool
    window: Window | None
    taints: frozenset[Any] = frozenset()


def number_of(kind: Any, taints: frozenset[Any], path: tuple[int, ...] | None = None) -> Number:
    """A number of a Numba type; that of an argument is a symbol, by its ``path``."""
    if not isinstance(kind, types.Integer):
        return Number(taints=taints)
    wide = kind.bitwidth > 32
    name = ("int" if kind.signed else "u64") if wide or kind.signed else "u32"
    least, most = (-MOST_EXTENT, MOST_EXTENT) if wide else (int(kind.minval), int(kind.maxval))
    least = least if kind.signed else 0
    if path is not None:
        return symbolic(Symbol("scalar", path, least, most, assumed=wide), name, taints)
    if wide:
        return Number(frozenset() if kind.signed else frozenset([()]), frozenset(), name, taints=taints)
    return between([constant(least)], [constant(most)], name, taints)


def part_of(memory: Memory, index: Any) -> Part:
    """The part of memory that an index names."""
    indices = index.values if isinstance(index, Items) else (index,)
    taints = memory.taints.union(*(_place_taints(each) for each in indices))
    if len(indices) == 1 and isinstance(memory.element, types.Record):
        name = _field_name(memory, indices[0])
        if name is not None:
            return _field(memory, name)
    is_ellipsis = [isinstance(each, Known) and each.value is Ellipsis for each in indices]
    plain = all(isinstance(each, (Number, Condition, Slice)) or dots for each, dots in zip(indices, is_ellipsis))
    count = sum(isinstance(each, (Number, Condition)) for each in indices)
    if memory.ndim is None or not plain or sum(is_ellipsis) > 1 or len(indices) - sum(is_ellipsis) > memory.ndim:
        return Part(Memory(memory.leaves, taints=taints), True, None, taints)
    first = indices[0] if indices and not is_ellipsis[0] else Slice(None, None, None)
    window = _indexed(memory.window, first) if memory.ndim else memory.window
    ndim = memory.ndim - count
    if ndim or any(is_ellipsis):
        return Part(Memory(memory.leaves, ndim, memory.element, window, taints), not ndim, window, taints)
    return _element(Memory(memory.leaves, 0, memory.element, window, taints))


def _element(memory: Memory) -> Part:
    """An element, as what is left of an array when all dimensions are gone."""
    kind = memory.element
    if isinstance(kind, types.Record):
        return Part(memory, False, memory.window, memory.taints)
    if isinstance(kind, (types.Number, types.Boolean)):
        return Part(number_of(kind, _LOADED), True, memory.window, memory.taints)
    return Part(Memory(memory.leaves, window=memory.window, taints=memory.taints), True, memory.window, memory.taints)


def _place_taints(index: Any) -> frozenset[Any]:
    return taints_of(index.start) | taints_of(index.step) if isinstance(index, Slice) else taints_of(index)


def _indexed(window: Window | None, first: Any) -> Window | None:
    """The window of what the first index leaves."""
    if window is None or not window.open:
        return window
    if isinstance(first, Slice):
        if not _is_none(first.step) and not (isinstance(first.step, Number) and first.step.value == 1):
            return None
        if _is_none(first.start):
            return dataclasses.replace(window, argument=False)
    place = first.start if isinstance(first, Slice) else first
    at_start = window.start == exact(0)
    if not isinstance(place, Number) or (not place.natural and (not at_start or isinstance(first, Slice))):
        return None  # it may be counted from the end
    place = place.nameless() if at_start else add(window.start.nameless(), place.nameless())
    return Window(place, isinstance(first, Slice), window.flat)


def _is_none(value: Any) -> bool:
    return value is None or (isinstance(value, Known) and value.value is None)


def _field_name(memory: Memory, index: Any) -> str | None:
    if isinstance(index, Known) and isinstance(index.value, str):
        return index.value if index.value in memory.element.fields else None
    place = index.value if isinstance(index, Number) and memory.ndim == 0 else None
    names = list(memory.element.fields)
    return names[place] if place is not None and -len(names) <= place < len(names) else None


def _field(memory: Memory, name: str) -> Part:
    """A field of a record, or of all records of an array."""
    kind = memory.element.typeof(name)
    if isinstance(kind, types.NestedArray):
        ndim = None if memory.ndim is None else memory.ndim + kind.ndim
        window = memory.window if memory.window is None or not memory.window.open else None
        return Part(Memory(memory.leaves, ndim, kind.dtype, window, memory.taints), False, window, memory.taints)
    window = memory.window and dataclasses.replace(memory.window, argument=False)
    found = Memory(memory.leaves, memory.ndim, kind, window, memory.taints)
    return _element(found) if memory.ndim == 0 else Part(found, memory.ndim is None, window, memory.taints)


def attribute_of(memory: Memory, name: str) -> Any:
    """What an attribute is: a `Part`, another value, or None if that cannot be told."""
    is_record = isinstance(memory.element, types.Record)
    if is_record and memory.ndim == 0:
        return _field(memory, name) if name in memory.element.fields else None
    if name in _SIZES:
        return _SIZES[name](memory)
    if name == "T":
        return transposed(memory)
    if name == "flat":
        return flattened(memory)
    if name in ("real", "imag"):
        element = types.float64 if isinstance(memory.element, types.Complex) else memory.element
        return dataclasses.replace(memory, element=element)
    if name in METHODS:
        return Method(memory, name)
    return _field(memory, name) if is_record and name in memory.element.fields else None


def transposed(memory: Memory) -> Memory:
    """The same elements with axes exchanged."""
    return memory if memory.ndim == 1 else dataclasses.replace(memory, window=None)


def flattened(memory: Memory) -> Memory:
    """The same elements in one dimension."""
    if memory.ndim == 1:
        return memory
    whole = memory.window is not None and memory.window.argument
    window = Window(flat=True) if whole else None
    return Memory(memory.leaves, 1, memory.element, window, memory.taints)


def extents(memory: Memory) -> Any:
    """The shape of an array."""
    if memory.ndim is None:
        return PLAIN
    return Items(tuple(_extent(memory, axis) for axis in range(memory.ndim)))


def _extent(memory: Memory, axis: int) -> Number:
    if memory.window is not None and memory.window.argument and len(memory.leaves) == 1:
        (leaf,) = memory.leaves
        return symbolic(Symbol("shape", (leaf, axis), 0, MOST_EXTENT))
    return _NATURAL


def size_of(memory: Memory) -> Number:
    """The number of elements."""
    if memory.ndim == 1:
        return _extent(memory, 0)
    if memory.window is not None and memory.window.argument and len(memory.leaves) == 1:
        (leaf,) = memory.leaves
        return symbolic(Symbol("size", (leaf,), 0, _MOST_SIZE))
    return _NATURAL


_NATURAL = Number(frozenset([()]), frozenset(), "int")
_SIZES: dict[str, Any] = {
    "shape": extents,
    "size": size_of,
    "ndim": lambda memory: ANY if memory.ndim is None else exact(memory.ndim),
    "strides": lambda memory: PLAIN if memory.ndim is None else Items((ANY,) * memory.ndim),
    "itemsize": lambda memory: _NATURAL,
    "nbytes": lambda memory: _NATURAL,
    "dtype": lambda memory: PLAIN,
}


def element_of(memory: Memory) -> tuple[Any, bool]:
    """What a step of a loop over an array gives, and whether it reads memory."""
    if memory.ndim is None:
        return Memory(memory.leaves, taints=memory.taints), True
    if memory.ndim > 1:
        return Memory(memory.leaves, memory.ndim - 1, memory.element, None, memory.taints), False
    part = _element(Memory(memory.leaves, 0, memory.element, None, memory.taints))
    return part.value, part.loads
