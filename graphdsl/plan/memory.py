"""Where the device arrays that an exec owns lie in its arenas, one for each device.

Arrays that only lie between nodes share bytes where they are never there at the same time; the others lie behind, one
after the other. Pure arithmetic: nothing is allocated here.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from graphdsl.cached import cached_property
from graphdsl.compile.accesses import accesses
from graphdsl.compile.roles import Look, plainly_outside, roles
from graphdsl.declare.node import Node
from graphdsl.declare.operands import Buffer
from graphdsl.plan.antichain import MOST, heaviest_antichain
from graphdsl.plan.levels import Level, insides
from graphdsl.plan.liveness import Lifetimes, lifetimes
from graphdsl.plan.offsets import Sizes, placed

ALIGNMENT = 256
"""Bytes; what `cuMemAlloc` gives, and enough for any vector load."""


class Place(NamedTuple):
    """Where an array lies, and why there.

    Attributes
    ----------
    name : str
        Name of the array.
    offset, nbytes : int
        Bytes from the start of the arena, and how many it takes there: a multiple of `ALIGNMENT`.
    planned : bool
        True if others may have the bytes before its first use and after its last.
    why : str
        Why it is planned or not, as a statement.
    users : tuple of str
        Of a planned array, the names of the nodes that use it; what is in a loop is the loop's.
    """

    name: str
    offset: int
    nbytes: int
    planned: bool
    why: str
    users: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class MemoryPlan:
    """The arena of one device; printed, it is a table.

    Attributes
    ----------
    places : dict of str to Place
        Where each array lies, by name.
    peak_nbytes : int
        Bytes at the start of the arena that the planned arrays take.
    nbytes : int
        Bytes of the arena.
    """

    places: dict[str, Place]
    peak_nbytes: int
    nbytes: int
    lived: Lifetimes | None = None
    most_at_once: int = 0

    @property
    def offsets(self) -> dict[str, int]:
        """Bytes from the start of the arena, by the name of the array."""
        return {name: place.offset for name, place in self.places.items()}

    @property
    def planned(self) -> dict[str, Place]:
        """The arrays that may share bytes, by name."""
        return {name: place for name, place in self.places.items() if place.planned}

    @property
    def sum_nbytes(self) -> int:
        """Bytes that the planned arrays would take one behind the other."""
        return sum(place.nbytes for place in self.places.values() if place.planned)

    @cached_property
    def least_nbytes(self) -> int:
        """Bytes that no plan gets below: those of the largest set of arrays that may all be there at once.

        Up to 1,000 arrays it is exactly that (the heaviest antichain); of more, those there at once in canonical order.
        """
        if self.lived is None or len(self.lived.arrays) > MOST or self.most_at_once == self.peak_nbytes:
            return self.most_at_once
        sizes = [self.places[array.name].nbytes for array in self.lived.arrays]
        return heaviest_antichain(sizes, [int.from_bytes(row.tobytes(), "little") for row in self.lived.before])

    def without(self, names: Collection[str]) -> MemoryPlan:
        """The same for an arena in which some arrays need no place: all that are planned, or none, and any others."""
        rest = [place for name, place in self.places.items() if name not in names]
        peak = self.peak_nbytes if any(place.planned for place in rest) else 0
        return _behind([place for place in rest if place.planned], peak, [each for each in rest if not each.planned])

    def to_json(self) -> dict[str, Any]:
        """The same as plain data: sizes, and each array with its place and why it is there."""
        sizes = ("nbytes", "peak_nbytes", "sum_nbytes", "least_nbytes")
        shown = ("name", "offset", "nbytes", "planned", "why")
        arrays = [{name: getattr(place, name) for name in shown} for place in self.places.values()]
        return {**{name: getattr(self, name) for name in sizes}, "arrays": arrays}

    def __str__(self) -> str:
        lines = [
            f"{self.nbytes} bytes: planned {self.peak_nbytes} of {self.sum_nbytes}, "
            f"and {self.nbytes - self.peak_nbytes} of arrays by themselves"
        ]
        for place in self.places.values():
            what = "planned" if place.planned else "alone"
            lines.append(f"  {place.offset:>12} {place.nbytes:>12}  {what:<8} {place.name}: {place.why}")
        return "\n".join(lines)


def aligned(nbytes: int, alignment: int = ALIGNMENT) -> int:
    """``nbytes`` rounded up to a multiple of ``alignment``.

    Examples
    --------
    >>> aligned(1000)
    1024
    """
    return -(-nbytes // alignment) * alignment


def plan_memory(
    nodes: Sequence[Node], levels: Sequence[Level], buffers: Iterable[Buffer], *, share: bool = True
) -> dict[int | None, MemoryPlan]:
    """Place the arrays of each device that has one; an array of no bytes still gets an address.

    Parameters
    ----------
    nodes : sequence of Node
        Those of the graph and of all bodies, in canonical order.
    levels : sequence of Level
        How they hang together.
    buffers : iterable of Buffer
        Device arrays that the exec owns.
    share : bool
        False if none of them shares bytes.

    Examples
    --------
    >>> import numpy as np
    >>> from graphdsl.declare.definition import Definition
    >>> from graphdsl.plan.levels import levels_of
    >>> graph = Definition()
    >>> arrays = [graph.device_array(name, 256, np.float32) for name in "abcde"]
    >>> with graph.sequence():
    ...     for source, target in zip(arrays, arrays[1:]):
    ...         _ = graph.memcpy(target, source)
    >>> print(plan_memory(*levels_of(graph), arrays)[None])
    4096 bytes: planned 2048 of 3072, and 2048 of arrays by themselves
                 0         1024  planned  b: it lies between nodes
              1024         1024  planned  c: it lies between nodes
                 0         1024  planned  d: it lies between nodes
              2048         1024  alone    a: node 'a_to_b' reads it, and nothing writes it before
              3072         1024  alone    e: nothing reads what node 'd_to_e' writes
    """
    by_device: dict[int | None, list[Buffer]] = defaultdict(list)
    for buffer in sorted(buffers, key=lambda buffer: buffer.name):
        by_device[buffer.device].append(buffer)
    everything = [buffer for owned in by_device.values() for buffer in owned]
    steps = Steps(nodes, levels)
    look = functools.cache(lambda node: tuple(accesses(node)))
    if share:
        why = _plain_reasons(nodes, steps, everything, look)
    else:
        why = dict.fromkeys(everything, "no arrays are to share bytes")
    left = [buffer for buffer in everything if buffer not in why]
    order = insides(levels) if left else []
    asked = [buffer for buffer in left if buffer.lifetime == "auto"]
    if asked:
        found = roles(nodes, order, asked, look)
        why |= {buffer: role.why for buffer, role in found.items() if role.kind != "between"}
    made = {}
    for device, owned in by_device.items():
        shared = [buffer for buffer in owned if buffer not in why]
        alone = [Place(each.name, 0, _taken(each), False, why[each]) for each in owned if each in why]
        if shared:
            made[device] = _arena(lifetimes(nodes, order, shared), nodes, steps, alone)
        else:
            made[device] = _behind([], 0, alone)
    return made


def _plain_reasons(nodes: Sequence[Node], steps: Steps, buffers: Iterable[Buffer], look: Look) -> dict[Buffer, str]:
    """Why arrays are not planned, where that shows without following what is written to those that read it."""
    why = {each: 'declared with lifetime="persistent"' for each in buffers if each.lifetime == "persistent"}
    return why | plainly_outside(nodes, steps.order, [each for each in buffers if each.lifetime == "auto"], look)


class Steps:
    """When nodes run in canonical order, one after the other, what nodes hold behind each.

    Attributes
    ----------
    order : list of int
        The index of the node of each step.
    first, last : list of int
        The step of each node, and the last one of what it holds.
    """

    def __init__(self, nodes: Sequence[Node], levels: Sequence[Level]) -> None:
        self.order = self.first = self.last = list(range(len(nodes)))
        if len(levels) == 1:
            return
        self.order = _nested(levels)
        self.first = [0] * len(nodes)
        for step, index in enumerate(self.order):
            self.first[index] = step
        self.last = self.first[:]
        for level in reversed(levels):  # a level comes behind the one that holds its owner
            if level.owner >= 0:
                self.last[level.owner] = max(self.last[level.owner], *self.last[level.start : level.stop])


def _nested(levels: Iterable[Level]) -> list[int]:
    """The nodes in canonical order, what they hold behind each."""
    inside: dict[int, list[Level]] = defaultdict(list)
    for level in levels:
        inside[level.owner].append(level)
    found: list[int] = []
    waiting = [iter(range(level.start, level.stop)) for level in inside[-1]]
    while waiting:
        index = next(waiting[-1], None)
        if index is None:
            waiting.pop()
            continue
        found.append(index)
        waiting += [iter(range(level.start, level.stop)) for level in reversed(inside.get(index, ()))]
    return found


def _arena(lived: Lifetimes, nodes: Sequence[Node], at: Steps, alone: Iterable[Place]) -> MemoryPlan:
    """The arena of a device with planned arrays, and others behind."""
    arrays, users = lived.arrays, lived.users
    sizes = np.array([_taken(each) // ALIGNMENT for each in arrays], np.int64)
    first = np.array([min((at.first[user] for user in each), default=0) for each in users], np.int64)
    last = np.array([max((at.last[user] for user in each), default=-1) for each in users], np.int64)
    most = _most_at_once(sizes, first, last)
    orders = [np.lexsort((-sizes, first)), np.lexsort((first, -sizes)), np.lexsort((first, -sizes * (last - first)))]
    offsets = placed(sizes, lived.conflicts(), orders, most)
    planned = []
    for array, offset, size, used in zip(arrays, offsets.tolist(), sizes.tolist(), users, strict=True):
        names = tuple(nodes[user].name for user in used)
        place = Place(array.name, offset * ALIGNMENT, size * ALIGNMENT, True, _why_planned(array), names)
        planned.append(place)
    peak = int((offsets + sizes).max()) * ALIGNMENT
    return _behind(planned, peak, alone, lived, most * ALIGNMENT)


def _most_at_once(sizes: Sizes, first: Sizes, last: Sizes) -> int:
    """What is there at once at most, if nodes run in canonical order."""
    change = np.zeros(int(last.max(initial=0)) + 2, np.int64)
    np.add.at(change, first, sizes)
    np.add.at(change, last + 1, -sizes)
    return int(np.cumsum(change).max())


def _behind(
    planned: Iterable[Place], peak: int, alone: Iterable[Place], lived: Lifetimes | None = None, most_at_once: int = 0
) -> MemoryPlan:
    """The arena in which arrays that share nothing lie behind those that are planned, in their order."""
    places, end = {place.name: place for place in planned}, peak
    for place in alone:
        places[place.name] = place._replace(offset=end)
        end += place.nbytes
    return MemoryPlan(places, peak, end, lived, most_at_once)


def _why_planned(array: Buffer) -> str:
    return 'declared with lifetime="launch"' if array.lifetime == "launch" else "it lies between nodes"


def _taken(array: Buffer) -> int:
    """Bytes that an array takes in an arena."""
    return max(aligned(array.allocation_nbytes), ALIGNMENT)
