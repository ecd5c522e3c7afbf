"""Graphs that run: every node kind, every space of memory, every kind of argument."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import graphdsl as gd
from tests.conformance import kernels


def demo_graph(size: int = 1024) -> gd.Graph:
    g = gd.Graph("demo")
    n = g.param("n", np.int32, default=size)
    gain = g.param("gain", np.float32, default=2.0)
    raw = g.host_array("raw", size, np.float32)
    x = g.device_array("x", size, np.float32, lifetime="persistent")
    y = g.device_array("y", size, np.float32)
    out = g.host_array("out", size, np.float32)
    load = g.memcpy(x, raw, name="load")
    clear = g.memset(y, 0, name="clear")
    run = g.kernel(kernels.scale, grid=gd.cdiv(n, 128), block=128, args=(x, y, gain, n), name="scale")
    store = g.memcpy(out, y, name="store")
    [load, clear] >> run >> store
    return g


def test_demo_runs_and_follows_its_params(device):
    data = np.arange(1024, dtype=np.float32)
    with demo_graph().instantiate(device) as exe:
        exe["raw"][:] = data
        exe.launch()
        exe.synchronize()
        np.testing.assert_array_equal(exe["out"], 2 * data)
        exe.update(gain=3.0, n=512)
        exe.launch()
        exe.synchronize()
        np.testing.assert_array_equal(exe["out"], np.where(np.arange(1024) < 512, 3 * data, 0))


@pytest.mark.parametrize("source", ["device", "pinned", "pageable"])
@pytest.mark.parametrize("destination", ["device", "pinned", "pageable"])
def test_copies_between_all_spaces(device, source, destination):
    g = gd.Graph("copies")
    arrays = {
        "device": lambda name: g.device_array(name, (4, 8), np.int16),
        "pinned": lambda name: g.host_array(name, (4, 8), np.int16),
        "pageable": lambda name: g.host_array(name, (4, 8), np.int16, pinned=False),
    }
    first, last = g.host_array("first", (4, 8), np.int16), g.host_array("last", (4, 8), np.int16)
    a, b = arrays[source]("a"), arrays[destination]("b")
    with g.sequence():
        g.memcpy(a, first)
        g.memcpy(b, a)
        g.memcpy(last, b)
    data = np.random.default_rng(0).integers(-1000, 1000, (4, 8), np.int16)
    with g.instantiate(device) as exe:
        exe["first"][:] = data
        exe.launch()
        exe.synchronize()
        np.testing.assert_array_equal(exe["last"], data)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (np.uint8, 200),
        (np.int8, -3),
        (np.bool_, True),
        (np.int16, -12345),
        (np.float16, 1.5),
        (np.int32, -7),
        (np.float32, 3.25),
        (np.complex64, 0),
        (np.float64, 0.0),
        (np.int64, -1),
    ],
)
@pytest.mark.parametrize("space", ["device", "pinned"])
def test_memset_of_every_width(device, dtype, value, space):
    g = gd.Graph("memsets")
    out = g.host_array("out", 37, dtype)
    x = out if space == "pinned" else g.device_array("x", 37, dtype)
    clear = g.memset(x, value, name="fill")
    if space == "device":
        clear >> g.memcpy(out, x)
    with g.instantiate(device) as exe:
        exe.launch()
        exe.synchronize()
        np.testing.assert_array_equal(exe["out"], np.full(37, value, dtype))


def test_memset_follows_a_param(device):
    g = gd.Graph("memset")
    value = g.param("value", np.float32, default=1.0)
    out = g.host_array("out", 8, np.float32)
    g.memset(out[2:6], value)
    with g.instantiate(device) as exe:
        exe["out"][:] = 0
        exe.launch()
        exe.synchronize()
        exe.update(value=-2.5)
        exe.launch()
        exe.synchronize()
        np.testing.assert_array_equal(exe["out"], [0, 0, -2.5, -2.5, -2.5, -2.5, 0, 0])


def test_copy_of_a_slice_that_follows_a_param(device):
    g = gd.Graph("slices")
    n = g.param("n", np.int64, default=3)
    source, out = g.host_array("source", 16, np.int32), g.host_array("out", 16, np.int32)
    x = g.device_array("x", 16, np.int32)
    with g.sequence():
        g.memset(x, -1)
        g.memcpy(x[n : n + n], source[:n])
        g.memcpy(out, x)
    with g.instantiate(device) as exe:
        exe["source"][:] = np.arange(16)
        for count in (3, 5, 8):
            exe.update(n=count)
            exe.launch()
            exe.synchronize()
            expected = np.full(16, -1)
            expected[count : 2 * count] = np.arange(count)
            np.testing.assert_array_equal(exe["out"], expected)


def one_kernel(kernel, block, args, *, grid=1, shared_bytes=0):
    """A graph around one kernel: ``args(graph)`` declares its operands; pinned ones are read back by name."""
    g = gd.Graph("one")
    g.kernel(kernel, grid=grid, block=block, args=args(g), shared_bytes=shared_bytes)
    return g


def run_with(graph, device, **arrays):
    """Set host arrays by name, launch once, and give all host arrays of the graph as copies."""
    with graph.instantiate(device) as exe:
        for name, data in arrays.items():
            exe[name][...] = data
        exe.launch()
        exe.synchronize()
        return {
            name: exe[name].copy()
            for name, operand in graph.operands.items()
            if isinstance(operand, gd.Buffer) and operand.space == "pinned"
        }


def test_barrier_and_static_shared_memory(device):
    g = one_kernel(kernels.reverse_block, 64, lambda g: (g.host_array("x", 64, np.int32),))
    out = run_with(g, device, x=np.arange(64))
    np.testing.assert_array_equal(out["x"], np.arange(64)[::-1])


def test_dynamic_shared_memory(device):
    def args(g):
        return g.host_array("x", 32, np.float32), g.host_array("out", 1, np.float32)

    g = one_kernel(kernels.sum_dynamic_shared, 32, args, shared_bytes=32 * 4)
    out = run_with(g, device, x=np.arange(32), out=0)
    assert out["out"][0] == np.arange(32).sum()


def test_atomics_over_several_blocks(device):
    g = one_kernel(kernels.count_threads, 32, lambda g: (g.host_array("counter", 1, np.int64),), grid=5)
    assert run_with(g, device, counter=0)["counter"][0] == 160


def test_two_dimensions(device):
    def args(g):
        return g.host_array("x", (5, 7), np.float64), g.host_array("y", (7, 5), np.float64)

    g = one_kernel(kernels.transpose, (4, 8), args, grid=(2, 1))
    data = np.random.default_rng(1).random((5, 7))
    np.testing.assert_array_equal(run_with(g, device, x=data, y=0)["y"], data.T)


def test_strided_view_as_argument(device):
    g = gd.Graph("strided")
    x = g.host_array("x", (4, 6), np.int64)
    g.kernel(kernels.add_to, grid=1, block=4, args=(x[:, 1], 10, 4))
    data = np.arange(24).reshape(4, 6)
    expected = data.copy()
    expected[:, 1] += 10
    np.testing.assert_array_equal(run_with(g, device, x=data)["x"], expected)


def test_device_function(device):
    g = one_kernel(kernels.squares, 16, lambda g: (g.host_array("x", 16, np.float32), 16))
    np.testing.assert_array_equal(run_with(g, device, x=np.arange(16))["x"], np.arange(16.0) ** 2)


def test_complex_numbers(device):
    g = one_kernel(kernels.conjugate, 8, lambda g: (g.host_array("x", 8, np.complex64), np.complex64(2j)))
    data = (np.arange(8) + 1j).astype(np.complex64)
    np.testing.assert_array_equal(run_with(g, device, x=data)["x"], 2j * data.conj())


def test_complex_param(device):
    g = gd.Graph("complex")
    factor = g.param("factor", np.complex128, default=1 + 2j)
    g.kernel(kernels.conjugate, grid=1, block=8, args=(g.host_array("x", 8, np.complex128), factor))
    with g.instantiate(device) as exe:
        exe["x"][:] = 1j
        exe.update(factor=3j)
        exe.launch()
        exe.synchronize()
        np.testing.assert_array_equal(exe["x"], np.full(8, 3 + 0j))


def test_tuples_of_arrays_and_numbers(device):
    def args(g):
        pair = (g.host_array("a", 8, np.float32), g.host_array("b", 8, np.float64))
        return pair, (0.5, 2), g.host_array("out", 8, np.float64)

    g = one_kernel(kernels.weighted, 8, args)
    out = run_with(g, device, a=np.arange(8), b=np.ones(8), out=0)
    np.testing.assert_array_equal(out["out"], 0.5 * np.arange(8) + 2)


def test_records(device):
    point = np.dtype([("x", np.float32), ("tag", np.int32)])
    g = one_kernel(kernels.move_points, 4, lambda g: (g.host_array("points", 4, point), np.float32(1.5)))
    data = np.array([(i, -i) for i in range(4)], point)
    out = run_with(g, device, points=data)["points"]
    np.testing.assert_array_equal(out["x"], data["x"] + 1.5)
    np.testing.assert_array_equal(out["tag"], data["tag"])


def test_small_scalars(device):
    g = one_kernel(kernels.store_flag, 1, lambda g: (g.host_array("out", 1, np.int32), True, np.int8(-5)))
    assert run_with(g, device, out=0)["out"][0] == -5


def test_empty_nodes_and_host_nodes_are_ordered(device):
    seen = []
    g = gd.Graph("hosts")
    n = g.param("n", np.int32, default=4)
    x = g.host_array("x", 8, np.float32)
    first = [g.host(seen.append, (name,), name=name) for name in "ab"]
    barrier = g.empty(name="barrier")
    scale = g.kernel(kernels.add_to, grid=1, block=8, args=(x, 1.0, n), name="scale")
    read = g.host(lambda view, count: seen.append((float(view.sum()), count)), (x[:n], n), name="read")
    first >> barrier >> scale >> read
    with g.instantiate(device) as exe:
        exe["x"][:] = 0
        exe.launch()
        exe.synchronize()
        assert sorted(seen[:2]) == ["a", "b"]
        assert seen[2] == (4.0, 4)
        exe.update(n=8)
        exe.launch()
        exe.synchronize()
        assert seen[-1] == (4.0 + 8, 8)


def test_host_function_that_raises_is_told_at_synchronise(device):
    def fail():
        raise ValueError("no such day")

    g = gd.Graph("failing")
    g.host(fail, name="fail")
    with g.instantiate(device) as exe:
        exe.launch()
        with pytest.raises(gd.CallbackError, match="no such day") as caught:
            exe.synchronize()
        assert caught.value.node == "fail"
        assert isinstance(caught.value.__cause__, ValueError)
        exe.synchronize()


def test_host_function_may_need_the_gil_while_another_thread_launches(device):
    g = gd.Graph("gil")
    g.host(lambda: sum(range(2000)), name="work")
    with g.instantiate(device) as exe:

        def many():
            for _ in range(50):
                exe.launch()
                exe.synchronize()

        thread = threading.Thread(target=many)
        thread.start()
        thread.join(timeout=60)
        assert not thread.is_alive()


def test_device_arrays_are_copied_both_ways(device):
    g = gd.Graph("arrays")
    x = g.device_array("x", (3, 4), np.float32)
    g.kernel(kernels.scale, grid=1, block=12, args=(x[0], x[1], 2.0, 4))
    with g.instantiate(device) as exe:
        data = np.arange(12, dtype=np.float32).reshape(3, 4)
        exe["x"].copy_from_host(data)
        exe.launch()
        out = np.empty((3, 4), np.float32)
        assert exe["x"].copy_to_host(out) is out
        expected = data.copy()
        expected[1] = 2 * data[0]
        np.testing.assert_array_equal(out, expected)
        with pytest.raises(gd.GraphdslError, match="out"):
            exe["x"].copy_to_host(np.empty(12, np.float32))


def test_external_device_memory_and_rebinding(device):
    first = gd.to_device(device, np.arange(8, dtype=np.float32))
    second = gd.to_device(device, 10 * np.arange(8, dtype=np.float32))
    g = gd.Graph("external")
    w = g.external("w", first)
    out = g.host_array("out", 8, np.float32)
    g.kernel(kernels.scale, grid=1, block=8, args=(w, out, 1.0, 8))
    with g.instantiate(device) as exe:
        for owner in (first, second, first):
            exe.update(w=owner)
            assert exe["w"] is owner
            exe.launch()
            exe.synchronize()
            np.testing.assert_array_equal(exe["out"], owner.copy_to_host())


def test_external_host_memory(device):
    data, result = np.arange(8, dtype=np.int32), np.zeros(8, np.int32)
    g = gd.Graph("host external")
    x = g.device_array("x", 8, np.int32)
    g.memcpy(x, g.external("data", data)) >> g.memcpy(g.external("result", result), x)
    with g.instantiate(device) as exe:
        exe.launch()
        exe.synchronize()
        np.testing.assert_array_equal(result, data)
        other = data[::-1].copy()
        exe.update(data=other)
        exe.launch()
        exe.synchronize()
        np.testing.assert_array_equal(result, other)


def test_one_array_shared_by_two_libraries(device):
    g = gd.Graph("dlpack")
    x = g.device_array("x", 8, np.float32)
    g.memset(x, 1.0)
    with g.instantiate(device) as exe:
        exe.launch()
        exe.synchronize()
        interface = exe["x"].__cuda_array_interface__
        assert interface["shape"] == (8,)
        assert interface["typestr"] == "<f4"
        assert exe["x"].__dlpack_device__()[0] in (1, 2)
        exe["x"].__dlpack__()


def test_several_execs_of_one_graph_are_independent(device):
    g = demo_graph(64)
    with g.instantiate(device) as one, g.instantiate(device, values={"gain": 5.0}) as two:
        one["raw"][:] = 1
        two["raw"][:] = 2
        for exe in (one, two):
            exe.launch()
        for exe in (one, two):
            exe.synchronize()
        assert one["out"][0] == 2
        assert two["out"][0] == 10
        one.update(gain=-1.0)
        assert two["gain"] == 5.0


def test_launch_on_a_foreign_stream(device):
    handle = device.stream_create()
    with demo_graph(64).instantiate(device) as exe:
        exe["raw"][:] = 3
        exe.launch(stream=handle)
        exe.synchronize()
        assert exe["out"][5] == 6
    device.stream_destroy(handle)


def test_views_outlive_a_closed_exec(device):
    exe = demo_graph(64).instantiate(device)
    raw = exe["raw"]
    raw[:] = 7
    exe.close()
    exe.close()
    assert raw.sum() == 7 * 64
    with pytest.raises(gd.ExecUnusableError, match="closed"):
        exe.launch()


def test_nodes_and_buffers_are_found_by_what_the_driver_knows_them_by(device):
    with demo_graph(64).instantiate(device) as exe:
        assert sorted(exe.node_handles.values()) == sorted(device.graph_get_nodes(exe.graph_handle))
        assert exe.node_handles.keys() == {"load", "clear", "scale", "store"}
        assert exe.addresses["x"] == exe["x"].address
        assert exe.addresses["raw"] == exe["raw"].ctypes.data
