"""Lanes and ends change how a graph is launched, and nothing that it does."""

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numba import cuda

import graphdsl as gd
from graphdsl.errors import UpdateError
from graphdsl.plan import plan
from graphdsl.plan.costs import Costs
from graphdsl.run.graph_exec import GraphExec

COUNT = 40
WAYS = (None, "auto", 1, 3, 16)


@cuda.jit
def gather(x, before, row):
    """``x[row]`` is its own number, and what the rows hold that are before it."""
    i = cuda.threadIdx.x
    total = np.float32(row)
    for k in range(before.shape[1]):
        if before[row, k]:
            total += x[k, i]
    x[row, i] = total


@cuda.jit
def scale(x, gain):
    i = cuda.threadIdx.x
    x[i] = x[i] * gain + 1


def rows(edges=(), count=COUNT, gain_default=2.0, host=False):
    """Kernels that scale a row each, behind a memset of it; and edges between the kernels."""
    graph = gd.Graph("rows")
    gain = graph.param("gain", np.float32, default=gain_default)
    x = graph.device_array("x", (count, 8), np.float32)
    flag = graph.host_array("flag", 8, np.float32)
    made = []
    for index in range(count):
        clear = graph.memset(x[index], index % 5, name=f"clear{index:02}")
        array = flag if host and not index else x[index]
        made.append(graph.kernel(scale, grid=1, block=8, args=(array, gain), name=f"scale{index:02}", after=clear))
    for source, target in edges:
        made[source] >> made[target]
    return graph


def expected(gain, count=COUNT):
    return np.repeat((np.arange(count) % 5 * gain + 1)[:, None], 8, axis=1).astype(np.float32)


@pytest.mark.parametrize("lanes", WAYS)
def test_results_are_the_same(device, lanes):
    with rows([(0, 7), (7, 9), (3, 9)]).instantiate(device, lanes=lanes) as exe:
        exe["flag"][:] = 0
        exe.launch()
        np.testing.assert_array_equal(exe["x"].copy_to_host(), expected(2))
        exe.update(gain=3.0)
        exe.launch()
        np.testing.assert_array_equal(exe["x"].copy_to_host(), expected(3))
        exe.node("scale05").disable()
        exe.launch()
        assert exe["x"].copy_to_host()[5, 0] == 0
        exe.node("scale05").enable()
        exe.node("scale05").update(args={"gain": 9.0})
        exe.launch()
        assert exe["x"].copy_to_host()[6, 0] == expected(3)[6, 0]


def test_what_was_added_is_seen_in_the_calls_and_said(device):
    with rows().instantiate(device, lanes=4) as exe:
        said = {call.subject: str(call) for call in exe.calls if call.function == "cuGraphAddDependencies"}
        assert set(said) == {"rows", "rows, planned"}
        for source, target in exe.lanes.edges:
            assert f"{source} -> {target}" in said["rows, planned"]
        assert exe.lanes.width == 4
    with rows().instantiate(device) as exe:
        assert exe.lanes.ends == (True, True)
        assert "begin -> clear00" in next(str(call) for call in exe.calls if call.subject == "rows, planned")
    with rows().instantiate(device, lanes=None) as exe:
        assert not [call for call in exe.calls if "planned" in call.subject]


@pytest.mark.parametrize("lanes", WAYS)
def test_a_clone_has_the_same_lanes(device, lanes):
    with rows().instantiate(device, lanes=lanes) as exe:
        exe.update(gain=4.0)
        exe.disable("scale03")
        with exe.clone() as other:
            assert other.lanes.edges == exe.lanes.edges
            other["flag"][:] = 0
            other.launch()
            found = other["x"].copy_to_host()
    assert found[3, 0] == 3
    np.testing.assert_array_equal(found[4:], expected(4)[4:])


@pytest.mark.parametrize("lanes", WAYS)
def test_a_whole_update_keeps_the_lanes(device, lanes):
    durations = None if lanes is None else {"scale00": 20.0}
    with rows().instantiate(device, lanes=lanes, durations=durations) as exe:
        edges, ends = exe.lanes.edges, exe.lanes.ends
        done = exe.update_from(rows(gain_default=7.0))
        assert not done.reinstantiated
        assert (exe.lanes.edges, exe.lanes.ends) == (edges, ends)
        exe["flag"][:] = 0
        exe.launch()
        np.testing.assert_array_equal(exe["x"].copy_to_host(), expected(7))


def test_a_graph_with_other_edges_is_planned_anew(device):
    with rows().instantiate(device, lanes=4) as exe:
        with pytest.raises(UpdateError, match="keeps the edges") as refusal:
            exe.update_from(rows([(0, 1)]))
        assert refusal.value.field == "edge scale00 -> scale01"
        done = exe.update_from(rows([(0, 1)]), on_mismatch="reinstantiate")
        assert done.reinstantiated
        assert [mismatch.field for mismatch in done.mismatches] == ["edge scale00 -> scale01"]
        assert exe.lanes.width == 4
        exe["flag"][:] = 0
        exe.launch()
        np.testing.assert_array_equal(exe["x"].copy_to_host(), expected(2))


