"""How the elements of arrays lie in memory as rows of bytes: what the driver's copies and memsets work on.

A copy pairs the elements of two arrays and cares for no order among the pairs, so dimensions may change places and
neighbours may become one, as long as both arrays agree. Checks, emission and drawings need the same answer. This
module must not judge it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from graphdsl.declare.expressions import Expr
from graphdsl.declare.operands import Extent, times


class Dimension(NamedTuple):
    """One dimension of arrays that are walked through together.

    Attributes
    ----------
    extent : int or Expr
        Number of steps.
    strides : tuple of int
        Bytes of a step, for each of the arrays.
    """

    extent: Extent
    strides: tuple[int, ...]


class Strided(Protocol):
    """What has a shape and strides: operands, and arrays of NumPy or of a device."""

    @property
    def shape(self) -> tuple[Extent, ...]: ...

    @property
    def strides(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...


def dimensions(array: Strided, *others: Strided) -> tuple[Dimension, ...]:
    """The fewest dimensions that hold all elements of arrays of one shape and dtype, whatever the values of params.

    Parameters
    ----------
    array : Buffer, View, or another array
        Decides which dimension is outside which: that of the larger stride.
    *others : Buffer, View, or another array
        Walked through with it; of the same shape and dtype.

    Returns
    -------
    tuple of Dimension
        The outermost first. The last one are the bytes of a row, which follow one another in every array: one alone
        is a run of bytes, the one before it counts rows, the one before that slices.

    Examples
    --------
    >>> import numpy as np
    >>> from graphdsl.declare.definition import Definition
    >>> graph = Definition()
    >>> table = graph.device_array("table", (8, 16), np.float32)
    >>> dimensions(table)
    (Dimension(extent=512, strides=(1,)),)
    >>> dimensions(table[2:5, :4], graph.host_array("part", (3, 4), np.float32))
    (Dimension(extent=3, strides=(64, 16)), Dimension(extent=16, strides=(1, 1)))
    """
    arrays = (array, *others)
    steps = zip(array.shape, zip(*(each.strides for each in arrays), strict=True), strict=True)
    found = [Dimension(extent, strides) for extent, strides in steps if not (type(extent) is int and extent == 1)]
    found.sort(key=lambda each: each.strides[0], reverse=True)
    found.append(Dimension(array.dtype.itemsize, (1,) * len(arrays)))
    merged = [found.pop()]
    while found:
        outer, inner = found.pop(), merged[-1]
        if _continues(outer, inner):
            merged[-1] = Dimension(times(outer.extent, inner.extent), inner.strides)
        else:
            merged.append(outer)
    return tuple(reversed(merged))


def padded(found: tuple[Dimension, ...]) -> tuple[Dimension, Dimension, Dimension]:
    """At most three dimensions as slices, rows, and the bytes of a row; a missing one has extent 1 and strides of 0.

    Examples
    --------
    >>> padded((Dimension(512, (1,)),))[1]
    Dimension(extent=1, strides=(0,))
    """
    missing = Dimension(1, (0,) * len(found[-1].strides))
    slices, rows, row = (missing,) * (3 - len(found)) + found
    return slices, rows, row


def _continues(outer: Dimension, inner: Dimension) -> bool:
    """True if a step outside begins where the steps inside end, in every array and whatever the params are."""
    whole = inner.extent
    if isinstance(whole, Expr):
        return False
    return all(stride == whole * step for stride, step in zip(outer.strides, inner.strides, strict=True))
