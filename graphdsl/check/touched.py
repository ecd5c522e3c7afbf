"""Who touches which bytes: the accesses of all nodes, sorted by the memory that they are in.

Buffers that overlap are one memory, whatever they are called. This module must know nothing of order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from graphdsl.cached import cached_property
from graphdsl.compile.accesses import accesses
from graphdsl.declare.accesses import Access
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import KernelNode
from graphdsl.declare.operands import Array, Buffer
from graphdsl.declare.regions import Places, Region, region_of

COMMUTING = frozenset({"add", "sub", "and", "or", "xor", "min", "max", "nanmin", "nanmax"})
"""Atomic operations that give the same, in whatever order they are done."""


class Mode(NamedTuple):
    """What is done to some bytes.

    Attributes
    ----------
    reads, writes : bool
        Which of the two.
    known : bool
        False where it is a guess.
    atomic : tuple of str and int, or None
        The kind of atomic operation that is all that is done, and the device that does it: they are atomic to
        operations of the same device alone.
    """

    reads: bool
    writes: bool
    known: bool
    atomic: tuple[str, int | None] | None = None


class Touch(NamedTuple):
    """An access, where it goes: the number of the memory, of the region in it, and of what is done."""

    memory: int
    region: int
    mode: int


class Memory:
    """Bytes that are nobody else's, and who touches them.

    Attributes
    ----------
    regions : dict of Region to int
        The distinct regions, numbered.
    users : dict of pairs of int to list of int
        For a region and a mode, the nodes that touch it so, by index.
    modes : dict of int to list of int
        The modes in which each region is touched.
    """

    def __init__(self) -> None:
        self.regions: dict[Region, int] = {}
        self.users: dict[tuple[int, int], list[int]] = {}
        self.modes: dict[int, list[int]] = {}

    @cached_property
    def places(self) -> Places:
        """The regions, to be asked for their neighbours."""
        return Places(list(self.regions))

    def add(self, region: Region, mode: int) -> tuple[int, int]:
        """Number the region, and know that it is touched so."""
        number = self.regions.setdefault(region, len(self.regions))
        key = number, mode
        if key not in self.users:
            self.users[key] = []
            self.modes.setdefault(number, []).append(mode)
        return key


class Touched:
    """What nodes touch.

    Parameters
    ----------
    nodes : sequence of Node
        Those of the graph and of all bodies.
    values : mapping of str to number
        Values of params by name.
    addresses : mapping of Buffer to int
        Where buffers lie that may overlap others; the others are memory of their own.
    disabled : collection of int
        Indices of nodes that touch nothing.

    Attributes
    ----------
    nodes : sequence of Node
        As given.
    modes : list of Mode
        All that there are, numbered.
    memories : list of Memory
        Numbered, too.
    of : dict of int to tuple of Touch
        What each node touches that may be in conflict, sorted, by the index of the node; the others are missing.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        values: Mapping[str, Any],
        addresses: Mapping[Buffer, int],
        disabled: Collection[int] = (),
    ) -> None:
        self.nodes = nodes
        self.modes: list[Mode] = []
        self.memories: list[Memory] = []
        self._values = values
        self._modes: dict[tuple[Any, ...], int] = {}
        self._regions: dict[int, tuple[Array, Region, bool]] = {}  # by the identity of the array, which is kept
        self._bases: dict[Buffer, tuple[int, int]] = {}
        for extents in aliases(addresses):
            self._bases |= {buffer: (len(self.memories), addresses[buffer] - extents[0][0]) for _, buffer in extents}
            self.memories.append(Memory())
        alike: dict[Any, list[int]] = {}
        for index, node in enumerate(nodes):
            if index not in disabled:
                alike.setdefault(_likeness(node), []).append(index)
        found = [(self._touches(nodes[indices[0]]), indices) for indices in alike.values()]
        contested = self._contested(found)
        self.of: dict[int, tuple[Touch, ...]] = {}
        for touches, indices in found:
            kept = tuple(touch for touch in touches if touch.memory in contested)
            if kept:
                self.of.update(dict.fromkeys(indices, kept))

    def _touches(self, node: Node) -> list[Touch]:
        found: dict[Touch, None] = {}
        for access, region, sure in self.accesses(node):
            memory, _ = self._bases[access.array.buffer]
            atomic = (access.atomic, node.device) if access.atomic in COMMUTING else None
            mode = (access.reads, access.writes, access.known and sure, atomic)
            number = self._modes.get(mode)
            if number is None:
                number = self._modes[mode] = len(self.modes)
                self.modes.append(Mode(*mode))
            found[Touch(memory, *self.memories[memory].add(region, number))] = None
        return sorted(found)

    def accesses(self, node: Node) -> Iterator[tuple[Access, Region, bool]]:
        """The accesses of a node, with the bytes of the memory that each touches, and whether these are known."""
        for access in accesses(node):
            buffer = access.array.buffer
            place = self._bases.get(buffer)
            if place is None:
                place = self._bases[buffer] = (len(self.memories), 0)
                self.memories.append(Memory())
            if access.nbytes is None and type(access.skipped) is int and access.skipped == 0:
                region, sure = self._whole(access, place[1])
            else:
                region, sure = region_of(access, self._values, place[1])
            if region.stop > region.start:
                yield access, region, sure

    def _whole(self, access: Access, base: int) -> tuple[Region, bool]:
        """The same for all bytes of an array, which many nodes may have."""
        array = access.array
        found = self._regions.get(id(array))
        if found is None:
            found = self._regions[id(array)] = (array, *region_of(access, self._values, base))
        return found[1:]

    def base(self, buffer: Buffer) -> tuple[int, int]:
        """The memory of a buffer, and where it begins in that."""
        return self._bases[buffer]

    def _contested(self, found: list[tuple[list[Touch], list[int]]]) -> set[int]:
        """The memories that more than one node touches, and a node writes."""
        users: dict[int, int] = {}
        written: set[int] = set()
        for touches, indices in found:
            for memory, region, mode in touches:
                self.memories[memory].users[region, mode] += indices
                if self.modes[mode].writes:
                    written.add(memory)
            for memory in {touch.memory for touch in touches}:
                users[memory] = users.get(memory, 0) + len(indices)
        return {memory for memory in written if users[memory] > 1}


def _likeness(node: Node) -> Any:
    """A key that is equal for nodes which touch the same bytes in the same way."""
    if isinstance(node, KernelNode):
        said = id(node.touches), id(node.signature)
        return node.kernel, node.grid, node.block, node.device, *said, *map(id, node.args)
    return id(node)


def aliases(addresses: Mapping[Buffer, int]) -> list[list[tuple[int, Buffer]]]:
    """Buffers that overlap, together with where each lies, sorted by that; those that overlap no other by themselves.

    Examples
    --------
    >>> import numpy as np
    >>> from graphdsl.declare.definition import Definition
    >>> graph, data = Definition(), np.zeros(8, np.uint8)
    >>> whole, half, other = (graph.external(n, o) for n, o in (("w", data), ("h", data[4:]), ("o", np.zeros(2))))
    >>> sorted([buffer.name for _, buffer in found] for found in aliases({b: b.address for b in (half, other, whole)}))
    [['o'], ['w', 'h']]
    """
    found: list[list[tuple[int, Buffer]]] = []
    end = -1
    for buffer, address in sorted(addresses.items(), key=lambda item: item[1]):
        if address >= end:
            found.append([])
        found[-1].append((address, buffer))
        end = max(end, address + buffer.allocation_nbytes)
    return found
