"""What must hold for any graph: order, independence of declaration order, and agreement of check and emulator."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphdsl as gd
from graphdsl.plan import plan
from graphdsl.run.graph_exec import GraphExec
from tests.conformance import kernels

SLOW = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])


@dataclass(frozen=True)
class NodePlan:
    """A node to declare: its name, what it comes after, and how."""

    name: str
    after: tuple[str, ...]
    declare: Callable[[gd.Graph, str], gd.Node]


def _kernel(block: int) -> Callable[[gd.Graph, str], gd.Node]:
    def declare(g: gd.Graph, name: str) -> gd.Node:
        x, n = g.operands["x"], g.operands["n"]
        return g.kernel(kernels.add_to, grid=gd.cdiv(n, block), block=block, args=(x, 1.0, n), name=name)

    return declare


KINDS: list[Callable[[gd.Graph, str], gd.Node]] = [
    _kernel(32),
    _kernel(64),
    lambda g, name: g.memset(g.operands["x"], 0, name=name),
    lambda g, name: g.memcpy(g.operands["x"], g.operands["h"], name=name),
    lambda g, name: g.empty(name=name),
    lambda g, name: g.host(print, name=name),
]


@st.composite
def node_plans(draw: st.DrawFn) -> list[NodePlan]:
    names = draw(st.lists(st.text("abcxyz", min_size=1, max_size=3), unique=True, min_size=1, max_size=8))
    return [
        NodePlan(
            name,
            tuple(draw(st.lists(st.sampled_from(names[:i]), unique=True))) if i else (),
            draw(st.sampled_from(KINDS)),
        )
        for i, name in enumerate(names)
    ]


def graph_of(plans: list[NodePlan]) -> gd.Graph:
    g = gd.Graph("random")
    g.param("n", np.int32, default=100)
    g.device_array("x", 128, np.float32)
    g.host_array("h", 128, np.float32)
    for node in plans:
        node.declare(g, node.name)
    for node in plans:
        g.edge([g.node(name) for name in node.after], g.node(node.name))
    g.independent(g.nodes, g.nodes, why="this is about calls")
    return g


@SLOW
@given(node_plans(), st.randoms(use_true_random=False))
def test_calls_are_topological_and_know_no_declaration_order(plans, random):
    with graph_of(plans).instantiate(gd.emulator()) as exe:
        calls = [str(call) for call in exe.calls]
        added = [
            call.subject for call in exe.calls if call.function.startswith("cuGraphAdd") and "Node" in call.function
        ]
    place = {name: i for i, name in enumerate(added)}
    declared = {plan.name for plan in plans}
    assert sorted(name for name in added if name in declared) == sorted(declared)
    assert len(added) - len(declared) <= 2, "the planner puts no more than a node before all others and one behind"
    assert all(place[before] < place[plan.name] for plan in plans for before in plan.after)
    random.shuffle(plans)
    with graph_of(plans).instantiate(gd.emulator()) as exe:
        assert [str(call) for call in exe.calls] == calls


@st.composite
def doubtful_graphs(draw: st.DrawFn) -> gd.Graph:
    """Graphs that may break rules of the driver: sizes, limits, slices, patterns, cycles."""
    g = gd.Graph("doubtful")
    n = g.param("n", np.int64, default=draw(st.integers(-2, 70)))
    size = draw(st.integers(1, 40))
    dtype = draw(st.sampled_from([np.uint8, np.float32, np.float64]))
    x, h = g.device_array("x", size, dtype), g.host_array("h", draw(st.integers(1, 40)), dtype)
    bound = draw(st.sampled_from([n, 1, size, 50]))
    nodes: list[Any] = [
        g.kernel(
            kernels.scale,
            grid=draw(st.sampled_from([n, 1, (1, n), (2, 70000)])),
            block=draw(st.sampled_from([n, 32, 1024, 1025, (8, 8, 65)])),
            args=(x, x[:bound], draw(st.sampled_from([1.0, 2])), n),
            shared_bytes=draw(st.sampled_from([0, n, 50_000, 240_000])),
        ),
        g.memcpy(x[:bound], h[:bound]),
        g.memcpy(h, x, nbytes=draw(st.sampled_from([n, 4, 160]))),
        g.memset(x[:bound], draw(st.sampled_from([0, 1, 300, -1]))),
    ]
    for source, target in draw(st.lists(st.tuples(st.sampled_from(nodes), st.sampled_from(nodes)), max_size=4)):
        g.edge(source, target)
    kept = draw(st.sets(st.sampled_from(range(4)), min_size=1))
    for i, node in enumerate(nodes):
        if i not in kept:
            g._dag.remove_node(node.name)
    return g


@SLOW
@given(doubtful_graphs())
def test_what_check_passes_the_emulator_builds_and_what_it_refuses_check_had_named(graph):
    report = graph.check()
    if not nx.is_directed_acyclic_graph(graph.dag):
        assert report.errors
        return  # there is no order to emit it in
    device = gd.emulator()
    refusal = None
    try:
        GraphExec(plan(graph), device, {}).close()  # past the checks: the driver itself is asked
    except gd.GraphdslError as problem:
        refusal = str(problem)  # the error itself would keep what its traceback refers to
    gc.collect()
    assert not any(device.live.values()), device.live
    if refusal is not None:
        assert report.errors, refusal
    if report.ok:
        graph.instantiate(device).close()


@st.composite
def slices_of(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[slice, ...]:
    """Of each dimension of an array some elements; as many of each as another draw with the same counts."""
    keys = []
    for extent in shape:
        start = draw(st.integers(0, extent - 1))
        keys.append(slice(start, draw(st.integers(start + 1, extent)), draw(st.integers(1, 3))))
    return tuple(keys)


@st.composite
def strided_pairs(draw: st.DrawFn) -> tuple[Any, ...]:
    """Two host arrays, C or Fortran, and a slice of each; the slices agree in shape."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    key = draw(slices_of(shape))
    part = np.empty(shape)[key].shape
    other = tuple(extent + draw(st.integers(0, 3)) for extent in part)
    starts = [draw(st.integers(0, whole - extent)) for whole, extent in zip(other, part, strict=True)]
    other_key = tuple(slice(start, start + extent) for start, extent in zip(starts, part, strict=True))
    dtype = draw(st.sampled_from([np.uint8, np.int16, np.float32, np.complex128]))
    orders = [draw(st.sampled_from("CF")) for _ in range(2)]
    arrays = [
        np.arange(1, np.prod(each) + 1).reshape(each).astype(dtype, order=order)
        for each, order in zip((shape, other), orders, strict=True)
    ]
    pairs = [(arrays[0], key), (arrays[1], other_key)]
    return tuple(pairs if draw(st.booleans()) else pairs[::-1])


