"""Runs trials, each in a process of its own: a driver may crash or hang over what it is asked.

A child says what it sees line by line, as JSON, so that what it saw before it died is kept.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

from tests.conformance.behaviour.trials import Trial, all_trials

ROOT = Path(__file__).resolve().parents[3]
SECONDS = {"hangs": 10}
"""After so long a trial is given up, by how it is expected to end; else after 30."""

DIED, HUNG = "the process died", "no answer"
"""How what is said of a process that did not end by itself begins."""

Steps = list[dict[str, Any]]


class _Cannot(Exception):
    pass


class StreamRecorder:
    """A `Recorder` that writes each step to a file as a line of JSON, at once."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def _write(self, **step: Any) -> None:
        self._file.write(json.dumps(step) + "\n")
        self._file.flush()

    def expect(self, what: str, got: Any, wanted: Any) -> None:
        allowed = wanted if isinstance(wanted, tuple) else (wanted,)
        self._write(what=what, answer=str(got), wanted=[str(answer) for answer in allowed])

    def note(self, what: str, got: Any) -> None:
        self._write(what=what, answer=str(got))

    def cannot(self, why: str) -> NoReturn:
        raise _Cannot(why)

    def untried(self, why: str) -> None:
        self._write(untried=why)


def run_here(name: str, images: Path) -> None:
    """Try one rule in this process, and write what comes of it to the standard output."""
    from tests.conformance.behaviour.answers import SetupError
    from tests.conformance.behaviour.gpu import Gpu

    recorder = StreamRecorder(sys.stdout)
    try:
        all_trials()[name].run(recorder, Gpu(images))
    except _Cannot as reason:
        recorder.untried(str(reason))
    except SetupError as problem:
        recorder.untried(f"what it needs failed: {problem}")


def run_in_child(trial: Trial, images: Path) -> dict[str, Any]:
    """Try one rule in a process of its own; gives what `observe` does."""
    return observe(
        [sys.executable, "-m", __package__, "--child", trial.name, "--images", str(images)],
        SECONDS.get(trial.ending, 30),
    )


def observe(command: list[str], seconds: float) -> dict[str, Any]:
    """Run a command that writes steps, and say how it ended.

    Returns
    -------
    dict
        ``steps``, a list of ``{"what", "answer"}`` with ``"wanted"`` where the rule foretells the answer; and, where
        they apply, ``untried`` (why it was not tried) and ``end`` (how the process ended, if not by itself).
    """
    end = None
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        try:
            said, complaint = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            said, complaint = process.communicate()
            end = f"{HUNG} after {seconds:g} s"
    if end is None and process.returncode < 0:
        end = f"{DIED} of {signal.Signals(-process.returncode).name}"
    elif end is None and process.returncode:
        end = f"the trial broke: {complaint.strip().splitlines()[-1] if complaint.strip() else process.returncode}"
    return _record([json.loads(line) for line in said.splitlines()], end)


def _record(lines: Steps, end: str | None) -> dict[str, Any]:
    record: dict[str, Any] = {"steps": [line for line in lines if "untried" not in line]}
    for line in lines:
        if "untried" in line:
            record["untried"] = line["untried"]
    if end is not None:
        record["end"] = end
    return record


def run_all(trials: Iterable[Trial], images: Path, jobs: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Try rules side by side, then, one after the other, those that want the machine alone."""
    trials = list(trials)
    together = [trial for trial in trials if not trial.alone]
    with ThreadPoolExecutor(jobs) as pool:
        yield from zip(
            (trial.name for trial in together), pool.map(lambda trial: run_in_child(trial, images), together)
        )
    for trial in trials:
        if trial.alone:
            yield trial.name, run_in_child(trial, images)
