"""Tables, pages and charts, from results that never were; and the pages of the docs, from those that were."""

import importlib.util
import io
from pathlib import Path

import pytest
from rich.console import Console

from graphdsl.bench import records, report, tables
from graphdsl.bench.records import OURS, Results
from graphdsl.errors import GraphdslError
from tests.bench.canned import MACHINE, record, results

DOCS = Path(__file__).resolve().parents[2] / "docs" / "benchmarks"


def table(found: Results, start: str) -> tables.Table:
    (made,) = [made for made in tables.tables(found) if made.title.startswith(start)]
    return made


def test_libraries_stand_beside_each_other_with_ratios():
    made = table(results(), "Launch, processor time")
    assert made.title.endswith("µs a graph")
    assert made.header == ("shape", "nodes", "graphdsl", "C", "cuda.core", "÷ C", "÷ best peer")
    assert made.rows[2] == ("chain", "1,000", "4.4 (3.96 to 5.28)", "4", "8", "1.10", "0.55")


def test_times_of_nodes_are_given_for_one():
    made = table(results(), "Change an argument of every node")
    assert made.title.endswith("µs a node")
    assert made.rows[1][3] == "0.26"  # C: 26 µs for 100 nodes


def test_a_captured_graph_stands_beside_an_emitted_one():
    made = table(results(), "Add nodes and edges")
    assert made.header[2:6] == ("graphdsl", "C", "cuda.core", "CuPy")
    assert made.rows[1][5] == "6"
    assert made.rows[0][5] == tables.NOT_MEASURED


def test_what_only_we_do_is_not_compared():
    found = results(record(OURS, "upload_api_time", 1, 1.0))
    assert not [made for made in tables.tables(found) if made.title.startswith("Upload")]


def test_only_targets_of_which_something_is_known_are_shown():
    made = table(results(), "Targets")
    assert ("launch a chain of 1", "at most CuPy", tables.NOT_MEASURED, "2.2 µs", "not measured") in made.rows
    assert not [row for row in made.rows if row[0] == "update one node"]
    assert "not measured" in made.note


def test_the_crossover_is_named():
    assert table(results(), "Changing a part").note == (
        "The fastest way for each part: 1 %: one update of a param, 100 %: whole graph: emit and cuGraphExecUpdate."
    )
    always = results(record(OURS, "change_by_param_100", 1000, 500.0))
    assert tables.crossover(always) == "The fastest way for every part: one update of a param."


def test_what_was_not_measured_is_named_with_the_reason():
    made = table(results(absent={"warp": "Warp is not installed"}), "Not measured")
    assert made.rows == (("Warp", "Warp is not installed"),)


def test_tables_are_printed():
    out = io.StringIO()
    Console(file=out, width=200, color_system=None).print(*tables.tables(results()))
    for word in ("Targets", "cuda.core", "÷ C", "at most 1.25 times C"):
        assert word in out.getvalue()


def test_a_table_without_rows_is_left_out():
    assert tables.tables(Results(MACHINE, (), {})) == []


def test_the_machine_is_told_in_one_line():
    assert tables.machine_text(MACHINE).startswith("Some GPU, driver 580.1; Some CPU; Python 3.11.7; numpy 2.0;")
    assert tables.machine_text({}).startswith("no GPU; ")


def test_a_page_is_markdown():
    text = report.to_markdown(results(), "Benchmark: some", "some.png")
    assert text.startswith("# Benchmark: some\n")
    assert "![Times of each](some.png)" in text
    assert "| chain | 1,000 | 4.4 (3.96 to 5.28) | 4 | 8 | 1.10 | 0.55 |" in text
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if line.startswith("|") and not lines[i - 1].startswith("|"):
            assert line.count("|") == lines[i + 1].count("|")
            assert set(lines[i + 1]) <= set("| -")


def test_a_page_and_a_chart_are_rendered_beside_the_json(tmp_path):
    pytest.importorskip("matplotlib")
    source = tmp_path / "some.json"
    records.save(results(), source)
    page, picture = report.render(source)
    assert page.read_text() == report.page_of(source)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_chart_without_matplotlib_is_refused_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(GraphdslError, match="pip install matplotlib"):
        report.chart(results(), tmp_path / "chart.png")


@pytest.mark.parametrize("source", sorted(DOCS.glob("*.json")), ids=lambda path: path.stem)
def test_the_pages_of_the_docs_are_current(source):
    assert source.with_suffix(".md").read_text() == report.page_of(source), "run docs/benchmarks/render.py"
    assert source.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_the_renderer_of_the_docs_renders_its_folder(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    script = tmp_path / "render.py"
    script.write_text((DOCS / "render.py").read_text())
    monkeypatch.syspath_prepend(DOCS.parent / "examples")  # where the script would be looking beside itself
    records.save(results(), tmp_path / "some.json")
    exec(compile(script.read_text(), script, "exec"), {"__file__": str(script), "__name__": "__main__"})
    assert (tmp_path / "some.md").exists()
    assert (tmp_path / "some.png").exists()
