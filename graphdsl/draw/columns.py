"""A long graph in columns side by side, as a long text is set: which node stands in which.

This module must not draw.
"""

from __future__ import annotations

import networkx as nx

from graphdsl.declare.definition import Definition
from graphdsl.draw.labels import scope_path
from graphdsl.errors import DeclarationError


def columns_of(definition: Definition, columns: int) -> dict[str, int]:
    """The column of each node of the outermost level; nodes of one outermost scope stand in one column.

    Parameters
    ----------
    definition : Definition
        Whose nodes; where it has a cycle, all of them stand in one column.
    columns : int
        How many there are to be. A graph that is shorter has fewer.

    Raises
    ------
    DeclarationError
        If it is no positive number.

    Examples
    --------
    >>> graph = Definition()
    >>> with graph.sequence():
    ...     for name in "abcd":
    ...         _ = graph.empty(name=name)
    >>> columns_of(graph, 2)
    {'a': 0, 'b': 0, 'c': 1, 'd': 1}
    """
    if not isinstance(columns, int) or columns < 1:
        raise DeclarationError(
            "a drawing has one column or more",
            field="columns",
            value=repr(columns),
            remedy="Pass a positive integer.",
        )
    dag = definition.dag
    if columns == 1 or not nx.is_directed_acyclic_graph(dag):
        return dict.fromkeys(dag, 0)
    rank: dict[str, int] = {}
    for name in nx.topological_sort(dag):
        rank[name] = max((rank[before] + 1 for before in dag.predecessors(name)), default=0)
    first: dict[str, int] = {}
    scope = {name: (*scope_path(dag.nodes[name]["node"]), name)[0] for name in dag}
    for name, at in rank.items():
        first[scope[name]] = min(at, first.get(scope[name], at))
    height = max(rank.values(), default=0) + 1
    return {name: first[scope[name]] * columns // height for name in dag}
