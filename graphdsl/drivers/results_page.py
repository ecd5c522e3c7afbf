"""The page of the reference that lists what the driver's codes mean: made from the tables, never written by hand."""

from __future__ import annotations

from collections.abc import Iterable

from graphdsl.drivers.results import INSTANTIATE_RESULTS, RESULTS, UPDATE_RESULTS

_HEAD = """# Driver errors

What the codes of the CUDA driver mean for a graph, and what to do: what a `DriverError` says where nothing more is
known. How errors read, and how to find the node that fails, is in [the guide](../guide/failures.md).

This page is made from the tables of `graphdsl.drivers.results` (`graphdsl.drivers.results_page.results_page()`).
"""

_FAULTS = """**Faults** are of work that ran, not of the call that reports them; the context is lost with them, and only
a new process helps."""


def results_page() -> str:
    """The page, as Markdown."""
    codes = ((code, row) for code, row in sorted(RESULTS.items()) if code)
    rows = [
        (f"`{row.name}`", str(code), "fault" if row.is_fault else "", row.meaning, row.remedy) for code, row in codes
    ]
    updates = {name: row for name, row in UPDATE_RESULTS.items() if row[1]}
    parts = [
        _HEAD,
        f"## Codes\n\n{_FAULTS}\n",
        _table(("code", "number", "", "what happened", "what to do"), rows),
        "\n## Why a graph is not instantiated\n",
        _table(("result", "what happened", "what to do"), _named(INSTANTIATE_RESULTS)),
        "\n## Why an exec is not updated from a graph\n",
        _table(("result", "what happened", "what to do"), _named(updates)),
    ]
    return "\n".join(parts) + "\n"


def _named(results: dict[str, tuple[str, str]]) -> list[tuple[str, ...]]:
    return [(f"`{name}`", *row) for name, row in results.items()]


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
