"""Execs whose own device arrays lie in memory that is given: where, whose, and what the emulator finds."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import graphdsl as gd
from tests.conformance import kernels


def chain(name: str = "chain", n: int = 64) -> gd.Graph:
    """Four arrays one behind the other: two of them planned, the first and the last by themselves."""
    g = gd.Graph(name)
    first, second, third, last = (g.device_array(array, n, np.float32) for array in ("first", "a", "b", "last"))
    with g.sequence():
        g.memcpy(second, first, name="one")
        g.kernel(kernels.scale, grid=1, block=n, args=(second, third, 2.0, n), name="two")
        g.memcpy(last, third, name="three")
    return g


def arena_for(device, *graphs, more: int = 0):
    return gd.device_array(device, max(g.plan().nbytes_on() for g in graphs) + more, np.uint8)


def ran(exe, value: float) -> np.ndarray:
    exe["first"].copy_from_host(np.full(exe["first"].shape, value, np.float32))
    exe.launch()
    return exe["last"].copy_to_host()


def test_arrays_lie_where_the_plan_says_and_nothing_is_allocated():
    device, g = gd.emulator(), chain()
    arena = arena_for(device, g)
    before = device.live["allocations"]
    with g.instantiate(device, arena=arena) as exe:
        assert device.live["allocations"] == before
        offsets = g.plan().memory[None].offsets
        assert exe.addresses == {name: arena.address + offset for name, offset in offsets.items()}
        assert "cuMemAlloc" not in {call.function for call in exe.calls}
        assert (ran(exe, 3.0) == 6.0).all()
        last = exe["last"]
    del arena, exe
    gc.collect()
    assert device.live["allocations"] == 1, "a device array of the exec keeps the arena"
    del last
    gc.collect()
    assert not device.live["allocations"]


def test_execs_take_turns_in_one_arena():
    device = gd.emulator()
    small, large = chain("small", 32), chain("large", 512)
    arena = arena_for(device, small, large)
    with small.instantiate(device, arena=arena) as one, large.instantiate(device, arena=arena) as two:
        for value in (1.0, 2.0):
            assert (ran(one, value) == 2 * value).all()
            assert (ran(two, value) == 2 * value).all()


def test_reading_after_another_exec_ran_is_refused_and_harms_nobody():
    device, g = gd.emulator(), chain()
    arena = arena_for(device, g)
    with g.instantiate(device, arena=arena) as one, g.instantiate(device, arena=arena) as two:
        ran(one, 1.0)
        ran(two, 2.0)
        with pytest.raises(gd.MemoryFault, match="another exec has had since"):
            one["last"].copy_to_host()
        assert (two["last"].copy_to_host() == 4.0).all()


def test_what_an_exec_left_is_undefined_once_another_one_has_run():
    device, g = gd.emulator(), chain()
    arena = arena_for(device, g)
    with g.instantiate(device, arena=arena) as one, g.instantiate(device, arena=arena) as two:
        ran(one, 1.0)
        one.launch()  # its own contents stay between its launches
        one.synchronize()
        ran(two, 2.0)
        one.launch()
        with pytest.raises(gd.MemoryFault, match="lies in an arena") as caught:
            one.synchronize()
        assert (caught.value.node, caught.value.field) == ("one", "first")


def test_other_sizes_of_the_same_memory_are_other_tenants():
    device = gd.emulator()
    small, large = chain("small", 32), chain("large", 512)
    arena = arena_for(device, small, large, more=256)
    part = arena.view(small.plan().nbytes_on(), np.uint8, offset=256)
    with large.instantiate(device, arena=arena) as one, small.instantiate(device, arena=part) as two:
        ran(one, 1.0)
        ran(two, 1.0)
        one.launch()
        with pytest.raises(gd.MemoryFault, match="lies in an arena"):
            one.synchronize()


def test_a_fault_names_the_array():
    g = gd.Graph("faulty")
    n = g.param("n", np.int32, default=8)
    x, y, out = (g.device_array(name, 8, np.float32, lifetime="persistent") for name in ("x", "y", "out"))
    g.memset(x, 0, name="clear") >> g.kernel(kernels.scale, grid=1, block=16, args=(x, y, 1.0, n)) >> g.memcpy(out, y)
    device = gd.emulator()
    with g.instantiate(device, arena=arena_for(device, g)) as exe:
        exe.update(n=16)
        exe.launch()
        with pytest.raises(gd.MemoryFault, match="scale") as caught:
            exe.synchronize()
        assert caught.value.argument in ("x", "y") or caught.value.field in ("x", "y")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda device, n: gd.device_array(device, n - 1, np.uint8), "needs"),
        (lambda device, n: gd.device_array(device, 2 * n, np.uint8).view(n, np.uint8, offset=128), "multiple of 256"),
        (lambda device, n: np.zeros(n, np.uint8), "elsewhere"),
        (lambda device, n: gd.device_array(gd.emulator(), n, np.uint8), "elsewhere"),
        (lambda device, n: "nonsense", "memory that can be found"),
    ],
)
def test_what_cannot_hold_the_arrays_is_refused_before_anything_is_made(made, said):
    device, g = gd.emulator(), chain()
    arena = made(device, g.plan().nbytes_on())
    before = device.live
    with pytest.raises(gd.GraphdslError, match=said) as caught:
        g.instantiate(device, arena=arena)
    assert caught.value.field == "arena"
    assert device.live == before


def test_a_closed_exec_lets_go_of_its_arena_without_a_collection():
    device, g = gd.emulator(), chain()
    arena = arena_for(device, g)
    exe = g.instantiate(device, arena=arena)
    gc.disable()
    try:
        ran(exe, 1.0)
        assert exe.plan.nbytes_on() == g.plan().nbytes_on()
        del arena
        assert device.live["allocations"] == 1
        exe.close()
        assert device.live["allocations"] == 0
    finally:
        gc.enable()


def test_a_clone_has_memory_of_its_own_or_another_arena():
    device, g = gd.emulator(), chain()
    arena, other = arena_for(device, g), arena_for(device, g)
    with g.instantiate(device, arena=arena) as exe, exe.clone() as alone, exe.clone(arena=other) as placed:
        assert placed.addresses["a"] - other.address == exe.addresses["a"] - arena.address
        assert not arena.address <= alone.addresses["a"] < arena.address + arena.nbytes
        assert (ran(exe, 1.0) == 2.0).all()
        assert (ran(placed, 2.0) == 4.0).all()
        assert (ran(alone, 3.0) == 6.0).all()
        assert (exe["last"].copy_to_host() == 2.0).all()


def test_a_whole_update_stays_in_the_arena_or_is_refused():
    device, g = gd.emulator(), chain()
    with g.instantiate(device, arena=arena_for(device, g)) as exe:
        ran(exe, 1.0)
        before = exe.addresses
        exe.update_from(chain("again"))
        assert exe.addresses == before
        assert (exe["first"].copy_to_host() == 1.0).all()
        more = chain("more")
        more.node("three") >> more.memset(more.operands["last"], 0, name="clear")
        assert exe.update_from(more, "reinstantiate").reinstantiated
        assert exe.addresses == before
        assert (exe["first"].copy_to_host() == 1.0).all(), "it is the same tenant"
        larger = chain("larger", 128)
        with pytest.raises(gd.UpdateError, match="instantiated with") as caught:
            exe.update_from(larger, "reinstantiate")
        assert caught.value.field == "arena"
        assert (ran(exe, 2.0) == 0.0).all()


def test_debug_runs_in_the_arena():
    device, g = gd.emulator(), chain()
    arena = arena_for(device, g)
    with g.instantiate(device, arena=arena) as one, g.instantiate(device, arena=arena) as two:
        ran(one, 1.0)
        two["first"].copy_from_host(np.ones(64, np.float32))
        assert two.debug().failed is None
        assert (two["last"].copy_to_host() == 2.0).all()
        ran(one, 1.0)
        assert two.debug().failed.node == "one"


def test_owners_and_a_stream_can_be_given():
    device = gd.emulator()
    old, new = (gd.to_device(device, np.full(8, value, np.float32)) for value in (1, 2))
    g = gd.Graph("copy")
    w, out = g.external("w", old), g.host_array("out", 8, np.float32)
    g.memcpy(out, w, name="store")
    stream = device.stream_create()
    with g.instantiate(device, owners={"w": new}, stream=stream) as exe:
        assert exe["w"] is new
        exe.launch()
        device.stream_synchronize(stream)
        assert (exe["out"] == 2).all()
    device.stream_destroy(stream)
    with pytest.raises(gd.UpdateError, match="wv"):
        g.instantiate(device, owners={"wv": new})
    with pytest.raises(gd.UpdateError, match="dtype"):
        g.instantiate(device, owners={"w": gd.to_device(device, np.zeros(8, np.int32))})
