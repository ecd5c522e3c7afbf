"""Execs updated from another graph: what is taken over, what does not match, and new execs in the place of old ones."""

from __future__ import annotations

import gc
import logging
import weakref

import numpy as np
import pytest
from numba import cuda

import graphdsl as gd
from graphdsl.drivers.results import ExecUpdateError
from tests.conformance import kernels

SIZE = 32


def pipeline(value=1.0, *, block=32, kernel=kernels.add_to, order=("load", "clear", "add", "say"), seen=None, **more):
    """Loads raw into x, adds ``value``, stores x; declared in the order given."""
    g = gd.Graph("pipeline")
    n = g.param("n", np.int32, default=SIZE)
    gain = g.param("gain", np.float32, default=value)
    raw, out = g.host_array("raw", SIZE, np.float32), g.host_array("out", SIZE, np.float32)
    x = g.device_array("x", SIZE, np.float32, lifetime="persistent")
    y = g.device_array("y", more.get("extent", SIZE), np.float32)
    declare = {
        "load": lambda: g.memcpy(x, raw, name="load"),
        "clear": lambda: g.memset(y, more.get("fill", 0), name="clear"),
        "add": lambda: g.kernel(
            kernel, grid=gd.cdiv(n, block), block=block, args=(x, gain, n), name="add", **more.get("attributes", {})
        ),
        "say": lambda: g.host([].append if seen is None else seen.append, (gain,), name="say"),
    }
    made = {name: declare[name]() for name in order}
    store = g.memcpy(out, x, name="store")
    [made["load"], made["clear"]] >> made["add"] >> [store, made["say"]]
    return g


def launched(exe, value=1.0) -> np.ndarray:
    exe["raw"][:] = value
    exe.launch()
    exe.synchronize()
    return exe["out"].copy()


def fields(done) -> dict[str, dict]:
    return {change.node: {name: (old, new) for name, old, new in change.fields} for change in done.nodes}


def test_fields_and_functions_are_taken_over(device):
    before, after = [], []
    with pipeline(seen=before).instantiate(device) as exe:
        assert (launched(exe) == 2).all()
        done = exe.update_from(pipeline(5.0, block=16, seen=after))
        assert not done.reinstantiated
        assert fields(done)["add"] == {"grid": ((1, 1, 1), (2, 1, 1)), "block": ((32, 1, 1), (16, 1, 1))} | {
            "argument 'value'": (1.0, 5.0)
        }
        assert set(fields(done)) == {"add", "say"}
        assert (launched(exe) == 6).all()
        assert (before, after) == ([1.0], [5.0])
        assert exe["gain"] == 5.0
        assert [call.function for call in exe.calls[-2:]] == ["cuGraphAddDependencies", "cuGraphExecUpdate"]


@pytest.mark.parametrize("order", [("say", "add", "clear", "load"), ("clear", "say", "load", "add")])
def test_the_order_of_declaration_does_not_matter(device, order):
    with pipeline().instantiate(device) as exe:
        assert not exe.update_from(pipeline(3.0, order=order)).reinstantiated
        assert (launched(exe) == 4).all()


def double(x, value, n):
    i = cuda.grid(1)
    if i < n:
        x[i] *= 2


def test_another_kernel(device):
    with pipeline().instantiate(device) as exe:
        done = exe.update_from(pipeline(kernel=double))
        assert not done.reinstantiated
        assert "kernel" in fields(done)["add"]
        assert (launched(exe, 7) == 14).all()


def test_updates_go_on_afterwards(device):
    with pipeline().instantiate(device) as exe:
        node = exe.node("add")
        exe.update_from(pipeline(5.0))
        exe.update(gain=7.0)
        assert (launched(exe) == 8).all()
        node.update(args={"value": 1.5})
        node.update(args={"value": 2.5})
        assert (launched(exe) == 3.5).all()
        exe.update(n=4)
        np.testing.assert_array_equal(launched(exe), np.where(np.arange(SIZE) < 4, 3.5, 1))
        with exe.clone() as twin:
            assert (launched(twin)[:4] == 3.5).all()
        exe.update_from(pipeline(1.0))
        assert (launched(exe) == 2).all(), "what updates made of the exec is gone"


