"""A cache of graphs on both devices: one arena for all buckets, launches that overlap, weights that are swapped."""

from __future__ import annotations

import numpy as np
import pytest

import graphdsl as gd
from tests.serve.graphs import ask, cache_of, rows, weight_of


@pytest.mark.parametrize("concurrency", [1, 2])
def test_requests_of_all_sizes_by_turns(device, concurrency):
    with cache_of(device, concurrency=concurrency) as cache:
        cache.warm_up()
        for number in range(12):
            count = number % 4 + 1
            assert np.array_equal(ask(cache, count, number), 2 * rows(count, number))
        assert cache.counts.instantiate == 3


def test_outputs_in_the_arena_are_refused_after_the_next_launch(device):
    with cache_of(device) as cache:
        with cache(batch=3) as run:
            run.load(raw=rows(3))
            run.launch()
            kept = run["kept"]
        assert np.array_equal(kept.copy_to_host(), 2 * rows(3))
        ask(cache, 1)
        with pytest.raises(gd.ArenaError, match="launch 2, of bucket batch=1"):
            kept.copy_to_host()


def test_launches_that_nobody_waits_for_follow_each_other_in_the_arena(device):
    with cache_of(device) as cache:
        cache.warm_up()
        for number in range(50):
            with cache(batch=number % 4 + 1) as run:
                run.exec["raw"][:] = number
                run.launch()
                if number % 7 == 0:
                    assert (run["out"] == 2 * number).all()
                run.synchronize()  # before the next one writes raw of the same exec
        with cache(batch=4) as four, pytest.raises(gd.RefusedError):
            cache(batch=1)
        del four


@pytest.mark.parametrize("in_place", [False, True])
def test_weights_are_swapped_in_all_execs(device, in_place):
    with cache_of(device, concurrency=2) as cache:
        cache.warm_up()
        for value in (3.0, 4.0, 5.0):
            (done,) = cache.swap(w=weight_of(device, value), in_place=in_place)
            assert done.execs == 6
            for count in (1, 2, 3, 4):
                assert np.array_equal(ask(cache, count), value * rows(count))


def test_what_the_execs_of_a_bucket_take_is_counted(device):
    with cache_of(device) as cache:
        cache.max_bytes = cache._entries.max_bytes = cache.arena_nbytes + 2 * 6 * 10_240
        for count in (1, 2, 4, 1, 2, 4):
            assert np.array_equal(ask(cache, count), 2 * rows(count))
        assert len(cache.built) == 2
