"""Swaps memory that the graphs of a cache share, while nobody launches or builds.

This module must not serve requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import get_ident
from time import perf_counter
from typing import Any

from graphdsl.errors import GraphdslError, RefusedError
from graphdsl.serve.arena import Arena
from graphdsl.serve.cache_build import UNUSABLE, CacheBuild
from graphdsl.serve.inputs import by_name
from graphdsl.serve.swap import Place, Swap, copy_in_place, is_external, rebind, redeclare_all, require_names


class CacheSwap(CacheBuild):
    """A cache whose graphs can be given other memory; `GraphCache` is one."""

    def swap(
        self, owners: Mapping[str, Any] | None = None, /, *, in_place: bool = False, **named: Any
    ) -> tuple[Swap, ...]:
        """Put other memory, such as new weights, in the place of external buffers of all graphs, or of none.

        Requests that are open are waited for, and those that come meanwhile wait; launches in flight end with what they
        began with. Execs that are built later get the new memory, whatever ``build`` declares. The memory before is let
        go of once no launch can use it.

        Parameters
        ----------
        owners : dict, optional
            New owners by name; for names that are no Python identifiers.
        in_place : bool
            Copy into the memory that is there, and bind nothing. Launches in flight are waited for then. Of several
            buffers what is there is kept meanwhile, which takes their bytes once more: of the device, or of the host
            where the device has none left.
        **named
            New owners of memory, by the name of the operand: of the shape, dtype and strides of the old.

        Returns
        -------
        tuple of Swap
            For each buffer in how many execs it was swapped, and how long all of it took; printed, it says so in words.

        Raises
        ------
        UpdateError
            If a name is unknown, the memory differs in kind, or another buffer lies in the memory that was to go.
        DriverError
            If the driver refuses. In both cases all execs have what they had; the message names the bucket and the
            node. But a fault that takes the context of a GPU takes the memory with it: what was copied in place before
            cannot be put back then, and nothing of the process can be launched any more.
        RefusedError
            If requests stay open for longer than the cache is patient, or one is open in this thread.
        """
        given = by_name(owners, named, "swap")
        self._needs()
        require_names(given, self._shared)
        with self._swapping, self._alone():
            began = perf_counter()
            places = [Place(entry.bucket, slot.exec) for entry in self._entries for slot in entry.slots]
            try:
                kept = self._swap(places, given, in_place)
            except BaseException:
                self._drop_unusable()
                raise
            self._owners.update(kept)
            redeclare_all(self._graphs.values(), kept)
            with self._changed:
                self._swapped += [place.exec for place in places]
            self._let_go()
            seconds = perf_counter() - began
        done = tuple(self._said(name, places, in_place, seconds) for name in given)
        if self.observer is not None:
            for each in done:
                self.observer.swapped(each.name, each.execs, seconds)
        return done

    def _swap(self, places: list[Place], given: Mapping[str, Any], in_place: bool) -> dict[str, Any]:
        """Swap in all execs or none; gives what execs that are built later are bound to."""
        if in_place:
            copy_in_place(places, given, self.device, self._arenas[0].stream.handle if self._arenas else 0)
            return {name: each.exec[name] for name in given for each in places if is_external(each.exec, name)}
        for name, owner in given.items():
            self._shared[name].require_alike(name, owner)
        rebind(places, given)
        return dict(given)

    def _said(self, name: str, places: list[Place], in_place: bool, seconds: float) -> Swap:
        having = [each for each in places if is_external(each.exec, name)]
        buckets = len({each.bucket for each in having})
        return Swap(name, in_place, buckets, len(having), self._shared[name].nbytes, seconds)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Around what nobody may launch or build during: waits until no request is open."""
        taken: list[Arena] = []

        def has_all() -> bool:
            taken.extend(self._free)  # those that come next get none
            self._free.clear()
            return len(taken) == len(self._arenas)

        with self._changed:
            if any(arena.holder == get_ident() for arena in self._arenas):
                raise RefusedError(
                    "a request is open in this thread, which would wait for itself",
                    reason="the thread has a request open",
                    field="cache",
                    remedy="Swap outside of the with block.",
                )
            if self._once.mine:
                raise GraphdslError(
                    "building a graph asks the cache to swap, which waits until it is built",
                    field="cache",
                    remedy="Swap outside of build.",
                )
            self._once.held_by = get_ident()
            try:
                if not (self._wait_for(lambda: self._once.idle) and self._wait_for(has_all)):
                    raise RefusedError(
                        f"no arena may be in use, and in {self.patience} seconds not all became free: {self._who()}",
                        reason="requests stayed open",
                        field="cache",
                        remedy="Close runs as soon as they are launched and read.",
                    )
                self._require_open()
            except BaseException:
                self._resume(taken)
                raise
        try:
            yield
        finally:
            with self._changed:
                self._resume(taken)

    def _resume(self, taken: list[Arena]) -> None:
        self._once.held_by = None
        self._free.extend(taken)
        self._changed.notify_all()

    def _drop_unusable(self) -> None:
        """Give up execs that a swap has left undefined."""
        with self._changed:
            lost = [entry for entry in self._entries if not all(slot.exec.usable for slot in entry.slots)]
            for entry in lost:
                self._lose(entry)
        self._end([entry for entry in lost if not entry.pins], UNUSABLE)
