"""Lanes of whole graphs: what is added, what is left alone, and why."""

import itertools
import random

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cuda

import graphdsl as gd
from graphdsl.errors import DeclarationError
from graphdsl.plan import plan
from graphdsl.plan.costs import Costs
from graphdsl.plan.ends import is_end

FREE_ENDS = Costs(nothing=0.0)  # so that ends pay wherever there are two branches


@cuda.jit
def add(x):
    x[cuda.threadIdx.x] += 1


@cuda.jit
def loop(x, n):
    for _ in range(n):
        x[cuda.threadIdx.x] += 1


def wide(count, kernel=add, *more, **how):
    graph = gd.Graph("wide")
    x = graph.device_array("x", (count, 32), np.float32)
    for index in range(count):
        graph.kernel(kernel, args=(x[index], *more), name=f"k{index:04}", **{"grid": 1, "block": 32, **how})
    return graph


# What pays


def test_many_short_kernels_get_lanes_and_ends():
    made = wide(512).plan()
    assert made.lanes.width in range(32, 129)
    assert made.lanes.ends == (True, True)
    assert len(made.lanes.edges) == 512 - made.lanes.width
    assert made.lanes.after.total < 120 < 500 < made.lanes.before.total
    assert "lanes and a kernel before all others and one behind them" in str(made.lanes)


def test_kernels_that_may_take_any_time_are_not_made_to_wait():
    made = wide(512, loop, 100).plan()
    assert made.lanes.width is None
    assert not made.lanes.edges
    assert made.lanes.ends == (True, True)


def test_durations_that_are_known_allow_lanes():
    graph = wide(512, loop, 100)
    told = dict.fromkeys((node.name for node in graph.nodes), 2.0)
    assert graph.plan(durations=told).lanes.width is not None
    long = graph.plan(durations=dict.fromkeys(told, 300.0)).lanes
    assert long.width in (None, 128)  # the device runs no more than that side by side anyway


@pytest.mark.parametrize("shape", ["chain", "diamond"])
@pytest.mark.parametrize("nodes", [1, 30, 300])
def test_what_is_narrow_is_left_alone(shape, nodes):
    from graphdsl.bench.shapes import shape as build

    made = plan(build(shape, nodes), lanes="auto")
    assert not made.lanes.edges
    assert made.lanes.ends == (False, False)
    assert "with none before" in made.lanes.why


def test_a_few_kernels_are_left_alone():
    assert "cost 3.2 µs" in wide(4).plan().lanes.why
    assert plan(wide(4)).lanes.why == "no lanes were asked for"


def test_only_the_end_that_pays_is_put():
    from graphdsl.bench.shapes import shape as build

    made = plan(build("fan-out", 200), lanes="auto")
    assert made.lanes.ends == (False, True)
    assert [node.name for node in made.nodes if is_end(node)] == ["end"]


def test_the_device_of_the_plan_counts():
    """Grids that fill the device gain nothing by running side by side, and their launches hide behind them."""
    made = wide(600, grid=100_000, block=256).plan().lanes
    assert made.width is None
    assert made.before.makespan > 1000


def test_a_number_of_lanes_that_is_no_bound_gets_ends_all_the_same():
    made = wide(64).plan(lanes=64).lanes
    assert made.width is None
    assert made.ends == (True, True)
    assert wide(4).plan(lanes=64).lanes.ends == (False, False)


def test_several_devices_are_left_alone_by_themselves_and_threaded_each_for_itself():
    graph = gd.Graph()
    for device in (0, 1):
        with graph.on(device):
            x = graph.device_array(f"x{device}", (64, 32), np.float32)
            for index in range(64):
                graph.memset(x[index], 0, name=f"set{device}_{index:02}")
    assert "several devices" in graph.plan().lanes.why
    edges = graph.plan(lanes=4).lanes.edges
    assert len(edges) == 2 * 60
    assert all(source[3] == target[3] for source, target in edges)


