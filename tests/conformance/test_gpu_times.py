"""GPU time of a launch, between two events in its stream, on every driver."""

from __future__ import annotations

import numpy as np

import graphdsl as gd
from graphdsl.drivers.base import Driver
from graphdsl.serve.gpu_times import GpuTimes
from tests.serve.graphs import cache_of, rows


def test_the_time_around_a_launch_holds_the_time_inside_of_it(device: Driver):
    graph = gd.Graph("demo")
    begin, end = (graph.event(name, timing=True) for name in ("begin", "end"))
    with graph.sequence():
        graph.record(begin)
        graph.memset(graph.device_array("x", 1 << 22, np.uint8), 1)
        graph.record(end)
    times, taken = GpuTimes(every=1, interval=0), []
    stream = device.stream_create()
    try:
        with graph.instantiate(device) as exe:
            for _ in range(3):
                ended = times.begin(device, stream, taken.append)
                assert ended is not None
                exe.launch(stream)
                ended()
                exe.synchronize()
                times.poll()
            inside = exe["end"].elapsed_since(exe["begin"]) / 1e3
        assert len(taken) == 3
        assert 0 < inside <= taken[-1] < 10
    finally:
        device.stream_destroy(stream)


def test_a_cache_times_the_launches_of_its_requests(device: Driver):
    with cache_of(device, observer=gd.Metrics(every=1, interval=0), concurrency=2) as cache:
        other = device.stream_create()
        for stream in (None, other, None):
            with cache(batch=3) as run:
                run.load(raw=rows(3))
                run.launch(stream)
                run.synchronize()
                assert np.array_equal(run["out"], 2 * rows(3))
        (bucket,) = cache.stats().buckets
        assert [each.gpu.count for each in bucket.execs] == [2, 1]
        assert 0 < bucket.gpu.shortest <= bucket.gpu.longest < 1
        assert (bucket.launch.count, bucket.requests, bucket.padding) == (3, 3, 0.25)
        assert 0 < bucket.upload.shortest < bucket.instantiate.longest
    device.stream_destroy(other)
