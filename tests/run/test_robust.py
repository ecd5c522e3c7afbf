"""What users do wrong, and where it would hurt: each gives one clear error, and nothing is lost."""

from __future__ import annotations

import gc
import math
import threading

import numpy as np
import pytest

import graphdsl as gd
from tests.conformance import kernels


@pytest.fixture
def device() -> gd.emulator:
    return gd.emulator()


def copy_sign(out, value):
    out[0] = math.copysign(1.0, value)


class TestHostArguments:
    def graph(self) -> tuple[gd.Graph, list]:
        seen: list = []
        g = gd.Graph("host")
        n = g.param("n", np.int32, default=4)
        h = g.host_array("h", 8, np.float32)
        g.host(lambda *args: seen.append(args), (h[:n], (h, n)), name="read")
        return g, seen

    @pytest.mark.parametrize("bad", [1000, 9, -1])
    def test_an_update_never_lets_a_view_leave_its_buffer(self, device, bad):
        g, seen = self.graph()
        with g.instantiate(device) as exe:
            with pytest.raises(gd.UpdateError) as caught:
                exe.update(n=bad)
            assert caught.value.node == "read"
            exe.launch()
            exe.synchronize()
        assert seen[0][0].shape == (4,)

    def test_division_by_zero_is_refused(self, device):
        g = gd.Graph("zero")
        n = g.param("n", np.int32, default=4)
        g.host(print, (12 // n,), name="read")
        with g.instantiate(device) as exe, pytest.raises(gd.UpdateError) as caught:
            exe.update(n=0)
        assert caught.value.node == "read"

    def test_operands_in_tuples_arrive_as_memory_and_numbers(self, device):
        g, seen = self.graph()
        with g.instantiate(device) as exe:
            exe.launch()
            exe.synchronize()
        _, (array, number) = seen[0]
        assert isinstance(array, np.ndarray)
        assert number == 4


class TestSignedZero:
    def test_by_param(self, device):
        g = gd.Graph("signed")
        value = g.param("value", np.float64, default=0.0)
        out = g.host_array("out", 1, np.float64)
        g.kernel(copy_sign, grid=1, block=1, args=(out, value))
        with g.instantiate(device) as exe:
            for number in (-0.0, 0.0, -0.0):
                exe.update(value=number)
                exe.launch()
                exe.synchronize()
                assert exe["out"][0] == math.copysign(1.0, number)


class TestFailuresAreNotLost:
    def failing(self) -> gd.Graph:
        g = gd.Graph("failing")

        def fail() -> None:
            raise ValueError("no such day")

        g.host(fail, name="fail")
        return g

    def test_closing_tells(self, device):
        exe = self.failing().instantiate(device)
        exe.launch()
        with pytest.raises(gd.CallbackError, match="no such day"):
            exe.close()
        gc.collect()
        assert not any(device.live.values())

    def test_leaving_the_context_tells(self, device):
        with pytest.raises(gd.CallbackError, match="no such day"), self.failing().instantiate(device) as exe:
            exe.launch()

    def test_a_failure_of_the_block_itself_comes_first(self, device):
        def block() -> None:
            with self.failing().instantiate(device) as exe:
                exe.launch()
                raise KeyError

        with pytest.raises(KeyError):
            block()

    def test_closing_names_the_node_of_a_fault(self, device):
        g = gd.Graph("faulty")
        g.memcpy(g.host_array("h", 4, np.float32), g.device_array("x", 4, np.float32), name="store")
        exe = g.instantiate(device)
        exe.launch()
        with pytest.raises(gd.MemoryFault) as caught:
            exe.close()
        assert caught.value.node == "store"

    def test_an_exception_without_a_text(self, device):
        class Mute(Exception):
            def __str__(self) -> str:
                raise RuntimeError

        def fail() -> None:
            raise Mute

        g = gd.Graph("mute")
        g.host(fail, name="fail")
        with g.instantiate(device) as exe:
            exe.launch()
            with pytest.raises(gd.CallbackError, match="Mute"):
                exe.synchronize()


class TestInsideAHostFunction:
    def test_closing_is_refused_and_can_be_done_later(self, device):
        refused = []
        g = gd.Graph("closing")

        def close() -> None:
            try:
                exe.close()
            except gd.GraphdslError as problem:
                refused.append(problem)

        g.host(close, name="close")
        exe = g.instantiate(device)
        exe.launch()
        exe.synchronize()
        assert "driver calls" in str(refused[0])
        exe.close()
        gc.collect()
        assert not any(device.live.values())

    def test_what_is_dropped_there_is_freed(self, device):
        other = gd.Graph("other")
        other.memset(other.device_array("x", 4, np.float32), 0)
        kept = [other.instantiate(device), gd.to_device(device, np.zeros(4))]
        g = gd.Graph("dropping")
        g.host(kept.clear, name="drop")
        with g.instantiate(device) as exe:
            exe.launch()
            exe.synchronize()
        for thread in threading.enumerate():
            if thread.name == "graphdsl-release":
                thread.join(timeout=30)
        gc.collect()
        assert not any(device.live.values()), device.live


def test_plans_of_updates_are_bounded(device):
    g = gd.Graph("many")
    params = [g.param(f"p{i}", np.int32, default=1) for i in range(10)]
    out = g.host_array("out", 1, np.float32)
    with g.sequence():
        for i, param in enumerate(params):
            g.kernel(kernels.add_to, grid=1, block=1, args=(out, 1.0, param), name=f"k{i}")
    with g.instantiate(device) as exe:
        for number in range(1, 1000):
            exe.update({f"p{i}": number + 1 for i in range(10) if number >> i & 1})
        assert len(exe._updater._plans) <= 256


class TestCopies:
    def exec_of(self, device, dtype):
        g = gd.Graph("copies")
        g.memset(g.device_array("x", 2, dtype), 0)
        return g.instantiate(device)

    @pytest.mark.parametrize(("dtype", "values"), [(np.int8, [300, -129]), (np.float32, [1e300, 0.0])])
    def test_values_that_do_not_fit_are_refused(self, device, dtype, values):
        with self.exec_of(device, dtype) as exe, pytest.raises(gd.GraphdslError, match="fit"):
            exe["x"].copy_from_host(values)

    def test_values_that_fit_are_converted(self, device):
        with self.exec_of(device, np.float32) as exe:
            exe["x"].copy_from_host([1.0, float("inf")])
            np.testing.assert_array_equal(exe["x"].copy_to_host(), [1.0, float("inf")])

    def test_a_read_only_destination_is_refused(self, device):
        with self.exec_of(device, np.float32) as exe:
            exe["x"].copy_from_host([1.0, 2.0])
            out = np.zeros(2, np.float32)
            out.flags.writeable = False
            with pytest.raises(gd.GraphdslError, match="writable"):
                exe["x"].copy_to_host(out)

    @pytest.mark.parametrize("bad", [[[1, 2], [3]], object(), None, [1.0], "text"])
    def test_what_is_no_such_array_is_refused(self, device, bad):
        with self.exec_of(device, np.float32) as exe, pytest.raises(gd.GraphdslError, match="array"):
            exe["x"].copy_from_host(bad)


def every_kind(device):
    g = gd.Graph("kinds")
    n = g.param("n", np.int32, default=4)
    x, h = g.device_array("x", 8, np.float32), g.host_array("h", 8, np.float32)
    with g.sequence():
        g.empty(name="empty")
        g.memset(x[:n], 1.0, name="set")
        g.kernel(kernels.add_to, grid=(1, n), block=n, args=(x, 1.0, n), shared_bytes=n, name="add")
        g.memcpy(h[:n], x[:n], name="store")
        g.host(print, name="host")
    return g.instantiate(device)


@pytest.mark.parametrize(
    ("node", "fields", "field"),
    [
        ("add", {"shared_bytes": None}, "shared_bytes"),
        ("add", {"grid": None}, "grid"),
        ("add", {"block": 1.5}, "block"),
        ("add", {"args": None}, None),
        ("add", {"args": 3}, None),
        ("add", {"args": (1, 2, 3, 4)}, None),
        ("store", {"nbytes": "a"}, "nbytes"),
        ("store", {"destination": 3}, "destination"),
        ("host", {"function": None}, "function"),
        ("host", {"function": "print"}, "function"),
        ("empty", {"grid": 1}, "grid"),
    ],
)
def test_bad_fields_of_a_node_are_update_errors(device, node, fields, field):
    with every_kind(device) as exe:
        with pytest.raises(gd.UpdateError) as caught:
            exe.node(node).update(**fields)
        assert caught.value.node == node
        assert field is None or caught.value.field == field
        exe.launch()
        exe.synchronize()


def test_an_update_of_nothing_is_nothing(device):
    with every_kind(device) as exe:
        device.history.clear()
        for node in ("empty", "add", "store"):
            exe.node(node).update()
        exe.update()
        assert not device.history


def test_a_copy_keeps_its_direction(device):
    with every_kind(device) as exe:
        store = exe.node("store")
        x, h = store.node.source.buffer, store.node.destination.buffer
        with pytest.raises(gd.UpdateError, match="destination") as caught:
            store.update(destination=x, source=h)
        assert caught.value.node == "store"


@pytest.mark.parametrize("value", [-1, 0, 2000])
def test_numbers_that_no_struct_holds_are_said_in_the_users_terms(device, value):
    with every_kind(device) as exe:
        with pytest.raises(gd.UpdateError) as caught:
            exe.update(n=value)
        assert caught.value.node in ("set", "add", "store")
        assert "uint" not in str(caught.value)
        assert exe["n"] == 4


@pytest.mark.parametrize("bad", ["emulator", 3, gd])
def test_a_graph_is_instantiated_on_a_device(bad):
    with pytest.raises(gd.GraphdslError) as caught:
        gd.Graph("g").instantiate(bad)
    assert caught.value.field == "device"


@pytest.mark.parametrize("bad", [3, [("n", 1)], "n"])
def test_an_update_takes_a_dict(device, bad):
    with every_kind(device) as exe, pytest.raises(gd.UpdateError, match="dict"):
        exe.update(bad)


@pytest.mark.parametrize("bad", [["n"], 3, None])
def test_names_are_strings(device, bad):
    with every_kind(device) as exe:
        for call in (exe.node, exe.__getitem__):
            with pytest.raises(gd.UpdateError, match="name"):
                call(bad)


class Streams:
    class Number:
        __cuda_stream__ = 3

    class Short:
        def __cuda_stream__(self):
            return 1

    class Text:
        def __cuda_stream__(self):
            return 0, "a"

    class Failing:
        def __cuda_stream__(self):
            raise RuntimeError


@pytest.mark.parametrize("stream", [Streams.Number(), Streams.Short(), Streams.Text(), Streams.Failing(), "s", 1.5])
def test_what_is_no_stream_is_refused(device, stream):
    with every_kind(device) as exe, pytest.raises(gd.GraphdslError) as caught:
        exe.launch(stream)
    assert caught.value.field == "stream"


def test_too_much_host_memory_is_one_error(device):
    g = gd.Graph("huge")
    huge = g.host_array("huge", 2**50, np.uint8, pinned=False)
    g.memset(g.device_array("x", 4, np.uint8), 0) >> g.host(print, (huge[:4],))
    with pytest.raises(gd.GraphdslError, match="huge") as caught:
        g.instantiate(device)
    assert caught.value.field == "huge"


@pytest.mark.parametrize(("shape", "dtype"), [(-1, "f4"), (1.5, "f4"), ((2, "a"), "f4"), (None, "f4"), (4, "O")])
def test_arrays_of_a_device_are_checked(device, shape, dtype):
    with pytest.raises(gd.GraphdslError):
        gd.device_array(device, shape, dtype)


def test_memory_of_another_device_is_refused_by_name(device):
    g = gd.Graph("elsewhere")
    w = g.external("w", gd.to_device(gd.emulator(), np.ones(4, np.float32)))
    g.memcpy(g.device_array("x", 4, np.float32), w)
    with pytest.raises(gd.GraphdslError) as caught:
        g.instantiate(device)
    assert caught.value.field == "w"
    assert g.trace()


def test_resizable_memory_is_held_while_an_exec_uses_it(device):
    data = bytearray(16)
    g = gd.Graph("held")
    out = g.host_array("out", 16, np.uint8)
    g.memcpy(out, g.external("data", data))
    with g.instantiate(device) as exe:
        with pytest.raises(BufferError):
            data.extend(b"more")
        other = bytearray(range(16))
        exe.update(data=other)
        assert exe["data"] is other
        exe.launch()
        exe.synchronize()
        assert bytes(exe["out"]) == bytes(range(16))


def test_a_large_graph_can_be_traced():
    g = gd.Graph("large")
    g.memset(g.device_array("weights", 100 * 2**30, np.uint8), 0)
    assert "cuGraphUpload" in [call.function for call in g.trace()]
