"""Bugs of padding, planted: each is found, with the bucket, the sizes, the input and the output."""

from __future__ import annotations

import gc
import pickle
from weakref import WeakSet

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cuda

import graphdsl as gd
from graphdsl.run import faults
from graphdsl.serve import Bucket
from graphdsl.testing.padding import requests_of
from tests.serve.graphs import cache_of, rows, weight_of

WIDTH, ILLEGAL_ADDRESS = 3, 700


def made_of(build, inputs, outputs, buckets=None, sizes=None, device=None) -> gd.GraphCache:
    buckets = gd.Buckets(batch=[1, 4]) if buckets is None else buckets
    device = gd.emulator() if device is None else device
    return gd.GraphCache(build, buckets, device, inputs=inputs, outputs=outputs, sizes=sizes)


X = np.arange(1, 13, dtype=np.float32).reshape(4, WIDTH)
ROWS = gd.Padding("batch", fill=0)


def graph_of(kernel, *, batch, inputs, outputs, param=False, before=None):
    """A graph that copies inputs in, runs a kernel with a thread for each row of the batch, and copies outputs out."""
    g = gd.Graph("step")
    count = (g.param("count", np.int32, default=batch),) if param else ()
    on_device = {}
    with g.sequence():
        for name, (shape, dtype) in inputs.items():
            on_device[name] = g.device_array(f"{name}_d", shape, dtype)
            g.memcpy(on_device[name], g.host_array(name, shape, dtype), name=f"load_{name}")
        for name, (shape, dtype) in outputs.items():
            on_device[name] = g.device_array(f"{name}_d", shape, dtype)
            g.memset(on_device[name], 0, name=f"clear_{name}")
        g.kernel(kernel, grid=1, block=batch, args=(*on_device.values(), *count), name="step")
        for name, (shape, dtype) in outputs.items():
            g.memcpy(g.host_array(name, shape, dtype), on_device[name], name=f"store_{name}")
    return g


@cuda.jit
def row_sums(x, y):
    row = cuda.grid(1)
    total = x[row, 0]
    for i in range(1, x.shape[1]):
        total += x[row, i]
    y[row] = total


@cuda.jit
def total(x, y):
    row = cuda.grid(1)
    for i in range(x.shape[1]):
        cuda.atomic.add(y, 0, x[row, i])


@cuda.jit
def total_of_real(x, y, count):
    row = cuda.grid(1)
    if row < count:
        for i in range(x.shape[1]):
            cuda.atomic.add(y, 0, x[row, i])


@cuda.jit
def largest(x, y):
    row = cuda.grid(1)
    for i in range(x.shape[1]):
        cuda.atomic.max(y, 0, x[row, i])


def of_rows(kernel, padding=ROWS, *, whole=True, param=False):
    shape = (lambda batch: 1) if whole else (lambda batch: batch)

    def build(batch):
        inputs = {"x": ((batch, WIDTH), np.float32)}
        return graph_of(kernel, batch=batch, inputs=inputs, outputs={"y": (shape(batch), np.float32)}, param=param)

    sizes = {"batch": "count"} if param else {}
    return made_of(build, {"x": padding}, {"y": () if whole else "batch"}, sizes=sizes)


def caught(made, inputs, **options):
    with pytest.raises(gd.PaddingError) as found:
        gd.testing.assert_padding_safe(made, inputs, **options)
    assert isinstance(found.value, AssertionError)
    assert found.value.remedy
    assert str(pickle.loads(pickle.dumps(found.value))) == str(found.value)
    return found.value


def test_rows_that_nothing_joins_are_safe():
    tried = gd.testing.assert_padding_safe(of_rows(row_sums, whole=False), {"x": X})
    assert (tried.buckets, tried.requests) == (2, 4)
    assert str(tried) == "4 requests in 2 buckets"


def test_a_kernel_that_stops_at_the_real_size_is_safe():
    gd.testing.assert_padding_safe(of_rows(total_of_real, param=True), {"x": X})


def test_a_reduction_over_padded_rows_is_found():
    problem = caught(of_rows(total), {"x": X})
    assert (problem.bucket, problem.sizes) == ({"batch": 4}, {"batch": 3})
    assert (problem.input, problem.output, problem.index) == ("x", "y", (0,))
    assert problem.values[0] == X[:3].sum() == 45
    assert np.isnan(problem.values[1])
    assert str(problem) == (
        "a request of batch=3 in the bucket batch=4 gives y[0] = nan, and a graph of its size 45.0; "
        "what the padding of 'x' holds reaches it. "
        "Let kernels stop at the real size, which sizes= of the cache passes as a param. "
        "If nodes may count on the fill of 'x', say so with relied_on=True."
    )


