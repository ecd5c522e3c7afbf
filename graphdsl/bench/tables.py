"""Tables of what a run found, as text in cells: for the terminal and for Markdown.

This module must not print, and must not measure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from graphdsl.bench.fractions import CASE, PERCENT, WAYS
from graphdsl.bench.peers import PEERS
from graphdsl.bench.records import OURS, Case, Record, Results
from graphdsl.bench.targets import Target, summary, targets

if TYPE_CHECKING:
    from rich.table import Table as RichTable

C = "c"
NOT_MEASURED = "-"


class Comparison(NamedTuple):
    """One thing that several libraries do.

    Attributes
    ----------
    title : str
        What it is.
    metrics : tuple of str
        What stands for it: a library has one of them.
    of : str
        What the time is given for: ``"node"``, or whatever it was measured of.
    """

    title: str
    metrics: tuple[str, ...]
    of: str = "graph"


COMPARED = (
    Comparison("Launch, processor time", ("repeat_launch_api",)),
    Comparison("Launch, until the work is done", ("repeat_launch_total",)),
    Comparison("Launch one kernel into a stream, without a graph", ("stream_launch",), "kernel"),
    Comparison("Run on the device", ("repeat_launch_device",), "node"),
    Comparison("First launch, processor time", ("first_launch_api",)),
    Comparison("First launch, until the work is done", ("first_launch_total",)),
    Comparison("Add nodes and edges (CuPy, PyTorch and Warp: capture and instantiate)", ("emit", "capture"), "node"),
    Comparison("Instantiate", ("instantiation",), "node"),
    Comparison("Upload, processor time", ("upload_api_time",)),
    Comparison("Change an argument of every node", ("update",), "node"),
    Comparison("Change an argument and the grid of every node", ("update_grid",), "node"),
    Comparison("Change a node after 100 updates of the exec", ("update_at_100",)),
    Comparison("Change a node after 10,000 updates of the exec", ("update_at_10000",)),
    Comparison("Change a node after 40,000 updates of the exec", ("update_at_40000",)),
)

STAGES = ("declare", "check", "plan", "pack", "emit", "instantiation", "upload_api_time", "build", "second_exec")


@dataclass(frozen=True)
class Table:
    """A table of text.

    Attributes
    ----------
    title : str
        What it shows, and in which unit.
    header : tuple of str
        Titles of the columns.
    rows : tuple of tuples of str
        As many cells as the header has.
    note : str
        A sentence to read with it.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def to_markdown(self) -> str:
        """The table in Markdown, under a heading."""
        lines = ["|" + "|".join(f" {cell} " for cell in row) + "|" for row in (self.header, *self.rows)]
        lines.insert(1, "|" + "|".join(" --- " for _ in self.header) + "|")
        return "\n".join([f"## {self.title}", "", *lines, *(["", self.note] if self.note else [])])

    def __rich__(self) -> RichTable:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(*self.header, title=self.title, title_justify="left", box=SIMPLE_HEAD)
        table.caption, table.caption_justify = self.note or None, "left"
        for row in self.rows:
            table.add_row(*map(Text, row))
        return table


def tables(results: Results) -> list[Table]:
    """All that there is to show of a run; tables without rows are left out."""
    found = [targets_table(targets(results)), *comparisons(results), stages_table(results), imports_table(results)]
    found += [fractions_table(results), absent_table(results)]
    return [table for table in found if table.rows]


def targets_table(found: Sequence[Target]) -> Table:
    """Each target of which something is known, what was found, and whether it was met."""
    rows = []
    for target in found:
        if target.found is not None:
            limit = NOT_MEASURED if target.limit is None else f"{number_text(target.limit)} {target.unit}"
            rows.append((target.what, target.must, limit, f"{number_text(target.found)} {target.unit}", target.verdict))
    return Table("Targets", ("what", "must be", "that is", "found", "verdict"), tuple(rows), f"{summary(found)}.")


def comparisons(results: Results) -> Iterator[Table]:
    """For each thing that several libraries do, one table: graphs in rows, libraries in columns."""
    for compared in COMPARED:
        found = {case: _measured(results, compared.metrics, case) for case in results.cases}
        peers = [peer for peer in results.peers if any(peer in of_case for of_case in found.values())]
        if len(peers) < 2:
            continue
        ratios = ("÷ C", "÷ best peer") if OURS in peers else ()
        rows = tuple(
            (
                *_case_cells(case),
                *(_cell(of_case.get(peer), case.nodes if compared.of == "node" else 1) for peer in peers),
                *_ratios(of_case)[: len(ratios)],
            )
            for case, of_case in found.items()
            if of_case
        )
        header = ("shape", "nodes", *(PEERS[peer].title for peer in peers), *ratios)
        yield Table(f"{compared.title}: µs a {compared.of}", header, rows)


