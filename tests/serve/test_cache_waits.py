"""A cache never waits for the thread that waits, and nothing that fails takes its room or its arenas away."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.serve.entries import Entry
from tests.serve.graphs import ask, cache_of, rows, scaled, weight_of


def bytes_for_one(**options) -> int:
    """What lets a cache have the execs of one bucket at a time."""
    with cache_of(**options) as cache:
        ask(cache, 4)
        return cache.nbytes + 1000


def test_a_thread_that_has_what_takes_the_room_is_told_at_once():
    most = bytes_for_one(concurrency=2)
    with cache_of(concurrency=2, max_bytes=most, patience=1) as cache:
        with cache(batch=1), pytest.raises(gd.RefusedError, match="this thread, which would wait for itself") as caught:
            cache(batch=4)
        assert caught.value.bucket == {"batch": 4}
        assert np.array_equal(ask(cache, 4), 2 * rows(4))


def test_what_another_thread_has_is_waited_for():
    most = bytes_for_one(concurrency=2)
    with cache_of(concurrency=2, max_bytes=most, patience=10) as cache:
        other = cache(batch=1)
        timer = threading.Timer(0.05, other.close)
        timer.start()
        assert np.array_equal(ask(cache, 4), 2 * rows(4))
        timer.join()


def test_room_that_comes_back_since_a_build_failed_is_taken():
    started, go_on, on = threading.Event(), threading.Event(), []
    device = gd.emulator()
    right = scaled(weight_of(device, 2.0))

    def build(batch):
        if on and batch == 1:
            started.set()
            go_on.wait(5)
            raise RuntimeError
        return right(batch)

    def fails():
        with pytest.raises(gd.BuildError):
            cache(batch=1)

    with cache_of(device, build=build, max_bytes=bytes_for_one(), patience=1) as cache:
        ask(cache, 4)
        cache.clear()
        cache._graphs.clear()  # else the graph that was planned is built
        on.append(True)
        failing = threading.Thread(target=fails)
        failing.start()
        assert started.wait(5)
        threading.Timer(0.05, go_on.set).start()
        assert np.array_equal(ask(cache, 4), 2 * rows(4)), "there was no exec to give up, but room"
        failing.join()


def test_a_run_that_is_dropped_gives_back_what_it_had():
    with cache_of(patience=1) as cache:
        with pytest.warns(ResourceWarning, match="<Run of bucket batch=4> was dropped, and not closed"):
            cache(batch=3)
        assert np.array_equal(ask(cache, 1), 2 * rows(1))
        with pytest.warns(ResourceWarning):
            cache(batch=3)
        cache.clear()
        assert cache.built == ()
        with pytest.warns(ResourceWarning):
            cache(batch=3)
        (done,) = cache.swap(w=weight_of(cache.device, 3.0))
        assert done.execs == 1
        with pytest.warns(ResourceWarning):
            cache(batch=3)


def test_whoever_waits_gets_what_a_dropped_run_had():
    with cache_of(patience=5) as cache:
        runs, found = [cache(batch=3)], []
        waiting = threading.Thread(target=lambda: found.append(ask(cache, 1)))
        waiting.start()
        waiting.join(0.05)
        with pytest.warns(ResourceWarning):
            runs.clear()
        waiting.join()
        assert np.array_equal(found[0], 2 * rows(1))


def test_a_run_may_be_collected_while_the_lock_is_held():
    with cache_of(patience=1) as cache:
        runs = [cache(batch=3)]
        with cache._changed:
            with pytest.warns(ResourceWarning):
                runs.clear()
            assert not cache._free, "nothing changes in the middle of what the lock is for"
        assert np.array_equal(ask(cache, 3), 2 * rows(3))


def test_a_run_that_could_not_be_made_is_not_dropped(recwarn):
    with cache_of(patience=1) as cache:
        ask(cache, 3)
        cache.device.fail_next("cuGraphExecKernelNodeSetParams", 2)
        with pytest.raises(gd.DriverError):
            cache(batch=4)
        assert np.array_equal(ask(cache, 3), 2 * rows(3))
    assert not [each for each in recwarn if each.category is ResourceWarning]


def asking(act, **options) -> gd.GraphCache:
    """A cache whose build does something with it, once the first execs are there."""
    device = gd.emulator()
    right, on = scaled(weight_of(device, 2.0)), []

    def build(batch):
        if on:
            act(cache)
        return right(batch)

    cache = cache_of(device, build=build, patience=1, **options)
    cache.warm_up()
    cache.clear()
    on.append(True)
    return cache


def test_a_build_that_swaps_is_told_at_once():
    with asking(lambda cache: cache.swap(w=weight_of(cache.device, 3.0))) as cache:
        with pytest.raises(gd.GraphdslError, match="bucket batch=4, cache: building a graph asks the cache to swap"):
            cache.warm_up()
        assert cache.nbytes == 0


def test_a_build_that_closes_is_told_why_not():
    said = r"bucket batch=4, cache: .*; a graph is being built"
    with asking(gd.GraphCache.close) as cache, pytest.raises(gd.GraphdslError, match=said):
        cache(batch=3)


def test_a_build_that_clears_has_arenas_afterwards():
    with asking(gd.GraphCache.clear) as cache:
        for batch in (1, 3, 2):
            assert np.array_equal(ask(cache, batch), 2 * rows(batch))


def test_a_refusal_inside_of_build_does_not_end_a_warm_up_in_silence():
    def refused(cache):
        raise gd.RefusedError("not now", reason="something else")

    with asking(refused) as cache, pytest.raises(gd.RefusedError, match="bucket batch=4: not now"):
        cache.warm_up()


def test_what_an_observer_raises_of_an_eviction_takes_no_room():
    class Failing(gd.Metrics):
        def evicted(self, *_):
            raise RuntimeError("evicted")

    most = bytes_for_one()
    with cache_of(max_bytes=most, observer=Failing()) as cache:
        ask(cache, 4)
        with pytest.raises(RuntimeError, match="evicted"):
            cache(batch=1)
        assert (cache.nbytes, cache.built) == (0, ())
        assert np.array_equal(ask(cache, 1), 2 * rows(1))


def test_an_interrupt_of_an_eviction_leaves_no_exec_behind(monkeypatch):
    device = gd.emulator()
    with cache_of(device) as cache:
        cache.warm_up()
        first, close = next(iter(cache._entries)), Entry.close

        def interrupted(entry):
            close(entry)
            if entry is first:
                raise KeyboardInterrupt

        monkeypatch.setattr(Entry, "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cache.clear()
        assert device.live["execs"] == 0


@pytest.mark.parametrize("end", ["clear", "close"])
def test_a_swap_is_not_disturbed(monkeypatch, end):
    device = gd.emulator()
    weight = weight_of(device, 2.0)
    with cache_of(device, build=scaled(weight)) as cache:
        cache.warm_up()
        said, threads = [], []

        def ended():
            try:
                getattr(cache, end)()
            except gd.GraphdslError as problem:
                said.append(str(problem))

        update = gd.GraphExec.update

        def disturbed(exe, *args, **named):
            if not threads:
                threads.append(threading.Thread(target=ended))
                threads[0].start()
                threads[0].join(0.1)
            return update(exe, *args, **named)

        monkeypatch.setattr(gd.GraphExec, "update", disturbed)
        (done,) = cache.swap(w=weight_of(device, 3.0))
        threads[0].join()
        assert done.execs == 3
        assert [("is being swapped" in text) for text in said] == [True] * (end == "close")
        assert np.array_equal(ask(cache, 3), 3 * rows(3))
