"""Captured nodes: work of libraries on a GPU, and what stands for it on the emulator.

The library is the driver itself, through `memset_async`, and CuPy and PyTorch where they are installed.
"""

from __future__ import annotations

import contextlib
import gc
import weakref

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.drivers.base import Driver
from graphdsl.errors import CallbackError, CaptureError, DriverError, UpdateError
from graphdsl.run.captured import Captures, NoUpdateError
from tests.conformance.kernels import scale


def memset_async(stream, array, value, count=None):
    """Work of the driver: a memset in a stream."""
    from cuda.bindings import driver

    address, _ = array.__cuda_array_interface__["data"]
    size = array.size if count is None else count
    (result,) = driver.cuMemsetD8Async(address, value, size, int(stream))
    assert not result, result


def emulated_memset(array, value, count=None):
    array.reshape(-1)[:count] = value


def filling(value, **options) -> gd.Graph:
    """Fills x with a value, and copies it to out."""
    graph = gd.Graph("filling")
    x = graph.device_array("x", 8, np.uint8)
    fill = graph.capture(memset_async, (x, value), emulate=emulated_memset, name="fill", **options)
    fill >> graph.memcpy(graph.host_array("out", 8, np.uint8), x, name="store")
    return graph


def launched(exe) -> list[int]:
    exe.launch()
    exe.synchronize()
    return exe["out"].tolist()


def test_work_of_a_library_runs_in_its_place(device: Driver):
    graph = filling(7)
    double = graph.kernel(scale, grid=1, block=32, args=(*2 * [graph.operands["x"]], 2.0, 8), name="double")
    graph.node("fill") >> double >> graph.node("store")
    with graph.instantiate(device) as exe:
        assert launched(exe) == [14] * 8
        assert launched(exe) == [14] * 8


def test_the_function_is_called_once_for_each_exec(device: Driver):
    calls = []

    def work(stream, array, value):
        calls.append(value)
        memset_async(stream, array, value)

    def emulated(array, value):
        array.fill(value)

    graph = gd.Graph("demo")
    x = graph.device_array("x", 8, np.uint8)
    graph.capture(work, (x, 3), emulate=emulated, name="fill")
    with graph.instantiate(device) as exe, exe.clone() as other:
        for each in (exe, other):
            each.launch()
            each.synchronize()
            assert each["x"].copy_to_host().tolist() == [3] * 8
    assert calls == ([] if device.emulated else [3, 3])


def test_the_trace_shows_the_recording_and_the_node():
    calls = [str(call) for call in filling(7).trace()]
    begin = calls.index("cuStreamBeginCapture(fill, mode=THREAD_LOCAL)")
    assert calls[begin + 1] == "cuStreamEndCapture(fill)"
    assert "cuGraphAddNode(fill, type=GRAPH, graph=what memset_async does, args=(x, 7))" in calls


def test_calls_are_the_same_on_every_driver(device: Driver):
    graph = filling(7)
    with graph.instantiate(device) as exe:
        assert exe.calls == graph.trace(device.limits.compute_capability)


def test_params_and_external_memory_are_recorded_anew(device: Driver):
    first, second = (gd.to_device(device, np.full(8, value, np.uint8)) for value in (1, 2))
    graph = gd.Graph("demo")
    value, count = graph.param("value", np.int32, default=7), graph.param("count", np.int32, default=8)
    x = graph.external("x", first)
    graph.capture(memset_async, (x, value, count), emulate=emulated_memset, name="fill")
    with graph.instantiate(device) as exe:

        def ran():
            exe.launch()
            exe.synchronize()
            return first.copy_to_host().tolist(), second.copy_to_host().tolist()

        assert ran() == ([7] * 8, [2] * 8)
        exe.update(value=9)
        assert ran() == ([9] * 8, [2] * 8)
        exe.update(x=second, value=5, count=2)
        assert ran() == ([9] * 8, [5] * 2 + [2] * 6)
        report = exe.preflight(count=1)
        assert [(node.node, node.kind) for node in report.nodes] == [("fill", "captured")]
        assert [call.function for call in report.calls] == ["cuGraphExecChildGraphNodeSetParams"]
        exe.node("fill").update(args=(x, 4))
        assert ran() == ([9] * 8, [4] * 8)


