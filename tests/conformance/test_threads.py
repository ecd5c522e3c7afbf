"""Threads, callbacks and garbage: each of these would wait for ever, or crash, if a lock or the GIL were held."""

from __future__ import annotations

import gc
import threading
import time

import numpy as np
import pytest

import graphdsl as gd
from tests.bounded import PATIENCE, at_once, bounded
from tests.conformance import kernels


def calling(*functions) -> gd.Graph:
    """A graph of host nodes, one after the other."""
    g = gd.Graph("calling")
    with g.sequence():
        for function in functions:
            g.host(function)
    return g


def counting(size: int = 64) -> gd.Graph:
    """A graph that adds ``step`` to the host array ``out``, by way of the device."""
    g = gd.Graph("counting")
    step = g.param("step", np.float32, default=1.0)
    out, x = g.host_array("out", size, np.float32), g.device_array("x", size, np.float32, lifetime="persistent")
    with g.sequence():
        g.memcpy(x, out)
        g.kernel(kernels.add_to, grid=1, block=size, args=(x, step, size))
        g.memcpy(out, x)
    return g


class TestHostNodesWait:
    def test_for_what_their_launcher_does_next(self, device):
        ready = threading.Event()
        seen: list[bool] = []
        with calling(lambda: seen.append(ready.wait(PATIENCE))).instantiate(device) as exe:

            def work() -> None:
                for _ in range(3):
                    exe.launch()
                ready.set()
                exe.synchronize()

            bounded(work)
        assert seen == [True] * 3

    def test_for_a_thread_that_launches_other_execs(self, device):
        done = threading.Event()
        with calling(lambda: done.wait(PATIENCE)).instantiate(device) as exe, counting().instantiate(device) as other:
            other["out"][:] = 0
            other.launch()
            other.synchronize()  # whatever a first launch loads is loaded

            def launch() -> None:
                exe.launch()
                exe.synchronize()

            def help() -> None:
                other.update(step=2.0)
                other.launch()
                other.synchronize()
                done.set()

            at_once(launch, help)
            assert other["out"].tolist() == [3.0] * 64

    def test_for_a_lock_of_the_thread_that_drops_an_exec_in_flight(self, device):
        lock, begun = threading.Lock(), threading.Event()
        seen: list[bool] = []

        def node() -> None:
            begun.set()
            with lock:
                seen.append(True)

        kept = [calling(node).instantiate(device)]

        def drop() -> None:
            with lock:
                kept[0].launch()
                assert begun.wait(PATIENCE)
                kept.clear()
                gc.collect()

        bounded(drop)
        bounded(lambda: wait_for(lambda: seen))
        calling(int).instantiate(device).close()

    def test_for_a_lock_of_a_thread_that_drops_memory(self, device):
        """Freeing memory waits for work in flight, and here that work waits for the thread that frees."""
        lock, begun = threading.Lock(), threading.Event()
        kept = [gd.to_device(device, np.zeros(1024))]

        def node() -> None:
            begun.set()
            with lock:
                pass

        with calling(node).instantiate(device) as exe:

            def drop() -> None:
                with lock:
                    exe.launch()
                    assert begun.wait(PATIENCE)
                    kept.clear()
                    gc.collect()
                exe.synchronize()

            bounded(drop)


class TestLoad:
    def test_threads_with_execs_of_their_own(self, device):
        """Each instantiates, updates, launches and reads; the sums of all are right."""

        def work(number: int) -> list[float]:
            with counting().instantiate(device) as exe:
                exe["out"][:] = 0
                for step in range(20):
                    exe.update(step=float(step * number))
                    exe.launch()
                    exe.synchronize()
                return exe["out"].tolist()

        found = at_once(*(lambda number=number: work(number) for number in range(6)))
        assert found == [[190.0 * number] * 64 for number in range(6)]

    def test_threads_with_clones_of_one_exec(self, device):
        with counting().instantiate(device) as exe:
            clones = [exe.clone() for _ in range(4)]

            def work(clone: gd.run.graph_exec.GraphExec) -> float:
                clone["out"][:] = 0
                for _ in range(20):
                    clone.launch()
                clone.synchronize()
                return float(clone["out"][0])

            assert at_once(*(lambda clone=clone: work(clone) for clone in clones)) == [20.0] * 4
            for clone in clones:
                clone.close()

    def test_many_host_nodes_in_many_launches(self, device):
        counts = [0] * 8

        def node(i: int) -> None:
            counts[i] += 1

        g = gd.Graph("many")
        last = g.empty()
        for i in range(8):
            g.host(node, (i,)) >> last
        with g.instantiate(device) as exe:

            def work() -> None:
                for _ in range(100):
                    exe.launch()
                exe.synchronize()

            bounded(work)
        assert counts == [100] * 8

    def test_the_program_goes_on_while_a_host_node_runs(self, device):
        """Every call that a thread makes meanwhile gives up the GIL, or the host node could not end."""

        def node() -> None:
            for _ in range(50):
                time.sleep(0.001)

        g = counting()
        with calling(node).instantiate(device) as exe, g.instantiate(device) as other:
            other["out"][:] = 0

            def work() -> None:
                for _ in range(3):
                    exe.launch()
                    other.update(step=2.0)
                    other.node("add_to").update(block=32)
                    other.launch()
                    gd.to_device(device, np.zeros(64)).copy_to_host()
                    other.clone().close()
                    g.instantiate(device).close()
                    exe.synchronize()
                    other.synchronize()

            bounded(work)


