"""Dead-node elimination: what is dropped, what is kept, and what still orders what is left."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cuda

import graphdsl as gd


@cuda.jit
def half(x, y):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = x[i] / 2


@cuda.jit
def decide(x, handle):
    gd.device.set_condition(handle, x[0] > 0)


def _declared(*names):
    g = gd.Graph("demo")
    return g, *(g.device_array(name, 8, np.float32) for name in names)


def _half(g, x, y, name):
    return g.kernel(half, grid=1, block=8, args=(x, y), name=name)


def _without_dead(g, *outputs):
    made, changes = gd.passes.eliminate_dead(g, outputs)
    made.check().raise_for_errors()
    return made, changes


def test_what_an_output_follows_from_is_kept_and_all_else_dropped():
    g, x, y, t, log = _declared("x", "y", "t", "log")
    unused = g.param("unused", np.int32, default=1)
    with g.sequence():
        g.memset(x, 1.0, name="clear")
        _half(g, x, t, "first")
        _half(g, t, y, "second")
        trace = _half(g, t, log, "trace")
        g.memcpy(g.host_array("trace_out", 8, np.float32), log[: unused * 8], nbytes=unused, name="save")
        g.memcpy(g.host_array("out", 8, np.float32), y, name="store")
    made, changes = _without_dead(g, "out")
    assert list(made.dag.edges) == [("clear", "first"), ("first", "second"), ("second", "store")]
    assert list(made.operands) == ["x", "y", "t", "out"]
    assert changes.of("node dropped") == [("trace",), ("save",)]
    assert sorted(changes.of("operand dropped")) == [("log",), ("trace_out",), ("unused",)]
    assert f"node dropped: trace ({__file__}:{trace.location[1]}): out follows from nothing in log" in str(changes)


def test_a_later_node_that_the_next_launch_reads_is_kept():
    g, x, y, state = _declared("x", "y", "state")
    _ = _half(g, state, y, "use") >> g.memcpy(state, x, name="remember")
    made, changes = _without_dead(g, "y")
    assert len(made.nodes) == 2
    assert not changes.of("node dropped")


def test_what_does_more_than_write_is_kept():
    g, x, y, z = _declared("x", "y", "z")
    scratch = g.alloc("scratch", 8, np.float32)
    flags = g.host_array("flags", 2, np.uint32)
    seen = g.host_array("seen", 8, np.float32)
    kernel = gd.cuda_source('extern "C" __global__ void poke(float* p) { p[0] = 1; }', name="poke")
    acting = [
        scratch,
        g.host(print, (seen,), name="tell"),
        g.record(g.event("done")),
        g.batch_mem_ops([gd.write_value(flags[0], 1)], may_deadlock=True),
        g.kernel(kernel, grid=1, block=1, args=(z,), name="poke"),
        g.free(scratch),
    ]
    known = g.kernel(kernel, grid=1, block=1, args=(x,), reads=(), writes=("p",), name="known")
    feeds = g.memcpy(seen, x, name="feeds")
    _ = known >> feeds >> acting[1]
    _ = scratch >> acting[-1]
    pointless = g.memset(y, 0, name="pointless")
    _ = pointless >> acting[-1]
    lone = g.memset(g.device_array("w", 8, np.float32), 0, name="lone")
    made, changes = gd.passes.eliminate_dead(g, ["z"])
    assert {node.name for node in acting} | {"known", "feeds"} == set(made.dag)
    assert changes.of("node dropped") == [(pointless.name,), (lone.name,)]


def test_kernels_whose_code_does_not_show_count_for_both():
    def build(**touches):
        g, x, y = _declared("x", "y")
        source = gd.cuda_source('extern "C" __global__ void step(float* p, float* q) {}', name="step")
        g.kernel(source, grid=1, block=1, args=(x, y), name="step", **touches)
        return list(gd.passes.eliminate_dead(g, "x")[0].dag)

    assert build() == ["step"]
    assert build(reads="p", writes="q") == []
    assert build(reads="q", writes="p") == ["step"]


def test_conditional_nodes_are_kept_with_what_decides_them():
    g, x, y, z = _declared("x", "y", "z")
    flag, other = g.condition("flag", default=0), g.condition("other", default=0)
    fill = g.memset(x, 1.0, name="fill")
    sets = g.kernel(decide, grid=1, block=1, args=(x, flag), name="sets")
    branch = g.if_(flag, name="branch")
    branch.bodies[0].memset(y, 1.0, name="yes")
    branch.otherwise.memset(z, 1.0, name="no")
    _ = fill >> sets >> branch
    sets_other = g.kernel(decide, grid=1, block=1, args=(x, other), name="sets_other")
    dead = g.if_(other, name="dead")
    dead.bodies[0].memset(z, 2.0, name="never")
    _ = fill >> sets_other >> dead
    made, changes = _without_dead(g, "y")
    assert [node.name for node in made.all_nodes] == ["fill", "sets", "branch", "branch/then/yes"]
    assert changes.of("operand dropped") == [("z",), ("other",)]
    assert "dead" in {name for (name,) in changes.of("node dropped")}


def test_a_child_is_kept_as_far_as_something_in_it_is_needed():
    inner, x, y, z = _declared("x", "y", "z")
    _ = _half(inner, x, y, "needed") >> _half(inner, x, z, "not_needed")
    g, a, b = _declared("a", "b")
    _ = g.memset(a, 1.0, name="fill") >> g.child(inner, {"x": a, "y": b}, name="one") >> g.child(inner, name="two")
    made, changes = _without_dead(g, "b")
    assert [node.name for node in made.all_nodes] == ["fill", "one", "one/needed"]
    assert changes.of("operand dropped") == [("one/z",), ("two/x",), ("two/y",), ("two/z",)]


def test_order_goes_on_where_a_dropped_node_was():
    g, x, y, z = _declared("x", "y", "z")
    _ = g.memset(x, 1.0, name="a") >> g.memset(z, 0.0, name="gone") >> g.empty(name="bar") >> _half(g, x, y, "b")
    _ = g.node("bar") >> g.memset(z, 2.0, name="end")
    made, _ = _without_dead(g, "y")
    assert list(made.dag.edges) == [("a", "bar"), ("bar", "b")]


def test_a_barrier_stands_where_a_dropped_node_ordered_many():
    g = gd.Graph("demo")
    arrays = [g.device_array(f"x{index}", 8, np.float32) for index in range(6)]
    gone = g.memset(g.device_array("z", 8, np.float32), 0.0, name="gone")
    first = [g.memset(array, 1.0) for array in arrays[:3]]
    last = [g.memset(array, 1.0) for array in arrays[3:]]
    _ = first >> gone >> last
    made, changes = _without_dead(g, *(array.name for array in arrays))
    assert made.node("gone").kind == "empty"
    assert made.node("gone").location == gone.location
    assert len(made.dag.edges) == 6
    assert changes.of("node emptied") == [("gone",)]


@given(st.data())
@settings(deadline=None)
def test_living_nodes_are_ordered_as_before(data):
    g = gd.Graph("random")
    count = data.draw(st.integers(2, 10))
    wanted = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    nodes = [
        g.memset(g.device_array(f"{'out' if keep else 'tmp'}{index}", 4, np.float32), 0.0, name=f"n{index}")
        if keep is not None
        else g.empty(name=f"n{index}")
        for index, keep in enumerate(None if data.draw(st.booleans()) and not keep else keep for keep in wanted)
    ]
    for before, after in itertools.combinations(nodes, 2):
        if data.draw(st.integers(0, 2)) == 0:
            _ = before >> after
    outputs = [name for name in g.operands if name.startswith("out")]
    if not outputs:
        return
    made, changes = gd.passes.eliminate_dead(g, outputs)
    living = {f"n{name[3:]}" for name in outputs}
    assert living <= set(made.dag)
    before, after = (nx.transitive_closure(each.to_networkx()) for each in (g, made))
    for one, other in itertools.permutations(living, 2):
        assert before.has_edge(one, other) == after.has_edge(one, other)
    left = {node.name for node in made.nodes} - living
    assert all(made.node(name).kind == "empty" for name in left)
    assert all(before.has_edge(one, other) for one, other in after.edges)
    dropped = {name for (name,) in changes.of("node dropped")}
    assert dropped == set(g.dag) - set(made.dag)


def test_external_memory_that_overlaps_is_one():
    memory = np.zeros(16, np.float32)
    g, x, y = _declared("x", "y")
    low, both, apart = (g.external(name, part) for name, part in zip(("low", "both", "apart"), _parts(memory)))
    write = g.memcpy(low, x, name="write")
    read = g.memcpy(y, both, name="read")
    _ = write >> read >> g.memcpy(apart, x, name="elsewhere")
    made, _ = _without_dead(g, "y")
    assert list(made.dag) == ["write", "read"]


def _parts(memory):
    return memory[:8], memory[4:12], memory[12:]


@pytest.mark.parametrize(
    ("outputs", "field"), [([], "outputs"), (["nothing"], "outputs"), ("n", "outputs"), (["x", "n"], "outputs")]
)
def test_outputs_are_arrays_of_the_graph(outputs, field):
    g, x = _declared("x")
    g.param("n", np.int32, default=1)
    g.memset(x, 0)
    with pytest.raises(gd.DeclarationError) as problem:
        gd.passes.eliminate_dead(g, outputs)
    assert problem.value.field == field
    assert problem.value.remedy
