"""What `assert_order_independent` takes, starts from, compares and says."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from numba import cuda

import graphdsl as gd
from graphdsl.testing import TriedOrders


@cuda.jit
def add_one(total, value):
    cuda.atomic.add(total, 0, value)


@cuda.jit
def increase(x):
    i = cuda.grid(1)
    x[i] += 1


@cuda.jit
def out_of_bounds(x):
    x[x.size] = 1


@cuda.jit
def triggering(x, out):
    i = cuda.grid(1)
    gd.device.launch_dependents()
    out[i] = x[i] + 1


@cuda.jit
def waiting(y, out):
    i = cuda.grid(1)
    gd.device.grid_dependency_wait()
    out[i] = 2 * y[i]


@cuda.jit
def waiting_late(y, out):
    i = cuda.grid(1)
    early = y[i]
    gd.device.grid_dependency_wait()
    out[i] = early


def racing():
    """Two memsets of one array, and a copy to the host behind both."""
    g = gd.Graph("racing")
    x, out = g.device_array("x", 4, np.int32), g.host_array("out", 4, np.int32)
    one, two = g.memset(x[:3], 1, name="one"), g.memset(x[1:], 2, name="two")
    [one, two] >> g.memcpy(out, x, name="store")
    return g


def test_what_an_error_says():
    g = racing()
    with pytest.raises(AssertionError) as caught:
        gd.testing.assert_order_independent(g)
    problem = caught.value
    assert isinstance(problem, gd.OrderError)
    assert isinstance(problem, gd.GraphdslError)
    assert (problem.graph, problem.node, problem.nodes, problem.edge) == (
        "racing",
        "two",
        ("one", "two"),
        ("one", "two"),
    )
    assert problem.locations == (g.node("one").location, g.node("two").location)
    assert (problem.buffer, problem.index, problem.values, problem.output) == ("x", (1,), (2, 1), "x")
    assert problem.orders == (("one", "two", "store"), ("two", "one", "store"))
    assert problem.failures == (None, None)
    assert "x[1] is 2 after 'one' and 'two', and 1 the other way round" in str(problem)
    assert "Declare the edge one >> two" in str(problem)
    assert str(pickle.loads(pickle.dumps(problem))) == str(problem)


def test_what_the_user_says_of_two_nodes_is_tried_too():
    g = racing()
    g.independent(g.node("one"), g.node("two"), why="they write the same")  # which they do not
    with pytest.raises(gd.OrderError) as caught:
        gd.testing.assert_order_independent(g)
    assert caught.value.nodes == ("one", "two")


def test_what_a_node_does_beyond_what_it_says_is_found():
    g = gd.Graph("liar")
    x, out = g.host_array("x", 2, np.int32), g.host_array("out", 2, np.int32)

    def count(values):
        values += 1

    g.host(count, args=(x,), name="count", reads=[x], writes=[])
    g.memcpy(out, x, name="store")
    assert g.check().ok
    with pytest.raises(gd.OrderError) as caught:
        gd.testing.assert_order_independent(g, {"x": 0, "out": 0})
    assert caught.value.edge == ("count", "store")


def test_only_the_outputs_count():
    g = racing()
    y = g.device_array("y", 4, np.int32)
    g.memset(y, 0, name="other")
    assert gd.testing.assert_order_independent(g, outputs=["y"]) == TriedOrders(8, True)
    with pytest.raises(gd.OrderError) as caught:
        gd.testing.assert_order_independent(g, outputs=["y", "out"])
    assert (caught.value.buffer, caught.value.output) == ("x", "out")
    with pytest.raises(gd.DeclarationError, match="'z'"):
        gd.testing.assert_order_independent(g, outputs=["z"])


def test_memory_is_at_the_start_of_each_launch_what_it_was():
    g = gd.Graph("state")
    x, never = g.device_array("x", 2, np.int32), g.device_array("never", 2, np.int32)
    counter = np.zeros(1, np.int32)
    seen = g.external("seen", counter)
    g.kernel(increase, grid=1, block=2, args=(x,), name="increase")
    g.host(lambda seen: seen.__iadd__(1), args=(seen,), name="count")
    g.memset(never[:1], 0, name="half")
    assert gd.testing.assert_order_independent(g, {"x": 5, "seen": 3}) == TriedOrders(6, True)
    assert counter.tolist() == [0]


def test_what_nobody_has_written_differs_from_what_somebody_has():
    g = gd.Graph("late")
    x, y = g.device_array("x", 2, np.int32), g.device_array("y", 2, np.int32)
    g.memset(x, 1, name="set")
    g.memcpy(y, x, name="copy")
    with pytest.raises(gd.OrderError) as caught:
        gd.testing.assert_order_independent(g)
    problem = caught.value
    assert (problem.nodes, problem.edge, problem.buffer) == (("set", "copy"), ("set", "copy"), "x")
    assert problem.failures[0] is None
    assert isinstance(problem.failures[1], gd.MemoryFault)
    assert "with 'copy' first node 'copy' fails: read of never-written bytes" in str(problem)


def test_the_order_that_fails_is_not_the_one_to_keep():
    g = gd.Graph("early")
    x, y = g.device_array("x", 2, np.int32), g.device_array("y", 2, np.int32)
    g.memcpy(y, x, name="copy")
    g.memset(x, 1, name="set")
    with pytest.raises(gd.OrderError) as caught:
        gd.testing.assert_order_independent(g)
    assert caught.value.edge == ("set", "copy")


def test_a_node_that_fails_in_every_order_is_no_matter_of_order():
    g = gd.Graph("broken")
    x = g.device_array("x", 2, np.int32)
    g.kernel(out_of_bounds, grid=1, block=1, args=(x,), name="bad")
    g.empty(name="idle")
    with pytest.raises(gd.MemoryFault) as caught:
        gd.testing.assert_order_independent(g, {"x": 0})
    assert caught.value.node == "bad"


def test_an_exception_of_a_host_node_in_some_orders():
    g = gd.Graph("host")
    out = g.host_array("out", 1, np.int32)

    def require(values):
        if values[0] != 4:
            raise ValueError("not yet")

    g.memset(g.device_array("x", 1, np.int32), 4, name="set") >> g.memcpy(out, g.operands["x"], name="store")
    g.host(require, args=(out,), name="require")
    with pytest.raises(gd.OrderError) as caught:
        gd.testing.assert_order_independent(g, {"out": 0})
    problem = caught.value
    assert (problem.nodes, problem.edge, problem.buffer) == (("store", "require"), ("store", "require"), None)
    assert isinstance(problem.failures[1], gd.CallbackError)


def test_what_a_host_node_keeps_is_no_matter_of_order():
    g = gd.Graph("counting")
    out = g.host_array("out", 1, np.int32)
    numbers = itertools.count()

    def count(values):
        values[0] = next(numbers)

    g.host(count, args=(out,), name="count")
    g.memset(g.device_array("x", 1, np.int32), 4, name="set")
    with pytest.raises(gd.GraphdslError, match="two launches in one order") as caught:
        gd.testing.assert_order_independent(g)
    assert not isinstance(caught.value, AssertionError)


def test_sums_of_floats_may_differ_by_a_tolerance():
    g = gd.Graph("sum")
    total = g.device_array("total", 1, np.float32)
    zero = g.memset(total, 0, name="zero")
    for number, value in enumerate((1e8, 1.0, -1e8)):
        zero >> g.kernel(add_one, grid=1, block=1, args=(total, np.float32(value)), name=f"add{number}")
    with pytest.raises(gd.OrderError):
        gd.testing.assert_order_independent(g)
    assert gd.testing.assert_order_independent(g, atol=8) == TriedOrders(6, True)
    with pytest.raises(gd.OrderError):
        gd.testing.assert_order_independent(g, atol=0.5)


def test_values_of_params_are_those_that_are_given():
    g = gd.Graph("sizes")
    n = g.param("n", np.int64, default=1)
    x = g.device_array("x", 4, np.int32)
    g.memset(x[:n], 1, name="front")
    g.memset(x[2:], 2, name="back")
    gd.testing.assert_order_independent(g)
    with pytest.raises(gd.OrderError) as caught:
        gd.testing.assert_order_independent(g, values={"n": 3})
    assert caught.value.index == (2,)


def with_inputs():
    g = gd.Graph("inputs")
    g.param("n", np.int32, default=1)
    g.alloc("scratch", 4, np.int32) >> g.free(g.operands["scratch"])
    fixed = np.arange(4, dtype=np.int32)
    fixed.flags.writeable = False
    g.memcpy(g.host_array("out", 4, np.int32), g.external("fixed", fixed), name="read")
    g.memset(g.device_array("x", (2, 3), np.uint8), 0, name="set")
    return g


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("n", 3, "is not there before it"),
        ("nothing", 3, "is not there before it"),
        ("scratch", 3, "is not there before it"),
        ("fixed", 3, "may not be written"),
        ("out", [1, 2], "cannot hold it"),
        ("out", 1.5, "1.5 is none of its values"),
        ("x", 256, "256 is none of its values"),
        ("x", 1j, "complex"),
        ("x", "text", "cannot hold it"),
        ("x", [1, 2], "cannot hold it"),
    ],
)
def test_inputs_that_no_array_can_hold(name, value, said):
    with pytest.raises(gd.DeclarationError, match=said) as caught:
        gd.testing.assert_order_independent(with_inputs(), {name: value})
    assert caught.value.field == f"inputs[{name!r}]"


def test_inputs_are_broadcast():
    gd.testing.assert_order_independent(with_inputs(), {"out": 3, "x": [[1], [2]]})


def test_one_order_is_the_least():
    with pytest.raises(gd.DeclarationError, match="one order at least"):
        gd.testing.assert_order_independent(racing(), orders=0)


def test_memory_that_the_graph_allocates_is_looked_at_between_the_nodes():
    g = gd.Graph("allocating")
    alloc = g.alloc("scratch", 2, np.int32)
    scratch, out = g.operands["scratch"], g.host_array("out", 2, np.int32)
    one, two = g.memset(scratch, 1, name="one"), g.memset(scratch, 2, name="two")
    store = g.memcpy(out, scratch, name="store")
    alloc >> [one, two]
    [one, two] >> store >> g.free(scratch)
    with pytest.raises(gd.OrderError) as caught:
        gd.testing.assert_order_independent(g)
    assert (caught.value.nodes, caught.value.buffer, caught.value.output) == (("one", "two"), "scratch", "out")


def test_a_launch_that_fails_before_a_free_does_not_hinder_the_next():
    g = gd.Graph("allocating")
    alloc = g.alloc("scratch", 2, np.int32)
    scratch, out = g.operands["scratch"], g.host_array("out", 2, np.int32)
    one, store = g.memset(scratch, 1, name="one"), g.memcpy(out, scratch, name="store")
    alloc >> [one, store]
    [one, store] >> g.free(scratch)
    with pytest.raises(gd.OrderError) as caught:
        gd.testing.assert_order_independent(g)
    assert (caught.value.edge, caught.value.buffer) == (("one", "store"), "scratch")


def test_many_orders_are_drawn_by_a_seed():
    g = gd.Graph("many")
    x = g.device_array("x", 8, np.int32)
    for number in range(8):
        g.memset(x[number : number + 1], number, name=f"set{number}")
    assert gd.testing.assert_order_independent(g, orders=20) == TriedOrders(20, False)
    assert gd.testing.assert_order_independent(g, orders=1) == TriedOrders(1, False)


def test_what_is_said_of_what_was_tried():
    assert [str(TriedOrders(*each)) for each in ((1, True), (6, True), (20, False))] == [
        "its only order",
        "all of its 6 orders",
        "20 of its orders",
    ]


def test_a_race_for_a_condition():
    """The body that runs depends on which comes first, and so does what there is to run."""

    @cuda.jit
    def choose(which):
        gd.device.set_condition(which, 1)

    g = gd.Graph("choice")
    x = g.device_array("x", 2, np.int32)
    which = g.condition("which", default=0)
    g.kernel(choose, grid=1, block=1, args=(which,), name="choose")
    branch = g.switch(which, 2, name="branch")
    for number, body in enumerate(branch.bodies):
        body.memset(x[:1], number, name="set")
    g.memset(x[1:], 5, name="beside")
    with pytest.raises(gd.OrderError) as caught:
        gd.testing.assert_order_independent(g)
    assert set(caught.value.nodes) == {"choose", "branch"}
    assert caught.value.output == "x"


def overlapping(kernel=waiting):
    """A kernel behind a programmatic edge, and what the arrays hold."""
    g = gd.Graph("overlapping")
    x, y, out = (g.device_array(name, 4, np.int32) for name in ("x", "y", "out"))
    front = g.kernel(triggering, grid=1, block=4, args=(x, y), name="front")
    behind = g.kernel(kernel, grid=1, block=4, args=(y, out), name="behind")
    g.edge(front, behind, programmatic=True)
    return g, {"x": 5, "y": 2, "out": 3}


def test_kernels_that_overlap_come_to_the_same_if_they_wait():
    tried = gd.testing.assert_order_independent(*overlapping())
    assert (tried.orders, tried.all) == (1, False)  # both ways are the same order of nodes


def test_a_wait_that_comes_too_late():
    with pytest.raises(gd.OrderError) as caught:
        gd.testing.assert_order_independent(*overlapping(waiting_late))
    problem = caught.value
    assert (problem.nodes, problem.edge, problem.buffer) == (("front", "behind"), ("front", "behind"), "out")
    assert problem.values == (6, 2)
    assert "before its wait" in str(problem)
    assert "full edge front >> behind" in str(problem)


@pytest.mark.parametrize(
    ("target", "source", "nodes"),
    [
        ("x", None, ("front", "beside")),
        ("out", None, ("behind", "beside")),
        ("w", "y", ("front", "beside")),
        ("w", "out", ("behind", "beside")),
    ],
)
def test_a_node_beside_kernels_that_overlap(target, source, nodes):
    """It is in conflict with one of them, and that one is named, whichever runs in the wait of the other."""
    g, inputs = overlapping()
    g.device_array("w", 4, np.int32)
    operands = g.operands
    if source is None:
        g.memset(operands[target], 9, name="beside")
    else:
        g.memcpy(operands[target], operands[source], name="beside")
    with pytest.raises(gd.OrderError) as caught:
        gd.testing.assert_order_independent(g, inputs | {"w": 0})
    assert caught.value.nodes == nodes


def test_what_only_the_kernel_behind_is_ordered_with_runs_behind_the_one_in_front_too():
    """It comes before the wait, in which the one in front would always run after it."""
    g, inputs = overlapping()
    beside = g.memset(g.operands["y"], 9, name="beside")
    beside >> g.node("behind")
    with pytest.raises(gd.OrderError) as caught:
        gd.testing.assert_order_independent(g, inputs)
    assert caught.value.nodes == ("front", "beside")
