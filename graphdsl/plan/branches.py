"""Where the branches of a graph begin and end: what launching it costs goes with how many there are.

Forks and joins in the middle of a graph cost its launch next to nothing (measured on an H200). This module must not
plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphdsl.plan.levels import NO_EDGES, Edges


class Branches(NamedTuple):
    """How many nodes have none before them, and how many none behind.

    Attributes
    ----------
    firsts, lasts : int
        Empty nodes are looked through, and a child counts as what is inside of it.
    """

    firsts: int
    lasts: int


def branches(
    count: int,
    edges: Edges,
    empty: Sequence[int] = (),
    inside: Mapping[int, Branches] | None = None,
    added: Edges = NO_EDGES,
) -> Branches:
    """Count where the branches of a level begin and end.

    Parameters
    ----------
    count : int
        How many nodes there are, in a topological order.
    edges : numpy.ndarray of int64, shape (number of edges, 2)
        Source and target of each edge, sorted.
    empty : sequence of int
        Which nodes are empty.
    inside : dict of int to Branches, optional
        What is inside of each child.
    added : numpy.ndarray of int64, shape (number of edges, 2)
        Edges that a plan adds, none of them from or to an empty node.

    Examples
    --------
    >>> branches(4, np.array([(0, 1), (0, 2), (0, 3)]))
    Branches(firsts=1, lasts=3)
    >>> branches(4, np.array([(0, 1), (0, 2), (0, 3)]), empty=[0])
    Branches(firsts=3, lasts=3)
    """
    inside = inside or {}
    if not len(empty):
        first, last = np.ones(count, bool), np.ones(count, bool)
        first[edges[:, 1]] = False
        last[edges[:, 0]] = False
    else:
        passed = np.zeros(count, bool)
        passed[list(empty)] = True
        first, last = _reached(passed, edges.tolist()), _reached(passed, edges[::-1, ::-1].tolist())
    first[added[:, 1]] = False
    last[added[:, 0]] = False
    children = [(index, found) for index, found in inside.items() if first[index] or last[index]]
    return Branches(
        int(first.sum()) + sum(found.firsts - 1 for index, found in children if first[index]),
        int(last.sum()) + sum(found.lasts - 1 for index, found in children if last[index]),
    )


def _reached(passed: np.ndarray[Any, np.dtype[np.bool_]], edges: list[list[int]]) -> np.ndarray[Any, Any]:
    """Which nodes have none but nodes that are passed through before them, and are none themselves."""
    through = passed.tolist()
    open_ = [True] * len(through)
    for source, target in edges:
        if not (through[source] and open_[source]):
            open_[target] = False
    found: np.ndarray[Any, np.dtype[np.bool_]] = np.array(open_, bool) & ~passed
    return found