def test_values_are_given_as_to_instantiate(device):
    with pipeline().instantiate(device) as exe:
        exe.update(gain=9.0, n=2)
        exe.update_from(pipeline(), values={"gain": 4.0})
        assert (exe["gain"], exe["n"]) == (4.0, SIZE)
        assert (launched(exe) == 5).all()


def test_disabled_nodes_stay_disabled(device):
    with pipeline().instantiate(device) as exe:
        exe.disable("add")
        exe.update_from(pipeline(5.0))
        assert not exe.node("add").enabled
        assert (launched(exe) == 1).all()
        exe.enable("add")
        assert (launched(exe) == 6).all()
        exe.disable("add")
        assert exe.update_from(pipeline(5.0, extent=64), "reinstantiate").reinstantiated
        assert not exe.node("add").enabled
        assert (launched(exe) == 1).all()


def test_memory_keeps_its_contents(device):
    with pipeline().instantiate(device) as exe:
        out, address = exe["out"], exe["x"].address
        assert (launched(exe) == 2).all()
        exe.update_from(pipeline(5.0))
        exe.update_from(pipeline(5.0, extent=64), "reinstantiate")
        assert exe["x"].address == address
        assert (exe["out"] == 2).all()
        launched(exe)
        assert (out == 6).all(), "views of before are still views of it"


def test_external_operands_are_those_of_the_graph(device):
    owners = [gd.to_device(device, np.full(8, i, np.float32)) for i in range(3)]

    def graph(owner):
        g = gd.Graph("external")
        w, out = g.external("w", owner), g.host_array("out", 8, np.float32)
        g.kernel(kernels.scale, grid=1, block=8, args=(w, out, 1.0, 8), name="scale")
        return g

    with graph(owners[0]).instantiate(device) as exe:
        exe.update(w=owners[1])
        done = exe.update_from(graph(owners[2]))
        assert exe["w"] is owners[2]
        old, new = fields(done)["scale"]["argument 'x'"]
        assert (old.address, new.address) == (owners[1].address, owners[2].address)
        exe.launch()
        exe.synchronize()
        assert (exe["out"] == 2).all()


def test_what_was_replaced_lives_until_the_last_launch_and_no_longer(device):
    first = gd.to_device(device, np.ones(8, np.float32))

    def graph(owner, function):
        g = gd.Graph("owners")
        out = g.host_array("out", 8, np.float32)
        g.kernel(kernels.scale, grid=1, block=8, args=(g.external("w", owner), out, 1.0, 8), name="scale")
        g.host(function, name="say")
        return g

    class Said:
        def __call__(self):
            pass

    said = Said()
    gone = weakref.ref(first), weakref.ref(said)
    second = gd.to_device(device, np.full(8, 2, np.float32))
    with graph(first, said).instantiate(device) as exe:
        exe.launch()
        del first, said
        exe.update_from(graph(second, len_of_nothing))
        exe.launch()
        exe.synchronize()
        gc.collect()
        assert [each() for each in gone] == [None, None]
        assert (exe["out"] == 2).all()


def len_of_nothing():
    return len(())


def extra_node():
    g = pipeline()
    g.empty(name="extra")
    return g


def missing_edge():
    g = pipeline()
    g._dag.remove_edge("clear", "add")
    return g


def other_kind():
    g = pipeline(order=("load", "add", "say", "clear"))
    g._dag.nodes["clear"]["node"] = gd.Graph("other").empty(name="clear").replaced(definition=g)
    return g


def other_direction():
    g = pipeline()
    load = g.node("load")
    load.source, load.destination = load.destination, load.source
    return g


MISMATCHES = {
    "a node more": (extra_node, "extra", "kind"),
    "an edge less": (missing_edge, "add", "edge clear -> add"),
    "another kind": (other_kind, "clear", "kind"),
    "another direction": (other_direction, "load", "destination"),
    "another extent": (lambda: pipeline(extent=64), None, "operand 'y'"),
    "cooperative": (lambda: pipeline(attributes={"cooperative": True}), "add", "cooperative"),
    "a priority": (lambda: pipeline(attributes={"priority": -1}), "add", "priority"),
}


