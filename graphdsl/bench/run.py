"""Runs the benchmark: one process for each library, one after the other, each with a limit on its time.

A library that crashes or hangs costs its own measurements, and what it had found before is kept. This module must not
measure anything itself.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from graphdsl.bench.imports import import_times
from graphdsl.bench.machine import facts
from graphdsl.bench.peers import PEERS, Setting, cases_of
from graphdsl.bench.records import NO_GRAPH, OURS, Case, Record, Results, records
from graphdsl.bench.shapes import SHAPES, require_shape

NODES = (1, 100, 1000)
UPDATED = (1, 10, 100, 1000, 10_000)
"""Nodes of the chains whose nodes are all changed by one update."""

LARGEST = 100_000
"""Nodes of the chain that shows whether building takes linear time."""

WHOLE_SECONDS = 225.0
"""No run takes longer."""


@dataclass(frozen=True)
class Plan:
    """What is to be measured.

    Attributes
    ----------
    peers : tuple of str
        Libraries, of `graphdsl.bench.peers.PEERS`.
    cases : tuple of Case
        Graphs.
    quick : bool
        Measure little.
    """

    peers: tuple[str, ...]
    cases: tuple[Case, ...]
    quick: bool = False


def make_plan(
    *, peers: bool = False, nodes: Sequence[int] = (), shapes: Sequence[str] = (), quick: bool = False
) -> Plan:
    """What to measure.

    Parameters
    ----------
    peers : bool
        Other libraries too.
    nodes : sequence of int
        Sizes of graphs. None means 1, 100 and 1,000, and unless ``quick`` also the sizes that targets are about.
    shapes : sequence of str
        Names of shapes; none means all. Graphs of one node are all the same, and measured once.
    quick : bool
        Measure little.

    Raises
    ------
    GraphdslError
        If a shape is unknown, or a size is none.
    """
    shapes = shapes or tuple(SHAPES)
    of_one = "chain" if "chain" in shapes else shapes[0]
    cases = [Case(shape if count > 1 else of_one, count) for shape in shapes for count in nodes or NODES]
    if "chain" in shapes and not nodes and not quick:
        cases += [Case("chain", count) for count in (*UPDATED, LARGEST)]
    for case in cases:
        require_shape(*case)
    return Plan(tuple(PEERS) if peers else (OURS,), tuple(dict.fromkeys(cases)), quick)


def run(plan: Plan, progress: Callable[[str], None] = lambda text: None) -> Results:
    """Measure what a plan says.

    Parameters
    ----------
    plan : Plan
        Made by `make_plan`.
    progress : callable
        Told what is measured next.
    """
    deadline = time.monotonic() + WHOLE_SECONDS
    found: list[Record] = []
    absent: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        setting = make_setting(Path(folder), plan.quick)
        progress("import")
        found += records(OURS, NO_GRAPH, import_times(2 if plan.quick else 5))
        for peer in plan.peers:
            if peer != OURS and not setting.has_gpu:
                absent[peer] = "it needs a GPU"
                continue
            progress(PEERS[peer].title)
            seconds = min(PEERS[peer].seconds, deadline - time.monotonic())
            made, reason = measure_peer(peer, cases_of(peer, list(plan.cases)), setting, seconds)
            found += made
            if reason is not None:
                absent[peer] = reason
    return Results(facts(), tuple(found), absent)


def make_setting(folder: Path, quick: bool) -> Setting:
    """Compile the kernel for the GPU, into a folder; without a GPU there is nothing to compile."""
    from graphdsl.drivers.cuda import unavailable

    if unavailable() is not None:
        return Setting(quick=quick)
    from cuda.core import Device
    from numba.cuda import types

    from graphdsl.bench.kernel import step
    from graphdsl.compile.numba import compile_kernel
    from graphdsl.declare.kernel import as_kernel

    major, minor = Device(0).compute_capability  # asked for without a context: that is for the processes that measure
    image = compile_kernel(as_kernel(step), (types.float32[::1], types.float32, types.int32), (major, minor))
    cubin = folder / "step.cubin"
    cubin.write_bytes(image.cubin)
    return Setting(str(cubin), image.entry, quick)


def measure_peer(peer: str, cases: Sequence[Case], setting: Setting, seconds: float) -> tuple[list[Record], str | None]:
    """Measure a library in a process of its own; gives what it found, and why that is not all."""
    if seconds <= 0:
        return [], "the time of the whole run was over"
    request = {"peer": peer, "cases": cases, "setting": asdict(setting)}
    said, status, errors = _run_limited(worker_command(request), seconds)
    found: list[Record] = []
    reason = None
    for line in said.splitlines():
        message = _message(line)
        if "absent" in message:
            reason = message["absent"]
        elif "case" in message:
            found += records(peer, Case(*message["case"]), message["samples"])
    if status is None:
        reason = f"it was stopped after {seconds:.0f} s"
    elif status and reason is None:
        reason = f"its process ended with status {status}: {_last_line(errors)}"
    return found, reason


def worker_command(request: dict[str, Any]) -> list[str]:
    """The command that answers a request."""
    return [sys.executable, "-m", "graphdsl.bench.worker", json.dumps(request)]


def _run_limited(command: list[str], seconds: float) -> tuple[str, int | None, str]:
    """Run a command for a limited time; gives its output, its status (None if it was stopped) and its errors."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors, start_new_session=True)
        try:
            status: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end(process)
        out.seek(0)
        errors.seek(0)
        return out.read(), status, errors.read()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it started; those that have ended already are no error."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _message(line: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(line)
    except ValueError:  # the last line of a process that was stopped may be cut
        return {}
    return found


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
