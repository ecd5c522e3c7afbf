"""Knows whether this thread is one in which a host node runs: the driver refuses all calls there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_local = threading.local()


@contextmanager
def host_function() -> Iterator[None]:
    """Marks this thread while a host node runs in it."""
    _local.inside = True
    try:
        yield
    finally:
        _local.inside = False


def in_host_function() -> bool:
    """True while a host node runs in this thread."""
    return getattr(_local, "inside", False)


def outside_host_functions(release: Callable[[], None]) -> None:
    """Call ``release`` where the driver allows it: here, or in a thread of its own if a host node runs here."""
    if in_host_function():
        threading.Thread(target=release, name="graphdsl-release").start()
    else:
        release()
