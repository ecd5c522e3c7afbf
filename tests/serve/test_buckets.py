"""Buckets: the smallest that holds a request, lists of sizes, and what they cost on a trace."""

from __future__ import annotations

import pickle
from itertools import combinations, pairwise, product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphdsl as gd
from graphdsl.serve import Bucket

BUCKETS = gd.Buckets(batch=[1, 2, 4, 8], seq=[64, 100, 128])


@pytest.mark.parametrize(
    ("sizes", "found"),
    [
        ((1, 1), (1, 64)),
        ((2, 64), (2, 64)),
        ((3, 65), (4, 100)),
        ((5, 101), (8, 128)),
        ((8, 128), (8, 128)),
        ((np.int64(4), np.uint8(64)), (4, 64)),
    ],
)
def test_a_request_takes_the_smallest_at_or_above(sizes, found):
    bucket = BUCKETS.of(batch=sizes[0], seq=sizes[1])
    assert tuple(bucket.values()) == found
    assert all(type(size) is int for size in bucket.values())
    assert BUCKETS.of(seq=sizes[1], batch=sizes[0]) is bucket


@given(st.sets(st.integers(1, 40), min_size=1), st.sets(st.integers(1, 40), min_size=1), st.data())
@settings(max_examples=40, deadline=None)
def test_no_smaller_bucket_would_do(ones, others, data):
    buckets = gd.Buckets(a=sorted(ones), b=sorted(others))
    sizes = {axis: data.draw(st.integers(1, 45)) for axis in "ab"}
    fitting = [bucket for bucket in buckets if all(bucket[axis] >= sizes[axis] for axis in "ab")]
    if fitting:
        found = buckets.of(**sizes)
        assert found in fitting
        assert all(found[axis] <= bucket[axis] for bucket in fitting for axis in "ab")
    else:
        with pytest.raises(gd.BucketError) as caught:
            buckets.of(**sizes)
        problem = caught.value
        assert problem.value == sizes[problem.axis] > problem.largest == buckets.largest[problem.axis]


def test_a_request_above_the_largest_is_refused_with_the_axis_and_what_to_do():
    with pytest.raises(gd.BucketError) as caught:
        BUCKETS.of(batch=4, seq=129)
    assert str(caught.value) == (
        "seq = 129: the largest bucket on this axis is 128. "
        "Split the request, or add a bucket: seq=[64, 100, 128, 129]."
    )
    assert (caught.value.axis, caught.value.value, caught.value.largest) == ("seq", 129, 128)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.axis, again.largest, str(again)) == ("seq", 128, str(caught.value))


def test_a_long_list_is_not_shown_whole():
    with pytest.raises(gd.BucketError, match=r"add a bucket: n=\[\.\.\., 98, 99, 100, 101\]"):
        gd.Buckets(n=range(1, 101)).of(n=101)


@pytest.mark.parametrize("size", [0, -1, True, 1.0, "1", None, np.float32(2), np.bool_(True), [1]])
def test_a_size_that_is_no_positive_integer_is_refused(size):
    with pytest.raises(gd.DeclarationError, match="a size is a positive integer") as caught:
        BUCKETS.of(batch=size, seq=64)
    assert caught.value.field == "batch"
    with pytest.raises(gd.DeclarationError, match="a size is a positive integer"):
        gd.Buckets(batch=[size, 64])


@pytest.mark.parametrize(
    ("sizes", "field", "said"),
    [
        ({"batch": 1}, "seq", "a size on every axis"),
        ({}, "batch", "a size on every axis"),
        ({"batch": 1, "sec": 2}, "axis", "no axis of this name.* Names close to it: seq"),
        ({"batch": 1, "seq": 2, "heads": 3}, "axis", "no axis of this name"),
    ],
)
def test_a_request_names_every_axis_and_no_other(sizes, field, said):
    with pytest.raises(gd.DeclarationError, match=said) as caught:
        BUCKETS.of(**sizes)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ([], "one size at least"),
        ([4, 2, 1], r"2 comes behind 4. Pass n=\[1, 2, 4\]"),
        ([1, 2, 2], r"2 is there twice. Pass n=\[1, 2\]"),
        (4, "come as a list"),
        ("12", "come as a list"),
    ],
)
def test_a_list_of_sizes_is_refused_by_its_axis(sizes, said):
    with pytest.raises(gd.DeclarationError, match=said) as caught:
        gd.Buckets(n=sizes)
    assert caught.value.field == "n"


