"""Memory that an update binds where other memory lies: audited again, refused before the driver hears of it."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import graphdsl as gd


@pytest.fixture
def data():
    return np.zeros(64, np.float32)


def copies(a, b, *, ordered=False, name="copies"):
    """Two copies that share nothing: ``first`` writes a, ``second`` reads b."""
    g = gd.Graph(name)
    x, y = g.device_array("x", 16, np.float32), g.device_array("y", 16, np.float32)
    a, b = g.external("a", a), g.external("b", b)
    clear = g.memset(x, 0, name="clear")
    first = g.memcpy(a, x, name="first", after=clear)
    second = g.memcpy(y, b, name="second")
    if ordered:
        first >> second
    return g


def test_an_update_that_makes_a_conflict_is_refused(device, data):
    with copies(data[:16], data[16:32]).instantiate(device) as exe:
        exe.launch()
        exe.synchronize()
        with pytest.raises(gd.UpdateError) as caught:
            exe.update(b=data[8:24])
        problem = caught.value
        assert (problem.field, problem.node) == ("b", "second")
        assert problem.value == "b, the memory of a, bytes 0 to 32"
        assert "overlap the memory of 'a'" in problem.rule
        assert "RAW: 'first' writes it" in problem.rule
        assert problem.remedy.startswith("Bind memory that nothing else overlaps, or declare the edge")
        assert "first >> second" in problem.remedy
        assert exe["b"].ctypes.data == data[16:].ctypes.data, "nothing has changed"
        preflight = exe.preflight(b=data[8:24])
        assert not preflight.ok
        assert "first >> second" in str(preflight)
        exe.update(b=data[32:48])
        exe.launch()
        exe.synchronize()


def test_both_sides_of_an_update_count(device, data):
    with copies(data[:16], data[16:32]).instantiate(device) as exe:
        with pytest.raises(gd.UpdateError, match="overlap"):
            exe.update(a=data[16:32])
        exe.update(a=data[16:32], b=data[:16])  # they change places
        with pytest.raises(gd.UpdateError, match="overlap"):
            exe.update(a=data[40:56], b=data[32:48])
        exe.update({"a": data[48:64], "b": data[32:48]})


def test_what_an_edge_orders_may_overlap(device, data):
    with copies(data[:16], data[16:32], ordered=True).instantiate(device) as exe:
        exe.update(b=data[8:24])
        assert exe.preflight(b=data[4:20]).ok


def test_what_is_said_to_be_independent_may_overlap(device, data):
    g = copies(data[:16], data[16:32])
    second = g.node("second")
    g.independent(g.node("first"), second, why="what is read does not matter")
    with g.instantiate(device) as exe:
        exe.update(b=data[8:24])


def test_memory_of_the_exec_counts(device):
    g = gd.Graph("own")
    x, y = g.device_array("x", 16, np.float32), g.device_array("y", 16, np.float32)
    keep = g.host_array("keep", 16, np.float32)
    w = g.external("w", gd.device_array(device, 16, np.float32))
    g.memset(x, 0, name="clear") >> g.memcpy(keep, x, name="store")
    g.memset(w, 1, name="fill") >> g.memcpy(y, w, name="copy")
    with g.instantiate(device, share_memory=False) as exe:
        address = exe._shadow.values["x"]
        mine = type("Mine", (), {})()
        mine.__cuda_array_interface__ = {"shape": (16,), "typestr": "<f4", "data": (address, False), "version": 3}
        with pytest.raises(gd.UpdateError, match="memory of 'x'"):
            exe.update(w=mine)


def test_what_is_not_known_is_a_warning(device, data, caplog):
    g = gd.Graph("unknown")
    a, b = g.external("a", data[:16]), g.external("b", data[16:32])
    g.host(lambda array: None, a, name="touch")
    g.memset(g.host_array("z", 4, np.float32), 0)
    g.host(lambda array: None, b, name="look")
    with g.instantiate(device) as exe, caplog.at_level(logging.WARNING, "graphdsl"):
        preflight = exe.preflight(b=data[8:24])
        assert preflight.ok
        assert [found.code for found in preflight.warnings] == ["GD602"]
        assert "warning: GD602" in str(preflight)
        for start in (8, 8, 4):
            exe.update(b=data[start : start + 16])
    said = [record.getMessage() for record in caplog.records if "GD602" in record.getMessage()]
    assert len(said) == 1
    assert "touch >> look" in said[0]


def test_disabled_nodes_touch_nothing_until_they_are_enabled(device, data):
    with copies(data[:16], data[16:32]).instantiate(device) as exe:
        exe.node("first").disable()
        exe.update(b=data[8:24])
        with pytest.raises(gd.UpdateError, match="overlap"):
            exe.node("first").enable()
        with pytest.raises(gd.UpdateError, match="overlap"):
            exe.enable("*")
        exe.update(b=data[16:32])
        exe.node("first").enable()


def test_a_clone_knows_too(device, data):
    with copies(data[:16], data[16:32]).instantiate(device) as exe:
        other = exe.clone()
        with other, pytest.raises(gd.UpdateError, match="overlap"):
            other.update(b=data[8:24])


def test_values_of_the_same_update_count(device, data):
    g = gd.Graph("params")
    n = g.param("n", np.int32, default=4)
    x, y = g.device_array("x", 16, np.float32), g.device_array("y", 16, np.float32)
    a, b = g.external("a", data[:16]), g.external("b", data[16:32])
    clear = g.memset(x, 0, name="clear")
    g.memcpy(a[:n], x[:n], name="first", after=clear)
    g.memcpy(y[:n], b[:n], name="second")
    with g.instantiate(device) as exe:
        exe.update(b=data[4:20])
        with pytest.raises(gd.UpdateError, match="overlap"):
            exe.update(b=data[4:20], n=8)
        assert exe["n"] == 4
