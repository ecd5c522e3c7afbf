"""Runs what might hang, for so long and no longer: a test that would wait for ever fails, and says where."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE = 60.0
"""Seconds. Nothing here takes a second of them; a hang takes all."""


def bounded(call: Callable[[], Any]) -> Any:
    """What ``call`` gives or raises; if it does not end, the test fails with the stacks of all threads."""
    return at_once(call)[0]


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """What the calls give, each in a thread of its own, begun together; raises what the first to fail raised."""
    start = threading.Barrier(len(calls))
    found: dict[int, Any] = {}
    failures: list[BaseException] = []

    def run(index: int) -> None:
        try:
            start.wait()
            found[index] = calls[index]()
        except BaseException as problem:
            failures.append(problem)

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + PATIENCE
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0))
    if failures:
        raise failures[0]
    assert len(found) == len(calls), f"it has not ended after {PATIENCE} s\n{_stacks()}"
    return [found[index] for index in range(len(calls))]


def script(source: str, expect: int = 0) -> str:
    """What a Python program prints, run in a process of its own; it must end in time, and with that exit status."""
    ran = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", source],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=Path(__file__).parents[1],
    )
    assert ran.returncode == expect, f"exit status {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


def _stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )
