"""What a request gets of a cache: the exec of its bucket in a free arena, for as long as it is open.

Inputs are padded on the way in, outputs cut to the real size on the way out. This module must not know how execs are
found or built.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from graphdsl.declare.operands import Buffer
from graphdsl.declare.store import unknown_name
from graphdsl.errors import ExecUnusableError, GraphdslError, UpdateError
from graphdsl.run.device_array import DeviceArray
from graphdsl.serve.arena import Arena, Output
from graphdsl.serve.buckets import about
from graphdsl.serve.inputs import Inputs, by_name
from graphdsl.serve.padding import Padding, Sizes

if TYPE_CHECKING:
    from graphdsl.run.graph_exec import GraphExec
    from graphdsl.serve.entries import Entry
    from graphdsl.serve.graph_cache import GraphCache


class Slot:
    """The exec of a bucket in one arena, and what is known of it between requests.

    Attributes
    ----------
    exec : GraphExec
        The exec.
    arena : Arena
        Where its arrays lie.
    sizes : mapping of str to int, or None
        The real sizes that its params have; None if that is not known.
    busy : bool
        True if a launch of it may be in flight.
    inputs : Inputs
        What is known of its inputs.
    """

    __slots__ = ("arena", "busy", "exec", "inputs", "sizes")

    def __init__(self, graph_exec: GraphExec, arena: Arena, shared: frozenset[str]) -> None:
        self.exec = graph_exec
        self.arena = arena
        self.inputs = Inputs(graph_exec.device, arena.stream.handle, shared)
        self.sizes: Sizes | None = None
        self.busy = False

    def wait(self) -> None:
        """Wait for the launches of the exec."""
        self.exec.synchronize()
        self.busy = False


class Run:
    """An exec of a bucket, in the hands of one request; made by calling a `GraphCache`.

    Until it is closed nobody else launches in its arena; as a context manager it is closed at the end. A launch goes on
    behind that, and what it leaves can be read until the next launch in the arena. Runs are used by one thread at a
    time. What `update` changes stays in the exec for the next request.

    Attributes
    ----------
    bucket : Bucket
        The sizes that the exec was built for.
    sizes : dict of str to int
        The sizes of the request.
    exec : GraphExec
        The exec itself, for all that is not said here: its host arrays are written and read as those of any exec. What
        lies in its arena must not be used behind the next launch there; here that is refused.
    """

    __slots__ = ("_cache", "_entry", "_generation", "_open", "_slot", "bucket", "exec", "sizes")

    def __init__(self, cache: GraphCache, entry: Entry, number: int, sizes: dict[str, int]) -> None:
        self._cache = cache
        self._entry = entry
        self._slot = slot = entry.slots[number]
        self._open = False  # as long as making it may fail
        self._generation = 0
        self.bucket = entry.bucket
        self.sizes = sizes
        self.exec = slot.exec
        if slot.sizes != sizes:
            self._tell_sizes()
        if slot.arena.astray is not None:
            slot.arena.settle()
        self._open = True

    # Launching

    def launch(self, stream: Any = None) -> None:
        """Launch the graph; returns before it has run.

        Parameters
        ----------
        stream : int or object, optional
            A stream to launch into, as `GraphExec.launch` takes it; by default that of the arena. What was launched
            in the arena before is waited for, here and by the next request.

        Raises
        ------
        GraphdslError
            If the run is closed.
        DriverError
            If the driver refuses.
        """
        slot = self._slot
        if not self._open:
            raise self._closed("launched")
        arena = slot.arena
        if stream is not None:
            self._leave_stream()
        # First: who reads in another thread what the launch before has left asks again when it is done.
        arena.generation = self._generation = arena.generation + 1
        arena.last, arena.loaded = self.bucket, None
        slot.busy = True
        observer = self._cache.observer
        if observer is None:
            self._launch(stream)
            return
        ended = observer.launching(self.bucket, arena.number, self.exec, arena.stream if stream is None else stream)
        began = perf_counter()
        self._launch(stream)
        seconds = perf_counter() - began
        if ended is not None:
            ended()
        observer.launched(self.bucket, arena.number, seconds)

    def _launch(self, stream: Any) -> None:
        try:  # in place of `about`: a launch takes few microseconds
            self.exec.launch(stream)
        except GraphdslError:
            with about(self.bucket):
                raise

    def _leave_stream(self) -> None:
        """Wait for what was launched in the arena, since a launch elsewhere would not."""
        arena = self._slot.arena
        if arena.astray is None:
            self.exec.device.stream_synchronize(arena.stream.handle)
            arena.astray = self.exec

    def synchronize(self) -> None:
        """Wait for the launches of the exec; raises what went wrong in them, as `GraphExec.synchronize` does."""
        with about(self.bucket):
            self._slot.wait()

    # Values

    def update(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        """Change params and re-bind external memory of the exec, as `GraphExec.update` does.

        They stay so for whoever gets the exec next; what belongs to a request is passed with each.
        """
        if not self._open:
            raise self._closed("updated")
        self._slot.sizes = None  # a size may be among them
        began = perf_counter()
        with about(self.bucket):
            self.exec.update(values, **named)
        self._tell_updated(began)

    def _tell_sizes(self) -> None:
        """Give the params of the real sizes their values."""
        slot, params = self._slot, self._cache.sizes
        if params:
            slot.sizes = None
            began = perf_counter()
            with about(self.bucket):
                slot.exec.update({param: self.sizes[axis] for axis, param in params.items()})
            self._tell_updated(began)
        slot.sizes = self.sizes

    def _tell_updated(self, began: float) -> None:
        observer = self._cache.observer
        if observer is not None:
            observer.updated(self.bucket, self._slot.arena.number, perf_counter() - began)

    # Inputs and outputs

    def load(self, inputs: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        """Write inputs, the real rows of each, and fill the rest as the cache was told.

        Launches of the exec that may read them are waited for first. Operands in memory of the host are written in
        place, and what was filled before is not filled again, unless it was real meanwhile. To those on the device rows
        of the host are copied with the fill behind them; rows that lie on a device are copied from there, and only the
        fill comes from the host. But a repeat of the last row is made on the host, and so is what lies in the memory
        that is written: such rows go there and back. What writes rows on a device must have ended, but for launches
        of execs of this package.

        Parameters
        ----------
        inputs : dict, optional
            Arrays by name; for names that are no Python identifiers.
        **named
            Arrays of the real size, by the name of the operand: what NumPy makes an array of, or memory of a device.

        Raises
        ------
        UpdateError
            If an operand is none of the inputs of the cache.
        DeclarationError
            If the shape of one is not that of the request, or its numbers do not fit the dtype of the operand; rows on
            a device are of that dtype.
        """
        if not self._open:
            raise self._closed("loaded")
        began, slot = perf_counter(), self._slot
        if slot.busy:
            self.synchronize()
        with about(self.bucket):
            for name, data in by_name(inputs, named, "load").items():
                padding = self._cache.inputs.get(name)
                if padding is None:
                    raise unknown_name(name, self._cache.inputs, "input of the cache", UpdateError)
                slot.inputs.write(name, self.exec[name], data, padding, self.sizes, claim=self._claim(name))
        observer = self._cache.observer
        if observer is not None:
            observer.loaded(self.bucket, slot.arena.number, perf_counter() - began)

    def _claim(self, name: str) -> Callable[[], None]:
        """What is to be called before an input on the device is written: its arena notes that."""
        external = self.exec.plan.buffers[name].external
        return _nothing if external else partial(self._slot.arena.written_by, self.bucket, self._generation)

    def __getitem__(self, name: str) -> Any:
        """What the last launch of the run has left in an operand, or the value of a param.

        Parameters
        ----------
        name : str
            Name of an operand; an output of the cache is cut to the real size.

        Returns
        -------
        numpy.ndarray, Output, object or number
            Of host memory of the exec a copy, once the launches are waited for. Of device memory in the arena an array
            that can be used until the next launch there, or the inputs of another request, and is refused then. All
            else as `GraphExec` gives it.

        Raises
        ------
        ArenaError
            If there was a launch in the arena since, of another request or of this one, or another request wrote
            inputs there.
        """
        buffer = self.exec.plan.buffers.get(name) if isinstance(name, str) else None
        padding = self._cache.cuts.get(name)
        if not isinstance(buffer, Buffer):
            return self._operand(name)
        if buffer.external:
            owner = self._operand(name)
            return owner if padding is None else _cut(owner, padding, self.sizes, name)
        if not self._generation:
            raise GraphdslError(
                "what an exec has of its own is undefined until the run has launched it",
                bucket=self.bucket,
                field=name,
                remedy="Call launch() first; load() writes inputs.",
            )
        arena = self._slot.arena
        arena.require(self._generation, self.bucket, name, lies_there=buffer.space == "device")
        found = self._operand(name)
        extents = tuple(found.shape) if padding is None else padding.extents(found.shape, self.sizes, name=name)
        if isinstance(found, DeviceArray):
            return Output.of(found, extents, arena, (self._generation, self.bucket, name))
        with about(self.bucket):
            self.exec.synchronize()
        copied = found[tuple(map(slice, extents))].copy()
        arena.require(self._generation, self.bucket, name, lies_there=False)
        return copied

    def _operand(self, name: str) -> Any:
        try:
            with about(self.bucket):
                return self.exec[name]
        except ExecUnusableError:
            if self._open:
                raise
            raise GraphdslError(
                "the run is closed, and the cache has given its exec up since",
                bucket=self.bucket,
                field=name,
                remedy="Read what is needed before the run ends; what was read of device memory before stays.",
            ) from None

    # The end

    def close(self) -> None:
        """Give the exec and its arena back, without waiting for what was launched; closing twice is allowed."""
        if self._open:
            self._open = False
            self._cache._give_back(self._entry, self._slot.arena)

    def __enter__(self) -> Run:
        self._slot.arena.hold()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            said = f"{self!r} was dropped, and not closed: until it is collected nobody else gets its arena"
            self._open = False
            cache = self._cache
            cache._dropped.append((self._entry, self._slot.arena))
            if cache._changed.acquire(timeout=0.01):  # no longer: collection may come with any other lock held
                cache._changed.notify_all()
                cache._changed.release()
            warnings.warn(said, ResourceWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        return f"<Run of bucket {self.bucket.name}{'' if self._open else ', closed'}>"

    def _closed(self, what: str) -> GraphdslError:
        return GraphdslError(
            f"the run is closed, and another request may have its arena: it cannot be {what}",
            bucket=self.bucket,
            field="run",
            remedy="Ask the cache for another one.",
        )


def _nothing() -> None:
    """For memory that is none of the arena."""


def _cut(owner: Any, padding: Padding, sizes: Sizes, name: str) -> Any:
    """The real part of memory of others."""
    if isinstance(owner, DeviceArray):
        return DeviceArray.part_of(owner, padding.extents(owner.shape, sizes, name=name))
    return padding.slice(owner, sizes, name=name)
