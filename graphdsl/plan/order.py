"""The canonical order of a definition: topological, ties by name.

The same DAG declared in any order gives the same order, and with it the same sequence of driver calls.
"""

from __future__ import annotations

import heapq

import networkx as nx


def canonical_order(dag: nx.DiGraph[str]) -> list[str]:
    """Node names in topological order, ties by name.

    What `networkx.lexicographical_topological_sort` gives, at a fifth of its cost: that function calls a key function
    and keeps a tuple for each node, and its order is asked for at every instantiate.

    Parameters
    ----------
    dag : networkx.DiGraph
        Acyclic; keys are node names.

    Raises
    ------
    networkx.NetworkXUnfeasible
        If there is a cycle.

    Examples
    --------
    >>> canonical_order(nx.DiGraph([("load", "scale"), ("clear", "scale")]))
    ['clear', 'load', 'scale']
    """
    followers = dict(dag.adjacency())
    waiting_for = dict(dag.in_degree())
    ready = [name for name, count in waiting_for.items() if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        name = heapq.heappop(ready)
        order.append(name)
        for follower in followers[name]:
            waiting_for[follower] -= 1
            if not waiting_for[follower]:
                heapq.heappush(ready, follower)
    if len(order) < len(dag):
        raise nx.NetworkXUnfeasible("a graph with a cycle has no topological order")
    return order