def test_a_fill_that_is_relied_on_is_not_poisoned():
    gd.testing.assert_padding_safe(of_rows(total, gd.Padding("batch", fill=0, relied_on=True)), {"x": X})


def test_a_fill_that_is_relied_on_and_does_harm_is_found():
    problem = caught(of_rows(total, gd.Padding("batch", fill=1, relied_on=True)), {"x": X})
    assert (problem.output, problem.values, problem.input) == ("y", (45.0, 48.0), "x")
    assert "reaches it: fill=1. Let kernels skip such rows" in str(problem)


def test_what_takes_no_notice_of_nan_is_found_by_large_numbers():
    problem = caught(of_rows(largest), {"x": X})
    assert (problem.input, problem.output) == ("x", "y")
    assert problem.values[1] > 1e38


# An index of -1


@cuda.jit
def append(x, slots, kept):
    row = cuda.grid(1)
    for i in range(x.shape[1]):
        kept[slots[row], i] = x[row, i]


def appending(padding):
    device = gd.emulator()
    owner = gd.to_device(device, np.zeros((6, WIDTH), np.float32))

    def build(batch):
        g = gd.Graph("append")
        x, slots = g.device_array("x_d", (batch, WIDTH), np.float32), g.device_array("slots_d", batch, np.int32)
        with g.sequence():
            g.memcpy(x, g.host_array("x", x.shape, x.dtype), name="load_x")
            g.memcpy(slots, g.host_array("slots", batch, np.int32), name="load_slots")
            g.kernel(append, grid=1, block=batch, args=(x, slots, g.external("kept", owner)), name="append")
        return g

    return made_of(build, {"x": ROWS, "slots": padding}, {"kept": ()}, device=device), owner


APPENDED = {"x": X, "slots": [0, 2, 1, 4]}


def test_an_index_of_minus_one_that_lands_in_the_last_row_is_found():
    made, owner = appending(gd.Padding("batch", fill=-1))
    problem = caught(made, APPENDED)
    assert (problem.input, problem.output, problem.index[0]) == ("slots", "kept", 5)
    assert "the padding of 'slots'" in str(problem)
    assert not owner.copy_to_host().any()  # what others own holds what it held before


def test_a_scrap_slot_is_safe():
    made, owner = appending(gd.Padding("batch", scrap=5))
    gd.testing.assert_padding_safe(made, APPENDED, ignore={"kept": 5})
    assert not owner.copy_to_host().any()
    problem = caught(made, APPENDED)
    assert problem.index[0] == 5


# A length of 0


@cuda.jit
def score(x, lengths, y):
    row = cuda.grid(1)
    found = np.float32(0)
    for i in range(lengths[row]):
        found += x[row, i]
    cuda.atomic.add(y, 0, found / np.float32(lengths[row]))


@cuda.jit
def score_of_some(x, lengths, y):
    row = cuda.grid(1)
    if lengths[row] > 0:
        found = np.float32(0)
        for i in range(lengths[row]):
            found += x[row, i]
        cuda.atomic.add(y, 0, found / np.float32(lengths[row]))


def scoring(kernel):
    def build(batch):
        inputs = {"x": ((batch, WIDTH), np.float32), "lengths": (batch, np.int32)}
        return graph_of(kernel, batch=batch, inputs=inputs, outputs={"y": (1, np.float32)})

    return made_of(build, {"x": ROWS, "lengths": gd.Padding("batch", fill=0)}, {"y": ()})


LENGTHS = {"x": X, "lengths": [3, 1, 2, 2]}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_length_of_zero_is_found():
    problem = caught(scoring(score), LENGTHS)
    assert (problem.input, problem.output, problem.sizes) == ("lengths", "y", {"batch": 3})
    assert np.isnan(problem.values[1])


def test_a_length_of_zero_that_is_skipped_is_safe():
    gd.testing.assert_padding_safe(scoring(score_of_some), LENGTHS)


# Metadata sized for the real batch


@cuda.jit
def scatter(x, places, y):
    row = cuda.grid(1)
    y[places[row]] = x[row, 0]


