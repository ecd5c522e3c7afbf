"""Times that are counted: their quantiles stay near those of the times themselves."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphdsl.serve.times import BOUNDS, Summary, Times


def counted(seconds) -> Summary:
    times = Times()
    for each in seconds:
        times.add(each)
    return times.summary()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(1e-6, 10), min_size=1, max_size=60), st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_within_one_step_of_the_true_one(seconds, share):
    found = counted(seconds).quantile(share)
    true = float(np.quantile(seconds, share, method="inverted_cdf"))
    assert true / 1.13 <= found <= true * 1.13


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 100), max_size=40))
def test_nothing_is_lost(seconds):
    summary = counted(seconds)
    assert (summary.count, sum(summary.counts)) == (len(seconds), len(seconds))
    assert summary.total == pytest.approx(sum(seconds))
    assert summary.longest == max(seconds, default=0)
    for bound, count in summary.cumulative():
        assert count == sum(each <= bound for each in seconds)


def test_between_two_bounds_times_are_taken_to_be_spread_evenly():
    low, high = BOUNDS[40:42]
    summary = counted(np.linspace(low, high, 1001)[1:])
    assert summary.quantile(0.25) == pytest.approx(low + (high - low) / 4, rel=1e-3)


def test_none_and_the_very_long():
    assert (Summary().quantile(0.5), Summary().mean) == (0.0, 0.0)
    assert counted([100.0]).quantile(0.5) == pytest.approx(55, rel=1)
    assert counted([100.0]).cumulative()[-1] == (BOUNDS[-1], 0)
    assert [bound for bound, _ in Summary().cumulative(5)][-1] == pytest.approx(10.0)


def test_threads_lose_none():
    times, before = Times(), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=lambda: [times.add(1e-3) for _ in range(8_000)]) for _ in range(6)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            times.summary()
    finally:
        sys.setswitchinterval(before)
    assert times.summary().count == 48_000
