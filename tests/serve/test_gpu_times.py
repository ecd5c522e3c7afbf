"""GPU time: which launches are measured, and that nobody waits for it."""

from __future__ import annotations

import gc

import pytest

from graphdsl.drivers.results import driver_error
from graphdsl.serve.gpu_times import GpuTimes


class Gpu:
    """A device whose clock goes on with what is recorded, and whose events are done when it is told so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.done: set[int] = set()
        self.alive: set[int] = set()
        self.recorded: dict[int, float] = {}
        self.refusing = ""
        self._next = 0

    def event_create(self, timing: bool = False) -> int:
        assert timing
        self._next += 1
        self.alive.add(self._next)
        return self._next

    def event_destroy(self, event: int) -> None:
        self.alive.remove(event)

    def event_record(self, event: int, stream: int) -> None:
        if self.refusing == "record":
            raise driver_error("cuEventRecord", 900)
        assert stream == 7
        self.recorded[event] = self.now
        self.done.discard(event)

    def event_query(self, event: int) -> bool:
        if self.refusing == "query":
            raise driver_error("cuEventQuery", 700)
        return event in self.done

    def event_elapsed_time(self, start: int, end: int) -> float:
        assert {start, end} <= self.done
        return (self.recorded[end] - self.recorded[start]) * 1e3

    def event_synchronize(self, event: int) -> None:
        raise AssertionError("nobody waits")

    def finish(self) -> None:
        self.done |= self.recorded.keys()


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def measure(times: GpuTimes, gpu: Gpu, seconds: float, taken: list[float]) -> bool:
    ended = times.begin(gpu, 7, taken.append)
    gpu.now += seconds
    if ended is not None:
        ended()
    return ended is not None


def test_one_in_so_many_is_measured_but_not_the_first():
    times = GpuTimes(every=64, interval=0)
    assert [number for number in range(200) if times.is_due(number)] == [1, 65, 129, 193]
    assert all(GpuTimes(every=1, interval=0).is_due(number) for number in range(3))


def test_not_more_often_than_at_the_interval():
    clock, gpu, taken = Clock(), Gpu(), []
    times = GpuTimes(every=1, interval=0.01, clock=clock)
    found = []
    for _ in range(30):
        found.append(times.is_due(0) and measure(times, gpu, 0.001, taken))
        gpu.finish()
        clock.now += 0.001
    assert found.count(True) == 3


def test_a_pair_is_read_once_it_is_done_and_used_again():
    gpu, taken = Gpu(), []
    times = GpuTimes(every=1, interval=0)
    assert measure(times, gpu, 0.25, taken)
    times.poll()
    assert taken == []  # the GPU is not done, and nobody waits
    gpu.finish()
    times.poll()
    times.poll()
    assert taken == [0.25]
    assert measure(times, gpu, 0.5, taken)
    gpu.finish()
    times.poll()
    assert taken == [0.25, 0.5]
    assert len(gpu.alive) == 2


def test_a_gpu_that_is_far_behind_is_not_given_more_events():
    gpu, taken = Gpu(), []
    times = GpuTimes(every=1, interval=0)
    assert sum(measure(times, gpu, 0.1, taken) for _ in range(100)) == 16
    gpu.finish()
    times.poll()
    assert len(taken) == 16
    assert len(gpu.alive) == 32


@pytest.mark.parametrize("refusing", ["record", "query"])
def test_what_the_driver_refuses_is_not_measured_and_leaves_nothing(refusing):
    gpu, taken = Gpu(), []
    times = GpuTimes(every=1, interval=0)
    gpu.refusing = refusing
    measure(times, gpu, 0.1, taken)
    times.poll()
    gc.collect()
    assert taken == []
    assert gpu.alive == set()


def test_a_launch_that_was_refused_gives_its_events_up():
    gpu, taken = Gpu(), []
    times = GpuTimes(every=1, interval=0)
    assert times.begin(gpu, 7, taken.append) is not None  # and nobody calls what it gives
    gc.collect()
    times.poll()
    assert gpu.alive == set()


def test_events_are_of_the_device_of_the_stream():
    one, other, taken = Gpu(), Gpu(), []
    times = GpuTimes(every=1, interval=0)
    for gpu in (one, other, one):
        measure(times, gpu, 0.1, taken)
        gpu.finish()
        times.poll()
    assert (len(one.alive), len(other.alive), len(taken)) == (2, 2, 3)