def test_buckets_without_axes_are_refused():
    with pytest.raises(gd.DeclarationError, match="one axis at least"):
        gd.Buckets()


def test_all_buckets_come_largest_first():
    every = list(BUCKETS)
    assert len(every) == len(set(every)) == len(BUCKETS) == 12
    assert every[0] == BUCKETS.largest == {"batch": 8, "seq": 128}
    assert [bucket.cells for bucket in every] == sorted((bucket.cells for bucket in every), reverse=True)
    assert {tuple(bucket.values()) for bucket in every} == set(product((1, 2, 4, 8), (64, 100, 128)))
    assert all(bucket in BUCKETS for bucket in every)
    assert {"batch": 3, "seq": 64} not in BUCKETS
    assert {"batch": 4} not in BUCKETS
    assert 4 not in BUCKETS


def test_a_bucket_is_a_mapping_and_a_key():
    bucket = BUCKETS.of(batch=3, seq=70)
    assert dict(**bucket) == {"batch": 4, "seq": 100}
    assert (bucket.name, repr(bucket), len(bucket)) == ("batch=4, seq=100", "Bucket(batch=4, seq=100)", 2)
    assert bucket == Bucket({"seq": 100, "batch": 4})
    assert {bucket: 1}[Bucket({"seq": 100, "batch": 4})] == 1
    assert bucket != Bucket({"batch": 4, "seq": 64})
    assert all(pickle.loads(pickle.dumps(bucket, protocol)) == bucket for protocol in range(6))
    assert bucket.padding({"batch": 3, "seq": 70}) == pytest.approx(1 - 210 / 400)
    assert gd.Buckets(batch=[1, 2, 4, 8], seq=[64, 100, 128]) == BUCKETS
    assert hash(BUCKETS) == hash(gd.Buckets(batch=(1, 2, 4, 8), seq=(64, 100, 128)))
    assert gd.Buckets(batch=[1, 2, 4, 8]) != BUCKETS
    assert repr(BUCKETS) == "Buckets(batch=[1, 2, 4, 8], seq=[64, 100, 128])"


# Lists of sizes


@given(st.integers(1, 5000), st.integers(1, 5000))
@settings(max_examples=30, deadline=None)
def test_lists_by_rule_end_at_the_largest(largest, other):
    doubled, stepped = gd.Buckets.powers_of_two(largest, least=other), gd.Buckets.steps(other, largest)
    for sizes in (doubled, stepped):
        assert gd.Buckets(n=sizes).largest["n"] == largest
    assert all(size & (size - 1) == 0 and size >= other for size in doubled[:-1])
    assert all(after <= 2 * size for size, after in pairwise(doubled))
    assert all(after - size <= other for size, after in zip([0, *stepped], stepped))
    assert largest <= other or len(stepped) == -(-largest // other)


@pytest.mark.parametrize("wrong", [0, -4, True, 2.0, "8"])
def test_lists_by_rule_take_positive_integers(wrong):
    for call in (
        lambda: gd.Buckets.powers_of_two(wrong),
        lambda: gd.Buckets.powers_of_two(8, least=wrong),
        lambda: gd.Buckets.steps(wrong, 8),
        lambda: gd.Buckets.steps(8, wrong),
        lambda: gd.Buckets.least_padding([1], wrong),
        lambda: gd.Buckets.least_padding([1, wrong], 1),
        lambda: gd.Buckets.for_trace([{"n": wrong}], n=1),
    ):
        with pytest.raises(gd.DeclarationError, match="a size is a positive integer"):
            call()


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 9)), min_size=1, max_size=12), st.integers(1, 5))
@settings(max_examples=50, deadline=None)
def test_no_list_of_so_many_sizes_has_less_padding(requests, count):
    sizes, weights = zip(*requests)

    def cost(known):
        return sum(weight * min(each for each in known if each >= size) for size, weight in requests)

    found = gd.Buckets.least_padding(sizes, count, weights)
    assert len(found) <= count
    assert found == sorted(set(found))
    largest = max(sizes)
    every = ((*rest, largest) for much in range(count) for rest in combinations(range(1, largest), much))
    assert cost(found) == min(map(cost, every))


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=8),
    st.integers(1, 3),
    st.integers(1, 3),
)
@settings(max_examples=30, deadline=None)
def test_with_two_axes_no_other_sizes_of_one_are_better(requests, first, second):
    trace = [{"a": a, "b": b} for a, b in requests]

    def cells(buckets):
        return sum(buckets.of(**request).cells for request in trace)

    found = gd.Buckets.for_trace(trace, a=first, b=second)
    assert found.padding(trace).refused == 0
    for axis, count in (("a", first), ("b", second)):
        largest = found.largest[axis]
        assert len(found.sizes[axis]) <= count
        for rest in combinations(range(1, largest), min(count, largest) - 1):
            assert cells(found) <= cells(gd.Buckets(**{**found.sizes, axis: [*rest, largest]}))


