"""Transform passes: each takes a graph and gives a new one that computes the same, and what it changed.

The graph that is given stays as it is. Operands and nodes that stay keep their names, so that what updates an exec by
name goes on working. A pass is any function of that form: ``graph, changes = transitive_reduction(graph)``. This
package must not run anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from graphdsl.passes.changes import Change, Changes, Named
from graphdsl.passes.dead import eliminate_dead
from graphdsl.passes.fusion import fuse_elementwise
from graphdsl.passes.reduction import transitive_reduction
from graphdsl.passes.rewrite import GraphType

__all__ = ["Change", "Changes", "Named", "apply", "eliminate_dead", "fuse_elementwise", "transitive_reduction"]


def apply(graph: GraphType, passes: Iterable[Callable[[Any], tuple[Any, Changes]]]) -> tuple[GraphType, Changes]:
    """Apply passes one after the other.

    Parameters
    ----------
    graph : Graph
        Stays as it is.
    passes : iterable of callables
        Each takes a graph, and gives a new one and what it changed.

    Returns
    -------
    graph : Graph
        What the last pass gave.
    changes : Changes
        Those of all passes, in order.

    Examples
    --------
    >>> import graphdsl as gd
    >>> g = gd.Graph("demo")
    >>> _ = g.empty(name="a") >> g.empty(name="b")
    >>> reduced, changes = gd.passes.apply(g, [gd.passes.transitive_reduction])
    >>> print(changes)
    nothing to change
    """
    changes = Changes()
    for each in passes:
        graph, made = each(graph)
        changes += made
    return graph, changes
