"""What a cache of graphs tells of what it does: an observer is called, and does nothing unless it is a subclass.

Calls come from whatever thread serves a request, and several at once; none of them holds a lock of the cache. What an
observer raises reaches the caller of the cache, which has then given back all that the request held. This module must
not know the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from graphdsl.serve.buckets import Bucket

if TYPE_CHECKING:
    from graphdsl.run.graph_exec import GraphExec

Sizes = Mapping[str, int]
"""The size of each axis that a request has."""


class Observer:
    """Is told of what a `GraphCache` does; each method does nothing here.

    Seconds are processor time of the caller as `time.perf_counter` tells it. What costs time to measure is measured
    only for an observer that has the method.

    Examples
    --------
    >>> class Misses(Observer):
    ...     def miss(self, bucket):
    ...         print("built on demand:", bucket)
    >>> Misses().miss("batch=4")
    built on demand: batch=4
    """

    def hit(self, bucket: Bucket, sizes: Sizes) -> None:
        """A request found its exec; it is padded where a size is below that of the bucket."""

    def miss(self, bucket: Bucket) -> None:
        """A request found none: it is built now, or another thread builds it."""

    def instantiated(self, bucket: Bucket, seconds: float, nbytes: int) -> None:
        """The execs of a bucket were built, in so many seconds; they count for so many bytes."""

    def evicted(self, bucket: Bucket, nbytes: int, why: str) -> None:
        """The execs of a bucket were given up."""

    def refused(self, sizes: Sizes, why: str) -> None:
        """A request got nothing."""

    def fell_back(self, sizes: Sizes, why: str) -> None:
        """A request was given to the fallback."""

    def launching(self, bucket: Bucket, exe: GraphExec, stream: Any) -> Callable[[], None] | None:
        """An exec is launched next, into a stream of its device; what is given back is called right behind that.

        ``stream`` is a handle, or an object with ``__cuda_stream__``. Nothing is called if the launch is refused.
        """
        return None

    def launched(self, bucket: Bucket, seconds: float, queued_seconds: float) -> None:
        """A launch took so long to ask for; its run had waited so long for a free arena."""

    def updated(self, bucket: Bucket, seconds: float) -> None:
        """Params of an exec were changed."""

    def uploaded(self, bucket: Bucket, seconds: float) -> None:
        """Inputs were padded and written."""

    def swapped(self, name: str, count: int, seconds: float) -> None:
        """An external buffer was swapped in so many execs."""
