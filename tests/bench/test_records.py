import json

import pytest

from graphdsl.bench import records
from graphdsl.bench.records import Case
from graphdsl.errors import GraphdslError
from tests.bench.canned import CHAIN, record, results


def test_samples_become_records():
    (launch, growth) = records.records(
        "c", CHAIN, {"update": [1.0, 2.0, 3.0], "update_flat_rss_growth": [8.0], "none": []}
    )
    assert (launch.peer, launch.shape, launch.nodes, launch.metric) == ("c", "chain", 100, "update")
    assert (launch.median, launch.samples, launch.unit) == (2.0, 3, "us")
    assert (growth.median, growth.unit) == (8.0, "bytes")


def test_results_are_found_by_library_metric_and_graph():
    found = results()
    assert found.median("c", "emit", CHAIN) == pytest.approx(60)
    assert found.median("c", "emit", Case("fan-out", 100)) is None
    assert found.peers == ["graphdsl", "c", "cuda_core", "cupy"]


def test_cases_are_sorted_by_shape_and_size():
    found = results(record("c", "emit", 10, 1.0), record("c", "emit", 5, 1.0, shape="random"))
    assert [case for case in found.cases if case.shape] == [
        *(Case("chain", nodes) for nodes in (1, 10, 100, 1000)),
        Case("random", 5),
    ]


def test_what_is_saved_is_what_is_loaded(tmp_path):
    path = tmp_path / "run.json"
    saved = results(absent={"warp": "Warp is not installed"})
    records.save(saved, path)
    loaded = records.load(path)
    assert (loaded.machine, loaded.absent) == (saved.machine, saved.absent)
    assert [r.metric for r in loaded.records] == [r.metric for r in saved.records]
    assert loaded.median("c", "update", CHAIN) == pytest.approx(saved.median("c", "update", CHAIN), abs=1e-3)
    records.save(loaded, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == path.read_text()


def test_a_file_has_a_record_on_each_line(tmp_path):
    path = tmp_path / "run.json"
    records.save(results(), path)
    assert json.loads(path.read_text())["format"] == records.FORMAT
    assert sum('"metric"' in line for line in path.read_text().splitlines()) == len(results().records)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 99}', '{"format": 1, "machine": {}, "absent": {}}'])
def test_other_files_are_refused(tmp_path, text):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(GraphdslError, match="holds no results") as caught:
        records.load(path)
    assert caught.value.value == path
