"""The command; see the package."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tests.conformance.behaviour.page import DIFFERS, render, verdict
from tests.conformance.behaviour.run import ROOT, run_all, run_here
from tests.conformance.behaviour.trials import all_trials

RECORD = ROOT / "docs" / "gpu" / "driver-behaviour.json"
PAGE = ROOT / "docs" / "driver-behaviour.md"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.behaviour", description=__doc__)
    parser.add_argument("--render", action="store_true", help="make the page of what was recorded, without a GPU")
    parser.add_argument(
        "--only",
        default="",
        help="run trials whose rule or name has this in it; what was recorded of the others is kept",
    )
    parser.add_argument("--jobs", type=int, default=8, help="trials at a time")
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--out", type=Path, default=PAGE, help="the page")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--images", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.child:
        run_here(given.child, given.images)
        return 0
    if not given.render:
        measure(given.record, given.only, given.jobs)
    record = json.loads(given.record.read_text())
    given.out.write_text(render(record, all_trials()))
    return 0


def measure(path: Path, only: str, jobs: int) -> None:
    """Run trials and write what they saw."""
    from tests.conformance.behaviour.gpu import compile_images
    from tests.gpu_run import gpu_facts, package_versions

    facts = gpu_facts()
    trials = all_trials()
    chosen = [trial for trial in trials.values() if only in trial.name or only in trial.rule]
    seen = json.loads(path.read_text())["trials"] if only and path.exists() else {}
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        major, minor = facts["compute_capability"].split(".")
        compile_images(Path(folder), (int(major), int(minor)))
        for name, record in run_all(chosen, Path(folder), jobs):
            seen[name] = record
            kind = verdict(trials[name], record)
            print(f"{trials[name].rule:7} {name}: {kind}", flush=True)
            if kind == DIFFERS:
                print(json.dumps(record, indent=2), flush=True)
    print(f"{len(chosen)} trials in {time.monotonic() - start:.0f} s")
    machine: dict[str, Any] = {
        "date": datetime.now(timezone.utc).date().isoformat(),
        **facts,
        "bindings": package_versions()["cuda-bindings"],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    ordered = {name: seen[name] for name in trials if name in seen}
    path.write_text(json.dumps({"machine": machine, "trials": ordered}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
