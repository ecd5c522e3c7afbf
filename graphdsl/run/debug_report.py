"""What came of running the nodes of a graph one by one: a report that reads as text and as data.

This module must not run anything: `graphdsl.run.debug` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from graphdsl.errors import GraphdslError, Location, text_of

_MOST_SHOWN = 20


@dataclass(frozen=True)
class NodeRun:
    """What came of a node.

    Attributes
    ----------
    node, kind : str
        Its name, and what kind of node it is.
    location : tuple of str and int
        File and line of its declaration.
    outcome : str
        ``"ran"``, ``"failed"``, ``"failed inside"`` (a node that holds the one that failed), ``"disabled"``,
        ``"not chosen"`` (in a body that no condition chose) or ``"not reached"`` (behind the one that failed).
    runs : int
        How often it ran to its end.
    milliseconds : float or None
        What all of that took on the device, the launch of a graph included; None of a node that did not run, or holds
        others.
    fields : dict of str to object
        Of the node that failed, its fields with their values: arrays with their extents and addresses.
    source : tuple of str and int, or None
        Of the node that failed, file and line in its Python function: where that raised, or where it begins.
    """

    node: str
    kind: str
    location: Location
    outcome: str
    runs: int = 0
    milliseconds: float | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    source: Location | None = None

    def __str__(self) -> str:
        times = "" if self.runs < 2 else f" {self.runs:,} times"
        took = "" if self.milliseconds is None else f", {self.milliseconds:.3g} ms"
        lines = [f"{self.node} ({self.kind}): {self.outcome}{times}{took}"]
        lines += [f"  {name}: {text_of(value)}" for name, value in self.fields.items()]
        if self.source is not None:
            lines.append(f"  in its function: {self.source[0]}:{self.source[1]}")
        if self.outcome == "failed":
            lines.append(f"  declared at {self.location[0]}:{self.location[1]}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The same as data for JSON; values of fields are texts."""
        return vars(self) | {"fields": {name: text_of(value) for name, value in self.fields.items()}}


@dataclass(frozen=True)
class DebugReport:
    """What came of each node of a graph; printed, it says so in words.

    Attributes
    ----------
    graph, device : str
        Names of the graph and of the device that it ran on.
    nodes : tuple of NodeRun
        In the order in which they ran first, and behind them those that did not run.
    error : GraphdslError or None
        What the first node that failed ran into: a `DriverError`, or the `CallbackError` of a host node.

    Examples
    --------
    >>> print(DebugReport("demo", "emulator", (NodeRun("clear", "memset", ("demo.py", 3), "ran", 1, 0.25),)))
    graph 'demo' on emulator, node by node: 1 ran
      clear (memset): ran, 0.25 ms
    """

    graph: str
    device: str
    nodes: tuple[NodeRun, ...]
    error: GraphdslError | None = None

    @property
    def ok(self) -> bool:
        """True if no node failed."""
        return self.error is None

    @property
    def failed(self) -> NodeRun | None:
        """The node that failed; None if none did."""
        return next((run for run in self.nodes if run.outcome == "failed"), None)

    @property
    def durations(self) -> dict[str, float]:
        """What a run of each node took on the device, in microseconds, by name: as `Graph.instantiate` takes it."""
        ran = ((run.node, run.milliseconds, run.runs) for run in self.nodes)
        return {node: 1e3 * time / runs for node, time, runs in ran if time is not None and runs}

    def raise_for_error(self) -> None:
        """Raise what the node that failed ran into, if one did."""
        if self.error is not None:
            raise self.error

    def __str__(self) -> str:
        counts = Counter(run.outcome for run in self.nodes)
        title = ", ".join(f"{count:,} {outcome}" for outcome, count in counts.items())
        lines = [f"graph {self.graph!r} on {self.device}, node by node: {title or 'it has no nodes'}"]
        lines += [f"  {line}" for text in self._shown() for line in text.splitlines()]
        return "\n".join([*lines, *([] if self.error is None else [str(self.error)])])

    def _shown(self) -> Iterator[str]:
        """The nodes that ran, of many the last of them; those that did not are only counted."""
        ran = [run for run in self.nodes if run.outcome in ("ran", "failed", "failed inside")]
        if len(ran) > _MOST_SHOWN:
            yield f"({len(ran) - _MOST_SHOWN:,} more ran before these)"
        yield from map(str, ran[-_MOST_SHOWN:])

    def to_json(self) -> dict[str, Any]:
        """The same as data for JSON."""
        return {
            "graph": self.graph,
            "device": self.device,
            "ok": self.ok,
            "failed": None if self.failed is None else self.failed.node,
            "error": None if self.error is None else str(self.error),
            "nodes": [run.to_json() for run in self.nodes],
        }
