"""A cache of graphs: the right exec for a request, inputs padded, outputs cut, and refused once they are gone."""

from __future__ import annotations

import gc
import logging
import threading
import time

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.serve.costs import exec_nbytes
from graphdsl.serve.events import Observer
from tests.serve.graphs import WIDTH, ask, cache_of, rows, scaled, weight_of


@pytest.fixture
def cache():
    with cache_of() as made:
        yield made


def test_a_request_gets_the_smallest_bucket_that_holds_it(cache):
    for count, bucket in ((3, 4), (1, 1), (2, 2), (4, 4), (3, 4)):
        with cache(batch=count) as run:
            assert run.bucket == {"batch": bucket}
            assert run.exec["count"] == count
            run.load(raw=rows(count))
            run.launch()
            assert np.array_equal(run["out"], 2 * rows(count))
            assert np.array_equal(run["kept"].copy_to_host(), 2 * rows(count))
    counts = cache.counts
    assert (counts.hit, counts.miss, counts.padded, counts.instantiate) == (2, 3, 2, 3)
    assert sum(counts.reasons.values()) == 2 + 3 + 2 + 3


def test_one_arena_has_the_bytes_of_the_largest_plan(cache):
    device, build = cache.device, cache.build
    largest = max(build(batch=batch).plan(device).nbytes_on() for batch in (1, 2, 4))
    before = device.live["allocations"]
    assert cache.arena_nbytes == largest
    assert device.live["allocations"] == before, "it is known before anything is allocated"
    cache.warm_up()
    assert device.live["allocations"] == before + 1
    assert max(nbytes for _, nbytes in device.allocations) == largest


def test_padding_is_filled_again_when_a_request_shrinks(cache):
    with cache(batch=4) as run:
        run.load(raw=rows(4))
        run.launch()
        exe = run.exec
    with cache(batch=3) as run:
        assert run.exec is exe
        run.load(raw=rows(3, 5.0))
        assert not exe["raw"][3].any()
        assert np.array_equal(exe["raw"][:3], rows(3, 5.0))


def test_inputs_in_device_memory_are_copied_and_padded():
    device = gd.emulator()

    def build(batch):
        g = gd.Graph("copy")
        x, y, out = (
            make(name, (batch, 2), np.int32)
            for make, name in zip((g.device_array, g.device_array, g.host_array), ("x", "y", "out"))
        )
        with g.sequence():
            g.memcpy(y, x)
            g.memcpy(out, y)
        return g

    with gd.GraphCache(
        build, gd.Buckets(batch=[4]), device, inputs={"x": gd.Padding("batch", fill=7)}, outputs={"out": ()}
    ) as cache:
        for count in (4, 2, 3):
            with cache(batch=count) as run:
                run.load({"x": np.full((count, 2), count)})
                run.launch()
                assert run["out"][:, 0].tolist() == [count] * count + [7] * (4 - count)


@pytest.mark.parametrize("place", ["host", "device"])
def test_operands_with_one_more_than_their_axis(place):
    """Offsets of rows: their end is repeated, so that padded rows are empty, and again when a request shrinks."""

    def build(batch):
        g = gd.Graph("offsets")
        x = getattr(g, f"{place}_array")("x", batch + 1, np.int32)
        y, out, whole = (
            g.device_array("y", batch + 1, np.int32),
            *(g.host_array(name, batch + 1, np.int32) for name in ("out", "whole")),
        )
        with g.sequence():
            g.memcpy(y, x, name="load")
            g.memcpy(out, y, name="store")
            g.memcpy(whole, y, name="all")
        return g

    options = {"inputs": {"x": gd.Padding("batch + 1", fill="last")}, "outputs": {"out": "batch + 1"}}
    with gd.GraphCache(build, gd.Buckets(batch=[2, 4]), gd.emulator(), **options) as cache:
        for count in (4, 3, 1, 2, 3, 4):
            with cache(batch=count) as run:
                ends = np.cumsum(np.arange(count + 1))
                run.load(x=ends)
                run.launch()
                assert run["out"].tolist() == ends.tolist()
                assert run["whole"].tolist() == np.pad(ends, (0, run.bucket["batch"] - count), mode="edge").tolist()
        with cache(batch=3) as run, pytest.raises(gd.DeclarationError, match=r"has the shape \(4,\)"):
            run.load(x=[0, 1, 2])


