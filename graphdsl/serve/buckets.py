"""Buckets: the few sizes that graphs are built for, and which of them a request takes.

This module must not know what a graph is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise, product
from math import prod
from typing import TYPE_CHECKING, Any

from graphdsl.declare.store import unknown_name
from graphdsl.drivers.results import is_fault
from graphdsl.errors import BucketError, DeclarationError, DriverError, GraphdslError
from graphdsl.serve import proposals
from graphdsl.serve.proposals import checked_size

if TYPE_CHECKING:
    from graphdsl.serve.bucket_report import PaddingReport


class Bucket(Mapping[str, int]):
    """One size on every axis: what one graph is built for. It maps axes to sizes, and can be a key of a dict.

    Attributes
    ----------
    name : str
        What messages and tables call it.
    cells : int
        The product of its sizes.

    Examples
    --------
    >>> bucket = Bucket({"batch": 4, "seq": 128})
    >>> bucket.name, bucket["seq"], bucket.cells
    ('batch=4, seq=128', 128, 512)
    >>> def build(batch, seq):
    ...     return batch * seq
    >>> build(**bucket)
    512
    """

    __slots__ = ("_hash", "_sizes", "cells", "name")

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes = dict(sizes)
        self._hash = hash(frozenset(self._sizes.items()))
        self.cells = prod(self._sizes.values())
        self.name = sizes_text(self._sizes)

    def __getitem__(self, axis: str) -> int:
        return self._sizes[axis]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sizes)

    def __len__(self) -> int:
        return len(self._sizes)

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickles: hashes of strings differ from process to process."""
        return Bucket, (self._sizes,)

    def __repr__(self) -> str:
        return f"Bucket({self.name})"

    def is_exactly(self, sizes: Mapping[str, int]) -> bool:
        """True if a request fills it on every axis; a dict is compared faster than other mappings."""
        return self._sizes == sizes

    def padding(self, sizes: Mapping[str, int]) -> float:
        """The share of the bucket that a request leaves empty, from 0 to 1.

        Parameters
        ----------
        sizes : mapping of str to int
            The real size on each axis.

        Examples
        --------
        >>> Bucket({"batch": 4, "seq": 128}).padding({"batch": 3, "seq": 64})
        0.625
        """
        return 1 - prod(sizes[axis] for axis in self._sizes) / self.cells


