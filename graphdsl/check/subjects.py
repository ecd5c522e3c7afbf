"""What rules judge: uses of operands, kernels with operands of equal types, launches, regions of memory.

Plain data, gathered by `graphdsl.check.context`. This module must not gather or judge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from graphdsl.check.rules import Named
from graphdsl.check.stale import Flow
from graphdsl.declare.attributes import LaunchAttributes
from graphdsl.declare.limits import Limits
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import KernelNode
from graphdsl.declare.operands import Array, Buffer
from graphdsl.errors import CompileError, Location

if TYPE_CHECKING:
    from graphdsl.compile.image import KernelImage, ParameterLayout


class Subject(NamedTuple):
    """What stands for a node where only its name is known."""

    name: str
    location: Location | None


class Use(NamedTuple):
    """An operand where a node has it; an item of a tuple is an operand of its own."""

    node: Node
    field: str
    operand: Any


class Region(NamedTuple):
    """The bytes of an array, its expressions evaluated.

    Attributes
    ----------
    offset : int
        Bytes from the start of the buffer.
    shape : tuple of int
        Extents in elements.
    nbytes : int
        Bytes of all elements.
    """

    offset: int
    shape: tuple[int, ...]
    nbytes: int


@dataclass(eq=False, slots=True)
class KernelGroup:
    """Nodes of one kernel whose operands have the same types: what is compiled once.

    Attributes
    ----------
    nodes : list of KernelNode
        All of them.
    types : tuple or None
        Numba types of the arguments; None if the operands have none that the kernel takes.
    layout : ParameterLayout or None
        How the arguments are packed.
    image : KernelImage or None
        The compiled kernel; None if it was not to be compiled, or could not be.
    type_error, compile_error : CompileError or None
        Why there are no types, no layout, no image.
    """

    nodes: list[KernelNode]
    types: tuple[Any, ...] | None = None
    layout: ParameterLayout | None = None
    image: KernelImage | None = None
    type_error: CompileError | None = None
    compile_error: CompileError | None = None


@dataclass(eq=False, slots=True)
class Launch:
    """Nodes with the same launch, its expressions evaluated; None stands where an expression has no value.

    Attributes
    ----------
    nodes : list of Named
        All of them.
    grid, block : tuple of int or None
        Blocks in the grid, threads in a block.
    shared_bytes : int or None
        Dynamic shared memory of a block.
    image : KernelImage or None
        What is launched, where it is known.
    attributes : LaunchAttributes or None
        Cluster, cooperation and so on; None if none was given.
    """

    nodes: Sequence[Named]
    grid: tuple[int | None, ...]
    block: tuple[int | None, ...]
    shared_bytes: int | None
    image: KernelImage | None
    attributes: LaunchAttributes | None = None


@dataclass
class Switched:
    """As much of a context as the rule about disabled nodes needs."""

    flow: Flow


@dataclass
class Launches:
    """As much of a context as rules about launches need."""

    limits: Limits
    launches: list[Launch]

    def origin(self, *operands: Any) -> str:
        """Where a value comes from, as a sentence: nothing is known."""
        return ""


def uses_of(nodes: Iterable[Node]) -> Iterator[Use]:
    """Every operand of the nodes, with its node and field."""
    for node in nodes:
        for name, operand in node.fields():
            if isinstance(operand, tuple):
                yield from (Use(node, name, leaf) for leaf in leaves(operand))
            else:
                yield Use(node, name, operand)


def label(array: Array) -> str:
    """What messages call an array: the name of a buffer, a view as it was written."""
    return array.name if isinstance(array, Buffer) else str(array)


def sentences(*parts: str | None) -> str:
    """The sentences that there are, one behind the other."""
    return " ".join(part for part in parts if part)


def leaves(operands: Iterable[Any]) -> Iterator[Any]:
    """The operands, tuples taken apart."""
    for operand in operands:
        if isinstance(operand, tuple):
            yield from leaves(operand)
        else:
            yield operand
