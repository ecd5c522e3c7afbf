"""Clones of an exec: what they take over, what is their own, and that they run side by side."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import graphdsl as gd
from tests.conformance import kernels
from tests.conformance.test_run import demo_graph

SIZE = 64


def launched(exe) -> np.ndarray:
    exe["raw"][:] = 1
    exe.launch()
    exe.synchronize()
    return exe["out"].copy()


def test_a_clone_takes_over_what_updates_have_made(device):
    with demo_graph(SIZE).instantiate(device) as exe:
        exe.update(gain=3.0, n=32)
        exe.node("clear").update(value=7)
        exe.node("scale").update(block=32, grid=1)
        with exe.clone() as twin:
            assert twin["gain"] == 3.0
            assert twin.device is device
            np.testing.assert_array_equal(launched(twin), np.where(np.arange(SIZE) < 32, 3, 7))
            assert twin.node("scale").node.block == (32, 1, 1)


def test_neither_changes_with_the_other(device):
    with demo_graph(SIZE).instantiate(device) as exe, exe.clone() as twin:
        exe.update(gain=5.0)
        twin.update(gain=-1.0)
        twin.node("clear").update(value=9)
        exe["raw"][:] = 1
        twin["raw"][:] = 2
        for each in (exe, twin):
            each.launch()
        for each in (exe, twin):
            each.synchronize()
        assert (exe["out"] == 5).all()
        assert (twin["out"] == -2).all()
        assert exe.node("clear").node.value == 0


def test_nodes_updated_by_numbers_are_not_shared(device):
    with demo_graph(SIZE).instantiate(device) as exe:
        exe.node("scale").update(args={"gain": 4.0})
        exe.node("scale").update(args={"gain": 5})  # an integer literal would compile another kernel
        with exe.clone() as twin, twin.clone() as third:
            exe.node("scale").update(args={"gain": 6.0})
            twin.node("scale").update(args={"gain": 7.0})
            values = {each: each.node("scale").node.args[2] for each in (exe, twin, third)}
            assert list(values.values()) == [6.0, 7.0, 5]
            for each, value in values.items():
                assert (launched(each) == value).all()


def test_disabled_nodes_are_disabled_in_the_clone(device):
    with demo_graph(SIZE).instantiate(device) as exe:
        exe.node("store").disable()
        with exe.clone() as twin:
            assert not twin.node("store").enabled
            twin["out"][:] = -1
            assert (launched(twin) == -1).all()
            twin.node("store").enable()
            assert (launched(twin) == 2).all()
            assert not exe.node("store").enabled
            assert [call.subject for call in twin.calls if call.function == "cuGraphNodeSetEnabled"] == ["store"]


def test_external_operands_start_as_they_are_and_are_bound_alone(device):
    first, second, third = (gd.to_device(device, np.full(8, i, np.float32)) for i in (1, 2, 3))
    g = gd.Graph("external")
    w, out = g.external("w", first), g.host_array("out", 8, np.float32)
    g.kernel(kernels.scale, grid=1, block=8, args=(w, out, 1.0, 8))
    with g.instantiate(device) as exe:
        exe.update(w=second)
        with exe.clone() as twin:
            assert twin["w"] is second
            twin.update(w=third)
            for each, value in ((exe, 2), (twin, 3)):
                each.launch()
                each.synchronize()
                assert (each["out"] == value).all()
            assert exe["w"] is second


def test_host_nodes_of_a_clone_are_passed_its_own_memory(device):
    seen = []
    g = gd.Graph("hosts")
    n = g.param("n", np.int32, default=2)
    h = g.host_array("h", 4, np.float32)
    g.host(lambda view: seen.append(view.tolist()), (h[:n],), name="read")
    with g.instantiate(device) as exe, exe.clone() as twin:
        exe["h"][:], twin["h"][:] = 1, 2
        exe.update(n=1)
        exe.launch()
        exe.synchronize()
        exe.close()
        twin.launch()
        twin.synchronize()
    assert seen == [[1.0], [2.0, 2.0]]


def test_a_clone_outlives_the_original(device):
    exe = demo_graph(SIZE).instantiate(device)
    twin = exe.clone()
    exe.close()
    with twin:
        assert (launched(twin) == 2).all()
    with pytest.raises(gd.ExecUnusableError, match="closed"):
        exe.clone()


def test_clones_run_at_the_same_time_in_streams_of_the_users(device, caplog):
    with demo_graph(SIZE).instantiate(device) as exe:
        execs = [exe, *(exe.clone() for _ in range(3))]
        streams = [device.stream_create() for _ in execs]
        for number, each in enumerate(execs):
            each.update(gain=float(number + 1))
            each["raw"][:] = np.arange(SIZE)
        with caplog.at_level(logging.WARNING, "graphdsl"):
            for _ in range(10):
                for each, stream in zip(execs, streams, strict=True):
                    each.launch(stream)
            for number, each in enumerate(execs):
                each.synchronize()
                np.testing.assert_array_equal(each["out"], (number + 1) * np.arange(SIZE))
        assert not caplog.records, "one stream for each exec is what the warning asks for"
        for each in execs[1:]:
            each.close()
        for stream in streams:
            device.stream_destroy(stream)


def test_one_exec_in_two_streams_is_told_once(device, caplog):
    streams = [device.stream_create() for _ in range(2)]
    with demo_graph(SIZE).instantiate(device) as exe, caplog.at_level(logging.WARNING, "graphdsl"):
        for stream in streams:  # one after the other: nothing that could have overlapped
            exe.launch(stream)
            exe.synchronize()
        assert not caplog.records
        exe["raw"][:] = 1
        for _ in range(3):
            for stream in (*streams, None):
                exe.launch(stream)
        exe.synchronize()
        assert (exe["out"] == 2).all()
    (record,) = caplog.records
    assert "'demo'" in record.getMessage()
    assert "clone()" in record.getMessage()
    for stream in streams:
        device.stream_destroy(stream)
