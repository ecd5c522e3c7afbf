from __future__ import annotations

import random
from contextlib import nullcontext
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphdsl as gd
from graphdsl.declare.definition import Definition
from graphdsl.plan import Plan, plan
from graphdsl.plan.levels import levels_of
from graphdsl.plan.memory import ALIGNMENT, plan_memory
from tests.plan import programs
from tests.plan.programs import Item

PLACES = st.tuples(st.integers(0, 5000), st.sampled_from([None, 0, 1]))


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), PLACES, max_size=8))
def test_arrays_that_share_nothing_are_aligned_and_never_overlap(places):
    definition = Definition()
    buffers = []
    for name, (size, device) in places.items():
        with nullcontext() if device is None else definition.on(device):
            buffers.append(definition.device_array(name, size, np.uint8))
    plans = plan_memory(*levels_of(definition), buffers)
    assert sorted(name for placed in plans.values() for name in placed.offsets) == sorted(places)
    for device, placed in plans.items():
        sizes = {buffer.name: max(buffer.allocation_nbytes, 1) for buffer in buffers if buffer.device == device}
        spans = sorted((placed.offsets[name], placed.offsets[name] + size) for name, size in sizes.items())
        assert all(start % ALIGNMENT == 0 for start, _ in spans)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
        assert all(end <= placed.nbytes for _, end in spans)


def test_only_device_memory_of_the_exec_is_placed():
    definition = Definition()
    definition.device_array("x", 4, np.float32)
    definition.host_array("h", 4, np.float32)
    definition.external("w", np.zeros(4, np.float32))
    definition.param("n", np.int32, default=1)
    assert set(plan(definition).memory[None].offsets) == {"x"}


def test_a_plan_is_a_snapshot():
    definition = Definition()
    first = definition.empty(name="first")
    made = plan(definition)
    definition.empty(name="second", after=first)
    definition.device_array("x", 4, np.float32)
    assert [node.name for node in made.nodes] == ["first"]
    assert made.edges.shape == (0, 2)
    assert made.buffers == {}


# Sharing


def touch0(): ...
def touch1(a): ...
def touch2(a, b): ...
def touch3(a, b, c): ...


TOUCH = (touch0, touch1, touch2, touch3)
PORTS = st.sampled_from([*[None] * 5, *["default"] * 3, "programmatic", "launch_order"])


@st.composite
def used(draw: st.DrawFn, most_nodes: int = 6) -> Definition:
    """Kernels that use some of a few arrays, which are all planned, and edges of every kind between them."""
    names = "abcdef"[: draw(st.integers(1, 6))]
    graph = Definition("used")
    arrays = [graph.device_array(name, draw(st.integers(1, 2000)), np.uint8, lifetime="launch") for name in names]
    nodes = []
    for number in range(draw(st.integers(1, most_nodes))):
        args = draw(st.lists(st.sampled_from(arrays), max_size=3, unique=True))
        nodes.append(graph.kernel(TOUCH[len(args)], grid=1, block=1, args=tuple(args), name=f"n{number}"))
    for before, after in combinations(nodes, 2):
        port = draw(PORTS)
        if port == "default":
            graph.edge(before, after)
        elif port is not None:
            graph.edge(before, after, programmatic=True, port=port)
    return graph


def runs(made: Plan, drawn: random.Random) -> list[tuple[str, int]]:
    """One way in which the nodes may start and end, as a device is free to do it.

    Behind a full edge a node starts when the one in front has ended. Behind a programmatic one it starts when that has
    started, and ends behind it. Behind a launch order it starts when that has started, and nothing else.
    """
    level = made.levels[0]
    before = {index: [] for index in range(len(made.nodes))}
    for (source, target), port in zip(level.edges.tolist(), level.ports.tolist(), strict=True):
        before[target].append((source, port))
    events: list[tuple[str, int]] = []
    ranks = [(what, node) for what in ("start", "end") for node in before]  # some are put off for long: no dice do that
    drawn.shuffle(ranks)
    started: set[int] = set()
    ended: set[int] = set()
    while len(ended) < len(made.nodes):
        may = [
            ("start", node)
            for node in before.keys() - started
            if all(source in (started if port else ended) for source, port in before[node])
        ]
        may += [
            ("end", node)
            for node in started - ended
            if all(source in ended for source, port in before[node] if port == 1)
        ]
        event = min(may, key=ranks.index)
        events.append(event)
        (started if event[0] == "start" else ended).add(event[1])
    return events


