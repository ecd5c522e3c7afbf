"""What every driver call of the emulator passes through: one at a time, recorded, failing where a test plans it.

It gives errors the name of the call that reports them. This module must not know what calls do.
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from graphdsl.drivers.emulator.problems import NOT_PERMITTED, Problem
from graphdsl.drivers.host_threads import REMEDY, RULE, in_host_function
from graphdsl.drivers.releases import postponed
from graphdsl.forks import tell_of_forks

_HISTORY = 1000


class Gate:
    """Lets calls through.

    Attributes
    ----------
    lock : threading.RLock
        Held during every call, but not while a host node runs.
    history : collections.deque of str
        Names of the driver functions that were called, the last 1,000 of them.
    """

    def __init__(self) -> None:
        self.after_fork()
        tell_of_forks(self)
        self.history: deque[str] = deque(maxlen=_HISTORY)
        self._planned: dict[str, list[tuple[int, int]]] = {}

    def after_fork(self) -> None:
        """Open: whoever was inside is not in this process."""
        self.lock = threading.RLock()
        self._ended = threading.Condition(self.lock)

    def fail_next(self, call: str, code: int, after: int = 0) -> None:
        """Make a coming call of a driver function fail before it does anything.

        Parameters
        ----------
        call : str
            The driver's name of it, such as ``"cuGraphExecKernelNodeSetParams"``.
        code : int
            The result code.
        after : int
            How many calls of it go well before.
        """
        with self.lock:
            self._planned.setdefault(call, []).append((after, code))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Around what nobody else may interrupt."""
        with postponed(), self.lock:
            yield

    @contextmanager
    def open(self) -> Iterator[None]:
        """Lets others through for a while, in the middle of a call."""
        self.lock.release()
        try:
            yield
        finally:
            self.lock.acquire()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Let others through until a condition holds; whoever brings it about calls `announce`."""
        self._ended.wait_for(condition)

    def announce(self) -> None:
        """Let those who wait look again."""
        self._ended.notify_all()

    @contextmanager
    def passing(self, call: str) -> Iterator[None]:
        """Around one call."""
        if in_host_function():
            raise Problem(RULE, NOT_PERMITTED, REMEDY).error(call)
        with self.held():
            self.history.append(call)
            try:
                self._fail_as_planned(call)
                yield
            except Problem as problem:
                raise problem.error(call) from problem.__cause__

    def _fail_as_planned(self, call: str) -> None:
        planned = self._planned.pop(call, [])
        later = [(after - 1, code) for after, code in planned if after]
        if later:
            self._planned[call] = later
        for after, code in planned:
            if not after:
                raise Problem("", code)


class Gated(Protocol):
    """What has a gate."""

    @property
    def gate(self) -> Gate: ...


P = ParamSpec("P")
R = TypeVar("R")
Self = TypeVar("Self", bound=Gated)


def driver_call(call: str) -> Callable[[Callable[Concatenate[Self, P], R]], Callable[Concatenate[Self, P], R]]:
    """Make a method the driver function of that name: it runs inside of the gate."""

    def decorate(method: Callable[Concatenate[Self, P], R]) -> Callable[Concatenate[Self, P], R]:
        @functools.wraps(method)
        def called(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> R:
            with self.gate.passing(call):
                return method(self, *args, **kwargs)

        return called

    return decorate
