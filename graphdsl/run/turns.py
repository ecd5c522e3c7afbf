"""Whose turn it is to use an exec: its calls come one after the other, and none of them in a host node.

A call that finds another one in the middle of its work would see half an update, and send a mixture of both to the
driver. It is refused: to let it wait would cost every call the time of a lock, and would not help whoever launches
between the update and the launch of another thread. This module must not know what the calls do.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Concatenate, Literal, ParamSpec, Protocol, TypeVar

from graphdsl.drivers.host_threads import REMEDY, RULE, in_host_function
from graphdsl.errors import GraphdslError
from graphdsl.forks import tell_of_forks

User = int | Literal[True, "looking"] | None
"""The thread whose turn it is; True if it has not said which it is, None if it is nobody's."""

_MOMENT = 1e-4  # seconds
_PATIENCE = 10.0


class Turns:
    """The turns of one exec.

    The shortest calls do what `taken` does by themselves, with `user`, and call `claim` only if that is not None, or
    host nodes run somewhere.

    Parameters
    ----------
    name : str
        What messages call the exec.

    Attributes
    ----------
    user : int, True, "looking" or None
        Whose turn it is; a thread that only looks has it for a moment.
    """

    __slots__ = ("__weakref__", "_name", "_waiting", "user")

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: set[int] = set()
        self.user: User = None
        tell_of_forks(self)

    def claim(self, doing: str) -> User:
        """Take the turn; gives whose it was, this thread's or nobody's, to be put back."""
        self._require_no_host_function(doing)
        me = get_ident()
        deadline = time.monotonic() + _PATIENCE
        while True:
            before = self.user
            if before is None or before == me:  # nothing comes between the question and the answer
                self.user = me
                return before
            if before != "looking" or time.monotonic() > deadline:
                raise self._refused("another thread is in the middle of one")
            time.sleep(_MOMENT)

    @contextmanager
    def taken(self, doing: str) -> Iterator[None]:
        """Around a call; calls of the same thread inside of it are part of it."""
        before = self.claim(doing)
        try:
            yield
        finally:
            self.user = before

    @contextmanager
    def looking(self, doing: str) -> Iterator[None]:
        """Around a look at the exec, for a moment: it waits for calls of other threads, and those wait for it."""
        self._require_no_host_function(doing)
        deadline = time.monotonic() + _PATIENCE
        while self.user != get_ident():
            if self.user is None:
                self.user = "looking"
                break
            if time.monotonic() > deadline:
                raise self._refused("another thread is in the middle of one")
            time.sleep(_MOMENT)
        before = None if self.user == "looking" else self.user
        try:
            yield
        finally:
            self.user = before

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around a wait for launches, during which other threads may go on."""
        self._require_no_host_function("waiting for")
        me = get_ident()
        self._waiting.add(me)
        try:
            yield
        finally:
            self._waiting.discard(me)

    def after_fork(self) -> None:
        """Whoever had the turn, or waited, is not in this process."""
        self.user = None
        self._waiting.clear()

    def require_nobody_waits(self) -> None:
        """Refuse to take away what another thread waits for."""
        if self._waiting - {get_ident()}:
            raise self._refused("another thread is waiting for its launches")

    def _require_no_host_function(self, doing: str) -> None:
        """The driver refuses calls there, and waiting for a thread that makes one could last for ever."""
        if in_host_function():
            raise GraphdslError(f"{RULE}, and {doing} an exec does", field="exec", value=self._name, remedy=REMEDY)

    def _refused(self, why: str) -> GraphdslError:
        return GraphdslError(
            f"the calls of an exec come one after the other, and {why}",
            field="exec",
            value=self._name,
            remedy="Give each thread a clone() of it, or let them take turns with a lock.",
        )


class HasTurns(Protocol):
    """What is used in turns."""

    @property
    def _turns(self) -> Turns: ...


P = ParamSpec("P")
R = TypeVar("R")
Self = TypeVar("Self", bound=HasTurns)


def in_turn(doing: str) -> Callable[[Callable[Concatenate[Self, P], R]], Callable[Concatenate[Self, P], R]]:
    """Make a method one that takes the turn."""

    def decorate(method: Callable[Concatenate[Self, P], R]) -> Callable[Concatenate[Self, P], R]:
        @functools.wraps(method)
        def called(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> R:
            with self._turns.taken(doing):
                return method(self, *args, **kwargs)

        return called

    return decorate
