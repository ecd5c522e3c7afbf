"""What a compiled kernel is: code for a device, its parameter layout, and the function for the emulator.

This module must not compile; it holds what compiling gives, so that drivers need not know Numba.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from graphdsl.cached import cached_property
from graphdsl.compile.effort import Effort, read_effort
from graphdsl.compile.graph_calls import GraphCalls, read_graph_calls
from graphdsl.compile.placement import Placement, read_placement


class ArrayValue(NamedTuple):
    """What an array argument is at run time, once its memory is bound.

    Attributes
    ----------
    address : int
        Address of the first element.
    shape : tuple of int
        Extents in elements.
    strides : tuple of int
        Bytes between neighbours in each dimension.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Leaf:
    """One parameter of the compiled kernel: an argument is flattened into one or more.

    Attributes
    ----------
    offset : int
        Bytes from the start of the packed parameters.
    dtype : numpy.dtype
        What is stored there, such as uint64 for an address or float32 for a scalar.
    argument : int
        Index of the argument of the Python function that it belongs to.
    path : tuple
        Which part of the argument: ``()`` for a scalar, ``("address",)``, ``("shape", 0)``, ``("strides", 0)``,
        ``("size",)``, ``("itemsize",)``, ``("meminfo",)``, ``("parent",)`` of an array, ``("real",)`` and ``("imag",)``
        of a complex number, ``("bytes",)`` of a structure by value; an item of a tuple puts ``("item", i)`` in front.
    """

    offset: int
    dtype: np.dtype[Any]
    argument: int
    path: tuple[Any, ...]


@dataclass(frozen=True)
class ParameterLayout:
    """How the arguments of a kernel lie in its packed parameter bytes.

    Attributes
    ----------
    leaves : tuple of Leaf
        In the order of the compiled kernel's parameters.
    nbytes : int
        Bytes in all, by the rules of the kernel's parameter space (each leaf aligned to its size).
    types : tuple
        Numba type of each argument.
    names : tuple of str
        Name of each argument, for messages.
    codecs : tuple
        How `graphdsl.compile.signature` encodes and decodes each argument; for that module alone.
    own_parameters : tuple of tuple of int, or None
        The parameters of the compiled kernel, where these are not just the leaves.
    """

    leaves: tuple[Leaf, ...]
    nbytes: int
    types: tuple[Any, ...]
    names: tuple[str, ...] = ()
    codecs: tuple[Any, ...] = field(default=(), repr=False, compare=False)
    own_parameters: tuple[tuple[int, int], ...] | None = None

    @cached_property
    def parameters(self) -> tuple[tuple[int, int], ...]:
        """Offset and size in bytes of each parameter of the compiled kernel."""
        if self.own_parameters is not None:
            return self.own_parameters
        return tuple((leaf.offset, leaf.dtype.itemsize) for leaf in self.leaves)

    @cached_property
    def struct(self) -> Struct:
        """All leaves, and the padding before each, as one `struct.Struct`."""
        text = "<"
        end = 0
        for leaf in self.leaves:
            code = f"{leaf.dtype.itemsize}s" if leaf.dtype.kind == "V" else _STRUCT_CODES[leaf.dtype.str[1:]]
            text += f"{leaf.offset - end}x{code}"
            end = leaf.offset + leaf.dtype.itemsize
        return Struct(text)

    @cached_property
    def arguments(self) -> tuple[tuple[int, Struct], ...]:
        """For each argument, where its leaves begin, and those leaves as a `struct.Struct`."""
        found = []
        for argument in range(len(self.types)):
            own = [leaf for leaf in self.leaves if leaf.argument == argument]
            start = own[0].offset if own else 0
            moved = tuple(replace(leaf, offset=leaf.offset - start) for leaf in own)
            found.append((start, ParameterLayout(moved, 0, ()).struct))
        return tuple(found)


_STRUCT_CODES = {
    "b1": "?", "i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q",
    "f2": "e", "f4": "f", "f8": "d",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class KernelImage:
    """A kernel compiled for argument types and a device.

    Attributes
    ----------
    name : str
        The kernel's name in Python.
    entry : str
        Its symbol in the code.
    cubin : bytes
        Machine code for ``target``.
    target : tuple of int
        Compute capability.
    layout : ParameterLayout
        How arguments are packed.
    function : callable or None
        The Python function, which the emulator runs; None if there is none.
    shared_bytes : int
        Static shared memory of a block.
    registers : int
        Registers of a thread.
    max_threads : int
        Threads that a block may have with so many registers and the kernel's launch bounds.
    ptx : str
        The PTX that the machine code was made from; empty if nobody knows.
    block : tuple of three int, or None
        The only block that it can be launched with, if it was compiled for one.
    least_shared_bytes : int
        Dynamic shared memory that a launch must give it.
    loaded : object or None
        The loaded kernel of cuda.core that stands for the machine code.
    """

    name: str
    entry: str
    cubin: bytes = field(repr=False)
    target: tuple[int, int]
    layout: ParameterLayout = field(repr=False)
    function: Callable[..., Any] | None = field(repr=False)
    shared_bytes: int
    registers: int
    max_threads: int
    ptx: str = field(repr=False)
    block: tuple[int, int, int] | None = None
    least_shared_bytes: int = 0
    loaded: Any = field(default=None, repr=False)

    @cached_property
    def graph_calls(self) -> GraphCalls:
        """What the kernel does to the graph that it runs in: waits, triggers, sets conditions."""
        return read_graph_calls(self.cubin, self.entry, self.target, self.ptx)

    @cached_property
    def effort(self) -> Effort:
        """How much a thread may do: whether it loops, and its instructions."""
        return read_effort(self.cubin, self.entry, self.target)

    @cached_property
    def placement(self) -> Placement:
        """What the kernel asks for where its blocks run: clusters, barriers, a grid that waits for itself."""
        return read_placement(self.cubin, self.entry, self.ptx)
