"""Traces of requests, and what is counted of a replay; the replay itself is tested with the engine."""

import io
from types import SimpleNamespace

import numpy as np
import pytest
from smollm2 import load


def test_the_recorded_trace_is_the_one_that_its_seed_makes():
    assert load.read() == load.generated(512, seed=7)
    file = io.StringIO()
    load.write(load.generated(512, seed=7), file, 7)
    assert file.getvalue() == load.TRACE.read_text()


def test_arrivals_are_a_poisson_process_and_lengths_stay_within_their_bounds():
    trace = load.generated(20_000, seed=1)
    gaps = np.diff([0.0, *(each.at for each in trace)])
    assert gaps.min() >= 0
    assert gaps.mean() == pytest.approx(1, abs=0.03)
    assert gaps.std() == pytest.approx(1, abs=0.05)  # of an exponential distribution it is the mean
    for lengths, (median, _, least, most) in (
        ([each.prompt for each in trace], load.PROMPTS),
        ([each.answer for each in trace], load.ANSWERS),
    ):
        assert (min(lengths), max(lengths)) == (least, most)
        assert np.median(lengths) == pytest.approx(median, rel=0.05)


def test_waiting_counts_from_the_arrival():
    answers = [
        SimpleNamespace(tokens=[1, 2, 3], times=[1.5, 1.6, 1.9], admitted=1.25),
        SimpleNamespace(tokens=[1], times=[3.0], admitted=2.5),
    ]
    found = load.results([1.0, 1.0], answers)
    assert found["tokens_s"] == pytest.approx(4 / 2.0)
    assert found["first"] == {"p50": 1250.0, "p99": pytest.approx(1985.0)}
    assert found["queue"]["p50"] == 875.0
    assert found["token"]["p50"] == 200.0
    assert found["gap"] == {"p50": 200.0, "p99": pytest.approx(298.0)}
