"""Stream capture in the emulator: what is put into a stream meanwhile becomes a graph instead of running.

The rules are those of `cuStreamBeginCapture` in thread-local mode, in cuda.h 13. Libraries put nothing into emulated
streams: what stands for their work is Python code, `EMULATED`. This module must not run anything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from graphdsl.declare.interop import host_view
from graphdsl.declare.operands import span_nbytes
from graphdsl.drivers.base import Address, Handle
from graphdsl.drivers.emulator.graph import Graph, Node
from graphdsl.drivers.emulator.machine import Machine
from graphdsl.drivers.emulator.nodes import NodeKind
from graphdsl.drivers.emulator.problems import (
    CAPTURE_INVALIDATED,
    CAPTURE_UNSUPPORTED,
    CAPTURE_WRONG_THREAD,
    ILLEGAL_STATE,
    NOT_SUPPORTED,
    Problem,
)
from graphdsl.drivers.host_threads import host_function

View = Callable[[Address, tuple[int, ...], tuple[int, ...], np.dtype[Any]], np.ndarray[Any, Any]]
"""Takes address, shape, strides and dtype of device memory; gives it as a NumPy array."""

Work = Callable[[View], None]
"""Stands for the work of a library: runs where that would, and is given what shows it device memory."""


def exposed(machine: Machine, address: Address, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> Any:
    """Emulated memory as a NumPy array; what was not written before holds ``0xCD``, and counts as written."""
    if 0 in shape:
        return np.empty(shape, dtype)
    data = machine.space.exposed(address, span_nbytes(shape, strides, dtype.itemsize))
    return host_view(data.ctypes.data, shape, strides, dtype, data)


def run_work(machine: Machine, work: Work) -> None:
    """Run what stands for the work of a library; it may make no driver calls, as host nodes may not."""
    with host_function():
        work(lambda address, shape, strides, dtype: exposed(machine, address, shape, strides, dtype))


def _unreadable(machine: Machine, address: Address) -> NoReturn:
    raise Problem("work of a library is captured; no struct describes it", NOT_SUPPORTED)


EMULATED = NodeKind("captured", _unreadable, run_work)


class _Capture:
    """What one stream has recorded."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.thread = threading.get_ident()
        self.valid = True
        self._last: Handle | None = None

    def add(self, node: Node) -> None:
        """Record a node behind the one before."""
        self.graph.add(node)
        if self._last is not None:
            self.graph.connect(self._last, node.handle)
        self._last = node.handle


class Captures:
    """The streams that are recorded now."""

    def __init__(self) -> None:
        self._open: dict[Handle, _Capture] = {}

    def begin(self, stream: Handle) -> None:
        """Record a stream from now on."""
        if stream in self._open:
            raise Problem(f"stream {stream:#x} is captured already", ILLEGAL_STATE)
        self._open[stream] = _Capture()

    def end(self, stream: Handle) -> Graph:
        """End it; gives what was recorded."""
        found = self._open.get(stream)
        if found is None:
            raise Problem(f"stream {stream:#x} is not captured", ILLEGAL_STATE)
        if found.thread != threading.get_ident():
            raise Problem("the capture began in another thread", CAPTURE_WRONG_THREAD)
        del self._open[stream]
        if not found.valid:
            raise Problem("a call that cannot be captured was made meanwhile", CAPTURE_INVALIDATED)
        return found.graph

    def record(self, stream: Handle, node: Callable[[], Node]) -> bool:
        """Record a node, if the stream is captured; False if it is not."""
        found = self._open.get(stream)
        if found is None:
            return False
        if not found.valid:
            raise Problem("the capture of the stream has failed before", CAPTURE_INVALIDATED)
        found.add(node())
        return True

    def refuse(self, stream: Handle, what: str) -> None:
        """Refuse what cannot be done with a stream that is captured; the capture has failed then."""
        if stream in self._open:
            self._open[stream].valid = False
            raise Problem(f"a stream that is captured {what}", CAPTURE_UNSUPPORTED)

    def refuse_here(self, what: str) -> None:
        """Refuse what a thread cannot do while it captures; the captures have failed then."""
        mine = [capture for capture in self._open.values() if capture.thread == threading.get_ident()]
        for capture in mine:
            capture.valid = False
        if mine:
            raise Problem(f"a thread that captures a stream {what}", CAPTURE_UNSUPPORTED)
