"""The table of what may change: a row for each kind, and messages that name node, field, rule and remedy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.declare.attributes import ATTRIBUTES
from graphdsl.declare.nodes import KernelNode, MemcpyNode
from graphdsl.run.changes import CHANGES, Kept
from tests.conformance import kernels
from tests.conformance.test_run import demo_graph


def kinds(kind):
    return [each for below in kind.__subclasses__() for each in (below, *kinds(below))]


def test_every_kind_of_node_has_a_row():
    assert {kind for kind in kinds(gd.Node) if kind.__module__.startswith("graphdsl.") and kind.kind != "node"} <= set(
        CHANGES
    )


@pytest.mark.parametrize("kind", CHANGES, ids=lambda kind: kind.__name__)
def test_rows_name_fields_that_nodes_have(kind):
    row = CHANGES[kind]
    slots = {slot for each in kind.__mro__ for slot in getattr(each, "__slots__", ())}
    declared = slots | set(ATTRIBUTES) if "attributes" in slots else slots
    assert {*row.fields, *row.fixed, *(kept.field for kept in row.kept)} <= declared
    assert not set(row.fields) & set(row.fixed)
    assert bool(row.call) == bool(row.fields)


@pytest.fixture
def exe():
    with demo_graph(64).instantiate(gd.emulator()) as exe:
        yield exe


def test_a_field_that_is_fixed_is_refused_with_what_to_do(exe):
    with pytest.raises(gd.UpdateError, match="no update changes the kernel") as caught:
        exe.node("scale").update(kernel=kernels.add_to)
    assert (caught.value.node, caught.value.field) == ("scale", "kernel")
    assert "update_from" in caught.value.remedy


def test_a_field_that_there_is_not_names_those_that_there_are(exe):
    with pytest.raises(gd.UpdateError, match="destination, source, nbytes") as caught:
        exe.node("load").update(color=3)
    assert caught.value.field == "color"


def test_a_copy_keeps_its_direction(exe):
    out = next(node for node in exe.plan.nodes if node.name == "store").destination
    with pytest.raises(gd.UpdateError, match="keeps the destination of a copy in device memory") as caught:
        exe.node("load").update(destination=out)
    assert (caught.value.node, caught.value.field) == ("load", "destination")
    assert caught.value.location is not None


def test_what_is_kept_holds_for_updates_by_name_too(monkeypatch):
    kept = Kept("nbytes", lambda node, values: values["n"], "the size stays {}", "Instantiate anew.")
    monkeypatch.setitem(CHANGES, MemcpyNode, replace(CHANGES[MemcpyNode], kept=(kept,)))
    g = gd.Graph("kept")
    n = g.param("n", np.int32, default=4)
    gain = g.param("gain", np.float32, default=1.0)
    x, y = g.host_array("x", 8, np.float32), g.device_array("y", 8, np.float32)
    g.memcpy(y[:n], x[:n], name="copy") >> g.kernel(kernels.scale, grid=1, block=8, args=(y, y, gain, n))
    with g.instantiate(gd.emulator()) as exe:
        said = exe.preflight(n=5, gain=2.0)
        with pytest.raises(gd.UpdateError, match="the size stays 4") as caught:
            exe.update(n=5, gain=2.0)
        assert (caught.value.node, caught.value.field) == ("copy", "nbytes")
        assert str(said.refusal) == str(caught.value)
        assert (exe["n"], exe["gain"]) == (4, 1.0)
        exe.update(gain=2.0)


def test_kinds_that_can_be_disabled_are_named(monkeypatch, exe):
    monkeypatch.setitem(CHANGES, KernelNode, replace(CHANGES[KernelNode], can_disable=False))
    with pytest.raises(gd.UpdateError, match="only memcpy and memset nodes"):
        exe.node("scale").disable()
