"""Gives back what was dropped, in a thread where that can neither fail nor wait for ever.

The last reference to memory can go anywhere: garbage collection runs in whatever thread allocates. Giving memory back
calls the driver, which waits for work in flight. So what is dropped is given back by a thread of its own

- in a host node and in an emulated call, where the driver cannot be called,
- while a Python host node may be in flight: it may need a lock that the thread holds which dropped the memory, such as
  that of a logger, and giving memory back would wait for it;

and at once everywhere else, in the thread that dropped it. This module must not know what is given back.
"""

from __future__ import annotations

import _thread
import atexit
import logging
import os
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Event, get_ident

from graphdsl.drivers.host_threads import in_host_function

Release = Callable[[], None]

_logger = logging.getLogger("graphdsl")

_handed_over: SimpleQueue[Release] = SimpleQueue()  # its put can be interrupted by another one, by garbage collection
_unfinished: deque[None] = deque()  # an item for each that was handed over and has not been run to its end
_dropped_with: deque[Release] = deque()  # what giving back has dropped in its thread: it comes before the next one
_giving_back: int | None = None  # the thread, while it does
_running = False
_exiting = False
_calling: set[int] = set()
_in_flight: dict[Hashable, None] = {}


def release(action: Release) -> None:
    """Give something back: now, or soon in a thread of its own; see the module.

    Parameters
    ----------
    action : callable
        What gives it back. What it raises is logged, where it runs later.
    """
    elsewhere = get_ident() in _calling or in_host_function() or (bool(_in_flight) and not _exiting)
    if elsewhere:
        _hand_over(action)
    else:
        action()


@contextmanager
def postponed() -> Iterator[None]:
    """Around what must not be interrupted by a driver call: what is dropped inside is given back elsewhere."""
    thread = get_ident()
    if thread in _calling:
        yield
        return
    _calling.add(thread)
    try:
        yield
    finally:
        _calling.discard(thread)


def host_nodes_in_flight(launcher: Hashable) -> None:
    """Note that host nodes of a launcher may run from now on."""
    _in_flight[launcher] = None


def host_nodes_done(launcher: Hashable) -> None:
    """Note that all its launches have been waited for."""
    _in_flight.pop(launcher, None)


def settle(timeout: float | None = None) -> bool:
    """Wait until what has been dropped so far is given back, or for ``timeout`` seconds; False if all of it was.

    What only it kept is given back with it.
    A host node does not wait: it may be what is waited for.
    """
    if not _unfinished or in_host_function():
        return False
    done = Event()
    _hand_over(done.set)
    done.wait(timeout)
    return True


def _hand_over(action: Release) -> None:
    global _running
    if get_ident() == _giving_back:
        _dropped_with.append(action)
        return
    _unfinished.append(None)
    _handed_over.put(action)
    if not _running:
        _running = True
        try:
            # Not a threading.Thread: it takes locks to start, which the thread that is interrupted here may hold.
            _thread.start_new_thread(_work, (_handed_over,))
        except RuntimeError:  # too many threads: the next one that hands over tries again
            _running = False


def _work(queue: SimpleQueue[Release]) -> None:
    global _giving_back
    while True:
        action = queue.get()
        while True:
            _giving_back = get_ident()
            try:
                action()
            except BaseException as problem:  # nobody is there to be told, and the thread is needed for others
                _logger.warning("what was dropped could not be given back whole: %s", problem)
            del action  # before the next one comes, and whoever waits is told: this drops what it kept
            _giving_back = None
            if not _dropped_with:
                break
            action = _dropped_with.popleft()
        _unfinished.popleft()


@atexit.register
def _finish() -> None:
    """Give back all before the interpreter ends: a host node must not outlive it."""
    global _exiting
    _exiting = True
    settle()


def _begin_anew() -> None:
    """In a forked child: the thread has not survived, and what it had to do is the parent's."""
    global _handed_over, _running, _giving_back
    _handed_over, _running, _giving_back = SimpleQueue(), False, None
    _unfinished.clear()
    _dropped_with.clear()
    _calling.clear()
    _in_flight.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