def test_an_update_that_records_something_else_is_refused_and_changes_nothing(device: Driver):
    def work(stream, array, times):
        for turn in range(times):
            memset_async(stream, array, 40 + turn)

    graph = gd.Graph("demo")
    times = graph.param("times", np.int32, default=1)
    x = graph.device_array("x", 8, np.uint8)
    graph.capture(work, (x, times), emulate=lambda x, times: x.fill(39 + times), name="fill")
    with graph.instantiate(device) as exe:
        if device.emulated:  # what stands for work is one node, whatever it does
            exe.update(times=2)
            exe.launch()
            assert exe["x"].copy_to_host().tolist() == [41] * 8
            return
        with pytest.raises(DriverError) as caught:
            exe.update(times=2)
        assert (caught.value.node, caught.value.code_name) == ("fill", "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE")
        assert "Instantiate the graph again" in caught.value.remedy
        assert exe["times"] == 1
        exe.launch()
        exe.synchronize()
        assert exe["x"].copy_to_host().tolist() == [40] * 8


def test_a_recording_that_fails_in_an_update_changes_nothing(device: Driver):
    def work(stream, array, value):
        memset_async(stream, array, value)
        if value > 9:
            raise ValueError("too much")

    graph = gd.Graph("demo")
    value = graph.param("value", np.int32, default=3)
    x = graph.device_array("x", 8, np.uint8)
    other = graph.device_array("other", 8, np.uint8)
    graph.capture(work, (x, value), emulate=emulated_memset, name="fill")
    graph.memset(other, value, name="set")
    with graph.instantiate(device) as exe:
        if device.emulated:
            device.fail_next("cuLaunchKernel", 900)
        with pytest.raises(CaptureError) as caught:
            exe.update(value=10)
        assert (caught.value.node, caught.value.field) == ("fill", "function")
        exe.launch()
        exe.synchronize()
        assert exe["x"].copy_to_host().tolist() == exe["other"].copy_to_host().tolist() == [3] * 8
        assert exe["value"] == 3
        exe.update(value=4)
        exe.launch()
        exe.synchronize()
        assert exe["x"].copy_to_host().tolist() == exe["other"].copy_to_host().tolist() == [4] * 8


def test_captured_nodes_in_a_child_and_in_a_body(device: Driver):
    graph = gd.Graph("outer")
    x, out = graph.device_array("x", 8, np.uint8), graph.host_array("out", 8, np.uint8)
    inner = gd.Graph("inner")
    y, value = inner.device_array("y", 8, np.uint8), inner.param("value", np.int32, default=7)
    inner.capture(memset_async, (y, value), emulate=emulated_memset, name="fill")
    child = graph.child(inner, {"y": x}, name="child")
    branch = graph.if_(graph.condition("taken", default=1), name="branch")
    with branch as body:
        body.capture(memset_async, (x, 1, 2), emulate=emulated_memset, name="fill")
    child >> branch >> graph.memcpy(out, x, name="store")
    with graph.instantiate(device) as exe:
        assert launched(exe) == [1, 1, *[7] * 6]
        exe.update({"child/value": 5})
        assert launched(exe) == [1, 1, *[5] * 6]


def test_work_on_memory_that_the_graph_allocates(device: Driver):
    graph = gd.Graph("demo")
    with graph.sequence():
        alloc = graph.alloc("scratch", 8, np.uint8)
        graph.capture(memset_async, (alloc.array, 7), emulate=emulated_memset, name="fill")
        graph.memcpy(graph.host_array("out", 8, np.uint8), alloc.array)
        graph.free(alloc)
    with graph.instantiate(device) as exe:
        assert launched(exe) == [7] * 8
        assert launched(exe) == [7] * 8


def test_an_exec_is_updated_as_a_whole(device: Driver):
    other = filling(9)
    with filling(7).instantiate(device) as exe:
        exe.update_from(other)
        assert launched(exe) == [9] * 8
        exe.node("fill").update(args=(other.operands["x"], 3))
        assert launched(exe) == [3] * 8


