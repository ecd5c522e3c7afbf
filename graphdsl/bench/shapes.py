"""The shapes of the graphs that are measured: a chain, a fan-out, diamonds, a random DAG.

Edges go from lower to higher indices, so that the nodes of every library can be added in the order of their indices.
Names and edges are the same in every run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import graphdsl as gd
from graphdsl.errors import GraphdslError

THREADS = 32
"""Threads of a block, and the default of the param ``n``: the grid is one block until ``n`` exceeds it."""

ELEMENTS = 64
"""Elements of ``x``: ``n`` may be up to this many."""

_WIDTH = 8  # nodes between the ends of a diamond
_SEED = 20_261
_WINDOW = 32  # how far back a node of the random DAG may depend on others
_MOST_BEFORE = 3  # on how many

Edges = list[tuple[int, int]]


def chain(nodes: int) -> Iterator[tuple[int, int]]:
    """Each node after the one before.

    Examples
    --------
    >>> list(chain(4))
    [(0, 1), (1, 2), (2, 3)]
    """
    for node in range(1, nodes):
        yield node - 1, node


def fan_out(nodes: int) -> Iterator[tuple[int, int]]:
    """All nodes after the first.

    Examples
    --------
    >>> list(fan_out(4))
    [(0, 1), (0, 2), (0, 3)]
    """
    for node in range(1, nodes):
        yield 0, node


def diamond(nodes: int) -> Iterator[tuple[int, int]]:
    """A chain of diamonds: one node, eight side by side, one node that begins the next; the last may be incomplete.

    Examples
    --------
    >>> list(diamond(11))[:3], list(diamond(11))[-4:]
    ([(0, 1), (0, 2), (0, 3)], [(6, 9), (7, 9), (8, 9), (9, 10)])
    """
    for top in range(0, nodes, _WIDTH + 1):
        bottom = top + _WIDTH + 1
        middle = range(top + 1, min(bottom, nodes))
        yield from ((top, node) for node in middle)
        if bottom < nodes:
            yield from ((node, bottom) for node in middle)


def random_dag(nodes: int) -> Iterator[tuple[int, int]]:
    """Each node after one to three of the 32 before it, drawn at random with a fixed seed."""
    draw = random.Random(_SEED)
    for node in range(1, nodes):
        near = range(max(node - _WINDOW, 0), node)
        for before in sorted(draw.sample(near, min(draw.randint(1, _MOST_BEFORE), len(near)))):
            yield before, node


SHAPES: dict[str, Callable[[int], Iterator[tuple[int, int]]]] = {
    "chain": chain,
    "fan-out": fan_out,
    "diamond": diamond,
    "random": random_dag,
}


def edges(name: str, nodes: int) -> Edges:
    """The edges of a shape, as pairs of indices.

    Parameters
    ----------
    name : str
        One of `SHAPES`.
    nodes : int
        Number of nodes, 1 or more.
    """
    require_shape(name, nodes)
    return list(SHAPES[name](nodes))


def require_shape(name: str, nodes: int) -> None:
    """Make sure that a shape can be built.

    Raises
    ------
    GraphdslError
        If there is no such shape, or no node.
    """
    if name not in SHAPES:
        raise GraphdslError(
            "there is no such shape", field="shape", value=name, remedy=f"Choose one of {', '.join(SHAPES)}."
        )
    if nodes < 1:
        raise GraphdslError(
            "a graph that is measured has nodes", field="nodes", value=nodes, remedy="Ask for 1 or more."
        )


def node_name(index: int) -> str:
    """Name of a node: in the order of names, nodes are in the order of their indices.

    Examples
    --------
    >>> node_name(7)
    'node00007'
    """
    return f"node{index:05}"


def shape(name: str, nodes: int, kernel: Any = None, *, memory: Any = None, touched: int | None = None) -> gd.Graph:
    """A graph of kernel nodes ``kernel(x, gain, n)``.

    Parameters
    ----------
    name : str
        One of `SHAPES`.
    nodes : int
        Number of nodes, 1 or more.
    kernel : callable, optional
        `graphdsl.bench.kernel.step` by default.
    memory : object, optional
        Device memory of 64 float32 to work on; by default every exec owns its own.
    touched : int, optional
        How many nodes follow the param ``gain``; the others are given a number. All by default.

    Returns
    -------
    Graph
        With the params ``gain``, an argument of the first ``touched`` nodes, and ``n``, an argument of all, from which
        their grid follows.
    """
    if kernel is None:
        from graphdsl.bench.kernel import step as kernel
    graph = gd.Graph(f"{name} of {nodes}")
    gain = graph.param("gain", np.float32, default=1.0)
    n = graph.param("n", np.int32, default=THREADS)
    x = graph.device_array("x", ELEMENTS, np.float32) if memory is None else graph.external("x", memory)
    blocks = gd.cdiv(n, THREADS)
    varying, fixed = (x, gain, n), (x, np.float32(1), n)
    made = [
        graph.kernel(
            kernel,
            grid=blocks,
            block=THREADS,
            args=varying if touched is None or index < touched else fixed,
            name=node_name(index),
        )
        for index in range(nodes)
    ]
    for before, after in edges(name, nodes):
        _ = made[before] >> made[after]
    return graph
