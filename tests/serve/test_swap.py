"""Weights are swapped in all execs of a cache or in none, and nothing keeps the old memory."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.run import copies
from tests.serve.graphs import WIDTH, ask, cache_of, rows, scaled, weight_of

INVALID_VALUE, OUT_OF_MEMORY, ILLEGAL_ADDRESS = 1, 2, 700


class Weights:
    """A `build` that forgets its weights: what keeps them then are graphs and execs alone."""

    def __init__(self, device, value: float) -> None:
        self.device = device
        self.owner = weight_of(device, value)
        self.address = self.owner.address

    def __call__(self, batch):
        owner = weight_of(self.device, -1.0) if self.owner is None else self.owner
        return scaled(owner)(batch)


@pytest.fixture
def device():
    return gd.emulator()


@pytest.fixture
def build(device):
    return Weights(device, 2.0)


def is_allocated(device, address: int) -> bool:
    gc.collect()
    return bool(device.live) and any(start <= address < start + nbytes for start, nbytes in device.allocations)


def test_every_exec_gets_the_new_memory_and_the_old_is_freed(device, build):
    with cache_of(device, build=build, concurrency=2) as cache:
        assert (ask(cache, 1) == 2 * rows(1)).all()
        assert (ask(cache, 3) == 2 * rows(3)).all()
        (done,) = cache.swap(w=weight_of(device, 3.0))
        assert (done.name, done.buckets, done.execs, done.in_place) == ("w", 2, 4, False)
        assert done.nbytes == 4 * WIDTH
        assert "4 execs of 2 buckets" in str(done)
        build.owner = None
        assert not is_allocated(device, build.address), "launches that read it would fault now"
        for count in (1, 2, 3, 4):  # the bucket of two rows is built now
            for _ in range(2):  # in both arenas
                assert (ask(cache, count) == 3 * rows(count)).all()
        cache.clear()
        assert (ask(cache, 1) == 3 * rows(1)).all(), "whatever build declares"
        cache.warm_up()
        new = cache.swap({"w": weight_of(device, 4.0)})
        assert new[0].execs == 6
        assert (ask(cache, 2) == 4 * rows(2)).all()


def test_the_memory_before_goes_with_each_swap(device, build):
    with cache_of(device, build=build) as cache:
        cache.warm_up()
        before = device.live["allocations"]
        for value in range(1, 9):
            cache.swap(w=weight_of(device, value))
            assert (ask(cache, value % 4 + 1) == value * rows(value % 4 + 1)).all()
        build.owner = None
        gc.collect()
        assert device.live["allocations"] == before


def test_a_launch_in_flight_ends_with_what_it_began_with(device):
    go_on, old = threading.Event(), weight_of(device, 2.0)

    def build(batch):
        g = scaled(old)(batch)
        g.host(lambda: go_on.wait(10) and None, name="wait") >> g.node("load")
        return g

    with cache_of(device, (2,), build=build) as cache:
        with cache(batch=2) as run:
            run.load(raw=rows(2))
            run.launch()
        new = weight_of(device, 3.0)
        cache.swap(w=new)
        go_on.set()
        assert (run["out"] == 2 * rows(2)).all()
        assert (ask(cache, 2) == 3 * rows(2)).all()


def test_what_was_launched_and_never_read_keeps_nothing(device, build):
    with cache_of(device, build=build) as cache:
        for count in (1, 2):
            with cache(batch=count) as run:
                run.load(raw=rows(count))
                run.launch()
        build.owner = None
        cache.swap(w=weight_of(device, 3.0))
        assert not is_allocated(device, build.address)


def test_a_copy_in_place_waits_for_launches_in_every_arena(device):
    go_on = threading.Event()

    def build(batch):
        g = scaled(old)(batch)
        g.host(lambda: go_on.wait(10) and None, name="wait") >> g.node("load")
        return g

    old = weight_of(device, 2.0)
    with cache_of(device, (1,), build=build, concurrency=2) as cache:
        first, second = cache(batch=1), cache(batch=1)
        with first, second:
            second.load(raw=rows(1))
            second.launch()
        threading.Timer(0.05, go_on.set).start()
        cache.swap(w=weight_of(device, 3.0), in_place=True)
        assert (second["out"] == 2 * rows(1)).all()
        assert (ask(cache, 1) == 3 * rows(1)).all()


def test_copies_in_place(device, build):
    with cache_of(device, build=build) as cache:
        with pytest.raises(gd.UpdateError, match="warm_up"):
            cache.swap(w=weight_of(device, 5.0), in_place=True)
        cache.warm_up()
        addresses = [slot.exec.addresses["w"] for entry in cache._entries for slot in entry.slots]
        for new in (weight_of(device, 5.0), np.full(WIDTH, 6, np.float32)):
            (done,) = cache.swap(w=new, in_place=True)
            assert (done.in_place, done.execs) == (True, 3)
            value = 5 if isinstance(new, gd.DeviceArray) else 6
            assert (ask(cache, 3) == value * rows(3)).all()
        assert addresses == [slot.exec.addresses["w"] for entry in cache._entries for slot in entry.slots]
        cache.clear()
        assert (ask(cache, 1) == 6 * rows(1)).all()
        with pytest.raises(gd.UpdateError, match="dtype"):
            cache.swap(w=np.zeros(WIDTH), in_place=True)


# Several buffers at once: all or none


class Layers:
    """Three external buffers, of the device and of the host, each of which is copied out by the graphs."""

    def __init__(self, device) -> None:
        self.device = device
        self.calls: list[str] = []
        host = np.full(WIDTH, 2, np.float32)
        self.owners = {"w": weight_of(device, 2.0), "bias": host, "v": weight_of(device, 2.0)}

    def build(self, batch):
        g = scaled(self.owners["w"])(batch)
        last = g.node("store")
        for name in ("bias", "v"):
            copy = g.memcpy(
                g.host_array(f"{name}_out", WIDTH, np.float32), g.external(name, self.owners[name]), name=name
            )
            last >> copy
            last = copy
        return g

    def new(self, value: float) -> dict:
        host = np.full(WIDTH, value, np.float32)
        return {"w": weight_of(self.device, value), "bias": host, "v": weight_of(self.device, value)}

    def held(self, cache) -> list[float]:
        """What a request finds in each."""
        with cache(batch=2) as run:
            run.load(raw=rows(2))
            run.launch()
            assert (run["out"] == run["out"][0, 0] * rows(2)).all()
            found = [run["out"][0, 0], *(each for name in ("bias", "v") for each in set(run[f"{name}_out"].tolist()))]
        return [float(each) for each in found]


def swapped(layers, cache, *fail, in_place=True) -> gd.DriverError | None:
    """Swap with a call failing; gives what that came to."""
    new = layers.new(3.0)
    for _ in range(cache.concurrency):
        with cache(batch=1) as run:  # is in flight when the swap begins
            run.load(raw=rows(1))
            run.launch()
    before, problem = {**layers.device.live, "events": 0}, None
    for each in fail:
        layers.device.fail_next(*each)
    layers.device.history.clear()
    try:
        cache.swap(new, in_place=in_place)
    except gd.DriverError as failed:
        problem = failed.with_traceback(None)
    layers.calls = list(layers.device.history)
    for _ in range(0 if in_place else 2 * cache.concurrency):  # what was bound before goes with later requests
        layers.held(cache)
    gc.collect()
    assert {**layers.device.live, "events": 0} == before  # events are kept to be used again
    return problem


def layered():
    layers = Layers(gd.emulator())
    return layers, cache_of(layers.device, (2,), build=layers.build, concurrency=2)


def calls_of_a_swap(in_place: bool) -> list[tuple[str, int]]:
    layers, cache = layered()
    with cache:
        assert swapped(layers, cache, in_place=in_place) is None
    return [(call, layers.calls[:number].count(call)) for number, call in enumerate(layers.calls)]


@pytest.mark.usefixtures("quick_collections")
@pytest.mark.parametrize("code", [INVALID_VALUE, OUT_OF_MEMORY])
@pytest.mark.parametrize("in_place", [True, False])
def test_all_buffers_are_swapped_or_none_whatever_call_fails(in_place, code):
    """Copies that are short of memory of the device may do with that of the host."""
    steps, done = calls_of_a_swap(in_place), set()
    copying = {"cuMemcpy3DAsync", "cuMemAlloc", "cuStreamSynchronize"}
    updates = {"cuGraphExecKernelNodeSetParams", "cuGraphExecMemcpyNodeSetParams"}
    assert (copying if in_place else updates) <= {call for call, _ in steps}
    for call, after in steps:
        if call == "cuMemFree":  # is not told
            continue
        layers, cache = layered()
        with cache:
            problem = swapped(layers, cache, (call, code, after), in_place=in_place)
            if problem is None:
                done.add(call)
            else:
                assert (problem.call, problem.code) == (call, code)
                assert "may hold part" not in str(problem)
            assert layers.held(cache) == [2.0 if problem else 3.0] * 3, (call, after)
    events = {"cuEventCreate", "cuEventRecord", "cuEventQuery"}  # of what is let go of later
    assert done == (events if not in_place else {"cuMemAlloc"} if code == OUT_OF_MEMORY else set())


def test_a_copy_that_is_refused_names_its_buffer_and_those_before_are_put_back():
    layers, cache = layered()
    with cache:
        cache.warm_up()
        new = {**layers.new(3.0), "v": gd.device_array(layers.device, WIDTH, np.float32)}
        before = layers.device.live
        with pytest.raises(gd.MemoryFault, match=r"v: .*never-written bytes") as caught:
            cache.swap(new, in_place=True)
        assert caught.value.field == "v"
        gc.collect()
        assert layers.device.live == before, "what was kept is not kept by the error"
        assert layers.held(cache) == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(("begin", "field", "told"), [(1, "bias", False), (5, "v", True)])
def test_what_a_lost_context_lets_nobody_undo_is_told(begin, field, told):
    """Three copies keep what is there, and three are those that are asked for."""
    layers, cache = layered()
    with cache:
        cache.warm_up()
        problem = swapped(layers, cache, *[("cuMemcpy3DAsync", ILLEGAL_ADDRESS, begin + each) for each in range(6)])
        assert problem.field == field
        assert ("may hold part" in str(problem)) is told
        assert ("w, bias, v may" in str(problem)) is told


def test_memory_that_nobody_has_written_needs_no_keeping():
    layers, cache = layered()
    layers.owners["v"] = gd.device_array(layers.device, WIDTH, np.float32)
    with cache:
        cache.warm_up()
        cache.swap(layers.new(3.0), in_place=True)
        assert layers.held(cache) == [3.0, 3.0, 3.0]


def test_a_copy_from_what_is_written_too_is_refused():
    layers, cache = layered()
    with cache:
        cache.warm_up()
        w, v = layers.owners["w"], layers.owners["v"]
        with pytest.raises(gd.UpdateError, match=r"w = 0x.*: what is copied lies in the memory of 'v'"):
            cache.swap(w=v, v=w, in_place=True)
        cache.swap(w=w, v=layers.new(5.0)["v"], in_place=True)
        assert layers.held(cache) == [2.0, 2.0, 5.0]


@pytest.mark.parametrize("built", [True, False])
def test_what_differs_in_kind_is_refused(device, build, built):
    with cache_of(device, build=build) as cache:
        if built:
            cache.warm_up()
        for wrong, said in (
            (gd.to_device(device, np.ones(WIDTH + 1, np.float32)), "shape"),
            (gd.to_device(device, np.ones(WIDTH)), "dtype"),
            (np.ones(WIDTH, np.float32), "space"),
            ("nothing", "memory that can be found"),
        ):
            with pytest.raises(gd.UpdateError, match=said) as caught:
                cache.swap(w=wrong)
            assert caught.value.field == "w"
        with pytest.raises(gd.UpdateError, match="'v'"):
            cache.swap(v=weight_of(device, 1.0))
        with pytest.raises(gd.UpdateError, match="nothing is named"):
            cache.swap()
        assert (ask(cache, 2) == 2 * rows(2)).all()


def test_a_buffer_of_another_name_in_the_old_memory_is_found(device):
    old = weight_of(device, 2.0)

    def build(batch):
        g = scaled(old)(batch)
        g.node("store") >> g.memcpy(
            g.host_array("half", 2, np.float32), g.external("tail", old.view(2, "f4", offset=8))
        )
        return g

    with cache_of(device, (1, 2), build=build) as cache:
        cache.warm_up()
        with pytest.raises(
            gd.UpdateError, match=r"bucket batch=.*, tail = 0x.*: it still lies in .* 'w' had"
        ) as caught:
            cache.swap(w=weight_of(device, 3.0))
        assert caught.value.bucket is not None
        assert (ask(cache, 2) == 2 * rows(2)).all(), "none of the execs has the new memory"
        new = weight_of(device, 3.0)
        cache.swap(w=new, tail=new.view(2, "f4", offset=8))
        assert (ask(cache, 1) == 3 * rows(1)).all()


SENDS = 2 * 3  # execs of a cache of three buckets and two arenas; one kernel node of each reads the weights


@pytest.mark.parametrize("after", range(SENDS))
def test_a_swap_that_the_driver_refuses_leaves_all_as_it_was(after):
    device = gd.emulator()
    with cache_of(device, concurrency=2) as cache:
        cache.warm_up()
        old = {slot.exec.addresses["w"] for entry in cache._entries for slot in entry.slots}
        device.fail_next("cuGraphExecKernelNodeSetParams", OUT_OF_MEMORY, after=after)
        new = weight_of(device, 3.0)
        with pytest.raises(gd.DriverError, match=r"bucket batch=\d, graph 'scaled\d', node 'scale'"):
            cache.swap(w=new)
        assert {slot.exec.addresses["w"] for entry in cache._entries for slot in entry.slots} == old
        assert (ask(cache, 1) == 2 * rows(1)).all()
        assert cache.swap(w=new)[0].execs == SENDS
        assert (ask(cache, 4) == 3 * rows(4)).all()


def test_an_exec_that_cannot_be_put_back_is_given_up(device):
    with cache_of(device) as cache:
        cache.warm_up()
        for after in (2, 3):
            device.fail_next("cuGraphExecKernelNodeSetParams", OUT_OF_MEMORY, after=after)
        with pytest.raises(gd.DriverError):
            cache.swap(w=weight_of(device, 3.0))
        assert len(cache.built) == 2
        assert cache.counts.evict == 1
        for count in (1, 2, 4):
            assert (ask(cache, count) == 2 * rows(count)).all()


@pytest.mark.parametrize("in_place", [False, True])
def test_an_interrupt_leaves_all_as_it_was(monkeypatch, in_place):
    """It comes when an update, or a copy, has just been made."""
    layers, cache = layered()
    with cache:
        cache.warm_up()
        owner = copies if in_place else cache._entries.by_bucket[cache.buckets.largest].slots[1].exec
        name, calls = "copy_rows" if in_place else "update", []
        act = getattr(owner, name)

        def interrupted(*args, **options):
            act(*args, **options)
            calls.append(None)
            if len(calls) == (6 if in_place else 1):  # three copies keep what is there
                raise KeyboardInterrupt

        monkeypatch.setattr(owner, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            cache.swap(layers.new(3.0), in_place=in_place)
        monkeypatch.undo()
        for _ in range(cache.concurrency):
            assert layers.held(cache) == [2.0] * 3


def test_open_requests_are_waited_for_and_later_ones_wait(device):
    with cache_of(device, patience=0.02, concurrency=2) as cache:
        cache.warm_up()
        run = cache(batch=1)
        with pytest.raises(gd.RefusedError, match=r"not all became free: .*1 of bucket batch=1"):
            cache.swap(w=weight_of(device, 3.0))
        assert (ask(cache, 2) == 2 * rows(2)).all(), "the other arena is free again"
        cache.patience = 10
        threading.Timer(0.02, run.close).start()
        cache.swap(w=weight_of(device, 3.0))
        assert (ask(cache, 2) == 3 * rows(2)).all()
        with cache(batch=1), pytest.raises(gd.RefusedError, match="Swap outside"):
            cache.swap(w=weight_of(device, 4.0))


def test_swaps_between_requests_of_many_threads(device):
    with cache_of(device, concurrency=2) as cache:
        wrong, values = [], {2.0}

        def serve(count):
            for _ in range(6):
                found = ask(cache, count)
                if not any(np.array_equal(found, value * rows(count)) for value in tuple(values)):
                    wrong.append(found)

        threads = [threading.Thread(target=serve, args=(count,)) for count in (1, 2, 3)]
        for thread in threads:
            thread.start()
        for value in (3.0, 4.0, 5.0):
            values.add(value)
            cache.swap(w=weight_of(device, value))
        for thread in threads:
            thread.join()
        assert not wrong
        assert (ask(cache, 4) == 5 * rows(4)).all()