def test_a_captured_node_is_not_disabled(device: Driver):
    with filling(7).instantiate(device) as exe, pytest.raises(UpdateError, match="can be disabled"):
        exe.node("fill").disable()


def test_views_arrive_as_slices_and_host_memory_as_numpy(device: Driver):
    seen = []

    def work(stream, view, raw, pair):
        memset_async(stream, view, int(raw[0]) + pair[1])
        seen.append((view.shape, type(raw), pair))

    def emulated(view, raw, pair):
        view.fill(int(raw[0]) + pair[1])
        seen.append((view.shape, type(raw), pair))

    graph = gd.Graph("demo")
    n = graph.param("n", np.int32, default=4)
    x, raw = graph.device_array("x", 8, np.uint8), graph.external("raw", np.full(1, 3, np.uint8))
    graph.memset(x, 0) >> graph.capture(work, (x[2:n], raw, ("two", n)), emulate=emulated, name="fill")
    with graph.instantiate(device) as exe:
        exe.launch()
        exe.synchronize()
        assert exe["x"].copy_to_host().tolist() == [0, 0, 7, 7, 0, 0, 0, 0]
    assert seen == [((2,), np.ndarray, ("two", 4))]


def test_what_the_function_returns_lives_as_long_as_the_exec(device: Driver):
    class Scratch:
        pass

    alive = []

    def work(stream, array):
        memset_async(stream, array, 1)
        scratch = Scratch()
        alive.append(weakref.ref(scratch))
        return scratch

    graph = gd.Graph("demo")
    graph.capture(work, graph.device_array("x", 8, np.uint8), emulate=lambda x: None, name="fill")
    exe = graph.instantiate(device)
    gc.collect()
    assert all(each() is not None for each in alive)
    exe.close()
    gc.collect()
    assert all(each() is None for each in alive)
    assert len(alive) == (0 if device.emulated else 1)


# Failures


def refused(graph: gd.Graph, device: Driver) -> CaptureError:
    before = device.live if device.emulated else None
    try:
        graph.instantiate(device)
    except CaptureError as caught:
        problem = caught.with_traceback(None)  # its frames refer to what was made
    else:
        pytest.fail("nothing was refused")
    if before is not None:
        assert device.live == before
    return problem


def test_an_emulator_runs_no_work_of_libraries():
    graph = gd.Graph("demo")
    graph.capture(memset_async, (graph.device_array("x", 8, np.uint8), 7), name="fill")
    problem = refused(graph, gd.emulator())
    assert (problem.node, problem.field) == ("fill", "emulate")
    assert "Pass emulate=" in problem.remedy
    assert "fill" in " ".join(map(str, graph.trace()))


def test_an_exception_of_a_stand_in_is_raised_by_synchronise():
    graph = gd.Graph("demo")
    graph.capture(memset_async, (graph.device_array("x", 8, np.uint8), 7), emulate=lambda x, value: 1 / 0, name="fill")
    with graph.instantiate(gd.emulator()) as exe:
        exe.launch()
        with pytest.raises(CallbackError, match="ZeroDivisionError") as caught:
            exe.synchronize()
        assert caught.value.node == "fill"


def test_a_stand_in_that_reads_what_is_gone_is_named():
    device = gd.emulator()
    graph = gd.Graph("demo")
    x = gd.to_device(device, np.zeros(8, np.uint8))
    graph.capture(memset_async, (graph.external("x", x), 7), emulate=emulated_memset, name="fill")
    with graph.instantiate(device) as exe:
        device.mem_free(x.address)
        exe.launch()
        with pytest.raises(gd.MemoryFault) as caught:
            exe.synchronize()
        assert caught.value.node == "fill"


def test_a_stand_in_does_not_write_to_read_only_memory():
    class Frozen:
        def __init__(self, array):
            self.array = array
            self.__cuda_array_interface__ = {**array.__cuda_array_interface__, "data": (array.address, True)}

    device = gd.emulator()
    graph = gd.Graph("demo")
    x = graph.external("x", Frozen(gd.to_device(device, np.zeros(8, np.uint8))))
    graph.capture(memset_async, (x, 7), emulate=emulated_memset, name="fill")
    with graph.instantiate(device) as exe:
        exe.launch()
        with pytest.raises(CallbackError, match="read-only"):
            exe.synchronize()