def test_bodies_are_planned_too():
    graph = gd.Graph()
    x = graph.device_array("x", (64, 32), np.float32)
    body = graph.if_(graph.condition("yes", default=1), name="branch").bodies[0]
    inner = gd.Graph("inner")
    y = inner.device_array("y", (64, 32), np.float32)
    for index in range(64):
        body.kernel(add, grid=1, block=32, args=(x[index],), name=f"k{index:02}")
        inner.kernel(add, grid=1, block=32, args=(y[index],), name=f"k{index:02}")
    graph.child(inner, name="child")
    laned = graph.plan(lanes=4).lanes
    assert [len(level.edges) for level in laned.levels] == [0, 60, 60]
    auto = graph.plan().lanes
    assert {level.name: level.ends for level in auto.levels} == {
        "graph": (True, True),  # a child is launched as if its nodes were those of the graph
        "branch/then": (True, True),
        "child": (False, False),
    }


@pytest.mark.parametrize("lanes", [0, -1, True, 1.5, "many"])
def test_what_is_no_number_of_lanes_is_refused(lanes):
    with pytest.raises(DeclarationError, match="lanes are a number of 1 or more"):
        plan(gd.Graph(), lanes=lanes)


def test_durations_of_nodes_that_are_not_there_are_refused():
    with pytest.raises(DeclarationError, match="there is no node of this name"):
        wide(2).plan(durations={"k0002": 1.0})
    with pytest.raises(DeclarationError, match="not negative"):
        wide(2).plan(durations={"k0001": -1.0})


# What must never be waited for


@cuda.jit
def poll(flag):
    while flag[0] == 0:
        pass


def test_kernels_that_share_memory_with_the_host_are_waited_for_by_nobody():
    graph = wide(8)
    flag = graph.host_array("flag", 1, np.int32)
    graph.kernel(poll, grid=1, block=1, args=(flag,), name="poll") >> graph.empty(name="behind")
    edges = graph.plan(lanes=1).lanes.edges
    assert len(edges) == 7
    assert "poll" not in {name for edge in edges for name in edge}


def test_nothing_is_added_where_everything_may_wait():
    graph = gd.Graph()
    for index in range(4):
        graph.host(print, name=f"h{index}")
    made = graph.plan(lanes=1).lanes
    assert not made.edges
    assert "surely end" in made.why


KINDS = ("kernel", "memset", "empty", "host", "event", "poll", "while", "child")


def declared(kinds, edges, order):
    """A graph of nodes of some kinds, declared in an order."""
    graph = gd.Graph("mixed")
    x = graph.device_array("x", (len(kinds), 32), np.float32)
    flag = graph.host_array("flag", 1, np.int32)
    waiting = gd.Graph("waiting")
    waiting.host(print, name="inner")
    made = {}
    for index in order:
        name = f"{index:02}"
        kind = kinds[index]
        if kind == "kernel":
            made[index] = graph.kernel(add, grid=1, block=32, args=(x[index],), name=name)
        elif kind == "memset":
            made[index] = graph.memset(x[index], 0, name=name)
        elif kind == "empty":
            made[index] = graph.empty(name=name)
        elif kind == "host":
            made[index] = graph.host(print, name=name)
        elif kind == "event":
            made[index] = graph.wait(graph.event(f"event{index}"), name=name)
        elif kind == "poll":
            made[index] = graph.kernel(poll, grid=1, block=1, args=(flag,), name=name)
        elif kind == "while":
            made[index] = graph.while_(graph.condition(f"more{index}", default=0), name=name)
            made[index].bodies[0].memset(x[index], 0, name="inner")
        else:
            made[index] = graph.child(waiting, name=name)
    for source, target in sorted(edges, key=lambda edge: (order.index(edge[0]), order.index(edge[1]))):
        made[source] >> made[target]
    return graph


@st.composite
def mixed(draw):
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=10))
    pairs = list(itertools.combinations(range(len(kinds)), 2))
    edges = draw(st.sets(st.sampled_from(pairs), max_size=12)) if pairs else set()
    return kinds, sorted(edges)


