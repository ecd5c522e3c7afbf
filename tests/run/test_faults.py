"""Faults of work in flight: which graph, which launches, which node; what is said once a context is lost."""

from __future__ import annotations

import gc
import logging
import pickle
from weakref import WeakSet

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.run import faults
from tests.conformance import kernels

OUT_OF_MEMORY, ILLEGAL_ADDRESS, LAUNCH_FAILED = 2, 700, 719


@pytest.fixture
def device() -> gd.emulator:
    return gd.emulator()


@pytest.fixture
def gpu(device, monkeypatch) -> gd.emulator:
    """An emulator that is taken for a GPU: where a call fails, nobody knows the node, and the context is lost."""
    monkeypatch.setattr(faults, "_lost", {})
    monkeypatch.setattr(faults, "_all", WeakSet())  # all GPUs of a process are one to it
    device.emulated = False
    return device


def good_graph(name="good") -> gd.Graph:
    g = gd.Graph(name)
    x = g.device_array("x", 16, np.float32)
    g.memset(x, 1, name="clear")
    return g


def faulty_graph(name="faulty", n=16) -> gd.Graph:
    """Its kernel leaves its array from n = 17 on."""
    g = gd.Graph(name)
    n = g.param("n", np.int32, default=n)
    x = g.device_array("x", 16, np.float32)
    with g.sequence():
        g.memset(x, 1, name="clear")
        g.kernel(kernels.add_to, grid=1, block=32, args=(x, 1.0, n), name="add")
    return g


class TestOnTheEmulator:
    def fault_of(self, act) -> gd.MemoryFault:
        with pytest.raises(gd.MemoryFault) as caught:
            act()
        problem = caught.value
        assert (problem.graph, problem.node, problem.location[0]) == ("faulty", "add", __file__)
        return problem

    @pytest.mark.parametrize("report", ["synchronize", "launch", "close"])
    def test_each_call_that_reports_one_names_graph_and_node(self, device, report):
        exe = faulty_graph(n=17).instantiate(device)
        exe.launch()
        self.fault_of(getattr(exe, report))

    def test_a_copy_names_them_too(self, device):
        with good_graph().instantiate(device) as other, faulty_graph(n=17).instantiate(device) as exe:
            exe.launch()
            self.fault_of(other["x"].copy_to_host)

    def test_a_call_for_another_exec_names_the_graph_whose_node_failed(self, device):
        with good_graph().instantiate(device) as other, faulty_graph(n=17).instantiate(device) as exe:
            exe.launch()
            self.fault_of(other.launch)

    def test_building_another_exec_does_not_take_the_blame(self, device):
        with faulty_graph(n=17).instantiate(device) as exe:
            exe.launch()
            self.fault_of(lambda: good_graph().instantiate(device))

    def test_a_failed_callback_names_its_graph(self, device):
        g = gd.Graph("calls")
        g.host(lambda: 1 / 0, name="divide")
        with g.instantiate(device) as exe:
            exe.launch()
            with pytest.raises(gd.CallbackError) as caught:
                exe.synchronize()
        assert (caught.value.graph, caught.value.node, caught.value.location[0]) == ("calls", "divide", __file__)

    def test_the_emulator_goes_on(self, device):
        with faulty_graph(n=17).instantiate(device) as exe:
            for _ in range(2):
                exe.launch()
                self.fault_of(exe.synchronize)
            assert not faults.is_lost(device)


def fault(device, act, call, code=ILLEGAL_ADDRESS) -> gd.DriverError:
    device.fail_next(call, code)
    with pytest.raises(gd.DriverError) as caught:
        act()
    assert caught.value.code == code
    return caught.value


