"""The pages of the engine's bench and soak say what their JSON files say."""

import json
from pathlib import Path

import pytest
from smollm2 import serve_report, soak

RECORDED = sorted((Path(serve_report.__file__).parents[2] / "benchmarks" / "serving").glob("*.json"))

MACHINE = {"machine": {"gpu": "a GPU", "driver": "580", "date": "2026-11-30"}}
WAIT = {"p50": 1.25, "p99": 2.5}
TRACE = {
    "requests": 512,
    "tokens_s": 9000.4,
    "token": WAIT,
    "first": WAIT,
    "queue": WAIT,
    "batch": 7.5,
    "padding": 0.12,
}
BENCH = {
    **MACHINE,
    "prompt": 16,
    "answer": 272,
    "warm up": 20.0,
    "batch 1": {"tokens_s": 3000.0, "token": WAIT, "step": 0.31},
    "batch 32": {"tokens_s": 24_000.0, "token": WAIT, "step": 1.3},
    "one by one 32": {"tokens_s": 1600.0, "token": {"p50": 20.0, "p99": 21.0}, "step": 19.0},
    "trace 50": TRACE,
    "trace at once": {**TRACE, "tokens_s": 12_000.0},
}
SOAK = {
    **MACHINE,
    **vars(
        soak.Record(
            steps=100_000,
            requests=31_000,
            cancelled=900,
            tokens=1_000_000,
            swaps=99,
            swap_ms=[5.5, 7.25],
            batches={1: 10, 31: 5},
            memory=[(step, 10**9, 5 * 10**8) for step in range(0, 100_001, 1000)],
            seconds=120.0,
        )
    ),
    "device_growth": 0,
    "process_growth": 1_500_000,
}


def written(tmp_path, found):
    path = tmp_path / "h200.json"
    path.write_text(json.dumps(found))
    return path


def test_a_page_of_the_bench_has_its_numbers(tmp_path):
    page = serve_report.page_of(written(tmp_path, BENCH))
    assert "| 32 | 24,000 | 1.250 / 2.500 | 1.300 | 4,709 |  | 1,600 | 20.00 / 21.00 |" in page
    assert "5.1 times transformers, and 1.20 times the 20,000 tokens/s that were the aim" in page
    assert "| 1 | 3,000 | 1.250 / 2.500 | 0.310 | 308 |  |  |  |" in page
    assert "| 50 | 9,000 | 1.25 / 2.50 | 1.25 / 2.50 | 1.25 / 2.50 | 7.5 | 12% |" in page
    assert "| at once | 12,000 |" in page


def test_transformers_that_were_measured_beside_the_engine_are_what_is_shown(tmp_path):
    beside = {"transformers 32": {"tokens_s": 6000.0, "token": {"p50": 5.2, "p99": 6.3}}}
    page = serve_report.page_of(written(tmp_path, BENCH | beside))
    assert "| 6,000 | 5.20 / 6.30 | 1,600 |" in page
    assert "4.0 times transformers" in page
    assert "4,709" not in page


def test_a_page_of_the_soak_has_its_numbers(tmp_path):
    page = serve_report.page_of(written(tmp_path, SOAK))
    assert "100,000 steps in 120 s, with 31,000 requests" in page
    assert "1 to 31 requests at a time" in page
    assert "**0 were wrong**" in page
    assert "swapped 99 times (5.50 ms, at most 7.25)" in page
    assert "grew by 0.0 MB and this process by 1.5 MB" in page
    assert page.count("| 1,000.0 | 500.0 |") == 11


def test_a_chart_is_drawn_of_what_there_is(tmp_path):
    pytest.importorskip("matplotlib")
    page, picture = serve_report.render(written(tmp_path, BENCH))
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.name in page.read_text()
    assert serve_report.render(written(tmp_path, SOAK)) == (page,)


def test_recorded_pages_are_those_of_their_files():
    for source in RECORDED:
        assert source.with_suffix(".md").read_text() == serve_report.page_of(source), "run docs/benchmarks/render.py"
