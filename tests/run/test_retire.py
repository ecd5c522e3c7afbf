"""What updates replace is released once no launch can use it, and an update that was made is not refused for that."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

import graphdsl as gd
from tests.conformance import kernels

OUT_OF_MEMORY = 2


class Blocked:
    """An exec whose launches wait, with external memory that is swapped."""

    def __init__(self) -> None:
        self.device = gd.emulator()
        self.go = threading.Event()
        g = gd.Graph("blocked")
        x, out = g.external("x", self.memory(1.0)), g.host_array("out", 4, np.float32)
        g.host(lambda: self.go.wait(10) and None, name="wait") >> g.memcpy(out, x, name="store")
        self.exe = g.instantiate(self.device)

    def memory(self, value: float) -> gd.DeviceArray:
        return gd.to_device(self.device, np.full(4, value, np.float32))


@pytest.mark.parametrize("call", ["cuEventCreate", "cuEventRecord"])
@pytest.mark.parametrize("again", [False, True])
def test_without_an_event_it_is_kept_until_a_wait_or_a_later_event(call, again):
    blocked = Blocked()
    with blocked.exe as exe:
        exe.launch()
        old, new = exe["x"].address, blocked.memory(2.0)
        blocked.device.fail_next(call, OUT_OF_MEMORY)
        exe.update(x=new)
        assert exe["x"] is new
        if again:
            exe.update(x=blocked.memory(3.0))
        assert not exe.release_replaced()
        blocked.go.set()
        exe.synchronize()
        assert (exe["out"] == 1).all()
        gc.collect()
        assert exe.release_replaced()
        kept = [address for address, _ in blocked.device.allocations]
        assert old in kept, "the graph has declared it"
        exe.launch()
        exe.synchronize()
        assert (exe["out"] == (3 if again else 2)).all()
        before = blocked.device.live["allocations"]
        del new
        assert blocked.device.live["allocations"] == before - again, "nothing keeps what came between"


def test_without_events_nothing_is_released_while_a_launch_reads_it():
    blocked = Blocked()
    with blocked.exe as exe:
        exe.launch()
        exe.update(x=blocked.memory(2.0))
        exe.launch()  # reads what only the exec keeps
        for value in (3.0, 4.0):
            blocked.device.fail_next("cuEventCreate", OUT_OF_MEMORY)
            exe.update(x=blocked.memory(value))
        blocked.go.set()
        exe.synchronize()
        assert (exe["out"] == 2).all()
        gc.collect()
        assert blocked.device.live["allocations"] == 2, "the first, which the graph has declared, and the last"


def test_a_fault_that_an_update_hears_of_is_told_by_the_next_wait():
    device = gd.emulator()
    first, second, third = (gd.to_device(device, np.full(16, value, np.float32)) for value in range(3))
    g = gd.Graph("faulty")
    n = g.param("n", np.int32, default=17)
    g.kernel(kernels.add_to, grid=1, block=32, args=(g.external("x", first), 1.0, n), name="add")
    with g.instantiate(device) as exe:
        exe.launch()
        exe.update(x=second, n=16)
        (event,) = device._machine.events.values()
        while not event.done:
            pass
        exe.update(x=third)  # asks whether what the first one replaced is due
        assert exe["x"] is third
        gc.disable()
        try:
            exe.synchronize()
        except gd.MemoryFault as problem:
            known, node = weakref.ref(problem), problem.node
        finally:
            gc.enable()
        assert (known(), node) == (None, "add"), "it would keep what its callers have until the next collection"
        exe.launch()
        exe.synchronize()
        assert third.copy_to_host().tolist() == [3.0] * 16
