"""What a Numba kernel does with the arrays that it is given, read from Numba's IR with no GPU.

Memory is followed from each argument through assignments, views, tuples and calls; what cannot be followed is unknown,
with the reason, and counts as read and written. Never is less claimed than the code does. This module must not compile
anything.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from numba.cuda import types
from numba.cuda.compiler import run_frontend

from graphdsl.compile import access_numbers as numbers
from graphdsl.compile import access_values as values
from graphdsl.compile.access_body import Body
from graphdsl.compile.access_calls import Builtin, attribute_value, called, object_value
from graphdsl.compile.access_memory import Part, attribute_of, element_of, number_of, part_of
from graphdsl.compile.access_numbers import ANY, Number, Poly, Symbol
from graphdsl.compile.access_values import (
    PLAIN,
    WHOLE,
    Items,
    Known,
    Memory,
    Method,
    known,
    leaves_of,
)
from graphdsl.compile.signature import Types
from graphdsl.declare.kernel import Kernel

_MOST_STEPS = 20_000
_MOST_RANGES = 4
COMMUTING = frozenset({"add", "sub", "max", "min", "nanmax", "nanmin", "and", "or", "xor"})
"""Atomic operations that come to the same in any order, if nobody looks at what they return."""


class Range(NamedTuple):
    """Places of an array that are touched.

    Attributes
    ----------
    low, high : tuple of Poly
        The first is no less than each of ``low``, the last no more than each of ``high``.
    flat : bool
        True if places count elements of the array in C order, False if they count its first axis.
    natural : bool
        True if no place is negative; otherwise Numba counts one from the end.
    assumed : frozenset of Symbol
        Scalars that must be within the bounds of their symbols for it to hold.
    """

    low: tuple[Poly, ...]
    high: tuple[Poly, ...]
    flat: bool
    natural: bool
    assumed: frozenset[Symbol]


Ranges = tuple[Range, ...] | None
"""All places are in one of them; None for anywhere."""


class ArgumentAccess(NamedTuple):
    """What a kernel does with one array argument.

    Attributes
    ----------
    path : tuple of int
        Place of the parameter, and then of the items of tuples.
    name : str
        What messages call it: ``y``, or ``pair[1]``.
    reads, writes : bool
        What is done to it.
    atomic : str or None
        The one kind of atomic operation that is all that is done to it, and whose results nobody looks at.
    why : str
        Why it is not known what is done, with the line; empty if it is. It counts as both then.
    read_ranges, write_ranges : tuple of Range, or None
        Where; None for anywhere.
    scattered : bool
        True if where it is written depends on what was loaded, or on a scalar other than as a bound: what an earlier
        launch left elsewhere in it may be meant to stay.
    """

    path: tuple[int, ...]
    name: str
    reads: bool
    writes: bool
    atomic: str | None = None
    why: str = ""
    read_ranges: Ranges = None
    write_ranges: Ranges = None
    scattered: bool = False

    @property
    def known(self) -> bool:
        """False if what is done could not be told."""
        return not self.why


def infer(kernel: Kernel, argument_types: Types) -> tuple[ArgumentAccess, ...]:
    """What a kernel does with each array that it is given.

    Parameters
    ----------
    kernel : Kernel
        A Python function.
    argument_types : tuple of Numba types
        One for each parameter, as `graphdsl.compile.signature.argument_types` gives them.

    Returns
    -------
    tuple of ArgumentAccess
        One for each array or record among the arguments and in tuples of them, in order.

    Examples
    --------
    >>> from numba import cuda
    >>> from numba.cuda import types
    >>> from graphdsl.declare.kernel import as_kernel
    >>> def twice(x, y):
    ...     i = cuda.grid(1)
    ...     if i < y.size:
    ...         y[i] = 2 * x[i]
    >>> array = types.float32[::1]
    >>> [(each.name, each.reads, each.writes) for each in infer(as_kernel(twice), (array, array))]
    [('x', True, False), ('y', False, True)]
    """
    analysis = Analysis()
    arguments = {
        name: analysis.argument(kind, (index,), name)
        for index, (name, kind) in enumerate(zip(kernel.parameters, argument_types, strict=True))
    }
    try:
        analysis.run(kernel.function, arguments)
    except Exception as problem:  # whatever it is: what is not followed to the end is not known
        analysis.lose_all(arguments.values(), f"{type(problem).__name__}: {str(problem).partition(chr(10))[0]}")
    return tuple(analysis.found())


class _TooLong(Exception):
    """The code branches more than is worth following."""


@dataclasses.dataclass
class _Done:
    """What is done with one argument."""

    path: tuple[int, ...]
    name: str
    reads: bool = False
    writes: bool = False
    other: bool = False  # something that is no atomic operation, or whose result is looked at
    atomics: set[str] = dataclasses.field(default_factory=set)
    why: str = ""
    read_ranges: dict[Range | None, None] = dataclasses.field(default_factory=dict)
    write_ranges: dict[Range | None, None] = dataclasses.field(default_factory=dict)
    scattered: bool = False

    def found(self) -> ArgumentAccess:
        if self.why:
            return ArgumentAccess(self.path, self.name, True, True, why=self.why, scattered=True)
        (kind,) = self.atomics if len(self.atomics) == 1 and not self.other else (None,)
        ranges = _ranges(self.read_ranges), _ranges(self.write_ranges)
        return ArgumentAccess(self.path, self.name, self.reads, self.writes, kind, "", *ranges, self.scattered)


def _ranges(found: dict[Range | None, None]) -> Ranges:
    kept = tuple(each for each in found if each is not None)
    return kept if len(kept) == len(found) <= _MOST_RANGES else None


class Analysis:
    """What is found out about one kernel, for types of its arguments."""

    def __init__(self) -> None:
        self.location: Any = None
        self._done: list[_Done] = []
        self._kinds: list[Any] = []
        self._recording = False
        self._steps = 0
        self._code: dict[Any, Any] = {}
        self._bodies: dict[Any, Body] = {}
        self._recorded: set[Any] = set()
        self._running: list[Any] = []

    def argument(self, kind: Any, path: tuple[int, ...], name: str) -> Any:
        """The value of an argument of a Numba type."""
        if isinstance(kind, types.BaseTuple):
            items = enumerate(kind.types)
            made = (self.argument(item, (*path, place), f"{name}[{place}]") for place, item in items)
            return Items(tuple(made), tuple(getattr(kind, "fields", ())))
        if isinstance(kind, (types.Array, types.Record)):
            self._done.append(_Done(path, name))
            self._kinds.append(kind)
            leaf = frozenset([len(self._done) - 1])
            if isinstance(kind, types.Record):
                return Memory(leaf, 0, kind, WHOLE)
            return Memory(leaf, kind.ndim, kind.dtype, WHOLE)
        return number_of(kind, frozenset({"scalar"}), path)

    def run(self, function: Any, arguments: dict[str, Any]) -> None:
        """Follow the kernel."""
        body = Body(self, self._ir(function), arguments)
        self._running.append(function)
        body.solve()
        self._recording = True
        body.record()

    def found(self) -> Iterator[ArgumentAccess]:
        """What is done with each argument."""
        return (each.found() for each in self._done)

    def step(self) -> None:
        """Count a block that is gone through."""
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise _TooLong("it branches too much to be followed")

    def _ir(self, function: Any) -> Any:
        if function not in self._code:  # functions of one code may have closures of their own
            self._code[function] = run_frontend(function)
        return self._code[function]

    # What is done with memory

    def lose(self, value: Any, how: str) -> None:
        """Memory that cannot be followed any further."""
        for leaf in leaves_of(value):
            done = self._done[leaf]
            if not done.why:
                done.why = f"{self._place()}{how}"

    def _lose_item(self, value: Any) -> None:
        self.lose(value, "an item of a tuple of different kinds")

    def lose_all(self, lost: Iterable[Any], how: str) -> None:
        """As `lose`, of several values."""
        for value in lost:
            self.lose(value, how)

    def _place(self) -> str:
        if self.location is None:
            return ""
        return f"{os.path.basename(self.location.filename)}:{self.location.line}: "

    def load(self, memory: Memory, part: Part | None = None) -> None:
        """Elements are read."""
        self._note(memory, part, reads=True)

    def overwrite(self, memory: Memory) -> None:
        """All elements are written."""
        self._note(memory, None, writes=True)

    def change(self, memory: Memory) -> None:
        """Elements are read and written, in place."""
        self._note(memory, None, reads=True, writes=True)

    def _note(
        self, memory: Memory, part: Part | None, *, reads: bool = False, writes: bool = False, atomic: str | None = None
    ) -> None:
        if not self._recording:
            return
        place = _range(memory, part)
        for leaf in memory.leaves:
            done = self._done[leaf]
            if atomic is None:
                done.other = True
            else:
                done.atomics.add(atomic)
            if reads:
                done.reads = True
                done.read_ranges[place] = None
            if writes:
                done.writes = True
                done.write_ranges[place] = None
                done.scattered |= _is_scattered(memory, part)

    def store(self, target: Any, index: Any, value: Any) -> None:
        """``target[index] = value``."""
        if isinstance(value, Memory):
            self.load(value)
        else:
            self.lose(value, "stored in something")
        if isinstance(target, Memory):
            self._note(target, self._part(target, index), writes=True)
        else:
            self.lose(target, "an item of it is set")

    def _part(self, memory: Memory, index: Any) -> Part:
        """What an index means; arrays that are indices are read."""
        for each in index.values if isinstance(index, Items) else (index,):
            if isinstance(each, Memory):
                self.load(each)
            else:
                self.lose(each, "used as an index")
        return part_of(memory, index)

    # What values are asked for

    def object(self, value: Any) -> Any:
        """The value of something that the code names."""
        return object_value(value)

    def item(self, value: Any, index: Any) -> Any:
        """``value[index]``."""
        if values.UNSET in (value, index):
            return values.UNSET
        if isinstance(value, Memory):
            part = self._part(value, index)
            if part.loads:
                self.load(value, part)
            return part.value
        if isinstance(value, Items):
            place = index.value if isinstance(index, numbers.Number) else None
            if place is not None and -len(value.values) <= place < len(value.values):
                return value.values[place]
            if isinstance(index, Known) and isinstance(index.value, slice):
                return Items(value.values[index.value])
            found = None
            for each in value.values:
                found = each if found is None else values.joined(found, each, self._lose_item)
            return PLAIN if found is None or isinstance(index, values.Slice) else found
        self.lose(value, "an item of it is taken")
        return PLAIN

    def attribute(self, value: Any, name: str) -> Any:
        """``value.name``."""
        if value is values.UNSET:
            return value
        if isinstance(value, Memory):
            found = attribute_of(value, name)
            if found is None:
                self.lose(value, f"its attribute {name!r} cannot be followed")
                return PLAIN
            if isinstance(found, Part):
                if found.loads:
                    self.load(value, found)
                return found.value
            return found
        if isinstance(value, Known):
            return attribute_value(value.value, name)
        if isinstance(value, Items) and name in value.names:
            return value.values[value.names.index(name)]
        self.lose(value, f"its attribute {name!r} cannot be followed")
        return Number(taints=value.taints) if isinstance(value, Number) else PLAIN

    def iterator(self, value: Any) -> Any:
        """``iter(value)``."""
        if isinstance(value, values.Iterator):
            return value
        if isinstance(value, Memory):
            item, loads = element_of(value)
            return values.Iterator((value,) if loads else (), item)
        if isinstance(value, Items):
            found = self.item(value, ANY)
            return values.Iterator((), found)
        self.lose(value, "iterated over")
        return PLAIN

    # Calls

    def call(self, function: Any, positional: list[Any], named: dict[str, Any], used: bool) -> Any:
        """``function(*positional, **named)``; ``used`` if anybody looks at what it returns."""
        given = [*positional, *named.values()]
        what = called(function)
        if isinstance(what, Builtin):
            return what.does(self, positional, named, used)
        if what is not None:
            return self._into(what, positional, named)
        self.lose_all(given, f"given to {_name_of(function)}, which cannot be read")
        return PLAIN

    def atomic(self, kind: str, target: Any, index: Any, used: bool) -> None:
        """An atomic operation on an element."""
        if isinstance(target, Memory):
            quiet = kind in COMMUTING and not used
            self._note(target, self._part(target, index), reads=True, writes=True, atomic=kind if quiet else None)
        else:
            self.lose(target, "an atomic operation on it")

    def _into(self, function: Any, positional: list[Any], named: dict[str, Any]) -> Any:
        """A call of a function whose code can be read."""
        try:
            bound = inspect.signature(function).bind(*positional, **named)
        except TypeError as problem:
            self.lose_all([*positional, *named.values()], f"given to {function.__name__}(): {problem}")
            return PLAIN
        arguments = {}
        for name, parameter in inspect.signature(function).parameters.items():
            value = bound.arguments.get(name, parameter.default)
            if parameter.kind is parameter.VAR_POSITIONAL:
                value = Items(tuple(bound.arguments.get(name, ())))
            elif name not in bound.arguments:
                value = known(value)
            arguments[name] = value
        key = (function, tuple(arguments.values()))
        if function in self._running:
            self.lose_all(arguments.values(), f"given to {function.__name__}(), which calls itself")
            return PLAIN
        return self._followed(key, function, arguments)

    def _followed(self, key: Any, function: Any, arguments: dict[str, Any]) -> Any:
        here = self.location
        self._running.append(function)
        body = self._bodies.get(key)
        if body is None:
            body = Body(self, self._ir(function), arguments)
            body.solve()
            self._bodies[key] = body
        if self._recording and key not in self._recorded:
            self._recorded.add(key)
            body.record()
        self._running.pop()
        self.location = here
        return PLAIN if body.returned is None else body.returned


def _name_of(function: Any) -> str:
    if isinstance(function, Method):
        return f"its method {function.name}()"
    if isinstance(function, Known):
        value = function.value
        return f"{getattr(value, '__name__', None) or getattr(value, 'name', value)}()"
    return "a function"


def _range(memory: Memory, part: Part | None) -> Range | None:
    """The places that part of memory is at."""
    window = memory.window if part is None else part.window
    if window is None or window.open or not window.start.bounded:
        return None
    start = window.start
    assumed = frozenset(taint for taint in start.taints if isinstance(taint, Symbol))
    return Range(tuple(sorted(start.low)), tuple(sorted(start.high)), window.flat, start.natural, assumed)


def _is_scattered(memory: Memory, part: Part | None) -> bool:
    return bool((memory.taints if part is None else part.taints) & {"scalar", "loaded"})
