"""What was seen of a service so far, as it stands; printed, it is a table.

This module must not measure anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from graphdsl.run.blocks import size_text
from graphdsl.serve.remarks import overhead, remarks, time_text
from graphdsl.serve.times import Summary

TIMES = ("launch", "gpu", "queue", "instantiate", "upload", "load", "update")
"""The times of an exec, by attribute."""

_ENOUGH = 3
"""Measurements of GPU time that remarks rest upon at least."""


@dataclass(frozen=True, kw_only=True)
class ExecStats:
    """What was seen of one exec of a bucket.

    Attributes
    ----------
    name : str
        Of the arena that it lies in: its number.
    requests : int
        How many had it.
    nodes : int
        How many it has, 0 before its first launch.
    emulated : bool
        True if it runs in the emulator, whose times say nothing of a GPU.
    real, cells : int
        How many cells its requests filled, and how many they had: each as many as the bucket.
    launch : Summary
        Processor time of launches.
    gpu : Summary
        GPU time of the launches that were measured, from where their stream came to them.
    queue : Summary
        What requests waited for a free arena.
    instantiate, upload : Summary
        Processor time to build it, and the part of that in which it was brought to the device.
    load, update : Summary
        Processor time to write inputs, and to change params.
    """

    name: str
    requests: int = 0
    nodes: int = 0
    emulated: bool = False
    real: int = 0
    cells: int = 0
    launch: Summary = field(default_factory=Summary)
    gpu: Summary = field(default_factory=Summary)
    queue: Summary = field(default_factory=Summary)
    instantiate: Summary = field(default_factory=Summary)
    upload: Summary = field(default_factory=Summary)
    load: Summary = field(default_factory=Summary)
    update: Summary = field(default_factory=Summary)

    @property
    def padding(self) -> float:
        """The share of its cells that requests left empty."""
        return 1 - self.real / self.cells if self.cells else 0.0

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
        shown = ("name", "requests", "nodes", "padding", "overhead")
        return {name: getattr(self, name) for name in shown} | {
            name: _times_json(getattr(self, name)) for name in TIMES
        }


@dataclass(frozen=True, kw_only=True)
class BucketStats(ExecStats):
    """What was seen of one bucket: of its execs together, and of each.

    Attributes
    ----------
    misses, evictions : int
        How many there were.
    nbytes : int
        What its execs count for in bytes, 0 once they are given up.
    execs : tuple of ExecStats
        Each of them, by arena.
    """

    misses: int = 0
    evictions: int = 0
    nbytes: int = 0
    execs: tuple[ExecStats, ...] = ()

    @classmethod
    def of(cls, name: str, execs: Sequence[ExecStats], misses: int, evictions: int, nbytes: int) -> BucketStats:
        """What was seen of the execs of a bucket together."""
        times: dict[str, Any] = {each: Summary.of_all([getattr(one, each) for one in execs]) for each in TIMES}
        return cls(
            name=name,
            requests=sum(each.requests for each in execs),
            nodes=max((each.nodes for each in execs), default=0),
            emulated=any(each.emulated for each in execs),
            real=sum(each.real for each in execs),
            cells=sum(each.cells for each in execs),
            misses=misses,
            evictions=evictions,
            nbytes=nbytes,
            execs=tuple(execs),
            **times,
        )

    def to_json(self) -> dict[str, Any]:
        """A dict for `json.dumps`; times in seconds."""
        shown = {name: getattr(self, name) for name in ("misses", "evictions", "nbytes")}
        lists = {"remarks": list(self.remarks), "execs": [each.to_json() for each in self.execs]}
        return super().to_json() | shown | lists


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
        rows = [_HEAD, *(row for bucket in self.buckets for row in _rows(bucket))]
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
    "load",
    "update",
    "nodes",
    "memory",
)


def _rows(bucket: BucketStats) -> Iterator[tuple[str, ...]]:
    """Those of a bucket: its own, and of several execs that of each."""
    yield _row(bucket, f"{bucket.misses:,}", size_text(bucket.nbytes) if bucket.nbytes else "-")
    if len(bucket.execs) > 1:
        for each in bucket.execs:
            yield _row(replace(each, name=f"  arena {each.name}"), "", "")


def _row(bucket: ExecStats, misses: str, memory: str) -> tuple[str, ...]:
    def median(times: Summary) -> str:
        return time_text(times.quantile(0.5)) if times.count else "-"

    def late(times: Summary) -> str:
        return time_text(times.quantile(0.99)) if times.count else "-"

    return (
        bucket.name,
        f"{bucket.requests:,}",
        misses,
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
        median(bucket.load),
        median(bucket.update),
        f"{bucket.nodes:,}" if bucket.nodes else "-",
        memory,
    )


def _times_json(times: Summary) -> dict[str, Any]:
    quantiles = {f"p{share}": times.quantile(share / 100) for share in (50, 90, 99)}
    return {"count": times.count, "total": times.total, "mean": times.mean, "longest": times.longest} | quantiles
