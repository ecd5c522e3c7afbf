"""Makes the graph that a pass gives: a copy of the one that it was given, with other contents in some levels.

This module must not decide what changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import networkx as nx

from graphdsl.declare.definition import Definition
from graphdsl.declare.embed import Contents, copy_graph
from graphdsl.errors import DeclarationError

GraphType = TypeVar("GraphType", bound=Definition)


def checked_graph(graph: Any) -> None:
    """Refuse what has no order that a pass could keep.

    Raises
    ------
    DeclarationError
        If it is no graph, or a body of one, or has a cycle or edges to other graphs.
    """
    rule = remedy = None
    if not isinstance(graph, Definition):
        rule, remedy = "a pass takes a graph", "Declare a graphdsl.Graph, and pass it."
    elif graph.root is not graph:
        rule, remedy = "a pass takes a whole graph, and not a body in one", "Pass the graph: bodies are worked on too."
    elif any(data for level in graph.levels for _, data in level.dag.nodes.data("foreign")):
        rule, remedy = "a pass takes a graph whose edges stay in it", "Call check, and mend what it finds."
    elif not all(nx.is_directed_acyclic_graph(level.dag) for level in graph.levels):
        rule, remedy = "a pass takes a graph without cycles", "Call check, which names the cycle."
    if rule is not None:
        raise DeclarationError(rule, field="graph", value=f"{graph!r} of type {type(graph).__name__}", remedy=remedy)


def rewritten(graph: GraphType, edited: Mapping[int, Contents], left_out: Iterable[str] = ()) -> GraphType:
    """A copy of a graph with other contents in some levels.

    Parameters
    ----------
    graph : Graph
        Stays as it is.
    edited : mapping of int to Contents
        What levels shall hold, by their identity: nodes of the graph, or new ones on its operands.
    left_out : iterable of str
        Names of operands that nothing uses any more.
    """
    made = type(graph)(graph.name)
    copy_graph(graph, made, edited, left_out)
    return made
