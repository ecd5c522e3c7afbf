"""What the user says that a node reads and writes: ``reads=`` and ``writes=``, as places of its arguments.

Places and not arrays, so that what was said stays true where arguments are replaced. This module must not judge whether
it is true.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from graphdsl.declare.operands import Array
from graphdsl.errors import DeclarationError

Path = tuple[int, ...]
"""Place of an argument, and of the items of tuples in it."""


@dataclasses.dataclass(frozen=True)
class Touches:
    """What was said of the arrays of a node.

    Attributes
    ----------
    reads, writes : frozenset of tuple of int, or None
        Places of the arrays that are read, and that are written, and no others are; None where nothing was said.
    """

    reads: frozenset[Path] | None
    writes: frozenset[Path] | None

    @property
    def complete(self) -> bool:
        """True if both were said."""
        return self.reads is not None and self.writes is not None

    def reads_at(self, path: Path, otherwise: bool) -> bool:
        """Whether the array at a place is read; ``otherwise`` where nothing was said."""
        return otherwise if self.reads is None else path in self.reads

    def writes_at(self, path: Path, otherwise: bool) -> bool:
        """Whether it is written."""
        return otherwise if self.writes is None else path in self.writes


def arrays_in(args: Iterable[Any], path: Path = ()) -> Iterator[tuple[Path, Array]]:
    """The arrays among arguments, and in tuples of them, with their places.

    Examples
    --------
    >>> from graphdsl.declare.definition import Definition
    >>> x = Definition().device_array("x", 4, "f4")
    >>> [place for place, _ in arrays_in((1, x, (x, 2)))]
    [(1,), (2, 0)]
    """
    for place, operand in enumerate(args):
        if isinstance(operand, Array):
            yield (*path, place), operand
        elif isinstance(operand, tuple):
            yield from arrays_in(operand, (*path, place))


def given_touches(
    reads: Any, writes: Any, args: tuple[Any, ...], names: Callable[[], Sequence[str]], node: str
) -> Touches | None:
    """What ``reads=`` and ``writes=`` say; None if neither was given.

    Parameters
    ----------
    reads, writes : iterable of Buffer, View or str, or None
        Arrays among the arguments, or names of parameters; a single one may stand by itself.
    args : tuple
        The arguments of the node.
    names : callable
        Gives the names of the parameters, as far as they have any.
    node : str
        Name of the node, for messages.

    Raises
    ------
    DeclarationError
        If one is no argument, or a name is that of no parameter, or of one that holds no array.
    """
    if reads is None and writes is None:
        return None
    arrays = list(arrays_in(args))
    return Touches(_places(reads, "reads", arrays, names, node), _places(writes, "writes", arrays, names, node))


def parameter_names(function: Any, skipped: int = 0) -> tuple[str, ...]:
    """Names of the parameters of a Python function, but for the first few; none where they cannot be told."""
    try:
        return tuple(inspect.signature(function).parameters)[skipped:]
    except (TypeError, ValueError):
        return ()


def _places(
    given: Any, field: str, arrays: list[tuple[Path, Array]], names: Callable[[], Sequence[str]], node: str
) -> frozenset[Path] | None:
    if given is None:
        return None
    if isinstance(given, (Array, str)):
        given = (given,)
    if not isinstance(given, Iterable):
        raise _refused(given, "it lists arrays among the arguments, or names of parameters", field, arrays, node)
    return frozenset(place for each in given for place in _found(each, field, arrays, names, node))


def _found(
    each: Any, field: str, arrays: list[tuple[Path, Array]], names: Callable[[], Sequence[str]], node: str
) -> list[Path]:
    if isinstance(each, str):
        parameters = list(names())
        if each not in parameters:
            known = f"the parameters are {', '.join(parameters)}" if parameters else "the parameters have no names here"
            raise _refused(each, f"a name is that of a parameter, and {known}", field, arrays, node)
        place = parameters.index(each)
        found = [path for path, _ in arrays if path[0] == place]
        if not found:
            raise _refused(each, "the parameter is given no array", field, arrays, node)
        return found
    if not isinstance(each, Array):
        raise _refused(each, "it lists arrays among the arguments, or names of parameters", field, arrays, node)
    found = [path for path, array in arrays if _alike(each, array)]
    if not found:
        raise _refused(each, "the array is not among the arguments", field, arrays, node)
    return found


def _alike(one: Array, other: Array) -> bool:
    """True if two arrays are the same elements."""
    if one is other:
        return True
    if one.buffer is not other.buffer or one.strides != other.strides or len(one.shape) != len(other.shape):
        return False
    pairs = zip((one.offset, *one.shape), (other.offset, *other.shape), strict=True)
    return all(left is right or (type(left) is int and type(right) is int and left == right) for left, right in pairs)


def _refused(value: Any, rule: str, field: str, arrays: list[tuple[Path, Array]], node: str) -> DeclarationError:
    passed = ", ".join(dict.fromkeys(repr(array) for _, array in arrays)) or "none"
    return DeclarationError(
        rule,
        node=node,
        field=field,
        value=value if isinstance(value, Array) else f"{value!r} of type {type(value).__name__}",
        remedy=f"Pass arrays as they stand in args, or parameters by name; arrays among the arguments: {passed}.",
    )
