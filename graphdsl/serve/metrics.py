"""Keeps what a cache of graphs tells: counts and times of its execs; `graphdsl.serve.stats` says what they mean.

This module must not wait for the GPU, nor know who reads the numbers.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from graphdsl.forks import Lock
from graphdsl.run.blocks import size_text
from graphdsl.serve.buckets import Bucket, sizes_text
from graphdsl.serve.events import Observer, Sizes
from graphdsl.serve.gpu_times import GpuTimes
from graphdsl.serve.prometheus import export
from graphdsl.serve.remarks import time_text
from graphdsl.serve.stats import TIMES, BucketStats, ExecStats, Stats
from graphdsl.serve.times import Times

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from graphdsl.run.graph_exec import GraphExec

_logger = logging.getLogger("graphdsl")


class Metrics(Observer):
    """Counts and times of each bucket of a cache, and of each of its execs: what ``cache.stats()`` shows.

    Every cache has one, unless it is given another observer: one with a name is passed as
    ``observer=gd.Metrics("decode")``, and what does more is a subclass that calls these methods.

    The logger ``graphdsl`` is told of what happens rarely: execs that are given up and buffers that are swapped (INFO),
    and once for each reason that requests are refused or given to the fallback, and for each bucket whose launches take
    too much, or whose graph no longer pays (WARNING, when `stats` is asked).

    Parameters
    ----------
    name : str
        Of what is served: the label ``graph`` of Prometheus.
    every, interval : int, float
        How often GPU time is measured: one launch of an exec in ``every``, and not more than one in ``interval``
        seconds. See `GpuTimes`.

    Attributes
    ----------
    name : str
        As given.

    Examples
    --------
    >>> metrics = Metrics("decode")
    >>> bucket = Bucket({"batch": 4})
    >>> metrics.served(bucket, 0, {"batch": 3}, queued_seconds=0.0)
    >>> metrics.launched(bucket, 0, 2e-6)
    >>> stats = metrics.stats()
    >>> stats.buckets[0].padding, stats.buckets[0].launch.count
    (0.25, 1)
    """

    def __init__(self, name: str = "graph", *, every: int = 64, interval: float = 0.005) -> None:
        self.name = name
        self._gpu = GpuTimes(every, interval)
        self._lock = Lock()
        self._buckets: dict[Bucket, _SeenBucket] = {}
        self._execs: dict[tuple[Bucket, int], _SeenExec] = {}
        self._refused: Counter[str] = Counter()
        self._fell_back: Counter[str] = Counter()
        self._swaps = 0
        self._told: set[tuple[str, str]] = set()

    # What the cache tells

    def miss(self, bucket: Bucket) -> None:
        """See `Observer.miss`."""
        with self._lock:
            self._bucket(bucket).misses += 1

    def served(self, bucket: Bucket, arena: int, sizes: Sizes, queued_seconds: float) -> None:
        """See `Observer.served`."""
        seen = self._execs.get((bucket, arena)) or self._exec(bucket, arena)
        real = 1
        for axis in seen.axes:
            real *= sizes[axis]
        seen.requests += 1
        seen.real += real
        seen.times["queue"].add(queued_seconds)

    def instantiated(self, bucket: Bucket, arena: int, seconds: float, upload_seconds: float, nbytes: int) -> None:
        """See `Observer.instantiated`."""
        seen = self._exec(bucket, arena)
        seen.times["instantiate"].add(seconds)
        seen.times["upload"].add(upload_seconds)
        with self._lock:
            self._bucket(bucket).nbytes += nbytes

    def evicted(self, bucket: Bucket, nbytes: int, why: str) -> None:
        """See `Observer.evicted`."""
        with self._lock:
            seen = self._bucket(bucket)
            seen.evictions += 1
            seen.nbytes -= nbytes
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

    def launching(self, bucket: Bucket, arena: int, exe: GraphExec, stream: Any) -> Callable[[], None] | None:
        """See `Observer.launching`."""
        seen = self._execs.get((bucket, arena)) or self._exec(bucket, arena)
        number = seen.launches
        seen.launches = number + 1
        if not number:
            seen.nodes, seen.emulated = len(exe.plan.nodes), exe.device.emulated
        return self._gpu.begin(exe.device, stream, seen.times["gpu"].add) if self._gpu.is_due(number) else None

    def launched(self, bucket: Bucket, arena: int, seconds: float) -> None:
        """See `Observer.launched`."""
        seen = self._execs.get((bucket, arena)) or self._exec(bucket, arena)
        seen.times["launch"].add(seconds)

    def updated(self, bucket: Bucket, arena: int, seconds: float) -> None:
        """See `Observer.updated`."""
        self._exec(bucket, arena).times["update"].add(seconds)

    def loaded(self, bucket: Bucket, arena: int, seconds: float) -> None:
        """See `Observer.loaded`."""
        self._exec(bucket, arena).times["load"].add(seconds)

    def swapped(self, name: str, count: int, seconds: float) -> None:
        """See `Observer.swapped`."""
        with self._lock:
            self._swaps += 1
        _logger.info("%s: %s swapped in %d execs, in %s", self.name, name, count, time_text(seconds))

    def closed(self) -> None:
        """See `Observer.closed`."""
        self._gpu.close()
        with self._lock:
            for seen in self._buckets.values():
                seen.nbytes = 0

    # What is asked

    def stats(self) -> Stats:
        """What was seen so far. It does not wait for launches; those in flight that are measured come later."""
        self._gpu.poll()
        with self._lock:
            buckets = tuple(seen.stats(bucket) for bucket, seen in self._buckets.items())
            found = Stats(self.name, buckets, dict(self._refused), dict(self._fell_back), self._swaps)
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

    def _bucket(self, bucket: Bucket) -> _SeenBucket:
        """What is seen of a bucket. The lock is held."""
        found = self._buckets.get(bucket)
        if found is None:
            found = self._buckets[bucket] = _SeenBucket()
        return found

    def _exec(self, bucket: Bucket, arena: int) -> _SeenExec:
        with self._lock:
            found = self._execs.get((bucket, arena))
            if found is None:
                found = self._execs[bucket, arena] = self._bucket(bucket).execs[arena] = _SeenExec(bucket)
        return found

    def _tell_once(self, subject: str, what: str, text: str, *args: Any) -> None:
        with self._lock:
            if (subject, what) in self._told:
                return
            self._told.add((subject, what))
        _logger.warning("%s: " + text, self.name, *args)


class _SeenBucket:
    """What was seen of one bucket besides its execs; whoever counts has the lock of all."""

    def __init__(self) -> None:
        self.misses = self.evictions = self.nbytes = 0
        self.execs: dict[int, _SeenExec] = {}

    def stats(self, bucket: Bucket) -> BucketStats:
        """All of it, as it is now."""
        execs = [seen.stats(str(number)) for number, seen in sorted(self.execs.items())]
        return BucketStats.of(bucket.name, execs, self.misses, self.evictions, self.nbytes)


class _SeenExec:
    """What was seen of one exec: of one bucket in one arena, however often it was built.

    Nothing is locked: a request has the exec to itself, and only GPU times come from whatever thread reads them.
    """

    def __init__(self, bucket: Bucket) -> None:
        self.axes, self.cells = tuple(bucket), bucket.cells
        self.requests = self.launches = self.real = self.nodes = 0
        self.emulated = False
        self.times = {name: Times() for name in TIMES}

    def stats(self, name: str) -> ExecStats:
        """All of it, as it is now."""
        return ExecStats(
            name=name,
            requests=self.requests,
            nodes=self.nodes,
            emulated=self.emulated,
            real=self.real,
            cells=self.requests * self.cells,
            **{name: times.summary() for name, times in self.times.items()},
        )
