"""What a forked child needs: it has a copy of all memory, and one thread.

A lock that another thread held stays locked there for ever, work that other threads did is never done, and CUDA does
not work if the parent had started it. This module must not know who has locks or does work.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Protocol

RULE = "the process was forked after CUDA was started, and CUDA stays with the process that started it"
REMEDY = 'Use multiprocessing.get_context("spawn"), or fork before anything asks for a GPU.'


class _Owner(Protocol):
    def after_fork(self) -> None: ...


_owners: weakref.WeakSet[_Owner] = weakref.WeakSet()


def tell_of_forks(owner: _Owner) -> None:
    """Call ``owner.after_fork()`` in each forked child, as long as the owner lives."""
    _owners.add(owner)


def _tell() -> None:
    for owner in list(_owners):
        owner.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tell)


def wait_for(lock: Any) -> None:
    """Let forks wait until nobody has a lock, where half of what it guards is of no use."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


class Lock:
    """A lock that a thread may take again, and that a forked child finds open."""

    def __init__(self) -> None:
        self.after_fork()
        tell_of_forks(self)

    def after_fork(self) -> None:
        """Open it: whoever held it is not there."""
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
