"""What is dropped is given back: at once where that is possible, and never by waiting where it is not."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from functools import partial

import numpy as np
import pytest
from numba import cuda

import graphdsl as gd
from graphdsl.drivers import releases
from graphdsl.drivers.host_threads import host_function, in_host_function
from tests.bounded import at_once, bounded
from tests.drivers.emulator.conftest import Bench


class Cycle:
    """Garbage that only a collection finds, with memory of a device."""

    def __init__(self, device: gd.emulator) -> None:
        self.memory = gd.to_device(device, np.zeros(4))
        self.itself = self


class Keeper:
    """Gives back what it keeps when it is dropped itself, and lets others run before."""

    def __init__(self, kept: object) -> None:
        weakref.finalize(self, releases.release, partial(self.give_back, [kept]))

    @staticmethod
    def give_back(kept: list[object]) -> None:
        time.sleep(0.005)
        kept.clear()


@pytest.fixture
def bench() -> Bench:
    return Bench(gd.emulator())


def is_released_here() -> bool:
    seen: list[int] = []
    done = threading.Event()

    def action() -> None:
        seen.append(threading.get_ident())
        done.set()

    releases.release(action)
    done.wait(30)
    return seen[0] == threading.get_ident()


def test_at_once_in_the_same_thread() -> None:
    assert is_released_here()


@pytest.mark.parametrize("marked", [host_function, releases.postponed])
def test_elsewhere_in_host_nodes_and_in_calls(marked) -> None:
    with marked():
        assert not is_released_here()
        with marked():
            assert not is_released_here()
        assert not is_released_here()
    assert is_released_here()


def test_elsewhere_while_host_nodes_are_in_flight() -> None:
    releases.host_nodes_in_flight("launcher")
    try:
        assert not is_released_here()
    finally:
        releases.host_nodes_done("launcher")
    assert is_released_here()


def test_a_release_that_fails_is_told_and_keeps_none_from_running(caplog) -> None:
    def fail() -> None:
        raise ValueError("no such memory")

    with host_function():
        releases.release(fail)
        assert not is_released_here()
    assert "no such memory" in caplog.text


def test_settling_waits_for_all() -> None:
    go, done = threading.Event(), []
    with host_function():
        releases.release(go.wait)
        releases.release(lambda: done.append(1))
    assert releases.settle(0.01)
    assert not done
    go.set()
    assert bounded(releases.settle) in (True, False)
    assert done


def test_a_release_may_drop_what_is_released(bench: Bench) -> None:
    kept = [gd.to_device(bench.device, np.zeros(4))]
    with host_function():
        releases.release(kept.clear)
    assert bench.device.live["allocations"] == 0


def test_settling_waits_for_what_was_dropped_with_it(bench: Bench) -> None:
    """Host nodes of some exec that nobody has waited for are in flight for the rest of the process."""
    releases.host_nodes_in_flight("launcher")
    try:
        memory = Keeper(Keeper(Keeper(gd.to_device(bench.device, np.zeros(4)))))
        del memory
        assert bench.device.live["allocations"] == 0
    finally:
        releases.host_nodes_done("launcher")


def test_marks_are_of_one_thread() -> None:
    with host_function():
        assert at_once(in_host_function) == [False]


# Each of these waited for ever: what a collection found was freed by a call of the emulator, in whatever thread it ran.


def test_garbage_collected_by_a_thread_of_a_kernel(bench: Bench) -> None:
    def kernel():
        cuda.syncthreads()
        gc.collect()

    loaded = bench.load(kernel)
    graph, _ = bench.chain((bench.device.graph_add_kernel_node, bench.kernel(loaded, block=(4, 1, 1))))
    Cycle(bench.device)
    bounded(lambda: bench.launch(graph))
    assert bench.device.live["allocations"] == 0


def test_garbage_of_each_other_in_two_emulators() -> None:
    meet = threading.Barrier(2)

    def kernel():
        meet.wait(30)
        gc.collect()
        meet.wait(30)

    def chain(bench: Bench) -> int:
        graph, _ = bench.chain((bench.device.graph_add_kernel_node, bench.kernel(bench.load(kernel))))
        return graph

    benches = [Bench(gd.emulator()) for _ in range(2)]
    graphs = [chain(bench) for bench in benches]
    gc.disable()
    try:
        for bench in benches * 8:  # whichever thread collects first finds some of the other's
            Cycle(bench.device)
        at_once(*(lambda bench=bench, graph=graph: bench.launch(graph) for bench, graph in zip(benches, graphs)))
    finally:
        gc.enable()
    assert [bench.device.live["allocations"] for bench in benches] == [0, 0]
