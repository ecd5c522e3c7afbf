"""What a measurement is once it is taken: one record for each metric of each graph of each library, and JSON of them.

Metrics have the names that NVIDIA's sample ``cudaGraphsPerfScaling`` gives them, where it has them: ``instantiation``,
``first_launch_api``, ``first_launch_total``, ``repeat_launch_api``, ``repeat_launch_total``, ``repeat_launch_device``,
``upload_api_time``, ``capture``. This module must not measure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from graphdsl.bench.measure import Samples, spread
from graphdsl.cached import cached_property
from graphdsl.errors import GraphdslError

OURS = "graphdsl"
"""What the library itself is called among the libraries measured."""

FORMAT = 1
"""Number of the JSON format; a file of another one is refused."""

_BYTES = ("rss_growth", "heap_growth")


class Case(NamedTuple):
    """A graph to measure.

    Attributes
    ----------
    shape : str
        One of `graphdsl.bench.shapes.SHAPES`.
    nodes : int
        Number of its nodes.
    """

    shape: str
    nodes: int


NO_GRAPH = Case("", 0)
"""The case of what is measured of no graph, such as the time of an import."""


@dataclass(frozen=True)
class Record:
    """What was found for one metric of one graph.

    Attributes
    ----------
    peer : str
        Which library.
    shape, nodes : str, int
        Which graph.
    metric : str
        What was measured.
    unit : "us" or "bytes"
        Of the numbers that follow.
    median, low, high : float
        Of the samples: median, tenth and ninetieth percentile.
    samples : int
        How many there were.
    """

    peer: str
    shape: str
    nodes: int
    metric: str
    unit: str
    median: float
    low: float
    high: float
    samples: int


def records(peer: str, case: Case, found: Samples) -> Iterator[Record]:
    """Sum up the samples of each metric."""
    for metric, samples in found.items():
        if samples:
            made = spread(samples)
            unit = "bytes" if metric.endswith(_BYTES) else "us"
            yield Record(peer, *case, metric, unit, made.median, made.low, made.high, made.count)


@dataclass(frozen=True)
class Results:
    """All that one run of the benchmark found.

    Attributes
    ----------
    machine : dict
        GPU, driver, processor, versions, date; see `graphdsl.bench.machine.facts`.
    records : tuple of Record
        What was measured.
    absent : dict of str to str
        Why a library was not measured, or not to the end, by its name.
    """

    machine: dict[str, Any]
    records: tuple[Record, ...]
    absent: dict[str, str]

    @cached_property
    def _places(self) -> dict[tuple[str, str, str, int], Record]:
        return {(record.peer, record.metric, record.shape, record.nodes): record for record in self.records}

    def find(self, peer: str, metric: str, case: Case) -> Record | None:
        """The record of a metric, if it was measured."""
        return self._places.get((peer, metric, *case))

    def median(self, peer: str, metric: str, case: Case) -> float | None:
        """The median of a metric, if it was measured."""
        found = self.find(peer, metric, case)
        return None if found is None else found.median

    @cached_property
    def peers(self) -> list[str]:
        """The libraries that were measured, in the order in which they were."""
        return list(dict.fromkeys(record.peer for record in self.records))

    @cached_property
    def cases(self) -> list[Case]:
        """The graphs that were measured: by shape, and then by the number of nodes."""
        found = list(dict.fromkeys(Case(record.shape, record.nodes) for record in self.records))
        shapes = list(dict.fromkeys(case.shape for case in found))
        return sorted(found, key=lambda case: (shapes.index(case.shape), case.nodes))


def save(results: Results, path: Path) -> None:
    """Write results as JSON, a record on each line."""
    rounded = (_rounded(asdict(record)) for record in results.records)
    lines = ",\n".join(f"  {json.dumps(record)}" for record in rounded)
    head = {"format": FORMAT, "machine": results.machine, "absent": results.absent}
    text = json.dumps(head, indent=1)[:-2] + f',\n "records": [\n{lines}\n ]\n}}\n'
    path.write_text(text, encoding="utf-8")


def load(path: Path) -> Results:
    """Read what `save` wrote.

    Raises
    ------
    GraphdslError
        If the file is none of ours.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != FORMAT:
            raise ValueError(f"its format is {found['format']}, and this version reads {FORMAT}")
        return Results(found["machine"], tuple(Record(**record) for record in found["records"]), found["absent"])
    except (ValueError, TypeError, KeyError) as problem:
        raise GraphdslError(
            f"it holds no results of a benchmark: {problem}",
            field="file",
            value=path,
            remedy="Make one with `graphdsl bench --json FILE`.",
        ) from None


def _rounded(record: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in record.items()}
