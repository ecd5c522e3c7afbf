"""How times are taken: repeatedly, after a warm-up, in samples long enough for the clock; and how they are summed up.

All times are in microseconds. Clocks are passed in, so that tests need not wait. This module must know nothing of
graphs.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Clock = Callable[[], int]
"""Gives nanoseconds, as `time.perf_counter_ns` does."""

Action = Callable[[], Any]
Samples = dict[str, list[float]]
"""Metrics by name: what was measured, once for each time."""

_SHORTEST_SAMPLE_NS = 20_000  # a clock that reads to 0.1 µs is then right to half a percent


@dataclass(frozen=True)
class Budget:
    """How long to measure one thing.

    Attributes
    ----------
    seconds : float
        After which no further sample is begun.
    least, most : int
        How many samples there are, however long they take, and however short.
    """

    seconds: float
    least: int
    most: int


FULL = Budget(0.15, 5, 300)
QUICK = Budget(0.02, 3, 30)


@dataclass(frozen=True)
class Spread:
    """What samples say: the middle, and the range that four of five lie in.

    Attributes
    ----------
    median, low, high : float
        The median, the tenth and the ninetieth percentile.
    count : int
        Number of samples.
    """

    median: float
    low: float
    high: float
    count: int


def spread(samples: Sequence[float]) -> Spread:
    """Median and percentiles of samples.

    Examples
    --------
    >>> spread(range(11))
    Spread(median=5.0, low=1.0, high=9.0, count=11)
    """
    low, median, high = (float(value) for value in np.percentile(samples, [10, 50, 90]))
    return Spread(median, low, high, len(samples))


def rounds(budget: Budget, clock: Clock = time.perf_counter_ns) -> Iterator[int]:
    """Count 0, 1, 2, … for as long as the budget lasts."""
    start = clock()
    for number in range(budget.most):
        if number >= budget.least and clock() - start > 1e9 * budget.seconds:
            return
        yield number


def timed(action: Action, clock: Clock = time.perf_counter_ns) -> float:
    """How long one call takes, the clock's own cost included."""
    start = clock()
    action()
    return (clock() - start) / 1e3


def clock_cost(clock: Clock = time.perf_counter_ns) -> float:
    """What reading the clock twice takes; a time of a single call is that much too long."""
    return statistics.median((-clock() + clock()) / 1e3 for _ in range(101))


def repeated(action: Action, budget: Budget, clock: Clock = time.perf_counter_ns) -> list[float]:
    """Time an action again and again; gives the time of one call, once for each sample.

    A sample holds as many calls as the clock needs to be precise. The calls that find this out are the warm-up.
    """
    calls = _calls_a_sample(action, clock)
    found = []
    for _ in rounds(budget, clock):
        start = clock()
        for _ in range(calls):
            action()
        found.append((clock() - start) / 1e3 / calls)
    return found


def _calls_a_sample(action: Action, clock: Clock) -> int:
    calls = 1
    action()
    while True:
        start = clock()
        for _ in range(calls):
            action()
        if clock() - start >= _SHORTEST_SAMPLE_NS:
            return calls
        calls *= 2


def launched(launch: Action, synchronize: Action, clock: Clock = time.perf_counter_ns) -> tuple[float, float]:
    """Processor time of a launch into an idle stream, and the time until its work is done."""
    start = clock()
    launch()
    returned = clock()
    synchronize()
    ended = clock()
    return (returned - start) / 1e3, (ended - start) / 1e3


def launches(
    launch: Action, synchronize: Action, budget: Budget, clock: Clock = time.perf_counter_ns
) -> dict[str, list[float]]:
    """`launched`, repeated: the metrics ``repeat_launch_api`` and ``repeat_launch_total``.

    The clock's own cost is taken off, because a launch takes little longer than to read it twice.
    """
    cost = clock_cost(clock)
    for _ in range(3):
        launched(launch, synchronize, clock)
    pairs = [launched(launch, synchronize, clock) for _ in rounds(budget, clock)]
    return {
        "repeat_launch_api": [api - cost for api, _ in pairs],
        "repeat_launch_total": [total - cost for _, total in pairs],
    }


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep Python's garbage collector from running in the middle of a measurement, as `timeit` does."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# Whether something stays as fast and as small as it was


def every_call(action: Action, calls: int, clock: Clock = time.perf_counter_ns) -> np.ndarray[Any, Any]:
    """The time of each of many calls."""
    times = np.ones(calls)  # written, so that its pages are there before memory is looked at
    for index in range(calls):
        start = clock()
        action()
        times[index] = clock() - start
    times /= 1e3
    return times


def around(times: np.ndarray[Any, Any], call: int, width: int = 50) -> list[float]:
    """The times of the calls around one, by its number; fewer at the ends.

    Examples
    --------
    >>> around(np.arange(100.0), 10, width=2)
    [8.0, 9.0, 10.0, 11.0, 12.0]
    """
    found: list[float] = times[max(call - width, 0) : call + width + 1].tolist()
    return found


def flatness(action: Action, calls: int, clock: Clock = time.perf_counter_ns) -> Samples:
    """Whether an action that is called often costs the same in the end as in the beginning.

    Returns
    -------
    dict of str to list of float
        ``begin`` and ``end``: times of the first and the last hundredth of the calls. ``rss_growth``: bytes that the
        process grew by in the calls after the first hundredth, where the machine tells. ``heap_growth``: bytes of
        Python objects that are left of 10,000 further calls.
    """
    hundredth = max(calls // 100, 1)
    with no_collection():
        first = every_call(action, hundredth, clock)
        before = resident_bytes()
        rest = every_call(action, max(calls - hundredth, hundredth), clock)
        after = resident_bytes()
        found = {"begin": first.tolist(), "end": rest[-hundredth:].tolist(), "heap_growth": [heap_growth(action)]}
    if before is not None and after is not None:
        found["rss_growth"] = [float(after - before - rest.nbytes)]
    return found


def heap_growth(action: Action, calls: int = 10_000) -> float:
    """Bytes of Python objects that calls leave behind, beyond what the first of them do."""
    tracemalloc.start()
    try:
        before = _left_after(action, 100)
        after = _left_after(action, calls)
    finally:
        tracemalloc.stop()
    return float(after - before)


def _left_after(action: Action, calls: int) -> int:
    for _ in range(calls):
        action()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def resident_bytes() -> int | None:
    """Memory of this process; None where the machine does not tell."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
