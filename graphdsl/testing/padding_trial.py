"""Launches a graph of one bucket with requests that fill part of it, and with poison in the rest.

This module must not judge what came of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from graphdsl.compile.accesses import written_by
from graphdsl.declare.interop import host_view
from graphdsl.declare.operands import Buffer
from graphdsl.declare.store import unknown_name
from graphdsl.drivers.emulator import Emulator
from graphdsl.errors import DeclarationError, DriverError, GraphdslError
from graphdsl.run.device_array import DeviceArray
from graphdsl.run.faults import is_lost
from graphdsl.serve.padding import LAST, Padding, Sizes
from graphdsl.testing.orders import preorder
from graphdsl.testing.trial import first_failure

if TYPE_CHECKING:
    from graphdsl.graph import Graph
    from graphdsl.serve.buckets import Buckets

POISONS = (0xFF, 0x7F)
"""Bytes: one makes NaN of floats and -1 of signed integers, the other large numbers, which comparisons see."""

Arrays = Mapping[str, np.ndarray[Any, Any]]


class Cache(Protocol):
    """What is asked of a cache of graphs: what it was made of."""

    @property
    def build(self) -> Callable[..., Graph]:
        """Gives the graph of a size on every axis."""

    @property
    def buckets(self) -> Buckets:
        """The sizes that it builds graphs for."""

    @property
    def device(self) -> Any:
        """Where they run."""

    @property
    def inputs(self) -> Mapping[str, Padding]:
        """For each operand that a request fills, how it is padded."""

    @property
    def outputs(self) -> Mapping[str, Any]:
        """For each operand that is read, its axes, as `Padding` takes them."""

    @property
    def sizes(self) -> Mapping[str, str]:
        """The param that gets the real size on an axis."""

    @property
    def owners(self) -> Mapping[str, Any]:
        """What external operands are bound to, where that is not what ``build`` declares."""


class Result(NamedTuple):
    """What came of a launch.

    Attributes
    ----------
    outputs : dict of str to numpy.ndarray
        The real part of each.
    failure : GraphdslError or None
        What went wrong; then there are no outputs.
    """

    outputs: Arrays
    failure: GraphdslError | None


def poison_of(dtype: np.dtype[Any], byte: int) -> Any:
    """An element of which all bytes are this one; of bools True, which has no such byte."""
    if dtype.kind == "b":
        return byte != 0
    return np.frombuffer(bytes([byte]) * dtype.itemsize, dtype)[0]


class PaddingTrial:
    """An exec of the graph of a size, on memory that is put back behind every launch.

    Parameters
    ----------
    cache : Cache
        What builds the graph.
    size : mapping of str to int
        The size on every axis.
    outputs : mapping of str to Padding
        What is read.
    """

    def __init__(self, cache: Cache, size: Sizes, outputs: Mapping[str, Padding]) -> None:
        self._cache = cache
        self._outputs = outputs
        graph = cache.build(**size)
        self._buffers = {name: each for name, each in graph.operands.items() if isinstance(each, Buffer)}
        for name, padding in {**outputs, **cache.inputs}.items():
            buffer = self._buffers.get(name)
            if buffer is None or buffer.allocated:
                raise unknown_name(name, self._buffers, "array", DeclarationError)
            padding.check(name, buffer.shape, buffer.dtype, size)
        self._written = written_by(preorder(graph))
        owners = {name: owner for name, owner in cache.owners.items() if name in self._buffers}
        # What lies between nodes is poisoned, too, and so has bytes of its own.
        self._exec = graph.instantiate(cache.device, share_memory=False, owners=owners)
        self._stream = cache.device.stream_create()

    def close(self) -> None:
        """End the exec."""
        with ExitStack() as stack:
            stack.callback(self._exec.close)
            stack.callback(self._cache.device.stream_destroy, self._stream)

    def __enter__(self) -> PaddingTrial:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with suppress(DriverError) if kind else nullcontext():  # a GPU that has faulted refuses
            self.close()

    def open_inputs(self) -> list[str]:
        """The inputs whose padding no node may count on."""
        return [name for name, each in self._cache.inputs.items() if not each.relied_on(self._buffers[name].dtype)]

    def steering_first(self) -> list[str]:
        """The inputs, integers first: they say where the rows of others go."""
        return sorted(self._cache.inputs, key=lambda name: self._buffers[name].dtype.kind not in "iub")

    def run(
        self, data: Mapping[str, Any], sizes: Sizes, *, memory: int = 0, poison: int = 0, last: str | None = None
    ) -> Result:
        """Launch once.

        Parameters
        ----------
        data : mapping of str to array_like
            The real rows of the inputs.
        sizes : mapping of str to int
            The real size on each axis.
        memory : int
            The byte that fills all memory of the exec before.
        poison : int
            The byte that fills the padding of inputs that no node may count on.
        last : str, optional
            An input that is padded with its last real row instead.
        """
        with self._put_back():
            for name, buffer in self._buffers.items():
                if not (buffer.external or buffer.allocated or name in self._cache.inputs):
                    self._write(name, np.full(buffer.shape, poison_of(buffer.dtype, memory), buffer.dtype))
            open_inputs = self.open_inputs()
            for name, declared in self._cache.inputs.items():
                buffer = self._buffers[name]
                padding = Padding(declared.axes, LAST) if name == last else declared
                padded = np.zeros(buffer.shape, buffer.dtype)
                padding.write(padded, data[name], sizes, name=name)
                if name in open_inputs and name != last:
                    padding.fill_rest(padded, poison_of(buffer.dtype, poison), sizes)
                self._write(name, padded)
            self._exec.update(**{param: sizes[axis] for axis, param in self._cache.sizes.items()})
            failure = first_failure(self._exec)
            if failure is not None:
                return Result({}, failure)
            return Result({name: each.slice(self._read(name), sizes) for name, each in self._outputs.items()}, None)

    @contextmanager
    def _put_back(self) -> Iterator[None]:
        """Give memory that others own what it held before."""
        touched = self._written | set(self._cache.inputs)
        names = [name for name, each in self._buffers.items() if each.external and not each.readonly]
        device = self._cache.device
        if isinstance(device, Emulator):  # it knows what nobody has written
            addresses = self._exec.addresses
            before = {
                name: device.contents(addresses[name], max(self._buffers[name].allocation_nbytes, 0))
                for name in names
                if name in touched
            }
            try:
                yield
            finally:
                for name, held in before.items():
                    device.restore(addresses[name], held)
        else:
            kept = {name: self._read(name) for name in names if name in touched}
            try:
                yield
            finally:
                if not is_lost(device):
                    for name, array in kept.items():
                        self._write(name, array)

    def _memory(self, name: str) -> Any:
        buffer, address, shape = self._buffers[name], self._exec.addresses[name], self._buffers[name].shape
        if buffer.space != "device":
            return host_view(address, shape, buffer.strides, buffer.dtype, None)
        found = self._exec[name]
        if isinstance(found, DeviceArray):
            return found
        return DeviceArray(
            self._exec.device,
            address,
            shape,
            buffer.strides,
            buffer.dtype,
            owner=found,
            synchronize=lambda: self._stream,
        )

    def _read(self, name: str) -> np.ndarray[Any, Any]:
        memory = self._memory(name)
        return memory.copy_to_host() if isinstance(memory, DeviceArray) else np.array(memory)

    def _write(self, name: str, array: np.ndarray[Any, Any]) -> None:
        memory = self._memory(name)
        if isinstance(memory, DeviceArray):
            memory.copy_from_host(array)
        else:
            memory[...] = array
