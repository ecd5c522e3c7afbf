"""What planned arrays are to an exec: results are those of arrays that share nothing, and nobody sees the arrays."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cuda

import graphdsl as gd
from graphdsl.errors import MemoryFault, UpdateError
from tests.plan import programs
from tests.plan.programs import LENGTH, NAMES, Item


def launched(items: list[Item], lifetime: str, seed: int) -> tuple[list[list[int]], set[str]]:
    """What arrays that are not planned hold after two launches, and the names of those that are."""
    graph = programs.graph_of(items, lifetime)
    shared = graph.plan().planned.keys()
    found = []
    with graph.instantiate(gd.emulator(order="random", seed=seed)) as exe:
        for number, name in enumerate(NAMES):
            if name not in shared:
                exe[name].copy_from_host(np.arange(LENGTH, dtype=np.uint8) + 10 * number)
        for _ in range(2):
            exe.launch()
            found += [exe[name].copy_to_host().tolist() if name not in shared else [] for name in NAMES]
    return found, set(shared)


@settings(max_examples=150, deadline=None)
@given(programs.programs(), st.integers(0, 2**32))
def test_results_are_those_of_arrays_that_share_nothing(items, seed):
    found, shared = launched(items, "auto", seed)
    alone, none = launched(items, "persistent", seed)
    assert not none
    for place, (mine, expected) in enumerate(zip(found, alone, strict=True)):
        assert mine == expected or NAMES[place % len(NAMES)] in shared


def chain(length: int = 5, lifetime: str = "auto") -> gd.Graph:
    """From ``raw`` by way of ``a0``, ``a1`` … to ``out``."""
    graph = gd.Graph("chain")
    raw, out = (graph.host_array(name, 64, np.float32) for name in ("raw", "out"))
    arrays = [graph.device_array(f"a{i}", 64, np.float32, lifetime=lifetime) for i in range(length)]
    with graph.sequence():
        for number, (before, after) in enumerate(pairwise([raw, *arrays, out])):
            graph.memcpy(after, before, name=f"copy{number}")
    return graph


def ran(exe: gd.GraphExec, value: float) -> list[float]:
    exe["raw"][:] = value
    exe.launch()
    exe.synchronize()
    return exe["out"].tolist()


@pytest.fixture
def exe():
    with chain().instantiate(gd.emulator()) as made:
        yield made


def test_the_arena_has_the_planned_bytes(exe):
    (allocation,) = [call for call in exe.calls if call.function == "cuMemAlloc"]
    assert dict(allocation.fields)["bytes"] == 512
    assert ran(exe, 3) == [3] * 64
    assert exe.device.allocations[0][1] == 512


def test_a_planned_array_is_not_handed_out(exe):
    with pytest.raises(UpdateError, match="undefined") as caught:
        exe["a1"]
    assert (caught.value.field, caught.value.location) == ("a1", exe.plan.buffers["a1"].location)
    assert 'lifetime="persistent"' in caught.value.remedy
    with pytest.raises(UpdateError, match="only external"):
        exe.update(a1=np.zeros(64, np.float32))
    with pytest.raises(UpdateError, match="undefined"), exe.clone() as clone:
        clone["a1"]
    assert "a1" not in dir(exe)


def test_a_persistent_array_is(exe):
    with chain(lifetime="persistent").instantiate(gd.emulator()) as kept:
        ran(kept, 2)
        assert kept["a3"].copy_to_host().tolist() == [2] * 64


def test_without_sharing_all_arrays_are():
    with chain().instantiate(gd.emulator(), share_memory=False) as apart:
        ran(apart, 2)
        assert apart["a3"].copy_to_host().tolist() == [2] * 64
        assert not apart.update_from(chain()).reinstantiated
        with apart.clone() as clone:
            ran(clone, 3)
            assert clone["a3"].copy_to_host().tolist() == [3] * 64


def test_updates_let_nobody_use_a_planned_array_at_the_wrong_time(exe):
    node, arrays = exe.node("copy2"), exe.plan.buffers
    for fields, field, rule in (
        ({"source": arrays["a0"]}, "source", "'a0' is there for the nodes that were declared to use it"),
        ({"destination": arrays["a3"]}, "destination", "'a3' is there for"),
        ({"source": arrays["a1"][:32], "destination": arrays["a2"][:32]}, "destination", "node 'copy3' reads it, and"),
        ({"nbytes": 128}, "destination", "'a2' is undefined at the start of a launch, and then node 'copy3' reads it"),
    ):
        with pytest.raises(UpdateError, match=rule) as caught:
            node.update(**fields)
        assert (caught.value.node, caught.value.field) == ("copy2", field)
        assert ran(exe, 4) == [4] * 64
    node.update(source=arrays["a1"][:], destination=arrays["a2"][:])  # the same elements
    assert ran(exe, 5) == [5] * 64


def test_a_number_that_leaves_a_part_unwritten_is_refused():
    def some(x, y, factor, n):
        i = cuda.grid(1)
        if i < n:
            y[i] = factor * x[i]

    g = gd.Graph("some")
    raw, out = (g.host_array(name, 64, np.float32) for name in ("raw", "out"))
    y = g.device_array("y", 64, np.float32)
    run = g.kernel(some, grid=1, block=64, args=(raw, y, 2.0, 64), name="run")
    run >> g.memcpy(out, y, name="store")
    assert "y" in g.plan().planned
    with g.instantiate(gd.emulator()) as exe:
        exe.node("run").update(args={"factor": 3.0})
        assert ran(exe, 1) == [3] * 64
        with pytest.raises(UpdateError, match="'y' is undefined at the start of a launch"):
            exe.node("run").update(args={"n": 32})
        assert ran(exe, 1) == [3] * 64


def test_a_clone_has_an_arena_of_its_own(exe):
    with exe.clone() as clone:
        assert ran(exe, 1) == [1] * 64
        assert ran(clone, 2) == [2] * 64
        assert len(exe.device.allocations) == 2


def test_a_whole_update_keeps_the_places_if_the_plan_is_the_same(exe):
    ran(exe, 1)
    before = exe.device.allocations
    assert not exe.update_from(chain()).reinstantiated
    assert ran(exe, 2) == [2] * 64
    assert exe.device.allocations == before


def test_a_whole_update_to_another_plan_is_refused_or_allocates(exe):
    for other in (chain(lifetime="persistent"), crossed()):
        with pytest.raises(UpdateError, match="keeps the plan of memory") as caught:
            exe.update_from(other)
        assert caught.value.field.startswith("operand 'a")
        assert ran(exe, 2) == [2] * 64
    assert exe.update_from(crossed(), on_mismatch="reinstantiate").reinstantiated
    assert ran(exe, 6) == [6] * 64
    assert exe.update_from(chain(lifetime="persistent"), on_mismatch="reinstantiate").reinstantiated
    assert ran(exe, 7) == [7] * 64
    assert exe["a1"].copy_to_host().tolist() == [7] * 64
    assert exe.update_from(chain(), on_mismatch="reinstantiate").reinstantiated
    assert ran(exe, 8) == [8] * 64
    assert sum(nbytes for _, nbytes in exe.device.allocations) == 512


def crossed() -> gd.Graph:
    """The nodes and edges of `chain`, but the last one reads an array from farther up."""
    graph = gd.Graph("chain")
    raw, out = (graph.host_array(name, 64, np.float32) for name in ("raw", "out"))
    a = [graph.device_array(f"a{i}", 64, np.float32) for i in range(5)]
    pairs = [(raw, a[0]), (a[0], a[1]), (a[1], a[2]), (a[2], a[3]), (a[0], a[4]), (a[4], out)]
    with graph.sequence():
        for number, (before, after) in enumerate(pairs):
            graph.memcpy(after, before, name=f"copy{number}")
    return graph


def test_contents_do_not_outlive_a_launch(exe):
    ran(exe, 1)
    exe.disable("copy0")
    exe.launch()
    with pytest.raises(MemoryFault, match="never-written") as caught:
        exe.synchronize()
    assert (caught.value.node, caught.value.field) == ("copy1", "a0")
    assert 'lifetime="persistent"' in caught.value.remedy
    exe.enable("*")
    assert ran(exe, 2) == [2] * 64


def test_the_emulator_finds_arrays_that_overlap_wrongly(monkeypatch):
    """A planner that places every array at the start of the arena."""
    from graphdsl.plan import memory

    monkeypatch.setattr(memory, "placed", lambda sizes, *_: np.zeros_like(sizes))
    with crossed().instantiate(gd.emulator()) as wrong:
        wrong["raw"][:] = 1
        wrong.launch()
        with pytest.raises(MemoryFault, match="never-written") as caught:
            wrong.synchronize()
        assert caught.value.node in {"copy1", "copy2"}


def test_debug_runs_planned_arrays(exe):
    exe["raw"][:] = 9
    assert exe.debug().ok
    assert exe["out"].tolist() == [9] * 64


def test_memory_that_is_given_up_does_not_count_as_taken(monkeypatch):
    monkeypatch.setattr("graphdsl.drivers.emulator.memory.THIS_MACHINE_BYTES", 4096)
    graph = chain()
    scratch = graph.alloc("scratch", 64, np.float32)
    scratch >> graph.memset(scratch.array, 0) >> graph.free(scratch)
    with graph.instantiate(gd.emulator()) as made:
        for number in range(20):
            assert ran(made, number) == [number] * 64
