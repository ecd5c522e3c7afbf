"""Results of a run that never was, for tables and charts."""

from __future__ import annotations

from graphdsl.bench.records import NO_GRAPH, OURS, Case, Record, Results

MACHINE = {
    "date": "2026-11-29T12:00:00+00:00",
    "graphdsl": "0.1.0",
    "gpu": "Some GPU",
    "driver": "580.1",
    "processor": "Some CPU",
    "python": "3.11.7",
    "packages": {"numpy": "2.0"},
}


def record(peer: str, metric: str, nodes: int, median: float, shape: str = "chain", unit: str = "us") -> Record:
    return Record(peer, shape, nodes, metric, unit, median, 0.9 * median, 1.2 * median, 10)


def results(*extra: Record, absent: dict[str, str] | None = None) -> Results:
    """A run in which ours takes 1.1 times what C takes, and cuda.core twice as much."""
    found = []
    for peer, factor in ((OURS, 1.1), ("c", 1.0), ("cuda_core", 2.0)):
        for nodes in (1, 100, 1000):
            found.append(record(peer, "repeat_launch_api", nodes, factor * (2 + nodes / 500)))
            found.append(record(peer, "emit", nodes, factor * 0.6 * nodes))
            found.append(record(peer, "update", nodes, factor * (1 + 0.25 * nodes)))
    found.append(record("cupy", "capture", 100, 600.0))
    for percent, times in ((1, (5, 50, 900)), (100, (800, 5000, 600))):
        for way, time in zip(("change_by_param", "change_by_node", "change_whole"), times):
            found.append(record(OURS, f"{way}_{percent}", 1000, time))
    found.append(Record(OURS, *NO_GRAPH, "import", "us", 350_000.0, 340_000.0, 360_000.0, 5))
    return Results(MACHINE, (*found, *extra), absent or {})


CHAIN = Case("chain", 100)
