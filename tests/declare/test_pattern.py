"""Which values a memset can repeat."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphdsl.declare.pattern import element_size, memset_pattern


@settings(deadline=None)
@given(st.sampled_from(["u1", "i2", "u4", "i8", "f2", "f4", "f8", "c8", "c16"]), st.binary(min_size=16, max_size=16))
def test_a_pattern_fills_memory_with_the_value(code, data):
    dtype = np.dtype(code)
    value = np.frombuffer(data, dtype, count=1)[0]
    pattern = memset_pattern(value, dtype)
    wanted = np.array([value, value], dtype).tobytes()
    size = element_size(dtype)
    repeats = len({wanted[i : i + size] for i in range(0, len(wanted), size)}) == 1
    assert (pattern is not None) == repeats
    if pattern is not None:
        assert pattern.to_bytes(size, "little") * (len(wanted) // size) == wanted


@pytest.mark.parametrize("dtype", ["b1", "i1", "f2", "i4", "f8", "c16"])
def test_zero_repeats_at_any_width(dtype):
    assert memset_pattern(0, np.dtype(dtype)) == 0
