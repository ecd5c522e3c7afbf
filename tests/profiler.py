"""A profiler for tests: stands in for NVIDIA's package nvtx, and for the tool that listens to it."""

from __future__ import annotations

import functools
import sys
from types import SimpleNamespace

import pytest

from graphdsl import profiler


class Listening:
    """The domain that ranges go to.

    Attributes
    ----------
    ranges : list of tuple
        How deep each range stands, and its name, in the order in which they began.
    open : list of str
        The ranges that have not ended.
    """

    def __init__(self) -> None:
        self.ranges: list[tuple[int, str]] = []
        self.open: list[str] = []

    def get_event_attributes(self, message: str) -> str:
        return message

    def push_range(self, attributes: str) -> None:
        self.ranges.append((len(self.open), attributes))
        self.open.append(attributes)

    def pop_range(self) -> None:
        self.open.pop()

    @property
    def names(self) -> list[str]:
        return [name for _, name in self.ranges]


class Deaf:
    """What nvtx gives instead of a domain while no tool listens."""


def listen(monkeypatch: pytest.MonkeyPatch, domain: object | None = None) -> Listening:
    """Let a profiler listen for the rest of the test; gives what it hears."""
    heard = Listening()
    package = SimpleNamespace(Domain=Listening, get_domain=lambda name: heard if domain is None else domain)
    monkeypatch.setitem(sys.modules, "nvtx", package)
    monkeypatch.setattr(profiler, "domain", functools.cache(profiler.domain.__wrapped__))  # asked anew
    return heard
