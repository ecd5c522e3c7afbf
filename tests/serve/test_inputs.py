"""What a request brings is written, whether it lies on the host or the device, and padded."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphdsl as gd

WIDTH = 2


def copying(place: str, wait=None):
    """A `build` that copies an input of the host or the device out; a host node may wait for something before."""

    def build(batch, seq):
        g = gd.Graph(f"copy{batch}")
        shape = (batch, WIDTH, seq)
        x = getattr(g, f"{place}_array")("x", shape, np.int32)
        y, out = g.device_array("y", shape, np.int32, lifetime="persistent"), g.host_array("out", shape, np.int32)
        with g.sequence():
            if wait is not None:
                g.host(lambda: wait(10) and None, name="wait")
            g.memcpy(y, x, name="load")
            g.memcpy(out, y, name="store")
        return g

    return build


def cache_of(device, place="device", fill=7, wait=None, **options) -> gd.GraphCache:
    inputs = {"x": gd.Padding(("batch", None, "seq"), fill)}
    return gd.GraphCache(copying(place, wait), gd.Buckets(batch=[2, 4], seq=[3]), device, inputs=inputs, **options)


class Foreign:
    """Memory of a device as another library has it."""

    def __init__(self, array: gd.DeviceArray) -> None:
        self.array = array
        self.__cuda_array_interface__ = array.__cuda_array_interface__


def padded(data, shape, fill):
    widths = [(0, most - extent) for most, extent in zip(shape, data.shape)]
    return np.pad(data, widths, mode="edge") if fill == "last" else np.pad(data, widths, constant_values=fill)


FORMS = {"host": lambda device, data: data, "device": gd.to_device}
FORMS["foreign"] = lambda device, data: Foreign(gd.to_device(device, data))
REQUESTS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3), st.sampled_from(sorted(FORMS))), max_size=6)


@given(REQUESTS, st.sampled_from([7, "last"]), st.sampled_from(["device", "host"]))
@settings(max_examples=12, deadline=None)
def test_each_request_finds_its_rows_and_the_fill_whatever_was_there(requests, fill, place):
    device = gd.emulator()
    with cache_of(device, place, fill) as cache:
        for number, (batch, seq, form) in enumerate(requests):
            data = np.arange(batch * WIDTH * seq, dtype=np.int32).reshape(batch, WIDTH, seq) + 100 * number
            with cache(batch=batch, seq=seq) as run:
                run.load(x=FORMS[form](device, data))
                run.launch()
                found = run["out"]
            np.testing.assert_array_equal(found, padded(data, found.shape, fill))


@pytest.mark.parametrize("fill", [7, None])
def test_rows_on_the_device_are_copied_there(fill):
    device = gd.emulator()
    data = gd.to_device(device, np.ones((1, WIDTH, 3), np.int32))
    with cache_of(device, fill=fill) as cache, cache(batch=1, seq=3) as run:
        device.history.clear()
        run.load(x=data)
        calls = [call for call in device.history if call.startswith("cuMemcpy")]
        assert calls == ["cuMemcpy3DAsync"] + ["cuMemcpyHtoDAsync"] * (fill is not None)


def test_what_another_request_has_left_is_waited_for_and_copied():
    device, go_on = gd.emulator(), threading.Event()
    with cache_of(device, wait=go_on.wait, outputs={"y": ("batch", None, "seq")}, concurrency=2) as cache:
        first, second = cache(batch=2, seq=3), cache(batch=1, seq=3)
        with first, second:
            first.load(x=np.full((2, WIDTH, 3), 5))
            first.launch()
            threading.Timer(0.03, go_on.set).start()
            second.load(x=gd.DeviceArray.part_of(first["y"], (1, WIDTH, 3)))
            second.launch()
            assert second["out"][:, 0, 0].tolist() == [5, 7]


def copied(cache, batch, value):
    """The run of a request that has ended, and what it has left on the device."""
    with cache(batch=batch, seq=3) as run:
        run.load(x=np.full((batch, WIDTH, 3), value))
        run.launch()
        return run, run["y"]


@pytest.mark.parametrize("batch", [4, 1], ids=["the same bucket", "another bucket"])
def test_what_a_launch_left_is_refused_once_another_request_writes_its_inputs_there(batch):
    with cache_of(gd.emulator()) as cache:
        run, y = copied(cache, 4, 5)
        with cache(batch=batch, seq=3) as later:
            with pytest.raises(gd.DeclarationError, match="shape of x"):
                later.load(x=np.full((batch, WIDTH, 2), 6))
            assert (y.copy_to_host() == 5).all(), "nothing was written"
            later.load(x=np.full((batch, WIDTH, 3), 6))
            said = (
                f"bucket batch=4, seq=3, y: .* launch 1 left it, .* bucket batch={later.bucket['batch']}, seq=3 wrote"
            )
            for use in (y.copy_to_host, lambda: run["y"]):
                with pytest.raises(gd.ArenaError, match=said):
                    use()
            assert (run["out"] == 5).all(), "that lies elsewhere"
            later.launch()
            assert (later["y"].copy_to_host()[:batch] == 6).all()
            later.load(x=np.full((batch, WIDTH, 3), 7))
            assert (later["y"].copy_to_host()[:batch] == 6).all(), "whoever launches knows what it writes"


def test_inputs_of_the_host_leave_what_is_on_the_device():
    with cache_of(gd.emulator(), "host") as cache:
        _, y = copied(cache, 4, 5)
        with cache(batch=4, seq=3) as later:
            later.load(x=np.full((4, WIDTH, 3), 6))
            assert (y.copy_to_host() == 5).all()


def test_what_the_request_before_left_in_the_same_arena_is_an_input():
    with cache_of(gd.emulator()) as cache:
        _, y = copied(cache, 4, 5)
        with cache(batch=4, seq=3) as later:
            later.load(x=y)
            with pytest.raises(gd.ArenaError):
                later.load(x=y)
            later.launch()
            assert (later["out"] == 5).all()


def test_rows_that_lie_where_they_are_to_go():
    device = gd.emulator()
    with cache_of(device) as cache, cache(batch=2, seq=2) as run:
        data = np.arange(8).reshape(2, WIDTH, 2)
        run.load(x=data)
        run.launch()
        x = run["x"]
        device.history.clear()
        run.load(x=gd.DeviceArray.part_of(x, (2, WIDTH, 2), (0, 0, 1)))  # one behind
        calls = [call for call in device.history if call.startswith("cuMemcpy")]
        assert calls == ["cuMemcpy3DAsync", "cuMemcpyHtoDAsync"], "to the host and back"
        run.launch()
        assert run["out"].tolist() == np.pad(data[:, :, 1:], [(0, 0), (0, 0), (0, 2)], constant_values=7).tolist()


@pytest.mark.parametrize("place", ["device", "host"])
@pytest.mark.parametrize(
    ("shape", "dtype", "said"),
    [
        ((1, WIDTH, 2), np.int32, r"shape of x = \(1, 2, 2\): with batch=1, seq=3 this has the shape \(1, 2, 3\)"),
        ((1, WIDTH, 3), np.float32, "dtype of x = float32: this is memory of int32"),
    ],
)
def test_rows_of_another_kind_are_refused(place, shape, dtype, said):
    device = gd.emulator()
    with cache_of(device, place) as cache, cache(batch=1, seq=3) as run:
        with pytest.raises(gd.DeclarationError, match=said) as caught:
            run.load(x=gd.to_device(device, np.zeros(shape, dtype)))
        assert caught.value.bucket == {"batch": 2, "seq": 3}
