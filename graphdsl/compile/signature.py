"""What a launch passes: the types a kernel is compiled for, and the packing of arguments into parameter bytes.

How values of one type lie there is in `graphdsl.compile.abi`. This module must not compile anything.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba.cuda import types
from numba.cuda.core import sigutils
from numba.cuda.np.numpy_support import as_dtype, from_dtype
from numba.cuda.typing.typeof import typeof

from graphdsl.compile.abi import codec_of, is_number
from graphdsl.compile.image import Leaf, ParameterLayout
from graphdsl.declare.expressions import Expr
from graphdsl.declare.interop import owns_memory
from graphdsl.declare.kernel import Kernel
from graphdsl.declare.operands import Array
from graphdsl.declare.scalars import convert_scalar, number_text
from graphdsl.errors import CompileError, Location

Types = tuple[Any, ...]
"""Numba types, one for each argument."""


def located(error: CompileError, node: str | None, location: Location | None) -> CompileError:
    """The same error, about a node."""
    return CompileError(
        error.rule, node=node, field=error.field, value=error.value, remedy=error.remedy, location=location
    )


# Types of a launch


def argument_types(
    kernel: Kernel,
    args: tuple[Any, ...],
    *,
    signature: Any = None,
    node: str | None = None,
    location: Location | None = None,
) -> Types:
    """The Numba types to compile a kernel for.

    They follow the operands, unless the node or the decorator declares a signature: then it wins, and operands must
    convert to it without loss. Of several declared, one that fits exactly comes before one that needs conversions.

    Parameters
    ----------
    kernel : Kernel
        What is launched.
    args : tuple
        One `Buffer`, `View`, `Param`, `Expr`, number, bool, enum member, or tuple of these for each parameter.
    signature : str, Numba signature, or tuple of Numba types, optional
        What the node declares.
    node, location : optional
        The node's name and where it was declared, for messages.

    Returns
    -------
    tuple of Numba types
        The same object for the same kernel and kinds of operands.

    Raises
    ------
    CompileError
        If the number of arguments is wrong, an argument is of a kind that no kernel takes, or one does not convert to
        the declared type without loss; the parameter is named.
    """
    memo = _memos.get(kernel)
    if memo is None:
        memo = _memos.setdefault(kernel, {})
    by_value = signature is not None or bool(kernel.signatures)
    key = (signature, *[_kind(arg, by_value) for arg in args])
    try:
        return memo[key]
    except (KeyError, TypeError):  # new, or with something that does not hash and will be refused
        pass
    found = _examined(kernel, args, signature)
    if isinstance(found, list):
        raise located(found[0], node, location) from found[0].__cause__
    if len(memo) >= _MEMO_LIMIT:
        memo.clear()
    memo[key] = found
    return found


def argument_errors(
    kernel: Kernel,
    args: tuple[Any, ...],
    *,
    signature: Any = None,
    node: str | None = None,
    location: Location | None = None,
) -> list[CompileError]:
    """All that is wrong with the arguments of a launch; `argument_types`, given the same, raises the first."""
    found = _examined(kernel, args, signature)
    return [located(error, node, location) for error in found] if isinstance(found, list) else []


_MEMO_LIMIT = 4096
_PLAIN = frozenset({bool, float, complex})
_memos: weakref.WeakKeyDictionary[Kernel, dict[Any, Types]] = weakref.WeakKeyDictionary()


def _kind(operand: Any, by_value: bool) -> Any:
    """What the type of an operand follows from. A declared signature is chosen by the values of literals too."""
    kind = type(operand)
    if isinstance(operand, Array):
        return operand.dtype, operand.layout, len(operand.shape), operand.buffer.readonly
    if not by_value and (kind in _PLAIN or (kind is int and -(2**63) <= operand < 2**63)):
        return kind
    if isinstance(operand, Expr) or (isinstance(operand, np.generic) and not by_value):
        return (operand.dtype,)
    if isinstance(operand, tuple):
        return (kind, *[_kind(item, by_value) for item in operand])
    return kind, operand


def _examined(kernel: Kernel, args: tuple[Any, ...], signature: Any) -> Types | list[CompileError]:
    """The types of a launch, or all that is wrong with its arguments."""
    try:
        _require_count(kernel, args)
        declared = _declared(kernel, signature)
    except CompileError as error:
        return [error]
    own = tuple(_type_or_error(arg, name) for arg, name in zip(args, kernel.parameters))
    if declared:
        return _chosen(kernel, args, own, declared)
    return [found for found in own if isinstance(found, CompileError)] or own


def _declared(kernel: Kernel, signature: Any) -> list[Types]:
    declared = [_parsed(signature)] if signature is not None else list(kernel.signatures)
    for wanted in declared:
        if len(wanted) != len(kernel.parameters):
            raise _bad_signature(wanted, f"{kernel!r} takes {len(kernel.parameters)} arguments, not {len(wanted)}")
    return declared


def _require_count(kernel: Kernel, args: tuple[Any, ...]) -> None:
    wanted, given = len(kernel.parameters), len(args)
    if given == wanted:
        return
    missing = ", ".join(kernel.parameters[given:])
    surplus = ", ".join(map(number_text, args[wanted:]))
    raise CompileError(
        f"{kernel!r} takes {wanted} arguments, {given} given",
        field="args",
        value=f"missing {missing}" if missing else f"surplus {surplus}",
        remedy="Pass one operand for each parameter, those with defaults too.",
    )


def _parsed(signature: Any) -> Types:
    try:
        found, returned = sigutils.normalize_signature(signature)
    except Exception as problem:
        raise _bad_signature(signature, f"Numba cannot read it: {problem}") from None
    if returned not in (None, types.void):
        raise _bad_signature(signature, f"a kernel returns void, not {returned}")
    return tuple(found)


def _bad_signature(signature: Any, why: str) -> CompileError:
    return CompileError(why, field="signature", value=repr(signature), remedy="Write it like void(float32[:], int32).")


def _chosen(kernel: Kernel, args: tuple[Any, ...], own: Types, declared: list[Types]) -> Types | list[CompileError]:
    """The declared signature that fits exactly, else the first that fits, else what is wrong for the nearest."""
    if own in declared:
        return own
    misfits = []
    for wanted in declared:
        arguments = zip(kernel.parameters, args, own, wanted)
        errors = [error for argument in arguments if (error := _misfit(*argument)) is not None]
        if not errors:
            return wanted
        misfits.append(errors)
    return min(misfits, key=len)


def _misfit(name: str, operand: Any, found: Any, wanted: Any) -> CompileError | None:
    if isinstance(found, CompileError):
        return found
    if _fits(operand, found, wanted):
        return None
    return CompileError(
        f"the signature declares {wanted}, and {found} does not convert to it without loss",
        field=f"argument {name!r}",
        value=number_text(operand),
        remedy=f"Pass one of type {wanted}, or declare {name} as {found} in the signature.",
    )


def _type_or_error(operand: Any, name: str) -> Any:
    try:
        return _type_of(operand, name)
    except CompileError as error:
        return error


def _type_of(operand: Any, name: str) -> Any:
    """The type that an operand has by itself."""
    if isinstance(operand, tuple):
        items = [_type_of(item, name) for item in operand]
        return types.BaseTuple.from_types(items, type(operand))
    if isinstance(operand, np.void) or owns_memory(operand):
        raise CompileError(
            "a kernel reaches memory through operands of the graph only",
            field=f"argument {name!r}",
            value=f"an object of type {type(operand).__name__}",
            remedy="Pass graph.external(name, ...) of it, or declare graph.device_array(...) and copy to it.",
        )
    if type(operand) is int and not -(2**63) <= operand < 2**64:
        raise CompileError(
            "a kernel takes integers from -2**63 to 2**64 - 1",
            field=f"argument {name!r}",
            value=number_text(operand),
            remedy="Pass a number in range, or the parts of this one.",
        )
    try:
        found = _own_type(operand)
        codec_of(found)
    except Exception as problem:  # Numba raises several kinds
        raise _not_passable(name, number_text(operand)) from problem
    return found


def _own_type(operand: Any) -> Any:
    if isinstance(operand, Array):
        is_record = operand.ndim == 0 and operand.dtype.names is not None
        return from_dtype(operand.dtype) if is_record else _array_type(operand)
    return from_dtype(operand.dtype) if isinstance(operand, Expr) else typeof(operand)


def _array_type(operand: Array) -> Any:
    return types.Array(from_dtype(operand.dtype), operand.ndim, operand.layout, readonly=operand.buffer.readonly)


def _fits(operand: Any, found: Any, wanted: Any) -> bool:
    """True if an operand of type ``found`` converts to ``wanted`` without loss."""
    if found == wanted:
        return True
    if isinstance(operand, Array):
        own = _array_type(operand)
        return (
            isinstance(wanted, types.Array)
            and (own.dtype, own.ndim) == (wanted.dtype, wanted.ndim)
            and wanted.layout in ("A", own.layout)
            and (own.mutable or not wanted.mutable)
        )
    if isinstance(operand, tuple):
        return (
            isinstance(wanted, types.BaseTuple)
            and len(wanted) == len(operand)
            and all(_fits(*pair) for pair in zip(operand, found, wanted))
        )
    return is_number(wanted) and converts(operand, wanted)


def converts(operand: Any, wanted: Any) -> bool:
    """True if a number, or every value of an expression, is one of Numba's type ``wanted``."""
    dtype = as_dtype(wanted)
    if isinstance(operand, Expr):
        return operand.dtype == dtype or _lossless(operand.dtype, dtype)
    try:
        convert_scalar(operand, dtype, field="", error=CompileError)
    except CompileError:
        return False
    return True


