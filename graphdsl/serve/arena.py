"""The memory that the execs of a cache have by turns, one launch after the other, and whose it is.

There are as many arenas as launches may overlap; in each an exec of every bucket has its device arrays. This module
must not know what a request is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from graphdsl.drivers.base import Driver, Handle
from graphdsl.errors import ArenaError, ExecUnusableError, MemoryFault
from graphdsl.run.blocks import DeviceBlock, freed_with
from graphdsl.run.device_array import DeviceArray
from graphdsl.serve.buckets import Bucket
from graphdsl.serve.lent import Allocator, LentBlock

if TYPE_CHECKING:
    from graphdsl.run.graph_exec import GraphExec


class Stream:
    """A stream that is destroyed with the last object that refers to it."""

    def __init__(self, device: Driver) -> None:
        self.handle: Handle = device.stream_create()
        freed_with(self, device.stream_destroy, self.handle)

    def __cuda_stream__(self) -> tuple[int, Handle]:
        return 0, self.handle


class Arena:
    """One block of memory with the stream that launches in it go into, so that they follow each other.

    It is freed with the last exec that lies in it, and the last output that somebody holds.

    Parameters
    ----------
    device : Driver
        Where it lies.
    nbytes : int
        What the largest of its execs needs.
    number : int
        Which of the arenas of a cache it is.
    lender : Allocator, optional
        What its memory comes from; the driver by default.

    Attributes
    ----------
    memory : DeviceArray
        The block, as bytes.
    stream : Stream
        Where launches go.
    generation : int
        How many launches there were.
    last : Bucket or None
        Of the last one.
    loaded : Bucket or None
        Of the request that has written inputs into the memory since, if that was not the one which launched.
    astray : GraphExec or None
        An exec with launches in streams of others, which nobody may have waited for.
    holder : int or None
        The thread that has it in a ``with`` block.
    """

    __slots__ = ("astray", "generation", "holder", "last", "loaded", "memory", "number", "stream")

    def __init__(self, device: Driver, nbytes: int, number: int, lender: Allocator | None = None) -> None:
        self.number = number
        self.stream = Stream(device)
        handle = self.stream.handle
        nbytes = max(nbytes, 1)
        block = DeviceBlock(device, nbytes) if lender is None else LentBlock(device, nbytes, lender, self.stream)
        dtype, owner = np.dtype(np.uint8), (block, self.stream)
        self.memory = DeviceArray(
            device, block.address, (nbytes,), (1,), dtype, owner=owner, synchronize=lambda: handle
        )
        self.generation = 0
        self.last: Bucket | None = None
        self.loaded: Bucket | None = None
        self.astray: GraphExec | None = None
        self.holder: int | None = None

    def require(self, generation: int, bucket: Bucket, name: str, *, lies_there: bool = True) -> None:
        """Refuse to use what a launch left, if there was another one since, or inputs of another request.

        Raises
        ------
        ArenaError
            The message names the bucket, the operand, and the later launch.
        """
        loaded = self.loaded if lies_there else None  # the host memory of an exec is its own
        if generation == self.generation and loaded is None:
            return
        later = f"a request of bucket {loaded.name} wrote its inputs there" if loaded else ""
        if generation != self.generation:
            later = f"there was launch {self.generation}, of bucket {self.last.name if self.last else None}"
        raise ArenaError(
            f"it was there until the next request used its arena: launch {generation} left it, and since then {later}",
            bucket=bucket,
            field=name,
            remedy="Read it before the next request, copy it out, or give the cache more arenas with concurrency=.",
        )

    def written_by(self, bucket: Bucket, generation: int) -> None:
        """Note that a request writes inputs into the memory, whose last launch was that of a generation."""
        if generation != self.generation:  # else what is there is its own, and it knows what it writes
            self.loaded = bucket

    def settle(self) -> None:
        """Wait for launches that went elsewhere than into the stream of the arena."""
        astray, self.astray = self.astray, None
        if astray is not None:
            astray.synchronize()

    def hold(self) -> None:
        """Note that this thread has it, and gives it back itself."""
        self.holder = threading.get_ident()


class Output(DeviceArray):
    """A device array of an exec in an arena: it can be used until the next launch there, and is refused then.

    So it is when another request writes inputs there.
    """

    _arena: Arena
    _told: tuple[int, Bucket, str]

    @classmethod
    def of(cls, array: DeviceArray, shape: tuple[int, ...], arena: Arena, told: tuple[int, Bucket, str]) -> Output:
        """The first rows of an array of an exec; ``told`` is the launch that left them, its bucket, and the name."""
        made = cls.part_of(array, shape)
        made._arena, made._told = arena, told
        if not isinstance(array, Output):
            made._synchronize = partial(_settled, array._synchronize, arena)
        return made

    def _enter(self, writes: bool) -> None:
        self._require()
        super()._enter(writes)

    def _require(self) -> None:
        self._arena.require(*self._told)

    def now(self) -> DeviceArray:
        """The same memory as an array that is not asked any more whether it may be used.

        Raises
        ------
        ArenaError
            If it must not be used already.
        """
        self._require()
        return DeviceArray.part_of(self, self.shape)

    def view(self, shape: int | tuple[int, ...], dtype: Any, *, offset: int = 0) -> Output:
        """See `DeviceArray.view`; the part can be used as long as the whole."""
        part = super().view(shape, dtype, offset=offset)
        return Output.of(part, part.shape, self._arena, self._told)

    def copy_to_host(self, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        """See `DeviceArray.copy_to_host`.

        Raises
        ------
        ArenaError
            If another request used the arena since, or while it was copied, or this one launched again.
        """
        self._require()
        try:
            found = super().copy_to_host(out)
        except MemoryFault:
            self._require()  # of an emulator, which sees that another thread launched meanwhile
            raise
        self._require()  # a GPU does not
        return found

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self._require()
        return super().__cuda_array_interface__

    def __dlpack__(self, **options: Any) -> Any:
        self._require()
        return super().__dlpack__(**options)


def _settled(synchronize: Callable[[], Handle], arena: Arena) -> Handle:
    """Wait for the launches of an exec in an arena; gives a stream for what follows."""
    try:
        return synchronize()
    except ExecUnusableError:  # it was given up, and its launches are before all that follows in the stream
        return arena.stream.handle