@pytest.mark.parametrize("call", ["cuStreamBeginCapture", "cuLaunchKernel", "cuGraphGetNodes", "cuGraphAddNode"])
def test_nothing_is_left_of_a_recording_that_fails(call):
    device = gd.emulator()
    device.fail_next(call, 901)
    with pytest.raises((CaptureError, DriverError)):
        filling(7).instantiate(device)
    gc.collect()
    assert {kind: count for kind, count in device.live.items() if count} == {}


@pytest.mark.parametrize("call", [None, "cuGraphAddMemcpyNode", "cuGraphInstantiateWithParams"])
def test_a_graph_that_allocates_is_moved_and_destroyed_once(monkeypatch, call):
    monkeypatch.setattr(Captures, "_types", lambda self, graph: iter((10, 11)))  # an alloc node and a free node
    device = gd.emulator()
    graph = filling(7)
    if call is not None:
        device.fail_next(call, 1)
        with contextlib.suppress(DriverError):
            graph.instantiate(device)
    else:
        with graph.instantiate(device) as exe:
            assert launched(exe) == [7] * 8
            with pytest.raises(NoUpdateError) as caught:
                exe.node("fill").update(args=(graph.operands["x"], 8))
            assert (caught.value.node, caught.value.field) == ("fill", "function")
            with pytest.raises(NoUpdateError):
                exe.update_from(graph)
            (mismatch,) = exe.update_from(filling(9), on_mismatch="reinstantiate").mismatches
            assert (mismatch.node, mismatch.field) == ("fill", "function")
            assert launched(exe) == [9] * 8
    gc.collect()
    assert {kind: count for kind, count in device.live.items() if count} == {}


def test_a_graph_that_leaves_memory_allocated_is_refused(monkeypatch):
    monkeypatch.setattr(Captures, "_types", lambda self, graph: iter((10, 10, 11)))
    problem = refused(filling(7), gd.emulator())
    assert "allocates 2 times and frees 1 times" in problem.rule


