"""Forked children: an emulator works in them, whatever other threads of the parent did; CUDA says that it does not."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import graphdsl as gd
from graphdsl import forks
from graphdsl.compile import numba as compiler
from graphdsl.drivers.cuda import calling
from tests.bounded import PATIENCE, bounded, script
from tests.conformance import kernels
from tests.drivers.emulator.conftest import Bench

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def in_child(call: Callable[[], Any]) -> str:
    """What a call says in a forked child: nothing, or what went wrong; a child that hangs is ended."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            try:
                call()
                said = ""
            except BaseException as problem:
                said = f"{type(problem).__name__}: {problem}"
            os.write(write, said.encode())
        finally:
            os._exit(0)
    os.close(write)
    try:
        return bounded(lambda: os.read(read, 100_000).decode())
    except AssertionError:
        os.kill(child, 9)
        raise
    finally:
        os.close(read)
        os.waitpid(child, 0)


def demo() -> gd.Graph:
    g = gd.Graph("demo")
    gain = g.param("gain", np.float32, default=1.0)
    out = g.host_array("out", 8, np.float32)
    with g.sequence():
        g.memset(out, 1.0)
        g.kernel(kernels.add_to, grid=1, block=8, args=(out, gain, 8))
    return g


def run_demo(device: gd.emulator, gain: float) -> None:
    with demo().instantiate(device, values={"gain": gain}) as exe:
        exe.launch()
        exe.synchronize()
        assert exe["out"].tolist() == [1 + gain] * 8


@contextmanager
def at_work(work: Callable[[Callable[[], None]], Any]) -> Iterator[threading.Event]:
    """Another thread in the middle of ``work``, which calls what it is given there; gives what lets it go on."""
    begun, go = threading.Event(), threading.Event()

    def middle() -> None:
        begun.set()
        assert go.wait(PATIENCE)

    thread = threading.Thread(target=work, args=(middle,), daemon=True)
    thread.start()
    assert begun.wait(PATIENCE)
    try:
        yield go
    finally:
        go.set()
        thread.join(PATIENCE)


class TestEmulator:
    def test_an_exec_made_before_works_in_the_child_and_stays_as_it_is_in_the_parent(self):
        with demo().instantiate(gd.emulator()) as exe:
            exe.launch()
            exe.synchronize()

            def use() -> None:
                exe.update(gain=4.0)
                exe.launch()
                exe.synchronize()
                assert exe["out"].tolist() == [5.0] * 8
                exe.close()

            assert in_child(use) == ""
            exe.launch()
            exe.synchronize()
            assert exe["out"].tolist() == [2.0] * 8

    def test_while_another_thread_runs_a_kernel(self):
        device = gd.emulator()
        bench = Bench(device)

        def launch(middle: Callable[[], None]) -> None:
            def kernel():
                middle()

            graph, _ = bench.chain((device.graph_add_kernel_node, bench.kernel(bench.load(kernel))))
            bench.launch(graph)

        with at_work(launch):
            assert in_child(lambda: run_demo(device, 3.0)) == ""

    def test_while_a_host_node_is_in_flight(self):
        device = gd.emulator()

        def launch(middle: Callable[[], None]) -> None:
            g = gd.Graph("host")
            event = g.event("event")
            g.host(middle) >> g.record(event)
            with g.instantiate(device) as exe:
                kept.append(exe)
                exe.launch()
                exe.synchronize()

        kept: list[Any] = []
        with at_work(launch):

            def use() -> None:
                (exe,) = kept
                device.stream_synchronize(exe._stream)  # what was in flight is the parent's
                run_demo(device, 2.0)
                exe.close()

            assert in_child(use) == ""

    def test_in_a_host_node(self):
        said: list[str] = []
        device = gd.emulator()
        g = gd.Graph("host")
        g.host(lambda: said.append(in_child(lambda: run_demo(device, 2.0))))
        with g.instantiate(device) as exe:
            exe.launch()
            bounded(exe.synchronize)
        assert said == [""]

    def test_while_another_thread_compiles(self):
        def compile(middle: Callable[[], None]) -> None:
            with compiler._lock:
                middle()

        def fresh(x):
            x[0] = 1

        def use() -> None:
            g = gd.Graph("fresh")
            g.kernel(fresh, grid=1, block=1, args=(g.host_array("x", 1, np.float32),))
            g.instantiate(gd.emulator()).close()

        with at_work(compile) as go:
            threading.Timer(0.05, go.set).start()  # the fork waits for it: half of what Numba does is of no use
            assert in_child(use) == ""

    def test_while_another_thread_loads(self):
        from graphdsl.run import modules

        def load(middle: Callable[[], None]) -> None:
            with modules._lock:
                middle()

        with at_work(load):
            assert in_child(lambda: run_demo(gd.emulator(), 2.0)) == ""

    def test_releases_go_on_in_the_child(self):
        from graphdsl.drivers import releases
        from graphdsl.drivers.host_threads import host_function

        device = gd.emulator()
        with host_function():
            releases.release(lambda: None)  # starts the thread

        def use() -> None:
            kept = [gd.to_device(device, np.zeros(4))]
            with host_function():
                kept.clear()
            assert device.live["allocations"] == 0

        assert in_child(use) == ""


