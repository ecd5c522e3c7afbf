"""The execs of the buckets that are there: one for each arena, counted in bytes, the least used given up first.

This module must not build an exec, nor wait for one to be free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack

from graphdsl.errors import GraphdslError, RefusedError
from graphdsl.run.blocks import size_text
from graphdsl.serve.bucket_exec import Slot
from graphdsl.serve.buckets import Bucket

NO_ROOM, TOO_LITTLE = "no room for its execs", "max_bytes is too small for its execs"
"""Why a request is refused for want of bytes."""


class Entry:
    """The execs of one bucket.

    Attributes
    ----------
    bucket : Bucket
        Theirs.
    slots : tuple of Slot
        One in each arena.
    nbytes : int
        What they count for.
    pins : int
        How many requests have one, or wait for a free arena: as long as it is not 0 they stay.
    used : int
        When one was asked for last; a larger number is later.
    lost : bool
        True once no more requests get one, since one of them is unusable.
    """

    __slots__ = ("bucket", "lost", "nbytes", "pins", "slots", "used")

    def __init__(self, bucket: Bucket, slots: tuple[Slot, ...], nbytes: int) -> None:
        self.bucket = bucket
        self.slots = slots
        self.nbytes = nbytes
        self.pins = 0
        self.used = 0
        self.lost = False

    def close(self) -> None:
        """Wait for what is in flight, and give all up.

        Raises
        ------
        GraphdslError
            What a launch raised that nobody has waited for.
        """
        with ExitStack() as stack:
            for slot in self.slots:
                stack.callback(slot.exec.close)


class Entries:
    """Execs by bucket, within a number of bytes. Whoever calls holds the lock of the cache.

    Parameters
    ----------
    max_bytes : int or None
        How many all of them may count for.

    Attributes
    ----------
    by_bucket : dict of Bucket to Entry
        Those that are there.
    nbytes : int
        What they count for, those that are being built and the arenas among them.
    """

    def __init__(self, max_bytes: int | None) -> None:
        self.max_bytes = max_bytes
        self.by_bucket: dict[Bucket, Entry] = {}
        self.nbytes = 0
        self._clock = 0

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.by_bucket.values())

    def pin(self, entry: Entry) -> None:
        """Note that a request has it."""
        self._clock = entry.used = self._clock + 1
        entry.pins += 1

    def require_possible(self, bucket: Bucket, nbytes: int, arenas: int) -> None:
        """Refuse what would not fit if it were alone."""
        if self.max_bytes is not None and arenas + nbytes > self.max_bytes:
            raise RefusedError(
                f"its execs count for {size_text(nbytes)}, the arenas of all buckets for {size_text(arenas)}, and the "
                f"cache may have {size_text(self.max_bytes)}",
                reason=TOO_LITTLE,
                bucket=bucket,
                field="max_bytes",
                value=self.max_bytes,
                remedy=f"Allow {arenas + nbytes} bytes at least, or take smaller buckets or less concurrency.",
            )

    def has_room(self, nbytes: int) -> bool:
        """True if so many bytes more are allowed."""
        return self.max_bytes is None or self.nbytes + nbytes <= self.max_bytes

    def least_used(self) -> Entry | None:
        """The one to give up first; None if requests have all."""
        return min((each for each in self if not each.pins), key=lambda each: each.used, default=None)

    def add(self, entry: Entry) -> None:
        """Take up what was built; its bytes are counted already."""
        self.by_bucket[entry.bucket] = entry

    def remove(self, entry: Entry) -> None:
        """Take one out, for whoever closes it then."""
        del self.by_bucket[entry.bucket]
        self.nbytes -= entry.nbytes


def close_all(entries: Iterable[Entry], forgive: Callable[[Entry, GraphdslError], None]) -> None:
    """Give several up; what launches raised that nobody has waited for goes to ``forgive``.

    An interrupt leaves none behind.
    """

    def close(entry: Entry) -> None:
        try:
            entry.close()
        except GraphdslError as problem:
            forgive(entry, problem)

    with ExitStack() as stack:
        for entry in reversed(list(entries)):
            stack.callback(close, entry)