def _lossless(found: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """True if every value of ``found`` is one of ``wanted``."""
    if wanted.kind in "fc" and (found.kind == "b" or (found.kind in "iu" and found.itemsize == 8)):
        return (
            False  # NumPy calls int64 to float64 safe, but integers above 2**53 are rounded; a bool is no number here
        )
    return np.can_cast(found, wanted, "safe")


# Layout


@functools.cache
def parameter_layout(types: Types, names: tuple[str, ...] = ()) -> ParameterLayout:
    """How arguments of these types lie in the packed parameters.

    Parameters
    ----------
    types : tuple of Numba types
        One for each argument.
    names : tuple of str, optional
        Names of the arguments, for messages; by default their numbers.

    Raises
    ------
    CompileError
        If a type is one that kernels cannot be passed.
    """
    names = names or tuple(map(str, range(len(types))))
    codecs = []
    leaves: list[Leaf] = []
    end = 0
    for argument, (kind, name) in enumerate(zip(types, names)):
        try:
            codec = codec_of(kind)
        except Exception:
            raise _not_passable(name, str(kind)) from None
        codecs.append(codec)
        for path, dtype in codec.leaves:
            offset = -(-end // dtype.itemsize) * dtype.itemsize
            leaves.append(Leaf(offset, dtype, argument, path))
            end = offset + dtype.itemsize
    return ParameterLayout(tuple(leaves), end, types, names, tuple(codecs))


def _not_passable(name: str, value: str) -> CompileError:
    return CompileError(
        "a kernel takes arrays, records, numbers, bools, dates, enum members, and tuples of these",
        field=f"argument {name!r}",
        value=value,
        remedy="Pass a buffer, a view, a param, an expression or a number, or make it a global of the kernel's module.",
    )


# Packing


def encode(kind: Any, value: Any, name: str = "value") -> tuple[Any, ...]:
    """What the leaves of an argument hold.

    Parameters
    ----------
    kind : Numba type
        The type that the kernel is compiled for.
    value : ArrayValue, number, bool, enum member, or tuple of these
        An `ArrayValue` for an array or a record.
    name : str
        Name of the argument, for messages.

    Returns
    -------
    tuple of numbers
        One for each leaf.

    Raises
    ------
    CompileError
        If the value does not convert to the type without loss of kind or range.

    Examples
    --------
    >>> encode(types.complex64, 1 + 2j)
    (1.0, 2.0)
    """
    return codec_of(kind).encode(value, name)


def pack(layout: ParameterLayout, values: Sequence[Any]) -> bytes:
    """The parameter bytes of a launch.

    Parameters
    ----------
    layout : ParameterLayout
        Made by `parameter_layout`.
    values : sequence
        One for each argument, as `encode` takes them.

    Raises
    ------
    CompileError
        If there are too few or too many, or one does not convert without loss.

    Examples
    --------
    >>> pack(parameter_layout((types.int8, types.int32)), (1, 2)).hex()
    '0100000002000000'
    """
    if len(values) != len(layout.codecs):
        raise CompileError(f"the kernel has {len(layout.codecs)} parameters", field="args", value=len(values))
    leaves: list[Any] = []
    for codec, value, name in zip(layout.codecs, values, layout.names):
        leaves += codec.encode(value, name)
    return layout.struct.pack(*leaves)


def unpack(layout: ParameterLayout, data: bytes | memoryview) -> list[Any]:
    """The arguments that parameter bytes hold: the inverse of `pack`.

    Parameters
    ----------
    layout : ParameterLayout
        Made by `parameter_layout`.
    data : bytes or memoryview
        At least ``layout.nbytes`` bytes.

    Returns
    -------
    list
        `ArrayValue` for arrays and records, NumPy scalars of the exact type for numbers, bools and dates, enum members,
        and tuples.

    Raises
    ------
    CompileError
        If the bytes are too few, or the words of an array contradict each other.

    Examples
    --------
    >>> unpack(parameter_layout((types.int8, types.int32)), bytes.fromhex("0100000002000000"))
    [np.int8(1), np.int32(2)]
    """
    if len(data) < layout.nbytes:
        raise CompileError(f"the parameters are {layout.nbytes} bytes", field="parameters", value=f"{len(data)} bytes")
    words = iter(layout.struct.unpack_from(data))
    return [codec.decode(words, name) for codec, name in zip(layout.codecs, layout.names)]
