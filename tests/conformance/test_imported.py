"""Graphs of the driver that are read into definitions: structure, work, changes, and what is refused."""

from __future__ import annotations

import ctypes
import gc
import weakref

import numpy as np
import pytest
from numba import cuda

import graphdsl as gd
from graphdsl.declare.nodes import NativeHostNode
from graphdsl.drivers.base import Driver
from graphdsl.errors import DeclarationError, DriverError, UpdateError
from tests.conformance.kernels import scale


def pipeline() -> gd.Graph:
    """Loads x, scales it into y, stores y."""
    graph = gd.Graph("pipeline")
    n, gain = graph.param("n", np.int32, default=8), graph.param("gain", np.float32, default=2)
    x, y = (graph.device_array(name, 8, np.float32) for name in "xy")
    clear = graph.memset(y, 1, name="clear")
    load = graph.memcpy(x, graph.host_array("raw", 8, np.float32), name="load")
    run = graph.kernel(scale, grid=(2, 1, 1), block=(4, 2, 1), shared_bytes=64, args=(x, y, gain, n), name="run")
    [load, clear] >> run >> graph.memcpy(graph.host_array("out", 8, np.float32), y, name="store")
    return graph


def run(exe) -> None:
    exe.launch()
    exe.synchronize()


@pytest.fixture
def original(device: Driver):
    with pipeline().instantiate(device) as exe:
        exe["raw"][:] = range(8)
        yield exe


def test_nodes_edges_and_fields_are_those_of_the_graph(device: Driver, original):
    graph = gd.from_handle(original, name="mine")
    assert graph.name == "mine"
    assert sorted(graph.dag.edges) == [("memcpy", "scale"), ("memset", "scale"), ("scale", "memcpy_1")]
    kernel = graph.node("scale")
    assert (kernel.grid, kernel.block, kernel.shared_bytes) == ((2, 1, 1), (4, 2, 1), 64)
    assert kernel.kernel.name.endswith("scale")
    sizes = [len(arg) for arg in kernel.args]
    assert sizes == [8] * 14 + [4, 4]
    assert kernel.args[-1] == (8).to_bytes(4, "little")
    fill = graph.node("memset")
    assert (fill.value, fill.destination.dtype, fill.destination.shape) == (0x3F800000, np.uint32, (8,))
    load = graph.node("memcpy")
    assert (load.source.space, load.destination.space, load.destination.shape) == ("pinned", "device", (32,))
    assert not graph.check().errors
    assert '"memcpy" -> "scale"' in graph.to_dot()


def test_it_does_what_the_graph_did_in_the_same_memory(device: Driver, original):
    with gd.from_handle(original).instantiate(device) as exe:
        run(exe)
        assert original["out"].tolist() == [2 * i for i in range(8)]


def test_kernels_are_updated_by_the_numbers_of_their_parameters(device: Driver, original):
    with gd.from_handle(original).instantiate(device) as exe:
        node = exe.node("scale")
        node.update(args={14: np.float32(3)})
        run(exe)
        assert original["out"].tolist() == [3 * i for i in range(8)]
        node.update(args={14: 5.0, 15: 2})
        run(exe)
        assert original["out"].tolist() == [0, 5, *[1] * 6]
        node.update(grid=1, args={15: 8, 14: bytes(np.float32(4))})
        run(exe)
        # Blocks are of 4 times 2 threads, and only x is counted: the first 4 elements.
        assert original["out"].tolist() == [0, 4, 8, 12, *[1] * 4]


@pytest.mark.parametrize("value", [np.int64(3), 2**40, b"123", 1 + 2j, "x"])
def test_an_argument_of_another_size_is_refused(device: Driver, original, value):
    with gd.from_handle(original).instantiate(device) as exe:
        with pytest.raises(UpdateError) as caught:
            exe.node("scale").update(args={15: value})
        assert (caught.value.node, caught.value.field) == ("scale", "args[15]")
        run(exe)
        assert original["out"].tolist() == [2 * i for i in range(8)]


