"""What buckets cost on requests that were recorded: the share of padding, and who was refused.

This module must not choose buckets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from graphdsl.errors import BucketError
from graphdsl.serve.proposals import checked_request

if TYPE_CHECKING:
    from graphdsl.serve.buckets import Bucket, Buckets


@dataclass(frozen=True)
class BucketUse:
    """What a bucket was used for.

    Attributes
    ----------
    requests : int
        How many requests it took.
    share : float
        The part of its cells that was padding in all of them; 0 if it took none.
    """

    requests: int
    share: float


@dataclass(frozen=True)
class PaddingReport:
    """What buckets cost on a trace; printed, it is a table.

    Attributes
    ----------
    requests : int
        How many there were, with those that were refused.
    refused : int
        How many were larger than the largest bucket.
    refusals : dict of str to tuple of int
        For each axis on which requests were too large: how many, and the largest size asked for.
    shares : dict of str to float
        For each axis the part of its rows that was padding.
    share : float
        The part of all cells that was padding.
    buckets : dict of Bucket to BucketUse
        For each bucket, largest first, what it was used for.
    """

    requests: int
    refused: int
    refusals: Mapping[str, tuple[int, int]]
    shares: Mapping[str, float]
    share: float
    buckets: Mapping[Bucket, BucketUse]

    def __str__(self) -> str:
        rows = [("bucket", "requests", "padding")]
        rows += [(bucket.name, f"{use.requests:,}", f"{use.share:.1%}") for bucket, use in self.buckets.items()]
        taken = self.requests - self.refused
        rows.append(("all", f"{taken:,}", f"{self.share:.1%}"))
        if len(self.shares) > 1:
            rows += [(f"on axis {axis}", "", f"{share:.1%}") for axis, share in self.shares.items()]
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = [f"{name:<{widths[0]}}  {count:>{widths[1]}}  {share:>{widths[2]}}" for name, count, share in rows]
        for axis, (count, largest) in self.refusals.items():
            lines.append(f"{count:,} of {self.requests:,} refused: {axis} of up to {largest}")
        return "\n".join(lines)


def report(buckets: Buckets, trace: Iterable[Mapping[str, int]]) -> PaddingReport:
    """Sort the requests of a trace into buckets.

    Examples
    --------
    >>> from graphdsl.serve import Buckets
    >>> trace = [{"batch": 1, "seq": 60}] * 6 + [{"batch": 3, "seq": 100}] * 3 + [{"batch": 9, "seq": 1}]
    >>> print(report(Buckets(batch=[1, 4], seq=[64, 128]), trace))
    bucket            requests  padding
    batch=4, seq=128         3    41.4%
    batch=4, seq=64          0     0.0%
    batch=1, seq=128         0     0.0%
    batch=1, seq=64          6     6.2%
    all                      9    34.4%
    on axis batch                 16.7%
    on axis seq                   14.1%
    1 of 10 refused: batch of up to 9
    """
    often = Counter(tuple(checked_request(request).items()) for request in trace)
    counts: Counter[Bucket] = Counter()
    filled: Counter[Bucket] = Counter()
    real = dict.fromkeys(buckets.axes, 0)
    taken = dict.fromkeys(buckets.axes, 0)
    refusals: dict[str, tuple[int, int]] = {}
    for request, count in often.items():
        sizes = dict(request)
        try:
            bucket = buckets.of(**sizes)
        except BucketError as problem:
            before, largest = refusals.get(problem.axis, (0, 0))
            refusals[problem.axis] = before + count, max(largest, problem.value)
            continue
        counts[bucket] += count
        filled[bucket] += count * prod(sizes.values())
        for axis in buckets.axes:
            real[axis] += count * sizes[axis]
            taken[axis] += count * bucket[axis]
    cells = sum(count * bucket.cells for bucket, count in counts.items())
    return PaddingReport(
        requests=often.total(),
        refused=often.total() - counts.total(),
        refusals=refusals,
        shares={axis: _share(real[axis], taken[axis]) for axis in buckets.axes},
        share=_share(filled.total(), cells),
        buckets={
            bucket: BucketUse(counts[bucket], _share(filled[bucket], counts[bucket] * bucket.cells))
            for bucket in buckets
        },
    )


def _share(real: int, taken: int) -> float:
    """The part that is padding."""
    return 1 - real / taken if taken else 0.0
