"""Slots and pages: none is lost, none is given to two, and whoever came first is served first."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from smollm2.scheduler import Busy, Scheduler

import graphdsl as gd

SLOTS, PAGES, PAGE, CONTEXT, WAITING = 3, 7, 4, 24, 5


class Line(RuleBasedStateMachine):
    """A scheduler beside a list of who has come and not yet been served."""

    requests = Bundle("requests")

    def __init__(self):
        super().__init__()
        self.line = Scheduler(SLOTS, PAGES, PAGE, CONTEXT, WAITING)
        self.tokens = {}
        self.expected = []

    @rule(target=requests, tokens=st.integers(1, CONTEXT))
    def submit(self, tokens):
        request = len(self.tokens)
        self.tokens[request] = tokens
        if len(self.expected) == WAITING:
            with pytest.raises(Busy, match="at most 5 requests wait"):
                self.line.submit(request, tokens)
            return request
        self.line.submit(request, tokens)
        self.expected.append(request)
        return request

    @rule(tokens=st.one_of(st.integers(CONTEXT + 1, 1000), st.integers(-3, 0)))
    def never_fits(self, tokens):
        with pytest.raises(gd.GraphdslError, match="1 to 24 tokens"):
            self.line.submit("never", tokens)

    @rule()
    def admit(self):
        admitted = [request for request, _ in self.line.admitted()]
        assert admitted == self.expected[: len(admitted)]
        del self.expected[: len(admitted)]
        # As many as fit, so that a slot and pages never idle while the first in the line could have them.
        if self.expected:
            slots, pages = self.line.free
            assert slots == 0 or -(-self.tokens[self.expected[0]] // PAGE) > pages

    @rule(request=consumes(requests))
    def leave(self, request):
        if request in self.expected:
            self.expected.remove(request)
        elif request not in self.line.places:
            with pytest.raises(gd.GraphdslError, match="can leave"):
                self.line.leave(request)
            return
        self.line.leave(request)
        assert request not in self.line.places

    @rule(request=requests)
    def twice(self, request):
        if request in self.expected or request in self.line.places:
            with pytest.raises(gd.GraphdslError, match="a name of its own"):
                self.line.submit(request, 1)

    @invariant()
    def nothing_is_lost_or_given_twice(self):
        places = self.line.places
        slots = [place.slot for place in places.values()]
        pages = sum(place.pages for place in places.values())
        assert len({*slots}) == len(slots)
        assert {*slots} <= {*range(SLOTS)}
        assert pages <= PAGES
        assert self.line.free == (SLOTS - len(slots), PAGES - pages)
        assert self.line.waiting == len(self.expected)
        for request, place in places.items():
            assert place.pages == -(-self.tokens[request] // PAGE)

    def teardown(self):
        """Nobody starves: when those who are served leave, all who wait are served, in their order."""
        served = []
        while self.line.waiting or self.line.places:
            admitted = [request for request, _ in self.line.admitted()]
            served += admitted
            assert self.line.places
            self.line.leave(next(iter(self.line.places)))
        assert served == self.expected
        assert self.line.free == (SLOTS, PAGES)


TestLine = Line.TestCase
TestLine.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)