def test_sizes_for_a_trace_that_lacks_something_are_refused():
    with pytest.raises(gd.DeclarationError, match="no request to choose sizes for"):
        gd.Buckets.for_trace([], batch=2)
    with pytest.raises(gd.DeclarationError, match="on every axis") as caught:
        gd.Buckets.for_trace([{"batch": 1}], batch=1, seq=2)
    assert caught.value.field == "seq"
    with pytest.raises(gd.DeclarationError, match="one axis at least"):
        gd.Buckets.for_trace([{"batch": 1}])


# The cost on a trace

REQUESTS = st.lists(st.fixed_dictionaries({"a": st.integers(1, 9), "b": st.integers(1, 9)}), max_size=20)


@given(REQUESTS, st.sets(st.integers(1, 8), min_size=1), st.sets(st.integers(1, 8), min_size=1))
@settings(max_examples=30, deadline=None)
def test_the_report_counts_every_request_once(trace, ones, others):
    buckets = gd.Buckets(a=sorted(ones), b=sorted(others))
    report = buckets.padding(iter(trace))
    taken = [
        (request, buckets.of(**request)) for request in trace if all(request[x] <= buckets.largest[x] for x in "ab")
    ]
    assert (report.requests, report.refused) == (len(trace), len(trace) - len(taken))
    assert sum(count for count, _ in report.refusals.values()) == report.refused
    assert list(report.buckets) == list(buckets)

    def share(pairs):
        total = sum(all_ for _, all_ in pairs)
        return pytest.approx(1 - sum(real for real, _ in pairs) / total if total else 0)

    assert report.share == share([(prod(request.values()), bucket.cells) for request, bucket in taken])
    for axis in "ab":
        assert report.shares[axis] == share([(request[axis], bucket[axis]) for request, bucket in taken])
    for bucket, use in report.buckets.items():
        mine = [request for request, found in taken if found == bucket]
        assert use.requests == len(mine)
        assert use.share == share([(prod(request.values()), bucket.cells) for request in mine])


def test_the_report_is_a_table():
    trace = [{"batch": 3}] * 1500 + [{"batch": 9}, {"batch": 12}]
    assert str(gd.Buckets(batch=[1, 4]).padding(trace)) == (
        "bucket   requests  padding\n"
        "batch=4     1,500    25.0%\n"
        "batch=1         0     0.0%\n"
        "all         1,500    25.0%\n"
        "2 of 1,502 refused: batch of up to 12"
    )


def test_a_request_that_is_wrong_is_refused_by_the_report():
    with pytest.raises(gd.DeclarationError, match="a size on every axis"):
        BUCKETS.padding([{"batch": 1}])


@pytest.mark.parametrize("take", [lambda trace: BUCKETS.padding(trace), lambda trace: gd.Buckets.for_trace(trace, n=2)])
def test_a_trace_of_numbers_is_refused(take):
    with pytest.raises(gd.DeclarationError, match=r"^trace = 3 of type int: a request is a mapping of its axes"):
        take([3])


def test_numbers_of_numpy_are_sizes():
    assert gd.Buckets.powers_of_two(np.int64(5), least=np.int8(2)) == [2, 4, 5]
    assert gd.Buckets.steps(np.int64(2), np.int16(5)) == [2, 4, 5]
    assert gd.Buckets.least_padding(np.array([1, 2, 9]), np.int64(2)) == [2, 9]


def test_an_axis_may_have_any_name():
    assert gd.Buckets(**{"self": [1, 4]}).of(**{"self": 3}) == {"self": 4}
