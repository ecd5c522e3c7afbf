"""Faults at every driver call of a cache in turn: nothing leaks, nothing half-made stays, the next request works."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import graphdsl as gd
from tests.serve.graphs import ask, cache_of, rows, scaled, weight_of

OUT_OF_MEMORY = 2
ALLOCATIONS = ("cuMemAlloc", "cuMemHostAlloc")


def made(device):
    """A cache of three arenas whose weights are there: its execs are one of a graph and two clones of that."""
    return cache_of(device, (4,), build=scaled(weight_of(device, 2.0)), concurrency=3)


def steps() -> list[tuple[str, int]]:
    """The driver calls of the first request of a cache, each with how many there were before of its kind."""
    device = gd.emulator()
    with made(device) as cache:
        device.history.clear()
        ask(cache, 3)
        calls = list(device.history)
    return [(call, calls[:number].count(call)) for number, call in enumerate(calls)]


STEPS = steps()


def test_all_kinds_of_calls_are_tried():
    tried = {call for call, _ in STEPS}
    assert {*ALLOCATIONS, "cuStreamCreate", "cuGraphInstantiateWithParams", "cuGraphLaunch", "cuGraphUpload"} <= tried
    assert sum(call == "cuMemAlloc" for call, _ in STEPS) == 3, "one for each arena, none for an exec"


def fault(call: str, after: int) -> None:
    device = gd.emulator()
    with made(device) as cache:
        gc.collect()
        before = device.live
        device.fail_next(call, OUT_OF_MEMORY, after=after)
        with pytest.raises(gd.DriverError) as caught:
            ask(cache, 3)
        assert (caught.value.call, caught.value.code) == (call, OUT_OF_MEMORY)
        said = str(caught.value)
        del caught  # its traceback has frames, and those the cache
        assert said.startswith("bucket batch=4"), said
        if not cache.built:  # what failed was building, and not the request behind it
            left = device.live
            assert (left["execs"], left["graphs"]) == (0, 0), "closed, and not just dropped"
            gc.collect()
            assert device.live == before
            assert cache.nbytes == 0
        assert np.array_equal(ask(cache, 2), 2 * rows(2))
        assert len(cache.built) == 1
    del cache
    gc.collect()
    assert {kind: count for kind, count in device.live.items() if count} == {}


@pytest.mark.usefixtures("quick_collections")
def test_a_failure_at_every_driver_call_in_turn():
    for call, after in STEPS:
        try:
            fault(call, after)
        except BaseException as problem:
            raise AssertionError(f"with call {after} of {call} failing") from problem


def test_a_fault_names_the_bucket_that_failed_whoever_is_told():
    def build(batch):
        g = gd.Graph("copy")
        x, out = g.device_array("x", batch, np.int32), g.host_array("out", batch, np.int32)
        g.memcpy(out, x, name="store")
        return g

    buckets, inputs = gd.Buckets(batch=[1, 4]), {"x": gd.Padding("batch", fill=0)}
    with gd.GraphCache(build, buckets, gd.emulator(), inputs=inputs) as cache:
        with cache(batch=4) as run:
            run.launch()  # x was never written
        with pytest.raises(gd.MemoryFault, match=r"^bucket batch=4, .*'store'") as caught:
            cache(batch=1)  # the first call that waits is told
        assert caught.value.bucket == {"batch": 4}


def test_errors_of_values_name_the_bucket():
    with cache_of() as cache, cache(batch=3) as run:
        for wrong in (lambda: run.update(count="many"), lambda: run["nothing"], lambda: run.launch("a stream")):
            with pytest.raises(gd.GraphdslError, match=r"^bucket batch=4, "):
                wrong()


def test_an_exception_in_build_leaves_what_was_there():
    device = gd.emulator()
    weight = weight_of(device, 2.0)
    right, failing = scaled(weight), set()

    def build(batch):
        if batch in failing:
            raise RuntimeError(f"no graph of {batch}")
        return right(batch)

    with cache_of(device, build=build) as cache:
        ask(cache, 4)
        cache._graphs.clear()  # else the graph that was planned is built
        before, nbytes = device.live, cache.nbytes
        failing.add(2)
        for _ in range(2):
            with pytest.raises(
                gd.BuildError, match="bucket batch=2: build raised RuntimeError: no graph of 2"
            ) as caught:
                ask(cache, 2)
        assert isinstance(caught.value.__cause__, RuntimeError)
        del caught
        gc.collect()
        assert (device.live, cache.nbytes) == (before, nbytes)
        assert [bucket["batch"] for bucket in cache.built] == [4]
        failing.clear()
        assert np.array_equal(ask(cache, 2), 2 * rows(2))


def test_the_error_of_a_build_goes_with_whoever_has_it(quick_collections):
    def build(batch):
        raise RuntimeError

    gc.disable()
    try:
        with cache_of(build=build) as cache:
            try:
                cache(batch=1)
            except gd.BuildError as problem:
                known = weakref.ref(problem)
            assert known() is None, "it would keep what failed until the next collection"
    finally:
        gc.enable()


def too_large(cache):
    cache(batch=9)


def without_arena(cache):
    with cache(batch=1):
        cache(batch=1)


def host_node(cache):
    with cache(batch=4) as run:
        run.launch()
        run.synchronize()


def update(cache):
    with cache(batch=4) as run:
        cache.device.fail_next("cuGraphExecKernelNodeSetParams", OUT_OF_MEMORY)
        run.update(count=2)


def with_a_host_node():
    def build(batch):
        g = gd.Graph("raising")
        g.host(lambda: 1 / 0, name="divide")
        return g

    return gd.GraphCache(build, gd.Buckets(batch=[4]), gd.emulator(), observer=None)


@pytest.mark.parametrize(
    ("make", "act"),
    [
        (cache_of, too_large),
        (cache_of, without_arena),
        (cache_of, update),
        (with_a_host_node, host_node),
    ],
)
def test_an_error_keeps_nothing_once_it_was_seen(make, act, quick_collections):
    gc.disable()
    try:
        with make() as cache:
            cache.warm_up()
            try:
                act(cache)
            except gd.GraphdslError as problem:
                known = weakref.ref(problem)
            assert known() is None, "it would keep what its callers have, such as a run, until the next collection"
    finally:
        gc.enable()


def test_an_interrupt_in_build_lets_the_next_one_try():
    device = gd.emulator()
    right, tries = scaled(weight_of(device, 2.0)), []

    def build(batch):
        tries.append(batch)
        if len(tries) == 1:
            raise KeyboardInterrupt
        return right(batch)

    with cache_of(device, build=build) as cache:
        with pytest.raises(KeyboardInterrupt):
            cache(batch=1)
        assert np.array_equal(ask(cache, 1), 2 * rows(1))
