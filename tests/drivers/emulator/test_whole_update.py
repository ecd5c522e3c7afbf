"""cuGraphExecUpdate: how two graphs are paired, what may differ, and who is blamed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from graphdsl.drivers.emulator import Emulator
from graphdsl.drivers.results import UPDATE_RESULTS, ExecUpdateError
from graphdsl.drivers.structs import (
    ATTRIBUTE_VALUES,
    CHILD_GRAPH_NODE,
    CLUSTER_DIMENSION,
    COOPERATIVE,
    EDGE_DATA,
    EDGE_TYPE_PROGRAMMATIC,
    NODE_PARAMS,
    NODE_TYPE_CHILD,
    PRIORITY,
    UNION_OFFSET,
    USE_NODE_PRIORITY,
)
from graphdsl.errors import DriverError
from tests.drivers.emulator.conftest import Bench

DIAMOND = ("ab", "ac", "bd", "cd")


def nothing() -> None:
    pass


class Whole:
    """Graphs of memsets that write to places of their own, and updates of one from another."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.device = bench.device
        self.memory = bench.upload(np.zeros(16, np.uint8))

    def graph(self, order: str, edges: Sequence[str] = (), value: int = 1, **kinds: Any) -> tuple[int, dict[str, int]]:
        graph = self.device.graph_create()
        nodes = {}
        for number, name in enumerate(sorted(order)):
            nodes[name] = number
        nodes = {name: self.add(graph, kinds.get(name, "memset"), nodes[name], value) for name in order}
        for edge in edges:
            self.connect(graph, nodes[edge[0]], nodes[edge[1]])
        return graph, nodes

    def add(self, graph: int, kind: str, place: int, value: int) -> int:
        if kind == "empty":
            return self.device.graph_add_empty_node(graph)
        return self.device.graph_add_memset_node(graph, self.bench.memset(self.memory + place, value, 1, 1))

    def connect(self, graph: int, source: int, target: int, data: Any = None) -> None:
        ends = [np.array([end], np.uint64) for end in (source, target)]
        self.device.graph_add_dependencies(graph, *ends, data)

    def update(self, before: int, after: int, flags: int = 0) -> ExecUpdateError | None:
        graph_exec = self.device.graph_instantiate_with_params(before, flags)
        try:
            self.device.graph_exec_update(graph_exec, after)
        except ExecUpdateError as problem:
            return problem
        self.device.graph_launch(graph_exec, self.bench.stream)
        self.device.stream_synchronize(self.bench.stream)
        return None

    @property
    def bytes(self) -> list[int]:
        return self.bench.download(self.memory, 4, np.uint8).tolist()


@pytest.fixture
def whole(device: Emulator) -> Whole:
    return Whole(Bench(device))


def short(problem: ExecUpdateError | None) -> str:
    assert problem is not None
    assert (problem.call, problem.code_name) == ("cuGraphExecUpdate", "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE")
    assert problem.result in UPDATE_RESULTS
    return problem.result.removeprefix("CU_GRAPH_EXEC_UPDATE_ERROR_")


def test_the_same_graph_with_other_parameters(whole: Whole) -> None:
    first, _ = whole.graph("abcd", DIAMOND)
    second, _ = whole.graph("abcd", DIAMOND, value=7)
    assert whole.update(first, second) is None
    assert whole.bytes == [7] * 4


def test_nodes_are_paired_along_edges_and_not_by_the_order_of_nodes(whole: Whole) -> None:
    first, _ = whole.graph("abcd", DIAMOND, b="empty")
    second, _ = whole.graph("dcba", DIAMOND, value=7, b="empty")
    assert whole.update(first, second) is None
    assert whole.bytes == [7, 0, 7, 7]


def test_other_orders_of_edges_pair_other_nodes(whole: Whole) -> None:
    first, _ = whole.graph("abcd", DIAMOND, b="empty")
    second, nodes = whole.graph("abcd", ("ab", "ac", "cd", "bd"), value=7, b="empty")
    problem = whole.update(first, second)
    assert (short(problem), problem.node_handle) == ("NODE_TYPE_CHANGED", nodes["c"])


@pytest.mark.parametrize(
    ("order", "edges", "blamed", "because"),
    [
        ("abcde", DIAMOND, None, None),
        ("abcd", ("ab", "ac", "bd"), "c", None),
        ("abcd", (*DIAMOND, "ad"), "d", None),
        ("abcd", ("ab", "bc", "bd", "cd"), "c", "b"),
        ("", (), None, None),
    ],
)
def test_another_topology(whole: Whole, order: str, edges: Sequence[str], blamed: str, because: str) -> None:
    first, _ = whole.graph("abcd", DIAMOND)
    second, nodes = whole.graph(order, edges)
    problem = whole.update(first, second)
    assert short(problem) == "TOPOLOGY_CHANGED"
    assert problem.node_handle == (0 if blamed is None else nodes[blamed])
    if because is None:
        assert problem.from_handle == 0
    else:
        assert problem.from_handle == nodes[because]


def test_sinks_are_paired_in_the_order_of_their_creation(whole: Whole) -> None:
    first, _ = whole.graph("ab", b="empty")
    second, nodes = whole.graph("ba", b="empty")
    problem = whole.update(first, second)
    assert (short(problem), problem.node_handle) == ("NODE_TYPE_CHANGED", nodes["a"])


def test_edges_keep_their_type(whole: Whole, device: Emulator) -> None:
    kernel = whole.bench.kernel(whole.bench.load(nothing))

    def pair(port: int) -> int:
        graph = device.graph_create()
        nodes = [device.graph_add_kernel_node(graph, kernel) for _ in range(2)]
        data = np.zeros(1, EDGE_DATA)
        data["from_port"], data["type"] = port, EDGE_TYPE_PROGRAMMATIC if port else 0
        whole.connect(graph, *nodes, data)
        return graph

    assert whole.update(pair(1), pair(1)) is None
    assert short(whole.update(pair(0), pair(1))) == "TOPOLOGY_CHANGED"
    assert short(whole.update(pair(1), pair(2))) == "TOPOLOGY_CHANGED"


