"""Nothing slow is done with the lock of a cache, for which every other request waits: no driver call, no observer."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

import graphdsl as gd
from graphdsl.drivers.emulator.gate import Gate
from graphdsl.serve.events import Observer
from tests.serve.graphs import ask, cache_of, rows, weight_of


class Watch:
    """What is done with the lock, and without."""

    def __init__(self) -> None:
        self.cache: gd.GraphCache | None = None
        self.held: list[str] = []
        self.free: Counter[str] = Counter()

    def note(self, what: str) -> None:
        if self.cache is not None and self.cache._changed._is_owned():
            self.held.append(what)
        else:
            self.free[what] += 1


@pytest.fixture
def watch(monkeypatch):
    found, passing = Watch(), Gate.passing

    def noted(gate, call):
        found.note(call)
        return passing(gate, call)

    monkeypatch.setattr(Gate, "passing", noted)
    yield found
    assert found.held == []


def watching(watch, *args, **options) -> gd.GraphCache:
    methods = {
        name: lambda self, *args, _name=name: watch.note(_name) for name in vars(Observer) if not name.startswith("_")
    }
    watch.cache = cache_of(*args, observer=type("Watching", (Observer,), methods)(), **options)
    return watch.cache


def test_building_serving_and_giving_up(watch):
    device = gd.emulator()
    with watching(watch, device, concurrency=2) as cache:
        cache.swap(w=weight_of(device, 3.0))  # which only the cache has
        assert (ask(cache, 1) == 3 * rows(1)).all()
        cache.max_bytes = cache._entries.max_bytes = cache.nbytes + 1000  # one bucket at a time
        assert (ask(cache, 4) == 3 * rows(4)).all()
        cache.swap(w=weight_of(device, 4.0))
        assert (ask(cache, 3) == 4 * rows(3)).all()
        cache.clear()
        device.fail_next("cuGraphInstantiateWithParams", 2)
        with pytest.raises(gd.DriverError):
            ask(cache, 2)
        cache.swap(w=weight_of(device, 5.0))
    assert {"cuMemAlloc", "cuMemFree", "cuGraphExecDestroy", "cuStreamCreate", "cuStreamDestroy"} <= set(watch.free)
    assert {"served", "miss", "instantiated", "evicted", "swapped"} <= set(watch.free)


def test_an_exec_that_was_lost_while_a_request_waited_for_it(watch):
    with watching(watch, batch=(1,)) as cache:
        with cache(batch=1) as run:
            found: list = []
            other = threading.Thread(target=lambda: found.append(ask(cache, 1)))
            other.start()
            while next(iter(cache._entries)).pins < 2:
                pass
            run.exec.give_up("tried")
        other.join()
        assert (found[0] == 2 * rows(1)).all()
        assert cache.counts.evict == 1


def test_an_exec_that_a_swap_could_not_put_back(watch):
    device = gd.emulator()
    with watching(watch, device) as cache:
        cache.warm_up()
        for after in (2, 3):
            device.fail_next("cuGraphExecKernelNodeSetParams", 2, after=after)
        with pytest.raises(gd.DriverError):
            cache.swap(w=weight_of(device, 3.0))
        assert cache.counts.evict == 1


def test_requests_are_served_while_execs_that_were_lost_are_closed(monkeypatch):
    """Closing waits for launches, here until another request has been served."""
    closing, served = threading.Event(), threading.Event()
    with cache_of(batch=(1, 2), concurrency=2) as cache:
        cache.warm_up()
        run = cache(batch=1)
        entry = run._entry
        close = entry.slots[1].exec.close

        def slow():
            closing.set()
            assert served.wait(30)
            close()

        monkeypatch.setattr(entry.slots[1].exec, "close", slow)
        run.exec.give_up("tried")
        thread = threading.Thread(target=run.close)
        thread.start()
        assert closing.wait(30)
        assert (ask(cache, 2) == 2 * rows(2)).all()
        served.set()
        thread.join()
