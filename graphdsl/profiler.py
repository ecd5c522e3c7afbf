"""Ranges that a profiler shows by name, while one listens: through NVIDIA's package ``nvtx``, where it is installed.

A profiler listens from the start of a process or not at all, so it is asked for once. This module must not know what
the ranges are about.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

_INJECTED = "NVTX_INJECTION64_PATH"
"""What profilers set in the environment of a process that they listen to."""

_logger = logging.getLogger("graphdsl")
_label: ContextVar[str] = ContextVar("label", default="")


@functools.cache
def domain() -> Any:
    """The ``nvtx.Domain`` that ranges go to; None if no profiler listens."""
    try:
        import nvtx
    except ImportError:
        if os.environ.get(_INJECTED):
            _logger.warning(
                "a profiler listens (%s), and sees no names of graphs and nodes: pip install 'cuda-graphdsl[serve]', "
                "which brings NVIDIA's package nvtx.",
                _INJECTED,
            )
        return None
    found = nvtx.get_domain("graphdsl")
    return found if isinstance(found, nvtx.Domain) else None  # it has a stand-in of another type where nobody listens


def listens() -> bool:
    """True if a profiler listens."""
    return domain() is not None


class Range:
    """A range of a name; as a context manager it lasts as long as the block, and can be used again.

    Parameters
    ----------
    where : nvtx.Domain
        What `domain` gives.
    text : str
        What the profiler shows.
    """

    __slots__ = ("_attributes", "_where")

    def __init__(self, where: Any, text: str) -> None:
        self._where = where
        self._attributes = where.get_event_attributes(message=text)

    def __enter__(self) -> None:
        self._where.push_range(self._attributes)

    def __exit__(self, *_: object) -> None:
        self._where.pop_range()


def named(text: str) -> AbstractContextManager[None]:
    """Around what a profiler shall show by a name.

    Examples
    --------
    >>> with named("load the weights"):
    ...     pass
    """
    where = domain()
    return nullcontext() if where is None else Range(where, text)


@contextmanager
def labelled(label: str) -> Iterator[None]:
    """Around the making of execs: their ranges have the label behind the name of the graph, as that of a bucket.

    Examples
    --------
    >>> with labelled("batch=4"):
    ...     label()
    ' [batch=4]'
    """
    token = _label.set(f" [{label}]")
    try:
        yield
    finally:
        _label.reset(token)


def label() -> str:
    """What stands behind names now: a space and the label in brackets, or nothing."""
    return _label.get()