def test_parameters_that_must_stay(whole: Whole, device: Emulator) -> None:
    bench, memory = whole.bench, whole.memory
    pinned = device.mem_host_alloc(16)
    rows = bench.memset(memory, 1, 2, 1, height=2, pitch=4), bench.memset(memory, 1, 2, 1)
    graphs = [device.graph_create() for _ in rows]
    _, node = (device.graph_add_memset_node(graph, params) for graph, params in zip(graphs, rows, strict=True))
    problem = whole.update(*graphs)
    assert (short(problem), problem.node_handle) == ("PARAMETERS_CHANGED", node)
    graphs = [device.graph_create() for _ in range(2)]
    device.graph_add_memcpy_node(graphs[0], bench.memcpy(memory, memory + 8, 4))
    node = device.graph_add_memcpy_node(graphs[1], bench.memcpy(memory, pinned.ctypes.data, 4, "dh"))
    problem = whole.update(*graphs)
    assert (short(problem), problem.node_handle) == ("PARAMETERS_CHANGED", node)


def test_a_refused_update_changes_nothing(whole: Whole, device: Emulator) -> None:
    first, _ = whole.graph("abc")
    second, _ = whole.graph("abc", value=9, c="empty")
    graph_exec = device.graph_instantiate_with_params(first)
    with pytest.raises(ExecUpdateError):
        device.graph_exec_update(graph_exec, second)
    device.graph_launch(graph_exec, whole.bench.stream)
    assert whole.bytes[:3] == [1, 1, 1]


def test_nodes_go_by_the_handles_of_the_first_graph(whole: Whole, device: Emulator) -> None:
    first, old = whole.graph("a")
    second, new = whole.graph("a", value=2)
    graph_exec = device.graph_instantiate_with_params(first)
    device.graph_node_set_enabled(graph_exec, old["a"], False)
    device.graph_exec_update(graph_exec, second)
    device.graph_destroy(second)
    device.graph_launch(graph_exec, whole.bench.stream)
    assert whole.bytes[0] == 0, "disabled nodes stay so"
    device.graph_node_set_enabled(graph_exec, old["a"], True)
    device.graph_launch(graph_exec, whole.bench.stream)
    assert whole.bytes[0] == 2
    with pytest.raises(DriverError):
        device.graph_node_set_enabled(graph_exec, new["a"], False)


class TestAttributes:
    def graph(self, whole: Whole, number: int = 0, **fields: Any) -> tuple[int, int]:
        graph = whole.device.graph_create()
        params = whole.bench.kernel(whole.bench.load(nothing), grid=(8, 1, 1))
        node = whole.device.graph_add_kernel_node(graph, params)
        if number:
            value = whole.bench._struct(ATTRIBUTE_VALUES[number], **fields)
            whole.device.graph_kernel_node_set_attribute(node, number, value)
        return graph, node

    def test_a_kernel_stays_cooperative_or_not(self, whole: Whole) -> None:
        plain, other = self.graph(whole), self.graph(whole, COOPERATIVE, cooperative=1)
        for before, after in ((plain, other), (other, plain)):
            problem = whole.update(before[0], after[0])
            assert (short(problem), problem.node_handle) == ("ATTRIBUTES_CHANGED", after[1])
        assert whole.update(other[0], other[0]) is None

    def test_priorities_stay_where_they_count(self, whole: Whole) -> None:
        plain, other = self.graph(whole)[0], self.graph(whole, PRIORITY, priority=-1)[0]
        assert whole.update(plain, other) is None
        assert short(whole.update(plain, other, USE_NODE_PRIORITY)) == "ATTRIBUTES_CHANGED"

    def test_clusters_are_set_and_changed_and_not_taken_back(self, whole: Whole, device: Emulator) -> None:
        """As the driver does: seen on an H200."""
        plain, node = self.graph(whole)
        graph_exec = device.graph_instantiate_with_params(plain)
        for given, found in ((2, 2), (4, 4), (0, 4)):
            other = self.graph(whole, CLUSTER_DIMENSION, dims=(given, 1, 1)) if given else self.graph(whole)
            device.graph_exec_update(graph_exec, other[0])
            attributes = device._execs[graph_exec].nodes[node].params.attributes
            assert attributes[CLUSTER_DIMENSION]["dims"].tolist() == [found, 1, 1]


class TestChildren:
    def parent(self, whole: Whole, order: str, value: int) -> int:
        inside, _ = whole.graph(order, value=value)
        row = np.zeros(1, NODE_PARAMS)
        row["type"] = NODE_TYPE_CHILD
        fields = row.view(np.uint8)[UNION_OFFSET : UNION_OFFSET + CHILD_GRAPH_NODE.itemsize].view(CHILD_GRAPH_NODE)
        fields["graph"] = inside
        whole.bench.kept.append(row)
        graph = whole.device.graph_create()
        whole.device.graph_add_node(graph, row.ctypes.data)
        return graph

    def test_what_is_inside_is_taken_over(self, whole: Whole) -> None:
        assert whole.update(self.parent(whole, "ab", 1), self.parent(whole, "ab", 5)) is None
        assert whole.bytes[:2] == [5, 5]

    def test_what_is_inside_has_to_match(self, whole: Whole) -> None:
        problem = whole.update(self.parent(whole, "ab", 1), self.parent(whole, "abc", 5))
        assert short(problem) == "TOPOLOGY_CHANGED"
