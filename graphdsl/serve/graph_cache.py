"""A cache of graphs: for each bucket of sizes an exec in every arena, built when it is first needed, or before.

A request is bucketed, gets the exec in a free arena, and gives it back. This module must not launch anything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from time import perf_counter

from graphdsl.errors import BucketError, GraphdslError, RefusedError
from graphdsl.run.blocks import size_text
from graphdsl.serve.arena import Arena
from graphdsl.serve.bucket_exec import Run
from graphdsl.serve.buckets import Bucket
from graphdsl.serve.cache_swap import CacheSwap
from graphdsl.serve.counts import PADDED, Counts, Event
from graphdsl.serve.entries import NO_ROOM, TOO_LITTLE, Entry, close_all
from graphdsl.serve.metrics import Metrics
from graphdsl.serve.progress import Progress, shown
from graphdsl.serve.stats import Stats

_logger = logging.getLogger("graphdsl")


class GraphCache(CacheSwap):
    """Graphs for buckets of sizes, on a device.

    Parameters
    ----------
    build : callable
        Takes the sizes of a bucket as keywords and gives its `Graph`, a new one each time: the cache takes it over. It
        may be called more than once for a bucket. Memory that graphs share, such as weights, comes in as external
        operands.
    buckets : Buckets
        The sizes.
    device : Driver, optional
        Where graphs run; by default as `Graph.instantiate` chooses it.
    inputs : dict of str to Padding, optional
        The operands that `Run.load` writes, and how each is padded.
    outputs : dict, optional
        The operands that are cut to the real size when they are read, with their axes as `Padding` takes them.
    sizes : dict of str to str, optional
        For axes whose real size nodes need, the param that gets it.
    concurrency : int
        How many requests may be open at once: so many arenas there are, and so many execs of each bucket.
    max_bytes : int, optional
        What arenas and execs may take, as `nbytes` counts it; the execs of the bucket that was not used for longest are
        given up for those of another one. By default there is no limit.
    fallback : callable, optional
        Is given the sizes of a request that gets nothing here, as keywords; what it gives is what the request gets.
    patience : float, optional
        Seconds that a request waits for a free arena, or for room, before it gets nothing; None for ever.
    observer : Observer, "metrics" or None
        Is told of what happens; by default a new `Metrics`, which `stats` asks.
    lanes : int, "auto" or None
        As `Graph.instantiate` takes it.
    memory : Allocator, optional
        What lends the arenas their memory, such as a ``cuda.core.DeviceMemoryResource``, which is a stream-ordered
        pool: its ``allocate(nbytes, stream=)`` is called once for each arena, and ``close()`` of what that gives once
        no exec and no output uses it. By default each is an allocation of the driver (`cuMemAlloc`).

    Attributes
    ----------
    build, buckets, device, inputs, outputs, sizes, concurrency, max_bytes, fallback, patience, observer, memory
        As given.

    Examples
    --------
    >>> import numpy as np
    >>> import graphdsl as gd
    >>> from graphdsl import kernels
    >>> def build(batch):
    ...     g = gd.Graph("squares")
    ...     raw, x = g.host_array("raw", batch, "f4"), g.device_array("x", batch, "f4")
    ...     y, out = g.device_array("y", batch, "f4"), g.host_array("out", batch, "f4")
    ...     with g.sequence():
    ...         g.memcpy(x, raw, name="load")
    ...         g.kernel(kernels.square, grid=1, block=batch, args=(x, y), name="square")
    ...         g.memcpy(out, y, name="store")
    ...     return g
    >>> cache = gd.GraphCache(
    ...     build,
    ...     gd.Buckets(batch=[1, 4, 8]),
    ...     gd.emulator(),
    ...     inputs={"raw": gd.Padding("batch", fill=0)},
    ...     outputs={"out": "batch"},
    ... )
    >>> with cache(batch=3) as run:
    ...     run.load(raw=[1, 2, 3])
    ...     run.launch()
    ...     print(run.bucket.name, run["out"])
    batch=4 [1. 4. 9.]
    >>> cache.counts.miss, cache.stats().buckets[0].padding
    (1, 0.25)
    >>> cache.close()
    """

    # Requests

    def __call__(self, /, **sizes: int) -> Run:
        """The exec of the bucket of a request, in a free arena: a context manager, see `Run`.

        Parameters
        ----------
        **sizes : int
            The real size on each axis.

        Returns
        -------
        Run
            Or what ``fallback`` gives.

        Raises
        ------
        BucketError
            If the request is larger than the largest bucket, and there is no fallback.
        RefusedError
            If no arena was free for as long as the cache is patient, or the execs would take too many bytes.
        GraphdslError
            What building the graph raised; the message names the bucket.
        """
        try:
            bucket = self.buckets.of(**sizes)
        except BucketError as problem:
            fallback = self._turned_down(sizes, f"larger than the largest bucket on {problem.axis}")
            if fallback is None:
                raise
            return fallback(**sizes)
        padded = not bucket.is_exactly(sizes)
        arena, queued = None, 0.0
        with self._changed:
            entry = self._entries.by_bucket.get(bucket)
            if entry is not None and self._free:
                arena = self._free.popleft()
                self._entries.pin(entry)
                self._counts.add_hit(padded)
        if arena is None or entry is None:
            try:
                entry, arena, queued = self._waited(bucket, padded)
            except RefusedError as problem:
                fallback = self._turned_down(sizes, problem.reason)
                if fallback is None:
                    problem.about(bucket=bucket)
                    raise
                return fallback(**sizes)
        try:
            if self.observer is not None:
                self.observer.served(bucket, arena.number, sizes, queued)
            return Run(self, entry, arena.number, sizes)
        except BaseException:
            self._give_back(entry, arena)
            raise

    def _waited(self, bucket: Bucket, padded: bool) -> tuple[Entry, Arena, float]:
        """The same where execs have to be built, or an arena waited for: with the seconds of the latter.

        Building does not count as waiting.
        """
        hit, queued = True, 0.0
        while True:
            with self._changed:
                self._require_open()
                entry = self._entries.by_bucket.get(bucket)
                if entry is not None:
                    self._entries.pin(entry)
                elif hit:
                    hit = False
                    why = "given up before" if bucket in self._built else "the first request of the bucket"
                    self._counts.add("miss", why)
            if entry is None:
                if self.observer is not None:
                    self.observer.miss(bucket)
                self._once.do(bucket, partial(self._make, bucket, warming=False))
                continue
            began = perf_counter()
            try:
                arena = self._free_arena()
            except BaseException:
                self._give_back(entry)
                raise
            queued += perf_counter() - began
            if entry.lost:  # while this one waited, another request left an exec of it unusable
                self._give_back(entry, arena)
                continue
            with self._changed:
                if hit:
                    self._counts.add_hit(padded)
                elif padded:
                    self._counts.add(*PADDED)
            return entry, arena, queued

    def _turned_down(self, sizes: Mapping[str, int], why: str) -> Callable[..., Run] | None:
        """Count a request that gets nothing here, and tell of it; gives the fallback, whatever that gives."""
        event: Event = "refused" if self.fallback is None else "fallback"
        with self._changed:
            self._counts.add(event, why)
        if self.observer is not None:
            tell = self.observer.refused if self.fallback is None else self.observer.fell_back
            tell(sizes, why)
        return self.fallback

    # Before requests

    def warm_up(self, progress: bool | Progress = False) -> tuple[Bucket, ...]:
        """Build the execs of all buckets, the largest first, as far as ``max_bytes`` lets it; gives those built.

        Parameters
        ----------
        progress : bool or callable
            True for a progress bar in the terminal; or what is told how many are done, how many there are, and which
            comes next.

        Raises
        ------
        GraphdslError
            What building a graph raised; the buckets before it stay.
        """
        buckets, made = list(self.buckets), []
        with shown(progress) as tell:
            for done, bucket in enumerate(buckets):
                tell(done, len(buckets), bucket)
                if bucket in self._entries.by_bucket:
                    continue
                try:
                    self._once.do(bucket, partial(self._make, bucket, warming=True))
                except RefusedError as problem:
                    if problem.reason not in (NO_ROOM, TOO_LITTLE):
                        raise
                    _logger.info("%d of %d buckets are warm: %s", done, len(buckets), problem)
                    break
                made.append(bucket)
        return tuple(made)

    # The end

    def close(self) -> None:
        """Wait for what is in flight and give all up; closing twice is allowed.

        Raises
        ------
        GraphdslError
            If a request is open, a graph is being built, or memory is being swapped; nothing is given up then.
        DriverError
            If a launch failed that nobody has waited for.
        """
        with self._changed:
            self._take_dropped()
            building = "" if self._once.idle else "; a graph is being built"
            swapping = "; memory is being swapped" if self._once.held_by is not None else ""
            if building or swapping or any(entry.pins for entry in self._entries):
                raise GraphdslError(
                    f"a cache is closed when nobody uses it, and there are {self._who()}{building}{swapping}",
                    field="cache",
                    remedy="Close the runs first.",
                )
            self._closed = True
            entries = list(self._entries)
            for entry in entries:
                self._entries.remove(entry)
            dropped = self._without_arenas(), self._graphs, self._owners
            self._graphs, self._owners = {}, {}
            self._changed.notify_all()
        del dropped  # what only they kept is given back without the lock
        failures: list[GraphdslError] = []
        close_all(entries, lambda entry, problem: failures.append(problem.about(bucket=entry.bucket)))
        if self.observer is not None:
            self.observer.closed()
        if failures:
            raise failures[0]

    def __enter__(self) -> GraphCache:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with suppress(GraphdslError) if kind else nullcontext():
            self.close()

    # Looking

    @property
    def counts(self) -> Counts:
        """What has happened so far, and why."""
        with self._changed:
            return self._counts.copy()

    def stats(self) -> Stats:
        """Counts and times of each bucket and of each exec, as its `Metrics` has them so far; printed, it is a table.

        Raises
        ------
        GraphdslError
            If the observer is no `Metrics`.
        """
        if not isinstance(self.observer, Metrics):
            raise GraphdslError(
                "counts and times are kept by an observer that is a graphdsl.Metrics",
                field="observer",
                value=repr(self.observer),
                remedy="Leave observer= out, or pass graphdsl.Metrics(name) or a subclass of it.",
            )
        return self.observer.stats()

    @property
    def nbytes(self) -> int:
        """Bytes of the arenas and of all execs, as `graphdsl.serve.costs.exec_nbytes` counts them."""
        return self._entries.nbytes

    @property
    def built(self) -> tuple[Bucket, ...]:
        """The buckets whose execs are there, the one first that would be given up first."""
        with self._changed:
            return tuple(each.bucket for each in sorted(self._entries, key=lambda each: each.used))

    def __repr__(self) -> str:
        there = f"{len(self._entries.by_bucket)} of {len(self.buckets)} buckets built"
        return f"<GraphCache on {self.device.name}: {there}, {size_text(self.nbytes)}>"
