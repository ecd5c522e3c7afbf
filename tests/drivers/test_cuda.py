"""What is special to the CUDA driver: compiled loops and the way without them, and what is said where there is none."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.drivers.cuda import calling, loops
from graphdsl.drivers.host_threads import host_function
from tests.conformance import kernels
from tests.conformance.test_run import demo_graph


def test_where_loops_cannot_be_compiled_it_is_said_once(monkeypatch, caplog):
    def broken() -> None:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(loops, "Compiled", broken)
    loops.compiled.cache_clear()
    try:
        with caplog.at_level(logging.WARNING, "graphdsl"):
            assert loops.compiled() is None
            assert loops.compiled() is None
    finally:
        loops.compiled.cache_clear()
    assert [record.getMessage().endswith("no compiler") for record in caplog.records] == [True]


@pytest.mark.parametrize("ordinal", [-1, 10_000])
def test_a_device_that_is_not_there_is_refused_with_the_emulator_as_remedy(ordinal):
    with pytest.raises(gd.GraphdslError, match="emulator") as caught:
        gd.cuda(ordinal)
    assert caught.value.field == "device"


@pytest.mark.parametrize("ordinal", ["a", 1.5, None, True])
def test_a_device_is_given_by_its_number(ordinal):
    with pytest.raises(gd.GraphdslError, match="number"):
        gd.cuda(ordinal)


def test_in_a_host_node_the_driver_is_not_asked():
    """Some of its functions refuse there, and others hang."""
    with host_function():
        for function in (calling.driver.cuStreamSynchronize, calling.driver.cuMemAlloc):
            with pytest.raises(gd.DriverError, match="a host node may make no driver calls") as caught:
                calling.invoke(function, 0)
            assert (caught.value.call, caught.value.code) == (function.__name__, 800)


def test_what_cuda_core_raises_is_explained_too():
    refusal = RuntimeError("CUDA_ERROR_DEVICE_UNAVAILABLE: This indicates that ...")
    said = "another process has the device for itself"
    with pytest.raises(gd.DriverError, match=said) as caught, calling.as_ours("cuDevicePrimaryCtxRetain"):
        raise refusal
    assert (caught.value.call, caught.value.code) == ("cuDevicePrimaryCtxRetain", 46)
    assert caught.value.__cause__ is refusal


@pytest.mark.parametrize("text", ["no code at all", "CUDA_ERROR_THAT_NEVER_WAS"])
def test_what_tells_no_code_stays_as_it_is(text):
    with pytest.raises(RuntimeError, match=text), calling.as_ours("cuDevicePrimaryCtxRetain"):
        raise RuntimeError(text)


@pytest.mark.gpu
class TestOnAGpu:
    def test_graphs_are_the_same_without_loops(self, monkeypatch):
        data = np.arange(1024, dtype=np.float32)
        with demo_graph().instantiate(gd.cuda(0)) as exe:
            calls = exe.calls
        monkeypatch.setattr(loops, "compiled", lambda: None)
        with demo_graph().instantiate(gd.cuda(0)) as exe:
            assert exe.calls == calls
            exe["raw"][:] = data
            for gain in (2.0, 3.0):
                exe.update(gain=gain)
                exe.launch()
                exe.synchronize()
                np.testing.assert_array_equal(exe["out"], gain * data)

    def test_a_refused_node_is_named(self):
        g = gd.Graph("refused")
        x = g.device_array("x", 8, np.float32)
        g.kernel(kernels.add_to, grid=1, block=8, args=(x, 1.0, 8), name="good")
        bad = g.kernel(kernels.add_to, grid=1, block=8, args=(x, 1.0, 8), name="wrong")
        bad.block = (2048, 1, 1)  # past the checks: the driver itself is asked
        from graphdsl.plan import plan
        from graphdsl.run.graph_exec import GraphExec

        with pytest.raises(gd.DriverError) as caught:
            GraphExec(plan(g), gd.cuda(0), {})
        assert caught.value.node == "wrong"
        assert caught.value.code_name == "CUDA_ERROR_INVALID_VALUE"

    def test_no_context_is_left_current(self):
        from cuda.bindings import driver

        before = driver.cuCtxGetCurrent()[1]
        with demo_graph().instantiate(gd.cuda(0)) as exe:
            exe.launch()
            exe.update(gain=3.0)
            exe.synchronize()
        assert int(driver.cuCtxGetCurrent()[1]) == int(before)
