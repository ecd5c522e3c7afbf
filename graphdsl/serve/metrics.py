"""Keeps what a cache of graphs tells: for each bucket counts and times; `graphdsl.serve.stats` says what they mean.

This module must not wait for the GPU, nor know who reads the numbers.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from graphdsl.forks import Lock, tell_of_forks
from graphdsl.run.blocks import size_text
from graphdsl.serve.buckets import Bucket, sizes_text
from graphdsl.serve.events import Observer, Sizes
from graphdsl.serve.gpu_times import GpuTimes
from graphdsl.serve.prometheus import export
from graphdsl.serve.remarks import time_text
from graphdsl.serve.stats import TIMES, BucketStats, Stats
from graphdsl.serve.times import Times

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from graphdsl.run.graph_exec import GraphExec

_logger = logging.getLogger("graphdsl")


class Metrics(Observer):
    """Counts and times of each bucket of a cache: ``gd.GraphCache(..., observer=gd.Metrics("decode"))``.

    The logger ``graphdsl`` is told of what happens rarely: execs that are given up and buffers that are swapped (INFO),
    and once for each reason that requests are refused or given to the fallback, and for each bucket whose launches take
    too much, or whose graph no longer pays (WARNING, when `stats` is asked).

    Parameters
    ----------
    name : str
        Of what is served: the label ``graph`` of Prometheus.
    every, interval : int, float
        How often GPU time is measured: one launch of a bucket in ``every``, and not more than one in ``interval``
        seconds. See `GpuTimes`.

    Attributes
    ----------
    name : str
        As given.

    Examples
    --------
    >>> metrics = Metrics("decode")
    >>> bucket = Bucket({"batch": 4})
    >>> metrics.hit(bucket, {"batch": 3})
    >>> metrics.launched(bucket, 2e-6, 0.0)
    >>> stats = metrics.stats()
    >>> stats.buckets[0].padding, stats.buckets[0].launch.count
    (0.25, 1)
    """

    def __init__(self, name: str = "graph", *, every: int = 64, interval: float = 0.005) -> None:
        self.name = name
        self._gpu = GpuTimes(every, interval)
        self._lock = Lock()
        self._buckets: dict[Bucket, _Seen] = {}
        self._refused: Counter[str] = Counter()
        self._fell_back: Counter[str] = Counter()
        self._swaps = 0
        self._told: set[tuple[str, str]] = set()

    # What the cache tells

    def hit(self, bucket: Bucket, sizes: Sizes) -> None:
        """See `Observer.hit`."""
        seen = self._buckets.get(bucket) or self._seen(bucket)
        real = 1
        for axis in seen.axes:
            real *= sizes[axis]
        with seen.lock:
            seen.requests += 1
            seen.real += real

    def miss(self, bucket: Bucket) -> None:
        """See `Observer.miss`."""
        seen = self._seen(bucket)
        with seen.lock:
            seen.misses += 1

    def instantiated(self, bucket: Bucket, seconds: float, nbytes: int) -> None:
        """See `Observer.instantiated`."""
        seen = self._seen(bucket)
        with seen.lock:
            seen.nbytes = nbytes
            seen.times["instantiate"].add(seconds)

    def evicted(self, bucket: Bucket, nbytes: int, why: str) -> None:
        """See `Observer.evicted`."""
        seen = self._seen(bucket)
        with seen.lock:
            seen.evictions += 1
            seen.nbytes = 0
        _logger.info("%s, bucket %s: execs of %s given up: %s", self.name, bucket.name, size_text(nbytes), why)

    def refused(self, sizes: Sizes, why: str) -> None:
        """See `Observer.refused`."""
        with self._lock:
            self._refused[why] += 1
        self._tell_once("refused", why, "a request of %s got nothing: %s", sizes_text(sizes), why)

    def fell_back(self, sizes: Sizes, why: str) -> None:
        """See `Observer.fell_back`."""
        with self._lock:
            self._fell_back[why] += 1
        self._tell_once("fell back", why, "a request of %s was given to the fallback: %s", sizes_text(sizes), why)

    def launching(self, bucket: Bucket, exe: GraphExec, stream: Any) -> Callable[[], None] | None:
        """See `Observer.launching`."""
        seen = self._buckets.get(bucket) or self._seen(bucket)
        number = seen.launches
        seen.launches = number + 1  # two threads may count one: it only chooses what is measured
        seen.nodes = len(exe._plan.nodes)
        if not self._gpu.is_due(number):
            return None
        seen.emulated = exe.device.emulated
        return self._gpu.begin(exe.device, stream, seen.take_gpu)

    def launched(self, bucket: Bucket, seconds: float, queued_seconds: float) -> None:
        """See `Observer.launched`."""
        seen = self._buckets.get(bucket) or self._seen(bucket)
        with seen.lock:
            seen.add_launch(seconds)
            seen.add_queue(queued_seconds)

    def updated(self, bucket: Bucket, seconds: float) -> None:
        """See `Observer.updated`."""
        self._seen(bucket).add("update", seconds)

    def uploaded(self, bucket: Bucket, seconds: float) -> None:
        """See `Observer.uploaded`."""
        self._seen(bucket).add("upload", seconds)

    def swapped(self, name: str, count: int, seconds: float) -> None:
        """See `Observer.swapped`."""
        with self._lock:
            self._swaps += 1
        _logger.info("%s: %s swapped in %d execs, in %s", self.name, name, count, time_text(seconds))

    # What is asked

    def stats(self) -> Stats:
        """What was seen so far. It does not wait for launches; those in flight that are measured come later."""
        self._gpu.poll()
        with self._lock:
            seen = list(self._buckets.items())
            refused, fell_back, swaps = dict(self._refused), dict(self._fell_back), self._swaps
        found = Stats(self.name, tuple(each.stats(bucket) for bucket, each in seen), refused, fell_back, swaps)
        for bucket in found.buckets:
            for remark in bucket.remarks:
                self._tell_once(bucket.name, remark[:20], "bucket %s: %s", bucket.name, remark)
        return found

    def export(self, registry: CollectorRegistry | None = None) -> None:
        """Let Prometheus read the numbers, as long as somebody holds this object.

        Parameters
        ----------
        registry : prometheus_client.CollectorRegistry, optional
            Where Prometheus reads; that of the process by default. Exporting again to the same one changes nothing.

        Raises
        ------
        GraphdslError
            If the package ``prometheus_client`` is missing, or another cache is exported there by the same name.
        """
        export(self, registry)

    def _seen(self, bucket: Bucket) -> _Seen:
        with self._lock:
            found = self._buckets.get(bucket)
            if found is None:
                found = self._buckets[bucket] = _Seen(bucket)
        return found

    def _tell_once(self, subject: str, what: str, text: str, *args: Any) -> None:
        with self._lock:
            if (subject, what) in self._told:
                return
            self._told.add((subject, what))
        _logger.warning("%s: " + text, self.name, *args)


class _Seen:
    """What was seen of one bucket.

    Attributes
    ----------
    lock : threading.Lock
        Whoever counts has it: a plain one, since it is on the path of every launch. A forked child finds it open.
    """

    def __init__(self, bucket: Bucket) -> None:
        self.axes = tuple(bucket)
        self.requests = self.misses = self.evictions = self.launches = 0
        self.real = self.nbytes = self.nodes = 0
        self.emulated = False
        self.times = {name: Times() for name in TIMES}
        self.add_launch, self.add_queue = self.times["launch"].add, self.times["queue"].add
        self.after_fork()
        tell_of_forks(self)

    def after_fork(self) -> None:
        """Open the lock: whoever held it is not there."""
        self.lock = threading.Lock()

    def add(self, name: str, seconds: float) -> None:
        """Count a time."""
        with self.lock:
            self.times[name].add(seconds)

    def take_gpu(self, seconds: float) -> None:
        """Count a GPU time."""
        self.add("gpu", seconds)

    def stats(self, bucket: Bucket) -> BucketStats:
        """All of it, as it is now."""
        with self.lock:
            return BucketStats(
                name=bucket.name,
                requests=self.requests,
                misses=self.misses,
                evictions=self.evictions,
                nbytes=self.nbytes,
                nodes=self.nodes,
                emulated=self.emulated,
                padding=1 - self.real / (self.requests * bucket.cells) if self.requests else 0.0,
                **{name: times.summary() for name, times in self.times.items()},
            )
