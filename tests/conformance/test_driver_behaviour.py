"""The table of what the driver does: every rule has a trial, and the page says what was recorded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.behaviour.__main__ import PAGE, RECORD, main
from tests.conformance.behaviour.page import AGREES, DIFFERS, SEEN, UNTRIED, render, verdict
from tests.conformance.behaviour.run import ROOT, observe
from tests.conformance.behaviour.trials import SECTIONS, Trial, all_trials

MACHINE = {"gpu": "a GPU", "driver": "1", "cuda": "13.0", "bindings": "13.3", "date": "2026-11-29"}


def _trial(rule: str = "C-1.1", **options: Any) -> Trial:
    return Trial(rule, "A rule.", lambda t, gpu: None, **options)


def _step(answer: str, *wanted: str) -> dict[str, Any]:
    return {"what": "a call", "answer": answer, **({"wanted": list(wanted)} if wanted else {})}


def test_every_rule_has_a_trial() -> None:
    tried = {trial.rule for trial in all_trials().values()}
    rules = {f"{section.number}.{item}" for section in SECTIONS for item in range(1, section.rules + 1)}
    assert tried == rules


@pytest.mark.parametrize(
    ("seen", "options", "expected"),
    [
        ({"steps": [_step("SUCCESS", "SUCCESS")]}, {}, AGREES),
        ({"steps": [_step("INVALID_VALUE, blames node 2", "INVALID_VALUE")]}, {}, AGREES),
        ({"steps": [_step("NOT_SUPPORTED", "INVALID_VALUE", "NOT_SUPPORTED")]}, {}, AGREES),
        ({"steps": [_step("SUCCESS", "INVALID_VALUE")]}, {}, DIFFERS),
        ({"steps": [_step("INVALID_VALUES", "INVALID_VALUE")]}, {}, DIFFERS),
        ({"steps": [_step("12")]}, {}, SEEN),
        ({"steps": [], "untried": "it needs two GPUs"}, {}, UNTRIED),
        ({"steps": [_step("SUCCESS", "SUCCESS")], "end": "the process died of SIGSEGV"}, {}, DIFFERS),
        ({"steps": [], "end": "the process died of SIGSEGV"}, {"ending": "dies"}, AGREES),
        ({"steps": [_step("SUCCESS")]}, {"ending": "dies"}, DIFFERS),
        ({"steps": [], "end": "no answer after 10 s"}, {"ending": "dies"}, DIFFERS),
        ({"steps": [], "end": "no answer after 10 s"}, {"ending": "hangs"}, AGREES),
        ({"steps": [], "end": "the process died of SIGSEGV"}, {"ending": "any"}, SEEN),
    ],
)
def test_verdicts(seen: dict[str, Any], options: dict[str, Any], expected: str) -> None:
    assert verdict(_trial(**options), seen) == expected


def test_the_page_names_rule_verdict_and_answers() -> None:
    steps = [{"what": "first", "answer": "OK"}, {"what": "a | b", "answer": "12", "wanted": ["13", "14"]}]
    page = render({"machine": MACHINE, "trials": {"<lambda>": {"steps": steps}}}, {"<lambda>": _trial()})
    assert "| C-1.1 A rule. | **differs**: `12`, not `13` or `14`: a \\| b | `OK`: first<br>`12`: a \\| b |" in page
    assert "Of 1 trials: 0 agrees, 1 differs, 0 measured, 0 could not be tried." in page


def test_a_trial_that_was_never_run_says_so() -> None:
    assert "**could not be tried**: not yet run" in render({"machine": MACHINE, "trials": {}}, {"name": _trial()})


def test_the_page_is_what_was_recorded(tmp_path: Path) -> None:
    assert main(["--render", "--out", str(tmp_path / "page.md")]) == 0
    assert (tmp_path / "page.md").read_text() == PAGE.read_text()
    assert set(json.loads(RECORD.read_text())["trials"]) <= set(all_trials())


STEP = """print('{"what": "a call", "answer": "SUCCESS"}', flush=True);"""


@pytest.mark.parametrize(
    ("program", "end"),
    [
        (STEP, None),
        (STEP + "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "the process died of SIGSEGV"),
        (STEP + "raise KeyError('a slip')", "the trial broke: KeyError: 'a slip'"),
        (STEP + "import time; time.sleep(60)", "no answer after 1 s"),
    ],
)
def test_what_a_process_said_is_kept_however_it_ends(program: str, end: str | None) -> None:
    record = observe([sys.executable, "-c", program], seconds=60 if end is None or "answer" not in end else 1)
    assert record.get("end") == end
    assert record["steps"] == [_step("SUCCESS")] or end == "no answer after 1 s"


def test_why_a_trial_was_not_run_is_kept() -> None:
    program = """print('{"untried": "it needs two GPUs"}')"""
    assert observe([sys.executable, "-c", program], seconds=60) == {"steps": [], "untried": "it needs two GPUs"}


def test_the_command_explains_itself() -> None:
    command = [sys.executable, "-m", "tests.conformance.behaviour", "--help"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    assert "--render" in told
    assert "--only" in told
