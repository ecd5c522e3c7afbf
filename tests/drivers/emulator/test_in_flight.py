"""Launches with host nodes are in flight until something waits for them, and nothing overtakes them."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from graphdsl.drivers.emulator import Emulator
from graphdsl.errors import DriverError
from tests.bounded import PATIENCE, at_once, bounded
from tests.drivers.emulator.conftest import Bench


class Blocked:
    """A launch whose host node waits until it may go on, with a memset of an integer behind it."""

    def __init__(self, bench: Bench) -> None:
        device = bench.device
        self.bench = bench
        self.started, self.go = threading.Event(), threading.Event()
        self.seen: list[str] = []
        self.address = bench.upload(np.zeros(1, np.int32))
        self.graph, (self.host, self.memset) = bench.chain(
            (device.graph_add_host_node, bench.host(self.wait)),
            (device.graph_add_memset_node, bench.memset(self.address, 7, 1)),
        )
        self.exec = bench.launch(self.graph)

    def wait(self, data: int | None) -> None:
        self.started.set()
        self.seen.append("begun")
        assert self.go.wait(PATIENCE)
        self.seen.append("ended")

    def value(self, stream: int) -> int:
        found = np.zeros(1, np.int32)
        self.bench.device.memcpy_dtoh(found, self.address, stream)
        return int(found[0])


@pytest.fixture
def blocked(bench: Bench) -> Iterator[Blocked]:
    made = Blocked(bench)
    yield made
    made.go.set()
    bench.device.stream_synchronize(bench.stream)


def waits(blocked: Blocked, call) -> bool:
    """True if a call ends only once the host node has."""
    ended: list[str] = []

    def after() -> None:
        call()
        ended.extend(blocked.seen)

    thread = threading.Thread(target=after, daemon=True)
    thread.start()
    thread.join(0.05)
    blocked.go.set()
    thread.join(PATIENCE)
    return ended == ["begun", "ended"]


def test_a_launch_returns_before_its_host_node_has(blocked: Blocked) -> None:
    assert blocked.started.wait(PATIENCE)
    assert blocked.seen == ["begun"]
    blocked.go.set()
    blocked.bench.device.stream_synchronize(blocked.bench.stream)
    assert blocked.seen == ["begun", "ended"]
    assert blocked.value(blocked.bench.stream) == 7


@pytest.mark.parametrize(
    "call", ["stream_synchronize", "memcpy_dtoh", "memcpy_htod", "graph_upload", "event_synchronize"]
)
def test_what_follows_it_in_its_stream_waits(blocked: Blocked, call: str) -> None:
    device, stream = blocked.bench.device, blocked.bench.stream
    event = device.event_create()
    device.event_record(event, stream)
    array = np.zeros(1, np.int32)
    calls = {
        "stream_synchronize": lambda: device.stream_synchronize(stream),
        "memcpy_dtoh": lambda: device.memcpy_dtoh(array, blocked.address, stream),
        "memcpy_htod": lambda: device.memcpy_htod(blocked.address, array, stream),
        "graph_upload": lambda: device.graph_upload(blocked.exec, device.stream_create()),
        "event_synchronize": lambda: device.event_synchronize(event),
    }
    assert waits(blocked, calls[call])


def test_other_streams_go_on(blocked: Blocked) -> None:
    device, other = blocked.bench.device, blocked.bench.device.stream_create()
    assert blocked.started.wait(PATIENCE)
    bounded(lambda: device.stream_synchronize(other))
    assert blocked.value(other) == 0
    memset = blocked.bench.memset(blocked.address, 3, 1)
    graph, _ = blocked.bench.chain((device.graph_add_memset_node, memset))
    bounded(lambda: device.graph_launch(device.graph_instantiate_with_params(graph), other))
    assert blocked.value(other) == 3


def test_events_tell_whether_it_has_ended(blocked: Blocked) -> None:
    device, stream = blocked.bench.device, blocked.bench.stream
    event, other = device.event_create(), device.event_create()
    assert device.event_query(event)
    device.event_record(event, stream)
    device.event_record(other, device.stream_create())
    assert not device.event_query(event)
    assert device.event_query(other)
    blocked.go.set()
    device.event_synchronize(event)
    assert device.event_query(event)


def test_launches_follow_it_in_its_stream_and_those_of_its_exec_anywhere(blocked: Blocked) -> None:
    bench, device = blocked.bench, blocked.bench.device
    counted: list[str] = []
    graph, _ = bench.chain((device.graph_add_host_node, bench.host(lambda data: counted.append("other exec"))))
    bounded(lambda: bench.launch(graph))
    other = device.stream_create()
    bounded(lambda: device.graph_launch(blocked.exec, other))
    plain, _ = bench.chain((device.graph_add_memset_node, bench.memset(blocked.address, 9, 1)))
    bounded(lambda: bench.launch(plain))
    assert blocked.started.wait(PATIENCE)
    assert (counted, blocked.seen) == ([], ["begun"])
    blocked.go.set()
    device.stream_synchronize(bench.stream)
    assert counted == ["other exec"]
    device.stream_synchronize(other)
    assert blocked.seen == ["begun", "ended"] * 2


def test_updates_change_only_launches_that_follow(blocked: Blocked) -> None:
    device, stream = blocked.bench.device, blocked.bench.stream
    device.graph_exec_memset_node_set_params(blocked.exec, blocked.memset, blocked.bench.memset(blocked.address, 8, 1))
    blocked.go.set()
    assert blocked.value(stream) == 7
    device.graph_launch(blocked.exec, stream)
    assert blocked.value(stream) == 8


def test_what_it_uses_may_be_destroyed_meanwhile(blocked: Blocked) -> None:
    device, bench = blocked.bench.device, blocked.bench
    other = device.stream_create()
    device.graph_launch(blocked.exec, other)
    device.graph_exec_destroy(blocked.exec)
    device.graph_destroy(blocked.graph)
    blocked.go.set()
    device.stream_synchronize(other)
    device.stream_destroy(other)
    assert blocked.value(bench.stream) == 7


def test_a_fault_in_it_ends_what_follows_and_is_told_once(bench: Bench) -> None:
    device = bench.device
    blocked = Blocked(bench)
    device.mem_free(blocked.address)
    counted: list[int | None] = []
    graph, _ = bench.chain((device.graph_add_host_node, bench.host(counted.append)))
    bench.launch(graph)
    blocked.go.set()
    with pytest.raises(DriverError) as caught:
        device.stream_synchronize(bench.stream)
    assert (caught.value.code, caught.value.node_handle) == (700, blocked.memset)
    assert counted == []
    device.stream_synchronize(bench.stream)


def test_a_host_node_may_wait_for_a_thread_that_calls_the_emulator(bench: Bench) -> None:
    device, called = bench.device, threading.Event()
    graph, _ = bench.chain((device.graph_add_host_node, bench.host(lambda data: called.wait(PATIENCE))))

    def launch() -> None:
        bench.launch(graph)
        device.stream_synchronize(bench.stream)

    def call() -> None:
        device.mem_free(device.mem_alloc(64))
        called.set()

    at_once(launch, call)


def test_many_streams_at_once() -> None:
    """Each thread has an exec and a stream, and the host nodes of all count in one list."""
    bench = Bench(Emulator())
    counted: list[int | None] = []
    rounds, many = 25, 8

    def work(number: int) -> None:
        mine = Bench(bench.device)
        graph, _ = mine.chain((mine.device.graph_add_host_node, mine.host(counted.append, number + 1)))
        graph_exec = mine.device.graph_instantiate_with_params(graph)
        for _ in range(rounds):
            mine.device.graph_launch(graph_exec, mine.stream)
        mine.device.stream_synchronize(mine.stream)

    at_once(*(lambda number=number: work(number) for number in range(many)))
    assert sorted(counted) == sorted([*range(1, many + 1)] * rounds)  # type: ignore[type-var]