def live_together(made: Plan, events: list[tuple[str, int]]) -> set[tuple[str, str]]:
    """Pairs of arrays that were both there at some time: from the first start of a user to the last end."""
    spans = {}
    for name, place in made.planned.items():
        times = [time for time, (_, node) in enumerate(events) if made.nodes[node].name in place.users]
        if times:
            spans[name] = min(times), max(times)
    return {
        (one, other)
        for one, other in combinations(sorted(spans), 2)
        if spans[one][0] <= spans[other][1] and spans[other][0] <= spans[one][1]
    }


def overlapping(made: Plan) -> set[tuple[str, str]]:
    """Pairs of arrays that share bytes."""
    return {
        (one, other)
        for one, other in combinations(sorted(made.planned), 2)
        if made.planned[one].offset < made.planned[other].offset + made.planned[other].nbytes
        and made.planned[other].offset < made.planned[one].offset + made.planned[one].nbytes
    }


@settings(max_examples=200, deadline=None)
@given(used(), st.integers(0, 2**32))
def test_arrays_that_share_bytes_are_never_there_together(graph, seed):
    made, drawn = plan(graph), random.Random(seed)
    shared = overlapping(made)
    for _ in range(30):
        assert not shared & live_together(made, runs(made, drawn))


@settings(max_examples=20, deadline=None)
@given(used(most_nodes=40), st.integers(0, 2**32))
def test_arrays_of_larger_graphs_are_never_there_together(graph, seed):
    made, drawn = plan(graph), random.Random(seed)
    shared = overlapping(made)
    for _ in range(20):
        assert not shared & live_together(made, runs(made, drawn))


@settings(deadline=None)
@given(used())
def test_no_plan_is_below_the_lower_bound_and_the_bound_is_what_arrays_weigh_that_may_be_there_together(graph):
    memory = plan(graph).memory[None]
    assert memory.most_at_once <= memory.least_nbytes <= memory.peak_nbytes <= memory.sum_nbytes
    conflicts = np.unpackbits(memory.lived.conflicts(), axis=1, bitorder="little")
    sizes = [memory.places[array.name].nbytes for array in memory.lived.arrays]
    heaviest = max(
        sum(sizes[i] for i in chosen)
        for count in range(len(sizes) + 1)
        for chosen in combinations(range(len(sizes)), count)
        if all(conflicts[i, j] for i, j in combinations(chosen, 2))
    )
    assert memory.least_nbytes == heaviest
    assert memory.peak_nbytes % ALIGNMENT == 0
    assert all(place.offset % ALIGNMENT == 0 for place in memory.planned.values())


@settings(deadline=None)
@given(programs.programs(), st.integers(0, 2**32))
def test_the_order_of_declaration_changes_no_place(items: list[Item], seed):
    one, other = (programs.graph_of(items, drawn=each) for each in (None, random.Random(seed)))
    assert [plan(one).memory[None].places] == [plan(other).memory[None].places]


def test_a_chain_takes_what_its_largest_neighbours_take():
    drawn = random.Random(1)
    graph = Definition("chain")
    arrays = [graph.device_array(f"a{i:03}", drawn.randrange(1, 5000), np.uint8) for i in range(200)]
    with graph.sequence():
        for before, after in pairwise(arrays):
            graph.memcpy(after, before, nbytes=1)
        graph.memset(arrays[-1], 0)
    memory = plan(graph).memory[None]
    whole = [array.name for array in arrays if array.name in memory.planned]
    assert memory.peak_nbytes == memory.least_nbytes == memory.most_at_once
    assert 2 * memory.peak_nbytes < memory.sum_nbytes
    assert len(whole) == 198


