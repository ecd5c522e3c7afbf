"""Measures what watching a cache costs: ``python -m graphdsl.bench.observed [FILE.json]``, with a GPU, in seconds.

Requests for chains are made of three caches in turns, as fast as they are taken: one that nobody watches, one whose
`Metrics` counts, and one whose `Metrics` times the GPU, too, as it does by default.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import graphdsl as gd
from graphdsl.bench.machine import facts
from graphdsl.bench.measure import no_collection, spread

if TYPE_CHECKING:
    from graphdsl.drivers.base import Driver

NODES = (1, 10, 100, 1_000)
SIDES = ("bare", "counted", "timed")

_TURNS = 15
_MOST_NODES, _LEAST = 20_000, 100  # of a turn, so that no chain takes longer than a second; and launches of it
_NEVER = 1 << 40  # launches: so many times as the GPU is timed once


def chain(nodes: int) -> gd.Graph:
    """A graph of memsets, one behind the other."""
    graph = gd.Graph(f"chain of {nodes}")
    x = graph.device_array("x", 64, np.uint8)
    with graph.sequence():
        for number in range(nodes):
            graph.memset(x, number % 256, name=f"set{number}")
    return graph


def run(cache: gd.GraphCache, nodes: int, launches: int) -> tuple[float, float]:
    """Microseconds of a request until it is launched, and until the GPU is done, on average."""
    begin = time.perf_counter()
    for _ in range(launches):
        with cache(nodes=nodes) as request:
            request.launch()
    asked = time.perf_counter() - begin
    request.synchronize()
    return 1e6 * asked / launches, 1e6 * (time.perf_counter() - begin) / launches


def measure(device: Driver, nodes: int, launches: int, turns: int) -> dict[str, Any]:
    """What a request takes.

    Returns
    -------
    dict
        For each of `SIDES` the microseconds until a request is launched (``asked``) and until the GPU is done
        (``done``): the medians of the turns. ``counting`` and ``timing``: the share that each adds to the latter, the
        median of what neighbours in a turn differ by. ``times``: how many GPU times were taken; ``gpu``: their median,
        in microseconds.
    """
    metrics = gd.Metrics("timed")
    observers = {"bare": None, "counted": gd.Metrics("counted", every=_NEVER), "timed": metrics}
    with ExitStack() as caches, no_collection():
        sides = {
            side: caches.enter_context(gd.GraphCache(chain, gd.Buckets(nodes=[nodes]), device, observer=observer))
            for side, observer in observers.items()
        }
        for cache in sides.values():
            run(cache, nodes, launches)
        seen = [{side: run(cache, nodes, launches) for side, cache in sides.items()} for _ in range(turns)]
        (bucket,) = metrics.stats().buckets

    def more(side: str, than: str) -> float:
        return spread([turn[side][1] / turn[than][1] - 1 for turn in seen]).median

    found: dict[str, Any] = {
        side: {
            what: spread([turn[side][index] for turn in seen]).median for index, what in enumerate(("asked", "done"))
        }
        for side in SIDES
    }
    shares = {"counting": more("counted", "bare"), "timing": more("timed", "counted")}
    return found | shares | {"times": bucket.gpu.count, "gpu": 1e6 * bucket.gpu.quantile(0.5)}


def row(nodes: int, found: dict[str, Any]) -> str:
    """A line of the table."""
    times = " ".join(f"{found[side][what]:>9.2f}" for what in ("asked", "done") for side in SIDES)
    shares = f"{found['counting']:>9.2%} {found['timing']:>9.2%}"
    return f"{nodes:>6} {times} {shares} {found['times']:>6,} {found['gpu']:>9.2f}"


def main(path: Path | None = None, device: Driver | None = None, launches: int = 2_000, turns: int = _TURNS) -> None:
    """Measure chains of `NODES`, print a table, and write it as JSON where a path is given."""
    device = gd.cuda() if device is None else device
    print(
        f"{device.name}: µs of a request until it is launched, and until it is done; what watching adds to the latter"
    )
    heads = [*SIDES, *SIDES, "counting", "timing"]
    print(f"{'nodes':>6} {' '.join(f'{head:>9}' for head in heads)} {'times':>6} {'GPU':>9}")
    found = {}
    for nodes in NODES:
        found[nodes] = measure(device, nodes, min(launches, max(_LEAST, _MOST_NODES // nodes)), turns)
        print(row(nodes, found[nodes]), flush=True)
    if path is not None:
        record = {"machine": facts(), "launches": launches, "turns": turns, "chains": found}
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else None)
