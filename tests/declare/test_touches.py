"""What the user says that nodes read and write."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.declare.accesses import accesses
from graphdsl.declare.touches import Touches
from tests.compile.test_accesses import shifted

SOURCE = 'extern "C" __global__ void move(const float* x, float* y, float* z, int n) {}'


@pytest.fixture
def g():
    g = gd.Graph("graph")
    for name in "xyz":
        g.device_array(name, 8, np.float32)
    g.param("n", np.int32, default=8)
    return g


def told(node):
    return [(each.array.buffer.name, "r" * each.reads + "w" * each.writes, each.known) for each in accesses(node)]


def moved(g, **said):
    x, y, z, n = g.operands.values()
    return g.kernel(gd.cuda_source(SOURCE, "move"), grid=1, block=8, args=(x, y, z, n), **said)


def test_without_it_all_is_done_to_all(g):
    node = moved(g)
    assert node.touches is None
    assert told(node) == [("x", "rw", False), ("y", "rw", False), ("z", "rw", False)]


def test_both_say_everything(g):
    x, y, _, _ = g.operands.values()
    assert told(moved(g, reads=[x], writes=[y])) == [("x", "r", True), ("y", "w", True)]
    assert told(moved(g, reads=[], writes=())) == []


def test_where_one_is_given_the_other_counts_as_done(g):
    x, y, _, _ = g.operands.values()
    assert told(moved(g, writes=[y])) == [("x", "r", False), ("y", "rw", False), ("z", "r", False)]
    assert told(moved(g, reads=[x])) == [("x", "rw", False), ("y", "w", False), ("z", "w", False)]


def test_names_stand_for_arrays_and_a_single_one_by_itself(g):
    x, y, _, _ = g.operands.values()
    assert moved(g, reads="x", writes=["y", "z"]).touches == moved(g, reads=x, writes=[y, g.operands["z"]]).touches
    assert moved(g, reads=x, writes="y").touches == Touches(frozenset([(0,)]), frozenset([(1,)]))


def test_an_array_that_is_passed_twice_is_named_in_all_its_places(g):
    x, y, _, n = g.operands.values()
    node = g.kernel(gd.cuda_source(SOURCE, "move"), grid=1, block=8, args=(x, y, x, n), reads=[x], writes=[])
    assert node.touches.reads == {(0,), (2,)}


def test_a_slice_is_known_by_its_elements(g):
    x, y, z, n = g.operands.values()
    args = (x[:n], y[4:], z, n)
    node = g.kernel(gd.cuda_source(SOURCE, "move"), grid=1, block=8, args=args, reads=x[:n], writes=y[4:])
    assert node.touches == Touches(frozenset([(0,)]), frozenset([(1,)]))


def test_items_of_tuples_have_places_of_their_own(g):
    x, y, z, _ = g.operands.values()

    def kernel(pair, z):
        pair[1][0] = pair[0][0] + z[0]

    node = g.kernel(kernel, grid=1, block=1, args=((x, y), z), reads=[x, z], writes=[y])
    assert node.touches == Touches(frozenset([(0, 0), (1,)]), frozenset([(0, 1)]))
    named = g.kernel(kernel, grid=1, block=1, args=((x, y), z), reads="pair", writes="z")
    assert named.touches == Touches(frozenset([(0, 0), (0, 1)]), frozenset([(1,)]))


@pytest.mark.parametrize(
    ("said", "rule", "value"),
    [
        ({"reads": ["w"]}, "a name is that of a parameter, and the parameters are x, y, z, n", "'w' of type str"),
        ({"writes": ["n"]}, "the parameter is given no array", "'n' of type str"),
        ({"writes": 3}, "it lists arrays among the arguments, or names of parameters", "3 of type int"),
        ({"reads": [3]}, "it lists arrays among the arguments, or names of parameters", "3 of type int"),
        ({"reads": [None]}, "it lists arrays among the arguments, or names of parameters", "None of type NoneType"),
    ],
)
def test_what_is_no_argument_is_refused(g, said, rule, value):
    with pytest.raises(gd.DeclarationError) as caught:
        moved(g, name="mine", **said)
    error = caught.value
    (field,) = said
    assert (error.rule, error.node, error.field, error.value) == (rule, "mine", field, value)
    assert "x: float32[8] device" in error.remedy
    assert not g.nodes


def test_an_array_that_is_no_argument_is_refused(g):
    x, *_ = g.operands.values()
    for other in (x[:4], gd.Graph("another").device_array("x", 8, np.float32)):
        with pytest.raises(gd.DeclarationError, match="not among the arguments"):
            moved(g, reads=[other])


def test_kernels_without_names_of_parameters_say_so(g):
    x, *_ = g.operands.values()
    with pytest.raises(gd.DeclarationError, match="the parameters have no names here"):
        g.kernel(gd.cubin(b"\x7fELF", "move"), grid=1, block=8, args=(x,), reads="x")


def test_host_functions_and_captured_work_take_them(g):
    a, b = (g.host_array(name, 8, np.float32) for name in "ab")
    x, y, *_ = g.operands.values()
    host = g.host(lambda a, b: None, (a, b), reads=[a], writes="b")
    assert told(host) == [("a", "r", True), ("b", "w", True)]
    captured = g.capture(lambda stream, x, y: None, (x, y), reads="x", writes=[y])
    assert told(captured) == [("x", "r", True), ("y", "w", True)]
    with pytest.raises(gd.DeclarationError, match="a name is that of a parameter"):
        g.capture(lambda stream, x, y: None, (x, y), reads="stream")


def test_read_only_memory_is_never_written(g):
    fixed = np.zeros(8, np.float32)
    fixed.flags.writeable = False
    node = g.host(print, (g.external("fixed", fixed),), reads=[])
    assert told(node) == []
    assert told(g.host(print, (g.operands["fixed"],), reads=[], writes=[g.operands["fixed"]])) == []


def test_it_goes_with_the_node(g):
    x, y, *_ = g.operands.values()
    node = moved(g, reads=x, writes=y, name="move")
    outer = gd.Graph("outer")
    u = outer.device_array("u", 8, np.float32)
    outer.child(g, {"x": u}, name="child")
    inner = outer.node("child/move")
    assert inner.touches == node.touches
    assert [name for name, *_ in told(inner)] == ["u", "child/y"]
    assert copy.deepcopy(g).node("move").touches == node.touches
    assert node.replaced(args=(y, x, x, 1)).touches is node.touches


def test_it_goes_before_what_the_code_tells(g):
    from graphdsl.compile import accesses as inferred

    x, y, *_ = g.operands.values()

    def spans(**said):
        node = g.kernel(shifted, grid=1, block=8, args=(x, y, 4), **said)
        found = inferred.accesses(node)
        return [(each.array.buffer.name, "r" * each.reads + "w" * each.writes, each.span({})) for each in found]

    assert spans() == [("x", "r", (4, 20)), ("y", "w", (0, 16))]
    assert spans(reads=[y]) == [("y", "r", (0, 32)), ("y", "w", (0, 16))]
    assert spans(writes=[x, y]) == [("x", "r", (4, 20)), ("x", "w", (0, 32)), ("y", "w", (0, 16))]
    assert spans(reads=[], writes=[]) == []
