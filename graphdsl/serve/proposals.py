"""Lists of bucket sizes: by rule, and those with the least padding for requests that were recorded.

This module must not know what a bucket is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from graphdsl.errors import DeclarationError

_Integers = np.ndarray[Any, np.dtype[np.int64]]


def checked_size(size: Any, axis: str) -> int:
    """A size: a positive integer."""
    if isinstance(size, (int, np.integer)) and not isinstance(size, bool) and size >= 1:
        return int(size)
    raise DeclarationError(
        "a size is a positive integer",
        field=axis,
        value=size if isinstance(size, (int, np.integer)) else f"{size!r} of type {type(size).__name__}",
        remedy="Pass how many there are, 1 or more.",
    )


def powers_of_two(largest: int, *, least: int = 1) -> list[int]:
    """Sizes that double, up to the largest: a request fills more than half of its own, unless it is below the least.

    Parameters
    ----------
    largest : int
        The last size, be it a power of two or not.
    least : int
        No size is below this one, which is rounded up to a power of two.

    Examples
    --------
    >>> powers_of_two(32)
    [1, 2, 4, 8, 16, 32]
    >>> powers_of_two(1000, least=64)
    [64, 128, 256, 512, 1000]
    """
    largest, least = checked_size(largest, "largest"), checked_size(least, "least")
    first = (least - 1).bit_length()
    return [*(1 << power for power in range(first, (largest - 1).bit_length())), largest]


def steps(step: int, largest: int) -> list[int]:
    """Sizes one step apart, up to the largest: no request takes a step more than its size.

    Parameters
    ----------
    step : int
        The first size, and how far apart they are.
    largest : int
        The last size, be it a multiple of the step or not.

    Examples
    --------
    >>> steps(64, 256), steps(100, 250)
    ([64, 128, 192, 256], [100, 200, 250])
    """
    step, largest = checked_size(step, "step"), checked_size(largest, "largest")
    return [*range(step, largest, step), largest]


def least_padding(sizes: Iterable[int], count: int, weights: Iterable[int] | None = None) -> list[int]:
    """The list of so many sizes that pads requests least; the largest request is its last.

    Parameters
    ----------
    sizes : iterable of int
        The size of each request.
    count : int
        How many sizes there may be at most.
    weights : iterable of int, optional
        What a row of each request costs; 1 by default.

    Notes
    -----
    Bucket sizes are sizes of requests, or a smaller one would do. The best lists that end at a request and have one
    bucket less give the best that end at a later one: with m sizes that differ this takes ``count * m**2`` steps.

    Examples
    --------
    >>> least_padding([1, 1, 1, 2, 5, 6, 6, 16], 3)
    [2, 6, 16]
    """
    count = checked_size(count, "count")
    total: Counter[int] = Counter()
    for size, weight in zip(sizes, repeat(1) if weights is None else weights):
        total[checked_size(size, "sizes")] += int(weight)
    if not total:
        raise DeclarationError(
            "there is no request to choose sizes for", field="trace", value="[]", remedy="Record some requests first."
        )
    known = np.array(sorted(total), np.int64)
    if count >= len(known):
        return sorted(total)
    behind = np.concatenate([[0], np.cumsum([total[size] for size in known.tolist()])])
    # cost[j]: of the requests up to the j-th size, in as many buckets as there have been rounds, the last one at j.
    cost = known * behind[1:]
    chosen = []
    for _ in range(count - 1):
        before, cost = cost, np.empty_like(cost)
        choice = np.zeros(len(known), np.int64)
        cost[0] = before[0]
        for j in range(1, len(known)):
            ways = before[:j] + known[j] * (behind[j + 1] - behind[1 : j + 1])
            choice[j] = ways.argmin()
            cost[j] = ways[choice[j]]
        chosen.append(choice)
    place = len(known) - 1
    found = [place]
    for choice in reversed(chosen):
        place = int(choice[place])
        found.append(place)
    return [int(known[place]) for place in sorted(set(found))]


def for_trace(trace: Iterable[Mapping[str, int]], counts: Mapping[str, int]) -> dict[str, list[int]]:
    """For each axis its sizes: at first each axis as if it were alone, then in turn as long as there is a gain.

    With the sizes of the other axes as they are, a row of a request costs the product of those that it takes there.
    """
    requests: Counter[tuple[int, ...]] = Counter(_row(request, counts) for request in trace)
    columns = dict(zip(counts, zip(*requests))) if requests else dict.fromkeys(counts, ())
    often = np.array(list(requests.values()), np.int64)
    found = {axis: least_padding(columns[axis], count, often) for axis, count in counts.items()}
    cells = _cells(found, columns, often)
    while True:
        better = dict(found)
        for axis, count in counts.items():
            others = {other: sizes for other, sizes in better.items() if other != axis}
            better[axis] = least_padding(columns[axis], count, _cells(others, columns, often))
        fewer = _cells(better, columns, often)
        if fewer.sum() >= cells.sum():
            return found
        found, cells = better, fewer


def checked_request(request: Any) -> Mapping[str, int]:
    """A request of a trace: a mapping."""
    if isinstance(request, Mapping):
        return request
    raise DeclarationError(
        "a request is a mapping of its axes to its sizes",
        field="trace",
        value=f"{request!r} of type {type(request).__name__}",
        remedy='Record {"batch": 3}.',
    )


def _row(request: Any, axes: Iterable[str]) -> tuple[int, ...]:
    checked_request(request)
    try:
        return tuple(checked_size(request[axis], axis) for axis in axes)
    except KeyError as missing:
        raise DeclarationError(
            "a request has a size on every axis",
            field=missing.args[0],
            value=dict(request),
            remedy="Record all axes, or ask for those that were recorded.",
        ) from None


def _cells(found: Mapping[str, list[int]], columns: Mapping[str, Sequence[int]], often: _Integers) -> _Integers:
    """How many cells of buckets each request takes, with all like it."""
    cells: _Integers = often.copy()
    for axis, sizes in found.items():
        known = np.array(sizes, np.int64)
        cells = cells * known[np.searchsorted(known, columns[axis])]
    return cells
