"""Tables of what lanes do, and what they had to reach; this module must not measure."""

from __future__ import annotations

from collections.abc import Iterator

from graphdsl.bench.lanes import AGAIN, AUTO, NONE, SHORT, WAYS, Measured, independent
from graphdsl.bench.records import Case, Results
from graphdsl.bench.tables import NOT_MEASURED, Table, number_text, targets_table
from graphdsl.bench.targets import Target

MANY = Measured("independent", 512, independent, SHORT).case
"""The graph whose time is a target: 512 kernels of about 2 µs with nothing between them."""

_METRICS = {
    "repeat_launch_total": "From the launch until the work is done, µs",
    "repeat_launch_api": "Processor time of the launch, µs",
    "repeat_launch_device": "On the device alone, µs",
}


def lane_tables(results: Results) -> list[Table]:
    """All that there is to show of a run; tables without rows are left out."""
    found = [targets_table(list(lane_targets(results))), *(_table(results, metric) for metric in _METRICS)]
    return [table for table in found if table.rows]


def _table(results: Results, metric: str) -> Table:
    ways = [way for way in WAYS if way in results.peers]
    rows = []
    for case in results.cases:
        times = [results.median(way, metric, case) for way in ways]
        if any(time is not None for time in times):
            cells = (NOT_MEASURED if time is None else number_text(time) for time in times)
            ratios = (_ratio(results, metric, case, way) for way in ways if way in (AGAIN, AUTO))
            rows.append((case.shape, f"{case.nodes:,}", *cells, *ratios))
    ratios = (f"{way} ÷ {NONE}" for way in ways if way in (AGAIN, AUTO))
    return Table(_METRICS[metric], ("kernels", "number", *ways, *ratios), tuple(rows), _NOTE)


_NOTE = "What two execs of one graph as declared differ by, in the column “again”, no plan is the cause of."


def _ratio(results: Results, metric: str, case: Case, way: str) -> str:
    planned, declared = (results.median(each, metric, case) for each in (way, NONE))
    return f"{planned / declared:.2f}" if planned and declared else NOT_MEASURED


def lane_targets(results: Results) -> Iterator[Target]:
    """What the plan of lanes had to reach: many short kernels soon, and nothing noticeably later than without it."""
    metric = "repeat_launch_total"
    found = results.median(AUTO, metric, MANY)
    yield Target("512 independent kernels of 2 µs, launched and done", "at most 115", found, 115.0)
    for case in results.cases:
        declared, planned = results.median(NONE, metric, case), results.median(AUTO, metric, case)
        limit = None if declared is None else 1.03 * declared
        yield Target(f"{case.shape}, {case.nodes:,} kernels", "at most 1.03 times as declared", planned, limit)
