"""Graphs, edges and execs."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdsl.drivers.emulator import Emulator
from graphdsl.drivers.emulator.graph import Graph, Node, node_in_cycle
from graphdsl.drivers.emulator.nodes import EMPTY
from graphdsl.drivers.results import InstantiateError
from graphdsl.errors import DriverError
from tests.drivers.emulator.conftest import Bench


def connect(device: Emulator, graph: int, *pairs: tuple[int, int]) -> None:
    sources, targets = (np.array(ends, np.uint64) for ends in zip(*pairs))
    device.graph_add_dependencies(graph, sources, targets)


@pytest.fixture
def three(device: Emulator) -> tuple[int, int, int, int]:
    graph = device.graph_create()
    return graph, *(device.graph_add_empty_node(graph) for _ in range(3))  # type: ignore[return-value]


def test_edges_that_are_refused(device: Emulator, three: tuple[int, int, int, int]) -> None:
    graph, a, b, c = three
    foreign = device.graph_add_empty_node(device.graph_create())
    connect(device, graph, (a, b))
    for pair in ((a, b), (a, a), (a, foreign), (foreign, a), (a, 12345)):
        with pytest.raises(DriverError) as caught:
            connect(device, graph, pair)
        assert (caught.value.call, caught.value.code) == ("cuGraphAddDependencies", 1)
    device.graph_add_dependencies(graph, np.array([], np.uint64), np.array([], np.uint64))
    with pytest.raises(DriverError, match="as many of both"):
        device.graph_add_dependencies(graph, np.array([a, b], np.uint64), np.array([c], np.uint64))
    connect(device, graph, (b, c))


def test_the_edges_before_a_refused_one_stay(device: Emulator, three: tuple[int, int, int, int]) -> None:
    """As the driver does: seen on an H200."""
    graph, a, b, c = three
    connect(device, graph, (a, b))
    with pytest.raises(DriverError):
        connect(device, graph, (b, c), (a, b), (a, c))
    with pytest.raises(DriverError, match="already"):
        connect(device, graph, (b, c))
    connect(device, graph, (a, c))


def test_a_cycle_is_refused_when_it_is_instantiated(device: Emulator, three: tuple[int, int, int, int]) -> None:
    graph, a, b, c = three
    first = device.graph_add_empty_node(graph)
    connect(device, graph, (first, a), (a, b), (b, c), (c, a))
    with pytest.raises(InstantiateError) as caught:
        device.graph_instantiate_with_params(graph)
    assert (caught.value.code, caught.value.result) == (1, "CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE")
    assert caught.value.node_handle == c  # the one that the driver blames too
    assert device.live["execs"] == 0


def test_an_empty_graph_can_be_launched(bench: Bench) -> None:
    bench.launch(bench.device.graph_create())


def test_an_exec_keeps_what_the_graph_was(bench: Bench) -> None:
    device = bench.device
    seen: list[str] = []
    graph, _ = bench.chain((device.graph_add_host_node, bench.host(lambda data: seen.append("first"))))
    graph_exec = device.graph_instantiate_with_params(graph)
    device.graph_add_host_node(graph, bench.host(lambda data: seen.append("second")))
    device.graph_launch(graph_exec, bench.stream)
    device.stream_synchronize(bench.stream)
    assert seen == ["first"]
    device.graph_destroy(graph)
    device.graph_launch(graph_exec, bench.stream)
    device.stream_synchronize(bench.stream)
    assert seen == ["first"] * 2


def test_handles_that_stand_for_nothing(device: Emulator) -> None:
    graph = device.graph_create()
    graph_exec = device.graph_instantiate_with_params(graph)
    device.graph_exec_destroy(graph_exec)
    device.graph_destroy(graph)
    empty = np.array([], np.uint64)
    for call, *args in (
        (device.graph_destroy, graph),
        (device.graph_add_empty_node, graph),
        (device.graph_add_dependencies, graph, empty, empty),
        (device.graph_instantiate_with_params, graph),
        (device.graph_exec_destroy, graph_exec),
        (device.graph_launch, graph_exec, 0),
        (device.graph_upload, graph_exec, 0),
        (device.graph_node_set_enabled, graph_exec, 1, True),
    ):
        with pytest.raises(DriverError) as caught:
            call(*args)  # type: ignore[operator]
        assert caught.value.code == 1


def test_handles_are_not_used_again(device: Emulator) -> None:
    seen = set()
    for _ in range(20):
        graph = device.graph_create()
        seen |= {graph, device.graph_add_empty_node(graph), Emulator().graph_create()}
        device.graph_destroy(graph)
    assert len(seen) == 60


def graph_of(count: int, edges: list[tuple[int, int]]) -> Graph:
    graph = Graph()
    for handle in range(count):
        graph.add(Node(handle, EMPTY, None))
    for source, target in edges:
        graph.connect(source, target)
    return graph


@given(st.integers(1, 7), st.data())
def test_a_blamed_node_lies_on_a_cycle(count: int, data: st.DataObject) -> None:
    pairs = [(i, j) for i in range(count) for j in range(count) if i != j]
    edges = data.draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    blamed = node_in_cycle(graph_of(count, edges))
    model = nx.DiGraph(edges)
    on_cycles = {node for part in nx.strongly_connected_components(model) if len(part) > 1 for node in part}
    assert blamed in on_cycles if on_cycles else blamed is None
