"""What kernels in C++ take beside numbers: addresses, and structures by value.

Numbers have Numba's types, which lie in parameters as C++ has them. This module must know nothing of kernels.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphdsl.cached import cached_property
from graphdsl.compile.codec import Codec, wrong_value
from graphdsl.compile.image import ArrayValue

_ADDRESS = np.dtype(np.uint64)
_NULL = ArrayValue(0, (), ())


@dataclass(frozen=True)
class PointerType:
    """An address, of memory with elements of a dtype.

    Examples
    --------
    >>> str(PointerType(np.dtype(np.float32)))
    'float32*'
    """

    element: np.dtype[Any]

    def __str__(self) -> str:
        return f"{self.element}*"

    @cached_property
    def codec(self) -> Codec:
        """How it lies in parameters: a value is an `ArrayValue`, or None for null."""

        def encode(value: Any, name: str) -> tuple[int]:
            if value is None:
                return (0,)
            if type(value) is not ArrayValue:
                raise wrong_value("an array", value, name)
            return (value.address,)

        return Codec(((("address",), _ADDRESS),), encode, lambda words, name: _NULL._replace(address=next(words)))


@dataclass(frozen=True)
class StructType:
    """A structure by value, of which only the size is known, or the dtype.

    Examples
    --------
    >>> str(StructType(16))
    'struct of 16 bytes'
    """

    nbytes: int
    dtype: np.dtype[Any] | None = None

    def __str__(self) -> str:
        return f"struct of {self.nbytes} bytes"

    @cached_property
    def codec(self) -> Codec:
        """How it lies in parameters: a value is what `struct_bytes` takes; decoded, it is a record, or bytes."""

        def encode(value: Any, name: str) -> tuple[bytes]:
            data = struct_bytes(value)
            if data is None or len(data) != self.nbytes:
                raise wrong_value(f"a structure of {self.nbytes} bytes", value, name)
            return (data,)

        def decode(words: Iterator[Any], name: str) -> Any:
            data = next(words)
            return data if self.dtype is None else np.frombuffer(data, np.dtype((np.record, self.dtype)))[0]

        return Codec(((("bytes",), np.dtype(f"V{self.nbytes}")),), encode, decode)


def struct_bytes(value: Any) -> bytes | None:
    """The bytes of a structure: a record of NumPy, a structure of ctypes, or the bytes themselves; else None.

    Examples
    --------
    >>> struct_bytes(np.array((1, 2), "i2,i2")[()]).hex(), struct_bytes(3)
    ('01000200', None)
    """
    if isinstance(value, np.void):
        return value.tobytes()
    if isinstance(value, (bytes, ctypes.Structure, ctypes.Union)):
        return bytes(value)
    return None
