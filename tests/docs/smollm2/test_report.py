"""The page of a benchmark says what its JSON file says, and nothing that no run has found."""

import copy
import json
from pathlib import Path

import pytest
from smollm2 import report

RECORDED = sorted((Path(report.__file__).parents[2] / "benchmarks" / "smollm2").glob("*.json"))

STEP = {"us": 300.0, "low": 290.0, "high": 310.0, "first": 320.0, "processor": 3.0, "device": 295.0, "tokens_s": 3333.3}
SLOW = {**STEP, "us": 3000.0, "first": 3100.0, "processor": 2900.0, "tokens_s": 333.3}
FLOOR = {"nodes": 93, "weight_bytes": 88_000_000, "bandwidth_gb_s": 4000.0, "gap_us": 0.8, "us": 96.4}
FOUND = {
    "format": 1,
    "machine": {"gpu": "a GPU", "driver": "580", "date": "2026-11-30"},
    "tokens": 128,
    "compile": {"cold": {"decode": 9.5, "prompt64": 12.25}, "warm": {"decode": 0.1, "prompt64": 0.2}},
    "build": {"nodes": 93, "edges": 92, "declare": 10.0, "check": 12.0, "emit": 0.5, "instantiate": 40.0},
    "decode": {
        "graph": STEP,
        "streamed": {**STEP, "us": 305.0},
        "graph, full edges": {**STEP, "us": 350.0},
        "stream launches": SLOW,
    },
    "prompt": {"128": {"us": 1500.0, "tokens_s": 85_333.3}, "512": {"us": 5000.0, "tokens_s": 102_400.0}},
    "floor": FLOOR,
    "llama2 bf16 1": {
        "graph": {**STEP, "us": 4000.0, "device": 3990.0},
        "graph, full edges": {**STEP, "us": 4100.0, "device": 4050.0},
        "stream launches": {**SLOW, "us": 9000.0},
        "floor": {**FLOOR, "us": 3300.0},
    },
}


def written(tmp_path: Path, found: dict) -> Path:
    path = tmp_path / "h200.json"
    path.write_text(json.dumps(found))
    return path


def test_a_page_has_the_numbers(tmp_path):
    page = report.page_of(written(tmp_path, FOUND))
    assert "| one graph a token, kernels that overlap | 300.0 | 3,333 | 3.0 | 10.0 |" in page
    assert "| 128 | 1.50 | 85,333 | 17,300 |" in page
    assert "96 µs. A step takes 3.11 times that." in page
    assert "22.5 ms in all" in page
    assert "| prompt64 | 12.25 | 0.20 |" in page
    assert "| bf16 | 1 | off | 3.10 | 1152 | 518 | 634 | 9.00 | 3.30 | 333 |" in page
    assert "| bf16 | 1 | on | 0.32 | 512 | 511 | 1 | 4.00 | 3.30 | 3,333 |" in page


@pytest.mark.parametrize("part", ["compile", "build", "decode", "prompt", "floor", "llama2 bf16 1"])
def test_a_part_that_was_not_measured_is_not_on_the_page(tmp_path, part):
    found = copy.deepcopy(FOUND)
    del found[part]
    page = report.page_of(written(tmp_path, found))
    whole = report.page_of(written(tmp_path, FOUND))
    assert len(page) < len(whole)


def test_a_chart_is_drawn_of_what_there_is(tmp_path):
    pytest.importorskip("matplotlib")
    for found in (FOUND, {name: part for name, part in FOUND.items() if name not in ("decode", "prompt")}):
        page, picture = report.render(written(tmp_path, found))
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.name in page.read_text()


@pytest.mark.parametrize("source", RECORDED, ids=lambda path: path.stem)
def test_recorded_pages_are_those_of_their_files(source):
    assert source.with_suffix(".md").read_text() == report.page_of(source), "run docs/benchmarks/render.py"
    assert source.with_suffix(".png").exists()