@SLOW
@given(strided_pairs())
def test_a_strided_copy_does_what_numpy_does(pair):
    (target, to), (source, key) = pair
    g = gd.Graph("strided")
    g.memcpy(g.external("target", target)[to], g.external("source", source)[key])
    expected = target.copy()
    expected[to] = source[key]
    report = g.check()
    if report.errors:
        assert {each.code for each in report.errors} <= {"GD306", "GD322", "GD324"}
        return
    with g.instantiate(gd.emulator()) as exe:
        exe.launch()
        exe.synchronize()
    np.testing.assert_array_equal(target, expected)


@SLOW
@given(st.data())
def test_a_strided_memset_does_what_numpy_does(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    key, dtype = data.draw(slices_of(shape)), data.draw(st.sampled_from([np.uint8, np.int16, np.float32, np.complex64]))
    g = gd.Graph("fill")
    x, out = g.device_array("x", shape, dtype), g.host_array("out", shape, dtype)
    with g.sequence():
        g.memset(x, 0)
        g.memset(x[key], 3 + 3j if dtype is np.complex64 else 3)
        g.memcpy(out, x)
    report = g.check()
    if report.errors:
        assert {each.code for each in report.errors} == {"GD323"}
        return
    expected = np.zeros(shape, dtype)
    expected[key] = 3 + 3j if dtype is np.complex64 else 3
    with g.instantiate(gd.emulator()) as exe:
        exe.launch()
        exe.synchronize()
        np.testing.assert_array_equal(exe["out"], expected)
