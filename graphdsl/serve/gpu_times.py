"""How long launches keep the GPU busy: a few of them, between two events in their stream.

Nobody waits: a pair of events is read at a later launch, once the GPU is done with both. This module must not know
which bucket a launch is of.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from graphdsl.errors import DriverError
from graphdsl.forks import Lock
from graphdsl.run.events import OwnEvent
from graphdsl.run.stream import stream_handle

if TYPE_CHECKING:
    from graphdsl.drivers.base import Driver, Handle

_MOST_WAITING = 16
"""Pairs that were recorded and not read: beyond that, the GPU is far behind, and nothing is measured."""


class Pair:
    """Two events of one device, around a launch."""

    __slots__ = ("begin", "device", "end", "take")

    def __init__(self, device: Driver) -> None:
        self.device = device
        self.begin = OwnEvent("begin", True, device)
        self.end = OwnEvent("end", True, device)
        self.take: Callable[[float], None] = _forget


class GpuTimes:
    """Measures one launch in so many, and not more often than at some interval.

    Parameters
    ----------
    every : int
        One launch in so many of each counter is measured. The first is not: it finds caches cold.
    interval : float
        Seconds between two measurements at least, of all launches together.
    clock : callable
        Gives seconds.

    Notes
    -----
    Two events cost the processor and the GPU a few microseconds each, and are paid once in ``every`` launches and once
    in ``interval`` at most: with 64 and 5 ms that should be below 0.2 % of the time, however short the graphs are. What
    `graphdsl.bench.observed` measured on an H200 is in docs/gpu/observed.json.
    """

    def __init__(self, every: int = 64, interval: float = 0.005, clock: Callable[[], float] = monotonic) -> None:
        self.every = every
        self._interval = interval
        self._clock = clock
        self._next = 0.0
        self._free: list[Pair] = []
        self._waiting: deque[Pair] = deque()
        self._lock = Lock()

    def is_due(self, number: int) -> bool:
        """True if a launch is to be measured: the ``number``-th of its kind, counted from 0."""
        return number % self.every == min(1, self.every - 1) and self._clock() >= self._next

    def begin(self, device: Driver, stream: Any, take: Callable[[float], None]) -> Callable[[], None] | None:
        """Begin to measure the launch that comes next in a stream.

        Parameters
        ----------
        device : Driver
            The device of the stream.
        stream : int or object
            Where the launch goes.
        take : callable
            Given the seconds once they are known, by whatever thread asks then.

        Returns
        -------
        callable or None
            To be called right after the launch, and not at all if it was refused. None if nothing is measured: another
            thread was faster, the GPU is far behind, or the driver refuses, as it does in a recorded stream.
        """
        with self._lock:
            now = self._clock()
            if now < self._next:
                return None
            self._next = now + self._interval
        self.poll()
        with self._lock:
            if len(self._waiting) >= _MOST_WAITING:
                return None
            pair = next((each for each in self._free if each.device is device), None)
            if pair is not None:
                self._free.remove(pair)
        handle = stream_handle(stream)
        try:
            pair = pair or Pair(device)
            device.event_record(pair.begin.handle, handle)
        except DriverError:
            return None
        pair.take = take
        return lambda: self._end(pair, handle)

    def _end(self, pair: Pair, stream: Handle) -> None:
        try:
            pair.device.event_record(pair.end.handle, stream)
        except DriverError:  # which the launch, or whoever waits for it, tells better
            return
        with self._lock:
            self._waiting.append(pair)

    def close(self) -> None:
        """Read what is done, and give the events of the pairs back that are not in use."""
        self.poll()
        with self._lock:
            self._free.clear()

    def poll(self) -> None:
        """Read the pairs that the GPU is done with."""
        with self._lock:
            waiting, self._waiting = self._waiting, deque()
        for pair in waiting:
            try:
                done = pair.device.event_query(pair.end.handle)
                seconds = pair.device.event_elapsed_time(pair.begin.handle, pair.end.handle) / 1e3 if done else 0.0
            except DriverError:  # a launch failed: its events tell nothing, and are destroyed
                continue
            if done:
                take, pair.take = pair.take, _forget
                take(seconds)
            with self._lock:
                (self._free if done else self._waiting).append(pair)


def _forget(seconds: float) -> None:
    """Nobody asked."""