def test_each_device_has_an_arena_and_order_is_of_the_whole_graph():
    graph = Definition("two")
    arrays = {}
    for device in (0, 1):
        with graph.on(device):
            for name in "abcd":
                arrays[name, device] = graph.device_array(f"{name}{device}", 1024, np.uint8)
    path = [arrays[name, device] for name in "abcd" for device in (0, 1)]
    with graph.sequence():
        for before, after in pairwise(path):
            graph.memcpy(after, before)
    first, second = (plan(graph).memory[device] for device in (0, 1))
    assert set(first.planned) == {"b0", "c0", "d0"}
    assert set(second.planned) == {"a1", "b1", "c1"}
    assert first.peak_nbytes == second.peak_nbytes == 1024


def test_rows_with_a_pitch_take_their_gaps_along():
    graph = Definition("pitched")
    out = graph.host_array("out", (3, 10), np.float32)
    images = [graph.device_array(name, (3, 10), np.float32, pitch="auto", lifetime="launch") for name in "ab"]
    for image in images:
        graph.memset(image, 1) >> graph.memcpy(out, image)
    memory = plan(graph).memory[None]
    assert [memory.places[name].nbytes for name in "ab"] == [1280, 1280]
    assert memory.peak_nbytes == 2560


def test_what_a_loop_uses_it_uses_from_its_beginning_to_its_end():
    graph = gd.Graph("loop")
    a, b, c, d = (graph.device_array(name, 256, np.float32, lifetime="launch") for name in "abcd")
    before = graph.memset(a, 0, name="before")
    with graph.while_(graph.condition("more", default=1), name="loop", after=before) as body, body.sequence():
        body.memset(b, 0, name="first")
        body.memset(c, 0, name="second")
    graph.memset(d, 0, name="after", after=graph.node("loop"))
    made = plan(graph)
    memory = made.memory[None]
    assert memory.planned["b"].users == memory.planned["c"].users == ("loop",)
    assert ("b", "c") not in overlapping(made)
    assert ("a", "d") in overlapping(made)
    assert memory.peak_nbytes == memory.least_nbytes == 2048
    assert made.steps == ("before", "loop", "loop/first", "loop/second", "after")
    assert made.times == {"a": (0,), "b": (1, 3), "c": (1, 3), "d": (4,)}


def test_bodies_of_one_condition_are_concurrent():
    graph = gd.Graph("branch")
    a, b = (graph.device_array(name, 256, np.float32, lifetime="launch") for name in "ab")
    branch = graph.if_(graph.condition("large", default=1), name="branch")
    branch.bodies[0].memset(a, 0)
    branch.otherwise.memset(b, 0)
    assert not overlapping(plan(graph))


def test_steps_go_into_bodies():
    graph = gd.Graph("nested")
    with graph.sequence():
        graph.empty(name="a")
        branch = graph.if_(graph.condition("large", default=1), name="b")
        graph.empty(name="c")
    branch.bodies[0].empty(name="inside")
    branch.otherwise.empty(name="otherwise")
    assert plan(graph).steps == ("a", "b", "b/then/inside", "b/otherwise/otherwise", "c")


@pytest.mark.parametrize("unused", ["launch", "auto", "persistent"])
def test_an_array_that_nothing_uses_has_a_place(unused):
    graph = Definition("unused")
    graph.device_array("x", 0, np.float32, lifetime=unused)
    memory = plan(graph).memory[None]
    assert (memory.offsets, memory.nbytes) == ({"x": 0}, ALIGNMENT)
    assert memory.least_nbytes == memory.peak_nbytes == (ALIGNMENT if unused == "launch" else 0)


def test_the_peak_is_known_before_anything_is_allocated():
    graph = gd.Graph("large")
    arrays = [graph.device_array(f"a{i}", 2**40, np.uint8) for i in range(5)]
    raw, out = (graph.external(name, np.zeros(1, np.uint8)) for name in ("raw", "out"))
    with graph.sequence():
        graph.memcpy(arrays[0], raw, nbytes=1)
        for before, after in pairwise(arrays):
            graph.memset(after, 0)
            graph.memcpy(after, before, nbytes=1)
        graph.memcpy(out, arrays[-1], nbytes=1)
    memory = graph.plan().memory[None]
    assert memory.peak_nbytes == 2 * 2**40
    assert memory.nbytes == 2 * 2**40