def test_a_parameter_that_is_not_there_is_refused(device: Driver, original):
    with gd.from_handle(original).instantiate(device) as exe:
        for key in (16, -1, "gain"):
            with pytest.raises(UpdateError, match="no parameter"):
                exe.node("scale").update(args={key: 1})


def test_memory_is_re_bound(device: Driver, original):
    graph = gd.from_handle(original)
    source = graph.node("memcpy_1").destination
    assert source.space == "pinned"
    other = gd.to_device(device, np.full(8, 7, np.float32).view(np.uint32))
    with graph.instantiate(device) as exe:
        exe.update({graph.node("memset").destination.name: other})
        run(exe)
        assert other.copy_to_host().tolist() == [0x3F800000] * 8


def test_nodes_and_edges_are_added(device: Driver, original):
    graph = gd.from_handle(original)
    total = graph.host_array("copy", 32, np.uint8)
    graph.node("memcpy_1") >> graph.memcpy(total, graph.node("memcpy_1").source, name="again")
    kernel = graph.node("scale")
    x, y = graph.device_array("x", 8, np.float32), graph.device_array("y", 8, np.float32)
    # One of the nodes that are added runs an imported kernel on arrays of the graph.
    words = [word for array in (x, y) for word in (0, 0, 8, 4, array, 8, 4)]
    with graph.sequence():
        graph.memset(x, 1, name="ones")
        graph.kernel(kernel.kernel, grid=1, block=32, args=(*words, 9.0, 8), name="mine")
        graph.memcpy(graph.host_array("nines", 8, np.float32), y, name="nines")
    with graph.instantiate(device) as exe:
        run(exe)
        assert exe["copy"].view(np.float32).tolist() == [2 * i for i in range(8)]
        assert exe["nines"].tolist() == [9] * 8


def test_children_are_read_with_what_is_inside(device: Driver, original):
    outer = gd.Graph("outer")
    inner = outer.child(pipeline(), name="inner")
    outer.child(pipeline(), name="again", after=inner)
    with outer.instantiate(device) as exe:
        exe["inner/raw"][:] = exe["again/raw"][:] = range(8)
        graph = gd.from_handle(exe)
        assert [node.name for node in graph.nodes] == ["child", "child_1"]
        assert "child/scale" in [node.name for node in graph.all_nodes]
        with graph.instantiate(device) as again:
            again.node("child/scale").update(args={14: 3.0})
            run(again)
            assert exe["inner/out"].tolist() == [3 * i for i in range(8)]
            assert exe["again/out"].tolist() == [2 * i for i in range(8)]


def test_host_nodes_empty_nodes_and_events(device: Driver):
    calls = []
    graph = gd.Graph("demo")
    events = [device.event_create() for _ in range(2)]
    ready, done = (graph.event(name, event) for name, event in zip(("ready", "done"), events))
    with graph.sequence():
        graph.wait(ready)
        graph.host(calls.append, 3)
        graph.empty()
        graph.record(done)
    with graph.instantiate(device) as exe:
        found = gd.from_handle(exe)
        assert [node.kind for node in found.nodes] == ["event wait", "host", "empty", "event record"]
        assert isinstance(found.node("host"), NativeHostNode)
        assert [found.operands[f"event{number}"].owner for number in range(2)] == events
        with found.instantiate(device) as again:
            run(again)
            assert calls == [3]
            with pytest.raises(UpdateError, match="no update changes the function"):
                again.node("host").update(function=print)
    for event in events:
        device.event_destroy(event)


