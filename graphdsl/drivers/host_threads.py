"""Knows in which threads a host node runs: the driver refuses all calls there.

CUDA threads of the emulator are such threads too: a call made there would wait for the launch that it is part of.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

RULE = "a host node may make no driver calls"
REMEDY = "Make the call in another thread, or after the launch."

threads: set[int] = set()
"""Those in which host nodes run now. Empty most of the time, which is fast to tell."""


@contextmanager
def host_function() -> Iterator[None]:
    """Marks this thread while a host node runs in it."""
    thread = get_ident()
    if thread in threads:  # the emulator marks its threads itself, and the package each call
        yield
        return
    threads.add(thread)
    try:
        yield
    finally:
        threads.discard(thread)


def in_host_function() -> bool:
    """True while a host node runs in this thread."""
    return get_ident() in threads


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=threads.clear)  # a forked child is inside of none
