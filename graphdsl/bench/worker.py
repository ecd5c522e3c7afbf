"""The process that measures one library: ``python -m graphdsl.bench.worker REQUEST``.

A request is JSON: the library, the cases, the setting. Answers are lines of JSON on stdout, each written at once, so
that what was found is kept whatever happens next: ``{"case": [SHAPE, NODES], "samples": {METRIC: [...]}}``, and
``{"absent": WHY}`` where the library is not there or fails.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from graphdsl.bench.measure import Samples
from graphdsl.bench.peers import Setting, peer_module
from graphdsl.bench.records import Case


def measured(peer: str, cases: list[Case], setting: Setting) -> Iterator[tuple[Case, Samples]]:
    """Measure a library: what it measures once, and then each of the cases."""
    module = peer_module(peer)
    if hasattr(module, "extras"):
        yield from module.extras(setting)
    for case in cases:
        yield case, module.measure(case, setting)


def answer(request: dict[str, Any], out: TextIO) -> None:
    """Do what a request says; whatever a library raises becomes an answer."""

    def say(**message: Any) -> None:
        print(json.dumps(message), file=out, flush=True)

    cases = [Case(*case) for case in request["cases"]]
    try:
        reason = peer_module(request["peer"]).unavailable()
        if reason is not None:
            say(absent=reason)
            return
        for case, samples in measured(request["peer"], cases, Setting(**request["setting"])):
            say(case=case, samples=samples)
    except Exception as problem:  # libraries raise errors of all kinds, and each is a finding
        say(absent=f"{type(problem).__name__}: {problem}")


if __name__ == "__main__":
    # Libraries print what they like: that goes to stderr, and only answers to stdout.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    answer(json.loads(sys.argv[1]), answers)
