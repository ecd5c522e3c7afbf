"""What the tests ask of a report."""

from __future__ import annotations

from typing import Any

from graphdsl.check import Finding, Report, check

LAUNCHED_ANYHOW = {"block": None, "least_shared_bytes": 0}
"""Of an image that can be launched with any block and no shared memory."""

Triple = tuple[str, str | None, str | None]


def _is_aside(found: Finding) -> bool:
    """True of what is found in most graphs of a few nodes that stand for themselves: unused operands, no order."""
    return found.code == "GD702" or found.code.startswith("GD6")


def judged(report: Report) -> list[Triple]:
    """Code, node and field of each finding but those about operands that no node uses, and about order."""
    return [(found.code, found.node, found.field) for found in report if not _is_aside(found)]


def errors_of(report: Report) -> list[Finding]:
    """The errors, but for those that `judged` leaves out."""
    return [found for found in report.errors if not _is_aside(found)]


def in_any_order(definition: Any) -> Any:
    """A graph whose nodes stand for themselves, so that nothing is found of their order; gives it back."""
    definition.independent(definition.nodes, definition.nodes, why="this is about other rules")
    return definition


def codes(report: Report) -> set[str]:
    return {code for code, _, _ in judged(report)}


def cheap(definition: Any, **options: Any) -> Report:
    """A check that compiles nothing."""
    return check(definition, compile=False, **options)


def only(report: Report) -> Finding:
    """The one finding that there is, but for those that `judged` leaves out."""
    (found,) = [found for found in report if not _is_aside(found)]
    return found
