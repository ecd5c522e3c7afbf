"""The canonical order of a definition: topological, ties by name.

The same DAG declared in any order gives the same order, and with it the same sequence of driver calls.
"""

from __future__ import annotations

import networkx as nx


def canonical_order(dag: nx.DiGraph[str]) -> list[str]:
    """Node names in topological order, ties by name.

    Parameters
    ----------
    dag : networkx.DiGraph
        Acyclic; keys are node names.

    Examples
    --------
    >>> canonical_order(nx.DiGraph([("load", "scale"), ("clear", "scale")]))
    ['clear', 'load', 'scale']
    """
    return list(nx.lexicographical_topological_sort(dag))
