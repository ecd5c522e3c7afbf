"""What the functions do that a kernel calls and that are no Python code of its own: Numba's, NumPy's, Python's.

Whatever is not named here is unknown to whoever gives it memory. This module must not follow code.
"""

from __future__ import annotations

import builtins
import dataclasses
import math
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import cuda
from numba.cuda import types
from numba.cuda.np.numpy_support import from_dtype

from graphdsl.compile import access_numbers as numbers
from graphdsl.compile.access_memory import extents, flattened, transposed
from graphdsl.compile.access_numbers import ANY, Number, Symbol, between, constant, exact, of, plus, product, symbolic
from graphdsl.compile.access_values import (
    PLAIN,
    Items,
    Iterator,
    Known,
    Memory,
    Method,
    Slice,
    known,
    taints_of,
)

if TYPE_CHECKING:
    from graphdsl.compile.access import Analysis

_THREAD = frozenset({"thread"})
_LOADED = frozenset({"loaded"})
_NAMES = "xyz"

Handler = Callable[["Analysis", list[Any], dict[str, Any], bool], Any]


class Builtin(NamedTuple):
    """A function that is known by what it does.

    Attributes
    ----------
    does : callable
        Given the analysis, the arguments, those by name, and whether the result is used: gives the result.
    """

    does: Handler


# Sizes of the launch


def _extent(name: str, axis: int) -> numbers.Poly:
    return of(Symbol(name, (axis,), 1, 1024 if name == "block" else 2**31 - 1))


def _below(size: numbers.Poly, taints: frozenset[Any] = _THREAD) -> Number:
    return between([()], [plus(size, constant(-1))], "int", taints)


def _place(axis: int) -> Number:
    return _below(product(_extent("grid", axis), _extent("block", axis)))


def _places(axis: int) -> Number:
    size = product(_extent("grid", axis), _extent("block", axis))
    return between([size], [size], "int", frozenset())


_COORDINATES: dict[int, Callable[[int], Number]] = {
    id(cuda.threadIdx): lambda axis: _below(_extent("block", axis)),
    id(cuda.blockIdx): lambda axis: _below(_extent("grid", axis)),
    id(cuda.blockDim): lambda axis: symbolic(Symbol("block", (axis,), 1, 1024)),
    id(cuda.gridDim): lambda axis: symbolic(Symbol("grid", (axis,), 1, 2**31 - 1)),
}
_OBJECTS = {id(cuda.laneid): _below(constant(32)), id(cuda.warpsize): exact(32)}


def object_value(value: Any) -> Any:
    """The value of a Python object that the code names."""
    return _OBJECTS[id(value)] if id(value) in _OBJECTS else known(value)


def attribute_value(owner: Any, name: str) -> Any:
    """The value of an attribute of one."""
    if id(owner) in _COORDINATES and len(name) == 1 and name in _NAMES:
        return _COORDINATES[id(owner)](_NAMES.index(name))
    try:
        return object_value(getattr(owner, name))
    except AttributeError:
        return PLAIN


def _per_axis(number: Callable[[int], Number]) -> Handler:
    def handler(analysis: Analysis, args: list[Any], named: dict[str, Any], used: bool) -> Any:
        count = args[0].value if args and isinstance(args[0], Number) else None
        if count == 1:
            return number(0)
        return Items(tuple(map(number, range(count)))) if count in (2, 3) else PLAIN

    return handler


# Functions of numbers


def _pure(analysis: Analysis, args: list[Any], named: dict[str, Any], used: bool) -> Any:
    """A number made of numbers, or of elements."""
    taints: frozenset[Any] = frozenset()
    for each in (*args, *named.values()):
        if isinstance(each, Memory):
            analysis.load(each)
        else:
            analysis.lose(each, "given to a function of numbers")
        taints |= taints_of(each)
    return Number(taints=taints)


def _across(analysis: Analysis, args: list[Any], named: dict[str, Any], used: bool) -> Any:
    """As `_pure`, made of what other threads have."""
    return _pure(analysis, args, named, used).tainted(_LOADED)


def _integer(analysis: Analysis, args: list[Any], named: dict[str, Any], used: bool) -> Any:
    if len(args) == 1 and isinstance(args[0], Number) and args[0].kind in ("int", "u32"):
        return dataclasses.replace(args[0], kind="int")
    return _pure(analysis, args, named, used)


def _folded(function: Callable[[Number, Number], Number]) -> Handler:
    def handler(analysis: Analysis, args: list[Any], named: dict[str, Any], used: bool) -> Any:
        if not args or named or not all(isinstance(each, Number) for each in args):
            return _pure(analysis, args, named, used)
        found = args[0]
        for each in args[1:]:
            found = function(found, each)
        return found

    return handler


# Functions of Python


