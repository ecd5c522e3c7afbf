"""What Prometheus reads of caches: through its package ``prometheus_client``, where that is installed.

Nothing is counted twice: the numbers are those of `graphdsl.serve.metrics`, asked for when Prometheus does. This module
must not measure anything.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from graphdsl.errors import GraphdslError
from graphdsl.forks import Lock
from graphdsl.serve.stats import BucketStats, ExecStats, Stats
from graphdsl.serve.times import Summary

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

    from graphdsl.serve.metrics import Metrics

_OF_AN_EXEC = ("graph", "bucket", "arena")
_STEP = 5  # of the bounds of times: with each fifth they are a factor of 1.78 apart

_OF_BUCKETS: tuple[tuple[str, str, str, Callable[[BucketStats], float]], ...] = (
    ("counter", "misses", "Requests whose exec was not there.", lambda bucket: bucket.misses),
    ("counter", "evictions", "Times that the execs of the bucket were given up.", lambda bucket: bucket.evictions),
    ("gauge", "memory_bytes", "Bytes that the execs of the bucket count for.", lambda bucket: bucket.nbytes),
    ("gauge", "nodes", "Nodes of the graph of the bucket.", lambda bucket: bucket.nodes),
)
_OF_EXECS: tuple[tuple[str, str, str, Callable[[ExecStats], float]], ...] = (
    ("counter", "requests", "Requests that got the exec.", lambda each: each.requests),
    ("gauge", "padding_ratio", "Share of the bucket that its requests left empty.", lambda each: each.padding),
    ("gauge", "launch_overhead_ratio", "Share that launching has of a run by itself.", lambda each: each.overhead),
)
_HISTOGRAMS = (
    ("launch", "Processor time of a launch."),
    ("gpu", "GPU time of the launches that were measured."),
    ("queue", "Time that a request waited for a free arena."),
    ("instantiate", "Time to build the exec."),
    ("upload", "Time to bring the exec to the device, a part of that to build it."),
    ("load", "Time to pad and write inputs."),
    ("update", "Time to change params of the exec."),
)
_REASONS: tuple[tuple[str, str, Callable[[Stats], Mapping[str, int]]], ...] = (
    ("refused", "Requests that got nothing.", lambda stats: stats.refused),
    ("fallbacks", "Requests that were given to the fallback.", lambda stats: stats.fell_back),
)


def export(metrics: Metrics, registry: CollectorRegistry | None = None) -> None:
    """See `Metrics.export`."""
    try:
        import prometheus_client
    except ImportError:
        raise GraphdslError(
            "metrics are exported through the package prometheus_client, which is not installed",
            field="prometheus_client",
            value="missing",
            remedy="pip install 'cuda-graphdsl[serve]'",
        ) from None
    where = prometheus_client.REGISTRY if registry is None else registry
    with _lock:
        collector = _collectors.get(where)
        if collector is None:
            collector = _Collector()
            where.register(collector)
            _collectors[where] = collector
        collector.add(metrics)


_lock = Lock()
_collectors: weakref.WeakKeyDictionary[CollectorRegistry, _Collector] = weakref.WeakKeyDictionary()


class _Collector:
    """All that is exported to one registry: the families of metrics have one owner there."""

    def __init__(self) -> None:
        self._exported: weakref.WeakValueDictionary[str, Metrics] = weakref.WeakValueDictionary()

    def add(self, metrics: Metrics) -> None:
        """Export one more."""
        known = self._exported.get(metrics.name)
        if known is not None and known is not metrics:
            raise GraphdslError(
                "another cache is exported to the registry by the same name",
                field="name",
                value=metrics.name,
                remedy=f"Give it another one, as gd.Metrics({metrics.name + '-2'!r}), or a registry of its own.",
            )
        self._exported[metrics.name] = metrics

    def describe(self) -> Iterable[Metric]:
        """The families, without numbers: the registry refuses others of these names."""
        return _families([])

    def collect(self) -> Iterable[Metric]:
        """The families, with what was seen so far."""
        return _families([metrics.stats() for metrics in list(self._exported.values())])


def _families(seen: list[Stats]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    kinds: dict[str, Any] = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
    buckets = [((stats.name, bucket.name), bucket) for stats in seen for bucket in stats.buckets]
    execs = [((*labels, each.name), each) for labels, bucket in buckets for each in bucket.execs]
    for kind, name, text, of_bucket in _OF_BUCKETS:
        family = kinds[kind](f"graphdsl_{name}", text, labels=("graph", "bucket"))
        for labels, bucket in buckets:
            family.add_metric(labels, of_bucket(bucket))
        yield family
    for kind, name, text, of_exec in _OF_EXECS:
        family = kinds[kind](f"graphdsl_{name}", text, labels=_OF_AN_EXEC)
        for exec_labels, each in execs:
            family.add_metric(exec_labels, of_exec(each))
        yield family
    for name, text in _HISTOGRAMS:
        family = HistogramMetricFamily(f"graphdsl_{name}_seconds", text, labels=_OF_AN_EXEC)
        for exec_labels, each in execs:
            times: Summary = getattr(each, name)
            family.add_metric(exec_labels, _steps(times), times.total)
        yield family
    for name, text, reasons in _REASONS:
        counter = CounterMetricFamily(f"graphdsl_{name}", text, labels=("graph", "reason"))
        for stats in seen:
            for why, count in reasons(stats).items():
                counter.add_metric((stats.name, why), count)
        yield counter
    swaps = CounterMetricFamily("graphdsl_swaps", "Times that an external buffer was swapped.", labels=("graph",))
    for stats in seen:
        swaps.add_metric((stats.name,), stats.swaps)
    yield swaps


def _steps(times: Summary) -> list[tuple[str, int]]:
    return [(f"{bound:.3g}", count) for bound, count in times.cumulative(_STEP)] + [("+Inf", times.count)]
