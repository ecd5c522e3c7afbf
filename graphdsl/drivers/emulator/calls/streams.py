"""Calls of the emulator on streams, captures and events."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from graphdsl.drivers.base import Handle
from graphdsl.drivers.emulator.calls.state import LEGACY_STREAMS, State, new_handle
from graphdsl.drivers.emulator.capture import EMULATED, Work, run_work
from graphdsl.drivers.emulator.events import Event, event_of
from graphdsl.drivers.emulator.gate import driver_call
from graphdsl.drivers.emulator.graph import Node
from graphdsl.drivers.emulator.problems import CAPTURE_UNSUPPORTED, INVALID_HANDLE, NOT_READY, Problem


class Streams(State):
    """Streams, what is captured from them, and events."""

    @driver_call("cuStreamCreate")
    def stream_create(self) -> Handle:
        handle = new_handle()
        self._streams[handle] = self.ordinal
        return handle

    @driver_call("cuStreamSynchronize")
    def stream_synchronize(self, stream: Handle) -> None:
        self._wait_for_stream(stream)

    @driver_call("cuStreamBeginCapture")
    def stream_begin_capture(self, stream: Handle) -> None:
        self._check_stream(stream)
        if stream in LEGACY_STREAMS:
            raise Problem("the legacy default stream is not captured", CAPTURE_UNSUPPORTED)
        self._captures.begin(stream)

    @driver_call("cuStreamEndCapture")
    def stream_end_capture(self, stream: Handle) -> Handle:
        self._check_stream(stream)
        handle, graph = new_handle(), self._captures.end(stream)
        self._graphs[handle] = graph
        return handle

    @driver_call("cuLaunchKernel")
    def stream_emulate(self, stream: Handle, work: Work) -> None:
        """Put Python code into a stream, in the place of what a library would launch there; see `Work`."""
        self._check_stream(stream)
        if not self._captures.record(stream, lambda: Node(new_handle(), EMULATED, work)):
            run_work(self._machine, work)

    def made_current(self) -> AbstractContextManager[None]:
        return nullcontext()

    def stream_export(self, stream: Handle, owner: Any) -> Any:
        return owner

    @driver_call("cuStreamDestroy")
    def stream_destroy(self, stream: Handle) -> None:
        if stream not in self._streams:
            raise Problem(f"{stream:#x} is no stream of this device, or it was destroyed before", INVALID_HANDLE)
        del self._streams[stream]

    @driver_call("cuEventCreate")
    def event_create(self, timing: bool = False) -> Handle:
        handle = new_handle()
        self._machine.events[handle] = Event(timing, self.ordinal)
        return handle

    @driver_call("cuEventElapsedTime")
    def event_elapsed_time(self, start: Handle, end: Handle) -> float:
        self._report_fault()
        first, last = self._event(start), self._event(end)
        if not first.done or not last.done:
            raise Problem("an event is recorded behind work that has not ended", NOT_READY)
        if not first.timing or not last.timing or first.recorded is None or last.recorded is None:
            raise Problem("the time is between two events with timing that were recorded", INVALID_HANDLE)
        return (last.recorded - first.recorded) * 1e3

    @driver_call("cuEventRecord")
    def event_record(self, event: Handle, stream: Handle) -> None:
        found = self._event(event)
        self._check_stream(stream)
        if self._streams.get(stream, self.ordinal) != found.device:
            raise Problem("an event is recorded in streams of its own device", INVALID_HANDLE)
        found.record(self._in_flight.last(stream))

    @driver_call("cuEventQuery")
    def event_query(self, event: Handle) -> bool:
        found = self._event(event)
        self._report_fault()
        return found.done

    @driver_call("cuEventSynchronize")
    def event_synchronize(self, event: Handle) -> None:
        found = self._event(event)
        self.gate.wait_until(lambda: found.done)
        self._report_fault()

    @driver_call("cuEventDestroy")
    def event_destroy(self, event: Handle) -> None:
        self._event(event)
        del self._machine.events[event]

    def _event(self, event: Handle) -> Event:
        return event_of(self._machine, event, INVALID_HANDLE)