def _range(analysis: Analysis, args: list[Any], named: dict[str, Any], used: bool) -> Any:
    if not all(isinstance(each, Number) for each in args) or not 1 <= len(args) <= 3:
        return Iterator((), _pure(analysis, args, named, used))
    start = exact(0) if len(args) == 1 else args[0]
    return Iterator((), numbers.counted(start, args[min(1, len(args) - 1)], args[2] if len(args) == 3 else exact(1)))


def _len(analysis: Analysis, args: list[Any], named: dict[str, Any], used: bool) -> Any:
    (value,) = args
    if isinstance(value, Memory):
        shape = extents(value)
        return shape.values[0] if isinstance(shape, Items) and shape.values else ANY
    return exact(len(value.values)) if isinstance(value, Items) else ANY


def _enumerate(analysis: Analysis, args: list[Any], named: dict[str, Any], used: bool) -> Any:
    inner = analysis.iterator(args[0])
    item = inner.item if isinstance(inner, Iterator) else PLAIN
    reads = inner.reads if isinstance(inner, Iterator) else ()
    return Iterator(reads, Items((Number(kind="int"), item)))


def _zip(analysis: Analysis, args: list[Any], named: dict[str, Any], used: bool) -> Any:
    inner = [analysis.iterator(each) for each in args]
    reads = [memory for each in inner if isinstance(each, Iterator) for memory in each.reads]
    return Iterator(tuple(reads), Items(tuple(each.item if isinstance(each, Iterator) else PLAIN for each in inner)))


def _slice(analysis: Analysis, args: list[Any], named: dict[str, Any], used: bool) -> Any:
    none = known(None)
    start, stop, step = (none, args[0], none) if len(args) == 1 else (*args, none)[:3]
    return Slice(start, stop, step)


def _tuple(analysis: Analysis, args: list[Any], named: dict[str, Any], used: bool) -> Any:
    if len(args) == 1 and isinstance(args[0], Items):
        return args[0]
    analysis.lose_all(args, "made a tuple")
    return PLAIN


def _untouched(analysis: Analysis, args: list[Any], named: dict[str, Any], used: bool) -> Any:
    return PLAIN


# Functions of numba.cuda


def _own_array(analysis: Analysis, args: list[Any], named: dict[str, Any], used: bool) -> Any:
    """An array of the kernel itself."""
    given = dict(zip(("shape", "dtype"), args)) | named
    analysis.lose_all(given.values(), "given to a function that makes an array")
    shape, kind = given.get("shape"), given.get("dtype")
    ndim = len(shape.values) if isinstance(shape, Items) else 1 if isinstance(shape, Number) else None
    return Memory(frozenset(), ndim, _element_type(kind))


def _element_type(kind: Any) -> Any:
    value = kind.value if isinstance(kind, Known) else None
    if isinstance(value, types.Type):
        return value
    try:
        return from_dtype(np.dtype(value)) if value is not None else None
    except Exception:  # what NumPy or Numba takes for no dtype
        return None


def _atomic(kind: str) -> Handler:
    def handler(analysis: Analysis, args: list[Any], named: dict[str, Any], used: bool) -> Any:
        if named or len(args) < 3:
            analysis.lose_all([*args, *named.values()], "an atomic operation that cannot be followed")
            return PLAIN
        target, index, *rest = (args[0], exact(0), *args[1:]) if kind == "compare_and_swap" else args
        _pure(analysis, rest, {}, used)
        analysis.atomic(kind, target, index, used)
        return Number(taints=_LOADED)

    return handler


def _cached_load(analysis: Analysis, args: list[Any], named: dict[str, Any], used: bool) -> Any:
    if named or len(args) != 2:
        analysis.lose_all([*args, *named.values()], "a load that cannot be followed")
        return PLAIN
    found = analysis.item(*args)
    return _pure(analysis, [found], {}, used) if isinstance(found, Memory) else found


def _cached_store(analysis: Analysis, args: list[Any], named: dict[str, Any], used: bool) -> Any:
    if named or len(args) != 3:
        analysis.lose_all([*args, *named.values()], "a store that cannot be followed")
    else:
        analysis.store(*args)
    return known(None)


def _device_function(kind: str, nbytes: int) -> Handler:
    """A function of `graphdsl.device` that touches elements of the array that it is given, from an index on."""

    def handler(analysis: Analysis, args: list[Any], named: dict[str, Any], used: bool) -> Any:
        target, index, *values = args if len(args) > 1 else (None, None)
        if named or not isinstance(target, Memory) or not isinstance(index, Number):
            analysis.lose_all([*args, *named.values()], "given to a device function in a way that cannot be followed")
            return PLAIN
        size = numbers.add(exact(_count(target, nbytes) - 1), index)
        place = between(index.low, size.high, "int", index.taints | size.taints)
        if kind == "add":
            _pure(analysis, values, {}, False)
            analysis.atomic(kind, target, place, False)
        elif kind == "write":
            _pure(analysis, values, {}, False)
            analysis.store(target, place, ANY)
        else:
            analysis.item(target, place)
        return Items((Number(taints=_LOADED),) * 4) if used else known(None)

    return handler


