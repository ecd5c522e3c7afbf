"""What the tests ask of a report."""

from __future__ import annotations

from typing import Any

from graphdsl.check import Finding, Report, check

LAUNCHED_ANYHOW = {"block": None, "least_shared_bytes": 0}
"""Of an image that can be launched with any block and no shared memory."""

Triple = tuple[str, str | None, str | None]


def judged(report: Report) -> list[Triple]:
    """Code, node and field of each finding but those about operands that no node uses."""
    return [(found.code, found.node, found.field) for found in report if found.code != "GD702"]


def codes(report: Report) -> set[str]:
    return {code for code, _, _ in judged(report)}


def cheap(definition: Any, **options: Any) -> Report:
    """A check that compiles nothing."""
    return check(definition, compile=False, **options)


def only(report: Report) -> Finding:
    """The one finding that there is."""
    (found,) = [found for found in report if found.code != "GD702"]
    return found
