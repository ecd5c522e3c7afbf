"""Arenas in memory of an allocator: given back once, when no exec and no output uses it, and after every failure."""

from __future__ import annotations

import gc
import logging

import numpy as np
import pytest

import graphdsl as gd
from tests.serve.graphs import Pool, ask, cache_of, rows, scaled, weight_of


@pytest.fixture(autouse=True)
def no_collections():
    """What is given back is so at once, and not by a collection."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def device():
    return gd.emulator()


@pytest.fixture
def pool(device):
    return Pool(device)


def execs_of(cache):
    return [(slot.arena.number, slot.exec) for entry in cache._entries for slot in entry.slots]


def test_each_arena_is_lent_once_and_given_back_once_no_exec_uses_it(device, pool):
    with cache_of(device, memory=pool, concurrency=2) as cache:
        cache.warm_up()
        for count in (1, 2, 3, 4):
            assert (ask(cache, count) == 2 * rows(count)).all()
        assert pool.sizes == [cache.arena_nbytes] * 2
        assert cache.nbytes > pool.used == 2 * cache.arena_nbytes
        execs, usable = execs_of(cache), []
        pool.returned = lambda number: usable.extend(exe.usable for arena, exe in execs if arena == number)
        with cache(batch=1) as run:
            run.load(raw=rows(1))
            run.launch()  # nobody waits for it
        del run
    assert sorted(pool.closed) == [0, 1]
    assert usable == [False] * 6, "three execs in each"


def test_an_output_that_somebody_holds_keeps_it(device, pool):
    with cache_of(device, memory=pool) as cache:
        with cache(batch=2) as run:
            run.load(raw=rows(2))
            run.launch()
            kept = run["kept"]
        del run
    assert pool.closed == []
    address, _ = kept.__cuda_array_interface__["data"]
    held = device.contents(address, kept.nbytes).data
    assert (held.view(np.float32).reshape(kept.shape) == 2 * rows(2)).all()
    del kept
    assert pool.closed == [0]


def test_a_cleared_cache_gives_it_back_and_takes_another_one(device, pool):
    with cache_of(device, memory=pool) as cache:
        ask(cache, 1)
        cache.clear()
        assert (pool.closed, pool.used, cache.nbytes) == ([0], 0, 0)
        assert (ask(cache, 4) == 2 * rows(4)).all()
        assert len(pool.sizes) == 2
    assert pool.closed == [0, 1]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_allocation_that_fails_leaves_nothing(device, pool, number):
    made = pool.made

    def failing(nbytes):
        if len(pool.sizes) == number + 1:
            raise MemoryError("the pool is at its limit")
        return made(nbytes)

    with cache_of(device, memory=pool, concurrency=3) as cache:
        before = device.live
        pool.made = failing
        with pytest.raises(gd.BuildError, match="allocate raised MemoryError: the pool is at its limit") as caught:
            ask(cache, 4)
        assert caught.value.bucket == {"batch": 4}
        assert isinstance(caught.value.__cause__, MemoryError)
        assert sorted(pool.closed) == list(range(number)), "the error keeps nothing"
        del caught
        gc.collect()
        assert (cache.nbytes, cache.built) == (0, ())
        assert device.live == before
        pool.made = made
        assert (ask(cache, 4) == 2 * rows(4)).all()
    assert len(set(pool.closed)) == len(pool.closed) == number + 3


def readonly(device, nbytes):
    array = gd.device_array(device, nbytes, np.uint8)
    array.copy_from_host(np.zeros(nbytes, np.uint8))
    interface = {**array.__cuda_array_interface__, "data": (array.address, True)}
    return type("ReadOnly", (), {"__cuda_array_interface__": interface, "array": array})()


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda device, n: gd.device_array(device, n - 1, np.uint8), "needs"),
        (lambda device, n: gd.device_array(device, 2 * n, np.uint8).view(n, np.uint8, offset=128), "multiple of 256"),
        (readonly, "read-only"),
        (lambda device, n: gd.device_array(device, (n, 2), np.uint8), None),
    ],
)
def test_what_cannot_be_an_arena_is_refused_and_given_back(device, pool, made, said):
    pool.made = lambda nbytes: made(device, nbytes)
    with cache_of(device, memory=pool) as cache:
        if said is None:
            assert (ask(cache, 3) == 2 * rows(3)).all()
        else:
            with pytest.raises(gd.GraphdslError, match=f"bucket batch=1, memory = .*{said}") as caught:
                ask(cache, 1)
            assert "Pass a memory resource of" in caught.value.remedy
            assert pool.closed == [0]
    assert pool.closed == [0]


def test_memory_of_the_host_is_refused(device, pool):
    pool.allocate = lambda nbytes, *, stream: np.zeros(nbytes, np.uint8)
    with cache_of(device, memory=pool) as cache, pytest.raises(gd.GraphdslError, match="lies elsewhere"):
        ask(cache, 1)


def test_what_the_driver_refuses_after_it_gives_it_back(device, pool):
    with cache_of(device, memory=pool) as cache:
        device.fail_next("cuStreamSynchronize", 2)
        with pytest.raises(gd.DriverError, match="bucket batch=1"):
            ask(cache, 1)
        assert pool.closed == [0]


def test_what_has_no_close_is_dropped(device):
    class Plain:
        def allocate(self, nbytes, *, stream):
            return gd.device_array(device, nbytes, np.uint8)

    with cache_of(device, memory=Plain(), build=scaled(weight_of(device, 2.0))) as cache:
        before = device.live["allocations"]
        ask(cache, 1)
        assert device.live["allocations"] == before + 1
    assert device.live["allocations"] == before


def test_what_cannot_be_closed_is_logged(device, pool, caplog):
    def returned(number):
        raise RuntimeError("the pool is gone")

    pool.returned = returned
    with cache_of(device, memory=pool) as cache:
        ask(cache, 1)
    assert "memory of an arena could not be given back: the pool is gone" in caplog.text
    assert [each.levelno for each in caplog.records if "given back" in each.message] == [logging.ERROR]
