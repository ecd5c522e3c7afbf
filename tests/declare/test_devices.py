"""What `Graph.on` records."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.declare.definition import Definition
from graphdsl.errors import DeclarationError


@pytest.mark.parametrize("device", [1, np.int64(1), SimpleNamespace(ordinal=1), gd.emulator(devices=2).sibling(1)])
def test_a_device_is_a_number_or_has_one(device):
    g = Definition()
    with g.on(device):
        assert g.empty().on == 1
    assert g.empty().on is None


@pytest.mark.parametrize("device", [-1, True, 1.0, "1", None, SimpleNamespace(ordinal="1")])
def test_what_is_no_device_is_refused(device):
    with pytest.raises(DeclarationError, match="a device is given by its number") as caught:
        Definition().on(device)
    assert caught.value.field == "device"


def test_blocks_may_be_in_one_another():
    g = Definition()
    with g.on(1):
        with g.on(0):
            assert g.device == 0
        assert g.device == 1
    assert g.device is None


def test_a_block_ends_with_an_exception():
    g = Definition()
    with pytest.raises(ZeroDivisionError), g.on(1):
        raise ZeroDivisionError
    assert g.device is None


def test_memory_and_events_are_on_the_device():
    g = Definition()
    with g.on(1):
        x, p = g.device_array("x", 4, np.int32), g.host_array("p", 4, np.int32)
        done = g.event("done")
        alloc = g.alloc("scratch", 4, np.int32)
    assert (x.device, p.device, done.device, alloc.device, alloc.array.device) == (1, None, 1, 1, 1)
    assert g.free(alloc).device == 1
    assert g.record(done).device == 1
    assert g.devices == {1}
    g.empty()
    assert g.devices == {None, 1}


def test_transfers_are_where_their_memory_is():
    g = Definition()
    x, p = g.device_array("x", 4, np.int32), g.host_array("p", 4, np.int32)
    with g.on(1):
        y = g.device_array("y", 4, np.int32)
    assert g.memcpy(y, x).device == 1
    assert g.memcpy(x, y).device is None
    assert g.memcpy(p, y).device == 1
    assert g.memcpy(p, x).device is None
    assert g.memset(y, 0).device == 1
    with g.on(0):
        assert g.memcpy(y, x).device == 0
        assert g.memset(p, 0).device == 0
        assert g.host(print).device is g.empty().device is None


def test_bodies_are_where_their_node_is():
    g = Definition()
    with g.on(1):
        loop = g.while_(g.condition("more", default=1), name="loop")
    with loop as body:
        assert body.device == 1
        assert body.empty().on == 1
        with body.on(0):
            assert body.if_(g.condition("less", default=0)).bodies[0].device == 0


def test_a_child_is_where_its_node_is_but_for_what_is_put_elsewhere():
    inner = Definition("inner")
    a = inner.device_array("a", 4, np.int32)
    with inner.on(0):
        b = inner.device_array("b", 4, np.int32)
        inner.memset(b, 0, name="b")
    inner.memset(a, 0, name="a")
    done = inner.event("done")
    inner.record(done)
    g = Definition()
    with g.on(1):
        g.child(inner, name="child")
    assert (g.node("child/a").device, g.node("child/b").device) == (1, 0)
    assert [g.operands[f"child/{name}"].device for name in ("a", "b", "done")] == [1, 0, 1]
    assert (a.device, b.device, done.device) == (None, 0, None)


class OnDevice:
    """Device memory of somebody else."""

    __cuda_array_interface__ = {"shape": (4,), "typestr": "<i4", "data": (4096, False), "version": 3}  # noqa: RUF012


class Told(OnDevice):
    def __dlpack_device__(self):
        return 2, 1


def test_external_memory_is_where_its_owner_says_or_where_it_is_declared():
    g = Definition()
    with g.on(2):
        assert g.external("silent", OnDevice()).device == 2
        assert g.external("told", Told()).device == 1
        assert g.external("host", np.zeros(4)).device is None
    assert g.external("nowhere", OnDevice()).device is None