class TestOnAGpu:
    def test_the_launches_in_flight_are_told(self, gpu):
        exe = good_graph().instantiate(gpu)
        exe.launch()
        exe.synchronize()
        exe.launch()
        exe.launch()
        problem = fault(gpu, exe.synchronize, "cuStreamSynchronize")
        assert problem.graph == "good"
        assert problem.in_flight == (("good", 2, 3),)
        assert "a kernel or a copy touched memory that is not there" in str(problem)
        assert "In flight: launches 2 to 3 of graph 'good'." in str(problem)
        assert f"The context of {gpu.name} is lost" in problem.remedy
        assert "graphdsl debug" in problem.remedy

    def test_a_launch_reports_the_one_before(self, gpu):
        exe = good_graph().instantiate(gpu)
        exe.launch()
        problem = fault(gpu, exe.launch, "cuGraphLaunch", LAUNCH_FAILED)
        assert problem.in_flight == (("good", 1, 1),)
        assert "launch 1 of graph 'good'" in str(problem)

    def test_a_code_of_the_launcher_is_told_alike(self, gpu, monkeypatch):
        exe = good_graph().instantiate(gpu)
        exe.launch()
        monkeypatch.setattr(exe, "_launch_own", lambda: ILLEGAL_ADDRESS)
        with pytest.raises(gd.DriverError, match="launch 1 of graph 'good'") as caught:
            exe.launch()
        assert caught.value.graph == "good"

    def test_a_refused_launch_is_no_fault(self, gpu):
        exe = good_graph().instantiate(gpu)
        problem = fault(gpu, exe.launch, "cuGraphLaunch", 701)
        assert (problem.graph, problem.in_flight) == ("good", None)
        assert not faults.is_lost(gpu)

    def test_launches_of_a_cache_are_told_with_their_bucket(self, gpu):
        execs = [good_graph().instantiate(gpu) for _ in range(2)]
        for exe, batch in zip(execs, (2, 4), strict=True):
            exe.bucket = gd.Buckets(batch=[batch]).largest
            exe.launch()
        problem = fault(gpu, execs[1].launch, "cuGraphLaunch")
        assert problem.bucket is None
        flying = (f"launch 1 of graph 'good' of bucket batch={batch}" for batch in (2, 4))
        assert sorted(str(problem).partition("In flight: ")[2].partition(". ")[0].split(", ")) == sorted(flying)

    def test_of_several_graphs_in_flight_each_may_have_failed(self, gpu):
        first, second = good_graph("first").instantiate(gpu), good_graph("second").instantiate(gpu)
        first.launch()
        second.launch()
        problem = fault(gpu, first.synchronize, "cuStreamSynchronize")
        assert problem.graph is None
        assert problem.in_flight == (("first", 1, 1), ("second", 1, 1))

    def test_what_is_not_in_flight_is_not_blamed(self, gpu):
        first, second = good_graph("first").instantiate(gpu), good_graph("second").instantiate(gpu)
        first.launch()
        problem = fault(gpu, second.launch, "cuGraphLaunch")
        assert problem.graph == "first"

    def test_work_of_others(self, gpu):
        exe = good_graph().instantiate(gpu)
        problem = fault(gpu, exe["x"].copy_to_host, "cuMemcpyDtoHAsync")
        assert problem.graph is None
        assert "no launch of a graph: other work must have failed" in str(problem)

    def test_what_comes_after_tells_of_the_first(self, gpu):
        exe, other = good_graph().instantiate(gpu), good_graph("other").instantiate(gpu)
        exe.launch()
        fault(gpu, exe.synchronize, "cuStreamSynchronize")
        for act, call in (
            (other.launch, "cuGraphLaunch"),
            (lambda: good_graph("third").instantiate(gpu), "cuMemAlloc"),
            (exe["x"].copy_to_host, "cuMemcpyDtoHAsync"),
        ):
            problem = fault(gpu, act, call)
            assert problem.graph == "good"
            assert problem.node is None
            assert "was lost before, when cuStreamSynchronize returned CUDA_ERROR_ILLEGAL_ADDRESS" in str(problem)
            assert "new process" in problem.remedy

    def test_an_update_hears_of_it(self, gpu):
        exe = faulty_graph().instantiate(gpu)
        exe.launch()
        problem = fault(gpu, lambda: exe.update(n=8), "cuGraphExecKernelNodeSetParams")
        assert (problem.graph, problem.node, problem.changes) == ("faulty", None, ())
        assert exe["n"] == 16

    def test_closing_raises_what_came_first(self, gpu):
        exe = good_graph().instantiate(gpu)
        exe.launch()
        gpu.fail_next("cuGraphExecDestroy", ILLEGAL_ADDRESS)
        gpu.fail_next("cuStreamDestroy", ILLEGAL_ADDRESS)
        problem = fault(gpu, exe.close, "cuStreamSynchronize")
        assert problem.call == "cuStreamSynchronize"
        assert problem.in_flight == (("good", 1, 1),)

    def test_an_exec_that_nobody_closed_says_what_failed(self, gpu, caplog):
        exe = good_graph().instantiate(gpu)
        exe.launch()
        exe._finalizer.detach()
        gpu.fail_next("cuStreamSynchronize", ILLEGAL_ADDRESS)
        with pytest.raises(gd.DriverError, match="In flight: launch 1 of graph 'good'"):
            exe._ending.unseen()

    def test_an_exec_that_nobody_closed_is_silent_after_a_fault(self, gpu, capsys, caplog):
        exe, dropped = good_graph().instantiate(gpu), good_graph().instantiate(gpu)
        exe.launch()
        fault(gpu, exe.synchronize, "cuStreamSynchronize")
        gpu.fail_next("cuGraphExecDestroy", ILLEGAL_ADDRESS)
        gc.collect()  # what others left has no part in this
        with caplog.at_level(logging.WARNING):
            del dropped
            gc.collect()
        assert gpu.live["execs"] == 2, "it was given back, but for what the driver refused"
        assert capsys.readouterr().err == ""
        assert not caplog.records

    def test_it_goes_along_to_other_processes(self, gpu):
        exe = good_graph().instantiate(gpu)
        exe.launch()
        problem = fault(gpu, exe.synchronize, "cuStreamSynchronize")
        found = pickle.loads(pickle.dumps(problem))
        assert (str(found), found.in_flight) == (str(problem), (("good", 1, 1),))