def scattering(padding, kernel=scatter):
    def build(batch):
        inputs = {"x": ((batch, WIDTH), np.float32), "places": (batch, np.int32)}
        return graph_of(kernel, batch=batch, inputs=inputs, outputs={"y": (5, np.float32)})

    return made_of(build, {"x": ROWS, "places": padding}, {"y": ()})


PLACES = {"x": X, "places": [1, 0, 2, 3]}


def test_metadata_sized_for_the_real_batch_is_found():
    problem = caught(scattering(gd.Padding("batch")), PLACES)  # behind the real ones it holds anything
    assert (problem.input, problem.output, problem.index) == ("places", "y", (4,))
    gd.testing.assert_padding_safe(scattering(gd.Padding("batch", scrap=4)), PLACES, ignore={"y": 4})


@cuda.jit
def scatter_positive(x, places, y):
    row = cuda.grid(1)
    if places[row] >= 0:
        y[places[row]] = x[row, 0]


def test_a_node_that_fails_is_found():
    made = scattering(gd.Padding("batch"), scatter_positive)  # takes no notice of -1, but of large numbers
    problem = caught(made, PLACES)
    assert (problem.input, problem.output) == ("places", None)
    assert isinstance(problem.failure, gd.MemoryFault)
    assert problem.__cause__ is problem.failure
    assert "fails, and does not in a graph of its size: graph 'step', node 'step'" in str(problem)


# One more than the batch: where the rows of each request begin


@cuda.jit
def ragged_sums(values, offsets, y, longest):
    row = cuda.grid(1)
    found = np.float32(0)
    for i in range(offsets[row], offsets[row + 1]):
        found += values[i]
    y[row] = found
    cuda.atomic.max(longest, 0, abs(offsets[row + 1] - offsets[row]))


def ragged(padding):
    def build(batch):
        inputs = {"values": (12, np.float32), "offsets": (batch + 1, np.int32)}
        outputs = {"y": (batch, np.float32), "longest": (1, np.int32)}
        return graph_of(ragged_sums, batch=batch, inputs=inputs, outputs=outputs)

    outputs = {"y": "batch", "longest": ()}
    return made_of(build, {"values": gd.Padding(()), "offsets": padding}, outputs)


RAGGED = {"values": np.arange(12), "offsets": [0, 3, 4, 9, 12]}


def test_offsets_that_repeat_their_end_are_safe():
    gd.testing.assert_padding_safe(ragged(gd.Padding("batch + 1", fill="last")), RAGGED)


def test_offsets_that_go_back_to_the_start_are_found():
    problem = caught(ragged(gd.Padding("batch + 1", fill=0)), RAGGED)
    assert (problem.input, problem.output, problem.sizes) == ("offsets", "longest", {"batch": 3})
    assert problem.values == (5, 9)


def test_offsets_of_the_real_batch_alone_are_found():
    problem = caught(ragged(gd.Padding("batch + 1")), RAGGED)
    assert problem.input == "offsets"


@pytest.mark.parametrize(("number", "error"), [(0, gd.DriverError), (1, gd.PaddingError)])
def test_a_fault_is_told_and_not_what_a_lost_context_refuses_then(monkeypatch, number, error):
    """An emulator that is taken for a GPU: it faults at the exact size, or in the bucket, and then each call fails."""
    monkeypatch.setattr(faults, "_lost", {})
    monkeypatch.setattr(faults, "_all", WeakSet())  # all GPUs of a process are one to it
    made = of_rows(row_sums, whole=False)
    device = made.device
    device.history.clear()
    gd.testing.assert_padding_safe(made, {"x": X})
    calls = list(device.history)
    launch = [place for place, call in enumerate(calls) if call == "cuGraphLaunch"][number]
    device.emulated = False
    device.fail_next("cuStreamSynchronize", ILLEGAL_ADDRESS, calls[:launch].count("cuStreamSynchronize"))
    for call in ("cuStreamDestroy", "cuGraphExecDestroy"):
        device.fail_next(call, ILLEGAL_ADDRESS, calls[:launch].count(call))
    with pytest.raises(error, match=r"cuStreamSynchronize returned CUDA_ERROR_ILLEGAL_ADDRESS \(700\)"):
        gd.testing.assert_padding_safe(made, {"x": X})


# What the launch before left


@cuda.jit
def double_some(x, between, count):
    row = cuda.grid(1)
    if row < count:
        for i in range(x.shape[1]):
            between[row, i] = 2 * x[row, i]


