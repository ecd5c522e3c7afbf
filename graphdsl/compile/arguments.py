"""What a launch passes to a kernel that is not Numba's: types of arguments, by its signature and its machine code.

The signature says what a parameter is; the machine code says how many bytes it has. Where there is no signature, the
bytes alone decide: eight may be an address. This module must not compile anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba.cuda.np.numpy_support import from_dtype

from graphdsl.compile.c_abi import PointerType, StructType, struct_bytes
from graphdsl.compile.signature import Types, converts
from graphdsl.declare.c_types import Pointer, Value, complex_of, holds
from graphdsl.declare.expressions import Expr
from graphdsl.declare.interop import owns_memory
from graphdsl.declare.operands import Array
from graphdsl.declare.scalars import number_text
from graphdsl.declare.sources import SourceKernel
from graphdsl.errors import CompileError

_ADDRESS_BYTES = 8


class Slot(NamedTuple):
    """A parameter as the compiled kernel has it.

    Attributes
    ----------
    nbytes : int
        Its size.
    is_float : bool
        True if it is known to be a floating-point number: PTX tells, and machine code does not.
    """

    nbytes: int
    is_float: bool = False


def source_types(
    kernel: SourceKernel, args: Sequence[Any], slots: Sequence[Slot] | None, compiled: Types | None = None
) -> Types | list[CompileError]:
    """The types of a launch, or all that is wrong with its arguments.

    Parameters
    ----------
    kernel : SourceKernel
        What is launched.
    args : sequence
        Its operands.
    slots : sequence of Slot or None
        The parameters of the machine code; None where there is none: then only what is wrong in any case is found, and
        the types are not complete.
    compiled : tuple of types, optional
        Types that the arguments must fit, instead of what the kernel declares.
    """
    if compiled is not None:
        count: int | None = len(compiled)
    else:
        count = len(kernel.types) if kernel.types is not None else None if slots is None else len(slots)
    if count is not None and len(args) != count:
        return [_wrong_count(kernel, args, count)]
    found = []
    for index, operand in enumerate(args):
        place = _Place(kernel, index, None if slots is None else slots[index])
        try:
            found.append(place.type_of(operand) if compiled is None else place.fitted(operand, compiled[index]))
        except CompileError as problem:
            found.append(problem)
    return [each for each in found if isinstance(each, CompileError)] or tuple(found)


def signature_error(kernel: SourceKernel, slots: Sequence[Slot]) -> CompileError | None:
    """Where the types that a kernel declares disagree with the machine code; None if they do not."""
    if kernel.types is None:
        return None
    sizes = [slot.nbytes for slot in slots]
    hidden = len(sizes) - len(kernel.types)
    if not 0 <= hidden <= kernel.hidden:
        return _bad_signature(
            kernel,
            ", ".join(f"{parameter.type.text} {parameter.name}" for parameter in kernel.types) or "no parameters",
            f"it has {len(kernel.types)} parameters, and the machine code {len(sizes)}, of "
            f"{', '.join(map(str, sizes)) or 'no'} bytes",
        )
    for index, (parameter, size) in enumerate(zip(kernel.types, sizes)):
        declared = _size(parameter)
        if declared is not None and declared != size:
            return _bad_signature(
                kernel,
                f"{parameter.type.text} {parameter.name}",
                f"parameter {index} has {declared} bytes there, and {size} in the machine code",
            )
    return None


def _size(parameter: Any) -> int | None:
    kind = parameter.type
    if isinstance(kind, Pointer):
        return _ADDRESS_BYTES
    return None if kind.dtype is None else int(kind.dtype.itemsize)


def _bytes(size: int | None) -> str:
    return "an unknown number of bytes" if size is None else f"{size} byte{'' if size == 1 else 's'}"


def _bad_signature(kernel: SourceKernel, value: str, rule: str) -> CompileError:
    return CompileError(
        f"the signature of {kernel.name} is not that of its machine code: {rule}",
        field="signature",
        value=value,
        remedy='Give the parameters that the kernel has with signature="...".',
    )


def _wrong_count(kernel: SourceKernel, args: Sequence[Any], count: int) -> CompileError:
    surplus = ", ".join(number_text(arg) for arg in args[count:])
    missing = kernel.parameters[len(args) :] or [str(number) for number in range(len(args), count)]
    return CompileError(
        f"{kernel!r} takes {count} arguments, {len(args)} given",
        field="args",
        value=f"surplus {surplus}" if surplus else f"missing {', '.join(missing)}",
        remedy="Pass one operand for each parameter.",
    )


class _Place:
    """One parameter of a kernel, for which operands are judged.

    Parameters
    ----------
    kernel : SourceKernel
        The kernel.
    index : int
        Number of the parameter.
    slot : Slot or None
        What the machine code has there, if it is known.
    """

    def __init__(self, kernel: SourceKernel, index: int, slot: Slot | None) -> None:
        self.index = index
        self.size = None if slot is None else slot.nbytes
        declared = kernel.types[index] if kernel.types is not None and index < len(kernel.types) else None
        self.field = f"args[{index}]" if declared is None else f"argument {declared.name!r}"
        self.declared = None if declared is None else declared.type
        unknown = self.declared is None or (isinstance(self.declared, Value) and self.declared.dtype is None)
        if slot is not None and slot.is_float and unknown:
            dtype = np.dtype(f"f{slot.nbytes}")
            self.declared = Value(str(dtype), dtype)

    def type_of(self, operand: Any) -> Any:
        """The type of an operand here; raises what is wrong with it."""
        declared = self.declared
        if isinstance(declared, Pointer):
            return self._pointer(operand, declared)
        if declared is not None and declared.dtype is not None:
            return self._value(operand, declared.dtype)
        return self._sized(operand)

    def fitted(self, operand: Any, wanted: Any) -> Any:
        """The type ``wanted``, if the operand is of it; raises what is wrong with it otherwise."""
        if isinstance(wanted, PointerType):
            fits = operand is None or (isinstance(operand, Array) and self.type_of(operand) == wanted)
        elif isinstance(wanted, StructType):
            fits = len(struct_bytes(operand) or b"") == wanted.nbytes
        else:
            fits = not isinstance(operand, Array) and converts(operand, wanted)
        if not fits:
            raise self._refused(operand, f"it takes {wanted}", f"Pass {wanted}.")
        return wanted

    def _pointer(self, operand: Any, declared: Pointer) -> Any:
        if operand is None:
            return PointerType(declared.element or np.dtype(np.uint8))
        if not isinstance(operand, Array):
            raise self._refused(operand, f"it is {declared.text}, an address", self._remedy(operand))
        if not holds(declared.element, operand.dtype):
            raise self._refused(
                operand,
                f"it is {declared.text}, and the elements are {operand.dtype}",
                f"Pass an array of {declared.element}, or declare void* in the signature.",
            )
        if operand.buffer.readonly and not declared.readonly:
            raise self._refused(
                operand,
                f"it is {declared.text}, and the memory is read-only",
                "Pass memory that can be written, or declare the pointer const if the kernel only reads.",
            )
        return self._address(operand)

    def _address(self, operand: Array) -> Any:
        if operand.layout == "A":
            raise self._refused(
                operand,
                "an address says nothing of strides, and the elements are not contiguous",
                "Pass a contiguous array, or the whole one and its strides as numbers.",
            )
        return PointerType(operand.dtype)

    def _value(self, operand: Any, dtype: np.dtype[Any]) -> Any:
        declared: Any = self.declared
        if dtype.names is not None and struct_bytes(operand) is None:
            dtype = complex_of(dtype) or dtype  # what C++ calls float2 may be meant as one
        if dtype.names is not None:
            return self._struct(operand, dtype)
        if isinstance(operand, Array):
            raise self._refused(
                operand, f"it is {declared.text} by value, and this is memory", "Declare a pointer in the signature."
            )
        wanted = from_dtype(dtype)
        if not converts(operand, wanted):
            raise self._refused(
                operand,
                f"it is {declared.text} of {_bytes(dtype.itemsize)}, and {_subject(operand)} does not convert to it "
                "without loss",
                f"Pass one of type {dtype}, or declare the type that it has in the signature.",
            )
        return wanted

    def _struct(self, operand: Any, dtype: np.dtype[Any] | None = None) -> Any:
        data = struct_bytes(operand)
        size = self.size if dtype is None else dtype.itemsize
        if data is None:
            raise self._refused(
                operand,
                f"it is a structure of {_bytes(size)} by value",
                "Pass a record of a structured NumPy dtype, a ctypes.Structure, or bytes.",
            )
        if size is not None and len(data) != size:
            raise self._wrong_size(operand, f"a structure of {len(data)} bytes")
        return StructType(len(data), operand.dtype if isinstance(operand, np.void) else dtype)

    def _sized(self, operand: Any) -> Any:
        """The type of an operand where only the bytes of the parameter are known."""
        if struct_bytes(operand) is not None:
            return self._struct(operand)
        if isinstance(operand, Array):
            if self.size not in (None, _ADDRESS_BYTES):
                raise self._wrong_size(operand, "an address of 8 bytes")
            if operand.buffer.readonly:
                raise self._refused(
                    operand,
                    "nothing says that the kernel only reads through it, and the memory is read-only",
                    "Pass memory that can be written, or declare const in signature=.",
                )
            return self._address(operand)
        if operand is None and self.size in (None, _ADDRESS_BYTES):
            return PointerType(np.dtype(np.uint8))
        dtype = self._dtype(operand)
        if dtype is None or dtype.kind not in "biufcmM":
            raise self._refused(operand, f"it takes {_bytes(self.size)}", self._remedy(operand))
        if self.size is not None and dtype.itemsize != self.size:
            raise self._wrong_size(operand, _described(operand))
        return from_dtype(dtype)

    def _dtype(self, operand: Any) -> np.dtype[Any] | None:
        """The dtype of a number; a Python number has the one of its kind that the parameter has room for."""
        if isinstance(operand, (Expr, np.generic)):
            return operand.dtype
        for kind, codes in ((bool, "b"), (int, "iu"), (float, "f"), (complex, "c")):
            if isinstance(operand, kind):
                return self._room(operand, codes)
        return None

    def _room(self, operand: Any, codes: str) -> np.dtype[Any]:
        for code in codes:
            try:
                dtype = np.dtype("?" if code == "b" else f"{code}{self.size}")
            except TypeError:
                continue
            if converts(operand, from_dtype(dtype)):
                return dtype
        return np.dtype(type(operand))

    def _wrong_size(self, operand: Any, what: str) -> CompileError:
        return self._refused(
            operand, f"it takes {_bytes(self.size)}, and this is {what}", "Pass an operand of that size."
        )

    def _remedy(self, operand: Any) -> str:
        if owns_memory(operand):
            return "Pass graph.external(name, ...) of it, or declare graph.device_array(...) and copy to it."
        if isinstance(self.declared, Pointer) or self.size == _ADDRESS_BYTES:
            return "Pass an array of the graph, or None for null."
        return "Pass a number of that size, or a structure as a record of a structured NumPy dtype or as bytes."

    def _refused(self, operand: Any, rule: str, remedy: str) -> CompileError:
        return CompileError(
            f"parameter {self.index}: {rule}",
            field=self.field,
            value=number_text(operand),
            remedy=remedy,
        )


def _subject(operand: Any) -> str:
    return _described(operand) if isinstance(operand, (Expr, np.generic)) else "this"


def _described(operand: Any) -> str:
    """The type of a number, with its size."""
    if isinstance(operand, (Expr, np.generic)):
        return f"{operand.dtype} of {_bytes(operand.dtype.itemsize)}"
    return next((text for kind, text in _DESCRIPTIONS if isinstance(operand, kind)), f"a {type(operand).__name__}")


_DESCRIPTIONS = (
    (bool, "a bool of 1 byte"),
    (int, "an integer that no such number holds"),
    (float, "a float, which has 2, 4 or 8"),
    (complex, "a complex number, which has 8 or 16"),
)
