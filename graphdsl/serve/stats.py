"""What was seen of a service so far, as it stands; printed, it is a table.

This module must not measure anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from graphdsl.run.blocks import size_text
from graphdsl.serve.remarks import overhead, remarks, time_text
from graphdsl.serve.times import Summary

TIMES = ("launch", "gpu", "queue", "instantiate", "upload", "update")
"""The times of a bucket, by attribute."""

_ENOUGH = 3
"""Measurements of GPU time that remarks rest upon at least."""


@dataclass(frozen=True)
class BucketStats:
    """What was seen of one bucket.

    Attributes
    ----------
    name : str
        Of the bucket.
    requests, misses, evictions : int
        How many there were.
    nbytes, nodes : int
        What its execs count for in bytes, 0 once they are given up; how many nodes one of them has, 0 before its first
        launch.
    emulated : bool
        True if it runs in the emulator, whose times say nothing of a GPU.
    padding : float
        The share of its cells that requests left empty.
    launch : Summary
        Processor time of launches.
    gpu : Summary
        GPU time of the launches that were measured, from where their stream came to them.
    queue : Summary
        What runs waited for a free arena.
    instantiate, upload, update : Summary
        Processor time to build execs, to write inputs, to change params.
    """

    name: str
    requests: int = 0
    misses: int = 0
    evictions: int = 0
    nbytes: int = 0
    nodes: int = 0
    emulated: bool = False
    padding: float = 0.0
    launch: Summary = field(default_factory=Summary)
    gpu: Summary = field(default_factory=Summary)
    queue: Summary = field(default_factory=Summary)
    instantiate: Summary = field(default_factory=Summary)
    upload: Summary = field(default_factory=Summary)
    update: Summary = field(default_factory=Summary)

    @property
    def overhead(self) -> float:
        """The share that launching has of a run by itself; 0 before GPU time was measured."""
        return overhead(self.launch.quantile(0.5), self.gpu.quantile(0.5))

    @property
    def remarks(self) -> tuple[str, ...]:
        """What there is to say of it: launching takes too much, or the graph no longer pays. See `remarks`."""
        if self.emulated or self.gpu.count < _ENOUGH:
            return ()
        launch, gpu = self.launch.quantile(0.5), self.gpu.quantile(0.5)
        return tuple(remarks(self.nodes, launch, gpu, self.padding))

    def to_json(self) -> dict[str, Any]:
        """A dict for `json.dumps`; times in seconds."""
        shown = ("name", "requests", "misses", "evictions", "nbytes", "nodes", "padding", "overhead")
        times = {name: _times_json(getattr(self, name)) for name in TIMES}
        return {name: getattr(self, name) for name in shown} | times | {"remarks": list(self.remarks)}


@dataclass(frozen=True)
class Stats:
    """What was seen of a cache; printed, it is a table.

    Attributes
    ----------
    name : str
        Of what is served.
    buckets : tuple of BucketStats
        Those that were asked for, in the order of the first time.
    refused, fell_back : mapping of str to int
        How many requests got nothing, and how many were given to the fallback, by reason.
    swaps : int
        How often an external buffer was swapped.
    """

    name: str
    buckets: tuple[BucketStats, ...]
    refused: Mapping[str, int]
    fell_back: Mapping[str, int]
    swaps: int = 0

    def to_json(self) -> dict[str, Any]:
        """A dict for `json.dumps`; times in seconds."""
        return {
            "name": self.name,
            "buckets": [bucket.to_json() for bucket in self.buckets],
            "refused": dict(self.refused),
            "fell_back": dict(self.fell_back),
            "swaps": self.swaps,
        }

    def __str__(self) -> str:
        rows = [_HEAD, *map(_row, self.buckets)]
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = [
            f"{row[0]:<{widths[0]}}  {'  '.join(f'{cell:>{width}}' for cell, width in zip(row[1:], widths[1:]))}"
            for row in rows
        ]
        lines += [f"{bucket.name}: {remark}" for bucket in self.buckets for remark in bucket.remarks]
        for what, reasons in (("refused", self.refused), ("given to the fallback", self.fell_back)):
            lines += [f"{count:,} {what}: {why}" for why, count in reasons.items()]
        return "\n".join(line.rstrip() for line in lines)


_HEAD = (
    "bucket",
    "requests",
    "misses",
    "padding",
    "launches",
    "launch",
    "p99",
    "GPU",
    "p99",
    "overhead",
    "queue p99",
    "instantiate",
    "upload",
    "update",
    "nodes",
    "memory",
)


def _row(bucket: BucketStats) -> tuple[str, ...]:
    def median(times: Summary) -> str:
        return time_text(times.quantile(0.5)) if times.count else "-"

    def late(times: Summary) -> str:
        return time_text(times.quantile(0.99)) if times.count else "-"

    return (
        bucket.name,
        f"{bucket.requests:,}",
        f"{bucket.misses:,}",
        f"{bucket.padding:.1%}",
        f"{bucket.launch.count:,}",
        median(bucket.launch),
        late(bucket.launch),
        median(bucket.gpu),
        late(bucket.gpu),
        f"{bucket.overhead:.1%}" if bucket.gpu.count else "-",
        late(bucket.queue),
        median(bucket.instantiate),
        median(bucket.upload),
        median(bucket.update),
        f"{bucket.nodes:,}" if bucket.nodes else "-",
        size_text(bucket.nbytes) if bucket.nbytes else "-",
    )


def _times_json(times: Summary) -> dict[str, Any]:
    quantiles = {f"p{share}": times.quantile(share / 100) for share in (50, 90, 99)}
    return {"count": times.count, "total": times.total, "mean": times.mean, "longest": times.longest} | quantiles
