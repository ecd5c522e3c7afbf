"""What a cache tells of its requests, launches and builds, as its metrics and a profiler have it."""

from __future__ import annotations

import threading

import pytest

import graphdsl as gd
from tests.profiler import listen
from tests.serve.graphs import ask, cache_of, rows


def watched(**options) -> gd.GraphCache:
    """A cache of which each launch is timed."""
    return cache_of(observer=gd.Metrics("scaled", every=1, interval=0), **options)


def test_a_cache_counts_and_times_by_itself():
    with cache_of() as cache:
        for count in (3, 4, 1, 3):
            ask(cache, count)
        with pytest.raises(gd.BucketError):
            cache(batch=9)
        stats = cache.stats()
        nbytes = cache.nbytes - cache.arena_nbytes
    large, small = stats.buckets
    assert (large.name, large.requests, large.misses, large.padding) == ("batch=4", 3, 1, pytest.approx(2 / 12))
    assert (small.name, small.requests, small.misses, small.padding) == ("batch=1", 1, 1, 0.0)
    assert [(each.launch.count, each.load.count, each.queue.count) for each in stats.buckets] == [(3,) * 3, (1,) * 3]
    assert large.update.count == 3, "one for each change of the size"
    assert large.nbytes + small.nbytes == nbytes
    assert (large.nodes, large.emulated, large.remarks) == (5, True, ())
    for bucket in stats.buckets:
        assert bucket.instantiate.count == bucket.upload.count == 1
        assert 0 < bucket.upload.longest < bucket.instantiate.longest
    assert stats.refused == {"larger than the largest bucket on batch": 1}
    assert all(bucket.nbytes == 0 for bucket in cache.stats().buckets), "closed"


def test_gpu_time_is_taken_in_the_stream_of_the_launch():
    class Streams(gd.Metrics):
        def launching(self, bucket, arena, exe, stream):
            streams.append(stream)
            return super().launching(bucket, arena, exe, stream)

    streams = []
    with cache_of(observer=Streams(every=1, interval=0)) as cache:
        ask(cache, 4)
        other = cache.device.stream_create()
        with cache(batch=4) as run:
            run.launch()
            run.launch(other)
            run.synchronize()
        (bucket,) = cache.stats().buckets
        assert streams == [cache._arenas[0].stream] * 2 + [other]
    assert (bucket.launch.count, bucket.gpu.count) == (3, 3)
    assert bucket.gpu.shortest > 0
    assert bucket.overhead > 0


def test_a_launch_that_fails_is_not_timed():
    with watched() as cache:
        ask(cache, 4)
        cache.device.fail_next("cuGraphLaunch", 2)
        with pytest.raises(gd.DriverError), cache(batch=4) as run:
            run.launch()
        ask(cache, 4)
        (bucket,) = cache.stats().buckets
        assert (bucket.launch.count, bucket.gpu.count) == (2, 2)


def test_execs_of_several_arenas_and_who_waits_for_them():
    with watched(concurrency=2) as cache:
        cache.warm_up()
        with cache(batch=4) as first, cache(batch=3) as second:
            late = threading.Thread(target=ask, args=(cache, 2))
            late.start()
            while not cache._changed._waiters:
                pass
            for run in (first, second):
                run.load(raw=rows(run.sizes["batch"]))
                run.launch()
            first.close()
            late.join()
        by_name = {bucket.name: bucket for bucket in cache.stats().buckets}
    large = by_name["batch=4"]
    assert [(each.name, each.requests, each.padding) for each in large.execs] == [("0", 1, 0.0), ("1", 1, 0.25)]
    assert [each.instantiate.count for each in large.execs] == [1, 1]
    assert by_name["batch=2"].queue.longest > 0 == large.queue.longest
    assert by_name["batch=1"].requests == by_name["batch=1"].launch.count == 0


def test_what_a_cache_has_for_measuring_is_given_back_with_it():
    cache = watched()
    ask(cache, 4)
    ask(cache, 1)
    assert cache.device.live["events"] > 0
    cache.close()
    assert cache.device.live["events"] == 0
    assert cache.stats().buckets[0].gpu.count == 1


@pytest.mark.parametrize("observer", [None, gd.Observer()])
def test_numbers_that_nobody_keeps_are_refused(observer):
    with cache_of(observer=observer) as cache:
        ask(cache, 1)
        with pytest.raises(gd.GraphdslError, match=r"graphdsl\.Metrics") as caught:
            cache.stats()
    assert caught.value.field == "observer"


def test_a_profiler_is_told_of_the_bucket(monkeypatch):
    heard = listen(monkeypatch)
    with cache_of(concurrency=2) as cache:
        ask(cache, 4)
        ask(cache, 4)
        ask(cache, 1)
    names = [name for name in heard.names if not name.startswith("node ")]
    assert names[:3] == ["instantiate scaled4 [batch=4]", "clone scaled4 [batch=4]", "instantiate scaled4 [batch=4]"]
    assert names.count("launch scaled4 [batch=4]") == 2, "one of each exec"
    assert "launch scaled1 [batch=1]" in names
    assert "update scaled4 [batch=4]: count" in names
    assert "node scale" in heard.names
