"""The levels of a definition, one behind the other: the graph itself, and the bodies of its nodes.

Each level is a graph of the driver's; its nodes stand together, in canonical order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphdsl.declare.ancestry import Inside
from graphdsl.declare.node import Node, Port
from graphdsl.declare.store import Level as DeclaredLevel
from graphdsl.plan.order import canonical_order

PORTS: dict[Port, int] = {"default": 0, "programmatic": 1, "launch_order": 2}
"""Numbers of the ports, as the driver counts them."""

Edges = np.ndarray[Any, np.dtype[np.int64]]
"""Source and target of each edge: shape (number of edges, 2)."""

NO_EDGES: Edges = np.zeros((0, 2), np.int64)

_TOP = -1


@dataclass(frozen=True, eq=False)
class Level:
    """One graph of the driver's.

    Attributes
    ----------
    name : str
        Name of the graph or of the body.
    start, stop : int
        Its nodes are those from ``start`` to before ``stop`` in `Plan.nodes`.
    edges : numpy.ndarray of int64, shape (number of edges, 2)
        Source and target of each edge, as indices into `Plan.nodes`; sorted.
    ports : numpy.ndarray of uint8
        For each edge 0, or the port of a programmatic one.
    owner : int
        Index of the node whose body it is; -1 for the graph itself.
    body : int
        Which of the bodies of that node it is.
    added : numpy.ndarray of int64, shape (number of edges, 2)
        The edges that the planner adds, which thread nodes onto lanes; as ``edges``, and none of these.
    """

    name: str
    start: int
    stop: int
    edges: np.ndarray[Any, np.dtype[np.int64]]
    ports: np.ndarray[Any, np.dtype[np.uint8]]
    owner: int = _TOP
    body: int = 0
    added: np.ndarray[Any, np.dtype[np.int64]] = field(default_factory=lambda: NO_EDGES)


def levels_of(definition: DeclaredLevel) -> tuple[list[Node], list[Level]]:
    """The nodes of all levels, and the levels that have any, each before those that it holds."""
    nodes: list[Node] = []
    levels: list[Level] = []

    def add(declared: DeclaredLevel, owner: int, body: int) -> None:
        start = len(nodes)
        nodes.extend(declared.dag.nodes[name]["node"] for name in canonical_order(declared.dag))
        levels.append(_level(declared, nodes, start, owner, body))
        for index in range(start, len(nodes)):
            for number, inner in enumerate(nodes[index].bodies):
                if inner.dag:
                    add(inner, index, number)

    add(definition, _TOP, 0)
    return nodes, levels


def insides(levels: Iterable[Level]) -> list[Inside]:
    """The same levels as questions of order take them.

    Examples
    --------
    >>> from graphdsl.declare.definition import Definition
    >>> graph = Definition()
    >>> _ = graph.empty(name="a") >> graph.empty(name="b")
    >>> insides(levels_of(graph)[1])
    [Inside(owner=-1, nodes=range(0, 2), edges=[(0, 1)], programmatic=[], starts=[])]
    """
    return [
        Inside(
            level.owner,
            range(level.start, level.stop),
            [(source, target) for source, target in level.edges[level.ports != PORTS["launch_order"]].tolist()],
            [(source, target) for source, target in level.edges[level.ports == PORTS["programmatic"]].tolist()],
            [(source, target) for source, target in level.edges[level.ports == PORTS["launch_order"]].tolist()],
        )
        for level in levels
    ]


def _level(declared: DeclaredLevel, nodes: list[Node], start: int, owner: int, body: int) -> Level:
    index = {nodes[i].name: i for i in range(start, len(nodes))}
    edges = sorted(
        (index[source], index[target], PORTS[port]) for source, target, port in declared.dag.edges.data("port")
    )
    table = np.array(edges, np.int64).reshape(-1, 3)
    return Level(declared.name, start, len(nodes), table[:, :2], table[:, 2].astype(np.uint8), owner, body)
