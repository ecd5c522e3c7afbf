"""Programmatic edges in emulated launches: who runs when, and who is blamed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import cuda
from numba.cuda import types

from graphdsl.compile.image import ArrayValue
from graphdsl.device import grid_dependency_wait
from graphdsl.drivers.structs import EDGE_DATA
from graphdsl.errors import DriverError, MemoryFault
from tests.drivers.emulator.conftest import Bench

INTS = types.int64[::1]


def edge_data(count: int, port: int = 1) -> np.ndarray[Any, Any]:
    data = np.zeros(count, EDGE_DATA)
    data["from_port"], data["type"] = port, port > 0
    return data


def step(x):
    i = cuda.threadIdx.x
    early = x[7]
    grid_dependency_wait()
    if i == 0:
        x[1] = x[1] + (early != x[0])  # how many read what was there before the one in front
        x[0] = x[0] + 1
        x[7] = x[0]


def doubles(x):
    if cuda.threadIdx.x == 0:
        x[0] = 2 * x[0]


def breaks(x):
    x[100] = 1


class Line:
    """Kernels one behind the other, on eight integers that begin as zeros."""

    def __init__(self, bench: Bench, kernels: list[Any], port: int = 1, block: int = 4) -> None:
        self.bench = bench
        self.address = bench.upload(np.zeros(8, np.int64))
        self.graph = bench.device.graph_create()
        self.nodes = [self.add(kernel, block) for kernel in kernels]
        handles = np.array(self.nodes, np.uint64)
        bench.device.graph_add_dependencies(self.graph, handles[:-1], handles[1:], edge_data(len(handles) - 1, port))

    def add(self, kernel: Any, block: int = 4) -> int:
        loaded, value = self.bench.load(kernel, INTS), ArrayValue(self.address, (8,), (8,))
        params = self.bench.kernel(loaded, (INTS,), (value,), block=(block, 1, 1))
        return self.bench.device.graph_add_kernel_node(self.graph, params)

    def run(self) -> list[int]:
        self.bench.launch(self.graph)
        self.bench.device.stream_synchronize(self.bench.stream)
        return self.bench.download(self.address, 8, np.int64).tolist()  # type: ignore[no-any-return]


def test_a_chain_of_steps_is_in_order_and_sees_what_is_old_before_its_waits(bench: Bench) -> None:
    assert Line(bench, [step] * 6).run()[:2] == [6, 5]


def test_full_edges_let_kernels_see_what_is_new(bench: Bench) -> None:
    assert Line(bench, [step] * 6, port=0).run()[:2] == [6, 0]


@pytest.mark.parametrize("block", [1, 4])
def test_long_chains_do_not_run_out_of_stack(bench: Bench, block: int) -> None:
    total, old, *_ = Line(bench, [step] * 200, block=block).run()
    assert total == 200
    assert 200 * 15 // 16 - 1 <= old < 200


def test_without_a_wait_a_kernel_runs_before_the_one_in_front(bench: Bench) -> None:
    assert Line(bench, [step, doubles]).run()[0] == 1
    assert Line(bench, [step, doubles], port=0).run()[0] == 2


def test_an_edge_from_the_start_of_a_kernel_is_not_waited_for(bench: Bench) -> None:
    assert Line(bench, [step, step, doubles], port=2).run()[0] == 2
    assert Line(bench, [doubles, step], port=2).run()[0] == 2


def test_the_node_that_failed_is_blamed_not_the_one_that_waits(bench: Bench) -> None:
    line = Line(bench, [breaks, step])
    with pytest.raises(MemoryFault) as caught:
        line.run()
    assert caught.value.node_handle == line.nodes[0]  # type: ignore[attr-defined]
    line = Line(bench, [step, breaks])
    with pytest.raises(MemoryFault) as caught:
        line.run()
    assert caught.value.node_handle == line.nodes[1]  # type: ignore[attr-defined]


def test_disabled_nodes_do_nothing(bench: Bench) -> None:
    line = Line(bench, [step] * 3)
    graph_exec = bench.launch(line.graph)
    bench.device.graph_node_set_enabled(graph_exec, line.nodes[1], False)
    bench.device.graph_launch(graph_exec, bench.stream)
    assert bench.download(line.address, 8, np.int64)[0] == 3 + 2


@pytest.mark.parametrize(
    "fields",
    [
        {"type": 1},
        {"from_port": 1},
        {"from_port": 3, "type": 1},
        {"to_port": 1},
        {"type": 2},
        {"from_port": 1, "to_port": 1, "type": 1},
        {"reserved": 1},
    ],
)
def test_edge_data_that_means_nothing_is_refused(bench: Bench, fields: dict[str, int]) -> None:
    line = Line(bench, [step])
    more = line.add(step)
    data = np.zeros(1, EDGE_DATA)
    for name, value in fields.items():
        data[name] = value
    with pytest.raises(DriverError) as caught:
        bench.device.graph_add_dependencies(
            line.graph, np.array(line.nodes, np.uint64), np.array([more], np.uint64), data
        )
    assert (caught.value.call, caught.value.code) == ("cuGraphAddDependencies", 1)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_programmatic_edges_join_kernels(bench: Bench, order: tuple[int, int]) -> None:
    line = Line(bench, [step])
    nodes = [line.nodes[0], bench.device.graph_add_memset_node(line.graph, bench.memset(line.address, 0, 4))]
    source, target = (np.array([nodes[place]], np.uint64) for place in order)
    with pytest.raises(DriverError) as caught:
        bench.device.graph_add_dependencies(line.graph, source, target, edge_data(1))
    assert caught.value.code == 1