class TestTooLittleMemory:
    def test_how_much_was_asked_for_and_what_the_graph_takes(self):
        device = gd.emulator(memory_bytes=1 << 20)
        g = gd.Graph("large")
        g.memset(g.device_array("big", 1 << 20, np.float32), 0)
        g.memset(g.device_array("small", 256, np.float32), 0)
        g.memset(g.host_array("h", 1024, np.float32), 0)
        with pytest.raises(gd.DriverError) as caught:
            g.instantiate(device)
        said = str(caught.value)
        assert caught.value.graph == "large"
        assert f"4 MiB were asked for, and 1 MiB of 1 MiB are free on {device.name}" in said
        assert "the graph has 3 nodes, and its arrays take 4 MiB on the device and 4 KiB on the host" in said
        assert "(largest: big 4 MiB, h 4 KiB, small 1 KiB)" in said

    @pytest.mark.parametrize("call", ["cuGraphInstantiateWithParams", "cuGraphUpload"])
    def test_the_driver_itself_has_none_left(self, device, call):
        problem = fault(device, lambda: good_graph().instantiate(device), call, OUT_OF_MEMORY)
        assert "there is not enough memory" in str(problem)
        assert "the graph has 1 node, and its arrays take 64 bytes on the device (largest: x 64 bytes)" in str(problem)
        assert "Close execs" in problem.remedy

    def test_host_memory(self, device):
        g = gd.Graph("pinned")
        g.memset(g.host_array("h", 1024, np.float32), 0)
        problem = fault(device, lambda: g.instantiate(device), "cuMemHostAlloc", OUT_OF_MEMORY)
        assert "4 KiB of page-locked host memory were asked for" in str(problem)

    def test_an_array_of_its_own(self):
        device = gd.emulator(memory_bytes=1024)
        with pytest.raises(gd.DriverError, match="2 KiB were asked for, and 1 KiB of 1 KiB are free"):
            gd.device_array(device, 2048, np.uint8)
