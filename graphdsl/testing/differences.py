"""Where what two launches left in memory differs. This module must not run anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from graphdsl.declare.operands import Buffer
from graphdsl.drivers.emulator.memory import Contents
from graphdsl.testing.trial import Memory, Outcome

Bytes = np.ndarray[Any, Any]
"""Of memory, or whether each was written."""


class Tolerance(NamedTuple):
    """How far floating-point numbers may be apart, as `numpy.isclose` takes it; all else is compared byte for byte."""

    rtol: float = 0.0
    atol: float = 0.0


@dataclass(frozen=True)
class Difference:
    """The first element that differs.

    Attributes
    ----------
    buffer : str
        Where.
    index : tuple of int
        Of the element.
    values : tuple
        What it is; None where nobody has written it.
    """

    buffer: str
    index: tuple[int, ...]
    values: tuple[Any, Any]

    def __str__(self) -> str:
        return f"{self.buffer}[{', '.join(map(str, self.index))}]" if self.index else self.buffer


class Comparison(NamedTuple):
    """Compares what launches left in memory.

    Attributes
    ----------
    buffers : mapping of str to Buffer
        What there is, by name.
    names : sequence of str
        What counts, in the order in which it is looked at.
    tolerance : Tolerance
        What counts as equal.
    """

    buffers: Mapping[str, Buffer]
    names: Sequence[str]
    tolerance: Tolerance = Tolerance()

    def same(self, first: Outcome, second: Outcome) -> bool:
        """True if two launches came to the same. Those that failed did: what they left is not what they were to do."""
        if first.failure is None and second.failure is None:
            return self.difference(first.memory, second.memory) is None
        return first.failure is not None and second.failure is not None

    def difference(self, first: Memory, second: Memory) -> Difference | None:
        """The first difference; None if there is none."""
        for name in self.names:
            found = self._within(self.buffers[name], first[name], second[name])
            if found is not None:
                return found
        return None

    def _within(self, buffer: Buffer, *held: Contents) -> Difference | None:
        data, written = ([_elements(buffer, part) for part in parts] for parts in zip(*held, strict=True))
        lacking = (written[0] != written[1]).any(axis=-1)
        unlike = (written[0] & written[1] & (data[0] != data[1])).any(axis=-1)
        if any(self.tolerance) and buffer.dtype.kind in "fc":
            one, other = (_values(buffer, each) for each in held)
            unlike &= ~np.isclose(one, other, *self.tolerance, equal_nan=True)
        differ = np.asarray(lacking | unlike)
        if not differ.any():
            return None
        place = np.unravel_index(int(differ.argmax()), differ.shape) if differ.shape else ()
        index = tuple(map(int, place))
        one, other = (
            _values(buffer, each)[index].item() if part[index].all() else None
            for each, part in zip(held, written, strict=True)
        )
        return Difference(buffer.name, index, (one, other))


def _elements(buffer: Buffer, held: Bytes) -> Bytes:
    """Single bytes of a buffer, by the index of the element and of the byte in it."""
    shape = (*buffer.shape, buffer.dtype.itemsize)
    elements: Bytes = np.ndarray(shape, held.dtype, held, 0, (*buffer.strides, 1))
    return elements


def _values(buffer: Buffer, held: Contents) -> Any:
    return np.ndarray(buffer.shape, buffer.dtype, held.data, 0, buffer.strides)
