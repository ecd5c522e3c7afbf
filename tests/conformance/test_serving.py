"""A cache of graphs on both devices: one arena for all buckets, launches that overlap, weights that are swapped."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import graphdsl as gd
from tests.serve import test_inputs
from tests.serve.graphs import Pool, ask, cache_of, rows, weight_of
from tests.serve.test_swap import Layers


@pytest.mark.parametrize("concurrency", [1, 2])
def test_requests_of_all_sizes_by_turns(device, concurrency):
    with cache_of(device, concurrency=concurrency) as cache:
        cache.warm_up()
        for number in range(12):
            count = number % 4 + 1
            assert np.array_equal(ask(cache, count, number), 2 * rows(count, number))
        assert cache.counts.instantiate == 3


def test_outputs_in_the_arena_are_refused_after_the_next_launch(device):
    with cache_of(device) as cache:
        with cache(batch=3) as run:
            run.load(raw=rows(3))
            run.launch()
            kept = run["kept"]
        assert np.array_equal(kept.copy_to_host(), 2 * rows(3))
        ask(cache, 1)
        with pytest.raises(gd.ArenaError, match="launch 2, of bucket batch=1"):
            kept.copy_to_host()


def test_launches_that_nobody_waits_for_follow_each_other_in_the_arena(device):
    with cache_of(device) as cache:
        cache.warm_up()
        for number in range(50):
            with cache(batch=number % 4 + 1) as run:
                run.exec["raw"][:] = number
                run.launch()
                if number % 7 == 0:
                    assert (run["out"] == 2 * number).all()
                run.synchronize()  # before the next one writes raw of the same exec
        with cache(batch=4) as four, pytest.raises(gd.RefusedError):
            cache(batch=1)
        del four


@pytest.mark.parametrize("in_place", [False, True])
def test_weights_are_swapped_in_all_execs(device, in_place):
    with cache_of(device, concurrency=2) as cache:
        cache.warm_up()
        for value in (3.0, 4.0, 5.0):
            (done,) = cache.swap(w=weight_of(device, value), in_place=in_place)
            assert done.execs == 6
            for count in (1, 2, 3, 4):
                assert np.array_equal(ask(cache, count), value * rows(count))


def test_what_the_execs_of_a_bucket_take_is_counted(device):
    with cache_of(device) as cache:
        for count in (1, 2):
            ask(cache, count)
        cache.max_bytes = cache._entries.max_bytes = cache.nbytes + 1000  # those of a third one are more
        for count in (4, 1, 2, 4):
            assert np.array_equal(ask(cache, count), 2 * rows(count))
        assert len(cache.built) == 2


def pool_of(device):
    """A pool, and what tells the bytes that are lent."""
    if device.emulated:
        pool = Pool(device)
        return pool, lambda: pool.used
    from cuda.core import Device, DeviceMemoryResource, DeviceMemoryResourceOptions

    gpu = Device(device.ordinal)
    gpu.set_current()
    resource = DeviceMemoryResource(device.ordinal, DeviceMemoryResourceOptions())

    def used():
        gpu.sync()  # what is given back is so in the order of its stream
        return resource.attributes.used_mem_current

    return resource, used


def test_arenas_come_from_a_stream_ordered_pool(device):
    memory, used = pool_of(device)
    for _ in range(2):
        with cache_of(device, memory=memory, concurrency=2) as cache:
            cache.warm_up()
            assert used() >= 2 * cache.arena_nbytes
            cache.swap(w=weight_of(device, 3.0))
            for number in range(8):
                count = number % 4 + 1
                assert np.array_equal(ask(cache, count, number), 3 * rows(count, number))
            with cache(batch=1) as run:
                run.load(raw=rows(1))
                run.launch()
                kept = run["kept"]
                assert np.array_equal(kept.copy_to_host(), 3 * rows(1))
        del run
        assert used() >= cache.arena_nbytes, "an output is held"
        del kept
        gc.collect()
        assert used() == 0


def test_a_pool_that_is_at_its_limit_is_told(device):
    """What is allocated before is given back, and the next request finds room."""
    memory, used = pool_of(device)
    allocate, calls = memory.allocate, []

    class Limited:
        def allocate(self, nbytes, *, stream):
            calls.append(nbytes)
            if len(calls) == 2:
                raise MemoryError("no more")
            return allocate(nbytes, stream=stream)

    with cache_of(device, memory=Limited(), concurrency=2) as cache:
        with pytest.raises(gd.BuildError, match=r"bucket batch=2.*MemoryError: no more"):
            ask(cache, 2)
        gc.collect()
        assert used() == 0
        assert np.array_equal(ask(cache, 2), 2 * rows(2))


@pytest.mark.parametrize("fill", [7, "last"])
def test_rows_come_from_the_host_and_from_the_device(device, fill):
    with test_inputs.cache_of(device, fill=fill) as cache:
        for number, form in enumerate(["host", "device", "foreign"] * 4):
            shape = (number % 4 + 1, test_inputs.WIDTH, number % 3 + 1)
            data = np.arange(np.prod(shape), dtype=np.int32).reshape(shape) + 100 * number
            with cache(batch=shape[0], seq=shape[2]) as run:
                run.load(x=test_inputs.FORMS[form](device, data))
                run.launch()
                found = run["out"]
            np.testing.assert_array_equal(found, test_inputs.padded(data, found.shape, fill))


def test_several_buffers_are_copied_in_place_at_once(device):
    """What each held is kept meanwhile, in memory of the device and of the host."""
    layers = Layers(device)
    with cache_of(device, (2,), build=layers.build) as cache:
        cache.warm_up()
        for value in (3.0, 4.0):
            cache.swap(layers.new(value), in_place=True)
            assert layers.held(cache) == [value] * 3
