"""What a cache tells, counted by bucket: the table, the data, the log."""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import FrozenInstanceError
from types import SimpleNamespace

import pytest

from graphdsl.serve.buckets import Bucket
from graphdsl.serve.metrics import Metrics
from tests.serve.test_gpu_times import Gpu

SMALL, LARGE = Bucket({"batch": 4}), Bucket({"batch": 8})


class FakeExec:
    """What is asked of an exec: its device, and how many nodes it has."""

    def __init__(self, nodes: int = 3) -> None:
        self.device = Gpu()
        self.device.emulated = False
        self.plan = SimpleNamespace(nodes=range(nodes))


def serve(metrics: Metrics, exe: FakeExec, launch: float, gpu: float, times: int = 1, arena: int = 0) -> None:
    """Launches as a cache tells them, one after the other."""
    bucket = SMALL
    for _ in range(times):
        ended = metrics.launching(bucket, arena, exe, 7)
        exe.device.now += gpu
        if ended is not None:
            ended()
            exe.device.finish()
        metrics.launched(bucket, arena, launch)


def test_each_bucket_has_its_own_numbers():
    metrics = Metrics("decode", every=1, interval=0)
    exe = FakeExec(nodes=5)
    metrics.miss(SMALL)
    metrics.instantiated(SMALL, 0, 0.02, 0.003, 4096)
    for batch in (1, 2, 4):
        metrics.served(SMALL, 0, {"batch": batch}, 0.0)
    metrics.served(LARGE, 0, {"batch": 8}, 0.5)
    serve(metrics, exe, 2e-6, 100e-6, times=10)
    metrics.updated(SMALL, 0, 3e-6)
    metrics.loaded(SMALL, 0, 5e-6)
    metrics.loaded(SMALL, 0, 5e-6)
    metrics.launched(LARGE, 0, 4e-6)
    small, large = metrics.stats().buckets
    assert (small.name, small.requests, small.misses, small.nbytes, small.nodes) == ("batch=4", 3, 1, 4096, 5)
    assert small.padding == pytest.approx(1 - 7 / 12)
    assert (small.launch.count, small.gpu.count, small.load.count, small.update.count) == (10, 10, 2, 1)
    assert (small.instantiate.total, small.upload.total) == (0.02, 0.003)
    assert small.gpu.mean == pytest.approx(100e-6)
    assert small.overhead == pytest.approx(2 / 102)
    assert (large.requests, large.padding, large.nodes, large.gpu.count) == (1, 0.0, 0, 0)
    assert large.queue.longest == 0.5
    metrics.evicted(SMALL, 4096, "the least used")
    assert (metrics.stats().buckets[0].evictions, metrics.stats().buckets[0].nbytes) == (1, 0)


def test_what_was_seen_does_not_change_afterwards():
    metrics = Metrics()
    metrics.served(SMALL, 0, {"batch": 4}, 0.0)
    metrics.refused({"batch": 9}, "too large")
    before = metrics.stats()
    metrics.served(SMALL, 0, {"batch": 4}, 1.0)
    metrics.refused({"batch": 9}, "too large")
    metrics.launched(SMALL, 0, 1.0)
    assert (before.buckets[0].requests, before.buckets[0].launch.count, before.refused) == (1, 0, {"too large": 1})
    with pytest.raises(FrozenInstanceError):
        before.buckets[0].requests = 3


def test_one_launch_in_64_has_its_gpu_time_taken():
    metrics = Metrics(interval=0)
    exe = FakeExec()
    serve(metrics, exe, 2e-6, 100e-6, times=640)
    (bucket,) = metrics.stats().buckets
    assert (bucket.launch.count, bucket.gpu.count) == (640, 10)
    assert len(exe.device.alive) == 2


def test_the_table_has_a_row_for_each_bucket_and_what_there_is_to_say():
    metrics = Metrics("decode", every=1, interval=0)
    metrics.served(SMALL, 0, {"batch": 3}, 0.0)
    serve(metrics, FakeExec(), 4e-6, 12e-6, times=5)
    metrics.served(LARGE, 0, {"batch": 8}, 0.0)
    metrics.refused({"batch": 9}, "larger than the largest bucket on batch")
    head, small, large, remark, refused = str(metrics.stats()).splitlines()
    assert head.split()[:4] == ["bucket", "requests", "misses", "padding"]
    assert small.split()[:4] == ["batch=4", "1", "0", "25.0%"]
    assert "25.0%" in small
    assert "-" in large.split()
    assert remark.startswith("batch=4: launching takes 25% of a run: 3 nodes of")
    assert refused == "1 refused: larger than the largest bucket on batch"