def test_only_the_real_rows_are_copied_where_nothing_fills_the_rest():
    device = gd.emulator()

    def build(batch):
        g = gd.Graph("copy")
        x, out = g.device_array("x", (batch, 2), np.int32), g.host_array("out", (batch, 2), np.int32)
        g.memcpy(out, x, name="store")
        return g

    with (
        gd.GraphCache(build, gd.Buckets(batch=[2]), device, inputs={"x": gd.Padding("batch")}) as cache,
        cache(batch=1) as run,
    ):
        run.load(x=[[1, 2]])
        run.launch()
        with pytest.raises(gd.MemoryFault, match="never"):
            run.synchronize()


def test_an_output_is_refused_after_the_next_launch_in_the_arena(cache):
    with cache(batch=3) as run:
        run.load(raw=rows(3))
        run.launch()
        kept, early = run["kept"], run
    assert np.array_equal(kept.copy_to_host(), 2 * rows(3)), "until then it can be read, also behind the end of the run"
    ask(cache, 1)
    part = "bucket batch=4, {}: .* launch 1 left it, .* launch 2, of bucket batch=1"
    for use in (
        kept.copy_to_host,
        lambda: kept.copy_from_host(rows(3)),
        lambda: kept.view(2, np.float32).copy_to_host(),
        lambda: kept.__cuda_array_interface__,
        lambda: gd.Graph().external("kept", kept),
        kept.__dlpack__,
        lambda: early["kept"],
    ):
        with pytest.raises(gd.GraphdslError, match=part.format("kept")) as caught:
            use()
        assert isinstance(caught.value, (gd.ArenaError, gd.DeclarationError))
    with pytest.raises(gd.ArenaError, match=part.format("out")) as caught:
        early["out"]
    assert caught.value.bucket == {"batch": 4}
    assert caught.value.field == "out"


def test_outputs_before_a_launch_are_refused(cache):
    with cache(batch=1) as run:
        for name in ("out", "kept"):
            with pytest.raises(gd.GraphdslError, match="until the run has launched"):
                run[name]
        assert run["count"] == 1
        assert isinstance(run["w"], gd.DeviceArray)
        with pytest.raises(gd.UpdateError, match="nothing"):
            run["nothing"]


def test_a_closed_run_does_nothing(cache):
    run = cache(batch=1)
    run.close()
    run.close()
    for use in (run.launch, lambda: run.load(raw=rows(1)), lambda: run.update(count=1)):
        with pytest.raises(gd.GraphdslError, match="the run is closed"):
            use()


def test_above_the_largest_bucket(cache):
    with pytest.raises(gd.BucketError, match="batch = 5"):
        cache(batch=5)
    assert cache.counts.refused == 1
    cache.fallback = lambda batch: f"{batch} elsewhere"
    assert cache(batch=6) == "6 elsewhere"
    assert cache.counts.fallback == 1
    with pytest.raises(gd.DeclarationError, match="rows"):
        cache(rows=3)
    assert cache.counts.refused == 1


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        (lambda batch: None, gd.BuildError, "bucket batch=4, build = None"),
        (lambda batch: {}[batch], gd.BuildError, "bucket batch=4: build raised KeyError: 4"),
        (lambda batch: gd.Graph("empty"), gd.DeclarationError, "bucket batch=4.*raw"),
        (lambda batch: scaled(weight_of(gd.emulator(), 1.0))(batch + 1), gd.DeclarationError, "batch=4.*shape of raw"),
    ],
)
def test_a_build_that_fails_names_the_bucket_and_the_next_request_tries_again(wrong, error, said):
    device = gd.emulator()
    right = scaled(weight_of(device, 2.0))
    before = device.live
    tries = []

    def build(batch):
        tries.append(batch)
        return wrong(batch) if len(tries) == 1 else right(batch)

    with cache_of(device, build=build) as cache:
        with pytest.raises(error, match=said) as caught:
            cache(batch=1)
        assert caught.value.bucket == {"batch": 4}, "all buckets are planned first, the largest before the others"
        assert not cache.built
        assert device.live == before
        assert np.array_equal(ask(cache, 1), 2 * rows(1))


