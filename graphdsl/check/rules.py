"""The rules of `graphdsl.check`: how one is registered, listed and documented.

A rule is one small function with a code. Its docstring is its page in the documentation. This module must know no
rule and no node.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

from graphdsl.check.report import Finding, Severity
from graphdsl.errors import Location

Subject = Literal["graph", "node", "launch"]
"""What a rule looks at: the graph as a whole, its nodes, or evaluated launches. The last two serve updates too."""


class Named(Protocol):
    """A node, or what stands for one."""

    @property
    def name(self) -> str: ...

    @property
    def location(self) -> Location | None: ...


class Found(Protocol):
    """Makes the finding of a rule; `rule` hands it to the rule's function with code and severity filled in."""

    def __call__(
        self,
        rule: str,
        *,
        node: Named | None = None,
        nodes: Iterable[str] = (),
        field: str | None = None,
        value: Any = None,
        remedy: str | None = None,
        location: Location | None = None,
    ) -> Finding: ...


@dataclass(frozen=True)
class Rule:
    """A rule that definitions are held to.

    Attributes
    ----------
    code : str
        Stable, such as ``"GD101"``.
    severity : "error", "warning" or "advice"
        Of its findings.
    title : str
        The rule in a few words.
    subject : "graph", "node" or "launch"
        What it looks at.
    function : callable
        Called with the context of a check and a maker of findings; gives the findings.
    """

    code: str
    severity: Severity
    title: str
    subject: Subject
    function: Callable[[Any, Found], Iterable[Finding]]

    @property
    def documentation(self) -> str:
        """Its page: what, why, source, remedy and an example, in Markdown."""
        return inspect.cleandoc(self.function.__doc__ or "")

    def findings(self, context: Any) -> Iterable[Finding]:
        """What it finds in the context of a check."""
        return self.function(context, partial(_finding, self.code, self.severity))


def _finding(
    code: str,
    severity: Severity,
    rule: str,
    *,
    node: Named | None = None,
    nodes: Iterable[str] = (),
    field: str | None = None,
    value: Any = None,
    remedy: str | None = None,
    location: Location | None = None,
) -> Finding:
    name = None if node is None else node.name
    if location is None and node is not None:
        location = node.location
    named = tuple(nodes) or (() if name is None else (name,))
    return Finding(code, severity, name, named, field, value, rule, remedy, location)


_rules: dict[str, Rule] = {}

RuleFunction = Callable[[Any, Found], Iterable[Finding]]


def rule(
    code: str, severity: Severity, title: str, *, subject: Subject = "node"
) -> Callable[[RuleFunction], RuleFunction]:
    """Register the function below as a rule.

    Parameters
    ----------
    code : str
        ``GD`` and three digits; the first digit is the family. A code is never given a second meaning.
    severity : "error", "warning" or "advice"
        Errors keep a graph from being instantiated.
    title : str
        The rule in a few words.
    subject : "graph", "node" or "launch"
        What it looks at.
    """

    def register(function: RuleFunction) -> RuleFunction:
        if code in _rules:
            raise ValueError(f"two rules have the code {code}: {_rules[code].title}, and {title}")
        _rules[code] = Rule(code, severity, title, subject, function)
        return function

    return register


def rules() -> list[Rule]:
    """All rules, by code."""
    return [_rules[code] for code in sorted(_rules)]


_FAMILIES = {
    "GD1": "Structure, operands and params",
    "GD2": "Kernels and launches",
    "GD3": "Copies, memsets, views and host functions",
    "GD4": "Lifetime of memory",
    "GD5": "Conditional nodes",
    "GD6": "Hazards",
    "GD7": "Advice",
}

_INTRODUCTION = """\
# Checks

`graph.check()` holds a graph to the rules below before anything reaches a driver, and reports all that it finds: one
defect never hides another. **Errors** keep a graph from being instantiated; **warnings** are mistakes more often than
not; **advice** costs time but not correctness. A code never changes its meaning.

This page is made from the docstrings of the rules (`graphdsl.check.rules_page()`).

Every example stands after these lines, and what it sets is given to `g.check(target, values=values,
disabled=disabled)`:
"""

EXAMPLE_PRELUDE = """\
import numpy as np
from numba import cuda

import graphdsl as gd


@cuda.jit
def scale(x, y, gain, n):
    i = cuda.grid(1)
    if i < n:
        y[i] = gain * x[i]


g = gd.Graph("demo")
n = g.param("n", np.int32, default=1024)
gain = g.param("gain", np.float32, default=1.0)
raw = g.host_array("raw", 1024, np.float32)
x = g.device_array("x", 1024, np.float32)
y = g.device_array("y", 1024, np.float32)
target = None
values = {}
disabled = []
"""
"""What stands before the example of each rule."""


def rules_page() -> str:
    """The page of the documentation that lists every rule, in Markdown."""
    parts = [f"{_INTRODUCTION}\n```python prelude\n{EXAMPLE_PRELUDE}```", _table()]
    family = ""
    for each in rules():
        if each.code[:3] != family:
            family = each.code[:3]
            parts.append(f"## {_FAMILIES[family]}")
        parts.append(f"### {each.code}: {each.title}\n\nSeverity: {each.severity}.\n\n{each.documentation}")
    return "\n\n".join(parts) + "\n"


def _table() -> str:
    rows = [
        f"| [{each.code}](#{each.code.lower()}-{_anchor(each.title)}) | {each.severity} | {each.title} |"
        for each in rules()
    ]
    return "\n".join(["| code | severity | rule |", "|---|---|---|", *rows])


def _anchor(title: str) -> str:
    """As Markdown renderers make it from a heading: letters, digits and hyphens."""
    return "".join("-" if char == " " else char for char in title.lower() if char.isalnum() or char in " -_")