@given(mixed(), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_only_what_surely_ends_is_waited_for(problem, lanes):
    """No added edge lets a node wait for one that may wait itself, or that stands behind such a node."""
    kinds, edges = problem
    graph = declared(kinds, edges, range(len(kinds)))
    made = plan(graph, lanes=lanes, costs=FREE_ENDS)
    waits = {
        name for name, kind in zip(graph.dag, kinds, strict=True) if kind in ("host", "event", "poll", "while", "child")
    }
    behind = set().union(waits, *(nx.descendants(graph.dag, name) for name in waits))
    assert not {source for source, _ in made.lanes.edges} & behind


@given(mixed(), st.integers(1, 3), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_plans_do_not_depend_on_the_order_of_declaration(problem, lanes, shuffler):
    kinds, edges = problem
    order = list(range(len(kinds)))
    made = plan(declared(kinds, edges, order), lanes=lanes, costs=FREE_ENDS)
    shuffler.shuffle(order)
    other = plan(declared(kinds, edges, order), lanes=lanes, costs=FREE_ENDS)
    assert [node.name for node in made.nodes] == [node.name for node in other.nodes]
    assert [level.added.tolist() for level in made.levels] == [level.added.tolist() for level in other.levels]


@given(mixed(), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_ends_order_no_two_nodes_and_lanes_keep_what_is_declared(problem, lanes):
    kinds, edges = problem
    graph = declared(kinds, edges, range(len(kinds)))
    made = plan(graph, lanes=lanes, costs=FREE_ENDS)
    top = made.levels[0]
    names = [node.name for node in made.nodes]
    whole = nx.DiGraph((names[a], names[b]) for a, b in [*top.edges.tolist(), *top.added.tolist()])
    whole.add_nodes_from(names[top.start : top.stop])
    assert nx.is_directed_acyclic_graph(whole)
    without = whole.copy()
    without.remove_nodes_from([node.name for node in made.nodes if is_end(node)])
    closure = nx.transitive_closure_dag(nx.DiGraph([*graph.dag.edges, *made.lanes.levels[0].edges]))
    assert set(nx.transitive_closure_dag(without).edges) == set(closure.edges)
    assert set(nx.transitive_closure_dag(graph.dag).edges) <= set(closure.edges)
    begin, end = made.lanes.ends
    if begin:
        assert {target for _, target in whole.out_edges("begin")} == {n for n in without if not without.in_degree(n)}
    if end:
        assert {source for source, _ in whole.in_edges("end")} == {n for n in without if not without.out_degree(n)}


def test_programmatic_edges_are_kept_apart():
    @cuda.jit
    def waits(x):
        gd.device.grid_dependency_wait()
        x[cuda.threadIdx.x] += 1

    graph = wide(6)
    x = graph.device_array("y", (2, 32), np.float32)
    first = graph.kernel(add, grid=1, block=32, args=(x[0],), name="first")
    second = graph.kernel(waits, grid=1, block=32, args=(x[1],), name="second")
    graph.edge(first, second, programmatic=True)
    edges = graph.plan(lanes=2).lanes.edges
    assert len(edges) == 4
    assert not {"first", "second"} & {name for edge in edges for name in edge}


def test_random_graphs_of_many_nodes():
    draw = random.Random(5)
    graph = gd.Graph()
    x = graph.device_array("x", (400, 8), np.float32)
    nodes = [graph.memset(x[index], 0, name=f"n{index:03}") for index in range(400)]
    for index in range(1, 400):
        for before in draw.sample(range(index), min(index, draw.randint(0, 2))):
            nodes[before] >> nodes[index]
    for lanes in (1, 5, 50):
        made = plan(graph, lanes=lanes).lanes
        whole = nx.DiGraph([*graph.dag.edges, *made.edges])
        assert nx.is_directed_acyclic_graph(whole)
        assert max(map(len, nx.antichains(whole) if len(whole) < 10 else nx.topological_generations(whole))) <= lanes