def _measured(results: Results, metrics: Sequence[str], case: Case) -> dict[str, Record]:
    """The record of each library for one of the metrics."""
    found = ((peer, results.find(peer, metric, case)) for peer in results.peers for metric in reversed(metrics))
    return {peer: record for peer, record in found if record is not None}


def _ratios(of_case: dict[str, Record]) -> tuple[str, str]:
    """How many times what C takes, and what the fastest other library takes, ours is."""
    ours = of_case.get(OURS)
    others = [record.median for peer, record in of_case.items() if peer not in (OURS, C)]
    return ratio_text(ours, of_case[C].median if C in of_case else None), ratio_text(ours, min(others, default=None))


def ratio_text(ours: Record | None, other: float | None) -> str:
    """A ratio of medians, if both are there and there is something to divide by."""
    return f"{ours.median / other:.2f}" if ours and other and other > 0 else NOT_MEASURED


def stages_table(results: Results) -> Table:
    """What our own building consists of, in microseconds a node."""
    rows = []
    for case in results.cases:
        found = [results.median(OURS, stage, case) for stage in STAGES]
        if any(time is not None for time in found):
            rows.append((*_case_cells(case), *(_number_or_none(time, case.nodes) for time in found)))
    note = "build: declare, check, plan, pack and emit. second_exec: another exec of the same graph, in all."
    return Table("graphdsl: building a graph, µs a node", ("shape", "nodes", *STAGES), tuple(rows), note)


def imports_table(results: Results) -> Table:
    """How long imports take."""
    found = [record for record in results.records if record.metric.startswith("import")]
    rows = tuple((record.metric.replace("_", " of it: ", 1), number_text(record.median / 1e3)) for record in found)
    return Table("Import, ms", ("what", "ms"), rows)


def fractions_table(results: Results) -> Table:
    """The ways to change a part of a graph, by its size, and where which is fastest."""
    rows = []
    for way, title in WAYS.items():
        times = [results.median(OURS, f"{way}_{percent}", CASE) for percent in PERCENT]
        if any(time is not None for time in times):
            rows.append((title, *(_number_or_none(time) for time in times)))
    header = ("way", *(f"{percent} %" for percent in PERCENT))
    note = crossover(results) if rows else ""
    return Table(f"Changing a part of a chain of {CASE.nodes:,} nodes, µs", header, tuple(rows), note)


def crossover(results: Results) -> str:
    """Which way is the fastest for which part of the nodes, in a sentence."""
    fastest = {}
    for percent in PERCENT:
        times = {way: results.median(OURS, f"{way}_{percent}", CASE) for way in WAYS}
        known = {way: time for way, time in times.items() if time is not None}
        fastest[percent] = min(known, key=known.__getitem__, default=None)
    ways = list(dict.fromkeys(way for way in fastest.values() if way is not None))
    if len(ways) == 1:
        return f"The fastest way for every part: {WAYS[ways[0]]}."
    parts = ", ".join(f"{percent} %: {WAYS[way]}" for percent, way in fastest.items() if way is not None)
    return f"The fastest way for each part: {parts}."


def absent_table(results: Results) -> Table:
    """What was not measured, and why."""
    rows = tuple((PEERS[peer].title, reason) for peer, reason in results.absent.items())
    return Table("Not measured", ("library", "why"), rows)


def machine_text(machine: dict[str, Any]) -> str:
    """What a run ran on, in one line."""
    gpu = f"{machine['gpu']}, driver {machine.get('driver', 'unknown')}" if "gpu" in machine else "no GPU"
    packages = ", ".join(f"{name} {version}" for name, version in machine.get("packages", {}).items())
    return (
        f"{gpu}; {machine.get('processor', 'unknown processor')}; Python {machine.get('python')}; {packages}; "
        f"graphdsl {machine.get('graphdsl')}; {machine.get('date')}"
    )


# Cells


def _case_cells(case: Case) -> tuple[str, str]:
    return case.shape, f"{case.nodes:,}"


def _cell(record: Record | None, per: float) -> str:
    """A median; of ours, with the range of four samples in five."""
    if record is None:
        return NOT_MEASURED
    text = number_text(record.median / per)
    ours = record.peer == OURS and record.samples > 1
    return f"{text} ({number_text(record.low / per)} to {number_text(record.high / per)})" if ours else text


def _number_or_none(value: float | None, per: float = 1) -> str:
    return NOT_MEASURED if value is None else number_text(value / per)


def number_text(value: float) -> str:
    """A number of three digits, or of all that stand before the point.

    Examples
    --------
    >>> number_text(2.3456), number_text(123456.7), number_text(0.0)
    ('2.35', '123,457', '0')
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
