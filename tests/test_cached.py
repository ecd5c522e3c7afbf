"""Properties that are computed once, without a lock."""

from __future__ import annotations

import threading

from graphdsl.cached import cached_property
from tests.bounded import PATIENCE, at_once


def test_objects_are_computed_at_the_same_time():
    """With one lock for all, the second would wait for the first, which waits for it."""
    meet = threading.Barrier(2)

    class Thing:
        @cached_property
        def number(self) -> int:
            """How many have come."""
            return meet.wait(PATIENCE)

    assert sorted(at_once(lambda: Thing().number, lambda: Thing().number)) == [0, 1]
    assert Thing.number.__doc__ == "How many have come."


def test_all_threads_are_given_the_same_object():
    meet = threading.Barrier(4)

    class Thing:
        @cached_property
        def made(self) -> object:
            meet.wait(PATIENCE)
            return object()

    thing = Thing()
    first, *others = at_once(*[lambda: thing.made] * 4)
    assert all(other is first for other in others)
    assert thing.made is first
