"""The heaviest set of things of which none comes before another: what no placing of them gets below.

By Dilworth's theorem, with weights, it weighs as much as the lightest cover of all things by chains; how much a chain
saves by going on from one thing to the next is a flow. This module must not know what is weighed.
"""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx
from networkx.algorithms.flow import preflow_push

MOST = 1000
"""So many things are weighed exactly in a second or so."""


def heaviest_antichain(weights: Sequence[int], before: Sequence[int]) -> int:
    """Weight of the heaviest antichain of a partial order.

    Parameters
    ----------
    weights : sequence of int
        Of each thing.
    before : sequence of int
        Of each thing the bits of those that come before it.

    Examples
    --------
    >>> heaviest_antichain([4, 2, 3], [0b000, 0b001, 0b001])  # the first comes before both of the others
    5
    """
    network: nx.DiGraph[tuple[str, int]] = nx.DiGraph()
    source, sink = ("source", 0), ("sink", 0)
    for number, weight in enumerate(weights):
        network.add_edge(source, ("from", number), capacity=weight)
        network.add_edge(("to", number), sink, capacity=weight)
        network.add_edge(("to", number), ("from", number))  # a chain may pass by a thing that another one covers
        left = before[number]
        while left:
            last = left.bit_length() - 1
            network.add_edge(("from", last), ("to", number))
            left &= ~(before[last] | 1 << last)  # of what comes before that, the chain goes by way of it
    if not network:
        return 0
    return sum(weights) - int(nx.maximum_flow_value(network, source, sink, flow_func=preflow_push))
