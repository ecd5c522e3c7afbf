"""Kernels that are not Python, in execs: how they are loaded and kept, and what an emulator without a stand-in says."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from numba import cuda

import graphdsl as gd
from graphdsl.compile.sources import machine_code

CODE = """
extern "C" __global__ void touch(void* x, int n) { extern __shared__ char s[]; s[n] = 1; ((char*)x)[0] = s[n]; }
extern "C" __global__ void other(int n) {}
"""


def touch(x, n):
    x[0] = n


def graph(emulate=touch, **options):
    g = gd.Graph("touch")
    x = g.host_array("x", 4, np.float32)
    g.kernel(gd.cuda_source(CODE, "touch", emulate=emulate), grid=1, block=1, args=(x, 3), name="run", **options)
    return g


def test_without_a_stand_in_the_emulator_refuses_by_name():
    g = graph(emulate=None)
    assert g.check().ok
    assert any("cuLibraryLoadData" in str(call) for call in g.trace())
    device = gd.emulator()
    with pytest.raises(gd.DriverError, match=r"node 'run'.*emulate=") as refused:
        g.instantiate(device)
    assert (refused.value.node, refused.value.code) == ("run", 801)
    assert refused.value.location == g.node("run").location
    assert not any(device.live.values())


def test_a_loaded_kernel_is_refused_and_built_only_where_it_is_not_run(monkeypatch):
    from types import SimpleNamespace

    class Kernel:
        """Has what a kernel of cuda.core has, and says what the machine code of `touch` does."""

        __module__ = "cuda.core._module"
        handle = 0x1234
        arguments_info = (SimpleNamespace(offset=0, size=8), SimpleNamespace(offset=8, size=4))
        attributes = SimpleNamespace(
            num_regs=32, shared_size_bytes=0, max_threads_per_block=1024, binary_version=90,
            max_dynamic_shared_size_bytes=100_000,
        )  # fmt: skip

    g = gd.Graph("loaded")
    x = g.host_array("x", 4, np.float32)
    g.kernel(Kernel(), grid=1, block=1, args=(x, 3), name="run", shared_bytes=60_000)
    calls = list(map(str, g.trace()))
    assert not any("cuLibrary" in call for call in calls)
    assert any("cuKernelGetFunction(kernel)" in call for call in calls)
    with pytest.raises(gd.DriverError, match=r"node 'run'.*graphdsl\.cubin") as refused:
        g.instantiate(gd.emulator())
    assert (refused.value.call, refused.value.code) == ("cuKernelGetFunction", 801)


def test_equal_machine_code_is_loaded_once_and_unloaded_with_the_last_kernel():
    device = gd.emulator()
    cubin = machine_code(gd.cuda_source(CODE, "touch"), device.limits.compute_capability).build.cubin
    g = graph()
    g.kernel(gd.cubin(cubin, "other", emulate=lambda n: None), grid=1, block=1, args=3)
    one, two = g.instantiate(device), graph().instantiate(device)
    assert device.live["libraries"] == 1
    one.close()
    del one, g
    gc.collect()
    assert device.live["libraries"] == 1
    two.launch()
    two.synchronize()
    assert two["x"][0] == 3
    two.close()
    del two
    gc.collect()
    assert device.live["libraries"] == 0


def test_many_execs_leave_nothing_behind():
    device = gd.emulator()
    for value in range(20):
        g = gd.Graph("loop")
        x = g.host_array("x", 4, np.float32)
        kernel = gd.cuda_source(CODE, "touch", emulate=lambda x, n: None)
        g.kernel(kernel, grid=1, block=1, args=(x, value))
        with g.instantiate(device) as exe:
            exe.launch()
            exe.synchronize()
    del g, exe, kernel, x
    gc.collect()
    assert not any(device.live.values())


def test_images_of_one_kernel_never_lower_its_shared_memory():
    """Two element types of one ``void*`` are two images of one kernel, whose limit the driver keeps once."""
    device = gd.emulator()
    told = []
    original = device.kernel_set_max_shared_bytes
    device.kernel_set_max_shared_bytes = lambda kernel, nbytes: told.append(nbytes) or original(kernel, nbytes)
    kernel = gd.cuda_source(CODE, "touch", emulate=touch)
    g = gd.Graph("limits")
    for name, dtype, nbytes in (("a", np.float32, 100_000), ("b", np.int32, 60_000), ("c", np.int16, 120_000)):
        array = g.host_array(name, 4, dtype)
        g.kernel(kernel, grid=1, block=1, args=(array, 1), shared_bytes=nbytes, name=f"run_{name}")
    with g.instantiate(device) as exe:
        assert told == [100_000, 100_000, 120_000]
        exe.node("run_a").update(shared_bytes=110_000)
        assert told[-1] == 120_000
        exe.launch()
        exe.synchronize()
        assert [exe[name][0] for name in "abc"] == [1, 1, 1]


def test_whole_updates_know_a_kernel_by_its_contents():
    with graph().instantiate(gd.emulator()) as exe:
        assert exe.update_from(graph()).nodes == ()


def test_atomics_reach_through_addresses():
    code = 'extern "C" __global__ void count(int* x) { atomicAdd(x + 1, 2); }'

    def count(x):
        cuda.atomic.add(x, 1, 2)

    g = gd.Graph("atomics")
    x = g.host_array("x", 2, np.int32)
    g.kernel(gd.cuda_source(code, "count", emulate=count), grid=3, block=4, args=x)
    with g.instantiate(gd.emulator()) as exe:
        exe["x"][:] = 0
        exe.launch()
        exe.synchronize()
        assert exe["x"].tolist() == [0, 24]
