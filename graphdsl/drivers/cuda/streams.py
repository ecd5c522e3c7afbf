"""Calls of the CUDA driver on streams, captures and events."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from cuda.bindings import driver
from cuda.core import Stream

from graphdsl.drivers.base import Handle
from graphdsl.drivers.cuda.calling import error_of, invoke, require_allowed
from graphdsl.drivers.cuda.context import Context

_NOT_READY = driver.CUresult.CUDA_ERROR_NOT_READY
_THREAD_LOCAL = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL


class Streams(Context):
    """Streams, what is captured from them, and events."""

    def stream_create(self) -> Handle:
        with self._current():
            return int(invoke(driver.cuStreamCreate, driver.CUstream_flags.CU_STREAM_NON_BLOCKING))

    def stream_synchronize(self, stream: Handle) -> None:
        invoke(driver.cuStreamSynchronize, stream)

    def stream_destroy(self, stream: Handle) -> None:
        invoke(driver.cuStreamDestroy, stream)

    def stream_export(self, stream: Handle, owner: Any) -> Any:
        return Stream.from_handle(stream)  # allocators of cuda.core take no other

    def stream_begin_capture(self, stream: Handle) -> None:
        invoke(driver.cuStreamBeginCapture, stream, _THREAD_LOCAL)

    def stream_end_capture(self, stream: Handle) -> Handle:
        return int(invoke(driver.cuStreamEndCapture, stream))

    def made_current(self) -> AbstractContextManager[None]:
        return self._current()

    def event_create(self, timing: bool = False) -> Handle:
        flags = driver.CUevent_flags.CU_EVENT_DEFAULT if timing else driver.CUevent_flags.CU_EVENT_DISABLE_TIMING
        with self._current():
            return int(invoke(driver.cuEventCreate, flags))

    def event_elapsed_time(self, start: Handle, end: Handle) -> float:
        return float(invoke(driver.cuEventElapsedTime, start, end))

    def event_record(self, event: Handle, stream: Handle) -> None:
        invoke(driver.cuEventRecord, event, stream)

    def event_query(self, event: Handle) -> bool:
        require_allowed("cuEventQuery")
        (result,) = driver.cuEventQuery(event)
        if result and result != _NOT_READY:
            raise error_of("cuEventQuery", int(result))
        return not result

    def event_synchronize(self, event: Handle) -> None:
        invoke(driver.cuEventSynchronize, event)

    def event_destroy(self, event: Handle) -> None:
        invoke(driver.cuEventDestroy, event)
