"""One exec in several threads: its calls come one after the other, and what breaks that is refused."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.drivers.emulator import Emulator
from graphdsl.run.turns import Turns
from tests.bounded import PATIENCE, at_once, bounded
from tests.conformance import kernels


class Stopping(Emulator):
    """Stops in the middle of a driver function, where it is told to, until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.stop_in = ""
        self.stopped, self.go = threading.Event(), threading.Event()

    def _pass(self, function: str) -> None:
        if self.stop_in == function:
            self.stop_in = ""
            self.stopped.set()
            assert self.go.wait(PATIENCE)

    def graph_launch(self, graph_exec: int, stream: int) -> None:
        self._pass("launch")
        super().graph_launch(graph_exec, stream)

    def graph_exec_set_params(self, *args) -> None:
        self._pass("update")
        super().graph_exec_set_params(*args)

    def stream_synchronize(self, stream: int) -> None:
        self._pass("synchronize")
        super().stream_synchronize(stream)


def adding() -> gd.Graph:
    """Adds ``gain`` and ``k`` to ``out``, and counts in a host node."""
    g = gd.Graph("adding")
    gain, k = g.param("gain", np.float32, default=1.0), g.param("k", np.float32, default=0.0)
    out = g.host_array("out", 4, np.float32)
    with g.sequence():
        g.kernel(kernels.add_to, grid=1, block=4, args=(out, gain, 4), name="first")
        g.kernel(kernels.add_to, grid=1, block=4, args=(out, k * 2, 4), name="second")
    return g


@contextmanager
def stopped(device: Stopping, where: str, call: Callable[[], object]) -> Iterator[None]:
    """While another thread is in the middle of a call."""
    device.stop_in = where
    failures: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as problem:
            failures.append(problem)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert device.stopped.wait(PATIENCE)
    try:
        yield
    finally:
        device.go.set()
        thread.join(PATIENCE)
    assert not failures


IN_THE_MIDDLE = {
    "launch": lambda exe: exe.launch(),
    "launch into a stream": lambda exe: exe.launch(0),
    "update": lambda exe: exe.update(gain=2.0),
    "update of many": lambda exe: exe.update(gain=2.0, k=3.0),
    "update of a node": lambda exe: exe.node("first").update(args={"value": 2.0}),
    "update of another field": lambda exe: exe.node("first").update(block=2),
}
REFUSED = {
    **IN_THE_MIDDLE,
    "disable": lambda exe: exe.disable("first"),
    "disable a node": lambda exe: exe.node("first").disable(),
    "preflight": lambda exe: exe.preflight(gain=5.0),
    "update from": lambda exe: exe.update_from(adding()),
    "close": lambda exe: exe.close(),
}


@pytest.mark.parametrize("middle", IN_THE_MIDDLE)
@pytest.mark.parametrize("refused", REFUSED)
def test_a_call_in_the_middle_of_another_threads_is_refused(middle, refused):
    device = Stopping()
    with adding().instantiate(device) as exe:
        exe["out"][:] = 0
        exe.update(k=1.0)
        exe.node("first").update(args={"value": 1.0}) if "node" in middle else None
        with stopped(device, middle.split()[0], lambda: IN_THE_MIDDLE[middle](exe)):
            with pytest.raises(gd.GraphdslError, match="one after the other") as caught:
                bounded(lambda: REFUSED[refused](exe))
            assert "clone" in caught.value.remedy
        exe.node("first").update(block=4)
        exe.update(gain=8.0, k=4.0)
        exe.node("first").update(args=(exe.node("first").node.args[0], 8.0, 4))
        exe.synchronize()
        exe["out"][:] = 0
        exe.launch()
        exe.synchronize()
        assert exe["out"].tolist() == [16.0] * 4


@pytest.mark.parametrize("middle", IN_THE_MIDDLE)
def test_waiting_and_reading_are_not(middle):
    device = Stopping()
    with adding().instantiate(device) as exe:
        exe["out"][:] = 0
        exe.launch()
        with stopped(device, middle.split()[0], lambda: IN_THE_MIDDLE[middle](exe)):
            bounded(exe.synchronize)
            assert exe["out"].tolist() == [1.0] * 4
            assert exe["k"] in (0.0, 3.0)


@pytest.mark.parametrize("middle", IN_THE_MIDDLE)
def test_a_clone_waits_for_the_call_of_another_thread(middle):
    device = Stopping()
    with adding().instantiate(device) as exe:
        exe["out"][:] = 0
        made: list = []
        with stopped(device, middle.split()[0], lambda: IN_THE_MIDDLE[middle](exe)):
            thread = threading.Thread(target=lambda: made.append(exe.clone()), daemon=True)
            thread.start()
            thread.join(0.05)
            assert not made
        thread.join(PATIENCE)
        (clone,) = made
        with clone:
            assert (clone["gain"], clone["k"]) == (exe["gain"], exe["k"])
            assert clone.node("first").node.block == exe.node("first").node.block


def test_clones_are_made_at_once_while_another_thread_launches():
    with adding().instantiate(gd.emulator()) as exe:
        exe["out"][:] = 0
        done = threading.Event()

        def use() -> None:
            number = 0
            while not done.is_set():
                number += 1
                exe.update(gain=float(number), k=float(number))
                exe.launch()

        def clone() -> None:
            try:
                for _ in range(10):
                    with exe.clone() as made:
                        assert made["gain"] == made["k"] or made["k"] == 0.0
            finally:
                cloned.append(1)
                if len(cloned) == 3:
                    done.set()

        cloned: list[int] = []
        at_once(use, clone, clone, clone)


