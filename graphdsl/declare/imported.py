"""What nodes of an imported graph refer to: functions that are loaded, memory by its address, and who keeps them.

All is plain data, read from the driver before. This module must not ask it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from graphdsl.declare.node import Node
from graphdsl.declare.nodes import KernelNode, NativeHostNode, named_operands
from graphdsl.declare.sources import SourceKernel


class Keeper:
    """Keeps an object alive, in copies of a graph too.

    Attributes
    ----------
    owner : object or None
        What is kept; None if nobody is known.
    """

    __slots__ = ("owner",)

    def __init__(self, owner: Any) -> None:
        self.owner = owner

    def __deepcopy__(self, memo: dict[int, Any]) -> Keeper:
        return self

    def __repr__(self) -> str:
        return "nobody" if self.owner is None else f"an object of type {type(self.owner).__name__}"


class RawBytes(bytes):
    """The bytes of a parameter of which nothing else is known; shown as the number that they are.

    Examples
    --------
    >>> RawBytes((256).to_bytes(4, "little")), RawBytes(bytes(64))
    (0x00000100, 64 bytes)
    """

    def __repr__(self) -> str:
        size = len(self)
        return f"0x{int.from_bytes(self, 'little'):0{2 * size}x}" if size <= _SHOWN else f"{size} bytes"

    __str__ = __repr__


_SHOWN = 8  # bytes of a number or an address


class ParameterPlace(NamedTuple):
    """Where a parameter of a loaded function lies, in bytes."""

    offset: int
    size: int


@dataclass(frozen=True)
class FunctionAttributes:
    """What a loaded function is and needs, by the names of cuda.core.

    Attributes
    ----------
    num_regs : int
        Registers of a thread.
    shared_size_bytes : int
        Static shared memory of a block.
    max_threads_per_block : int
        Threads that a block may have.
    max_dynamic_shared_size_bytes : int
        Dynamic shared memory that it is allowed.
    binary_version : int
        Compute capability of its code: ten times the major one, plus the minor one.
    """

    num_regs: int
    shared_size_bytes: int
    max_threads_per_block: int
    max_dynamic_shared_size_bytes: int
    binary_version: int


@dataclass(frozen=True, eq=False)
class LoadedFunction:
    """A kernel that somebody else has loaded, known by its handle.

    Attributes
    ----------
    handle : int
        The driver's.
    is_function : bool
        True for a ``CUfunction``, False for a ``CUkernel``.
    name : str
        Its C++ name, with parameters.
    attributes : FunctionAttributes
        What it is and needs.
    arguments_info : tuple of ParameterPlace
        Where its parameters lie.
    keeper : Keeper
        What keeps its code loaded.
    """

    handle: int
    is_function: bool
    name: str
    attributes: FunctionAttributes
    arguments_info: tuple[ParameterPlace, ...]
    keeper: Keeper


class ImportedKernel(SourceKernel):
    """The kernel of a node that was imported; its arguments are the bytes of its parameters.

    Attributes
    ----------
    name, short : str
        Its C++ name with namespaces and template arguments, and without.
    origin : LoadedFunction
        The loaded function.
    """

    __slots__ = ("short",)
    origin: LoadedFunction

    def _fill(self, function: LoadedFunction, symbol: str, title: str) -> None:  # type: ignore[override]
        super()._fill("loaded", b"", symbol, origin=function)
        self.short = self.name
        self.name = title

    def held(self, index: int, argument: Any) -> Any:
        """A number as the bytes of the parameter, where it has as many; all else as it is.

        A Python number has the dtype of its kind that is as large as the parameter; an integer may be an address.
        """
        places = self.origin.arguments_info
        found = _raw(argument, places[index].size) if index < len(places) else None
        return super().held(index, argument) if found is None else found


def _raw(value: Any, size: int) -> RawBytes | None:
    """A number as so many bytes; None if it has another size, or is no number."""
    if isinstance(value, np.generic):
        return RawBytes(value.tobytes()) if value.nbytes == size else None
    try:
        if isinstance(value, int):
            return RawBytes(value.to_bytes(size, "little", signed=value < 0))
        if isinstance(value, float) and size in (2, 4, 8):
            return RawBytes(np.array(value, f"f{size}").tobytes())
    except OverflowError:
        pass
    return None


class RawMemory:
    """Memory of a device that nobody is known to own, by its address.

    Attributes
    ----------
    address : int
        Of the first element.
    keeper : Keeper
        What keeps it, for all that is known.
    """

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: np.dtype[Any],
        keeper: Keeper,
    ) -> None:
        self.address = address
        self.keeper = keeper
        self.__cuda_array_interface__ = {
            "shape": shape,
            "strides": strides,
            "typestr": dtype.str,
            "data": (address, False),
            "version": 3,
        }

    def __repr__(self) -> str:
        return f"<memory at {self.address:#x}>"


def has_imported(nodes: Iterable[Node], operands: Iterable[Any]) -> bool:
    """True if something in a graph with these nodes and operands was imported."""
    nodes = list(nodes)
    kernels = {node.kernel for node in nodes if isinstance(node, KernelNode)}
    return (
        any(isinstance(kernel, ImportedKernel) for kernel in kernels)
        or any(isinstance(getattr(operand, "owner", None), RawMemory) for operand in operands)
        or any(isinstance(node, NativeHostNode) for node in nodes)
    )


def keeper_of(node: Node) -> Iterator[Keeper]:
    """What keeps alive what a node uses, where it was imported."""
    if isinstance(node, NativeHostNode):
        yield node.keeper
    if isinstance(node, KernelNode) and isinstance(node.kernel, ImportedKernel):
        yield node.kernel.origin.keeper
    for _, operand in named_operands(node):
        owner = getattr(operand, "owner", None)
        if isinstance(owner, RawMemory):
            yield owner.keeper