def test_the_data_can_be_written_as_json():
    metrics = Metrics("decode", every=1, interval=0)
    metrics.fell_back({"batch": 9}, "too large")
    metrics.swapped("weights", 3, 0.01)
    serve(metrics, FakeExec(), 4e-6, 12e-6, times=5)
    data = json.loads(json.dumps(metrics.stats().to_json()))
    assert (data["name"], data["fell_back"], data["swaps"]) == ("decode", {"too large": 1}, 1)
    assert data["buckets"][0]["launch"]["count"] == 5
    assert data["buckets"][0]["gpu"]["p50"] == pytest.approx(12e-6, rel=0.13)
    assert len(data["buckets"][0]["remarks"]) == 1


def test_the_emulator_is_not_remarked_upon():
    metrics = Metrics(every=1, interval=0)
    exe = FakeExec()
    exe.device.emulated = True
    serve(metrics, exe, 4e-6, 4e-6, times=5)
    assert metrics.stats().buckets[0].gpu.count == 5
    assert metrics.stats().buckets[0].remarks == ()


def test_the_log_is_told_once_of_each_reason_and_remark(caplog):
    metrics = Metrics("decode", every=1, interval=0)
    serve(metrics, FakeExec(), 4e-6, 12e-6, times=5)
    with caplog.at_level(logging.INFO, "graphdsl"):
        for _ in range(3):
            metrics.refused({"batch": 9}, "too large")
            metrics.fell_back({"batch": 9}, "too large")
            metrics.stats()
        metrics.evicted(SMALL, 2048, "the least used")
        metrics.swapped("weights", 3, 0.01)
    assert [(record.levelname, record.name) for record in caplog.records] == [
        *[("WARNING", "graphdsl")] * 3,
        *[("INFO", "graphdsl")] * 2,
    ]
    assert caplog.messages[0] == "decode: a request of batch=9 got nothing: too large"
    assert caplog.messages[2].startswith("decode: bucket batch=4: launching takes 25% of a run")
    assert caplog.messages[3] == "decode, bucket batch=4: execs of 2 KiB given up: the least used"


def test_threads_lose_no_count():
    metrics = Metrics(interval=0)

    def work(arena: int) -> None:
        for _ in range(2_000):
            metrics.served(SMALL, arena, {"batch": 2}, 0.0)
            metrics.launched(SMALL, arena, 1e-6)

    threads = [threading.Thread(target=work, args=(arena,)) for arena in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        metrics.stats()
    (bucket,) = metrics.stats().buckets
    assert (bucket.requests, bucket.launch.count, bucket.queue.count) == (8_000, 8_000, 8_000)
    assert [each.requests for each in bucket.execs] == [2_000] * 4
    assert bucket.padding == 0.5


def test_execs_of_a_bucket_are_seen_one_by_one_and_together():
    metrics = Metrics(every=1, interval=0)
    for arena, (batch, launch) in enumerate([(1, 2e-6), (4, 8e-6)]):
        metrics.instantiated(SMALL, arena, 0.01, 0.001, 100)
        metrics.served(SMALL, arena, {"batch": batch}, 0.0)
        serve(metrics, FakeExec(), launch, 50e-6, times=4, arena=arena)
    (bucket,) = metrics.stats().buckets
    first, second = bucket.execs
    assert (first.name, first.padding, second.name, second.padding) == ("0", 0.75, "1", 0.0)
    assert (first.launch.longest, second.launch.shortest) == (2e-6, 8e-6)
    assert (bucket.nbytes, bucket.padding, bucket.requests) == (200, 3 / 8, 2)
    assert (bucket.launch.count, bucket.launch.shortest, bucket.launch.longest) == (8, 2e-6, 8e-6)
    assert bucket.launch.counts == tuple(a + b for a, b in zip(first.launch.counts, second.launch.counts))
    assert (bucket.instantiate.count, bucket.gpu.count) == (2, 8)
    assert [line.split()[:3] for line in str(metrics.stats()).splitlines()[1:4]] == [
        ["batch=4", "2", "0"],
        ["arena", "0", "1"],
        ["arena", "1", "1"],
    ]
    assert [each["name"] for each in metrics.stats().to_json()["buckets"][0]["execs"]] == ["0", "1"]
