import pytest

from graphdsl.bench.records import OURS, Results
from graphdsl.bench.targets import Target, summary, targets
from tests.bench.canned import record, results


def verdicts(found: Results) -> dict[tuple[str, str], str]:
    return {(target.what, target.must): target.verdict for target in targets(found)}


def test_relative_targets_are_held_against_the_same_run():
    found = verdicts(results())
    assert found["launch a chain of 1,000", "at most 1.25 times C"] == "met"
    assert found["launch a chain of 1,000", "at most cuda.core"] == "met"
    slow = verdicts(results(record(OURS, "repeat_launch_api", 1000, 100.0)))
    assert slow["launch a chain of 1,000", "at most 1.25 times C"] == "not met"
    assert slow["launch a chain of 100", "at most 1.25 times C"] == "met"


def test_what_was_not_measured_is_neither_met_nor_missed():
    found = verdicts(results())
    assert found["launch a chain of 1", "at most CuPy"] == "not measured"
    assert found["update one node", "at most 5"] == "not measured"
    assert set(verdicts(Results({}, (), {})).values()) == {"not measured"}


def test_absolute_targets_grow_with_the_nodes():
    for nodes, limit in ((1, 3.35), (1000, 353.0)):
        (target,) = [t for t in targets(results()) if t.what.startswith(f"update a param of {nodes:,} node")]
        assert target.limit == pytest.approx(limit)
        assert target.verdict == "met"


def test_building_is_held_to_a_node_and_to_linear_time():
    linear = results(record(OURS, "build", 1000, 10_000.0), record(OURS, "build", 100_000, 1_400_000.0))
    found = verdicts(linear)
    assert found["build 1,000 nodes, each", "at most 20"] == "met"
    assert found["building 100,000 nodes against 1,000, each", "linear: at most 1.5 times"] == "met"
    quadratic = results(record(OURS, "build", 1000, 10_000.0), record(OURS, "build", 100_000, 1_600_000.0))
    assert verdicts(quadratic)["building 100,000 nodes against 1,000, each", "linear: at most 1.5 times"] == "not met"


@pytest.mark.parametrize(("end", "heap", "rss", "met"), [(3.1, 0, 4096, 3), (3.4, 2000, 2**21, 0)])
def test_many_updates_are_flat(end, heap, rss, met):
    flat = {"begin": 3.0, "end": end, "heap_growth": heap, "rss_growth": rss}
    found = results(*(record(OURS, f"update_flat_{name}", 1, value) for name, value in flat.items()))
    names = ("the last of a million updates", "objects that 10,000 updates leave", "memory a million updates take")
    assert [t.verdict for t in targets(found) if t.what in names].count("met") == met


def test_the_import_is_in_seconds():
    (target,) = [t for t in targets(results()) if t.what == "import graphdsl"]
    assert (target.found, target.limit, target.unit, target.verdict) == (0.35, 0.4, "s", "met")


def test_a_summary_counts():
    assert summary([Target("a", "", 1.0, 1.0), Target("b", "", 2.0, 1.0)]) == "1 of 2 targets met"
