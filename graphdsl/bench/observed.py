"""Measures what watching launches costs: ``python -m graphdsl.bench.observed``, on a machine with a GPU, in seconds.

Chains are launched bare and watched by `graphdsl.serve.metrics`, in turns, as fast as the GPU takes them and as fast as
the processor does.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import numpy as np

import graphdsl as gd
from graphdsl.bench.measure import no_collection
from graphdsl.serve.buckets import Bucket
from graphdsl.serve.metrics import Metrics

if TYPE_CHECKING:
    from graphdsl.drivers.base import Driver
    from graphdsl.run.graph_exec import GraphExec

_TURNS = 15


def chain(nodes: int) -> gd.Graph:
    """A graph of memsets, one behind the other."""
    graph = gd.Graph(f"chain of {nodes}")
    x = graph.device_array("x", 64, np.uint8)
    with graph.sequence():
        for number in range(nodes):
            graph.memset(x, number % 256, name=f"set{number}")
    return graph


def run(exe: GraphExec, stream: int, launches: int, metrics: Metrics | None) -> tuple[float, float]:
    """Seconds of a launch until it returns, and until the GPU is done, on average."""
    bucket = Bucket({"nodes": 1})
    begin = time.perf_counter()
    for _ in range(launches):
        if metrics is None:
            exe.launch(stream)
            continue
        ended = metrics.launching(bucket, exe, stream)
        start = time.perf_counter()
        exe.launch(stream)
        seconds = time.perf_counter() - start
        if ended is not None:
            ended()
        metrics.launched(bucket, seconds, 0.0)
    asked = time.perf_counter() - begin
    exe.synchronize()
    return asked / launches, (time.perf_counter() - begin) / launches


def measure(device: Driver, nodes: int, launches: int, turns: int = _TURNS) -> str:
    """A line of a table: what a launch takes, bare and watched."""
    stream, metrics = device.stream_create(), Metrics("bench")
    try:
        with chain(nodes).instantiate(device) as exe, no_collection():
            run(exe, stream, launches, None)
            pairs = [(run(exe, stream, launches, None), run(exe, stream, launches, metrics)) for _ in range(turns)]
    finally:
        device.stream_destroy(stream)
    bare, watched = (
        [statistics.median(turn[side][what] for turn in pairs) * 1e6 for what in (0, 1)] for side in (0, 1)
    )
    (bucket,) = metrics.stats().buckets
    return (
        f"{nodes:>6} {bare[0]:>9.2f} {watched[0]:>9.2f} {bare[1]:>9.2f} {watched[1]:>9.2f} "
        f"{watched[1] / bare[1] - 1:>8.2%} {bucket.gpu.count:>9,} {bucket.gpu.quantile(0.5) * 1e6:>9.2f}"
    )


def main(device: Driver | None = None, launches: int = 2_000) -> None:
    """Print the table."""
    device = device or gd.default_device()
    print(f"{device.name}: µs a launch, bare and watched")
    print(" nodes   returns   watched      done   watched     more  measured  GPU time")
    for nodes in (1, 10, 100, 1_000):
        print(measure(device, nodes, launches))


if __name__ == "__main__":
    main()