def test_the_bucket_and_the_node_are_named():
    device = gd.emulator()
    with cache_of(device) as cache:
        device.fail_next("cuGraphAddKernelNode", 701)
        with pytest.raises(gd.DriverError, match=r"bucket batch=2, graph 'scaled2', node 'scale'") as caught:
            cache(batch=2)
        assert caught.value.node == "scale"
        assert not cache.built
        assert cache.nbytes == 0, "the arena is given back too: no exec uses it"
        assert (ask(cache, 2) == 2 * rows(2)).all()


def test_many_threads_ask_and_one_builds():
    seen, device = [], gd.emulator()
    weight = weight_of(device, 2.0)
    with cache_of(device, build=scaled(weight, seen), concurrency=2) as cache:
        start, wrong = threading.Barrier(6), []

        def request(number):
            start.wait()
            for count in (1 + number % 3, 3):
                if not np.array_equal(ask(cache, count, number), 2 * rows(count, number)):
                    wrong.append(number)

        threads = [threading.Thread(target=request, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert sorted(seen) == [1, 2, 4]
        assert cache.counts.instantiate == 3
        assert cache.counts.hit + cache.counts.miss == 12


def test_who_waits_for_a_build_gets_its_error_too_and_later_ones_try_again():
    device, building, go_on = gd.emulator(), threading.Event(), threading.Event()
    right, tries = scaled(weight_of(device, 2.0)), []

    def build(batch):
        tries.append(batch)
        if len(tries) > 1:
            return right(batch)
        building.set()
        go_on.wait(10)
        raise ValueError("not yet")

    errors = []

    def request():
        try:
            cache(batch=1)
        except gd.BuildError as problem:
            errors.append(problem)

    with cache_of(device, (1,), build=build) as cache:
        threads = [threading.Thread(target=request) for _ in range(3)]
        threads[0].start()
        building.wait(10)
        for thread in threads[1:]:
            thread.start()
        time.sleep(0.05)  # they wait, or ask later and try again: both are right
        go_on.set()
        for thread in threads:
            thread.join()
        assert errors
        assert len({id(error) for error in errors}) == len(errors)
        assert all("not yet" in str(error) and isinstance(error.__cause__, ValueError) for error in errors)
        assert np.array_equal(ask(cache, 1), 2 * rows(1))


def test_a_build_that_asks_for_itself_is_refused():
    device = gd.emulator()

    def build(batch):
        return cache(batch=batch)

    with cache_of(device, (1,), build=build) as cache, pytest.raises(gd.GraphdslError, match="Ask the cache outside"):
        cache(batch=1)


def test_warm_up_builds_the_largest_first_and_says_how_far_it_is(cache):
    told = []
    built = cache.warm_up(progress=lambda done, total, bucket: told.append((done, total, bucket["batch"])))
    assert [bucket["batch"] for bucket in built] == [4, 2, 1]
    assert told == [(0, 3, 4), (1, 3, 2), (2, 3, 1)]
    assert cache.warm_up(progress=True) == ()
    ask(cache, 2)
    assert (cache.counts.hit, cache.counts.miss) == (1, 0)
    assert cache.counts.reasons["instantiate", "warm-up"] == 3


def room_for(cache, execs: int) -> int:
    """Bytes of an arena and so many execs, of which those of the buckets differ by less than one."""
    largest = max(exec_nbytes(cache.build(**bucket).plan(cache.device)) for bucket in cache.buckets)
    return cache.arena_nbytes + execs * largest


def test_the_bucket_that_was_not_used_for_longest_is_given_up():
    device = gd.emulator()
    with cache_of(device) as cache:
        cache.max_bytes = cache._entries.max_bytes = room_for(cache, 2)
        for count in (1, 2, 1, 4):
            assert np.array_equal(ask(cache, count), 2 * rows(count))
            assert cache.nbytes <= cache.max_bytes
        assert [bucket["batch"] for bucket in cache.built] == [1, 4]
        assert cache.counts.reasons["evict", "room for another bucket"] == 1
        ask(cache, 2)
        assert cache.counts.reasons["miss", "given up before"] == 1
        assert device.live["execs"] == 2
        assert len(cache.warm_up()) == 0, "a warm-up gives nothing up"


def test_an_exec_that_is_checked_out_is_not_given_up():
    device = gd.emulator()
    with cache_of(device, patience=0.01, concurrency=2) as cache:
        cache.max_bytes = cache._entries.max_bytes = cache.concurrency * room_for(cache, 1)
        with cache(batch=1) as run:
            with pytest.raises(gd.RefusedError, match=r"no room.*1 of bucket batch=1") as caught:
                cache(batch=2)
            assert caught.value.bucket == {"batch": 2}
            run.load(raw=rows(1))
            run.launch()
            assert np.array_equal(run["out"], 2 * rows(1))
        assert cache.counts.reasons["refused", "no room for its execs"] == 1
        ask(cache, 2)


def test_what_can_never_fit_is_refused_and_explained():
    with cache_of(max_bytes=1000) as cache, pytest.raises(gd.RefusedError, match=r"Allow .* bytes at least"):
        cache(batch=1)


def test_an_exec_in_flight_ends_before_it_is_given_up():
    device, go_on, done = gd.emulator(), threading.Event(), []

    def wait():
        go_on.wait(10)
        done.append(True)

    def build(batch):
        g = gd.Graph("waits")
        g.host(wait, name="wait")
        return g

    with gd.GraphCache(build, gd.Buckets(batch=[1, 2]), device) as cache:
        with cache(batch=1) as run:
            run.launch()
        threading.Timer(0.05, go_on.set).start()
        cache.clear()
        assert done
        assert not cache.built


def test_launches_overlap_where_there_is_concurrency():
    device, meet = gd.emulator(), threading.Barrier(2, timeout=10)

    def build(batch):
        g = gd.Graph("meets")
        g.host(meet.wait, name="meet")
        return g

    with gd.GraphCache(build, gd.Buckets(batch=[1]), device, concurrency=2) as cache:
        one, two = cache(batch=1), cache(batch=1)
        with one, two:
            assert one.exec is not two.exec
            one.launch()
            two.launch()
            one.synchronize()
            two.synchronize()


def test_launches_in_one_arena_follow_each_other_whatever_their_streams(cache):
    stream = cache.device.stream_create()
    for count, into in ((4, stream), (2, None), (1, stream), (4, stream), (1, None)):
        with cache(batch=count) as run:
            run.load(raw=rows(count, 3.0))
            run.launch(into)
            run.launch()
            run.launch(into)
            assert np.array_equal(run["out"], 2 * rows(count, 3.0))


def waiting(device, go_on, weight=2.0):
    """A `build` whose launches begin when an event is set."""
    right = scaled(weight_of(device, weight))

    def build(batch):
        g = right(batch)
        g.host(lambda: go_on.wait(10) and None, name="wait") >> g.node("load")
        return g

    return build


def test_inputs_are_not_written_while_a_launch_may_read_them():
    device, go_on = gd.emulator(), threading.Event()
    with cache_of(device, (2,), build=waiting(device, go_on)) as cache:
        with cache(batch=2) as run:
            run.load(raw=rows(2))
            run.launch()
        with cache(batch=2) as later:
            threading.Timer(0.05, go_on.set).start()
            later.load(raw=rows(2, 5.0))
            assert np.array_equal(run["out"], 2 * rows(2))


def test_a_request_waits_for_launches_of_another_one_in_other_streams():
    device, go_on = gd.emulator(), threading.Event()
    stream = device.stream_create()
    with cache_of(device, (1, 2), build=waiting(device, go_on)) as cache:
        with cache(batch=2) as run:
            run.load(raw=rows(2))
            run.launch(stream)
        threading.Timer(0.05, go_on.set).start()
        with cache(batch=1):
            assert run.exec._launches.in_flight is None
            assert np.array_equal(run["out"], 2 * rows(2))


def test_a_launch_in_the_middle_of_a_copy_is_noticed(cache, monkeypatch):
    with cache(batch=2) as run:
        run.load(raw=rows(2))
        run.launch()
        kept, copy = run["kept"], cache.device.memcpy_dtoh

        def slow_copy(*args):
            copy(*args)
            run.launch()

        monkeypatch.setattr(cache.device, "memcpy_dtoh", slow_copy)
        with pytest.raises(gd.ArenaError, match="launch 2, of bucket batch=2"):
            kept.copy_to_host()


def test_a_request_waits_for_an_arena_or_is_refused():
    device = gd.emulator()
    with cache_of(device, patience=0.01) as cache:
        cache.warm_up()
        run = cache(batch=2)
        with pytest.raises(gd.RefusedError, match=r"no arena became free in 0.01 seconds: .* 1 of bucket batch=2"):
            cache(batch=1)
        cache.patience = 10
        threading.Timer(0.02, run.close).start()
        ask(cache, 1)
        with cache(batch=1), pytest.raises(gd.RefusedError, match="wait for itself"):
            cache(batch=2)
        cache.fallback = lambda batch: "elsewhere"
        with cache(batch=1):
            assert cache(batch=2) == "elsewhere"
        assert cache.counts.refused == 2


def test_an_exec_that_an_update_left_unusable_is_given_up():
    device = gd.emulator()
    with cache_of(device, (4,)) as cache:
        with cache(batch=4) as run:
            device.fail_next("cuGraphExecKernelNodeSetParams", 2)
            with pytest.raises(gd.DriverError, match="scale"):
                run.update(count=2)
            run.exec.give_up("tried")
        assert not cache.built
        assert device.live["execs"] == 0
        assert np.array_equal(ask(cache, 3), 2 * rows(3))


def test_a_size_that_cannot_be_set_gives_the_arena_back():
    device = gd.emulator()
    with cache_of(device, (4,)) as cache:
        ask(cache, 3)
        device.fail_next("cuGraphExecKernelNodeSetParams", 2)
        with pytest.raises(gd.DriverError, match="scale"):
            cache(batch=2)
        assert np.array_equal(ask(cache, 2), 2 * rows(2))


def test_all_is_given_back_at_the_end():
    device = gd.emulator()
    weight = weight_of(device, 2.0)
    before = device.live
    with cache_of(device, build=scaled(weight), concurrency=2) as cache:
        cache.warm_up()
        with cache(batch=1) as run:
            run.load(raw=rows(1))
            run.launch()
            kept = run["kept"]
            with pytest.raises(gd.GraphdslError, match="1 of bucket batch=1"):
                cache.close()
    with pytest.raises(gd.GraphdslError, match="the cache is closed"):
        cache(batch=1)
    del cache, run
    gc.collect()
    assert device.live["allocations"] == before["allocations"] + 1, "an arena lives as long as an output of it"
    del kept
    gc.collect()
    assert {**device.live, "libraries": 0} == {**before, "libraries": 0}


def test_an_observer_is_told():
    told = []

    class Told(Observer):
        def __getattribute__(self, name):
            return lambda *args: told.append((name, *args))

    with cache_of(observer=Told()) as cache:
        ask(cache, 1)
        ask(cache, 1)
        with pytest.raises(gd.BucketError):
            cache(batch=9)
        cache.clear()
    names = [each[0] for each in told]
    request = ["served", "updated", "loaded", "launching", "launched"]
    again = [each for each in request if each != "updated"]  # the size is the same
    assert names == ["miss", "instantiated", *request, *again, "refused", "evicted", "closed"]


def test_slow_builds_are_logged(monkeypatch, caplog):
    monkeypatch.setattr("graphdsl.serve.cache_build.SLOW", 0.0)
    with cache_of() as cache, caplog.at_level(logging.INFO, "graphdsl"):
        ask(cache, 1)
        cache.warm_up()
    said = [(each.levelname, each.getMessage().split(":")[0]) for each in caplog.records if "to build" in each.message]
    assert said == [("WARNING", "bucket batch=1"), ("INFO", "bucket batch=4"), ("INFO", "bucket batch=2")]


@pytest.mark.parametrize(
    "wrong",
    [
        {"build": 1},
        {"concurrency": 0},
        {"inputs": {"raw": "batch"}},
        {"observer": "metric"},
        {"memory": lambda nbytes: None},
        {"sizes": {"rows": "count"}},
    ],
)
def test_what_makes_no_cache_is_refused(wrong):
    with pytest.raises(gd.DeclarationError):
        cache_of(**{"build": scaled(None), **wrong})


def test_what_is_not_named_is_refused(cache):
    with cache(batch=3) as run, pytest.raises(gd.UpdateError, match="bucket batch=4, load = an object of type list"):
        run.load([rows(3)])
    with pytest.raises(gd.UpdateError, match=r"^swap = an object of type int: what swap takes is named"):
        cache.swap(3)


def test_a_failing_copy_names_the_input():
    device = gd.emulator()

    def build(batch):
        g = gd.Graph("copy")
        g.memcpy(g.host_array("out", batch, np.int32), g.device_array("x", batch, np.int32), name="store")
        return g

    with gd.GraphCache(build, gd.Buckets(batch=[2]), device, inputs={"x": gd.Padding("batch")}) as made:
        run = made(batch=2)
        device.fail_next("cuMemcpyHtoDAsync", 2)
        with run, pytest.raises(gd.DriverError, match=r"^bucket batch=2, x: cuMemcpyHtoDAsync returned"):
            run.load(x=[1, 2])


@pytest.mark.parametrize("end", ["clear", "close"])
def test_an_output_outlives_its_exec(end):
    cache = cache_of()
    with cache(batch=3) as run:
        run.load(raw=rows(3))
        run.launch()
        kept = run["kept"]
    getattr(cache, end)()
    assert np.array_equal(kept.copy_to_host(), 2 * rows(3))
    assert np.array_equal(kept.view((2, WIDTH), np.float32).copy_to_host(), 2 * rows(2))
    for name in ("kept", "out"):
        with pytest.raises(gd.GraphdslError, match=rf"^bucket batch=4, {name}: .* has given its exec up since"):
            run[name]
    cache.close()


def test_an_output_of_an_exec_that_made_room_is_there_until_the_next_launch():
    device = gd.emulator()
    with cache_of(device) as cache:
        with cache(batch=3) as run:
            run.load(raw=rows(3))
            run.launch()
            kept = run["kept"]
        cache.max_bytes = cache._entries.max_bytes = cache.nbytes + 1000
        with cache(batch=1) as later:
            assert [bucket["batch"] for bucket in cache.built] == [1]
            assert np.array_equal(kept.copy_to_host(), 2 * rows(3))
            later.load(raw=rows(1))
            later.launch()
            with pytest.raises(gd.ArenaError):
                kept.copy_to_host()


def test_a_launch_of_another_thread_while_an_output_is_read(monkeypatch, cache):
    with cache(batch=3) as run:
        run.load(raw=rows(3))
        run.launch()
        kept = run["kept"]
    entered, others = gd.DeviceArray._enter, [1]

    def enter(array, writes):
        if others:
            ask(cache, others.pop())
        entered(array, writes)

    monkeypatch.setattr(gd.DeviceArray, "_enter", enter)
    with pytest.raises(gd.ArenaError, match="launch 2, of bucket batch=1"):
        kept.copy_to_host()
