"""What the declaring methods take, brought into one form or refused with one clear error.

Updates take the same things and use the same functions. This module must not know what a graph is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from graphdsl.declare.expressions import Expr
from graphdsl.declare.interop import owns_memory
from graphdsl.declare.kernel import Kernel, is_deferred
from graphdsl.declare.nodes import AllocNode, Dim3
from graphdsl.declare.operands import LIFETIMES, Array, Buffer, Extent, Lifetime, contiguous_strides
from graphdsl.declare.sources import SourceKernel
from graphdsl.errors import DeclarationError


def checked_name(name: Any, what: str) -> str:
    """A name that can be shown and looked up; ``what`` has it, such as "a node"."""
    if isinstance(name, str) and name and name.isprintable():
        return name
    raise DeclarationError(
        f"the name of {what} is a string of printable characters, and not empty",
        field="name",
        value=repr(name),
        remedy="Choose such a name.",
    )


def checked_ordinal(device: Any) -> int:
    """The number of a device, which is given as such or has one."""
    ordinal = getattr(device, "ordinal", device)
    if isinstance(ordinal, (int, np.integer)) and not isinstance(ordinal, bool) and ordinal >= 0:
        return int(ordinal)
    raise DeclarationError(
        "a device is given by its number, or as what graphdsl.cuda or graphdsl.emulator gave",
        field="device",
        value=f"{device!r} of type {type(device).__name__}",
        remedy="Pass 0 for the first device of the computer, 1 for the second.",
    )


def checked_shape(shape: Any, name: str) -> tuple[int, ...]:
    """Extents of an array, fixed when it is declared."""
    extents = shape if isinstance(shape, (tuple, list)) else (shape,)
    for extent in extents:
        if isinstance(extent, bool) or not isinstance(extent, (int, np.integer)) or not 0 <= extent < 2**63:
            raise DeclarationError(
                "the extents of an array are non-negative integers below 2**63, fixed when it is declared",
                field=f"shape of {name}",
                value=shape,
                remedy="Declare the largest shape, and pass a param, or a slice bounded by one, for the part used.",
            )
    return tuple(int(extent) for extent in extents)


def checked_dtype(dtype: Any, name: str, *, scalar: bool = False) -> np.dtype[Any]:
    """A dtype that devices work on."""
    try:
        made: np.dtype[Any] | None = None if dtype is None else np.dtype(dtype)  # NumPy reads None as float64
    except (TypeError, ValueError):
        made = None
    if made is None:
        raise DeclarationError(
            "a dtype is what numpy.dtype takes",
            field=f"dtype of {name}",
            value=repr(dtype),
            remedy="Pass a NumPy type such as numpy.float32.",
        )
    defect = _defect(made, scalar)
    if defect is not None:
        raise DeclarationError(
            defect,
            field=f"dtype of {name}",
            value=str(made),
            remedy="Use a bool, integer, float or complex dtype.",
        )
    return made


def checked_lifetime(lifetime: Any, name: str) -> Lifetime:
    """How long the contents of an array are there."""
    if isinstance(lifetime, str) and lifetime in LIFETIMES:
        return lifetime
    raise DeclarationError(
        'a lifetime is "auto", "launch" or "persistent"',
        field=f"lifetime of {name}",
        value=repr(lifetime),
        remedy='Pass "persistent" for what is kept from launch to launch, or leave it out.',
    )


AUTO_PITCH_BYTES = 512
"""What rows of automatic pitch begin at multiples of, as those of `cuMemAllocPitch` do on the GPUs of today."""


def checked_strides(shape: tuple[int, ...], dtype: np.dtype[Any], pitch: Any, name: str) -> tuple[int, ...]:
    """Strides in bytes of an array in C order whose rows are ``pitch`` bytes apart; None leaves no gaps."""
    if pitch is None:
        return contiguous_strides(shape, dtype.itemsize)
    if len(shape) < 2:
        raise _no_pitch("an array with a pitch has rows, and so two dimensions or more", pitch, name)
    row = shape[-1] * dtype.itemsize
    if pitch == "auto":
        pitch = -(-max(row, 1) // AUTO_PITCH_BYTES) * AUTO_PITCH_BYTES
    step = dtype.itemsize if dtype.names is None else dtype.alignment
    if isinstance(pitch, bool) or not isinstance(pitch, (int, np.integer)) or not row <= pitch < 2**63 or pitch % step:
        raise _no_pitch(
            f'a pitch is "auto", or a multiple of {step} bytes that is no shorter than a row of {row} bytes',
            pitch,
            name,
        )
    return (*contiguous_strides(shape[:-1], int(pitch)), dtype.itemsize)


def _no_pitch(rule: str, pitch: Any, name: str) -> DeclarationError:
    return DeclarationError(
        rule, field=f"pitch of {name}", value=repr(pitch), remedy='Pass pitch="auto", or leave it out.'
    )


_MAX_ITEMSIZE = {"b": 1, "i": 8, "u": 8, "f": 8, "c": 16, "M": 8, "m": 8}
"""Bytes of the widest scalar of each kind."""


def _defect(dtype: np.dtype[Any], scalar: bool) -> str | None:
    """Why no device works on elements of this dtype; None if it does."""
    if dtype.subdtype is not None:
        return "the dtype is that of one element, and dimensions belong to the shape"
    if dtype.names is None:
        return _number_defect(dtype)
    if scalar:
        return "a param is one number"
    if dtype.itemsize == 0:
        return "a structure has fields"
    defects = (_defect(dtype[name].base, scalar) for name in dtype.names)  # the base of a field that is an array
    return next((defect for defect in defects if defect is not None), None)


def _number_defect(dtype: np.dtype[Any]) -> str | None:
    most = _MAX_ITEMSIZE.get(dtype.kind, 0)
    if most == 0 or dtype.itemsize == 0:
        return "a device works on numbers, and on structures of them"
    if dtype.itemsize > most:
        return "a device has no numbers of extended precision"
    return None if dtype.isnative else "a device works on numbers in the machine's byte order"


def allocated_array(what: Any, node: str | None) -> Buffer:
    """The array that an alloc node allocates, given the node or the array."""
    array = what.array if isinstance(what, AllocNode) else what
    if isinstance(array, Buffer) and array.allocated:
        return array
    raise DeclarationError(
        "a free node frees what an alloc node of the graph allocates",
        node=node,
        field="array",
        value=f"{what!r} of type {type(what).__name__}",
        remedy="Pass what graph.alloc gave. Arrays of device_array live as long as the exec.",
    )


def arguments(args: Any, node: str | None = None, kernel: Kernel | None = None) -> tuple[Any, ...]:
    """The arguments of a node in order; a single one may stand by itself, and those of a kernel may have names.

    Parameters
    ----------
    args : object
        A tuple or another iterable with an order; what has elements in memory, such as an array, is one argument.
    node : str, optional
        Name of the node, for messages.
    kernel : Kernel, optional
        Whose parameters the names in a dict are.
    """
    if type(args) is tuple:
        return args
    if isinstance(args, (tuple, list)):
        return tuple(args)
    if isinstance(args, Mapping) and kernel is not None:
        return _by_name(args, node, kernel)
    if isinstance(args, (Mapping, set, frozenset)):
        raise DeclarationError(
            "arguments are given in order, and this is a " + ("dict" if isinstance(args, Mapping) else "set"),
            node=node,
            field="args",
            value=repr(args),
            remedy="Pass a tuple; (d,) passes the object itself as the one argument.",
        )
    several = isinstance(args, Iterable) and not isinstance(args, (Array, str, np.void)) and not owns_memory(args)
    return tuple(args) if several else (args,)


def kernel_arguments(args: Any, node: str, kernel: Kernel) -> tuple[Any, ...]:
    """The arguments of a kernel node; structures as they are now, since whoever passes one can change it."""
    found = arguments(args, node, kernel)
    return found if not isinstance(kernel, SourceKernel) else tuple(map(kernel.held, range(len(found)), found))


def _by_name(args: Mapping[Any, Any], node: str | None, kernel: Kernel) -> tuple[Any, ...]:
    unknown = [repr(name) for name in args if name not in kernel.positions]
    missing = [repr(name) for name in kernel.positions if name not in args]
    if unknown or missing:
        raise DeclarationError(
            "arguments by name are given for all parameters of the kernel, and for nothing else",
            node=node,
            field="args",
            value=" and ".join(
                f"{what} {', '.join(names)}" for what, names in (("unknown", unknown), ("missing", missing)) if names
            ),
            remedy=f"The kernel is {kernel!r}."
            if kernel.counted
            else "Its parameters have no names here: pass a tuple, or name them in signature=.",
        )
    return tuple(args[name] for name in kernel.parameters)


def dim3(dims: Any, node: str, field: str) -> Dim3:
    """One to three extents as three; missing ones are 1."""
    if not isinstance(dims, (tuple, list)):
        return extent(dims, node, field), 1, 1
    if not 1 <= len(dims) <= 3:
        raise DeclarationError(
            "it has one to three dimensions",
            node=node,
            field=field,
            value=dims,
            remedy="Pass an int, or a tuple of up to three.",
        )
    x, *rest = (extent(part, node, field) for part in dims)
    y, z = (*rest, 1, 1)[:2]
    return x, y, z


def block_of(block: Any, kernel: Kernel, node: str) -> Dim3:
    """The block of a launch: as given, or the one that the kernel brings."""
    if block is None and kernel.demands.block is None:
        raise DeclarationError(
            "a launch has a block of threads, and only some kernels of Triton bring one",
            node=node,
            field="block",
            remedy="Pass block=, such as block=256.",
        )
    return dim3(kernel.demands.block if block is None else block, node, "block")


def extent(value: Any, node: str, field: str) -> Extent:
    """An integer, or an integer expression on params."""
    if type(value) is int:
        return value
    if isinstance(value, Expr) and value.dtype.kind in "iu" and value.is_number:
        return value
    if isinstance(value, np.integer):
        return int(value)
    raise DeclarationError(
        "it is an integer, or an integer expression on params",
        node=node,
        field=field,
        value=f"{value!r} of type {type(value).__name__}",
        remedy="Use // or cdiv for whole numbers, and an integer dtype for the params in it.",
    )


def checked_function(function: Any, node: str | None, kind: str = "host", field: str = "function") -> Any:
    """What a host node or a captured one calls."""
    if not callable(function):
        rule, remedy = f"a {kind} node calls a function", "Pass a callable."
    elif is_deferred(function):
        rule = (
            f"a {kind} node calls a function once, and a call of a generator or of an async function runs nothing of it"
        )
        remedy = "Declare it with def, and without yield."
    else:
        return function
    raise DeclarationError(
        rule, node=node, field=field, value=f"{function!r} of type {type(function).__name__}", remedy=remedy
    )
