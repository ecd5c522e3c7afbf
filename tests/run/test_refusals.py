"""What the driver refuses, in the user's terms: the graph, the node and its line, the fields old and new, a remedy."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.drivers.results import ExecUpdateError, InstantiateError
from tests.conformance import kernels

INVALID_VALUE, ILLEGAL_ADDRESS = 1, 700


def add_graph() -> gd.Graph:
    g = gd.Graph("adding")
    n = g.param("n", np.int32, default=4)
    value = g.param("value", np.float32, default=1.0)
    x = g.device_array("x", 64, np.float32)
    with g.sequence():
        g.memset(x, 0, name="clear")
        g.kernel(kernels.add_to, grid=gd.cdiv(n, 4), block=4, args=(x, value, n), name="add")
    return g


@pytest.fixture
def device() -> gd.emulator:
    return gd.emulator()


@pytest.fixture
def exe(device):
    with add_graph().instantiate(device) as made:
        yield made


def refused(device, act, call="cuGraphExecKernelNodeSetParams") -> gd.DriverError:
    """The error of an action in which the driver refuses a call."""
    device.fail_next(call, INVALID_VALUE)
    with pytest.raises(gd.DriverError) as caught:
        act()
    assert (caught.value.call, caught.value.graph) == (call, "adding")
    return caught.value


class TestChangesAreShown:
    def test_of_one_param(self, device, exe):
        problem = refused(device, lambda: exe.update(value=2.5))
        assert [tuple(change) for change in problem.changes] == [("argument 'value'", 1.0, 2.5)]
        assert (problem.node, problem.location[0]) == ("add", __file__)
        assert "It was to change argument 'value': 1.0 -> 2.5. graph.check()" in str(problem)

    def test_of_all_that_follows_from_a_param(self, device, exe):
        problem = refused(device, lambda: exe.update(n=16, value=3))
        assert [tuple(change) for change in problem.changes] == [
            ("grid", (1, 1, 1), (4, 1, 1)),
            ("argument 'value'", 1.0, 3.0),
            ("argument 'n'", 4, 16),
        ]

    def test_of_fields_of_a_node(self, device, exe):
        problem = refused(device, lambda: exe.node("add").update(block=8, grid=2))
        assert {change.field: (change.old, change.new) for change in problem.changes} == {
            "grid": ((1, 1, 1), (2, 1, 1)),
            "block": ((4, 1, 1), (8, 1, 1)),
        }

    def test_of_an_argument_of_a_node(self, device, exe):
        exe.node("add").update(args={"value": 7.0})
        problem = refused(device, lambda: exe.node("add").update(args={"value": 8.0}))
        assert [tuple(change) for change in problem.changes] == [("argument 'value'", 7.0, 8.0)]
        exe.launch()
        assert exe["x"].copy_to_host()[0] == 7

    def test_of_a_node_that_is_disabled(self, device, exe):
        problem = refused(device, lambda: exe.disable("add"), "cuGraphNodeSetEnabled")
        assert [tuple(change) for change in problem.changes] == [("enabled", True, False)]

    def test_they_go_along_to_other_processes(self, device, exe):
        problem = refused(device, lambda: exe.update(value=2.5))
        found = pickle.loads(pickle.dumps(problem))
        assert str(found) == str(problem)
        assert found.changes == (("argument 'value'", 1.0, 2.5),)

    def test_what_only_heard_of_a_fault_is_not_blamed(self, device, exe):
        device.fail_next("cuGraphExecKernelNodeSetParams", ILLEGAL_ADDRESS)
        with pytest.raises(gd.DriverError) as caught:
            exe.update(value=2.5)
        assert (caught.value.node, caught.value.changes) == (None, ())


class TestWhoIsBlamed:
    """Of instantiate: the driver names a node by its handle, wherever it is."""

    def blaming(self, device, monkeypatch, choose):
        def instantiate(graph, flags=0):
            raise InstantiateError(1, "CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED", choose(device))

        monkeypatch.setattr(device, "graph_instantiate_with_params", instantiate)

    def nested(self) -> gd.Graph:
        inner = gd.Graph("inner")
        inner.memset(inner.device_array("y", 4, np.float32), 0, name="clear")
        g = gd.Graph("outer")
        g.child(inner, name="part")
        return g

    def test_a_node_inside_of_a_child(self, device, monkeypatch):
        def memset(device):
            nodes = (node for graph in device._graphs.values() for node in graph.nodes.values())
            return next(node.handle for node in nodes if node.kind.name == "memset")

        self.blaming(device, monkeypatch, memset)
        with pytest.raises(InstantiateError) as caught:
            self.nested().instantiate(device)
        problem = caught.value
        assert (problem.graph, problem.node, problem.location[0]) == ("outer", "part/clear", __file__)
        assert "cannot hold what this node does" in str(problem)
        assert "Move the node out" in problem.remedy

    def test_a_node_that_is_none_of_ours(self, device, monkeypatch):
        self.blaming(device, monkeypatch, lambda device: 0x1234)
        with pytest.raises(InstantiateError, match="the driver blames node 0x1234, which the graph does not") as caught:
            self.nested().instantiate(device)
        assert (caught.value.graph, caught.value.node) == ("outer", None)

    def test_nobody(self, device, monkeypatch):
        self.blaming(device, monkeypatch, lambda device: 0)
        with pytest.raises(InstantiateError) as caught:
            self.nested().instantiate(device)
        assert (caught.value.graph, caught.value.node) == ("outer", None)
        assert "blames" not in str(caught.value)


class TestWholeUpdates:
    """The driver blames nodes of the graph that is given, and a dependency of one."""

    def refused(self, device, monkeypatch, result, node, dependency=None):
        def update(graph_exec, graph):
            handles = {each.kind.name: each.handle for each in device._graphs[graph].nodes.values()}
            raise ExecUpdateError(910, result, handles.get(node, 0), handles.get(dependency, 0))

        monkeypatch.setattr(device, "graph_exec_update", update)
        with add_graph().instantiate(device) as exe, pytest.raises(ExecUpdateError) as caught:
            exe.update_from(add_graph(), values={"value": 2.0})
        assert caught.value.graph == "adding"
        return caught.value

    def test_a_node_and_its_dependency(self, device, monkeypatch):
        result = "CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED"
        problem = self.refused(device, monkeypatch, result, "kernel", "memset")
        assert (problem.node, problem.location[0]) == ("add", __file__)
        assert "its dependency on 'clear' does not match" in str(problem)
        assert "an update keeps the nodes and the edges" in str(problem)
        assert "reinstantiate" in problem.remedy

    def test_what_was_to_change(self, device, monkeypatch):
        result = "CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED"
        problem = self.refused(device, monkeypatch, result, "kernel")
        assert [tuple(change) for change in problem.changes] == [("argument 'value'", 1.0, 2.0)]
        assert "It was to change argument 'value': 1.0 -> 2.0" in str(problem)

    def test_nobody(self, device, monkeypatch):
        problem = self.refused(device, monkeypatch, "CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED", None)
        assert (problem.node, problem.changes) == (None, ())
