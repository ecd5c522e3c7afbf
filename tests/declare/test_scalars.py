"""Numbers as dtypes hold them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphdsl.declare.scalars import convert_scalar, scalar_converter
from graphdsl.errors import DeclarationError, UpdateError


@pytest.mark.parametrize(
    ("value", "dtype", "wanted"),
    [
        (5, np.int8, 5),
        (np.int64(-128), np.int8, -128),
        (np.array(7), np.uint8, 7),
        (True, np.int32, 1),
        (1, np.bool_, True),
        (np.bool_(False), np.bool_, False),
        (3, np.float32, 3.0),
        (0.1, np.float32, 0.1),
        (65504, np.float16, 65504.0),
        (float("inf"), np.float16, float("inf")),
        (2, np.complex64, 2 + 0j),
        (1j, np.complex128, 1j),
        (2**64 - 1, np.uint64, 2**64 - 1),
    ],
)
def test_what_a_dtype_holds_is_a_python_number(value, dtype, wanted):
    converted = convert_scalar(value, np.dtype(dtype), field="value")
    assert converted == wanted
    assert type(converted) is type(wanted)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (128, np.int8),
        (-1, np.uint8),
        (2**64, np.uint64),
        (1.0, np.int32),
        (np.float32(2), np.int64),
        (1j, np.float64),
        (True, np.float32),
        (2, np.bool_),
        (1e6, np.float16),
        (1e39, np.float32),
        (1e39j, np.complex64),
        (10**400, np.float64),
        ("1", np.int32),
        (None, np.float32),
        (np.zeros(2), np.float32),
        (np.zeros(2), np.bool_),
        ([1], np.int32),
        (object(), np.complex64),
    ],
)
def test_what_a_dtype_does_not_hold_is_refused(value, dtype):
    with pytest.raises(UpdateError) as caught:
        convert_scalar(value, np.dtype(dtype), field="gain", error=UpdateError, node="scale")
    assert (caught.value.field, caught.value.node) == ("gain", "scale")
    assert caught.value.remedy
    assert str(np.dtype(dtype)) in caught.value.rule


@settings(deadline=None)
@given(st.sampled_from("bhilqBHILQ"), st.integers(-(2**70), 2**70))
def test_integers_convert_if_and_only_if_they_are_in_range(code, value):
    dtype = np.dtype(code)
    if np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        assert convert_scalar(value, dtype, field="value") == value
    else:
        with pytest.raises(DeclarationError):
            convert_scalar(value, dtype, field="value")


@settings(deadline=None)
@given(
    st.sampled_from(["?", "i1", "u2", "i8", "f2", "f4", "f8", "c8"]),
    st.one_of(st.integers(-(2**70), 2**70), st.floats(), st.booleans(), st.complex_numbers(), st.just("text")),
)
def test_a_converter_for_one_dtype_is_the_conversion(code, value):
    dtype = np.dtype(code)
    convert = scalar_converter(dtype, field="gain", error=UpdateError)
    try:
        wanted = convert_scalar(value, dtype, field="gain", error=UpdateError)
    except UpdateError as problem:
        with pytest.raises(UpdateError, match=re.escape(str(problem))):
            convert(value)
    else:
        found = convert(value)
        assert type(found) is type(wanted)
        assert found == wanted or found != found


def test_dates_and_times():
    day = np.datetime64("2026-01-01")
    assert convert_scalar(day, np.dtype("M8[s]"), field="when") == day
    assert convert_scalar(np.timedelta64(2, "m"), np.dtype("m8[s]"), field="wait") == np.timedelta64(120, "s")
    with pytest.raises(DeclarationError, match="datetime64"):
        convert_scalar(5, np.dtype("M8[s]"), field="when")
    with pytest.raises(DeclarationError, match="timedelta64"):
        convert_scalar("soon", np.dtype("m8[s]"), field="wait")
