"""What the variables of a kernel may hold: memory of its arguments, tuples of it, numbers, iterators, known objects.

Whatever holds no memory of an argument, and is none of these, is `Plain`. This module must not know Numba's IR.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from graphdsl.compile.access_numbers import ANY, Comparison, Number, either, exact, widened

Leaves = frozenset[int]
"""Array arguments, by their number among the arrays that a kernel is given."""


@dataclasses.dataclass(frozen=True)
class Window:
    """How the first axis of a view lies in the argument.

    Attributes
    ----------
    start : Number
        Place of its first element.
    open : bool
        True if the axis goes on from there; False if all of the view is at that place.
    flat : bool
        True if places count elements of the whole argument, False if they count its first axis.
    argument : bool
        True if it is all of the argument, in its own shape.
    """

    start: Number = exact(0)  # noqa: RUF009  # numbers do not change
    open: bool = True
    flat: bool = False
    argument: bool = False


WHOLE = Window(argument=True)


@dataclasses.dataclass(frozen=True)
class Memory:
    """A reference to memory: of arguments, or none of theirs.

    Attributes
    ----------
    leaves : frozenset of int
        The arguments that it may be part of; empty for arrays of the kernel itself.
    ndim : int or None
        Number of dimensions; None where it is not known, or where it may be an element.
    element : object
        Numba type of an element; None if it is not known.
    window : Window or None
        Where it lies in the argument; None for anywhere.
    taints : frozenset
        What its place depends on.
    """

    leaves: Leaves
    ndim: int | None = None
    element: Any = None
    window: Window | None = None
    taints: frozenset[Any] = frozenset()


@dataclasses.dataclass(frozen=True)
class Items:
    """A tuple of values, which may have names."""

    values: tuple[Any, ...]
    names: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Slice:
    """A slice; ends that are left out are None."""

    start: Any
    stop: Any
    step: Any


@dataclasses.dataclass(frozen=True)
class Iterator:
    """Something that is iterated over, or one step of it: what each step reads, and what it gives."""

    reads: tuple[Memory, ...]
    item: Any


@dataclasses.dataclass(frozen=True)
class Method:
    """An attribute of memory that is called."""

    memory: Memory
    name: str


@dataclasses.dataclass(frozen=True)
class Known:
    """A Python object that the code names: a module, a function, None."""

    key: Any
    value: Any = dataclasses.field(compare=False)


@dataclasses.dataclass(frozen=True)
class Plain:
    """Anything that holds no memory of an argument: maybe a number, maybe a tuple of numbers."""


PLAIN = Plain()
UNSET = Known("unset", "a variable that is not set on any path that was followed yet")


@dataclasses.dataclass(frozen=True)
class Condition:
    """A truth value: all of ``holds`` are true if it is true, all of ``fails`` if it is false."""

    holds: tuple[Comparison, ...]
    fails: tuple[Comparison, ...]
    taints: frozenset[Any] = frozenset()


def known(value: Any) -> Any:
    """The value of a Python object that code names."""
    if isinstance(value, (int, np.signedinteger)) and not isinstance(value, (bool, enum.Enum)):
        return exact(int(value))
    if isinstance(value, (bool, float, complex, np.generic)):
        return ANY
    if isinstance(value, slice):
        return Slice(known(value.start), known(value.stop), known(value.step))
    if isinstance(value, np.ndarray):
        return Memory(frozenset(), value.ndim)
    if isinstance(value, tuple) and type(value) is tuple:
        return Items(tuple(map(known, value)))
    return Known(value if isinstance(value, (str, type(None), type(Ellipsis))) else id(value), value)


def leaves_of(value: Any) -> Leaves:
    """All arguments whose memory a value may hold."""
    if isinstance(value, Memory):
        return value.leaves
    if isinstance(value, Items):
        return _union(value.values)
    if isinstance(value, Iterator):
        return _union((*value.reads, value.item))
    if isinstance(value, Method):
        return value.memory.leaves
    if isinstance(value, Slice):
        return _union((value.start, value.stop, value.step))
    return frozenset()


def _union(values: Iterable[Any]) -> Leaves:
    return frozenset().union(*map(leaves_of, values))


def taints_of(value: Any) -> frozenset[Any]:
    """What a value that is no memory depends on."""
    if isinstance(value, (Number, Condition)):
        return value.taints
    if isinstance(value, Items):
        return frozenset().union(*map(taints_of, value.values))
    if isinstance(value, Slice):
        return taints_of(value.start) | taints_of(value.stop) | taints_of(value.step)
    return frozenset({"loaded"}) if isinstance(value, (Plain, Memory)) else frozenset()


Lose = Callable[[Any], None]


def joined(left: Any, right: Any, lose: Lose, join: Callable[[Number, Number], Number] = either) -> Any:
    """A value that is one or the other; ``lose`` is told of values whose memory cannot be followed any further."""
    if left == right or right is UNSET:
        return left
    if left is UNSET:
        return right
    if isinstance(left, Number) and isinstance(right, Number):
        return join(left, right)
    if isinstance(left, (Number, Condition)) and isinstance(right, (Number, Condition)):
        return Number(taints=left.taints | right.taints)
    if isinstance(left, Memory) and isinstance(right, Memory):
        same = left.window == right.window
        return Memory(
            left.leaves | right.leaves,
            left.ndim if left.ndim == right.ndim else None,
            left.element if left.element == right.element else None,
            left.window if same else None,
            left.taints | right.taints,
        )
    if isinstance(left, Items) and isinstance(right, Items) and len(left.values) == len(right.values):
        pairs = zip(left.values, right.values, strict=True)
        return Items(tuple(joined(one, other, lose, join) for one, other in pairs), left.names)
    if isinstance(left, Slice) and isinstance(right, Slice):
        parts = ((left.start, right.start), (left.stop, right.stop), (left.step, right.step))
        return Slice(*(joined(one, other, lose, join) for one, other in parts))
    if isinstance(left, Iterator) and isinstance(right, Iterator):
        return Iterator(tuple(dict.fromkeys(left.reads + right.reads)), joined(left.item, right.item, lose, join))
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Known) and one.value is None and isinstance(other, Memory):
            return other
    lose(left)
    lose(right)
    return PLAIN


def widening(left: Any, right: Any, lose: Lose) -> Any:
    """As `joined`, with no bound in it that ``left`` did not have."""
    return joined(left, right, lose, lambda one, other: widened(one, either(one, other)))


def unnamed(value: Any) -> Any:
    """A value as a tuple or another function has it: numbers without the names that they have here."""
    if isinstance(value, Number):
        return value.nameless()
    if isinstance(value, Condition):
        return Number(taints=value.taints)
    if isinstance(value, Items):
        return Items(tuple(map(unnamed, value.values)), value.names)
    if isinstance(value, Slice):
        return Slice(unnamed(value.start), unnamed(value.stop), unnamed(value.step))
    if isinstance(value, Iterator):
        return Iterator(tuple(map(unnamed, value.reads)), unnamed(value.item))
    return value