def test_calls_in_the_middle_of_a_wait_are_not_but_for_closing():
    device = Stopping()
    with adding().instantiate(device) as exe:
        exe["out"][:] = 0
        exe.launch()
        with stopped(device, "synchronize", exe.synchronize):
            bounded(lambda: exe.update(gain=5.0))
            bounded(exe.launch)
            with pytest.raises(gd.GraphdslError, match="waiting"):
                bounded(exe.close)
        assert exe._pending  # the launch in the middle of the wait has not been waited for
        exe.synchronize()
        assert not exe._pending
        assert exe["out"].tolist() == [6.0] * 4


def test_what_a_launch_in_flight_uses_is_kept_while_another_thread_waits():
    """An update in the middle of a wait must not take it that nothing is in flight."""
    device = Stopping()
    g = gd.Graph("kept")
    begun, go = threading.Event(), threading.Event()
    n = g.param("n", np.int32, default=1)
    seen: list[int] = []

    def node(number: int) -> None:
        begun.set()
        go.wait(PATIENCE)
        seen.append(number)

    g.host(node, (n,))
    with g.instantiate(device) as exe:
        exe.launch()
        assert begun.wait(PATIENCE)
        with stopped(device, "synchronize", exe.synchronize):
            exe.update(n=2)
            assert len(exe._retired._waiting) == 1
            go.set()
        exe.launch()
        exe.synchronize()
        assert not exe._retired._waiting
    assert seen == [1, 2]


def test_calls_of_the_same_thread_are_part_of_each_other():
    turns = Turns("exec")
    with turns.taken("updating"):
        with turns.taken("closing"):
            pass
        with pytest.raises(gd.GraphdslError, match="another thread"):
            at_once(lambda: turns.claim("launching"))
    assert at_once(lambda: turns.claim("launching")) == [None]


def test_a_call_that_fails_gives_the_turn_back():
    with adding().instantiate(gd.emulator()) as exe:
        fail = [lambda: exe.update(gain="a"), lambda: exe.node("first").update(block=5000), lambda: exe.launch("s")]
        for call in fail:
            with pytest.raises(gd.GraphdslError):
                call()
            at_once(exe.launch)
        exe.synchronize()


def test_one_thread_launches_and_another_waits():
    counted: list[int] = []
    g = gd.Graph("counting")
    g.host(lambda: counted.append(1))
    many = 150
    with g.instantiate(gd.emulator()) as exe:
        launched = threading.Event()

        def launch() -> None:
            for _ in range(many):
                exe.launch()
            launched.set()

        def wait() -> None:
            while not launched.is_set():
                exe.synchronize()
            exe.synchronize()
            assert len(counted) == many

        at_once(launch, wait)


def test_threads_that_do_not_take_turns_break_nothing():
    """Whatever is refused to whom, the exec is what the updates that were not refused made of it."""
    device = gd.emulator()
    with adding().instantiate(device) as exe:
        exe["out"][:] = 0

        def work(number: int) -> None:
            for i in range(50):
                for call in (lambda i=i: exe.update(gain=float(number), k=float(i)), exe.launch):
                    try:
                        call()
                    except gd.GraphdslError as problem:
                        refused.append(str(problem))

        refused: list[str] = []
        at_once(*(lambda number=number: work(number) for number in range(4)))
        assert all("one after the other" in text for text in refused)
        exe.synchronize()
        gain, k = exe["gain"], exe["k"]
        exe["out"][:] = 0
        exe.launch()
        exe.synchronize()
        assert exe["out"].tolist() == [gain + 2 * k] * 4


def test_threads_take_turns_with_a_lock():
    lock = threading.Lock()
    with adding().instantiate(gd.emulator()) as exe:
        exe["out"][:] = 0

        def work(number: int) -> None:
            for _ in range(20):
                with lock:
                    exe.update(gain=float(number))
                    exe.launch()

        at_once(*(lambda number=number: work(number) for number in range(4)))
        exe.synchronize()
        assert exe["out"].tolist() == [20.0 * (0 + 1 + 2 + 3)] * 4


class Interrupt(BaseException):
    pass


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timers")
def test_an_interrupt_of_a_wait_forgets_nothing():
    """Ctrl-C while the program waits: what is in flight still is, and can be waited for."""
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals are for the main thread")

    def interrupt(*_: object) -> None:
        raise Interrupt

    begun, go = threading.Event(), threading.Event()
    counted: list[int] = []

    def node() -> None:
        begun.set()
        go.wait(PATIENCE)
        counted.append(1)

    g = gd.Graph("interrupted")
    g.host(node)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with g.instantiate(gd.emulator()) as exe:
            exe.launch()
            assert begun.wait(PATIENCE)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(Interrupt):
                exe.synchronize()
            assert exe._pending
            go.set()
            exe.synchronize()
            assert counted == [1]
            exe.launch()
            exe.synchronize()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert counted == [1, 1]


def test_failures_that_nobody_asks_for_do_not_fill_the_memory():
    def fail() -> None:
        raise ValueError("again")

    g = gd.Graph("failing")
    g.host(fail)
    with g.instantiate(gd.emulator()) as exe:
        for _ in range(130):
            exe.launch()
        told = []
        for _ in range(100):
            with pytest.raises(gd.CallbackError) as caught:
                exe.synchronize()
            told.append(str(caught.value))
        exe.synchronize()
    assert sum("more raised" in text for text in told) == 1
    assert "30 calls more raised" in told[-1]
