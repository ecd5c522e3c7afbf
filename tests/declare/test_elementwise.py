"""What an elementwise node is declared with, and the launch that is made of it."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.declare.accesses import accesses
from graphdsl.declare.elementwise import Temporary, alike, calls_of, launch_of


@gd.elementwise
def scale(x, gain):
    return x * gain


@gd.elementwise
def both(x, y):
    return x + y, x - y


@pytest.fixture
def g():
    return gd.Graph("demo")


def _arrays(g, names, shape=100, dtype=np.float32):
    return [g.device_array(name, shape, dtype) for name in names]


def test_the_node_is_a_kernel_with_a_thread_for_each_element(g):
    x, y = _arrays(g, "xy", 1000)
    node = g.elementwise(scale, y, (x, np.float32(2)), name="twice", priority=0)
    assert (node.kind, node.name, node.grid, node.block) == ("kernel", "twice", (4, 1, 1), (256, 1, 1))
    assert node.args == (y, x, np.float32(2))
    assert node.kernel.name == "scale"
    assert node.kernel.parameters == ("out", "x", "gain")
    assert node.attributes.priority == 0
    assert node.location[0] == __file__


def test_arguments_may_have_names_and_a_single_one_stands_by_itself(g):
    @gd.elementwise
    def negative(x):
        return -x

    x, y = _arrays(g, "xy")
    assert g.elementwise(scale, y, {"gain": 2.0, "x": x}).args[1:] == (x, 2.0)
    assert g.elementwise(negative, y, x).args == (y, x)


def test_nodes_of_one_function_and_the_same_kinds_share_a_kernel(g):
    x, y, z = _arrays(g, "xyz")
    halves = _arrays(g, ["h0", "h1"], dtype=np.float16)
    gain = g.param("gain", np.float32, default=1)
    kernels = [
        g.elementwise(scale, *operands).kernel
        for operands in ((y, (x, 2.0)), (z, (y, gain)), (y, (y, 2.0)), (halves[0], (halves[1], 2.0)), (y, (x, x)))
    ]
    assert kernels[0] is kernels[1]
    assert len(set(kernels)) == 4  # in place, of another dtype, and with an array for the number
    assert copy.deepcopy(g).node("scale").kernel is kernels[0]


def test_contiguous_arrays_are_counted_through_and_others_indexed(g):
    x, y = _arrays(g, "xy", (4, 6))
    flat = g.elementwise(scale, y, (x, 2.0))
    assert [array.shape for array in flat.args[:2]] == [(24,), (24,)]
    assert repr(flat.args[0]) == "y.flat"
    indexed = g.elementwise(scale, y, (x[:, :6], 2.0))
    assert indexed.kernel is flat.kernel
    gaps = g.elementwise(scale, y[:, :3], (x[:, 3:], 2.0))
    assert gaps.args[:2] != flat.args[:2]
    assert gaps.kernel.recipe.ndim == 2


def test_accesses_are_known_exactly(g):
    x, y, z = _arrays(g, "xyz")
    node = g.elementwise(both, (x, z), (x, y[0]))
    assert [(each.array.buffer.name, each.reads, each.writes, each.known) for each in accesses(node)] == [
        ("x", True, True, True),
        ("z", False, True, True),
        ("y", True, False, True),
    ]


def test_calls_come_back_from_the_launch(g):
    x, y, z = _arrays(g, "xyz")
    node = g.elementwise(both, (y, z), (x, 2.0))
    (call,) = calls_of(node.kernel, node.args)
    assert call.function is both
    assert all(map(alike, (*call.writes, *call.reads), (y, z, x, node.args[-1])))


def test_a_temporary_is_no_argument(g):
    x, y = _arrays(g, "xy")
    node = g.elementwise(scale, y, (x, 2.0))
    (call,) = calls_of(node.kernel, node.args)
    between = Temporary(np.dtype(np.float16))
    calls = (call._replace(writes=(between,)), call._replace(reads=(between, 3.0)))
    launch = launch_of(calls)
    assert launch.args == (y, x, 2.0, 3.0)
    assert launch.kernel.parameters == ("out", "x", "gain", "gain_2")
    assert [slot.dtype for slot in launch.kernel.recipe.slots if slot.kind == "temporary"] == [np.float16]
    again = launch_of(calls_of(launch.kernel, launch.args))
    assert again.kernel is launch.kernel


@pytest.mark.parametrize(
    ("field", "declare"),
    [
        ("function", lambda g, x: g.elementwise(lambda v: v, x, x)),
        ("args", lambda g, x: g.elementwise(scale, x, x)),
        ("args", lambda g, x: g.elementwise(scale, x, {"x": x})),
        ("out", lambda g, x: g.elementwise(scale, (), (x, 2.0))),
        ("out", lambda g, x: g.elementwise(scale, x[0], (x, 2.0))),
        ("out", lambda g, x: g.elementwise(scale, "x", (x, 2.0))),
        ("out", lambda g, x: g.elementwise(scale, g.device_array("t", 100, [("a", "f4")]), (x, 2.0))),
        ("out", lambda g, x: g.elementwise(scale, g.device_array("t", 100, "M8[s]"), (x, 2.0))),
        ("out", lambda g, x: g.elementwise(both, (x, x[1:]), (x, 2.0))),
        ("argument 'x'", lambda g, x: g.elementwise(scale, x, (x[:5], 2.0))),
        ("argument 'x'", lambda g, x: g.elementwise(scale, x, (g.device_array("t", (10, 10), "f4"), 2.0))),
        ("argument 'gain'", lambda g, x: g.elementwise(scale, x, (x, (x, 1)))),
    ],
)
def test_what_cannot_be_is_refused_by_name(g, field, declare):
    (x,) = _arrays(g, "x")
    with pytest.raises(gd.DeclarationError) as problem:
        declare(g, x)
    assert problem.value.field == field
    assert problem.value.node
    assert problem.value.remedy
    assert not g.nodes


def test_a_kernel_is_no_scalar_function():
    from numba import cuda

    with pytest.raises(gd.DeclarationError, match="and not a kernel"):
        gd.elementwise(cuda.jit(lambda x: None))
    with pytest.raises(gd.DeclarationError, match="positional parameters only"):
        gd.elementwise(lambda *xs: 0)
    assert gd.elementwise(cuda.jit(device=True)(lambda x: -x))(3) == -3
