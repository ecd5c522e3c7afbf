"""What a preflight says is what an update then does, and the preflight itself does nothing."""

from __future__ import annotations

import numpy as np
import pytest

import graphdsl as gd
from tests.conformance import kernels
from tests.conformance.test_run import demo_graph


def every_kind(device) -> gd.Graph:
    g = gd.Graph("kinds")
    n = g.param("n", np.int32, default=8)
    value = g.param("value", np.float32, default=1.0)
    nbytes = g.param("nbytes", np.int32, default=128)
    x = g.device_array("x", 32, np.float32)
    h = g.host_array("h", 32, np.float32)
    w = g.external("w", gd.to_device(device, np.ones(32, np.float32)))
    with g.sequence():
        g.memset(x[:n], value, name="set")
        g.kernel(kernels.add_to, grid=gd.cdiv(n, 16), block=16, args=(x[:n], value, n), name="add")
        g.kernel(kernels.scale, grid=1, block=32, args=(w, x, 2.0, n), name="scale")
        g.kernel(kernels.sum_dynamic_shared, grid=1, block=32, args=(x, h), shared_bytes=nbytes, name="sum")
        g.memcpy(h[:n], x[:n], name="store")
        g.host(lambda number: None, (value,), name="tell")
    return g


CASES = {
    "one param": {"value": 3.0},
    "the same value": {"value": 1.0},
    "a zero": {"value": 0.0},
    "a size": {"n": 16},
    "a size and a value": {"n": 24, "value": -1.0},
    "shared memory": {"nbytes": 100_000},
    "nothing": {},
    "out of the array": {"n": 64},
    "no blocks": {"n": 0},
    "no such name": {"nn": 1},
    "a value that does not fit": {"n": 2**40},
    "memory of the exec": {"x": np.zeros(32, np.float32)},
    "another shape": {"w": np.zeros(5, np.float32)},
    "too much shared memory": {"nbytes": 10**7},
}


@pytest.mark.parametrize("case", CASES)
def test_the_update_does_what_the_preflight_said(device, case):
    changes = CASES[case]
    with every_kind(device).instantiate(device) as exe:
        before = exe._shadow.packing.arena.tobytes(), dict(exe._shadow.values), list(exe._shadow.nodes)
        said = exe.preflight(changes)
        assert (exe._shadow.packing.arena.tobytes(), dict(exe._shadow.values), list(exe._shadow.nodes)) == before
        sent = recorded(exe)
        if said.ok:
            exe.update(changes)
        else:
            with pytest.raises(gd.UpdateError) as caught:
                exe.update(changes)
            assert str(said.refusal) == str(caught.value)
        assert [change.node for change in said.nodes] == sent
        assert len([call for call in said.calls if "SetParams" in call.function]) == len(sent)
        assert (said.microseconds > 0) == bool(sent)
        assert exe.preflight(changes).nodes == () or not all(changes.values()), "nothing is left to do"


def recorded(exe) -> list[str]:
    """The names of nodes that are sent to the driver from now on."""
    sent: list[str] = []
    sender = exe._sender
    names = {int(handle): node.name for handle, node in zip(sender.handles, exe._shadow.nodes, strict=True)}
    send = sender.set_params

    def set_params(kinds, handles, params):
        sent.extend(names[handle] for handle in handles.tolist())
        send(kinds, handles, params)

    sender.set_params = set_params
    return sent


def test_the_driver_is_not_asked():
    device = gd.emulator()
    with every_kind(device).instantiate(device) as exe:
        device.history.clear()
        for changes in CASES.values():
            exe.preflight(changes)
        assert list(device.history) == []


def test_fields_are_shown_with_the_values_before_and_after(device):
    with every_kind(device).instantiate(device) as exe:
        said = exe.preflight(n=32, value=5.0)
        fields = {
            change.node: {field.field: (field.old, field.new) for field in change.fields} for change in said.nodes
        }
        assert fields["add"]["grid"] == ((1, 1, 1), (2, 1, 1))
        assert fields["add"]["argument 'value'"] == (1.0, 5.0)
        assert fields["tell"] == {"args[0]": (1.0, 5.0)}
        assert fields["set"]["value"] == (1.0, 5.0)
        old, new = fields["store"]["source"]
        assert (old.text, new.text) == ("x[:n]: float32[8]", "x[:n]: float32[32]")
        assert fields["scale"] == {"argument 'n'": (8, 32)}
        assert "sum" not in fields


def test_memory_that_would_be_bound_is_shown_by_address(device):
    other = gd.to_device(device, np.zeros(32, np.float32))
    with every_kind(device).instantiate(device) as exe:
        was = exe["w"]
        (change,) = exe.preflight(w=other).nodes
        ((name, old, new),) = change.fields
        assert (name, old.address, new.address) == ("argument 'x'", was.address, other.address)
        assert exe["w"] is was


def test_ways_and_costs(device):
    with every_kind(device).instantiate(device) as exe:
        assert exe.preflight(value=1.0).way == "nothing"
        assert exe.preflight(value=2.0).way == "long"  # a memset and a host node follow it, too
        said = exe.preflight(nbytes=100_000)
        assert said.calls[0].function == "cuKernelSetAttribute"
    with demo_graph().instantiate(device) as exe:
        assert exe.preflight(gain=3.0).way == "short"
        assert exe.preflight({"gain": 3.0}).way == "long"
        assert exe.preflight(gain=3.0).microseconds < exe.preflight(n=512).microseconds


def test_disabled_nodes_are_told(device):
    with demo_graph().instantiate(device) as exe:
        exe.node("scale").disable()
        (change,) = exe.preflight(gain=3.0).nodes
        assert not change.enabled
        assert "scale (kernel, disabled)" in str(exe.preflight(gain=3.0))


def test_it_reads_as_text(device):
    with demo_graph().instantiate(device) as exe:
        text = str(exe.preflight(n=512))
        assert "change 1 node" in text
        assert "grid: (8, 1, 1) -> (4, 1, 1)" in text
        assert "cuGraphExecKernelNodeSetParams (1)" in text
        assert "µs" in text
        assert "h200.md" in text
        assert str(exe.preflight(n=0)).endswith(str(exe.preflight(n=0).refusal))
        assert "nothing" in str(exe.preflight())


def test_many_nodes_are_cut_short(device):
    g = gd.Graph("many")
    n = g.param("n", np.int32, default=1)
    x = g.host_array("x", 32, np.float32)
    with g.sequence():
        for i in range(30):
            g.kernel(kernels.add_to, grid=1, block=32, args=(x, 1.0, n), name=f"k{i}")
    with g.instantiate(device) as exe:
        said = exe.preflight(n=2)
        assert len(said.nodes) == 30
        assert "and 10 more nodes" in str(said)


def test_a_closed_exec_has_no_preflight(device):
    exe = demo_graph().instantiate(device)
    exe.close()
    with pytest.raises(gd.ExecUnusableError):
        exe.preflight(gain=1.0)