def _count(memory: Memory, nbytes: int) -> int:
    """The most elements that so many bytes are."""
    itemsize = getattr(memory.element, "bitwidth", 8) // 8
    return max(nbytes // max(itemsize, 1), 1)


# Methods of arrays


def _method(memory: Memory, name: str) -> Handler:
    def handler(analysis: Analysis, args: list[Any], named: dict[str, Any], used: bool) -> Any:
        analysis.lose_all([*args, *named.values()], f"given to {name}()")
        if name == "fill":
            analysis.overwrite(memory)
            return known(None)
        if name == "ravel":
            return flattened(memory)
        if name == "transpose":
            return transposed(memory)
        if name == "view":
            element = _element_type(args[0]) if len(args) == 1 else None
            return dataclasses.replace(memory, element=element, window=None)
        if name == "reshape":
            return _reshaped(memory, args)
        analysis.load(memory)
        if name in ("copy", "astype"):
            return Memory(frozenset(), memory.ndim)
        return PLAIN

    return handler


def _reshaped(memory: Memory, args: list[Any]) -> Memory:
    shape = args[0] if len(args) == 1 and not isinstance(args[0], Number) else Items(tuple(args))
    ndim = len(shape.values) if isinstance(shape, Items) else None
    if ndim == 1:
        return flattened(memory)
    return Memory(memory.leaves, ndim, memory.element, None, memory.taints)


def _ufunc(function: np.ufunc) -> Handler:
    def handler(analysis: Analysis, args: list[Any], named: dict[str, Any], used: bool) -> Any:
        outputs = [*args[function.nin :], *named.values()]
        found = _pure(analysis, args[: function.nin], {}, used)
        for each in outputs:
            if isinstance(each, Memory):
                analysis.change(each)
            else:
                analysis.lose(each, f"given to {function.__name__}()")
        if outputs:
            return outputs[0]
        return PLAIN if any(isinstance(each, Memory) for each in args) else found

    return handler


_ACROSS = (
    *("shfl_sync", "shfl_up_sync", "shfl_down_sync", "shfl_xor_sync", "all_sync", "any_sync", "eq_sync"),
    *("ballot_sync", "match_any_sync", "activemask", "syncthreads_and", "syncthreads_or", "syncthreads_count"),
)
_PURE = ["popc", "brev", "clz", "ffs", "cbrt", "fma", "selp", "lanemask_lt"]
_HANDLERS: dict[int, Handler] = {
    id(cuda.grid): _per_axis(_place),
    id(cuda.gridsize): _per_axis(_places),
    id(builtins.range): _range,
    id(builtins.len): _len,
    id(builtins.min): _folded(numbers.smaller),
    id(builtins.max): _folded(numbers.larger),
    id(builtins.int): _integer,
    id(builtins.enumerate): _enumerate,
    id(builtins.zip): _zip,
    id(builtins.slice): _slice,
    id(builtins.tuple): _tuple,
    id(builtins.iter): lambda analysis, args, named, used: analysis.iterator(args[0]),
    **{id(function): _untouched for function in (builtins.isinstance, builtins.type)},
    **{id(function): _pure for function in (bool, float, complex, abs, round, pow, divmod, print, str)},
    **{id(getattr(cuda, name)): _across for name in _ACROSS if hasattr(cuda, name)},
    **{id(getattr(cuda, name)): _pure for name in _PURE if hasattr(cuda, name)},
    **{id(getattr(cuda.atomic, name)): _atomic(name.rstrip("_")) for name in vars(cuda.atomic) if name[0] != "_"},
    **{id(space.array): _own_array for space in (cuda.shared, cuda.local)},
    **{
        id(getattr(cuda, name)): _cached_load
        for name in ["ldca", "ldcg", "ldcs", "ldlu", "ldcv"]
        if hasattr(cuda, name)
    },
    **{id(getattr(cuda, name)): _cached_store for name in ["stcg", "stcs", "stwb", "stwt"] if hasattr(cuda, name)},
    **{id(function): _pure for name, function in vars(math).items() if callable(function)},
}
_WIDE = (np.int64, np.intp, types.int64)


def called(function: Any) -> Builtin | FunctionType | None:
    """What a call of a value does: a builtin, a function whose code tells, or None if that is not known."""
    if isinstance(function, Method):
        return Builtin(_method(function.memory, function.name))
    value = function.value if isinstance(function, Known) else None
    touched = getattr(value, "__graphdsl_touched__", None)
    if touched is not None:
        return Builtin(_device_function(*touched))
    if id(value) in _HANDLERS:
        return Builtin(_HANDLERS[id(value)])
    code = getattr(value, "py_func", None)  # of a Numba dispatcher
    if isinstance(code, FunctionType):
        return code
    if isinstance(value, np.ufunc):
        return Builtin(_ufunc(value))
    if isinstance(value, types.Type) or (isinstance(value, type) and issubclass(value, np.generic)):
        return Builtin(_integer if value in _WIDE else _pure)
    return None
