"""Python functions as host nodes.

The driver calls one C function for all of them and hands it a token; the registry knows the call behind a token.
A callback can never deadlock against a launch, because the driver bindings release the GIL around every call, and an
exception is kept for the next synchronise: nothing can be raised into a thread of the driver.
"""

from __future__ import annotations

import ctypes
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from graphdsl.declare.nodes import HostNode
from graphdsl.drivers.host_threads import host_function
from graphdsl.drivers.releases import host_nodes_done, host_nodes_in_flight
from graphdsl.errors import CallbackError, Location
from graphdsl.run.binding import Memory

_MOST_FAILURES = 100


class Failures:
    """What calls have raised and nobody has been told yet: the first hundred, and how many more there were."""

    def __init__(self) -> None:
        self._kept: deque[CallbackError] = deque()
        self._more = 0

    def add(self, problem: CallbackError) -> None:
        """Keep what a call has raised, for the next synchronise."""
        if len(self._kept) < _MOST_FAILURES:
            self._kept.append(problem)
        else:
            self._more += 1  # launches that nobody waits for must not fill the memory

    def taken(self) -> Iterator[CallbackError]:
        """One after the other, each of them once; the last one says how many were not kept."""
        while True:
            try:
                problem = self._kept.popleft()
            except IndexError:
                return
            if self._more and not self._kept:
                more, self._more = self._more, 0
                problem.about(rule=f"{problem.rule}; {more} calls more raised before anybody asked")
            yield problem


@dataclass(frozen=True)
class HostCall:
    """A call to make, with its arguments as they were when it was bound.

    Attributes
    ----------
    graph, node : str
        Names of the graph and of the host node.
    function : callable
        What is called.
    args : tuple
        With what.
    failures : Failures
        Where an exception is kept; shared by the host nodes of an exec.
    location : tuple of str and int
        Where the node was declared.
    """

    graph: str
    node: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    failures: Failures
    location: Location

    def run(self) -> None:
        """Make the call; keep what it raises, which nobody may raise into a thread of the driver."""
        try:
            self.function(*self.args)
        except BaseException as problem:
            self.failures.add(self._failure(problem))

    def _failure(self, problem: BaseException) -> CallbackError:
        try:
            said = f"{type(problem).__name__}: {problem}"
        except BaseException:  # an exception whose text cannot be had is still one
            said = type(problem).__name__
        error = CallbackError(
            f"the function raised {said}".removesuffix(": "),
            graph=self.graph,
            node=self.node,
            field="function",
            remedy="Nodes ordered after it ran all the same: treat their results as undefined.",
            location=self.location,
        )
        error.__cause__ = problem
        return error


_calls: dict[int, HostCall] = {}
_counter = itertools.count(1)


def _run(token: int | None) -> None:
    with host_function():
        _make(token or 0)


def _make(token: int) -> None:
    # A function of its own: what it alone refers to is dropped while the thread is still marked.
    call = _calls.get(token)
    if call is not None:
        call.run()


_trampoline = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_run)
TRAMPOLINE_ADDRESS: int = ctypes.cast(_trampoline, ctypes.c_void_p).value or 0
"""Address of the C function that every host node calls."""


class HostCalls:
    """The calls that the host nodes of one exec make.

    Attributes
    ----------
    failures : Failures
        What calls have raised and nobody has been told yet.
    """

    def __init__(self, graph: str) -> None:
        self._graph = graph
        self.failures = Failures()
        self._tokens: set[int] = set()

    def bind(self, node: HostNode, values: Mapping[str, Any], memory: Memory) -> int:
        """Register the call of a node with its arguments as ``values`` and ``memory`` make them; gives its token."""
        args = tuple(memory.argument(arg, values) for arg in node.args)
        token = next(_counter)
        _calls[token] = HostCall(self._graph, node.name, node.function, args, self.failures, node.location)
        self._tokens.add(token)
        return token

    def launched(self) -> None:
        """Note that the calls may be made from now on."""
        if self._tokens:
            host_nodes_in_flight(self)

    def waited(self) -> None:
        """Note that no launch is in flight."""
        host_nodes_done(self)

    def raise_failure(self) -> None:
        """Raise the first of what calls have raised and nobody has been told yet, if anything."""
        for failure in self.failures.taken():
            try:
                raise failure
            finally:
                del failure  # else its traceback, which has this frame, would keep it and all that called

    def release(self, token: int) -> None:
        """Forget a call that no launch can make any more."""
        self._tokens.discard(token)
        _calls.pop(token, None)
