"""Builds what a cache of graphs has, and gives it up: plans, arenas, the execs of buckets, within a number of bytes.

This module must not hand anything to requests.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from threading import Condition, get_ident
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from graphdsl.declare.expressions import Param
from graphdsl.declare.operands import Buffer
from graphdsl.declare.store import unknown_name
from graphdsl.errors import BuildError, DeclarationError, GraphdslError, RefusedError
from graphdsl.forks import Lock, tell_of_forks
from graphdsl.graph import Graph, default_device
from graphdsl.profiler import labelled
from graphdsl.run.blocks import size_text
from graphdsl.serve.arena import Arena
from graphdsl.serve.bucket_exec import Slot
from graphdsl.serve.buckets import Bucket, Buckets, about
from graphdsl.serve.costs import exec_nbytes
from graphdsl.serve.counts import Counts
from graphdsl.serve.entries import NO_ROOM, Entries, Entry, close_all
from graphdsl.serve.events import Observer
from graphdsl.serve.inputs import written_by_others
from graphdsl.serve.lent import Allocator
from graphdsl.serve.metrics import Metrics
from graphdsl.serve.once import Once
from graphdsl.serve.options import require_options
from graphdsl.serve.padding import Padding
from graphdsl.serve.swap import Shared, redeclare_all

if TYPE_CHECKING:
    from graphdsl.drivers.base import Driver
    from graphdsl.plan import Lanes
    from graphdsl.run.graph_exec import GraphExec

_logger = logging.getLogger("graphdsl")

SLOW = 0.05
"""Seconds; an instantiation that takes longer is logged, and a warning where a request waited for it."""

UNUSABLE = "an update left an exec unusable"
"""Why execs are given up that cannot be launched any more."""


class CacheBuild:
    """What a cache consists of; `GraphCache` is one."""

    def __init__(
        self,
        build: Callable[..., Graph],
        buckets: Buckets,
        device: Driver | None = None,
        *,
        inputs: Mapping[str, Padding] | None = None,
        outputs: Mapping[str, Any] | None = None,
        sizes: Mapping[str, str] | None = None,
        concurrency: int = 1,
        max_bytes: int | None = None,
        fallback: Callable[..., Any] | None = None,
        patience: float | None = 60.0,
        observer: Observer | Literal["metrics"] | None = "metrics",
        lanes: Lanes = "auto",
        memory: Allocator | None = None,
    ) -> None:
        require_options(
            build, buckets, device, inputs, outputs, sizes, concurrency, max_bytes, fallback, patience, observer, memory
        )
        self.build = build
        self.buckets = buckets
        self.device = default_device() if device is None else device
        self.inputs = dict(inputs or {})
        self.outputs = dict(outputs or {})
        self.cuts = {name: Padding(axes) for name, axes in self.outputs.items()}
        """How outputs are cut, by name."""
        self.sizes = dict(sizes or {})
        self.concurrency = concurrency
        self.max_bytes = max_bytes
        self.fallback = fallback
        self.patience = patience
        self.observer = Metrics() if observer == "metrics" else observer
        self.memory = memory
        self._lanes: Lanes = lanes
        self._changed = Condition()
        self._once = Once(self._changed)
        self._entries = Entries(max_bytes)
        self._arenas: list[Arena] = []
        self._free: deque[Arena] = deque()
        self._dropped: deque[tuple[Entry, Arena]] = deque()  # from finalizers, which take no lock
        self._ended: list[Entry] = []
        self._counts = Counts()
        self._owners: dict[str, Any] = {}
        self._shared: dict[str, Shared] = {}
        self._swapped: list[GraphExec] = []
        self._swapping = Lock()
        self._graphs: dict[Bucket, Graph] = {}
        self._planned: tuple[int, dict[Bucket, int]] | None = None
        self._built: set[Bucket] = set()
        self._closed = False
        tell_of_forks(self)

    # Building

    @property
    def owners(self) -> Mapping[str, Any]:
        """What swaps have put in the place of external operands that `build` declares, by name."""
        return MappingProxyType(self._owners)

    @property
    def arena_nbytes(self) -> int:
        """Bytes of one arena: of the arrays of the bucket that has most. Known before one is allocated.

        The first use of this, or the first request, declares and plans the graphs of all buckets.
        """
        return self._needs()[0]

    def _needs(self) -> tuple[int, dict[Bucket, int]]:
        """Bytes of an arena, and of an exec of each bucket."""
        while self._planned is None:
            self._once.do(None, self._plan_all)
        return self._planned

    def _plan_all(self) -> None:
        if self._planned is not None:
            return
        arena, needs, graphs = 0, {}, {}
        for bucket in self.buckets:
            graph = graphs[bucket] = self._declared(bucket)
            with about(bucket):
                made = graph.plan(self.device)
            arena = max(arena, made.nbytes_on(self.device.ordinal))
            needs[bucket] = self.concurrency * exec_nbytes(made)
        self._graphs = graphs  # until their execs are built
        self._planned = arena, needs

    def _declared(self, bucket: Bucket) -> Graph:
        """What `build` gives, if it is a graph with the operands that the cache was told of."""
        try:
            graph = self.build(**bucket)
        except GraphdslError as problem:
            problem.about(bucket=bucket)
            raise
        except Exception as problem:
            raise BuildError(
                f"build raised {type(problem).__name__}: {problem}",
                bucket=bucket,
                remedy="See the exception before it.",
            ) from problem
        if not isinstance(graph, Graph):
            raise BuildError(
                "build gives the graph of a bucket",
                bucket=bucket,
                field="build",
                value=f"{graph!r} of type {type(graph).__name__}",
                remedy="Return a graphdsl.Graph.",
            )
        with about(bucket):
            self._require_operands(graph, bucket)
        return graph

    def _require_operands(self, graph: Graph, bucket: Bucket) -> None:
        buffers = {name: each for name, each in graph.operands.items() if isinstance(each, Buffer)}
        for name, padding in [*self.inputs.items(), *self.cuts.items()]:
            if name not in buffers:
                raise unknown_name(name, buffers, "array", DeclarationError)
            padding.check(name, buffers[name].shape, buffers[name].dtype, bucket)
        for name, buffer in buffers.items():
            if buffer.external and name not in self._shared:
                self._shared[name] = Shared.of(buffer)
        params = {name: each for name, each in graph.operands.items() if isinstance(each, Param)}
        for param in self.sizes.values():
            if param not in params:
                raise unknown_name(param, params, "param", DeclarationError)

    def _make(self, bucket: Bucket, warming: bool) -> None:
        """Build the execs of a bucket, unless they are there."""
        with self._changed:
            if bucket in self._entries.by_bucket:
                return
        arena_nbytes, needs = self._needs()
        nbytes = needs[bucket]
        self._make_room(bucket, nbytes, self.concurrency * arena_nbytes, warming)
        try:
            began = perf_counter()
            graph = self._graphs.pop(bucket, None) or self._declared(bucket)  # before: build may give arenas up
            declared = perf_counter() - began
            slots, took = self._instantiated(bucket, graph, self._arenas_there(bucket, arena_nbytes), declared)
        except BaseException:
            self._count_off(nbytes)
            raise
        why = "warm-up" if warming else "a request"
        with self._changed:
            self._entries.add(Entry(bucket, slots, nbytes))
            self._built.add(bucket)
            self._counts.add("instantiate", why)
        if sum(took) > SLOW:
            level = logging.INFO if warming else logging.WARNING
            _logger.log(level, "bucket %s: its graph took %.0f ms to build for %s", bucket.name, 1000 * sum(took), why)
        if self.observer is not None:
            for slot, seconds in zip(slots, took, strict=True):
                each = (seconds, slot.exec.upload_seconds, nbytes // len(slots))
                self.observer.instantiated(bucket, slot.arena.number, *each)

    def _make_room(self, bucket: Bucket, nbytes: int, arenas: int, warming: bool) -> None:
        """Count the bytes of what is to be built; gives up what was not used for longest."""
        given_up = []

        def has_room() -> bool:
            return self._entries.has_room(nbytes if self._arenas else nbytes + arenas)

        with self._changed:
            self._entries.require_possible(bucket, nbytes, arenas)
            while not has_room():
                entry = None if warming else self._entries.least_used()
                if entry is not None:
                    self._entries.remove(entry)
                    self._counts.add("evict", "room for another bucket")
                    given_up.append(entry)
                elif why := self._who() if warming else self._waited_in_vain(has_room):
                    raise RefusedError(
                        f"there is no room for {size_text(nbytes)} more: {why}",
                        reason=NO_ROOM,
                        bucket=bucket,
                        field="max_bytes",
                        value=self.max_bytes,
                        remedy="Allow more bytes, or close runs earlier.",
                    )
                self._require_open()
            self._entries.nbytes += nbytes
        try:
            self._end(given_up, f"room for bucket {bucket.name}")
        except BaseException:
            self._count_off(nbytes)
            raise

    def _waited_in_vain(self, has_room: Callable[[], bool]) -> str:
        """Wait until there is room, or some execs can be given up; says why that does not happen, or nothing."""

        def mine() -> bool:
            held = sum(arena.holder == get_ident() for arena in self._arenas)
            return self._holds_all() or 0 < held == sum(entry.pins for entry in self._entries)

        def possible() -> bool:
            return has_room() or self._entries.least_used() is not None

        if not self._wait_for(lambda: possible() or mine()):
            return self._who()
        if self._closed or possible():
            return ""
        return f"{self._who()}, in with blocks of this thread, which would wait for itself"

    def _count_off(self, nbytes: int) -> None:
        """Bytes of what was not built; the arenas go with them if nothing is in them."""
        with self._changed:
            self._entries.nbytes -= nbytes
            dropped = self._without_unused_arenas()
            self._changed.notify_all()
        del dropped

    def _arenas_there(self, bucket: Bucket, nbytes: int) -> list[Arena]:
        """The arenas; they are allocated for the first bucket that is built."""
        with about(bucket):
            while not self._arenas:  # else nobody drops them, as long as this thread builds
                self._once.do("arenas", partial(self._allocate, nbytes))
        return self._arenas

    def _allocate(self, nbytes: int) -> None:
        if self._arenas:
            return
        made: list[Arena] = []
        try:
            for number in range(self.concurrency):
                made.append(Arena(self.device, nbytes, number, self.memory))
        except BaseException:
            made.clear()  # else they live as long as the traceback
            raise
        with self._changed:
            self._require_open()
            self._arenas = made
            self._free.extend(made)
            self._entries.nbytes += nbytes * len(made)

    def _instantiated(
        self, bucket: Bucket, graph: Graph, arenas: list[Arena], declared: float
    ) -> tuple[tuple[Slot, ...], list[float]]:
        """An exec in each arena, and the seconds that each took; those of the graph count with the first."""
        times = [perf_counter() - declared]
        owners = {name: owner for name, owner in self._owners.items() if name in graph.operands}
        with about(bucket), labelled(bucket.name), ExitStack() as made:
            first, *others = arenas
            given: dict[str, Any] = {"arena": first.memory, "stream": first.stream, "owners": owners}
            exe = made.enter_context(graph.instantiate(self.device, lanes=self._lanes, **given))
            execs = [exe]
            times.append(perf_counter())
            for arena in others:
                execs.append(made.enter_context(exe.clone(arena=arena.memory, stream=arena.stream)))
                times.append(perf_counter())
            for each in execs:
                each.bucket = bucket
            shared = written_by_others(exe.plan, self.inputs)
            redeclare_all([graph], owners)
            made.pop_all()
        slots = tuple(Slot(exe, arena, shared) for exe, arena in zip(execs, arenas, strict=True))
        return slots, [after - before for before, after in pairwise(times)]

    # Giving up

    def _end(self, entries: list[Entry], why: str) -> None:
        """Close execs that no request can get any more; waits for what is in flight."""

        def forgive(entry: Entry, problem: GraphdslError) -> None:
            _logger.error("bucket %s: nobody was told, and its execs are given up: %s", entry.bucket.name, problem)

        close_all(entries, forgive)
        if self.observer is not None:
            for entry in entries:
                self.observer.evicted(entry.bucket, entry.nbytes, why)

    def clear(self) -> None:
        """Give up the execs that no request has, and the arenas if no exec is left; what is in flight is waited for."""
        with self._changed:
            self._changed.wait_for(lambda: self._once.held_by in (None, get_ident()))  # a swap is at work on them
            self._take_dropped()
            idle = [entry for entry in self._entries if not entry.pins]
            for entry in idle:
                self._entries.remove(entry)
                self._counts.add("evict", "clear")
            self._changed.notify_all()
        self._end(idle, "clear")
        with self._changed:
            dropped = self._without_unused_arenas()
            self._changed.notify_all()
        del dropped

    def _without_arenas(self) -> list[Arena]:
        """Part from the arenas; who has them then drops them without the lock, since that waits for the device."""
        arenas, self._arenas = self._arenas, []
        self._entries.nbytes -= sum(arena.memory.nbytes for arena in arenas)
        self._free.clear()
        return arenas

    def _without_unused_arenas(self) -> list[Arena]:
        """The same if no exec is left in them, and no other thread builds one."""
        if not self._entries.by_bucket and self._once.alone and len(self._free) == len(self._arenas):
            return self._without_arenas()
        return []

    # Arenas

    def _free_arena(self) -> Arena:
        """The arena that was given back first; waits for one."""
        with self._changed:
            if not self._free and self._holds_all():
                raise RefusedError(
                    "all arenas are in with blocks of this thread, which would wait for itself",
                    reason="the thread holds all arenas",
                    field="concurrency",
                    value=self.concurrency,
                    remedy="Leave one of the blocks, or give the cache more concurrency.",
                )
            if not self._wait_for(lambda: bool(self._free)):
                raise RefusedError(
                    f"no arena became free in {self.patience} seconds: {self._who()}",
                    reason="no arena was free",
                    field="concurrency",
                    value=self.concurrency,
                    remedy="Close runs as soon as they are launched and read, or give the cache more concurrency.",
                )
            self._require_open()
            return self._free.popleft()

    def _holds_all(self) -> bool:
        me = get_ident()
        return bool(self._arenas) and all(arena.holder == me for arena in self._arenas)

    def _who(self) -> str:
        """What requests have now."""
        names = [f"{each.pins} of bucket {each.bucket.name}" for each in self._entries if each.pins]
        return f"requests open or waiting: {', '.join(names) or 'none'}"

    def _wait_for(self, condition: Callable[[], bool]) -> bool:
        """Wait with the lock until something holds, or patience ends; gives whether it does."""

        def over() -> bool:
            self._take_dropped()
            return condition() or self._closed

        return self._changed.wait_for(over, self.patience)

    def _give_back(self, entry: Entry, arena: Arena | None = None) -> None:
        """End a request, with its arena if it has one; an exec that it left unusable is given up."""
        with self._changed:
            self._take_back(entry, arena)
            self._take_dropped()
            ended, self._ended = self._ended, []
            self._changed.notify_all()
        if ended:
            self._end(ended, UNUSABLE)
        if self._swapped:
            self._let_go()

    def _take_back(self, entry: Entry, arena: Arena | None) -> None:
        """What a request had, with the lock held."""
        if arena is not None:
            if not (entry.lost or entry.slots[arena.number].exec.usable):
                self._lose(entry)
            arena.holder = None
            self._free.append(arena)
        entry.pins -= 1
        if entry.lost and not entry.pins:
            self._ended.append(entry)  # nobody needs its execs any more

    def _take_dropped(self) -> None:
        """What runs had that were dropped, and not closed, with the lock held."""
        while self._dropped:
            self._take_back(*self._dropped.popleft())

    def _lose(self, entry: Entry) -> None:
        """Let no more requests get execs of which one is unusable. The lock is held."""
        entry.lost = True
        self._entries.remove(entry)
        self._counts.add("evict", UNUSABLE)

    def _let_go(self) -> None:
        """Let go of memory that was swapped out, once no launch can use it any more."""
        with self._changed:
            execs, self._swapped = self._swapped, []
        left = [each for each in execs if each.usable and not each.release_replaced()]
        if left:
            with self._changed:  # another thread may have added some meanwhile
                self._swapped += left

    def _require_open(self) -> None:
        if self._closed:
            raise GraphdslError("the cache is closed", field="cache", remedy="Make another one.")

    def after_fork(self) -> None:
        """In a forked child: locks are open, and nothing is being built."""
        self._changed = Condition()
        self._once = Once(self._changed)
