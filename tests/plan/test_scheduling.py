"""Threading nodes onto lanes: what must hold of every DAG, whatever its nodes take."""

import itertools

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdsl.plan.scheduling import schedule


@st.composite
def dags(draw, most=12):
    count = draw(st.integers(0, most))
    pairs = list(itertools.combinations(range(count), 2))
    return count, sorted(draw(st.sets(st.sampled_from(pairs)))) if pairs else []


@st.composite
def problems(draw):
    count, edges = draw(dags())
    durations = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 7.0]), min_size=count, max_size=count))
    groups = draw(st.lists(st.sampled_from([None, 0, 1]), min_size=count, max_size=count))
    return count, edges, durations, groups, draw(st.integers(1, 4))


def graph(count, edges):
    made = nx.DiGraph(edges)
    made.add_nodes_from(range(count))
    return made


def width(closure, nodes):
    """The most nodes that nothing orders: as many chains as it takes to cover them (Dilworth)."""
    pairs = nx.Graph()
    pairs.add_nodes_from(("before", node) for node in nodes)
    pairs.add_edges_from(
        (("before", a), ("behind", b)) for a, b in itertools.permutations(nodes, 2) if closure.has_edge(a, b)
    )
    matched = nx.bipartite.hopcroft_karp_matching(pairs, [("before", node) for node in nodes])
    return len(nodes) - len(matched) // 2


@given(problems())
def test_no_more_nodes_are_unordered_than_there_are_lanes(problem):
    count, edges, durations, groups, lanes = problem
    made = schedule(edges, durations, groups, lanes)
    whole = graph(count, [*edges, *made.edges])
    assert nx.is_directed_acyclic_graph(whole)
    closure = nx.transitive_closure_dag(whole)
    for group in (0, 1):
        assert width(closure, [node for node in range(count) if groups[node] == group]) <= lanes
    assert nx.transitive_closure_dag(graph(count, edges)).edges <= closure.edges


@given(problems())
def test_an_added_edge_joins_two_nodes_of_a_group_that_nothing_else_orders(problem):
    count, edges, durations, groups, lanes = problem
    made = schedule(edges, durations, groups, lanes)
    assert len(set(made.edges)) == len(made.edges)
    for edge in made.edges:
        source, target = edge
        assert groups[source] == groups[target]
        assert groups[source] is not None
        others = graph(count, [other for other in [*edges, *made.edges] if other != edge])
        assert not nx.has_path(others, source, target)


@given(problems())
def test_the_makespan_is_that_of_the_nodes_in_their_order(problem):
    """It is what the added edges give where no group is left out; and no list is longer than Graham's bound."""
    count, edges, durations, groups, lanes = problem
    groups = [0] * count
    made = schedule(edges, durations, groups, lanes)
    ends = dict.fromkeys(range(count), 0.0)
    whole = graph(count, [*edges, *made.edges])
    for node in nx.topological_sort(whole):
        ends[node] = durations[node] + max((ends[before] for before in whole.predecessors(node)), default=0.0)
    assert max(ends.values(), default=0.0) <= made.makespan
    longest = 0.0
    for node in nx.topological_sort(declared := graph(count, edges)):
        ends[node] = durations[node] + max((ends[before] for before in declared.predecessors(node)), default=0.0)
        longest = max(longest, ends[node])
    assert longest <= made.makespan <= longest + sum(durations) / lanes


def test_the_longest_way_goes_first():
    edges = [(2, 3)]
    assert schedule(edges, [1.0, 1.0, 1.0, 5.0], [0] * 4, 1).edges == [(0, 1), (3, 0)]


@pytest.mark.parametrize("count", [1, 7])
def test_as_many_lanes_as_nodes_add_nothing(count):
    assert schedule([], [1.0] * count, [0] * count, count).edges == []
