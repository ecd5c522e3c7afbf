"""Limits of named compute capabilities."""

from __future__ import annotations

import pytest

from graphdsl.declare.limits import Limits, limits_of, parse_capability
from graphdsl.errors import DeclarationError


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("sm_90", (9, 0)),
        ("sm_90a", (9, 0)),
        ("sm_120f", (12, 0)),
        ("compute_86", (8, 6)),
        ("8.0", (8, 0)),
        ("120", (12, 0)),
        ((7, 5), (7, 5)),
        ([8, 9], (8, 9)),
    ],
)
def test_ways_to_write_a_compute_capability(target, wanted):
    assert parse_capability(target) == wanted


@pytest.mark.parametrize(
    "target", ["", "sm_", "sm_9", "9", "hopper", "sm_90.1.2", "-90", (9,), (9, 0, 0), 90, None, ("a", "b")]
)
def test_what_is_no_compute_capability(target):
    with pytest.raises(DeclarationError, match="sm_90") as caught:
        parse_capability(target)
    assert caught.value.field == "target"


@pytest.mark.parametrize(
    ("target", "kib"),
    [("sm_75", 64), ("sm_80", 163), ("sm_86", 99), ("sm_89", 99), ("sm_90", 227), ("sm_100", 227), ("sm_120", 99)],
)
def test_shared_memory_by_the_published_table(target, kib):
    limits = limits_of(target)
    assert limits.shared_optin_bytes == kib * 1024
    assert limits.shared_bytes == 48 * 1024


def test_limits_of_the_default():
    limits = limits_of()
    assert (limits.name, limits.compute_capability) == ("sm_90", (9, 0))
    assert (limits.max_threads, limits.max_block) == (1024, (1024, 1024, 64))
    assert limits.max_grid == (2147483647, 65535, 65535)
    assert limits.parameter_bytes == 32764


def test_limits_are_given_back_as_they_are():
    own = Limits("mine", (9, 0), max_threads=512)
    assert limits_of(own) is own


def test_an_unknown_compute_capability_lists_the_known():
    with pytest.raises(DeclarationError, match="sm_80, sm_86") as caught:
        limits_of("sm_20")
    assert caught.value.value == "sm_20"