def stale(batch):
    g = gd.Graph("stale")
    count = g.param("count", np.int32, default=batch)
    x, between = (g.device_array(name, (batch, WIDTH), np.float32) for name in ("x_d", "between"))
    y = g.device_array("y_d", 1, np.float32)
    with g.sequence():
        g.memcpy(x, g.host_array("x", x.shape, x.dtype), name="load")
        g.memset(y, 0, name="clear")
        g.kernel(double_some, grid=1, block=batch, args=(x, between, count), name="double")
        g.kernel(total, grid=1, block=batch, args=(between, y), name="total")
        g.memcpy(g.host_array("y", 1, np.float32), y, name="store")
    return g


def test_what_the_launch_before_left_is_found():
    made = made_of(stale, {"x": ROWS}, {"y": ()}, sizes={"batch": "count"})
    problem = caught(made, {"x": X})
    assert (problem.input, problem.output) == (None, "y")
    assert "memory of the graph that the launch has not written reaches it" in str(problem)


@cuda.jit
def mean(x, y, count):
    row = cuda.grid(1)
    if row < count:
        for i in range(x.shape[1]):
            cuda.atomic.add(y, 0, x[row, i] / x.shape[0])


def test_a_result_that_hangs_on_the_size_of_the_bucket_is_found():
    problem = caught(of_rows(mean, param=True), {"x": X})
    assert (problem.input, problem.output, problem.values) == (None, "y", (15.0, 11.25))
    assert "whatever the padding holds" in str(problem)


# All ways in which rows can reach rows


@cuda.jit
def mix(x, y, reach):
    row = cuda.grid(1)
    found = np.float32(0)
    for i in range(x.shape[0]):
        if reach[row, i]:
            found += x[i]
    y[row] = found


@given(st.lists(st.sampled_from([False] * 5 + [True]), min_size=16, max_size=16))
@settings(max_examples=10, deadline=None)
def test_padding_is_found_where_it_reaches_a_real_row_and_nowhere_else(flags):
    reach, device = np.array(flags).reshape(4, 4), gd.emulator()
    owner = gd.to_device(device, reach)

    def build(batch):
        g = gd.Graph("mix")
        x, y = (g.device_array(name, batch, np.float32) for name in ("x_d", "y_d"))
        with g.sequence():
            g.memcpy(x, g.host_array("x", batch, np.float32), name="load")
            g.kernel(mix, grid=1, block=batch, args=(x, y, g.external("reach", owner)), name="mix")
            g.memcpy(g.host_array("y", batch, np.float32), y, name="store")
        return g

    made = made_of(build, {"x": ROWS}, {"y": "batch"}, gd.Buckets(batch=[1, 4]), device=device)
    wrong = [size for size in (3, 2) if reach[:size, size:].any()]
    inputs = {"x": np.arange(1, 5, dtype=np.float32)}
    if not wrong:
        gd.testing.assert_padding_safe(made, inputs)
    else:
        problem = caught(made, inputs)
        row = int(reach[: wrong[0], wrong[0] :].any(axis=1).argmax())
        assert (problem.sizes, problem.input, problem.index) == ({"batch": wrong[0]}, "x", (row,))


# Two axes, and how it is called


@cuda.jit
def row_totals(x, y, seq):
    row = cuda.grid(1)
    found = np.float32(0)
    for i in range(seq):
        found += x[row, i]
    y[row] = found


def build_two(batch, seq):
    g = gd.Graph("two")
    count = g.param("seq", np.int32, default=seq)
    x, y = g.device_array("x_d", (batch, seq), np.float32), g.device_array("y_d", batch, np.float32)
    with g.sequence():
        g.memcpy(x, g.host_array("x", x.shape, x.dtype), name="load")
        g.kernel(row_totals, grid=1, block=batch, args=(x, y, count), name="totals")
        g.memcpy(g.host_array("y", batch, np.float32), y, name="store")
    return g


def two_axes(sizes):
    padding = gd.Padding(("batch", "seq"), fill=0)
    return made_of(build_two, {"x": padding}, {"y": "batch"}, gd.Buckets(batch=[2], seq=[2, 4]), sizes)