class Fragile(gd.drivers.emulator.Emulator):
    """An emulator that stays with its process, as CUDA does, and tells of calls that a child makes all the same."""

    survives_fork = False


class TestCuda:
    """What the package does about CUDA in a child; the driver's part is tested where there is one."""

    @pytest.mark.parametrize(
        "call",
        [
            lambda exe: exe.launch(),
            lambda exe: exe.launch(0),
            lambda exe: exe.synchronize(),
            lambda exe: exe.update(gain=2.0),
            lambda exe: exe.update({"gain": 2.0}),
            lambda exe: exe["out"],
            lambda exe: exe.node("add_to").update(block=16),
            lambda exe: exe.node("add_to").disable(),
            lambda exe: exe.clone(),
        ],
    )
    def test_each_use_of_an_exec_is_one_clear_error(self, call):
        with demo().instantiate(Fragile()) as exe:
            said = in_child(lambda: call(exe))
            assert said.startswith("ExecUnusableError")
            assert forks.RULE in said
            assert "spawn" in said
            exe.launch()

    def test_nothing_is_given_back_by_the_child(self):
        device = Fragile()
        kept = [demo().instantiate(device)]
        kept[0].launch()

        def drop() -> None:
            device.history.clear()
            with kept[0]:
                pass
            kept[0].close()
            calls = set(device.history)
            assert not calls, calls

        assert in_child(drop) == ""
        kept[0].close()

    def test_the_driver_is_not_asked(self, monkeypatch):
        monkeypatch.setattr(calling, "_is_forked", True)
        assert "forked" in (calling.unavailable() or "")
        with pytest.raises(gd.DriverError, match="spawn") as caught:
            calling.invoke(calling.driver.cuStreamSynchronize, 0)
        assert (caught.value.call, caught.value.code) == ("cuStreamSynchronize", 3)
        with pytest.raises(gd.GraphdslError, match="forked"):
            gd.cuda(0)

    @pytest.mark.parametrize(("answer", "lost"), [(None, True), ("no driver", False)])
    def test_only_what_was_started_is_lost(self, monkeypatch, answer, lost):
        monkeypatch.setattr(calling, "_is_forked", False)
        calls = calling.functools.cache(lambda: answer)
        monkeypatch.setattr(calling, "_initialised", calls)
        calling._note_fork()
        assert not calling._is_forked
        calls()
        calling._note_fork()
        assert calling._is_forked is lost


@pytest.mark.gpu
def test_on_a_gpu():
    assert "done" in script(
        """
import gc, os
import numpy as np
import graphdsl as gd
from tests.conformance.test_threads import counting

device = gd.cuda(0)
exe = counting().instantiate(device)
exe["out"][:] = 0
exe.launch()
array = gd.to_device(device, np.zeros(4))
child = os.fork()
if not child:
    for call in (exe.launch, exe.synchronize, lambda: exe.update(step=2.0), lambda: exe["out"], array.copy_to_host,
                 lambda: counting().instantiate(device), lambda: gd.cuda(0)):
        try:
            call()
        except gd.GraphdslError as problem:
            assert "fork" in str(problem), problem
        else:
            os._exit(3)
    exe.close()
    del exe, array
    gc.collect()
    raise SystemExit(0)  # through the end of the interpreter
_, status = os.waitpid(child, 0)
assert status == 0, status
exe.synchronize()
assert exe["out"].tolist() == [1.0] * 64
exe.close()
print("done")
"""
    )