@pytest.mark.parametrize("case", MISMATCHES)
def test_what_does_not_match_is_named_and_changes_nothing(device, case):
    build, node, field = MISMATCHES[case]
    with pipeline().instantiate(device) as exe:
        with pytest.raises(gd.UpdateError) as caught:
            exe.update_from(build())
        assert (caught.value.node, caught.value.field) == (node, field)
        assert "reinstantiate" in caught.value.remedy
        assert caught.value.location is not None
        assert (launched(exe) == 2).all()
        exe.update(gain=3.0)
        assert (launched(exe) == 4).all()


@pytest.mark.parametrize("case", [case for case in MISMATCHES if case != "another direction"])
def test_a_new_exec_is_made_where_that_is_asked_for(device, case):
    build, node, field = MISMATCHES[case]
    with pipeline().instantiate(device) as exe:
        exe.launch()
        done = exe.update_from(build(), on_mismatch="reinstantiate")
        assert done.reinstantiated
        assert (node, field) in [(each.node, each.field) for each in done.mismatches]
        assert field in str(done)
        assert (launched(exe) == 2).all()
        exe.update(gain=3.0)
        assert (launched(exe) == 4).all()


def test_clusters_are_set_and_changed_and_not_taken_back(device):
    def graph(**attributes):
        return pipeline(block=4, attributes=attributes)

    with graph().instantiate(device) as exe:
        for cluster in (2, 4):
            assert not exe.update_from(graph(cluster=cluster)).reinstantiated
            assert (launched(exe) == 2).all()
        with pytest.raises(gd.UpdateError) as caught:
            exe.update_from(graph())
        assert (caught.value.node, caught.value.field) == ("add", "cluster")


def test_nodes_are_found_again_in_a_new_exec(device):
    def graph(*names):
        g = gd.Graph("names")
        x = g.host_array("x", 4, np.float32)
        for i, name in enumerate(names):
            g.memset(x[i : i + 1], i + 1, name=name)
        return g

    with graph("b", "c").instantiate(device) as exe:
        b, c = exe.node("b"), exe.node("c")
        exe.update_from(graph("a", "c"), "reinstantiate")
        c.update(value=9)
        with pytest.raises(gd.UpdateError, match="no node of this name"):
            b.update(value=9)
        exe.launch()
        exe.synchronize()
        assert exe["x"][:2].tolist() == [1, 9]


def test_children_are_updated_inside(device):
    def graph(value, nodes=1):
        inner = gd.Graph("inner")
        h = inner.host_array("h", 4, np.float32)
        for i in range(nodes):
            inner.memset(h[i : i + 1], value, name=f"set{i}")
        outer = gd.Graph("outer")
        outer.child(inner, name="child")
        return outer

    with graph(1).instantiate(device) as exe:
        done = exe.update_from(graph(5))
        assert fields(done) == {"child/set0": {"value": (1, 5)}}
        exe.launch()
        exe.synchronize()
        assert exe["child/h"][0] == 5
        with pytest.raises(gd.UpdateError, match="set1"):
            exe.update_from(graph(5, nodes=2))


def test_conditions_need_a_new_exec(device):
    def graph(value):
        g = gd.Graph("conditional")
        h = g.host_array("h", 1, np.float32)
        with g.if_(g.condition("taken", default=1), name="branch") as body:
            body.memset(h, value, name="set")
        return g

    with graph(1).instantiate(device) as exe:
        with pytest.raises(gd.UpdateError, match="condition") as caught:
            exe.update_from(graph(2))
        assert caught.value.node == "branch"
        assert exe.update_from(graph(2), "reinstantiate").reinstantiated
        exe.launch()
        exe.synchronize()
        assert exe["h"][0] == 2


