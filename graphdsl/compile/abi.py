"""Numba's calling convention for kernels: how values of each type lie in the parameter bytes.

The convention is Numba's own and declared unstable, so everything that knows it stands in this one file; the tests
compare it with the parameters of the PTX that Numba makes, and each cubin is compared when it is built. This module
must know nothing of operands or kernels.

An argument is flattened into leaves: an array of n dimensions is 5 + 2n eight-byte words (meminfo, parent, size,
itemsize, address, shape, strides), a complex number its two parts, a tuple the leaves of its items, a record its
address.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import islice
from math import prod
from typing import Any

import numpy as np
from numba.cuda import types
from numba.cuda.np.numpy_support import as_dtype

from graphdsl.compile import c_abi
from graphdsl.compile.codec import Codec, wrong_value
from graphdsl.compile.image import ArrayValue
from graphdsl.declare.scalars import convert_scalar
from graphdsl.errors import CompileError

_WORD = np.dtype(np.int64)
_ADDRESS = np.dtype(np.uint64)


@functools.cache
def codec_of(kind: Any) -> Codec:
    """The codec of a Numba type, or of one that only kernels in C++ take (`graphdsl.compile.c_abi`).

    Raises
    ------
    NotImplementedError
        If kernels are passed no values of that type.
    """
    if isinstance(kind, (c_abi.PointerType, c_abi.StructType)):
        return kind.codec
    if isinstance(kind, types.Array):
        element = as_dtype(kind.dtype)
        if element.hasobject:
            raise NotImplementedError(kind)
        return _array_codec(kind.ndim, element.itemsize)
    if isinstance(kind, types.Record):
        return _record_codec()
    if isinstance(kind, types.BaseTuple):
        return _tuple_codec(kind)
    if isinstance(kind, types.EnumMember):
        return _enum_codec(kind)
    if isinstance(kind, (types.NPDatetime, types.NPTimedelta)):
        return _time_codec(as_dtype(kind))
    if is_number(kind):
        return _complex_codec(as_dtype(kind)) if isinstance(kind, types.Complex) else _scalar_codec(as_dtype(kind))
    raise NotImplementedError(kind)


def is_number(kind: Any) -> bool:
    """True for Numba's types of bools, integers, floats and complex numbers, and not for those of constants."""
    numbers = (types.Boolean, types.Integer, types.Float, types.Complex)
    return isinstance(kind, numbers) and not isinstance(kind, types.Literal)


def _array_codec(ndim: int, itemsize: int) -> Codec:
    def encode(value: Any, name: str) -> tuple[Any, ...]:
        try:
            address, shape, strides = value
            if len(shape) == ndim == len(strides):
                return (0, 0, prod(shape), itemsize, address, *shape, *strides)
        except (TypeError, ValueError):
            pass
        raise wrong_value(f"an array of {ndim} dimensions", value, name)

    def decode(words: Iterator[Any], name: str) -> ArrayValue:
        meminfo, parent, size, item, address = islice(words, 5)
        shape, strides = tuple(islice(words, ndim)), tuple(islice(words, ndim))
        if (meminfo, parent, size, item) != (0, 0, prod(shape), itemsize):
            raise CompileError(
                f"an array of shape {shape} has the words 0, 0, {prod(shape)} and {itemsize} "
                "for meminfo, parent, size and itemsize",
                field=f"argument {name!r}",
                value=(meminfo, parent, size, item),
                remedy="Pack it with graphdsl.compile.signature.pack.",
            )
        return ArrayValue(address, shape, strides)

    words = (("meminfo",), _ADDRESS), (("parent",), _ADDRESS), (("size",), _WORD), (("itemsize",), _WORD)
    extents = [((part, i), _WORD) for part in ("shape", "strides") for i in range(ndim)]
    return Codec((*words, (("address",), _ADDRESS), *extents), encode, decode)


def _record_codec() -> Codec:
    def encode(value: Any, name: str) -> tuple[int]:
        if type(value) is not ArrayValue or value.shape:
            raise wrong_value("a record", value, name)
        return (value.address,)

    return Codec(((("address",), _ADDRESS),), encode, lambda words, name: ArrayValue(next(words), (), ()))


def _tuple_codec(kind: Any) -> Codec:
    items = [codec_of(item) for item in kind.types]

    def encode(value: Any, name: str) -> tuple[Any, ...]:
        if not isinstance(value, tuple) or len(value) != len(items):
            raise wrong_value(f"a tuple of {len(items)}", value, name)
        return tuple(leaf for item, part in zip(items, value) for leaf in item.encode(part, name))

    def decode(words: Iterator[Any], name: str) -> tuple[Any, ...]:
        values = tuple(item.decode(words, name) for item in items)
        named: tuple[Any, ...] = kind.instance_class(*values) if isinstance(kind, types.BaseNamedTuple) else values
        return named

    leaves = [(("item", i, *path), dtype) for i, item in enumerate(items) for path, dtype in item.leaves]
    return Codec(tuple(leaves), encode, decode)


def _enum_codec(kind: Any) -> Codec:
    member, item = kind.instance_class, codec_of(kind.dtype)

    def encode(value: Any, name: str) -> tuple[Any, ...]:
        if not isinstance(value, member):
            raise wrong_value(f"a member of {member.__name__}", value, name)
        return item.encode(value.value, name)

    return Codec(item.leaves, encode, lambda words, name: member(item.decode(words, name)))


def _time_codec(dtype: np.dtype[Any]) -> Codec:
    def encode(value: Any, name: str) -> tuple[int]:
        return (int(_converted(value, dtype, name).astype(np.int64)),)

    return Codec((((), _WORD),), encode, lambda words, name: np.int64(next(words)).view(dtype))


def _complex_codec(dtype: np.dtype[Any]) -> Codec:
    part = np.dtype(f"f{dtype.itemsize // 2}")

    def encode(value: Any, name: str) -> tuple[float, float]:
        value = _converted(value, dtype, name)
        return value.real, value.imag

    def decode(words: Iterator[Any], name: str) -> Any:
        return dtype.type(complex(next(words), next(words)))

    return Codec(((("real",), part), (("imag",), part)), encode, decode)


def _scalar_codec(dtype: np.dtype[Any]) -> Codec:
    # The common values are told by their exact type and a comparison: `convert_scalar` takes ten times as long.
    exact: Any = {"b": bool, "f": float}.get(dtype.kind, int)
    least, most = _range(dtype)

    def encode(value: Any, name: str) -> tuple[Any]:
        if type(value) is exact and least <= value <= most:
            return (value,)
        return (_converted(value, dtype, name),)

    return Codec((((), dtype),), encode, lambda words, name: dtype.type(next(words)))


def _range(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    if dtype.kind == "b":
        return False, True
    if dtype.kind == "f":
        return float(np.finfo(dtype).min), float(np.finfo(dtype).max)
    return np.iinfo(dtype).min, np.iinfo(dtype).max


def _converted(value: Any, dtype: np.dtype[Any], name: str) -> Any:
    return convert_scalar(value, dtype, field=f"argument {name!r}", error=CompileError)
