"""What a graph saves: the model is held to numbers worked out by hand, and to bounds that hold for every DAG."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdsl.declare.definition import Definition
from graphdsl.errors import DeclarationError
from graphdsl.plan.costs import Costs
from graphdsl.plan.worth import worth_it

COSTS = Costs(stream_launch=30, graph_launch=2, graph_launch_node=0.01, first=1, last=0.5, node_gap=0.5, build_node=24)


def kernels(names, edges=()):
    graph = Definition("g")
    nodes = {name: graph.kernel(lambda: None, grid=1, block=32, name=name) for name in names}
    for source, target in edges:
        graph.edge(nodes[source], nodes[target])
    return graph


def chain(count):
    names = [f"k{i:03}" for i in range(count)]
    return kernels(names, itertools.pairwise(names))


def test_short_kernels_wait_for_their_launches():
    worth = worth_it(chain(100), default=2.0, costs=COSTS)
    assert worth.stream == pytest.approx(100 * 30 + 2.5)  # the last begins when it is launched
    assert worth.stream_processor == pytest.approx(3000)
    assert worth.graph == pytest.approx(2 + 100 * 0.01 + 100 * 2.5)
    assert worth.graph_processor == pytest.approx(3)
    assert worth.launch_bound
    assert worth.worthwhile
    assert worth.pays_back_after == 1
    assert "worth it: launches set the pace" in str(worth)


def test_long_kernels_gain_nothing_and_it_says_so():
    worth = worth_it(chain(10), default=10_000.0, costs=COSTS)
    assert worth.stream == pytest.approx(30 + 10 * 10_000.5)  # launches hide behind the kernels
    assert worth.saved == pytest.approx(30 - 2.1)
    assert not worth.worthwhile
    assert worth.pays_back_after is None
    assert "saves no time: the GPU is the bottleneck either way. It frees 298 µs of processor time" in str(worth)


def test_a_graph_gains_by_running_nodes_side_by_side():
    graph = kernels("abcd", [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])
    worth = worth_it(graph, {"b": 900.0, "c": 1000.0}, default=100.0, costs=COSTS)
    assert worth.critical_path == ("a", "c", "d")
    assert worth.path == pytest.approx(100 + 1000 + 100 + 3 * 0.5)
    assert worth.work == pytest.approx(2100 + 4 * 0.5)
    assert worth.graph_processor == pytest.approx(2 + 4 * 0.01)  # forks and joins cost nothing
    assert not worth.launch_bound
    assert "worth it: nodes can run side by side" in str(worth)


def test_a_wide_graph_of_nothing_costs_more_than_it_saves():
    cheap = Costs(stream_launch=0.5, graph_launch=2, first=1, last=0, node_gap=0.5)
    worth = worth_it(kernels([f"k{i}" for i in range(100)]), default=0.0, costs=cheap)
    assert worth.saved < 0
    assert "The graph costs 51.2 µs a run: its launch alone takes 101 µs of processor time" in str(worth)


def test_empty_nodes_are_no_launches():
    graph = Definition("g")
    first, barrier = graph.kernel(lambda: None, grid=1, block=1, name="first"), graph.empty(name="barrier")
    _ = first >> barrier
    worth = worth_it(graph, default=5.0, costs=COSTS)
    assert worth.stream_processor == 30
    assert worth.stream == pytest.approx(30 + 5.5)
    assert worth.path == pytest.approx(5.5 + 0.5)


def test_an_empty_graph_saves_nothing():
    worth = worth_it(Definition("nothing"), costs=COSTS)
    assert (worth.nodes, worth.path, worth.critical_path) == (0, 0.0, ())
    assert "it is empty" in str(worth)


def test_a_long_path_is_shortened_in_words():
    assert "k000 -> k001 -> k002 -> ... -> k098 -> k099" in str(worth_it(chain(100)))


def test_unknown_names_are_refused_with_close_ones():
    with pytest.raises(DeclarationError, match="k000"):
        worth_it(chain(3), {"k0000": 1.0})


@pytest.mark.parametrize("duration", [-1.0, math.nan, math.inf])
def test_a_duration_is_a_time(duration):
    with pytest.raises(DeclarationError) as caught:
        worth_it(chain(3), {"k001": duration})
    assert caught.value.node == "k001"
    with pytest.raises(DeclarationError, match="default"):
        worth_it(chain(3), default=duration)


@st.composite
def dags(draw):
    count = draw(st.integers(1, 12))
    names = [f"k{i:02}" for i in range(count)]
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    durations = draw(st.dictionaries(st.sampled_from(names), st.floats(0, 1e4)))
    return kernels(names, edges), durations


@given(dags())
def test_bounds_hold_for_every_dag(found):
    graph, durations = found
    worth = worth_it(graph, durations, costs=COSTS)
    assert worth.path <= worth.work * (1 + 1e-9)
    assert worth.stream >= max(worth.work, worth.stream_processor) * (1 - 1e-9)
    assert worth.graph >= worth.path
    assert all(b in graph.dag.successors(a) for a, b in zip(worth.critical_path, worth.critical_path[1:]))
    assert worth.saved == pytest.approx(worth.stream - worth.graph)


def test_a_child_is_what_is_inside():
    inner = kernels("abc", [("a", "b"), ("a", "c")])
    graph = Definition("outer")
    graph.child(inner, name="first") >> graph.child(inner, name="second")
    worth = worth_it(graph, {"second/c": 9.5}, default=1.5, costs=COSTS)
    assert worth.nodes == 8
    assert worth.stream_processor == pytest.approx(6 * 30)  # one by one there are no children
    assert worth.work == pytest.approx(5 * 2 + 10)
    assert worth.path == pytest.approx(2 + 2 + 2 + 10)
    assert worth.critical_path == ("first/a", "first/b", "second/a", "second/c")
    assert worth.build == pytest.approx(8 * 24)
    told = worth_it(graph, {"second": 20.0}, default=1.5, costs=COSTS)
    assert told.path == pytest.approx(2 + 2 + 20.5)
    assert told.stream_processor == pytest.approx(6 * 30)


def test_of_a_conditional_node_the_longest_body_counts_once():
    graph = Definition("outer")
    choice = graph.switch(graph.condition("which", default=0), 3, name="choice")
    for case, count in ((0, 1), (1, 3)):
        with choice.bodies[case].sequence():
            for _ in range(count):
                choice.bodies[case].kernel(lambda: None, grid=1, block=32, name=f"k{_}")
    worth = worth_it(graph, default=1.5, costs=COSTS)
    assert worth.nodes == 5
    assert worth.work == worth.path == pytest.approx(3 * 2)
    assert worth.stream_processor == pytest.approx(3 * 30)
    assert worth.critical_path == ("choice/1/k0", "choice/1/k1", "choice/1/k2")
    assert worth_it(graph, {"choice": 99.5}, costs=COSTS).path == pytest.approx(100)
    with pytest.raises(DeclarationError) as caught:
        worth_it(graph, {"choice/1/k0": -1.0}, costs=COSTS)
    assert (caught.value.node, caught.value.field) == ("choice/1/k0", "durations")


def test_what_holds_nothing_takes_nothing():
    graph = Definition("outer")
    graph.child(Definition("none"), name="child") >> graph.if_(graph.condition("c", default=0), name="if")
    worth = worth_it(graph, costs=COSTS)
    assert (worth.nodes, worth.work, worth.path, worth.stream) == (2, 0, 0, 0)
    assert "costs" in str(worth)
