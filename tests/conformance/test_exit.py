"""The end of the interpreter, with launches in flight: a host node must not run in one that is gone."""

from __future__ import annotations

import textwrap

import pytest

from tests.bounded import script

HEAD = r"""
import threading, time
import numpy as np
import graphdsl as gd

device = {device}
begun = threading.Event()

def slow(text):
    begun.set()
    time.sleep(0.2)
    print(text + "\n", end="", flush=True)

def calling(*args):
    g = gd.Graph("calling")
    g.host(*args, name="node")
    return g.instantiate(device)
"""


def ran(device: str, source: str, expect: int = 0) -> list[str]:
    return script(HEAD.format(device=device) + textwrap.dedent(source), expect).split()


@pytest.fixture(params=["gd.emulator()", pytest.param("gd.cuda(0)", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    return request.param


def test_all_launches_in_flight_are_waited_for(device):
    """Those of execs that are there, that were dropped, and that only a collection would find."""
    source = """
    class Keeper: pass

    execs = [calling(slow, (f"node{i}",)) for i in range(3)]
    for exe in execs:
        for _ in range(2):
            exe.launch()
    keeper = Keeper()
    keeper.itself, keeper.exe = keeper, execs.pop()
    execs.pop()
    del exe, keeper
    print("end")
    """
    assert sorted(ran(device, source)) == ["end", *["node0"] * 2, *["node1"] * 2, *["node2"] * 2]


def test_after_an_exception(device):
    source = """
    exe = calling(slow, ("node",))
    exe.launch()
    raise ValueError
    """
    assert ran(device, source, expect=1) == ["node"]


def test_while_a_thread_launches(device):
    source = """
    def work():
        while True:
            exe.launch()

    exe, other = calling(int), calling(slow, ("node",))
    threading.Thread(target=work, daemon=True).start()
    time.sleep(0.2)
    other.launch()  # which is waited for, while the thread goes on
    print("end")
    """
    assert ran(device, source) == ["end", "node"]


def test_what_host_nodes_raise(device):
    """None of it ends the process, and what nobody was told is said at the end; memory may outlive its exec."""
    source = """
    import logging, sys
    logging.basicConfig(stream=sys.stdout, format="%(message)s")

    def fail():
        raise ValueError("unheard")

    g = gd.Graph("memory")
    out = g.host_array("out", 4, np.float32)
    g.memset(out, 1.0) >> g.host(sys.exit, (3,))
    with g.instantiate(device) as exe:
        exe.launch()
        try:
            exe.synchronize()
        except gd.CallbackError as problem:
            print(type(problem.__cause__).__name__)
        view, array = exe["out"], gd.to_device(device, np.ones(4))
    other = calling(fail)
    other.launch()
    print(int(view.sum()))
    """
    words = ran(device, source)
    assert words[:2] == ["SystemExit", "4"]
    assert "unheard." in words
