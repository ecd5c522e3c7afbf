"""What functions of libdevice mean in the emulator: numbers and types."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numba.cuda import libdevicefuncs, types

from graphdsl.drivers.emulator import libdevice


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("exp2f", (3,), 8),
        ("rsqrt", (4,), 0.5),
        ("fast_fdividef", (1, 4), 0.25),
        ("expm1f", (1e-5,), np.expm1(np.float32(1e-5))),
        ("tgamma", (200,), math.inf),
        ("lgammaf", (0.5,), np.float32(math.lgamma(0.5))),
        ("erf", (math.nan,), math.nan),
        ("roundf", (-2.5,), -3),
        ("rintf", (2.5,), 2),
        ("remainder", (5, 3), -1),
        ("fdim", (3, 5), 0),
        ("fma", (1 + 2.0**-52, 1 - 2.0**-52, -1), -(2.0**-104)),
        ("fmaf_rn", (1 + 2.0**-23, 1 + 2.0**-23, -1 - 2.0**-22), 2.0**-46),
        ("fadd_rn", (1, 2.0**-25), 1),
        ("ddiv_rn", (1, 3), 1 / 3),
        ("frcp_rn", (3,), np.float32(1) / np.float32(3)),
        ("float2int_rn", (2.5,), 2),
        ("float2int_rz", (-2.7,), -2),
        ("float2int_rd", (-2.2,), -3),
        ("float2uint_ru", (2.2,), 3),
        ("float2uint_rn", (-5,), 0),
        ("float2int_rn", (1e20,), 2**31 - 1),
        ("float2int_rn", (math.nan,), 0),
        ("float2ll_rn", (math.inf,), 2**63 - 1),
        ("int2float_rn", (2**24 + 1,), 2**24),
        ("mulhi", (-1, 2), -1),
        ("umulhi", (-1, 2), 1),
        ("byte_perm", (0x11223344, 0x99667788, 0x7654), -0x66998878),
        ("float_as_int", (-1.0,), -0x40800000),
        ("int_as_float", (0x3F800000,), 1),
        ("half2float", (0x3C00,), 1),
        ("float2half_rn", (1,), 0x3C00),
        ("saturatef", (math.nan,), 0),
        ("isinff", (math.inf,), 1),
        ("signbitf", (-0.0,), 1),
        ("umax", (3, 7), 7),
    ],
)
def test_numbers(name, args, expected):
    np.testing.assert_equal(float(libdevice.meaning(name)(*args)), float(expected))


def test_two_results():
    sine, cosine = libdevice.meaning("sincosf")(np.float32(0.5))
    assert (sine, cosine) == (np.sin(np.float32(0.5)), np.cos(np.float32(0.5)))
    assert [float(each) for each in libdevice.meaning("modff")(2.5)] == [0.5, 2]


@pytest.mark.parametrize("name", sorted(libdevice._FUNCTIONS))
def test_each_is_one_of_numba_and_gives_its_type(name):
    kind, args = libdevicefuncs.functions[f"__nv_{name}"]
    makers = {types.float32: np.float32, types.float64: float}
    given = [makers.get(arg.ty, int)(1) for arg in args if not arg.is_ptr]
    with np.errstate(all="ignore"):
        found = libdevice.meaning(name)(*given)
    for each in found if isinstance(found, tuple) else (found,):
        if kind is types.float32:
            assert each.dtype == np.float32
        if kind is types.float64:
            assert each.dtype == np.float64