def test_memory_of_a_graph_needs_a_new_exec(device):
    def graph(value):
        g = gd.Graph("allocating")
        out = g.host_array("out", 4, np.float32)
        with g.sequence():
            alloc = g.alloc("x", 4, np.float32)
            g.memset(alloc.array, value, name="set")
            g.memcpy(out, alloc.array, name="store")
            g.free(alloc)
        return g

    with graph(1).instantiate(device) as exe:
        with pytest.raises(gd.UpdateError, match="address"):
            exe.update_from(graph(2))
        assert exe.update_from(graph(2), "reinstantiate").reinstantiated
        exe.launch()
        exe.synchronize()
        assert (exe["out"] == 2).all()


def test_a_graph_with_errors_is_refused(device):
    with pipeline().instantiate(device) as exe:
        with pytest.raises(gd.CheckError, match="GD212"):
            exe.update_from(pipeline(block=2048))
        assert (launched(exe) == 2).all()


@pytest.mark.parametrize(
    ("arguments", "field"), [((None,), "graph"), ((pipeline(), "perhaps"), "on_mismatch"), (("pipeline",), "graph")]
)
def test_what_is_no_graph_or_no_way_is_refused(device, arguments, field):
    with pipeline().instantiate(device) as exe, pytest.raises(gd.UpdateError) as caught:
        exe.update_from(*arguments)
    assert caught.value.field == field


class TestRefusedByTheDriver:
    """The driver may refuse more than is known: then the node and what would have changed are named."""

    def refused(self, monkeypatch, device, on_mismatch):
        def update(graph_exec, graph):
            (found,) = (node for node in device._graphs[graph].nodes.values() if node.kind.name == "kernel")
            raise ExecUpdateError(910, "CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED", found.handle, 0)

        monkeypatch.setattr(device, "graph_exec_update", update)
        return pipeline(5.0)

    def test_raised(self, monkeypatch):
        device = gd.emulator()
        with pipeline().instantiate(device) as exe:
            live = device.live
            with pytest.raises(gd.DriverError) as caught:
                exe.update_from(self.refused(monkeypatch, device, "raise"))
            assert caught.value.node == "add"
            assert "argument 'value': 1.0 -> 5.0" in str(caught.value)
            assert caught.value.location[0] == __file__
            assert (launched(exe) == 2).all()
            del caught
            gc.collect()
            assert device.live == live

    def test_instantiated_anew(self, monkeypatch):
        device = gd.emulator()
        with pipeline().instantiate(device) as exe:
            done = exe.update_from(self.refused(monkeypatch, device, "reinstantiate"), "reinstantiate")
            assert done.reinstantiated
            assert done.mismatches[0].node == "add"
            assert (launched(exe) == 6).all()


@pytest.mark.parametrize(
    "call", ["cuMemHostAlloc", "cuGraphAddMemsetNode", "cuGraphInstantiateWithParams", "cuGraphUpload"]
)
def test_a_new_exec_that_cannot_be_made_leaves_the_old_one(call):
    device = gd.emulator()
    with pipeline().instantiate(device) as exe:
        live = device.live
        other = pipeline(5.0, extent=64)
        other.host_array("more", 4, np.float32)
        device.fail_next(call, 2)
        with pytest.raises(gd.DriverError) as caught:
            exe.update_from(other, "reinstantiate")
        assert caught.value.call == call
        assert (launched(exe) == 2).all()
        del caught
        gc.collect()
        assert device.live == live


@pytest.mark.parametrize("on_mismatch", ["raise", "reinstantiate"])
def test_nothing_is_left_behind(on_mismatch, caplog):
    device = gd.emulator()
    with pipeline().instantiate(device) as exe, caplog.at_level(logging.WARNING):
        for i in range(3):
            exe.launch()
            exe.update_from(pipeline(float(i), extent=SIZE if on_mismatch == "raise" else 40 + i), on_mismatch)
        exe.synchronize()
        gc.collect()
        assert device.live["graphs"] == device.live["execs"] == 1
        assert device.live["streams"] == 1
    gc.collect()
    assert not any(device.live.values()), device.live
    assert not caplog.records