def test_rows_and_slices(device: Driver):
    graph = gd.Graph("rows")
    x = graph.device_array("x", (4, 6, 8), np.uint8)
    out, flat = graph.host_array("out", (2, 3, 4), np.uint8), graph.host_array("flat", (4, 6, 8), np.uint8)
    with graph.sequence():
        graph.memset(x[1], 7, name="plane")
        graph.memset(x[0, 1:3, 2:4], 9, name="rows")
        graph.memcpy(out, x[0:2, 0:3, 2:6], name="slices")
        graph.memcpy(flat[0:1], x[0:1], name="run")
    with graph.instantiate(device) as exe:
        exe["x"].copy_from_host(np.zeros((4, 6, 8), np.uint8))
        exe["flat"][:] = 0
        run(exe)
        expected = exe["out"].copy(), exe["flat"].copy()
        exe["out"][:] = exe["flat"][:] = 0
        exe["x"].copy_from_host(np.zeros((4, 6, 8), np.uint8))
        with gd.from_handle(exe).instantiate(device) as again:
            run(again)
            assert (exe["out"] == expected[0]).all()
            assert (exe["flat"] == expected[1]).all()


@cuda.jit
def triggers(x):
    gd.device.launch_dependents()
    x[0] = 1


@cuda.jit
def waits(x):
    gd.device.grid_dependency_wait()
    x[1] = x[0] + 1


def test_programmatic_edges_and_launch_attributes(device: Driver):
    graph = gd.Graph("demo")
    x = graph.device_array("x", 2, np.int32)
    first = graph.kernel(triggers, grid=4, block=1, args=x, cluster=2, priority=-1)
    second = graph.kernel(waits, grid=1, block=1, args=x, access_policy=gd.AccessPolicy(x, 0.5))
    graph.edge(first, second, programmatic=True)
    with graph.instantiate(device) as exe:
        found = gd.from_handle(exe)
        assert [data["port"] for *_, data in found.dag.edges.data()] == ["programmatic"]
        attributes = found.node("triggers").attributes
        assert dict(attributes.given()) == {"cluster": (2, 1, 1), "priority": -1}
        policy = found.node("waits").attributes.access_policy
        assert (policy.nbytes, policy.hit_ratio, policy.hit, policy.miss) == (8, 0.5, "persisting", "streaming")
        with found.instantiate(device) as again:
            run(again)
            assert exe["x"].copy_to_host().tolist() == [1, 2]


# What is kept, and what is refused


class Owner:
    pass


def test_owners_live_as_long_as_the_graph_and_its_execs(device: Driver):
    with pipeline().instantiate(device) as exe:
        owner = Owner()
        alive = weakref.ref(owner)
        graph = gd.from_handle(exe.graph_handle, device, owner=owner)
        del owner
        again = graph.instantiate(device)
        del graph
        gc.collect()
        assert alive() is not None
        again.close()
        del again
        gc.collect()
        assert alive() is None


def test_a_graph_given_as_a_number_has_nobody_to_keep_it(device: Driver, original):
    graph = gd.from_handle(original.graph_handle, device)
    (found,) = [each for each in graph.check() if each.code == "GD251"]
    assert (found.severity, found.field) == ("advice", "owner")
    assert set(found.nodes) == {"memcpy", "memcpy_1", "memset", "scale"}
    assert not [each for each in gd.from_handle(original).check() if each.code == "GD251"]


def test_nodes_that_cannot_be_built_again_are_named_by_number_and_kind(device: Driver):
    graph = gd.Graph("demo")
    alloc = graph.alloc("scratch", 8, np.uint8)
    graph.empty(name="a") >> alloc >> graph.memset(alloc.array, 1) >> graph.free(alloc)
    with graph.instantiate(device) as exe, pytest.raises(DeclarationError, match="allocates") as caught:
        gd.from_handle(exe)
    assert caught.value.value in ("alloc", "free")
    assert caught.value.node.startswith("node ")
    branch = gd.Graph("branch")
    with branch.if_(branch.condition("taken", default=1)) as body:
        body.empty()
    with branch.instantiate(device) as exe, pytest.raises(DeclarationError, match="condition") as caught:
        gd.from_handle(exe)
    assert (caught.value.node, caught.value.value) == ("node 0 of graph 'imported'", "conditional")


@pytest.mark.parametrize("source", [0, -1, "graph", None, 1.5, True])
def test_what_is_no_graph(source):
    with pytest.raises(DeclarationError) as caught:
        gd.from_handle(source, gd.emulator())
    assert caught.value.field == "graph"


