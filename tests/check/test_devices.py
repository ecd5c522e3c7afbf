"""Rules about several devices, and rules about limits where devices differ."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import graphdsl as gd
from tests.check.conftest import scale
from tests.check.findings import cheap, codes, in_any_order, judged, only


@pytest.fixture
def two(demo: SimpleNamespace) -> SimpleNamespace:
    """The small graph with an array on the second device, and what a launch of the kernel takes."""
    with demo.g.on(1):
        demo.z = demo.g.device_array("z", 1024, np.float32)
    demo.launch = {"grid": 4, "block": 256}
    return demo


APART = gd.emulator(devices=2, peer_access=False)


def test_a_graph_of_one_device_is_held_to_no_rule_about_several(demo):
    with demo.g.on(3):
        demo.g.empty()
    demo.g.memset(demo.x, 0)
    assert cheap(demo.g, target=["sm_90"]).ok


def test_devices_that_are_not_there(two):
    first = two.g.memset(two.z, 0, name="first")
    two.g.memset(two.z, 1, name="second", after=first)
    found = only(cheap(two.g, target=["sm_90"]))
    assert (found.code, found.node, found.nodes, found.field, found.value) == (
        "GD231",
        "first",
        ("first", "second"),
        "device",
        1,
    )
    assert "there is 1 device" in found.rule
    assert cheap(two.g).ok
    assert cheap(two.g, target=["sm_90", "sm_80"]).ok


def test_memory_on_a_device_that_is_not_there(two):
    two.g.memset(two.x, 0)
    found = only(cheap(two.g, target=["sm_90"]))
    assert (found.code, found.node, found.field) == ("GD231", None, "operand 'z'")


def test_a_computer_with_fewer_devices_instantiates_nothing(two):
    two.g.memset(two.z, 0, name="clear")
    with pytest.raises(gd.CheckError, match="GD231"):
        two.g.instantiate(gd.emulator())


def test_kernel_arguments_that_the_device_does_not_reach(two):
    two.g.kernel(scale, **two.launch, args=(two.x, two.z, two.gain, two.n), name="run")
    assert judged(cheap(two.g)) == []
    report = two.g.check(APART, compile=False)
    found = only(report)
    assert (found.code, found.node, found.field) == ("GD232", "run", "argument 'y'")
    assert "device 0 (emulator (sm_90, device 0))" in found.rule
    assert report.target == "device 0 (emulator (sm_90, device 0)), device 1 (emulator (sm_90, device 1))"


def test_words_that_the_device_does_not_reach(two):
    with two.g.on(1):
        flags = two.g.device_array("flags", 2, np.uint32)
    two.g.batch_mem_ops(gd.write_value(flags[0], 1), may_deadlock=True, name="flag")
    assert judged(cheap(two.g)) == []
    assert judged(two.g.check(APART, compile=False)) == [("GD232", "flag", "operations[0].array")]


def test_pinned_memory_is_reached(two):
    with two.g.on(1):
        two.g.kernel(scale, **two.launch, args=(two.raw, two.z, two.gain, two.n))
    assert judged(two.g.check(APART, compile=False)) == []


def test_bodies_are_on_the_device_of_their_node(two):
    with two.g.if_(two.g.condition("large", default=0), name="if") as body:
        body.kernel(scale, **two.launch, args=(two.raw, two.raw, two.gain, two.n), name="same")
        with body.on(1):
            body.kernel(scale, **two.launch, args=(two.raw, two.raw, two.gain, two.n), name="other")
            body.empty(name="nowhere")
    found = only(cheap(two.g))
    assert (found.code, found.node, found.field, found.value) == ("GD233", "if/then/other", "device", 1)


def test_bodies_at_any_depth(two):
    with two.g.on(1), two.g.if_(two.g.condition("large", default=0), name="if") as body:
        inner = gd.Graph("inner")
        with inner.on(0):
            inner.memset(inner.host_array("p", 4, np.int32), 0, name="set")
        body.child(inner, name="child")
    assert judged(cheap(two.g)) == [("GD233", "if/then/child/set", "device")]


def test_conditions_are_set_on_the_device_of_their_node(two):
    large = two.g.condition("large", default=0)
    with two.g.on(1):
        setter = two.g.kernel(lambda large: None, grid=1, block=1, args=large, name="decide")
    two.g.if_(large, name="if", after=setter)
    found = only(cheap(two.g))
    assert (found.code, found.node, found.field) == ("GD234", "decide", "argument 'large'")


def test_programmatic_edges_are_on_one_device(two):
    first = two.g.kernel(scale, **two.launch, args=(two.raw, two.raw, two.gain, two.n), name="first")
    with two.g.on(1):
        second = two.g.kernel(scale, **two.launch, args=(two.raw, two.raw, two.gain, two.n), name="second")
    two.g.edge(first, second, programmatic=True)
    found = only(cheap(two.g))
    assert (found.code, found.node, found.field, found.value) == ("GD235", "second", "edges", "first -> second")


def test_transfers_run_where_their_memory_is(two):
    with two.g.on(1):
        two.g.memcpy(two.x, two.raw, name="load")
        two.g.memset(two.x, 0, name="clear")
        two.g.memcpy(two.x, two.z, name="pull")
        two.g.memcpy(two.raw, two.raw, name="host", nbytes=4)
    assert judged(cheap(two.g)) == [
        ("GD308", "host", "source"),
        ("GD336", "load", "device"),
        ("GD336", "clear", "device"),
    ]


def test_copies_in_bodies_reach_their_memory(two):
    with two.g.if_(two.g.condition("large", default=0), name="if") as body:
        body.memcpy(two.x, two.z, name="copy")
    assert judged(cheap(two.g)) == []
    assert judged(two.g.check(APART, compile=False)) == [
        ("GD337", "if/then/copy", "source"),
        ("GD338", "if/then/copy", "source"),
    ]


def test_copies_through_the_host_are_told(two):
    two.g.memcpy(two.z, two.x, name="push")
    report = two.g.check(APART, compile=False)
    assert report.ok
    assert judged(report) == [("GD338", "push", "source")]


def test_each_node_is_held_to_the_limits_of_its_device(two):
    big = {**two.launch, "args": (two.raw, two.raw, two.gain, two.n), "shared_bytes": 200_000}
    two.g.kernel(scale, **big, name="here")
    with two.g.on(1):
        two.g.kernel(scale, **big, name="there")
    assert codes(cheap(two.g)) == set()
    assert judged(cheap(two.g, target=["sm_90", "sm_80"])) == [("GD214", "there", "shared_bytes")]
    assert judged(cheap(two.g, target=["sm_80", "sm_90"])) == [("GD214", "here", "shared_bytes")]


def test_kernels_are_compiled_for_their_device(two):
    args = (two.raw, two.raw, two.gain, two.n)
    two.g.kernel(scale, **two.launch, args=args)
    with two.g.on(1):
        two.g.kernel(scale, **two.launch, args=args)
    in_any_order(two.g)
    emulator = gd.emulator(target=["sm_90", "sm_80"])
    assert two.g.check(emulator).ok
    with two.g.instantiate(emulator) as exe:
        targets = [kernel.image.target for kernel in exe._shadow.packing.kernels]
    assert sorted(targets) == [(8, 0), (9, 0)]


def test_updates_are_held_to_the_rules(two):
    with two.g.on(1):
        two.g.kernel(scale, **two.launch, args=(two.raw, two.z, two.gain, two.n), name="run")
    two.g.memset(two.x, 0, name="clear")
    with two.g.instantiate(APART) as exe:
        with pytest.raises(gd.UpdateError, match="does not reach the memory of device 0") as caught:
            exe.node("run").update(args={"y": two.x})
        assert (caught.value.node, caught.value.field) == ("run", "argument 'y'")
        with pytest.raises(gd.UpdateError, match="this memory was of device 0") as caught:
            exe.node("clear").update(destination=two.z)
        assert (caught.value.node, caught.value.field) == ("clear", "destination")
        exe.node("clear").update(destination=two.y)
