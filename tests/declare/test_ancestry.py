"""Which nodes come after which: bodies, edges that order starts alone, the order of a program."""

from __future__ import annotations

from itertools import combinations

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

import graphdsl as gd
from graphdsl.declare.ancestry import Inside, ancestors, flattened, implied, insides, program_order, starts_apart


def before(count, levels):
    """The nodes that each one comes after."""
    found = dict(ancestors({index: 1 << index for index in range(count)}, *flattened(count, levels)))
    return [{each for each in range(count) if found[index] >> each & 1} for index in range(count)]


def test_an_edge_of_starts_orders_behind_what_the_source_is_behind():
    levels = [Inside(-1, [0, 1, 2, 3], [(0, 1), (2, 3)], starts=[(1, 2)])]
    assert before(4, levels) == [set(), {0}, {0}, {0, 2}]
    chain = [Inside(-1, [0, 1, 2, 3], [(0, 1)], starts=[(1, 2), (2, 3)])]
    assert before(4, chain) == [set(), {0}, {0}, {0}]


def test_a_programmatic_edge_orders_no_start():
    levels = [Inside(-1, [0, 1, 2], [(0, 1)], [(0, 1)], [(1, 2)])]
    assert before(3, levels) == [set(), {0}, set()], "1 starts while 0 still runs, and 2 with it"


def test_in_a_body_too():
    levels = [Inside(-1, [0, 1, 2], [(0, 1), (1, 2)]), Inside(1, [3, 4], [], starts=[(3, 4)])]
    assert before(5, levels) == [set(), {0}, {0, 1, 3, 4}, {0, 1}, {0, 1}]


def test_ports_tell_which_edges_order_what():
    g = gd.Graph("ports")
    a, b, c, d = (g.empty(name=name) for name in "abcd")
    a >> b
    g.edge(b, c, programmatic=True)
    g.edge(c, d, programmatic=True, port="launch_order")
    (level,) = insides(g, g.all_nodes)
    assert (level.edges, level.starts) == ([(0, 1), (1, 2)], [(2, 3)])
    (level,) = insides(g, g.all_nodes, {("b", "c")})
    assert (level.edges, level.starts) == ([(0, 1)], [(1, 2), (2, 3)])


def test_what_a_node_holds_follows_it():
    levels = [Inside(-1, [0, 1], []), Inside(0, [2, 3], [(3, 2)]), Inside(3, [4], [])]
    assert program_order(5, levels) == [0, 3, 4, 2, 1]


def test_what_an_edge_puts_before_a_node_comes_right_before_it():
    assert program_order(4, [Inside(-1, [0, 1, 2, 3], [(3, 1)])]) == [0, 3, 1, 2]
    assert program_order(3, [Inside(-1, [0, 1, 2], [(1, 2), (2, 1)])]) == [0], "nodes of a cycle are left out"


@st.composite
def dags(draw):
    """Nodes in any topological order, and edges."""
    count = draw(st.integers(1, 8))
    ranks = draw(st.permutations(range(count)))
    pairs = draw(st.sets(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))))
    return count, [(a, b) for a, b in sorted(pairs) if ranks[a] < ranks[b]]


@given(dags())
def test_the_order_of_a_program_is_topological_and_keeps_to_the_declaration(drawn):
    count, edges = drawn
    order = program_order(count, [Inside(-1, range(count), edges)])
    place = {node: number for number, node in enumerate(order)}
    assert sorted(order) == list(range(count))
    assert all(place[a] < place[b] for a, b in edges)
    if all(a < b for a, b in edges):
        assert order == list(range(count))
    dag = nx.DiGraph(edges)
    for node in order:  # only what has to come before an earlier one goes before its turn
        for later in range(node + 1, count):
            if place[later] < place[node]:
                needed = [each for each in range(node + 1) if each in dag and later in nx.ancestors(dag, each)]
                assert needed, (order, node, later)


PORTS = st.sampled_from([None, "full", "programmatic"])


@st.composite
def overlapping_edges(draw: st.DrawFn) -> list[tuple[int, int, str]]:
    count = draw(st.integers(1, 7))
    drawn = ((*pair, draw(PORTS)) for pair in combinations(range(count), 2))
    return [edge for edge in drawn if edge[2] is not None]


@given(overlapping_edges())
def test_what_has_ended_before_a_node_starts_and_before_it_ends(edges):
    count = 8
    started: dict[int, set[int]] = {}
    ended: dict[int, set[int]] = {}
    for node in range(count):  # which is a topological order
        started[node], ended[node] = set(), set()
        for source, target, port in edges:
            if target != node:
                continue
            if port == "full":
                started[node] |= ended[source] | {source}
            else:  # it starts when the source has started, and waits for its end
                started[node] |= started[source]
                ended[node] |= ended[source] | {source}
        ended[node] |= started[node]
    pairs = [(source, target) for source, target, _ in edges]
    overlapping = [(source, target) for source, target, port in edges if port == "programmatic"]
    size, apart, starts = starts_apart(count, pairs, overlapping)
    found = dict(ancestors({node: 1 << node for node in range(count)}, size, apart))

    def nodes(bits: int) -> set[int]:
        return {node for node in range(count) if bits >> node & 1}

    assert set(found) == set(range(size))
    for node in range(count):
        assert nodes(found[starts.get(node, node)]) == started[node]
        assert nodes(found[node]) == ended[node]


@st.composite
def dags(draw):
    count = draw(st.integers(1, 9))
    return count, [pair for pair in combinations(range(count), 2) if draw(st.booleans())]


@given(dags(), st.data())
def test_implied_edges_are_those_that_a_transitive_reduction_leaves_out(dag, data):
    count, edges = dag
    graph = nx.DiGraph(edges)
    spared = set(edges) - set(nx.transitive_reduction(graph).edges)
    found = list(implied(count, edges))
    assert {edge[:2] for edge in found} == spared
    assert all(nx.has_path(graph, source, via) and (via, target) in edges for source, target, via in found)
    asked = data.draw(st.lists(st.sampled_from(edges), unique=True)) if edges else []
    assert {edge[:2] for edge in implied(count, edges, asked)} == spared & set(asked)
