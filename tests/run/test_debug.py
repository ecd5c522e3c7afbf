"""Node by node: what is left out, where it stops, what is said; and that nothing is left behind."""

from __future__ import annotations

import json
from weakref import WeakSet

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.run import faults
from graphdsl.run.debug_report import DebugReport, NodeRun
from tests.conformance import kernels

ILLEGAL_ADDRESS, INVALID_VALUE, OUT_OF_MEMORY = 700, 1, 2


def adding(n=16) -> gd.Graph:
    """Its kernel leaves its array from n = 17 on."""
    g = gd.Graph("adding")
    n = g.param("n", np.int32, default=n)
    x, out = g.device_array("x", 16, np.float32, lifetime="persistent"), g.host_array("out", 16, np.float32)
    with g.sequence():
        g.memset(x, 1, name="set")
        g.kernel(kernels.add_to, grid=gd.cdiv(n, 8), block=8, args=(x, 2.0, n), name="add")
        g.memcpy(out, x, name="store")
    return g


@pytest.fixture
def device() -> gd.emulator:
    return gd.emulator()


def outcomes(report) -> list[tuple[str, str]]:
    return [(run.node, run.outcome) for run in report.nodes]


def test_the_node_that_fails_is_named_with_its_fields(device):
    with adding(n=17).instantiate(device) as exe:
        report = exe.debug()
        assert not report.ok
        assert outcomes(report) == [("set", "ran"), ("add", "failed"), ("store", "not reached")]
        failed = report.failed
        assert (failed.node, failed.kind, failed.location[0]) == ("add", "kernel", __file__)
        assert (failed.fields["grid"], failed.fields["block"]) == ((3, 1, 1), (8, 1, 1))
        assert failed.fields["argument 'n'"] == 17
        assert str(failed.fields["argument 'x'"]) == f"x: float32[16] at {exe['x'].address:#x}"
        assert failed.source == (kernels.__file__, kernels.add_to.py_func.__code__.co_firstlineno)
        assert isinstance(report.error, gd.MemoryFault)
        assert (report.error.graph, report.error.node, report.error.location) == ("adding", "add", failed.location)
        with pytest.raises(gd.MemoryFault):
            report.raise_for_error()


def test_it_runs_in_place_of_a_launch(device):
    with adding().instantiate(device) as exe:
        report = exe.debug()
        assert report.ok
        assert report.failed is None
        assert exe["out"].tolist() == [3.0] * 16
        exe.launch()
        exe.synchronize()
        assert exe["out"].tolist() == [3.0] * 16


def test_nothing_is_left_behind(device):
    with adding().instantiate(device) as exe:
        before = device.live
        assert exe.debug().ok
        assert not exe.debug({"n": 17}).ok
        assert device.live == before


def test_values_are_of_this_run_alone(device):
    with adding().instantiate(device) as exe:
        assert exe.debug({"n": 8}).ok
        assert exe["out"].tolist() == [3.0] * 8 + [1.0] * 8
        assert exe["n"] == 16
        assert exe.debug({"n": 17}).failed.fields["argument 'n'"] == 17
        assert exe.debug().ok


def test_what_updates_made_of_the_exec_is_what_runs(device):
    with adding().instantiate(device) as exe:
        exe.node("add").update(args={"value": 5.0})
        exe.update(n=8)
        assert exe.debug().ok
        assert exe["out"].tolist() == [6.0] * 8 + [1.0] * 8


@pytest.mark.parametrize("values", [{"k": 1}, {"x": np.zeros(16)}, {"n": "many"}, 3])
def test_bad_values_are_refused(device, values):
    with adding().instantiate(device) as exe:
        with pytest.raises(gd.UpdateError):
            exe.debug(values)
        assert exe.debug().ok


def test_a_value_that_an_update_refuses(device):
    with adding().instantiate(device) as exe, pytest.raises(gd.UpdateError) as caught:
        exe.debug({"n": -1})
    assert (caught.value.node, caught.value.field) == ("add", "grid")


def test_disabled_nodes_are_left_out(device):
    with adding(n=17).instantiate(device) as exe:
        exe.disable("add")
        report = exe.debug()
        assert report.ok
        assert outcomes(report) == [("set", "ran"), ("store", "ran"), ("add", "disabled")]
        assert exe["out"].tolist() == [1.0] * 16


def test_each_node_is_told_before_it_runs(device):
    told = []
    with adding(n=17).instantiate(device) as exe:
        exe.debug(observe=lambda node: told.append(node.name))
    assert told == ["set", "add"]


def test_a_host_node_that_raises_is_where_it_ends(device):
    def divide(out):
        out[0] = 1 // int(out[1])

    g = gd.Graph("calls")
    out = g.host_array("out", 2, np.int32)
    with g.sequence():
        g.memset(out, 0, name="set")
        g.host(divide, (out,), name="divide")
        g.empty(name="end")
    with g.instantiate(device) as exe:
        report = exe.debug()
        assert outcomes(report) == [("set", "ran"), ("divide", "failed"), ("end", "not reached")]
        assert isinstance(report.error, gd.CallbackError)
        assert isinstance(report.error.__cause__, ZeroDivisionError)
        assert (report.error.graph, report.error.node) == ("calls", "divide")
        assert report.failed.source == (__file__, divide.__code__.co_firstlineno + 1)
        exe.synchronize()  # nobody is told a second time


def test_a_captured_node_is_recorded_anew(device):
    def double(array):
        array[:] *= 2

    g = gd.Graph("library")
    x = g.device_array("x", 4, np.float32)
    with g.sequence():
        g.memset(x, 3, name="set")
        g.capture(lambda stream, array: None, (x,), emulate=double, name="double")
    with g.instantiate(device) as exe:
        assert exe.debug().ok
        assert exe["x"].copy_to_host().tolist() == [6.0] * 4


