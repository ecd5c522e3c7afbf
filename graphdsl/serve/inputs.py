"""Writes what a request brings into the operands of an exec: from the host or the device, to the host or the device.

This module must not know which requests there are, nor what they launch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from graphdsl.compile.accesses import written_by
from graphdsl.declare.interop import device_of, foreign_array
from graphdsl.declare.nodes import buffers_of
from graphdsl.drivers.base import Driver, Handle
from graphdsl.drivers.results import is_fault
from graphdsl.errors import DeclarationError, DriverError, GraphdslError, UpdateError
from graphdsl.plan import Plan
from graphdsl.run.device_array import DeviceArray
from graphdsl.serve.arena import Output
from graphdsl.serve.padding import LAST, Padding, Sizes


class Inputs:
    """What is known of the inputs of an exec between requests.

    Parameters
    ----------
    device, stream
        What copies from the device.
    shared : frozenset of str
        The inputs in host memory that nodes or others write, too.
    """

    __slots__ = ("_device", "_shared", "_staged", "_stream", "_written")

    def __init__(self, device: Driver, stream: Handle, shared: frozenset[str]) -> None:
        self._device = device
        self._stream = stream
        self._shared = shared
        self._written: dict[str, Sizes] = {}  # with which each was written last; of those on the device, was staged
        self._staged: dict[str, np.ndarray[Any, Any]] = {}  # what is copied to those on the device

    def write(
        self, name: str, array: Any, data: Any, padding: Padding, sizes: Sizes, *, claim: Callable[[], None]
    ) -> None:
        """Write the real rows of an input, and fill the rest.

        Parameters
        ----------
        name : str
            The operand.
        array : numpy.ndarray or DeviceArray
            Its memory.
        data : array_like, or an array of a device
            The real rows.
        padding : Padding
            What fills the rest.
        sizes : mapping of str to int
            The real sizes.
        claim : callable
            Is called before memory of a device is written, once all is found right.
        """
        try:
            self._write(name, array, data, padding, sizes, claim)
        except DriverError as problem:
            if not is_fault(problem):  # that is of a launch before
                problem.about(field=name)
            raise

    def _write(
        self, name: str, array: Any, data: Any, padding: Padding, sizes: Sizes, claim: Callable[[], None]
    ) -> None:
        given = self._of_device(data, name)
        if isinstance(array, np.ndarray):
            host = data if given is None else given.copy_to_host()
            padding.write(array, host, sizes, before=self._written.pop(name, None), name=name)
            if name not in self._shared:
                self._written[name] = sizes
        elif not isinstance(array, DeviceArray):
            raise GraphdslError(
                "inputs are arrays of the exec, or device arrays of this package",
                field=name,
                value=f"an object of type {type(array).__name__}",
                remedy="Copy into it by the means of its owner.",
            )
        elif given is None:
            self._stage(name, array, data, padding, sizes, claim)
        elif padding.fill == LAST or given.meets(array):
            self._stage(name, array, given.copy_to_host(), padding, sizes, claim)
        else:
            _copy(name, array, given, padding, sizes, claim)

    def _of_device(self, data: Any, name: str) -> DeviceArray | None:
        """Data that lies in memory of a device; None of all else."""
        if isinstance(data, (np.ndarray, DeviceArray)):
            return data if isinstance(data, DeviceArray) else None
        if not hasattr(data, "__cuda_array_interface__") and device_of(data) is None:
            return None
        found = foreign_array(data, name)
        where = (self._device, found.address, found.shape, found.strides, found.dtype)
        return DeviceArray(*where, owner=found.keep, synchronize=lambda: self._stream, readonly=found.readonly)

    def _stage(
        self, name: str, array: DeviceArray, data: Any, padding: Padding, sizes: Sizes, claim: Callable[[], None]
    ) -> None:
        """Write into memory of the host, and copy that."""
        staged = self._staged.get(name)
        if staged is None:
            staged = self._staged[name] = np.zeros(array.shape, array.dtype)
        padding.write(staged, data, sizes, before=self._written.pop(name, None), name=name)
        self._written[name] = sizes
        claim()
        if padding.fills:
            array.copy_from_host(staged)
        else:  # nobody reads the rest, so that nothing is copied there
            real = padding.slice(staged, sizes, name=name)
            DeviceArray.part_of(array, real.shape).copy_from_host(real)


def by_name(given: Any, named: Mapping[str, Any], call: str) -> Mapping[str, Any]:
    """What a call is given by name, and in a dict for names that are no Python identifiers.

    Raises
    ------
    UpdateError
        If it is no dict.
    """
    if given is None:
        return named
    if isinstance(given, Mapping):
        return {**given, **named}
    raise UpdateError(
        f"what {call} takes is named",
        field=call,
        value=f"an object of type {type(given).__name__}",
        remedy=f'Pass {call}(x=...), or {call}({{"layer0/x": ...}}).',
    )


def _copy(
    name: str, array: DeviceArray, given: DeviceArray, padding: Padding, sizes: Sizes, claim: Callable[[], None]
) -> None:
    """Copy what lies on the device; the rest is filled whole, since other execs may have had the memory since."""
    extents = padding.require_rows(given.shape, array.shape, sizes, name=name)
    if given.dtype != array.dtype:
        raise DeclarationError(
            f"this is memory of {array.dtype}, and what lies on the device is copied as it is",
            field=f"dtype of {name}",
            value=str(given.dtype),
            remedy=f"Convert it to {array.dtype} first.",
        )
    given = given.now() if isinstance(given, Output) else given  # it may lie in the same arena
    claim()
    DeviceArray.part_of(array, extents).copy_from_device(given)
    for begin, filled in padding.filling(array.shape, array.dtype, sizes, name=name):
        DeviceArray.part_of(array, filled.shape, begin).copy_from_host(filled)


def written_by_others(made: Plan, inputs: Collection[str]) -> frozenset[str]:
    """The inputs that a graph writes, too, or whose memory others have."""
    written = written_by(node for node in made.nodes if any(buffer.name in inputs for buffer in buffers_of(node)))
    return frozenset(name for name in inputs if name in written or made.buffers[name].external)
