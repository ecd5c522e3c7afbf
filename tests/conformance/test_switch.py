"""Nodes enabled and disabled by name, pattern and scope: all or none, and who reads stale memory is told."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import graphdsl as gd
from tests.conformance import kernels
from tests.conformance.test_run import demo_graph

OUT_OF_MEMORY = 2


def layers(count: int = 3) -> gd.Graph:
    g = gd.Graph("layers")
    x = g.host_array("x", 32, np.float32)
    with g.sequence():
        g.memset(x, 0, name="clear")
        for layer in range(count):
            with g.scope(f"layer{layer}"):
                for part in range(2):
                    g.kernel(kernels.add_to, grid=1, block=32, args=(x, 10.0**layer, 32), name=f"add{part}")
                g.empty(name="end")
    return g


def total(exe) -> float:
    exe.launch()
    exe.synchronize()
    assert (exe["x"] == exe["x"][0]).all()
    return float(exe["x"][0])


def test_by_name_pattern_and_scope(device):
    with layers().instantiate(device) as exe:
        assert total(exe) == 222
        assert exe.disable("layer1/add0").nodes == ("layer1/add0",)
        assert total(exe) == 212
        assert exe.disable("*add1").nodes == ("layer0/add1", "layer1/add1", "layer2/add1")
        assert total(exe) == 101
        assert exe.enable(scope="layer1").nodes == ("layer1/add0", "layer1/add1")
        assert total(exe) == 121
        assert exe.disable("*0", scope="layer2").nodes == ("layer2/add0",)
        assert total(exe) == 21
        assert exe.enable("*").nodes == ("layer0/add1", "layer2/add0", "layer2/add1")
        assert total(exe) == 222
        assert exe.enable("*").nodes == ()


def test_by_tag(device):
    g = gd.Graph("tags")
    x = g.host_array("x", 32, np.float32)
    with g.sequence():
        g.memset(x, 0, name="clear")
        with g.tagged("debug"):
            g.kernel(kernels.add_to, grid=1, block=32, args=(x, 1.0, 32), name="a")
        g.kernel(kernels.add_to, grid=1, block=32, args=(x, 10.0, 32), name="b")
        with g.tagged("debug"):
            g.kernel(kernels.add_to, grid=1, block=32, args=(x, 100.0, 32), name="c")
    with g.instantiate(device) as exe:
        assert exe.disable(tag="debug").nodes == ("a", "c")
        assert total(exe) == 10
        assert exe.enable("a", tag="debug").nodes == ("a",)
        assert total(exe) == 11
        with pytest.raises(gd.UpdateError, match="debug"):
            exe.enable(tag="bug")
        with exe.clone() as twin:
            assert twin.enable(tag="debug").nodes == ("c",)


def test_nodes_of_children(device):
    inner = gd.Graph("inner")
    h = inner.host_array("h", 4, np.float32)
    inner.memset(h[:1], 1, name="one") >> inner.memset(h[1:2], 1, name="two")
    g = gd.Graph("outer")
    x = g.host_array("x", 4, np.float32)
    g.memset(x, 0, name="clear") >> g.child(inner, {"h": x}, name="child")
    with g.instantiate(device) as exe:
        assert exe.disable("child*").nodes == ("child/one", "child/two")
        assert total(exe) == 0
        assert exe.enable("child/one").nodes == ("child/one",)
        with pytest.raises(gd.UpdateError, match="inside, such as 'child/\\*'") as caught:
            exe.disable("child")
        assert caught.value.node == "child"
        assert exe.disable("*").nodes == ("clear", "child/one")
        with pytest.raises(gd.UpdateError, match="child"):
            exe.node("child").disable()


def test_the_order_stays(device):
    g = gd.Graph("order")
    a, b = g.host_array("a", 8, np.float32), g.host_array("b", 8, np.float32)
    with g.sequence():
        g.memset(a, 1, name="first")
        g.memset(b, 5, name="between")
        g.memcpy(b, a, name="last")
    with g.instantiate(device) as exe:
        exe.disable("between")
        for _ in range(20):
            exe["a"][:], exe["b"][:] = -1, -1
            exe.launch()
            exe.synchronize()
            assert (exe["b"] == 1).all()


@pytest.mark.parametrize(
    ("names", "options", "field"),
    [
        (("nothing",), {}, "name"),
        ((), {"scope": "layer9"}, "name"),
        ((), {}, "names"),
        (("say",), {}, "enabled"),
        (("*",), {}, "enabled"),
    ],
)
def test_what_cannot_be_is_refused_whole(device, names, options, field):
    g = layers(1)
    g.host(print, name="say")
    with g.instantiate(device) as exe:
        with pytest.raises(gd.UpdateError) as caught:
            exe.disable(*names, **options)
        assert caught.value.field == field
        assert caught.value.remedy
        assert total(exe) == 2


def test_what_cannot_be_disabled_is_enabled_as_it_is(device):
    g = layers(1)
    g.host(print, name="say")
    with g.if_(g.condition("more", default=0), name="if") as body:
        body.memset(g.device_array("y", 4, np.int32), 0, name="clear")
    with g.instantiate(device) as exe:
        exe.disable("layer0/*")
        assert exe.enable("*").nodes == ("layer0/add0", "layer0/add1")
        assert exe.enable("say", "if").nodes == ()
        exe.node("say").enable()
        assert total(exe) == 2


def test_a_refusal_in_the_middle_leaves_all_as_it_was():
    device = gd.emulator()
    with layers().instantiate(device) as exe:
        exe.disable("layer0/add0")
        device.fail_next("cuGraphNodeSetEnabled", OUT_OF_MEMORY, after=2)
        with pytest.raises(gd.DriverError) as caught:
            exe.disable("layer*")
        assert caught.value.node == "layer1/add1"
        assert total(exe) == 221
        assert exe.disable("layer*").nodes == tuple(
            f"layer{i}/add{j}" for i in range(3) for j in range(2) if (i, j) != (0, 0)
        )


def test_an_exec_whose_nodes_could_not_be_switched_back_is_unusable():
    device = gd.emulator()
    with layers().instantiate(device) as exe:
        device.fail_next("cuGraphNodeSetEnabled", OUT_OF_MEMORY, after=1)
        device.fail_next("cuGraphNodeSetEnabled", OUT_OF_MEMORY, after=2)
        with pytest.raises(gd.ExecUnusableError, match="layer0/add1"):
            exe.disable("layer*")
        with pytest.raises(gd.ExecUnusableError):
            exe.launch()


class TestStale:
    """Whoever reads what a disabled node would have written is named."""

    def test_readers_are_reported_and_told_once(self, device, caplog):
        with demo_graph(64).instantiate(device) as exe, caplog.at_level(logging.WARNING, "graphdsl"):
            done = exe.disable("load")
            assert [(finding.code, finding.nodes) for finding in done.stale] == [("GD703", ("scale", "load"))]
            assert "GD703" in str(done)
            (record,) = caplog.records
            assert "'demo'" in record.getMessage()
            exe.enable("load")
            assert exe.disable("load").stale == done.stale
            exe.node("load").enable()
            exe.node("load").disable()
            assert len(caplog.records) == 1
            assert exe.disable("scale").stale == ()
            assert exe.enable("scale").stale == done.stale, "the reader is enabled before its writer"

    def test_one_node_tells_too(self, device, caplog):
        with demo_graph(64).instantiate(device) as exe, caplog.at_level(logging.WARNING, "graphdsl"):
            exe.node("scale").disable()
            assert not caplog.records, "clear writes y before store reads it"
            exe.node("scale").enable()
            exe.node("clear").disable()
            assert not caplog.records, "scale does not read y, and writes all of it"
            exe.node("scale").disable()
            assert {each.getMessage().split("'")[3] for each in caplog.records} == {"store"}

    def test_a_clone_does_not_tell_again(self, device, caplog):
        with demo_graph(64).instantiate(device) as exe, caplog.at_level(logging.WARNING, "graphdsl"):
            exe.disable("load")
            with exe.clone() as twin:
                twin.node("load").enable()
                twin.node("load").disable()
            assert len(caplog.records) == 1

    def test_spans_follow_the_values_that_hold(self, device, caplog):
        g = gd.Graph("spans")
        n = g.param("n", np.int32, default=4)
        x, y = g.device_array("x", 16, np.float32), g.device_array("y", 16, np.float32)
        g.memset(x[:n], 0, name="set") >> g.memcpy(y[:8], x[8:], name="copy")
        with g.instantiate(device) as exe, caplog.at_level(logging.WARNING, "graphdsl"):
            assert exe.disable("set").stale == ()
            exe.enable("set")
            exe.update(n=12)
            (finding,) = exe.disable("set").stale
            assert finding.value == "x[8:], bytes 32 to 48"
