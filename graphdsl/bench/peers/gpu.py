"""The GPU as all measurements need it: arguments of the kernel, and the time that work takes on the device.

Calls go to `cuda.bindings` and not to any library that is measured. The primary context is used, as all of them do.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import numpy as np
from cuda.bindings import driver

from graphdsl.bench.measure import Budget, rounds
from graphdsl.bench.shapes import ELEMENTS, THREADS

Handle = int

_AT_LEAST = driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ


def call(function: Any, *args: Any) -> Any:
    """Call the driver; gives its outputs (none, one, or a tuple).

    Raises
    ------
    RuntimeError
        If the driver refuses, with its function and its code.
    """
    result, *outputs = function(*args)
    if result:
        raise RuntimeError(f"{function.__name__}: {result.name}")
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


@functools.cache
def use_primary_context() -> Handle:
    """Make the primary context of the first device current; gives it."""
    call(driver.cuInit, 0)
    context = call(driver.cuDevicePrimaryCtxRetain, call(driver.cuDeviceGet, 0))
    call(driver.cuCtxSetCurrent, context)
    return int(context)


def stream() -> Handle:
    """A stream that does not wait for the default stream."""
    return int(call(driver.cuStreamCreate, driver.CUstream_flags.CU_STREAM_NON_BLOCKING))


def synchronize(handle: Handle) -> None:
    """Wait for the work of a stream."""
    call(driver.cuStreamSynchronize, handle)


class Operands:
    """What the kernel `graphdsl.bench.kernel.step` is called with, packed as Numba passes it.

    Attributes
    ----------
    values : tuple
        One for each parameter of the compiled kernel: the seven words of the array, ``gain`` and ``n``.
    pointers : numpy.ndarray of uint64
        Addresses of the values, which lie in this object.
    """

    def __init__(self) -> None:
        self._address = int(call(driver.cuMemAlloc, 4 * ELEMENTS))
        call(driver.cuMemsetD32, self._address, 0, ELEMENTS)
        words = (0, 0, ELEMENTS, 4, self._address, ELEMENTS, 4)  # meminfo, parent, size, item size, data, shape, stride
        self.values = (*words, np.float32(1), np.int32(THREADS))
        self._words = np.array(words, np.uint64)
        self._gain = np.array([1], np.float32)
        self._n = np.array([THREADS], np.int32)
        first = self._words.ctypes.data
        places = [*range(first, first + self._words.nbytes, 8), self._gain.ctypes.data, self._n.ctypes.data]
        self.pointers = np.array(places, np.uint64)

    def set_gain(self, value: float) -> None:
        """Change the packed value of ``gain``."""
        self._gain[0] = value

    def require_sum(self, expected: float) -> None:
        """Make sure that all nodes ran: each adds its gain.

        Raises
        ------
        RuntimeError
            If the kernel gave something else: then no time that was measured means anything.
        """
        found = np.zeros(ELEMENTS, np.float32)
        call(driver.cuMemcpyDtoH, found.ctypes.data, self._address, found.nbytes)
        call(driver.cuMemsetD32, self._address, 0, ELEMENTS)
        if found[0] != expected:
            raise RuntimeError(f"the graph was launched and gave {found[0]}, and should have given {expected}")

    def free(self) -> None:
        """Give the memory back; no launch may use it any more."""
        call(driver.cuMemFree, self._address)


class DeviceClock:
    """Times work on the device alone: the stream is held until all of it is queued.

    NVIDIA's sample holds the stream with a kernel; here it waits for a word in host memory, which ends without fail
    when the word is written.
    """

    def __init__(self) -> None:
        self._resources = ExitStack()

    def __enter__(self) -> DeviceClock:
        with ExitStack() as resources:
            self.stream = stream()
            resources.callback(call, driver.cuStreamDestroy, self.stream)
            flags = driver.CU_MEMHOSTALLOC_DEVICEMAP
            address = int(call(driver.cuMemHostAlloc, ctypes.sizeof(ctypes.c_uint32), flags))
            resources.callback(call, driver.cuMemFreeHost, address)
            self._gate = ctypes.c_uint32.from_address(address)
            self._gate_address = int(call(driver.cuMemHostGetDevicePointer, address, 0))
            self._events = [call(driver.cuEventCreate, driver.CUevent_flags.CU_EVENT_DEFAULT) for _ in range(2)]
            for event in self._events:
                resources.callback(call, driver.cuEventDestroy, event)
            self._resources = resources.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()

    def measure(self, launch_on: Callable[[Handle], Any], budget: Budget) -> list[float]:
        """Microseconds on the device of what ``launch_on(stream)`` queues, once for each round."""
        launch_on(self.stream)
        synchronize(self.stream)
        return [self._measure_once(launch_on) for _ in rounds(budget)]

    def _measure_once(self, launch_on: Callable[[Handle], Any]) -> float:
        begin, end = self._events
        self._gate.value = 0
        call(driver.cuStreamWaitValue32, self.stream, self._gate_address, 1, _AT_LEAST)
        try:
            call(driver.cuEventRecord, begin, self.stream)
            launch_on(self.stream)
            call(driver.cuEventRecord, end, self.stream)
        finally:
            self._gate.value = 1
        synchronize(self.stream)
        return float(1e3 * call(driver.cuEventElapsedTime, begin, end))
