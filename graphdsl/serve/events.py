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

    Of several execs of a bucket the number of the arena says which it is. Seconds are those that the caller of the
    cache spent, as `time.perf_counter` tells them.

    Examples
    --------
    >>> class Misses(Observer):
    ...     def miss(self, bucket):
    ...         print("built on demand:", bucket)
    >>> Misses().miss("batch=4")
    built on demand: batch=4
    """

    def miss(self, bucket: Bucket) -> None:
        """A request found no exec: it is built now, or another thread builds it."""

    def served(self, bucket: Bucket, arena: int, sizes: Sizes, queued_seconds: float) -> None:
        """A request got its exec, after so long a wait for a free arena; building does not count as waiting.

        It is padded where a size is below that of the bucket.
        """

    def instantiated(self, bucket: Bucket, arena: int, seconds: float, upload_seconds: float, nbytes: int) -> None:
        """An exec was built, and counts for so many bytes; to bring it to the device is a part of the seconds."""

    def evicted(self, bucket: Bucket, nbytes: int, why: str) -> None:
        """The execs of a bucket were given up."""

    def refused(self, sizes: Sizes, why: str) -> None:
        """A request got nothing."""

    def fell_back(self, sizes: Sizes, why: str) -> None:
        """A request was given to the fallback."""

    def launching(self, bucket: Bucket, arena: int, exe: GraphExec, stream: Any) -> Callable[[], None] | None:
        """An exec is about to be launched into a stream; what is given is called right after, unless that failed."""

    def launched(self, bucket: Bucket, arena: int, seconds: float) -> None:
        """A launch took so long to ask for."""

    def updated(self, bucket: Bucket, arena: int, seconds: float) -> None:
        """Params of an exec were changed."""

    def loaded(self, bucket: Bucket, arena: int, seconds: float) -> None:
        """Inputs were padded and written."""

    def swapped(self, name: str, count: int, seconds: float) -> None:
        """An external buffer was swapped in so many execs."""

    def closed(self) -> None:
        """The cache was closed; none of its launches is in flight."""