@pytest.mark.gpu
class TestOnGpu:
    """What only a GPU can record, or refuse to."""

    @pytest.fixture
    def gpu(self) -> Driver:
        from graphdsl.drivers.cuda import unavailable

        if unavailable() is not None:
            pytest.skip(unavailable())
        return gd.cuda(0)

    @staticmethod
    def of(function) -> gd.Graph:
        graph = gd.Graph("demo")
        graph.capture(function, graph.device_array("x", 8, np.uint8), name="work")
        return graph

    def failure(self, gpu: Driver, function) -> CaptureError:
        problem = refused(self.of(function), gpu)
        assert (problem.node, problem.field) == ("work", "function")
        with filling(7).instantiate(gpu) as exe:  # nothing is left behind
            assert launched(exe) == [7] * 8
        return problem

    def test_no_work(self, gpu: Driver):
        assert "no work" in self.failure(gpu, lambda stream, x: None).rule

    def test_work_in_another_stream(self, gpu: Driver):
        assert "no work" in self.failure(gpu, lambda stream, x: memset_async(0, x, 1)).rule

    def test_an_exception(self, gpu: Driver):
        def work(stream, x):
            memset_async(stream, x, 1)
            raise ValueError("not today")

        problem = self.failure(gpu, work)
        assert "the function raised ValueError: not today" in problem.rule
        assert isinstance(problem.__cause__, ValueError)
        assert problem.code == 0

    def test_waiting(self, gpu: Driver):
        def work(stream, x):
            memset_async(stream, x, 1)
            x.copy_to_host()

        problem = self.failure(gpu, work)
        assert (problem.code, problem.code_name) == (900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED")
        assert "write into (out=)" in problem.remedy

    def test_allocating(self, gpu: Driver):
        def work(stream, x):
            memset_async(stream, x, 1)
            gd.device_array(gpu, 8, np.uint8)

        assert self.failure(gpu, work).code == 900

    def test_allocating_without_a_word(self, gpu: Driver):
        def work(stream, x):
            from cuda.bindings import driver

            memset_async(stream, x, 1)
            driver.cuMemAlloc(8)

        assert self.failure(gpu, work).code == 901

    def test_work_that_is_not_joined(self, gpu: Driver):
        other, event = gpu.stream_create(), gpu.event_create()

        def work(stream, x):
            from cuda.bindings import driver

            driver.cuEventRecord(event, int(stream))
            driver.cuStreamWaitEvent(other, event, 0)
            memset_async(other, x, 1)

        problem = self.failure(gpu, work)
        assert problem.code == 904
        gpu.event_destroy(event)
        gpu.stream_destroy(other)

    def test_waiting_for_what_is_not_recorded(self, gpu: Driver):
        other, event = gpu.stream_create(), gpu.event_create()
        gpu.event_record(event, other)

        def work(stream, x):
            from cuda.bindings import driver

            memset_async(stream, x, 1)
            (result,) = driver.cuStreamWaitEvent(int(stream), event, 0)
            if result:
                raise RuntimeError(result.name)

        assert self.failure(gpu, work).code == 905
        gpu.event_destroy(event)
        gpu.stream_destroy(other)

    def test_ending_the_recording(self, gpu: Driver):
        def work(stream, x):
            gpu.graph_destroy(gpu.stream_end_capture(int(stream)))

        assert self.failure(gpu, work).node == "work"

    def test_forked_and_joined_work(self, gpu: Driver):
        other, events = gpu.stream_create(), [gpu.event_create() for _ in range(2)]

        def work(stream, x):
            from cuda.bindings import driver

            for source, event, target in ((int(stream), events[0], other), (other, events[1], int(stream))):
                driver.cuEventRecord(event, source)
                driver.cuStreamWaitEvent(target, event, 0)
                memset_async(target, x, 5)

        with self.of(work).instantiate(gpu) as exe:
            exe.launch()
            exe.synchronize()
            assert exe["x"].copy_to_host().tolist() == [5] * 8
        gpu.stream_destroy(other)

    @staticmethod
    def _temporary(stream, x, free=True):
        """Fills x by way of memory that the stream allocates, and frees, or does not."""
        from cuda.bindings import driver

        result, address = driver.cuMemAllocAsync(8, int(stream))
        assert not result, result
        driver.cuMemsetD8Async(address, 6, 8, int(stream))
        driver.cuMemcpyDtoDAsync(x.address, address, 8, int(stream))
        if free:
            driver.cuMemFreeAsync(address, int(stream))

    def test_memory_that_is_allocated_and_freed(self, gpu: Driver):
        graph = gd.Graph("demo")
        n = graph.param("n", np.int32, default=1)
        x = graph.device_array("x", 8, np.uint8)
        graph.capture(lambda stream, x, n: self._temporary(stream, x), (x, n), name="work")
        with graph.instantiate(gpu) as exe:
            for _ in range(3):
                exe.launch()
                exe.synchronize()
                assert exe["x"].copy_to_host().tolist() == [6] * 8
            with pytest.raises(CaptureError, match="allocates memory"):
                exe.update(n=2)
            exe.launch()
            exe.synchronize()
            with pytest.raises(CaptureError, match="allocates memory"):
                exe.update_from(graph)
            (mismatch,) = exe.update_from(graph, on_mismatch="reinstantiate").mismatches
            assert (mismatch.node, mismatch.field) == ("work", "function")
            exe.launch()
            exe.synchronize()
            assert exe["x"].copy_to_host().tolist() == [6] * 8

    def test_memory_that_is_not_freed(self, gpu: Driver):
        problem = self.failure(gpu, lambda stream, x: self._temporary(stream, x, free=False))
        assert "allocates 1 times and frees 0 times" in problem.rule

    def test_garbage_collection_does_not_free_meanwhile(self, gpu: Driver):
        class Cycle:
            def __init__(self):
                self.itself, self.memory = self, gd.device_array(gpu, 1 << 20, np.uint8)

        def work(stream, x):
            memset_async(stream, x, 5)
            dropped.clear()
            [[] for _ in range(10_000)]  # garbage collection would come here

        dropped = [Cycle() for _ in range(10)]
        with self.of(work).instantiate(gpu) as exe:
            exe.launch()
            exe.synchronize()
            assert exe["x"].copy_to_host().tolist() == [5] * 8

    def test_memory_that_is_dropped_meanwhile(self, gpu: Driver):
        def work(stream, x):
            memset_async(stream, x, 5)
            dropped.clear()

        dropped = [gd.device_array(gpu, 8, np.uint8)]
        with self.of(work).instantiate(gpu) as exe:
            exe.launch()
            exe.synchronize()

    @pytest.fixture
    def matrices(self):
        rng = np.random.default_rng(1)
        return [rng.standard_normal((32, 32), np.float32) for _ in range(3)]

    @staticmethod
    def product(function, matrices, gpu):
        """a times b by a library, between copies; then with another b, and the first again."""
        graph = gd.Graph("product")
        left, right, other = matrices
        a, out = graph.device_array("a", (32, 32), np.float32), graph.device_array("c", (32, 32), np.float32)
        b = graph.external("b", gd.to_device(gpu, right))
        load = graph.memcpy(a, graph.host_array("left", (32, 32), np.float32), name="load")
        work = graph.capture(function, (a, b, out), name="matmul", emulate=lambda a, b, c: np.matmul(a, b, out=c))
        load >> work >> graph.memcpy(graph.host_array("out", (32, 32), np.float32), out, name="store")
        with graph.instantiate(gpu) as exe:
            exe["left"][:] = left
            bound = right
            for second in (right, other, right):
                with contextlib.suppress(NoUpdateError):  # where cuBLAS allocates its work space in the stream
                    exe.update(b=gd.to_device(gpu, second))
                    bound = second
                exe.launch()
                exe.synchronize()
                np.testing.assert_allclose(exe["out"], left @ bound, rtol=1e-2, atol=1e-2)

    def test_cupy(self, gpu: Driver):
        cupy = pytest.importorskip("cupy")
        if not hasattr(cupy.cuda.Stream, "from_external"):
            pytest.skip("this CuPy does not take streams of others so")

        def multiply(stream, x):
            with cupy.cuda.Stream.from_external(stream):
                array = cupy.asarray(x)  # one object: of another one over the same memory CuPy would make a copy
                cupy.multiply(array, 5, out=array)

        warm = cupy.ones(8, cupy.uint8)
        cupy.multiply(warm, 5, out=warm)  # CuPy compiles it at its first call
        graph = self.of(multiply)
        graph.memset(graph.operands["x"], 3) >> graph.node("work")
        with graph.instantiate(gpu) as exe:
            exe.launch()
            exe.synchronize()
            assert exe["x"].copy_to_host().tolist() == [15] * 8

    def test_what_a_library_refuses_is_told_with_the_node(self, gpu: Driver):
        def work(stream, x):
            raise NotImplementedError("not while recording")

        assert "NotImplementedError: not while recording" in self.failure(gpu, work).rule

    def test_torch(self, gpu: Driver, matrices):
        torch = pytest.importorskip("torch")
        if not torch.cuda.is_available():
            pytest.skip("this PyTorch has no CUDA")

        def matmul(stream, a, b, out):
            with torch.cuda.stream(torch.cuda.ExternalStream(stream.handle)):
                tensors = [torch.as_tensor(each, device="cuda") for each in (a, b, out)]
                torch.mm(tensors[0], tensors[1], out=tensors[2])
            return tensors

        warm = torch.ones((32, 32), device="cuda")
        torch.mm(warm, warm)
        torch.cuda.synchronize()
        self.product(matmul, matrices, gpu)


def test_each_device_records_in_a_stream_of_its_own():
    device = gd.emulator(devices=2)
    graph = gd.Graph("demo")
    for number in range(2):
        with graph.on(number):
            x = graph.device_array(f"x{number}", 8, np.uint8)
            graph.capture(memset_async, (x, number + 1), emulate=emulated_memset)
    with graph.instantiate(device) as exe:
        exe.launch()
        exe.synchronize()
        assert [exe[f"x{number}"].copy_to_host().tolist() for number in range(2)] == [[1] * 8, [2] * 8]