def test_a_handle_that_the_driver_does_not_know():
    with pytest.raises(DriverError):
        gd.from_handle(0xDEAD0, gd.emulator())


class CUgraphExec(int):
    pass


class Builder:
    """As cuda.core's, and as PyTorch's graph that was not kept."""

    def __init__(self, handle) -> None:
        self.handle = handle

    @property
    def graph_definition(self):
        return self


class Unkept:
    def raw_cuda_graph(self):
        raise RuntimeError("keep_graph is False")


def test_objects_of_libraries(original):
    if not original.device.emulated:
        pytest.skip("the real ones are asked elsewhere")
    assert len(gd.from_handle(Builder(original.graph_handle), original.device)) == 4
    with pytest.raises(DeclarationError, match="keep_graph=True"):
        gd.from_handle(Unkept(), original.device)
    with pytest.raises(DeclarationError, match="an exec cannot be looked into"):
        gd.from_handle(CUgraphExec(5), original.device)


@pytest.mark.gpu
class TestOnGpu:
    @pytest.fixture
    def gpu(self) -> Driver:
        from graphdsl.drivers.cuda import unavailable

        if unavailable() is not None:
            pytest.skip(unavailable())
        return gd.cuda(0)

    def test_a_graph_of_cuda_core(self, gpu: Driver):
        from cuda.core import Device, LaunchConfig, Program, ProgramOptions
        from cuda.core.graph import GraphDefinition

        Device(0).set_current()
        source = """namespace math { template<typename T> __global__ void fill(T* x, T value) {
            x[blockIdx.x * blockDim.x + threadIdx.x] = value; } }"""
        arch = "".join(map(str, gpu.limits.compute_capability))
        program = Program(source, "c++", ProgramOptions(arch=f"sm_{arch}"))
        kernel = program.compile("cubin", name_expressions=("math::fill<float>",)).get_kernel("math::fill<float>")
        memory = gd.device_array(gpu, 64, np.float32)
        definition = GraphDefinition()
        node = definition.launch(LaunchConfig(grid=2, block=32), kernel, memory.address, ctypes.c_float(3))
        node.memset(memory.address, 0, 16)
        graph = gd.from_handle(definition)
        kernels = [node for node in graph.nodes if node.kind == "kernel"]
        assert [(node.name, node.kernel.name) for node in kernels] == [("fill", "math::fill<float>")]
        assert [len(arg) for arg in kernels[0].args] == [8, 4]
        with graph.instantiate(gpu) as exe:
            run(exe)
            assert memory.copy_to_host().tolist() == [0] * 4 + [3] * 60
            exe.node("fill").update(args={1: 5.0})
            run(exe)
            assert memory.copy_to_host().tolist() == [0] * 4 + [5] * 60

    def test_a_graph_of_pytorch(self, gpu: Driver):
        torch = pytest.importorskip("torch")
        if not torch.cuda.is_available():
            pytest.skip("this PyTorch has no CUDA")
        x, y = torch.ones(1000, device="cuda"), torch.zeros(1000, device="cuda")
        torch.add(x, x, out=y)
        torch.cuda.synchronize()
        captured = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(captured):
            torch.add(x, x, out=y)
            torch.mul(y, 3, out=y)
        graph = gd.from_handle(captured)
        assert {node.kind for node in graph.nodes} == {"kernel"}
        assert all("at::native" in node.kernel.name for node in graph.nodes)
        y.zero_()
        torch.cuda.synchronize()
        with graph.instantiate(gpu) as exe:
            run(exe)
            assert (y == 6).all()

    def test_captured_work_is_a_child(self, gpu: Driver):
        from tests.conformance.test_captured import filling, launched

        with filling(7).instantiate(gpu) as exe:
            graph = gd.from_handle(exe)
            assert "child/memset" in [node.name for node in graph.all_nodes]
            with graph.instantiate(gpu) as again:
                run(again)
                assert exe["out"].tolist() == [7] * 8
            assert launched(exe) == [7] * 8