class TestExceptions:
    @pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration])
    def test_each_is_raised_by_the_next_synchronise(self, device, kind):
        def fail() -> None:
            raise kind("no more")

        with calling(fail).instantiate(device) as exe:
            for _ in range(2):
                exe.launch()
                with pytest.raises(gd.CallbackError, match="no more") as caught:
                    bounded(exe.synchronize)
                assert type(caught.value.__cause__) is kind
                assert caught.value.node == "fail"
            exe.synchronize()

    def test_all_that_were_raised_are_told(self, device):
        numbers = iter(range(1000))

        def fail() -> None:
            raise ValueError(next(numbers))

        with calling(fail).instantiate(device) as exe:
            for _ in range(5):
                exe.launch()
            told = []
            for _ in range(5):
                with pytest.raises(gd.CallbackError) as caught:
                    bounded(exe.synchronize)
                told.append(caught.value.__cause__.args[0])
            exe.synchronize()
        assert told == [0, 1, 2, 3, 4]

    def test_what_nobody_asks_for_is_logged(self, device, caplog):
        def fail() -> None:
            raise ValueError("unheard")

        exe = calling(fail).instantiate(device)
        exe.launch()
        del exe
        gc.collect()
        bounded(lambda: wait_for(lambda: "unheard" in caplog.text))


class TestRefusedInHostNodes:
    @pytest.mark.parametrize(
        "call",
        [
            lambda exe, g, x: exe.launch(),
            lambda exe, g, x: exe.launch(0),
            lambda exe, g, x: exe.synchronize(),
            lambda exe, g, x: exe.update(step=5.0),
            lambda exe, g, x: exe.update({"step": 5.0}),
            lambda exe, g, x: exe.node("add_to").update(block=32),
            lambda exe, g, x: exe.node("add_to").disable(),
            lambda exe, g, x: exe.clone(),
            lambda exe, g, x: exe.close(),
            lambda exe, g, x: g.instantiate(exe.device),
            lambda exe, g, x: x.copy_to_host(),
            lambda exe, g, x: exe["x"].copy_from_host(np.zeros(64, np.float32)),
            lambda exe, g, x: gd.device_array(exe.device, 4, np.float32),
        ],
    )
    def test_driver_calls_are_refused_and_nothing_is_lost(self, device, call):
        refused: list[BaseException] = []
        g, x = counting(), gd.to_device(device, np.zeros(4))

        def node() -> None:
            try:
                call(other, g, x)
            except gd.GraphdslError as problem:
                refused.append(problem)

        with g.instantiate(device) as other, calling(node).instantiate(device) as exe:
            exe.launch()
            bounded(exe.synchronize)
            assert len(refused) == 1
            assert "a host node may make no driver calls" in str(refused[0])
            other["out"][:] = 0
            other.launch()
            bounded(other.synchronize)
            assert other["out"].tolist() == [1.0] * 64

    def test_of_its_own_exec_too(self, device):
        refused: list[BaseException] = []

        def node() -> None:
            for call in (exe.launch, exe.synchronize, exe.close):
                try:
                    call()
                except gd.GraphdslError as problem:
                    refused.append(problem)

        exe = calling(node).instantiate(device)
        exe.launch()
        bounded(exe.synchronize)
        bounded(exe.close)
        assert len(refused) == 3


class TestGarbage:
    def test_of_execs_and_memory_in_host_nodes(self, device):
        """A collection in a thread of the driver frees what it finds without calling the driver there."""

        class Cycle:
            def __init__(self, *kept: object) -> None:
                self.kept = kept
                self.itself = self

        with calling(gc.collect).instantiate(device) as exe:

            def work() -> None:
                for _ in range(5):
                    Cycle(counting().instantiate(device), gd.to_device(device, np.zeros(4)))
                    exe.launch()
                exe.synchronize()

            bounded(work)

    def test_of_execs_in_flight_in_other_threads(self, device):
        begun, go = threading.Event(), threading.Event()
        counted: list[int] = []

        def node() -> None:
            begun.set()
            go.wait(PATIENCE)
            counted.append(1)

        kept = [calling(node).instantiate(device)]
        kept[0].launch()
        assert begun.wait(PATIENCE)
        at_once(kept.clear, gc.collect, gc.collect)
        go.set()
        bounded(lambda: wait_for(lambda: counted))

    def test_of_an_exec_in_its_own_host_node(self, device):
        kept: list[object] = []
        counted: list[int] = []

        def node() -> None:
            kept.clear()
            gc.collect()
            counted.append(1)

        exe = calling(node).instantiate(device)
        kept.append(exe)
        exe.launch()
        del exe
        bounded(lambda: wait_for(lambda: counted))

    def test_of_execs_that_are_made_and_dropped_in_many_threads(self, device):
        def work() -> None:
            for _ in range(10):
                exe = counting().instantiate(device)
                exe["out"][:] = 0
                exe.launch()
                view = exe["out"]
                del exe
                assert view.shape == (64,)

        at_once(*[work] * 4)


def wait_for(condition) -> None:
    """Return once a condition holds; to be bounded."""
    while not condition():
        time.sleep(0.001)
