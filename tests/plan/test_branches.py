"""Where the branches of a graph begin and end, held to what that means."""

import itertools

import networkx as nx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from graphdsl.plan.branches import Branches, branches


@st.composite
def levels(draw):
    count = draw(st.integers(1, 9))
    pairs = list(itertools.combinations(range(count), 2))
    edges = sorted(draw(st.sets(st.sampled_from(pairs)))) if pairs else []
    empty = sorted(draw(st.sets(st.integers(0, count - 1))))
    holds = draw(
        st.sets(st.integers(0, count - 1).filter(lambda node: node not in empty))
        if len(empty) < count
        else st.just(set())
    )
    inside = {node: Branches(*draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))) for node in sorted(holds)}
    return count, edges, empty, inside


@given(levels())
def test_empty_nodes_are_looked_through_and_children_looked_into(level):
    count, edges, empty, inside = level
    dag = nx.DiGraph(edges)
    dag.add_nodes_from(range(count))
    real = set(range(count)) - set(empty)
    firsts = [node for node in real if not nx.ancestors(dag, node) & real]
    lasts = [node for node in real if not nx.descendants(dag, node) & real]
    one = Branches(1, 1)
    assert branches(count, np.array(edges, np.int64).reshape(-1, 2), empty, inside) == Branches(
        sum(inside.get(node, one).firsts for node in firsts), sum(inside.get(node, one).lasts for node in lasts)
    )


def test_added_edges_count():
    edges = np.array([(0, 1)])
    assert branches(4, edges) == (3, 3)
    assert branches(4, edges, added=np.array([(3, 2)])) == (2, 2)