def test_a_captured_node_that_cannot_be_recorded(device):
    calls = []

    def record(stream, array):
        if calls:
            raise ValueError("not twice")
        calls.append(array)

    g = gd.Graph("library")
    x = g.device_array("x", 4, np.float32)
    with g.sequence():
        g.memset(x, 3, name="set")
        g.capture(record, (x,), emulate=lambda array: record(None, array), name="once")
    with g.instantiate(device) as exe:
        before = device.live
        exe.launch()  # calls it once
        exe.synchronize()
        report = exe.debug()
        assert outcomes(report) == [("set", "ran"), ("once", "failed")]
        assert "not twice" in str(report.error)
        assert report.error.node == "once"
        assert device.live == before


def test_memory_of_the_graph_has_other_addresses(device):
    g = gd.Graph("scratch")
    scratch = g.alloc("scratch", 16, np.float32)
    kernel = g.kernel(kernels.add_to, grid=1, block=16, args=(scratch.array, 1.0, 16), name="add", after=scratch)
    g.free(scratch, after=kernel)
    with g.instantiate(device) as exe:
        before = device.live
        report = exe.debug()
        assert outcomes(report)[:2] == [("alloc_scratch", "ran"), ("add", "failed")]
        assert "never-written" in str(report.error)
        assert device.live == before


@pytest.mark.parametrize(
    ("call", "after"), [("cuGraphAddKernelNode", 0), ("cuGraphInstantiateWithParams", 1), ("cuGraphLaunch", 1)]
)
def test_a_node_that_the_driver_refuses_is_the_one(device, call, after):
    with adding().instantiate(device) as exe:
        before = device.live
        device.fail_next(call, INVALID_VALUE, after=after)
        report = exe.debug()
        assert report.failed.node == "add"
        assert (report.error.call, report.error.node, report.error.graph) == (call, "add", "adding")
        assert device.live == before


def test_no_memory_for_what_the_graph_allocates(device):
    g = gd.Graph("scratch")
    scratch = g.alloc("scratch", 16, np.float32)
    g.free(scratch, after=g.memset(scratch.array, 0, after=scratch))
    with g.instantiate(device) as exe:
        device.fail_next("cuMemAlloc", OUT_OF_MEMORY)
        report = exe.debug()
    assert report.failed.node == "alloc_scratch"
    assert "64 bytes were asked for" in str(report.error)


def test_a_fault_of_a_launch_before_is_told_first(device):
    with adding(n=17).instantiate(device) as exe:
        exe.launch()
        with pytest.raises(gd.MemoryFault):
            exe.debug()


def test_a_closed_exec_is_not_run(device):
    exe = adding().instantiate(device)
    exe.close()
    with pytest.raises(gd.ExecUnusableError):
        exe.debug()


class TestOnAGpu:
    """An emulator that is taken for a GPU: a fault takes the context."""

    @pytest.fixture
    def gpu(self, device, monkeypatch):
        monkeypatch.setattr(faults, "_lost", {})
        monkeypatch.setattr(faults, "_all", WeakSet())  # all GPUs of a process are one to it
        device.emulated = False
        return device

    def test_the_node_that_ran_when_the_fault_came(self, gpu):
        exe = adding().instantiate(gpu)
        gpu.fail_next("cuStreamSynchronize", ILLEGAL_ADDRESS, after=3)  # two for each node: of the upload, of the run
        for call, after in (("cuGraphExecDestroy", 1), ("cuGraphDestroy", 1), ("cuEventDestroy", 0)):
            gpu.fail_next(call, ILLEGAL_ADDRESS, after)
        report = exe.debug()
        assert outcomes(report) == [("set", "ran"), ("add", "failed"), ("store", "not reached")]
        assert (report.error.graph, report.error.node, report.error.in_flight) == ("adding", "add", ())
        assert f"The context of {gpu.name} is lost" in report.error.remedy
        assert "compute-sanitizer" in report.error.remedy
        assert faults.is_lost(gpu)

    def test_afterwards_it_says_what_to_do(self, gpu):
        exe = adding().instantiate(gpu)
        exe.launch()
        gpu.fail_next("cuStreamSynchronize", ILLEGAL_ADDRESS)
        with pytest.raises(gd.DriverError):
            exe.synchronize()
        gpu.fail_next("cuEventCreate", ILLEGAL_ADDRESS)
        with pytest.raises(gd.DriverError, match="was lost before, when cuStreamSynchronize") as caught:
            exe.debug()
        assert "Start a new process" in caught.value.remedy
        assert "graphdsl debug" in caught.value.remedy


class TestReport:
    def run(self, number, outcome="ran") -> NodeRun:
        return NodeRun(f"n{number}", "memset", ("demo.py", number), outcome, 1, 0.5)

    def test_of_many_nodes_the_last_are_shown(self):
        report = DebugReport("large", "emulator", tuple(map(self.run, range(1000))))
        assert "1,000 ran" in str(report)
        assert "(980 more ran before these)" in str(report)
        assert "n999 (memset): ran, 0.5 ms" in str(report)
        assert "n979" not in str(report)

    def test_of_a_graph_without_nodes(self):
        assert str(DebugReport("none", "emulator", ())) == "graph 'none' on emulator, node by node: it has no nodes"

    def test_it_is_data(self, device):
        with adding(n=17).instantiate(device) as exe:
            report = exe.debug()
        found = json.loads(json.dumps(report.to_json()))
        assert (found["graph"], found["failed"], found["ok"]) == ("adding", "add", False)
        assert found["error"] == str(report.error)
        assert found["nodes"][1]["fields"]["grid"] == "(3, 1, 1)"
        assert found["nodes"][1]["location"][0] == __file__
