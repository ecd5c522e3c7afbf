"""The benchmark of lanes: its graphs, what its tables say, and what its targets are."""

import networkx as nx
import pytest

import graphdsl as gd
from graphdsl.bench import lanes, records, report
from graphdsl.bench.lane_tables import MANY, lane_tables, lane_targets
from graphdsl.bench.lanes import AUTO, EXAMPLE, NONE, WAYS, Measured, build, compared, durations, filled, measured
from tests.bench.canned import MACHINE, record


class Clock:
    """In place of the GPU's: nothing is timed on a device here."""

    def measure(self, launch, budget):
        launch()
        return [1.0]


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(lanes, "_ROUNDS", 1)
    monkeypatch.setattr(lanes, "_BURST", 2)


def test_graphs_have_the_edges_that_they_say_and_names_of_their_own():
    cases = [what.case for what in measured()]
    assert len(set(cases)) == len(cases)
    assert MANY in cases
    for what in measured():
        dag = nx.DiGraph(what.edges(what.nodes))
        assert nx.is_directed_acyclic_graph(dag)
        assert set(dag) <= set(range(what.nodes))


@pytest.mark.parametrize("inside", ["", "child", "if"])
def test_each_way_runs_every_kernel(few, inside):
    what = Measured("independent", 9, lanes.independent, inside=inside)
    ways = {way: {"lanes": count} for way, count in WAYS.items() if way in (NONE, AUTO, "4 lanes")}
    found = compared(gd.emulator(), Clock(), build(what, 1.0), ways, filled)
    assert set(found) == set(ways)
    for samples in found.values():
        assert len(samples["repeat_launch_api"]) == len(samples["repeat_launch_total"]) == 1
        assert samples["repeat_launch_device"] == [1.0]


def test_only_what_is_told_has_durations():
    told = {what.load.name: durations(what, build(what, 1.0)) for what in measured() if what.nodes == 512}
    assert told[lanes.SPUN.name] is None
    assert told[lanes.SHORT.name] is None
    assert set(told[lanes.LONG.name].values()) == {10.0}
    assert len(told[lanes.LONG.name]) == 512


def test_many_short_kernels_are_threaded_without_being_told():
    what = next(what for what in measured() if what.case == MANY)
    made = build(what, 1.0).plan().lanes
    assert made.width is not None
    assert made.ends == (True, True)


def test_the_graph_of_the_example_is_measured_too(few, monkeypatch):
    monkeypatch.setattr(lanes, "WAYS", {way: WAYS[way] for way in (NONE, AUTO)})
    found = dict(lanes._example(gd.emulator(), Clock()))
    assert set(found) == {NONE, AUTO}


def a_run(auto):
    shape, nodes = MANY
    found = [
        record(way, "repeat_launch_total", nodes, time, shape)
        for way, time in ((NONE, 580.0), (AUTO, auto), ("32 lanes", 108.0))
    ]
    found += [record(way, "repeat_launch_total", EXAMPLE.nodes, 40.0, EXAMPLE.shape) for way in (NONE, AUTO)]
    return records.Results(MACHINE, tuple(found), {})


def test_targets_are_held_against_the_same_run():
    assert [target.verdict for target in lane_targets(a_run(110.0))] == ["met"] * 3
    assert [target.verdict for target in lane_targets(a_run(120.0))] == ["not met", "met", "met"]
    assert [target.verdict for target in lane_targets(a_run(600.0))] == ["not met", "not met", "met"]


def test_tables_have_a_column_for_each_way_that_was_measured(tmp_path):
    page = tmp_path / "some.json"
    records.save(a_run(110.0), page)
    text = report.page_of(page)
    assert "| kernels | number | as declared | auto | 32 lanes | auto ÷ as declared |" in text
    assert "| independent: 2 µs | 512 | 580 | 110 | 108 | 0.19 |" in text
    assert [table.title for table in lane_tables(a_run(1.0))] == [
        "Targets",
        "From the launch until the work is done, µs",
    ]


def test_a_chart_can_be_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    report.chart(a_run(110.0), tmp_path / "lanes.png")
    assert (tmp_path / "lanes.png").read_bytes().startswith(b"\x89PNG")