def test_lanes_that_would_close_a_cycle_are_not_kept(device):
    """The long one goes first on the lane; then it is declared to be behind another, which is the order of names."""
    with rows().instantiate(device, lanes=1, durations={"scale05": 50.0}) as exe:
        assert "scale00" in nx.descendants(nx.DiGraph(exe.lanes.edges), "scale05")
        done = exe.update_from(rows([(0, 5)]), on_mismatch="reinstantiate")
        assert done.reinstantiated
        exe["flag"][:] = 0
        exe.launch()
        np.testing.assert_array_equal(exe["x"].copy_to_host(), expected(2))


def test_a_graph_with_other_nodes_is_planned_anew(device):
    with rows().instantiate(device) as exe:
        done = exe.update_from(rows(count=4), on_mismatch="reinstantiate")
        assert done.reinstantiated
        assert not {"begin", "end"} & {mismatch.node for mismatch in done.mismatches}
        assert exe.lanes.ends == (False, False)


def test_a_node_that_others_wait_for_must_go_on_to_end_surely(device):
    """Its memory is shared with the host now, and it may wait for what comes behind it on its lane."""
    with rows().instantiate(device, lanes=1) as exe:
        assert "scale00" in {source for source, _ in exe.lanes.edges}
        with pytest.raises(UpdateError, match="may wait itself now") as refusal:
            exe.update_from(rows(host=True))
        assert refusal.value.field == "lanes"
        exe.update_from(rows(host=True), on_mismatch="reinstantiate")
        assert "scale00" not in {source for source, _ in exe.lanes.edges}


def test_a_node_that_others_wait_for_is_given_no_memory_of_the_host(device):
    graph = rows(count=4, host=True)
    with graph.instantiate(device, lanes=1) as exe:
        assert "scale01" in {source for source, _ in exe.lanes.edges}
        flag = graph.operands["flag"]
        with pytest.raises(UpdateError, match="by the plan of the lanes") as refusal:
            exe.node("scale01").update(args={"x": flag})
        assert (refusal.value.node, refusal.value.field) == ("scale01", "args")
    with graph.instantiate(device, lanes=None) as exe:
        exe.node("scale01").update(args={"x": flag})


def test_bodies_of_conditions_and_children(device):
    graph = gd.Graph()
    x = graph.device_array("x", (COUNT, 8), np.float32)
    inner = gd.Graph("inner")
    y = inner.device_array("y", (COUNT, 8), np.float32)
    body = graph.if_(graph.condition("yes", default=1), name="branch").bodies[0]
    for index in range(COUNT):
        body.memset(x[index], index, name=f"set{index:02}")
        inner.memset(y[index], index, name=f"set{index:02}")
    z = graph.device_array("z", (COUNT, 8), np.float32)
    graph.child(inner, {"y": z}, name="child")
    for lanes in WAYS:
        with graph.instantiate(device, lanes=lanes) as exe:
            exe.launch()
            for name in "xz":
                np.testing.assert_array_equal(exe[name].copy_to_host()[:, 3], np.arange(COUNT))
    assert plan(graph, lanes="auto").lanes.levels[1].ends == (True, True)


def test_memory_that_the_graph_allocates(device):
    graph = gd.Graph()
    out = graph.device_array("out", (COUNT, 8), np.float32)
    for index in range(COUNT):
        alloc = graph.alloc(f"a{index:02}", 8, np.float32)
        fill = graph.memset(alloc.array, index, name=f"fill{index:02}")
        copy = graph.memcpy(out[index], alloc.array, name=f"copy{index:02}")
        alloc >> fill >> copy >> graph.free(alloc)
    for lanes in WAYS:
        with graph.instantiate(device, lanes=lanes) as exe:
            exe.launch()
            np.testing.assert_array_equal(exe["out"].copy_to_host()[:, 0], np.arange(COUNT))


def test_node_by_node_and_imported(device):
    with rows().instantiate(device, lanes=4) as exe:
        exe["flag"][:] = 0
        assert exe.debug().ok
        np.testing.assert_array_equal(exe["x"].copy_to_host(), expected(2))
        times = exe.debug().durations
        assert set(times) >= {node.name for node in rows().nodes}
        imported = gd.from_handle(exe)
    assert len(imported) >= 2 * COUNT


@given(
    st.sets(st.sampled_from(list(itertools.combinations(range(7), 2))), max_size=9),
    st.sampled_from([1, 2, 3, "auto"]),
)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_kernels_that_read_what_others_wrote(device, edges, lanes):
    """What each node writes follows from all that is before it: an order that is lost changes it."""
    graph = gd.Graph()
    x = graph.device_array("x", (7, 4), np.float32)
    before = graph.device_array("before", (7, 7), np.int32)
    nodes = [
        graph.kernel(gather, grid=1, block=4, args=(x, before, np.int32(index)), name=f"n{index}") for index in range(7)
    ]
    matrix = np.zeros((7, 7), np.int32)
    for source, target in edges:
        nodes[source] >> nodes[target]
        matrix[target, source] = 1
    found = []
    for way in (None, lanes):
        with GraphExec(plan(graph, lanes=way, costs=Costs(nothing=0.0)), device, {}) as exe:
            exe["x"].copy_from_host(np.full((7, 4), -100, np.float32))
            exe["before"].copy_from_host(matrix)
            exe.launch()
            found.append(exe["x"].copy_to_host())
    np.testing.assert_array_equal(*found)
    assert found[0].min() >= 0
