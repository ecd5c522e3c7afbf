"""Rules about elementwise nodes: what overlaps, and what has another shape."""

from __future__ import annotations

import numpy as np
import pytest

import graphdsl as gd
from tests.check.findings import cheap, judged


@gd.elementwise
def add(x, y):
    return x + y


class Part:
    """A run of elements of a device array, as another library has it."""

    def __init__(self, array, first, count):
        interface = dict(array.__cuda_array_interface__)
        interface["data"] = (interface["data"][0] + first * array.dtype.itemsize, False)
        interface["shape"] = (count,)
        self.__cuda_array_interface__ = interface
        self.array = array


@pytest.mark.parametrize(
    ("out", "given", "found"),
    [
        (np.s_[:], np.s_[:], None),
        (np.s_[4:8], np.s_[4:8], None),
        (np.s_[:4], np.s_[4:8], None),
        (np.s_[1:5], np.s_[:4], "argument 'x'"),
        (np.s_[:8:2], np.s_[:4], "argument 'x'"),
        (np.s_[:4], np.s_[2], "argument 'x'"),
        (np.s_[:4], np.s_[5], None),
    ],
)
def test_what_is_written_is_the_same_elements_or_shares_nothing(out, given, found):
    g = gd.Graph()
    x = g.device_array("x", 16, np.float32)
    g.elementwise(add, x[out], (x[given], 1.0), name="add")
    assert judged(cheap(g)) == ([("GD261", "add", found)] if found else [])


def test_columns_beside_each_other_share_nothing():
    g = gd.Graph()
    x = g.device_array("x", (4, 8), np.float32)
    g.elementwise(add, x[:, :4], (x[:, 4:], 1.0), name="apart")
    assert judged(cheap(g)) == []
    g.elementwise(add, x[:, :4], (x[:, 3:7], 1.0), name="shifted", after=g.node("apart"))
    assert judged(cheap(g)) == [("GD261", "shifted", "argument 'x'")]


def test_two_outputs_that_overlap_are_found_from_both_sides():
    @gd.elementwise
    def both(x):
        return x, x

    g = gd.Graph()
    x, y = (g.device_array(name, 16, np.float32) for name in "xy")
    g.elementwise(both, (y[:8], y[4:12]), x[:8], name="both")
    assert judged(cheap(g)) == [("GD261", "both", "argument 'out_2'"), ("GD261", "both", "argument 'out'")]


def test_external_memory_is_known_by_its_address():
    device = gd.emulator()
    memory = gd.device_array(device, 32, np.float32)
    g = gd.Graph()
    x = g.external("x", Part(memory, 0, 16))
    y = g.external("y", Part(memory, 16, 16))
    g.elementwise(add, y, (x, 1.0), name="add")
    assert judged(cheap(g)) == []
    memory.copy_from_host(np.zeros(32, np.float32))
    with g.instantiate(device) as exe:
        with pytest.raises(gd.UpdateError, match="overlaps what the node writes") as problem:
            exe.update(x=Part(memory, 8, 16))
        assert problem.value.node == "add"
        exe.update(x=Part(memory, 16, 16))  # the same elements: in place
        exe.launch()
        exe.synchronize()
    assert memory.copy_to_host().tolist() == [0.0] * 16 + [1.0] * 16


def test_shapes_are_compared_with_the_values_of_params():
    g = gd.Graph()
    n, k = (g.param(name, np.int32, default=4) for name in "nk")
    x, y = (g.host_array(name, 16, np.float32) for name in "xy")
    clear = g.memset(x, 0)
    add_node = g.elementwise(add, y[:n], (x[:k], 1.0), name="add")
    _ = clear >> add_node
    assert judged(cheap(g)) == []
    assert judged(cheap(g, values={"k": 8})) == [("GD262", "add", "argument 'x'")]
    with g.instantiate(gd.emulator()) as exe:
        with pytest.raises(gd.UpdateError, match="its shape is"):
            exe.update(k=8)
        exe.update(k=8, n=8)
        exe.launch()
        exe.synchronize()
        assert exe["y"][:8].tolist() == [1.0] * 8
