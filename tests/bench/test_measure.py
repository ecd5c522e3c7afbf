"""Times are taken with clocks that stand still until something moves them."""

import gc
from itertools import count

import numpy as np
import pytest

from graphdsl.bench import measure
from graphdsl.bench.measure import Budget


class Clock:
    """Gives nanoseconds; moves by itself at each look, and by what actions take."""

    def __init__(self, look: int = 0) -> None:
        self.now, self.look = 0, look

    def __call__(self) -> int:
        self.now += self.look
        return self.now

    def taking(self, nanoseconds):
        """An action that takes so long, or one after the other so long."""
        times = iter(nanoseconds) if hasattr(nanoseconds, "__iter__") else None

        def action():
            self.now += nanoseconds if times is None else next(times)

        return action


def test_one_call_is_timed_in_microseconds():
    clock = Clock()
    assert measure.timed(clock.taking(2500), clock) == 2.5


def test_short_actions_are_batched_until_a_sample_is_long_enough():
    clock, calls = Clock(), count()
    action = clock.taking(100)

    def counted():
        next(calls)
        action()

    samples = measure.repeated(counted, Budget(0.0, 4, 4), clock)
    assert samples == [pytest.approx(0.1)] * 4
    batch = 256  # the first power of two whose calls take 20 µs
    assert next(calls) == 1 + (2 * batch - 1) + 4 * batch  # a first call, the search, the samples


def test_long_actions_are_not_batched():
    clock = Clock()
    assert measure.repeated(clock.taking(50_000_000), Budget(0.1, 2, 9), clock) == [50_000.0] * 3


@pytest.mark.parametrize(("budget", "expected"), [((1.0, 1, 100), 10), ((0.0, 3, 100), 3), ((9.0, 1, 5), 5)])
def test_a_budget_bounds_the_rounds(budget, expected):
    clock = Clock()
    wait = clock.taking(101_000_000)
    assert [(number, wait())[0] for number in measure.rounds(Budget(*budget), clock)] == list(range(expected))


def test_a_launch_is_timed_to_its_return_and_to_its_end():
    clock = Clock()
    assert measure.launched(clock.taking(2_000), clock.taking(7_000), clock) == (2.0, 9.0)


def test_what_the_clock_costs_is_taken_off_a_launch():
    clock = Clock(look=100)
    found = measure.launches(clock.taking(2_000), clock.taking(7_000), Budget(0.0, 5, 5), clock)
    assert found["repeat_launch_api"] == [pytest.approx(2.0)] * 5
    assert found["repeat_launch_total"] == [pytest.approx(9.1)] * 5  # the clock is looked at once in between


def test_a_spread_has_median_and_percentiles():
    made = measure.spread([5.0, 1.0, 3.0])
    assert (made.median, made.count) == (3.0, 3)
    assert 1.0 < made.low < 3.0 < made.high < 5.0


def test_every_call_has_its_time():
    clock = Clock()
    times = measure.every_call(clock.taking([1000, 3000, 2000]), 3, clock)
    assert times.tolist() == [1.0, 3.0, 2.0]


def test_times_around_a_call_are_fewer_at_the_ends():
    times = np.arange(10.0)
    assert measure.around(times, 0, width=2) == [0.0, 1.0, 2.0]
    assert measure.around(times, 9, width=2) == [7.0, 8.0, 9.0]


def test_an_action_that_becomes_slower_is_not_flat():
    clock, cost = Clock(), count(1)

    def action():
        clock.now += 1000 * next(cost)

    found = measure.flatness(action, 1000, clock)
    assert found["begin"] == [float(i) for i in range(1, 11)]
    assert found["end"] == [float(i) for i in range(991, 1001)]


def test_objects_that_stay_are_noticed():
    kept = []
    assert measure.heap_growth(lambda: kept.append(bytearray(100)), 1000) > 100_000
    assert abs(measure.heap_growth(lambda: bytearray(100), 1000)) < 1000


def test_memory_that_stays_is_noticed():
    if measure.resident_bytes() is None:
        pytest.skip("this machine does not tell")
    kept = []
    found = measure.flatness(lambda: kept.append(np.ones(8192)), 1000, Clock())
    # 990 arrays of 64 KiB; some take the place of what was freed before
    assert 40e6 < found["rss_growth"][0] < 100e6


def test_the_collector_rests_meanwhile():
    assert gc.isenabled()
    with measure.no_collection():
        assert not gc.isenabled()
    assert gc.isenabled()
