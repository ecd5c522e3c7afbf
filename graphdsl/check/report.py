"""What a check found: a report that is a list in code, a table in print, and an exception where one is wanted.

This module must not judge anything.
"""

from __future__ import annotations

import html
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from graphdsl.errors import CheckError, Location, describe, plain, text_of

if TYPE_CHECKING:
    from rich.table import Table

Severity = Literal["error", "warning", "advice"]

_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "advice")
_COLOURS = {"error": "red", "warning": "yellow", "advice": "cyan"}
_HEADINGS = ("code", "severity", "node", "found", "remedy", "declared")


@dataclass(frozen=True)
class Finding:
    """One defect, or one piece of advice.

    Attributes
    ----------
    code : str
        Of the rule, such as ``"GD101"``.
    severity : "error", "warning" or "advice"
        Errors keep a graph from being instantiated.
    node : str or None
        Name of the node concerned, the first where there are several.
    nodes : tuple of str
        Names of all nodes concerned.
    field : str or None
        The field of that node.
    value : object
        What was found there.
    rule : str
        The rule that it breaks, as a statement.
    remedy : str or None
        What to do.
    location : tuple of str and int, or None
        File and line of the declaration.
    """

    code: str
    severity: Severity
    node: str | None
    nodes: tuple[str, ...]
    field: str | None
    value: Any
    rule: str
    remedy: str | None
    location: Location | None

    @property
    def message(self) -> str:
        """All of it in a sentence or two."""
        return describe(
            self.rule, node=self.node, field=self.field, value=self.value, remedy=self.remedy, location=self.location
        )

    def __getstate__(self) -> dict[str, Any]:
        """For pickles: an error takes its report along to another process; see `graphdsl.errors.plain`."""
        return vars(self) | {"value": plain(self.value)}

    def to_json(self) -> dict[str, Any]:
        """A dict that `json.dumps` takes; a value that JSON has no form for becomes text."""
        return {
            "code": self.code,
            "severity": self.severity,
            "node": self.node,
            "nodes": list(self.nodes),
            "field": self.field,
            "value": _json_value(self.value),
            "rule": self.rule,
            "remedy": self.remedy,
            "location": None if self.location is None else list(self.location),
            "message": self.message,
        }

    def __str__(self) -> str:
        return f"{self.code} {self.message}"


def _json_value(value: Any) -> Any:
    try:
        return json.loads(json.dumps(value, default=str))
    except ValueError:  # an integer of more digits than Python writes out
        return text_of(value)


class Report(Sequence[Finding]):
    """All findings of a check: errors first, then warnings, then advice, each by code.

    Attributes
    ----------
    graph : str
        Name of the graph.
    target : str
        The device that it was held to, such as ``"sm_90"``.
    """

    def __init__(self, findings: Iterable[Finding], *, graph: str, target: str) -> None:
        self._findings = sorted(findings, key=lambda found: (_SEVERITIES.index(found.severity), found.code))
        self.graph = graph
        self.target = target

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> list[Finding]: ...
    def __getitem__(self, index: int | slice) -> Finding | list[Finding]:
        return self._findings[index]

    def __len__(self) -> int:
        return len(self._findings)

    def _of(self, severity: Severity) -> list[Finding]:
        return [found for found in self._findings if found.severity == severity]

    @property
    def errors(self) -> list[Finding]:
        """Findings that keep the graph from being instantiated."""
        return self._of("error")

    @property
    def warnings(self) -> list[Finding]:
        """Findings that are mistakes more often than not."""
        return self._of("warning")

    @property
    def advice(self) -> list[Finding]:
        """Findings that cost time but not correctness."""
        return self._of("advice")

    @property
    def ok(self) -> bool:
        """True if there are no errors."""
        return not self.errors

    def raise_for_errors(self) -> Report:
        """Raise if there are errors; else give the report back.

        Raises
        ------
        CheckError
            Its message lists every error; ``report`` is this report, and the other attributes are those of the first.
        """
        errors = self.errors
        if not errors:
            return self
        lines = "\n".join(f"  {found}" for found in errors)
        problem = CheckError(f"graph {self.graph!r} has {_count(len(errors), 'error')}:\n{lines}", report=self)
        first = errors[0]
        problem.rule, problem.node, problem.field = first.rule, first.node, first.field
        problem.value, problem.remedy, problem.location = first.value, first.remedy, first.location
        raise problem

    def to_json(self) -> list[dict[str, Any]]:
        """One dict for each finding, for `json.dumps`."""
        return [found.to_json() for found in self._findings]

    @property
    def summary(self) -> str:
        """What was found, in one line.

        Examples
        --------
        >>> Report([], graph="demo", target="sm_90").summary
        "graph 'demo' on sm_90: nothing found"
        """
        counts = [(len(self._of(severity)), severity) for severity in _SEVERITIES]
        said = ", ".join(_count(count, severity) for count, severity in counts if count)
        return f"graph {self.graph!r} on {self.target}: {said or 'nothing found'}"

    def print(self, **options: Any) -> None:
        """Print the table, in colour on a terminal; ``options`` are those of ``rich.console.Console``."""
        from rich.console import Console

        Console(**options).print(self)

    def __rich__(self) -> Table | str:
        from rich.markup import escape
        from rich.table import Table

        if not self._findings:
            return escape(self.summary)
        table = Table(title=escape(self.summary), title_justify="left", show_lines=True)
        for heading in _HEADINGS:
            table.add_column(heading, overflow="fold")
        for found, cells in zip(self._findings, self._rows(), strict=True):
            table.add_row(*map(escape, cells), style=_COLOURS[found.severity])
        return table

    def __str__(self) -> str:
        text = io.StringIO()
        self.print(file=text, width=120, color_system=None)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    def __repr__(self) -> str:
        return f"<Report: {self.summary}>"

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{heading}</th>" for heading in _HEADINGS)
        rows = "".join(
            f'<tr style="color: {_HTML_COLOURS[found.severity]}; text-align: left">'
            + "".join(f'<td style="text-align: left">{html.escape(cell)}</td>' for cell in cells)
            + "</tr>"
            for found, cells in zip(self._findings, self._rows(), strict=True)
        )
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>" if rows else ""
        return f"<p>{html.escape(self.summary)}</p>{table}"

    def _rows(self) -> Iterator[tuple[str, ...]]:
        """The cells of the table, in the order of the headings."""
        for found in self._findings:
            node = found.node or ""
            if len(found.nodes) > 1:
                node += f" and {len(found.nodes) - 1} more"
            declared = "" if found.location is None else f"{Path(found.location[0]).name}:{found.location[1]}"
            problem = describe(found.rule, field=found.field, value=found.value)
            yield found.code, found.severity, node, problem, found.remedy or "", declared


# Dark enough for white paper, light enough for a dark notebook.
_HTML_COLOURS = {"error": "#c0392b", "warning": "#b9771f", "advice": "#2980b9"}


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 or what == "advice" else f"{number} {what}s"
