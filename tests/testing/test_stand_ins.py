"""External memory of a device, and what stands for it."""

from __future__ import annotations

import numpy as np
import pytest

import graphdsl as gd


class Foreign:
    """Device memory of another library, on a GPU that is not here."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "<i4",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }


def test_memory_of_a_gpu_needs_no_gpu():
    g = gd.Graph("foreign")
    w, out = g.external("w", Foreign(0x7F00_0000_0000, 4)), g.host_array("out", 4, np.int32)
    read = g.memcpy(out, w, name="read")
    clear = g.memset(w, 0, name="clear")
    with pytest.raises(gd.OrderError) as caught:
        gd.testing.assert_order_independent(g, {"w": [1, 2, 3, 4]})
    assert (caught.value.edge, caught.value.output) == (("read", "clear"), "out")
    read >> clear
    gd.testing.assert_order_independent(g, {"w": [1, 2, 3, 4]})


def test_memory_that_overlaps_there_overlaps_here():
    """Two arrays of one allocation, and one that only lies beside it."""
    g = gd.Graph("aliases")
    base = 0x7F00_0000_0000
    one, two, beside = (
        g.external(name, Foreign(base + offset, 4)) for name, offset in (("one", 0), ("two", 8), ("beside", 24))
    )
    g.memset(one, 1, name="set1")
    g.memset(beside, 3, name="set3")
    gd.testing.assert_order_independent(g)
    g.memset(two, 2, name="set2")
    with pytest.raises(gd.OrderError) as caught:
        gd.testing.assert_order_independent(g)
    assert caught.value.nodes == ("set1", "set2")
    assert (caught.value.buffer, caught.value.index) == ("one", (2,))


def test_memory_of_another_emulator_is_read_and_left_alone():
    device = gd.emulator()
    theirs = gd.to_device(device, np.arange(4, dtype=np.int32))
    g = gd.Graph("emulated")
    out = g.host_array("out", 4, np.int32)
    w = g.external("w", theirs)
    g.memcpy(out, w, name="read") >> g.memset(w, 7, name="set")
    gd.testing.assert_order_independent(g)
    assert theirs.copy_to_host().tolist() == [0, 1, 2, 3]


def test_memory_of_several_devices():
    g = gd.Graph("two")
    with g.on(1):
        w = g.external("w", Foreign(0x7F00_0000_0000, 4))
        g.memset(w, 1, name="set")
    x = g.device_array("x", 4, np.int32)
    g.node("set") >> g.memcpy(x, w, name="take")
    assert gd.testing.assert_order_independent(g).all
