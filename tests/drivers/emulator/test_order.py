"""Which order a launch takes: of a graph, and of the graphs inside of its nodes beside what is outside."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import cuda

import graphdsl as gd
from graphdsl.drivers.emulator import Emulator
from graphdsl.drivers.emulator.graph import Exec, Graph, Node
from graphdsl.drivers.emulator.nesting import CHILD
from graphdsl.drivers.emulator.nodes import NodeKind
from graphdsl.drivers.emulator.order import Order, Ready
from graphdsl.drivers.emulator.running import run
from graphdsl.drivers.emulator.sharing import Sharing
from graphdsl.errors import DeclarationError, DriverError
from tests.drivers.emulator.conftest import Bench

Shape = tuple[list[Any], list[tuple[int, int]]]
"""What each node has inside (a shape, or None), and the edges."""


@st.composite
def shapes(draw: st.DrawFn, depth: int = 2, most: int = 5) -> Shape:
    """Graphs, some of whose nodes have graphs inside; edges in any order of insertion."""
    count = draw(st.integers(0 if depth < 2 else 1, most))
    names = draw(st.permutations(range(count)))
    pairs = [(names[i], names[j]) for i in range(count) for j in range(i + 1, count)]
    inside = st.one_of(st.none(), st.none(), shapes(depth - 1, 3)) if depth else st.none()
    return [draw(inside) for _ in range(count)], draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []


class Model:
    """A shape as a graph of the emulator, and as one partial order of begins and ends."""

    def __init__(self, shape: Shape) -> None:
        self.ran: list[int] = []
        self.order: nx.DiGraph[Any] = nx.DiGraph()
        self.preorder: list[int] = []
        self._kind = NodeKind("noted", lambda machine, address: None, lambda machine, params: self.ran.append(params))
        self.count = 0
        self.graph, _ = self._build(shape)

    def _build(self, shape: Shape) -> tuple[Graph, list[int]]:
        insides, edges = shape
        graph, handles = Graph(), []
        for inside in insides:
            handle = self.count
            self.count += 1
            handles.append(handle)
            self.order.add_edge(("begin", handle), ("end", handle))
            graph.add(Node(handle, self._kind if inside is None else CHILD, handle))
            if inside is not None:
                part, within = self._build(inside)
                graph.inner[handle] = (part,)
                for each in within:
                    self.order.add_edge(("begin", handle), ("begin", each))
                    self.order.add_edge(("end", each), ("end", handle))
            else:
                self.preorder.append(handle)
        for source, target in edges:
            graph.connect(handles[source], handles[target])
            self.order.add_edge(("end", handles[source]), ("begin", handles[target]))
        return graph, handles

    def run(self, order: Order, seed: int = 0) -> list[int]:
        """What ran, nodes that hold graphs left out."""
        self.ran.clear()
        run(Exec(self.graph), None, Ready(order, random.Random(seed)), Sharing((), None))  # type: ignore[arg-type]
        return list(self.ran)

    def holds(self, ran: Sequence[int]) -> bool:
        """True if each node ran once, in an order that the edges allow."""
        place = {handle: index for index, handle in enumerate(ran)}
        return sorted(ran) == sorted(self.preorder) and all(
            place[first] < place[second]
            for first in ran
            for kind, second in nx.descendants(self.order, ("end", first))
            if kind == "begin" and second in place
        )

    def orders(self) -> Iterator[tuple[int, ...]]:
        """All orders in which nodes can run."""
        found = nx.transitive_closure_dag(self.order)
        leaves: nx.DiGraph[int] = nx.DiGraph()
        leaves.add_nodes_from(self.preorder)
        leaves.add_edges_from(
            (a, b) for a in self.preorder for b in self.preorder if found.has_edge(("end", a), ("begin", b))
        )
        return map(tuple, nx.all_topological_sorts(leaves)) if leaves else iter([()])


@given(shapes(), st.sampled_from(["declared", "random", "reverse"]), st.integers(0, 5))
def test_every_order_is_topological_across_levels(shape: Shape, order: Order, seed: int) -> None:
    model = Model(shape)
    assert model.holds(model.run(order, seed))


@given(shapes(depth=0, most=8))
def test_ties_go_by_insertion_and_by_reverse_insertion(shape: Shape) -> None:
    model = Model(shape)
    edges: nx.DiGraph[int] = nx.DiGraph()
    edges.add_nodes_from(range(len(shape[0])))
    edges.add_edges_from(shape[1])
    assert model.run("declared") == list(nx.lexicographical_topological_sort(edges))
    assert model.run("reverse") == list(nx.lexicographical_topological_sort(edges, lambda node: -node))


@given(shapes(most=3))
def test_in_the_declared_order_and_its_reverse_nothing_outside_runs_between_what_is_inside(shape: Shape) -> None:
    model = Model(shape)
    for order in ("declared", "reverse"):
        ran = model.run(order)  # type: ignore[arg-type]
        for handle, (part,) in model.graph.inner.items():
            inside = [place for place, each in enumerate(ran) if each in part.nodes or each in _leaves(part)]
            assert not inside or inside == list(range(inside[0], inside[-1] + 1)), handle


def _leaves(graph: Graph) -> set[int]:
    return set(graph.nodes).union(*(_leaves(part) for parts in graph.inner.values() for part in parts))


@given(shapes(depth=1, most=4))
def test_a_function_that_chooses_can_have_every_order(shape: Shape) -> None:
    """Also those in which nodes of a child and nodes outside take turns."""
    model = Model(shape)
    for _, wanted in zip(range(24), model.orders()):
        places = {handle: place for place, handle in enumerate(wanted)}
        # A node that holds a graph begins as soon as it can: it does nothing by itself.
        places = dict.fromkeys(range(model.count), -1) | places
        assert tuple(model.run(partial(min, key=places.__getitem__))) == wanted


def test_the_random_order_is_drawn_anew_and_follows_the_seed() -> None:
    def draws(seed: int) -> list[list[int]]:
        model, rng = Model(([None] * 6, [])), random.Random(seed)
        return [_run(model, rng) for _ in range(5)]

    assert draws(1) == draws(1) != draws(2)
    assert len(set(map(tuple, draws(1)))) > 1


def _run(model: Model, rng: random.Random) -> list[int]:
    model.ran.clear()
    run(Exec(model.graph), None, Ready("random", rng), Sharing((), None))  # type: ignore[arg-type]
    return list(model.ran)


def test_a_random_order_puts_a_node_behind_a_long_chain_as_often_as_there_are_nodes() -> None:
    chain = [(i, i + 1) for i in range(1, 20)]  # a step that drew one of the two ready ones would do it once in 2**20
    model, rng = Model(([None] * 21, chain)), random.Random(1)
    assert sum(_run(model, rng)[-1] == 0 for _ in range(500)) > 10


def test_random_orders_mix_a_child_with_what_is_beside_it() -> None:
    model, rng = Model(([([None, None], [(0, 1)]), None], [])), random.Random(1)
    assert {tuple(_run(model, rng)) for _ in range(100)} == {(1, 2, 3), (1, 3, 2), (3, 1, 2)}


@pytest.mark.parametrize(
    ("order", "wanted"), [("declared", "abc"), ("reverse", "cba"), (lambda ready: ready[len(ready) // 2], "bca")]
)
def test_independent_nodes_run_in_the_order_asked_for(order: Order, wanted: str) -> None:
    bench = Bench(Emulator(order=order))
    seen: list[str] = []
    graph = bench.device.graph_create()
    for name in "abc":
        bench.device.graph_add_host_node(graph, bench.host(lambda data, name=name: seen.append(name)))
    bench.launch(graph)
    bench.device.stream_synchronize(bench.stream)
    assert "".join(seen) == wanted


def test_an_order_that_is_none() -> None:
    with pytest.raises(DeclarationError, match="declared, random or reverse"):
        Emulator(order="sideways")  # type: ignore[arg-type]


def test_a_choice_of_a_node_that_is_not_ready_fails_the_launch() -> None:
    device = gd.emulator(order=lambda ready: 5)
    g = gd.Graph("wrong")
    g.empty(name="a")
    with g.instantiate(device) as exe:
        exe.launch()
        with pytest.raises(DriverError, match="chose 5"):
            exe.synchronize()


@cuda.jit
def count_down(left, more):
    left[0] -= 1
    gd.device.set_condition(more, left[0] > 0)


def test_bodies_of_conditions_run_beside_what_is_outside_turn_by_turn() -> None:
    """Three turns of a while body, mixed with a chain beside it in every way that the choices ask for."""
    g = gd.Graph("loop")
    left = g.device_array("left", 1, np.int32)
    x = g.device_array("x", 4, np.uint8)
    more = g.condition("more", default=1)
    loop = g.while_(more, name="loop")
    with loop as body:
        body.kernel(count_down, grid=1, block=1, args=(left, more), name="step")
    steps = [g.memset(x, value, name=f"set{value}") for value in range(4)]
    for first, second in itertools.pairwise(steps):
        first >> second
    seen: set[str] = set()
    rng = random.Random(3)

    def choose(ready: Sequence[int]) -> int:
        handle = rng.choice(ready)
        trace.append(names[handle])
        return handle

    with g.instantiate(gd.emulator(order=choose)) as exe:
        names = {handle: name for name, handle in exe.node_handles.items()}
        for _ in range(60):
            trace: list[str] = []
            exe["left"].copy_from_host(np.array([3], np.int32))
            exe.launch()
            exe.synchronize()
            assert trace.count("loop/step") == 3
            assert [each for each in trace if each.startswith("set")] == [f"set{value}" for value in range(4)]
            assert trace.index("loop") < trace.index("loop/step")
            seen.add("".join("s" if each == "loop/step" else "x" for each in trace if each != "loop"))
    assert len(seen) > 10, seen


@cuda.jit
def triggering(y):
    gd.device.launch_dependents()
    y[0] = 1


@cuda.jit
def looking(y, out):
    out[0] = y[0]
    gd.device.grid_dependency_wait()


@pytest.mark.parametrize(("order", "wanted"), [("declared", {0}), ("reverse", {0}), ("random", {0, 1})])
def test_random_orders_let_a_kernel_run_before_the_one_that_may_overlap_it_too(order: Order, wanted: set[int]) -> None:
    g = gd.Graph("overlap")
    y, out = (g.device_array(name, 1, np.int32, lifetime="persistent") for name in ("y", "out"))
    front = g.kernel(triggering, grid=1, block=1, args=(y,), name="front")
    g.edge(front, g.kernel(looking, grid=1, block=1, args=(y, out), name="behind"), programmatic=True)
    seen = set()
    with g.instantiate(gd.emulator(order=order, seed=1)) as exe:
        for _ in range(20):
            exe["y"].copy_from_host(np.zeros(1, np.int32))
            exe.launch()
            seen.add(int(exe["out"].copy_to_host()[0]))
    assert seen == wanted
