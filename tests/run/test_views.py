"""Views of device memory: parts of one block as arrays of their own, which graphs adopt."""

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphdsl as gd


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_a_view_is_the_part_that_numpy_shows(data):
    held = np.arange(64, dtype=np.uint8)
    arena = gd.to_device(gd.emulator(), held)
    dtype = np.dtype(data.draw(st.sampled_from(["u1", "i2", "f4", "f8"])))
    offset = data.draw(st.integers(0, 64 // dtype.itemsize)) * dtype.itemsize
    count = data.draw(st.integers(0, (64 - offset) // dtype.itemsize))
    shape = (count,) if count % 2 else (2, count // 2)
    part = arena.view(shape, dtype, offset=offset)
    assert (part.shape, part.dtype, part.address) == (shape, dtype, arena.address + offset)
    expected = held[offset : offset + count * dtype.itemsize].view(dtype).reshape(shape)
    np.testing.assert_array_equal(part.copy_to_host().view(np.uint8), expected.view(np.uint8))


def test_a_graph_works_on_views_and_a_view_keeps_the_memory():
    device = gd.emulator()
    arena = gd.to_device(device, np.zeros(64, np.uint8))
    first, second = (arena.view(4, np.float32, offset=offset) for offset in (0, 32))
    first.copy_from_host(np.arange(4))
    del arena
    gc.collect()
    g = gd.Graph("views")
    g.memcpy(g.external("second", second), g.external("first", first))
    with g.instantiate(device) as exe:
        exe.launch()
        exe.synchronize()
    assert second.copy_to_host().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("shape", "dtype", "offset", "rule"),
    [
        (4, "f4", 1, "multiple of 4"),
        (4, "f4", -4, "multiple of 4"),
        (4, "f4", 1.5, "multiple of 4"),
        (5, "f4", 48, "beyond the 64 bytes"),
        (1, "u1", 64, "beyond the 64 bytes"),
    ],
)
def test_what_lies_elsewhere_is_refused(shape, dtype, offset, rule):
    arena = gd.to_device(gd.emulator(), np.zeros(64, np.uint8))
    with pytest.raises(gd.DeclarationError, match=rule) as caught:
        arena.view(shape, dtype, offset=offset)
    assert (caught.value.field, caught.value.value) == ("offset", offset)


def test_memory_with_gaps_has_no_views():
    g = gd.Graph("gaps")
    g.memset(g.device_array("x", (4, 3), np.uint8, pitch=16), 0)
    with g.instantiate(gd.emulator()) as exe, pytest.raises(gd.DeclarationError, match="without gaps"):
        exe["x"].view(4, np.uint8)
