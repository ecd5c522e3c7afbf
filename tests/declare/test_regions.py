"""Bytes with gaps between them: which overlap, and how they are found among many."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from graphdsl.declare.accesses import Access
from graphdsl.declare.definition import Definition
from graphdsl.declare.regions import Places, Region, clipped, overlap, region_of

SIZE = 60


def bytes_of(region):
    """The bytes, one by one."""
    if region.stop <= region.start:
        return set()
    found = {region.start + each for each in range(region.row_nbytes)}
    for count, step in region.rows:
        found = {each + step * number for each in found for number in range(count)}
    return found


@st.composite
def regions(draw):
    """Runs, rows of the pitch of a table, rows of other pitches, and rows in rows."""
    start = draw(st.integers(0, SIZE))
    if draw(st.booleans()):
        return Region(start, start + draw(st.integers(0, 12)))
    row = draw(st.integers(1, 4))
    pitches = draw(st.lists(st.sampled_from([5, 8, 8, 8, 16, 24]), min_size=1, max_size=2, unique=True))
    rows = tuple((draw(st.integers(2, 4)), pitch) for pitch in sorted(pitches, reverse=True))
    return Region(start, start + row + sum(step * (count - 1) for count, step in rows), rows)


@given(regions(), regions())
def test_two_regions_overlap_if_they_have_a_byte_in_common(one, other):
    assert overlap(one, other) is bool(bytes_of(one) & bytes_of(other))
    assert overlap(other, one) is overlap(one, other)


@given(st.lists(regions(), unique=True, min_size=1, max_size=12))
def test_neighbours_are_all_that_overlap(found):
    places = Places(found)
    for number, region in enumerate(found):
        expected = [(other, True) for other, mate in enumerate(found) if bytes_of(region) & bytes_of(mate)]
        assert places.neighbours(number) == expected


@given(regions(), st.integers(0, SIZE + 100), st.integers(0, 60))
def test_a_clipped_region_has_all_that_lies_between(region, first, length):
    some = clipped(region, first, first + length)
    assert bytes_of(some) <= bytes_of(region)
    assert bytes_of(some) >= {each for each in bytes_of(region) if first <= each < first + length}


@given(st.data())
def test_the_bytes_of_a_view_are_those_that_numpy_finds(data):
    shape = (4, 5, 3)
    whole = np.arange(4 * 5 * 3 * 2).reshape(*shape, 2)  # each byte of an element of two is its place

    def part(extent):
        if data.draw(st.integers(0, 3)) == 0:
            return data.draw(st.integers(0, extent - 1))
        start = data.draw(st.integers(0, extent - 1))
        return slice(start, data.draw(st.integers(start, extent)), data.draw(st.integers(1, 3)))

    keys = tuple(part(extent) for extent in shape[: data.draw(st.integers(1, 3))])
    array = Definition().device_array("x", shape, np.uint16)[keys]
    region, known = region_of(Access(array, True, False), {}, base=7)
    assert known
    assert bytes_of(region) == {7 + int(each) for each in whole[keys].ravel()}


def test_what_takes_too_long_is_not_known():
    one = Region(0, 10**9, ((10**4, 99991), (10**4, 7), (3, 2)))
    assert overlap(one, Region(1, 10**9 + 1, ((10**4, 99989), (10**4, 6), (2, 3)))) in (None, True)