def test_each_axis_is_tried():
    whole = np.arange(8, dtype=np.float32).reshape(2, 4)
    seen = []

    def inputs(batch, seq):
        seen.append((batch, seq))
        return {"x": whole[:batch, :seq]}

    gd.testing.assert_padding_safe(two_axes({"seq": "seq"}), inputs)
    assert seen[:4] == [(2, 4), (1, 4), (2, 3), (1, 3)]
    problem = caught(two_axes({}), {"x": whole})  # nobody tells the kernel the real size
    assert (problem.sizes, problem.bucket) == ({"batch": 2, "seq": 3}, {"batch": 2, "seq": 4})


# The cache itself


def test_the_cache_is_as_it_was():
    """It is tried while its execs are there and a request is open; with the memory that a swap has bound."""
    device = gd.emulator()
    with cache_of(device, (1, 4)) as cache:
        cache.warm_up()
        with cache(batch=3) as run:
            run.load(raw=rows(3))
            run.launch()
            before, counts, nbytes = device.live, str(cache.counts), cache.nbytes
            gd.testing.assert_padding_safe(cache, {"raw": rows(4)})
            gc.collect()
            assert (device.live, str(cache.counts), cache.nbytes) == (before, counts, nbytes)
            assert (run["kept"].copy_to_host() == 2 * rows(3)).all()
        cache.swap(w=weight_of(device, np.inf))
        with pytest.raises(gd.PaddingError, match=r"out\[0, 0\] = inf"):
            gd.testing.assert_padding_safe(
                cache, {"raw": rows(4)}, expected=lambda inputs, batch: dict.fromkeys(["out", "kept"], 2 * rows(batch))
            )


def test_requests_stay_within_their_bucket():
    buckets = gd.Buckets(batch=[1, 4, 8], seq=[1, 2, 9])
    for bucket in buckets:
        requests = list(requests_of(bucket, buckets))
        assert requests[0] == bucket
        assert len(set(requests)) == len(requests)
        assert {buckets.of(**sizes) for sizes in requests} == {bucket}
    assert Bucket({"batch": 5, "seq": 3}) in set(requests_of(buckets.largest, buckets))
    assert Bucket({"batch": 7, "seq": 8}) in set(requests_of(buckets.largest, buckets))


def test_results_may_come_from_elsewhere_and_be_close():
    made = of_rows(row_sums, whole=False)

    def expected(inputs, batch):
        assert inputs["x"].shape == (batch, WIDTH)
        return {"y": inputs["x"].sum(axis=1) * (1 + 1e-6)}

    gd.testing.assert_padding_safe(made, {"x": X}, expected=expected, rtol=1e-5)
    problem = caught(made, {"x": X}, expected=expected)
    assert problem.sizes == problem.bucket == {"batch": 4}


def test_what_is_expected_has_all_outputs():
    with pytest.raises(gd.DeclarationError, match="expected = 'y': what is expected has all outputs"):
        gd.testing.assert_padding_safe(of_rows(row_sums, whole=False), {"x": X}, expected=lambda inputs, batch: {})


@pytest.mark.parametrize("inputs", [{}, {"x": X, "z": X}, lambda batch: {}])
def test_inputs_are_those_of_the_cache(inputs):
    with pytest.raises(gd.DeclarationError, match="the inputs of a test are those of the cache"):
        gd.testing.assert_padding_safe(of_rows(row_sums, whole=False), inputs)


def test_an_input_that_is_too_small_is_refused():
    with pytest.raises(gd.DeclarationError, match="no room for 4 on the axis 'batch'"):
        gd.testing.assert_padding_safe(of_rows(row_sums, whole=False), {"x": X[:2]})


def test_an_output_of_another_shape_is_found():
    made = of_rows(row_sums, whole=False)
    made.outputs = {"y": ()}  # it is not said that it has an axis
    problem = caught(made, {"x": X})
    assert (problem.output, problem.index, problem.values) == ("y", None, ((3,), (4,)))


def test_there_is_something_to_compare():
    made = of_rows(row_sums, whole=False)
    made.outputs = {}
    with pytest.raises(gd.DeclarationError, match="nothing to compare"):
        gd.testing.assert_padding_safe(made, {"x": X})
    made.outputs = {"z": ()}
    with pytest.raises(gd.DeclarationError, match="no array of this name"):
        gd.testing.assert_padding_safe(made, {"x": X})


def test_what_is_ignored_must_be_an_output():
    made, _ = appending(gd.Padding("batch", scrap=5))
    with pytest.raises(gd.DeclarationError, match=r"^ignore = 'keep': there is no output of the cache .*kept"):
        gd.testing.assert_padding_safe(made, APPENDED, ignore={"keep": 5})
