"""Decides what a definition leaves open: the order of its nodes and the place of its memory.

Pure functions: a definition goes in, a plan comes out, and nothing is changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphdsl.declare.definition import Definition
from graphdsl.declare.expressions import Param
from graphdsl.declare.nodes import Node
from graphdsl.declare.operands import Buffer
from graphdsl.plan.memory import MemoryPlan, place
from graphdsl.plan.order import canonical_order

__all__ = ["MemoryPlan", "Plan", "plan"]


@dataclass(frozen=True, eq=False)
class Plan:
    """All that is needed to build a graph: an immutable snapshot of a definition.

    Attributes
    ----------
    name : str
        Name of the graph.
    nodes : tuple of Node
        In canonical order.
    edges : numpy.ndarray of int64, shape (number of edges, 2)
        Source and target of each edge, as indices into ``nodes``; sorted.
    params : dict of str to Param
        By name.
    buffers : dict of str to Buffer
        By name.
    memory : MemoryPlan
        Where the device arrays that the exec owns lie.
    """

    name: str
    nodes: tuple[Node, ...]
    edges: np.ndarray[Any, np.dtype[np.int64]]
    params: dict[str, Param]
    buffers: dict[str, Buffer]
    memory: MemoryPlan


def plan(definition: Definition) -> Plan:
    """Plan a definition that has passed its checks.

    Examples
    --------
    >>> graph = Definition("demo")
    >>> first, second = graph.empty(name="first"), graph.empty(name="second")
    >>> _ = first >> second
    >>> [node.name for node in plan(graph).nodes], plan(graph).edges.tolist()
    (['first', 'second'], [[0, 1]])
    """
    dag = definition.dag
    order = canonical_order(dag)
    index = {name: i for i, name in enumerate(order)}
    edges = sorted((index[source], index[target]) for source, target in dag.edges)
    buffers = {name: operand for name, operand in definition.operands.items() if isinstance(operand, Buffer)}
    return Plan(
        name=definition.name,
        nodes=tuple(dag.nodes[name]["node"] for name in order),
        edges=np.array(edges, np.int64).reshape(-1, 2),
        params={name: operand for name, operand in definition.operands.items() if isinstance(operand, Param)},
        buffers=buffers,
        memory=place(buffer for buffer in buffers.values() if buffer.space == "device" and not buffer.external),
    )
