"""Rules GD311 to GD314: memsets."""

from __future__ import annotations

import numpy as np
import pytest

from tests.check.findings import cheap, judged, only


def test_right_memsets(demo):
    wide = demo.g.device_array("wide", 8, np.complex128)
    demo.g.memset(demo.x, 1.5)
    demo.g.memset(demo.x[: demo.n], demo.gain)
    demo.g.memset(demo.raw, 0)
    demo.g.memset(wide, 0)
    demo.g.memset(demo.g.device_array("ids", 8, np.int64), -1)
    demo.g.memset(demo.g.device_array("flags", 8, np.bool_), True)
    assert judged(cheap(demo.g)) == []


@pytest.mark.parametrize(
    ("dtype", "value"),
    [(np.uint8, 256), (np.int8, -129), (np.int32, 1.5), (np.float16, 1e6), (np.bool_, 2), (np.float32, "zero")],
)
def test_values_that_the_dtype_does_not_hold(demo, dtype, value):
    demo.g.memset(demo.g.device_array("z", 8, dtype), value)
    found = only(cheap(demo.g))
    assert (found.code, found.node, found.field) == ("GD311", "set_z", "value")


def test_no_value_at_all(demo):
    demo.g.memset(demo.x, None)
    assert judged(cheap(demo.g)) == [("GD311", "set_x", "value")]


def test_a_value_from_a_param_that_the_dtype_does_not_hold(demo):
    demo.g.memset(demo.g.device_array("z", 8, np.uint8), demo.n)
    found = only(cheap(demo.g))
    assert (found.code, found.value) == ("GD311", 1024)
    assert "n = 1024" in found.remedy
    assert judged(cheap(demo.g, values={"n": 255})) == []


@pytest.mark.parametrize(
    ("dtype", "value", "right"),
    [
        (np.float64, 0.0, True),
        (np.float64, 1.0, False),
        (np.float64, -0.0, False),
        (np.int64, -1, True),
        (np.int64, 1, False),
        (np.int64, 0x12345678_12345678, True),
        (np.complex64, 1 + 1j, True),
        (np.complex64, 1 + 0j, False),
        (np.complex128, 0j, True),
        (np.complex128, 1 + 1j, False),
    ],
)
def test_values_whose_bytes_repeat(demo, dtype, value, right):
    demo.g.memset(demo.g.device_array("z", 8, dtype), value)
    assert judged(cheap(demo.g)) == ([] if right else [("GD312", "set_z", "value")])


def test_pageable_memory_cannot_be_set(demo):
    demo.g.memset(demo.staged, 0)
    assert judged(cheap(demo.g)) == [("GD313", "set_staged", "destination")]


def test_structures_cannot_be_set(demo):
    pairs = demo.g.device_array("pairs", 8, [("key", np.int32), ("count", np.int32)])
    demo.g.memset(pairs, 0)
    assert judged(cheap(demo.g)) == [("GD314", "set_pairs", "destination")]
