"""Padding: what fills the rows of an operand that a request does not.

This module must work on NumPy arrays alone, and keep nothing of what it writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from numbers import Number
from typing import Any, NamedTuple

import numpy as np

from graphdsl.declare.scalars import convert_scalar
from graphdsl.errors import DeclarationError
from graphdsl.serve.buckets import sizes_text
from graphdsl.serve.proposals import checked_size

Sizes = Mapping[str, int]
"""The real size on each axis."""

_Part = tuple[slice, ...]

LAST = "last"
"""The fill that repeats the last real row."""

_NUMBERS = "biufcMm"


class Padding:
    """Which dimensions of an operand are axes of buckets, and what fills the rows behind the real ones.

    Parameters
    ----------
    axes : str, sequence of str or None, or mapping of int to str
        The axis of each dimension: ``"batch"`` for the first one alone, ``("batch", None, "seq")`` for the first and
        the third, or ``{0: "batch", 2: "seq"}``. ``()`` for an operand that has the same size in every bucket.
        ``"batch + 1"`` for a dimension that has one more than the axis, as offsets of rows have.
    fill : number, "last" or None
        What the rest holds: a value that the dtype has, ``"last"`` for a repeat of the last real row, or None if no
        node reads it: then nothing is written.
    scrap : int, optional
        In place of ``fill``, for an operand that holds indices: a slot that nobody reads, which padded rows point to.
        Negative ones are refused, since an index of -1 is the last slot, which somebody does read.
    relied_on : bool, optional
        Whether nodes count on the fill, as those do that stop at a length of 0. By default integers and bools are
        relied on and floating-point numbers are not: `gd.testing.assert_padding_safe` puts NaN in their place.

    Raises
    ------
    DeclarationError
        If ``axes`` is none of these, or there are two fills.

    Examples
    --------
    >>> import numpy as np
    >>> tokens = np.full((2, 4), 9, np.int32)
    >>> padding = Padding(("batch", "seq"), fill=0)
    >>> padding.write(tokens, [[1, 2, 3]], {"batch": 1, "seq": 3})
    >>> tokens
    array([[1, 2, 3, 0],
           [0, 0, 0, 0]], dtype=int32)
    >>> padding.slice(tokens, {"batch": 1, "seq": 2})
    array([[1, 2]], dtype=int32)

    Where rows begin in memory that holds one behind the other; with the end repeated, padded rows are empty:

    >>> offsets = np.zeros(5, np.int32)
    >>> Padding("batch + 1", fill="last").write(offsets, [0, 3, 7], {"batch": 2})
    >>> offsets
    array([0, 3, 7, 7, 7], dtype=int32)
    """

    def __init__(self, axes: Any, fill: Any = None, *, scrap: int | None = None, relied_on: bool | None = None) -> None:
        self._sized = _checked_axes(axes)
        self.axes = {dimension: sized.text for dimension, sized in self._sized.items()}
        """For each dimension that is one, its axis, as in ``"batch"`` or ``"batch + 1"``."""
        if scrap is not None:
            if fill is not None:
                raise DeclarationError(
                    "a scrap slot takes the place of a fill",
                    field="fill",
                    value=repr(fill),
                    remedy="Pass fill= or scrap=, and not both.",
                )
            if isinstance(scrap, bool) or not isinstance(scrap, (int, np.integer)) or scrap < 0:
                raise DeclarationError(
                    "a scrap slot is an index of 0 or more: one of -1 is the last slot, which somebody reads",
                    field="scrap",
                    value=repr(scrap),
                    remedy="Add a slot behind those that are in use, and pass its index.",
                )
        if not (fill is None or isinstance(fill, (Number, np.generic)) or (isinstance(fill, str) and fill == LAST)):
            raise DeclarationError(
                'a fill is a number, "last" or None', field="fill", value=repr(fill), remedy="Pass one of these."
            )
        self.fill = fill
        self.scrap = scrap
        self._relied_on = relied_on
        self._values: dict[np.dtype[Any], Any] = {}

    def __repr__(self) -> str:
        how = f"scrap={self.scrap}" if self.scrap is not None else f"fill={self.fill!r}"
        return f"Padding({self.axes}, {how})"

    def relied_on(self, dtype: np.dtype[Any]) -> bool:
        """Whether nodes count on what the rest of an operand of a dtype holds."""
        if not self.fills:
            return False
        return dtype.kind not in "fc" if self._relied_on is None else self._relied_on

    def check(self, name: str, shape: Sequence[int], dtype: np.dtype[Any], bucket: Sizes) -> None:
        """Refuse an operand that does not have the sizes of its bucket, or whose dtype does not have the fill.

        Parameters
        ----------
        name : str
            The operand.
        shape : sequence of int
            Its extents.
        dtype : numpy.dtype
            Type of an element.
        bucket : mapping of str to int
            The size of each axis.

        Raises
        ------
        DeclarationError
            If it does not; the message names the operand, the axis and the shape.
        """
        for dimension, size in self._real(bucket, name).items():
            if dimension >= len(shape) or shape[dimension] != size:
                has = f"has {shape[dimension]}" if dimension < len(shape) else "is not there"
                raise DeclarationError(
                    f"dimension {dimension} is the axis {self.axes[dimension]!r}, which is {size} here, and it {has}",
                    field=f"shape of {name}",
                    value=tuple(shape),
                    remedy=f"Declare it with the sizes that build was given, or change its gd.Padding: {self}.",
                )
        self._value(dtype, name)

    def write(
        self, out: np.ndarray[Any, Any], data: Any, sizes: Sizes, *, before: Sizes | None = None, name: str = "data"
    ) -> None:
        """Write the real rows, and fill the rest where it has to be.

        Parameters
        ----------
        out : numpy.ndarray
            Memory of the operand, of the sizes of its bucket. It is written in place.
        data : array_like
            The real rows: of the shape of ``out``, but for the axes, which have the real size.
        sizes : mapping of str to int
            The real size on each axis.
        before : mapping of str to int, optional
            The sizes of the last write into ``out``, if nothing else has written there: what it filled is not filled
            again, so that only rows which were real and are no longer are touched. None fills all.
        name : str
            What messages call the operand.

        Raises
        ------
        DeclarationError
            If the shape of ``data`` is another one, its numbers do not fit the dtype, or the dtype does not have the
            fill. Nothing has been written then.
        """
        given = _array(data, name)
        value = self._value(out.dtype, name)
        extents = self.require_rows(given.shape, out.shape, sizes, name=name)
        if given.dtype != out.dtype:
            given = _converted(given, out.dtype, name)
        out[tuple(map(slice, extents))] = given
        if self.fill == LAST:
            self._repeat_last(out, sizes)
        elif value is not None:
            for part in self._rest(out.shape, sizes, before):
                out[part] = value

    def require_rows(
        self, given: tuple[int, ...], whole: tuple[int, ...], sizes: Sizes, *, name: str = "data"
    ) -> tuple[int, ...]:
        """Refuse a shape that is not that of the real rows of an operand of the shape ``whole``; gives the right one.

        Raises
        ------
        DeclarationError
            The message names the operand and the dimension.
        """
        extents = self.extents(whole, sizes, name=name)
        if given != extents:
            raise self._wrong_shape(given, extents, sizes, name)
        return extents

    @property
    def fills(self) -> bool:
        """True if something is written behind the real rows."""
        return self.fill is not None or self.scrap is not None

    def filling(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], sizes: Sizes, *, name: str = "data"
    ) -> Iterator[tuple[tuple[int, ...], np.ndarray[Any, Any]]]:
        """What to write behind the real rows of an operand: where each part begins, and the part; of fills by a value.

        Examples
        --------
        >>> for begin, part in Padding("batch", fill=7).filling((4, 2), np.dtype("i4"), {"batch": 3}):
        ...     print(begin, part)
        (3, 0) [[7 7]]
        """
        value = self._value(dtype, name)
        if value is not None:
            for part in self._rest(shape, sizes, None):
                yield (
                    tuple(each.start for each in part),
                    np.full([each.stop - each.start for each in part], value, dtype),
                )

    def fill_rest(self, out: np.ndarray[Any, Any], value: Any, sizes: Sizes) -> None:
        """Write a value into all that is not real, whatever the fill; the tests poison memory with it."""
        for part in self._rest(out.shape, sizes, None):
            out[part] = value

    def slice(self, array: Any, sizes: Sizes, *, name: str = "array") -> Any:
        """The real part of an array, as a view of it.

        Parameters
        ----------
        array : numpy.ndarray, or anything that is sliced like one
            Of the sizes of a bucket.
        sizes : mapping of str to int
            The real size on each axis.
        name : str
            What messages call it.
        """
        return array[tuple(map(slice, self.extents(array.shape, sizes, name=name)))]

    def extents(self, shape: tuple[int, ...], sizes: Sizes, *, name: str = "array") -> tuple[int, ...]:
        """The extents of the real part of an array of a shape."""
        extents = list(shape)
        for dimension, size in self._real(sizes, name).items():
            if dimension >= len(shape) or size > shape[dimension]:
                raise DeclarationError(
                    f"there is no room for {size} on the axis {self.axes[dimension]!r}, which is dimension {dimension}",
                    field=f"shape of {name}",
                    value=shape,
                    remedy="Take the bucket of these sizes.",
                )
            extents[dimension] = size
        return tuple(extents)

    def _real(self, sizes: Sizes, name: str = "array") -> dict[int, int]:
        """The size of each dimension that is an axis."""
        return {dimension: sized.among(sizes, name) for dimension, sized in self._sized.items()}

    def _rest(self, shape: tuple[int, ...], sizes: Sizes, before: Sizes | None) -> Iterator[_Part]:
        """What is not real, in parts that do not overlap; without what was not real before."""
        begin = [slice(0, extent) for extent in shape]
        if before is not None:
            for dimension, size in self._real(before).items():
                begin[dimension] = slice(0, size)
        for dimension, size in self._real(sizes).items():
            there = begin[dimension].stop
            if size < there:
                yield (*begin[:dimension], slice(size, there), *begin[dimension + 1 :])
                begin[dimension] = slice(0, size)

    def _repeat_last(self, out: np.ndarray[Any, Any], sizes: Sizes) -> None:
        """Along one axis after the other: those behind repeat what the ones before have filled."""
        real = self._real(sizes)
        part = [slice(real.get(dimension)) for dimension in range(out.ndim)]
        for dimension, size in real.items():
            part[dimension] = slice(size - 1, size)
            last = out[tuple(part)]
            part[dimension] = slice(size, None)
            out[tuple(part)] = last
            part[dimension] = slice(None)

    def _value(self, dtype: np.dtype[Any], name: str) -> Any:
        """The fill as the dtype has it; None where there is no value."""
        if dtype in self._values:
            return self._values[dtype]
        value = self.fill if self.scrap is None else self.scrap
        if self.scrap is not None and dtype.kind not in "iu":
            raise DeclarationError(
                f"a scrap slot is for indices, which are integers, and this holds {dtype}",
                field=f"padding of {name}",
                value=f"scrap={self.scrap}",
                remedy="Pass fill= for data.",
            )
        if value is not None and self.fill != LAST:
            if dtype.kind not in _NUMBERS:
                raise DeclarationError(
                    f"no number fills {dtype}",
                    field=f"padding of {name}",
                    value=repr(value),
                    remedy='Pass fill="last", or None.',
                )
            value = convert_scalar(value, dtype, field=f"padding of {name}")
        else:
            value = None
        return self._values.setdefault(dtype, value)

    def _wrong_shape(
        self, shape: tuple[int, ...], extents: tuple[int, ...], sizes: Sizes, name: str
    ) -> DeclarationError:
        of = dict(self.axes)
        rule = f"with {sizes_text(sizes)} this has the shape {extents}"
        if len(shape) == len(extents):
            wrong = next(d for d, (extent, wanted) in enumerate(zip(shape, extents)) if extent != wanted)
            which = f"is the axis {of[wrong]!r}" if wrong in of else "is the same in every bucket"
            rule += f"; dimension {wrong}, {shape[wrong]} here, {which}"
        return DeclarationError(
            rule, field=f"shape of {name}", value=shape, remedy="Pass the real rows, and no padding, or other sizes."
        )


class _Sized(NamedTuple):
    """The size of a dimension: that on an axis, and so many more."""

    axis: str
    more: int

    @property
    def text(self) -> str:
        return f"{self.axis} + {self.more}" if self.more else self.axis

    def among(self, sizes: Sizes, name: str) -> int:
        try:
            size = sizes[self.axis]
        except KeyError:
            raise DeclarationError(
                f"there is no size on the axis {self.axis!r}",
                field=f"padding of {name}",
                value=sizes_text(sizes) or "no axes",
                remedy="Give the axis of the padding the name that the buckets have for it.",
            ) from None
        if type(size) is not int or size < 1:
            size = checked_size(size, self.axis)
        return size + self.more


_SIZED = re.compile(r"\s*([^\s+*/-]+)\s*(?:\+\s*([0-9]+)\s*)?")


def _checked_axes(axes: Any) -> dict[int, _Sized]:
    if isinstance(axes, str):
        axes = (axes,)
    items: list[tuple[int, Any]] = [(-1, axes)]  # is none of these
    if isinstance(axes, Mapping):
        if all(type(dimension) is int for dimension in axes):
            items = sorted(axes.items())
    elif isinstance(axes, Sequence):
        items = [(dimension, axis) for dimension, axis in enumerate(axes) if axis is not None]
    found = {}
    for dimension, axis in items:
        parts = _SIZED.fullmatch(axis) if isinstance(axis, str) and dimension >= 0 else None
        if parts is None:
            raise DeclarationError(
                "the axes of an operand are a name, a name or None for each dimension, or a mapping of dimensions to "
                "names, each of which a number may be added to",
                field="axes",
                value=repr(axes),
                remedy='Pass "batch", "batch + 1", ("batch", None, "seq") or {0: "batch", 2: "seq"}.',
            )
        found[dimension] = _Sized(parts[1], int(parts[2] or 0))
    return found


def _array(data: Any, name: str) -> np.ndarray[Any, Any]:
    """What NumPy makes of data."""
    try:
        if isinstance(data, np.ma.MaskedArray) and np.ma.is_masked(data):
            raise ValueError("some of its elements are masked")
        return np.asarray(data)
    except Exception as problem:
        raise DeclarationError(
            f"this is what NumPy makes an array of: {problem}",
            field=name,
            value=f"an object of type {type(data).__name__}",
            remedy="Pass an array, or lists of the same length.",
        ) from problem


def _converted(data: np.ndarray[Any, Any], dtype: np.dtype[Any], name: str) -> np.ndarray[Any, Any]:
    """Numbers of another dtype, where none is changed but by rounding."""
    if data.dtype.kind in "iub" and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if not data.size or (limits.min <= int(data.min()) and int(data.max()) <= limits.max):
            return data.astype(dtype)
        wrong = int(data.min()) if int(data.min()) < limits.min else int(data.max())
        rule = f"{dtype} holds {limits.min} to {limits.max}, and {wrong} is among the numbers"
    elif np.can_cast(data.dtype, dtype, "same_kind"):
        with np.errstate(over="ignore"):  # it is asked below
            made = data.astype(dtype)
        if dtype.kind not in "fc" or not (lost := np.isinf(made) & ~np.isinf(data)).any():
            return made
        rule = f"{dtype} cannot hold {data[lost][0]}, which is among the numbers"
    else:
        rule = f"this is memory of {dtype}, which does not take {data.dtype}"
    raise DeclarationError(rule, field=f"dtype of {name}", value=str(data.dtype), remedy=f"Pass numbers of {dtype}.")
