"""What Prometheus reads: names, labels, counts; registered twice, by two caches, in registries of their own."""

from __future__ import annotations

import gc
import sys

import pytest

from graphdsl.errors import GraphdslError
from graphdsl.serve.buckets import Bucket
from graphdsl.serve.metrics import Metrics

client = pytest.importorskip("prometheus_client")

BUCKET = Bucket({"batch": 4})
OF_BUCKET = {"graph": "decode", "bucket": "batch=4"}
LABELS = OF_BUCKET | {"arena": "0"}


@pytest.fixture
def registry():
    return client.CollectorRegistry()


@pytest.fixture
def metrics(registry) -> Metrics:
    made = Metrics("decode")
    made.export(registry)
    return made


def test_counters_gauges_and_histograms_are_named_by_the_conventions(metrics, registry):
    metrics.served(BUCKET, 0, {"batch": 3}, 0.0)
    metrics.miss(BUCKET)
    metrics.instantiated(BUCKET, 0, 0.25, 0.02, 4096)
    for seconds in (2e-6, 2e-6, 0.5):
        metrics.launched(BUCKET, 0, seconds)
    metrics.refused({"batch": 9}, "too large")
    metrics.swapped("weights", 2, 0.1)
    assert registry.get_sample_value("graphdsl_requests_total", LABELS) == 1
    assert registry.get_sample_value("graphdsl_misses_total", OF_BUCKET) == 1
    assert registry.get_sample_value("graphdsl_padding_ratio", LABELS) == 0.25
    assert registry.get_sample_value("graphdsl_memory_bytes", OF_BUCKET) == 4096
    assert registry.get_sample_value("graphdsl_launch_seconds_count", LABELS) == 3
    assert registry.get_sample_value("graphdsl_launch_seconds_sum", LABELS) == pytest.approx(0.500004)
    assert registry.get_sample_value("graphdsl_instantiate_seconds_count", LABELS) == 1
    assert registry.get_sample_value("graphdsl_upload_seconds_sum", LABELS) == 0.02
    assert registry.get_sample_value("graphdsl_refused_total", {"graph": "decode", "reason": "too large"}) == 1
    assert registry.get_sample_value("graphdsl_swaps_total", {"graph": "decode"}) == 1


def test_the_buckets_of_a_histogram_grow_and_end_with_all(metrics, registry):
    for seconds in (2e-6, 2e-6, 0.5, 100.0):
        metrics.launched(BUCKET, 0, seconds)
    (family,) = (each for each in registry.collect() if each.name == "graphdsl_launch_seconds")
    steps = [(float(each.labels["le"]), each.value) for each in family.samples if each.name.endswith("_bucket")]
    assert steps == sorted(steps)
    assert [count for _, count in steps] == sorted(count for _, count in steps)
    assert steps[0] == (pytest.approx(1e-6), 0)
    assert dict(steps)[float("inf")] == 4
    assert max(count for bound, count in steps if bound < 1e-3) == 2
    assert max(count for bound, count in steps if bound < 1e9) == 3


def test_the_text_is_what_prometheus_reads(metrics, registry):
    metrics.launched(BUCKET, 0, 2e-6)
    text = client.generate_latest(registry).decode()
    assert "# TYPE graphdsl_launch_seconds histogram" in text
    assert "# TYPE graphdsl_requests_total counter" in text
    assert 'graphdsl_launch_seconds_count{arena="0",bucket="batch=4",graph="decode"} 1.0' in text


def test_exporting_again_changes_nothing(metrics, registry):
    metrics.export(registry)
    metrics.served(BUCKET, 0, {"batch": 4}, 0.0)
    text = client.generate_latest(registry).decode()
    assert text.count("# TYPE graphdsl_requests_total") == 1
    assert text.count("graphdsl_requests_total{") == 1


def test_two_caches_share_a_registry_under_names_of_their_own(metrics, registry):
    other = Metrics("prefill")
    other.export(registry)
    other.served(BUCKET, 0, {"batch": 4}, 0.0)
    metrics.served(BUCKET, 0, {"batch": 4}, 0.0)
    metrics.served(BUCKET, 0, {"batch": 4}, 0.0)
    assert registry.get_sample_value("graphdsl_requests_total", LABELS) == 2
    assert registry.get_sample_value("graphdsl_requests_total", LABELS | {"graph": "prefill"}) == 1
    text = client.generate_latest(registry).decode()
    assert text.count("# TYPE graphdsl_requests_total") == 1
    with pytest.raises(GraphdslError, match="another cache") as caught:
        Metrics("decode").export(registry)
    assert (caught.value.field, caught.value.value) == ("name", "decode")


def test_registries_are_separate_and_there_is_one_by_default(metrics, registry):
    alone = client.CollectorRegistry()
    other = Metrics("decode")
    other.export(alone)
    other.served(BUCKET, 0, {"batch": 4}, 0.0)
    assert registry.get_sample_value("graphdsl_requests_total", LABELS) is None
    assert alone.get_sample_value("graphdsl_requests_total", LABELS) == 1
    of_the_process = Metrics("of-the-process")
    of_the_process.export()
    of_the_process.served(BUCKET, 0, {"batch": 4}, 0.0)
    found = client.REGISTRY.get_sample_value("graphdsl_requests_total", LABELS | {"graph": "of-the-process"})
    assert found == 1


def test_metrics_that_are_gone_are_read_no_more(registry):
    metrics = Metrics("decode")
    metrics.export(registry)
    metrics.served(BUCKET, 0, {"batch": 4}, 0.0)
    del metrics
    gc.collect()
    assert registry.get_sample_value("graphdsl_requests_total", LABELS) is None
    Metrics("decode").export(registry)  # the name is free again


def test_the_names_belong_to_one_owner(metrics, registry):
    with pytest.raises(ValueError, match="graphdsl_launch_seconds"):
        client.Histogram("graphdsl_launch_seconds", "of somebody else", registry=registry)


def test_a_missing_package_is_told_with_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(GraphdslError) as caught:
        Metrics().export()
    assert "pip install 'cuda-graphdsl[serve]'" in str(caught.value)
