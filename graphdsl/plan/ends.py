"""The ends of a planned level: a kernel that does nothing before all other nodes, and one behind them.

A launch costs processor time for each node that has none before it, and for each that has none behind. With ends there
is one of each, and no node waits for one that it did not wait for, but for the kernel that does nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np

from graphdsl.declare.definition import Definition
from graphdsl.declare.kernel import as_kernel
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import AllocNode, FreeNode, KernelNode
from graphdsl.plan.levels import Level

Ends = tuple[bool, bool]
"""Whether there is an end before all nodes of a level, and one behind them."""

NO_ENDS: Ends = (False, False)


def nothing() -> None:
    """The kernel of the ends."""


_NOTHING = as_kernel(nothing)
_HERE = (__file__, nothing.__code__.co_firstlineno)


def is_end(node: Node) -> bool:
    """True for a node that a plan has put around others."""
    return isinstance(node, KernelNode) and node.kernel is _NOTHING


def with_ends(
    definition: Definition,
    nodes: Sequence[Node],
    levels: Sequence[Level],
    which: int,
    begin: bool = True,
    end: bool = True,
) -> tuple[list[Node], list[Level]]:
    """Put ends around the nodes of a level.

    Parameters
    ----------
    definition : Definition
        Whose graph it is; it stays as it is.
    nodes, levels : sequence of Node, sequence of Level
        What was planned of the whole graph.
    which : int
        Index of the level.
    begin, end : bool
        Which of the ends.

    Returns
    -------
    nodes : list of Node
        The ends are the first and the last of those of the level.
    levels : list of Level
        The edges from the one and to the other are among those that are added.

    Examples
    --------
    >>> from graphdsl.plan.levels import levels_of
    >>> graph = Definition()
    >>> _ = graph.empty(name="a"), graph.empty(name="b")
    >>> nodes, levels = with_ends(graph, *levels_of(graph), which=0)
    >>> [node.name for node in nodes], levels[0].added.tolist()
    (['begin', 'a', 'b', 'end'], [[0, 1], [0, 2], [1, 3], [2, 3]])
    """
    start, stop = levels[which].start, levels[which].stop
    owner = None if levels[which].owner < 0 else nodes[levels[which].owner]
    names = {node.name for node in nodes}
    before, behind = (
        [_end(definition, owner, levels[which], name, names)] if wanted else []
        for name, wanted in (("begin", begin), ("end", end))
    )
    made = [*nodes[:start], *before, *nodes[start:stop], *behind, *nodes[stop:]]
    moved = np.arange(len(nodes) + 1)
    moved[start:] += len(before)
    moved[stop:] += len(behind)
    shifted = [
        replace(
            level,
            start=int(moved[level.start]),
            stop=int(moved[level.start]) + level.stop - level.start,
            edges=moved[level.edges],
            added=moved[level.added],
            owner=level.owner if level.owner < 0 else int(moved[level.owner]),
        )
        for level in levels
    ]
    inner = shifted[which]
    around = _around(made, inner, begin, end)
    added = np.array(sorted([*map(tuple, inner.added.tolist()), *around]), np.int64).reshape(-1, 2)
    first, last = start, start + len(before) + (stop - start) + len(behind)
    shifted[which] = replace(inner, start=first, stop=last, added=added)
    return made, shifted


def _around(nodes: Sequence[Node], level: Level, begin: bool, end: bool) -> Iterator[tuple[int, int]]:
    """The edges from the beginning to all that have none before them, and to the end from all that have none behind.

    What is allocated and freed keeps the order that was declared, by which the driver gives out addresses.
    """
    sources, targets = (set(ends.tolist()) for ends in np.concatenate([level.edges, level.added]).T)
    inner = (i for i in range(level.start, level.stop) if not isinstance(nodes[i], (AllocNode, FreeNode)))
    for index in inner:
        if begin and index not in targets:
            yield level.start - 1, index
        if end and index not in sources:
            yield index, level.stop


def _end(definition: Definition, owner: Node | None, level: Level, name: str, taken: Collection[str]) -> KernelNode:
    if owner is not None:
        definition, name = owner.bodies[level.body], f"{level.name}/{name}"
    while name in taken:
        name += "_"
    made = KernelNode(name, definition, _HERE, _NOTHING, (1, 1, 1), (32, 1, 1), 0, ())
    made.on = None if owner is None else owner.device  # whatever `with` block the graph is instantiated in
    made.tags = frozenset()
    return made