class Buckets:
    """The sizes that graphs are built for: a few on each axis, and every combination of them.

    Parameters
    ----------
    **axes : iterable of int
        For each axis its sizes: positive, from small to large, each once.

    Raises
    ------
    DeclarationError
        If there is no axis, or the sizes of one are not of this kind.

    Examples
    --------
    >>> import graphdsl as gd
    >>> buckets = gd.Buckets(batch=[1, 2, 4], seq=[64, 128])
    >>> buckets.of(batch=3, seq=64)
    Bucket(batch=4, seq=64)
    >>> [bucket.name for bucket in buckets][:2]
    ['batch=4, seq=128', 'batch=4, seq=64']
    >>> try:
    ...     buckets.of(batch=3, seq=200)
    ... except gd.BucketError as problem:
    ...     print(problem)
    seq = 200: the largest bucket on this axis is 128. Split the request, or add a bucket: seq=[64, 128, 200].
    """

    powers_of_two = staticmethod(proposals.powers_of_two)
    steps = staticmethod(proposals.steps)
    least_padding = staticmethod(proposals.least_padding)

    def __init__(self, /, **axes: Iterable[int]) -> None:
        if not axes:
            raise DeclarationError("buckets have one axis at least", remedy="Name it: gd.Buckets(batch=[1, 2, 4]).")
        self.sizes = {axis: _checked_sizes(axis, sizes) for axis, sizes in axes.items()}
        """For each axis its sizes, from small to large."""
        self._axes = tuple(self.sizes.items())
        self._made: dict[tuple[int, ...], Bucket] = {}

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the axes, in the order in which they were given."""
        return tuple(self.sizes)

    @property
    def largest(self) -> Bucket:
        """The one that is largest on every axis."""
        return self._bucket(tuple(sizes[-1] for sizes in self.sizes.values()))

    def of(self, /, **sizes: int) -> Bucket:
        """The smallest bucket that holds a request: on every axis the smallest size at or above its own.

        Parameters
        ----------
        **sizes : int
            How large the request is on each axis: 1 or more.

        Raises
        ------
        BucketError
            If it is larger than the largest bucket on some axis.
        DeclarationError
            If an axis is missing or unknown, or a size is no positive integer.
        """
        if len(sizes) != len(self._axes):
            raise self._wrong_axes(sizes)
        found = []
        for axis, known in self._axes:
            try:
                size = sizes[axis]
            except KeyError:
                raise self._wrong_axes(sizes) from None
            if type(size) is not int or size < 1:
                size = checked_size(size, axis)
            place = bisect_left(known, size)
            if place == len(known):
                raise _too_large(axis, size, known)
            found.append(known[place])
        return self._bucket(tuple(found))

    def __iter__(self) -> Iterator[Bucket]:
        """All of them, the largest first: memory that holds it holds all others."""
        every = [self._bucket(sizes) for sizes in product(*self.sizes.values())]
        return iter(sorted(every, key=lambda bucket: (bucket.cells, *bucket.values()), reverse=True))

    def __len__(self) -> int:
        return prod(map(len, self.sizes.values()))

    def __contains__(self, bucket: object) -> bool:
        return (
            isinstance(bucket, Mapping)
            and bucket.keys() == self.sizes.keys()
            and all(bucket[axis] in known for axis, known in self._axes)
        )

    def __eq__(self, other: object) -> bool:
        return self._axes == other._axes if isinstance(other, Buckets) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._axes)

    def __repr__(self) -> str:
        return f"Buckets({', '.join(f'{axis}={list(sizes)}' for axis, sizes in self._axes)})"

    def padding(self, trace: Iterable[Mapping[str, int]]) -> PaddingReport:
        """What the buckets would have cost on requests that were recorded.

        Parameters
        ----------
        trace : iterable of mappings of str to int
            For each request its size on each axis.

        Returns
        -------
        PaddingReport
            The share of padding on each axis and in all, how many requests each bucket took, and which were refused;
            printed, it is a table.

        Examples
        --------
        >>> trace = [{"batch": 1}] * 6 + [{"batch": 3}] * 3 + [{"batch": 9}]
        >>> report = Buckets(batch=[1, 4]).padding(trace)
        >>> round(report.share, 3), report.refused
        (0.167, 1)
        """
        from graphdsl.serve.bucket_report import report

        return report(self, trace)

    @classmethod
    def for_trace(cls, trace: Iterable[Mapping[str, int]], **counts: int) -> Buckets:
        """Buckets with little padding on requests that were recorded, none of which they refuse.

        With one axis there is no list of so many sizes with less padding. With several, the sizes of no single axis
        could be chosen better while those of the others stay.

        Parameters
        ----------
        trace : iterable of mappings of str to int
            For each request its size on each axis.
        **counts : int
            For each axis how many sizes it may have at most.

        Examples
        --------
        >>> trace = [{"batch": size} for size in (1, 1, 1, 2, 5, 6, 6, 16)]
        >>> Buckets.for_trace(trace, batch=3)
        Buckets(batch=[2, 6, 16])
        """
        return cls(**proposals.for_trace(trace, counts))

    def _bucket(self, sizes: tuple[int, ...]) -> Bucket:
        made = self._made.get(sizes)
        if made is None:
            made = self._made.setdefault(sizes, Bucket(dict(zip(self.sizes, sizes))))
        return made

    def _wrong_axes(self, sizes: Mapping[str, int]) -> GraphdslError:
        for axis in sizes:
            if axis not in self.sizes:
                return unknown_name(axis, self.sizes, "axis", DeclarationError, field="axis")
        missing = [axis for axis in self.sizes if axis not in sizes]
        return DeclarationError(
            "a request has a size on every axis",
            field=missing[0],
            value="nothing",
            remedy=f"Pass {', '.join(f'{axis}=...' for axis in self.sizes)}.",
        )


@contextmanager
def about(bucket: Bucket) -> Iterator[None]:
    """Around what is done for a bucket: errors name it, but for faults of launches, which may be of another one."""
    try:
        yield
    except GraphdslError as problem:
        if not (isinstance(problem, DriverError) and is_fault(problem)):
            problem.about(bucket=bucket)
        raise


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Sizes for a message.

    Examples
    --------
    >>> sizes_text({"batch": 3, "seq": 100})
    'batch=3, seq=100'
    """
    return ", ".join(f"{axis}={size}" for axis, size in sizes.items())


def _checked_sizes(axis: str, sizes: Any) -> tuple[int, ...]:
    if isinstance(sizes, (str, bytes)) or not isinstance(sizes, Iterable):
        raise DeclarationError(
            "the sizes of an axis come as a list", field=axis, value=repr(sizes), remedy=f"Pass {axis}=[1, 2, 4]."
        )
    known = tuple(checked_size(size, axis) for size in sizes)
    if not known:
        raise DeclarationError("an axis has one size at least", field=axis, value="[]", remedy=f"Pass {axis}=[1, 2].")
    for before, size in pairwise(known):
        if size <= before:
            rule = f"{size} is there twice" if size == before else f"{size} comes behind {before}"
            raise DeclarationError(
                f"sizes go from small to large, each of them once, and {rule}",
                field=axis,
                value=list(known),
                remedy=f"Pass {axis}={sorted(set(known))}.",
            )
    return known


def _too_large(axis: str, size: int, known: tuple[int, ...]) -> BucketError:
    shown = [*(["..."] if len(known) > 3 else []), *map(str, known[-3:]), str(size)]
    return BucketError(
        f"the largest bucket on this axis is {known[-1]}",
        axis=axis,
        largest=known[-1],
        value=size,
        remedy=f"Split the request, or add a bucket: {axis}=[{', '.join(shown)}].",
    )
