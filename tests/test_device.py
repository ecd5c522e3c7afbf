"""The functions of graphdsl.device: what they become in PTX, what they take, and what they do in the emulator."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numba.cuda import types

import graphdsl as gd
from graphdsl import device
from graphdsl.compile.fingerprint import fingerprint
from graphdsl.compile.image import KernelImage
from graphdsl.compile.numba import compile_kernel
from graphdsl.declare.kernel import as_kernel
from graphdsl.device import set_condition
from graphdsl.errors import CheckError, CompileError

INTS = types.int32[::1]


def compiled(function: Any, *kinds: Any, target: tuple[int, int] = (9, 0)) -> KernelImage:
    return compile_kernel(as_kernel(function), kinds, target)


def statements(image: KernelImage) -> list[str]:
    """Loads from and stores to memory, calls, and what was written as it stands, in order."""
    wanted = r"ld\.global|st\.global|griddepcontrol\.\w+|\bcudaGraphSetConditional(?=,)"
    return re.findall(wanted, image.ptx[image.ptx.index("{") :])


def waits(x, y):
    y[0] = x[0]
    device.grid_dependency_wait()
    y[1] = x[0]


def triggers(x, y):
    y[0] = x[0]
    gd.device.launch_dependents()
    y[0] = x[0]


def sets(handle, x):
    gd.device.set_condition(handle, x[0] > 3)


def sets_by_name(handle, x):
    set_condition(value=x[0], handle=handle)


def test_no_load_moves_above_a_wait_and_none_is_spared_behind_it():
    assert statements(compiled(waits, INTS, INTS)) == [
        *("ld.global", "st.global"),
        "griddepcontrol.wait",
        *("ld.global", "st.global"),
    ]


def test_no_store_moves_behind_a_trigger():
    assert statements(compiled(triggers, INTS, INTS)) == [
        *("ld.global", "st.global"),
        "griddepcontrol.launch_dependents",
        *("ld.global", "st.global"),
    ]


@pytest.mark.parametrize("function", [sets, sets_by_name])
@pytest.mark.parametrize("target", [(7, 5), (9, 0), (12, 0)])
def test_a_condition_is_set_by_the_function_of_the_driver(function, target):
    image = compiled(function, types.uint64, INTS, target=target)
    assert statements(image) == ["ld.global", "cudaGraphSetConditional"]
    # As nvcc declares it: no value is returned, and the cubin leaves the function to the driver.
    assert re.search(
        r"\.extern \.func cudaGraphSetConditional\s*\(\s*\.param \.b64 \w+,\s*\.param \.b32 \w+", image.ptx
    )
    assert b"\0cudaGraphSetConditional\0" in image.cubin


@pytest.mark.parametrize(
    ("kinds", "why"),
    [((types.int64, INTS), r"handle .* is uint64.*int64 given"), ((types.uint64, types.float32[::1]), "integer or a")],
)
def test_a_condition_takes_a_handle_and_a_number(kinds, why):
    def kernel(handle, x):
        device.set_condition(handle, x[0])

    with pytest.raises(CompileError, match=why) as caught:
        compiled(kernel, *kinds)
    assert "device.set_condition(handle, x[0])" in str(caught.value)


@pytest.mark.parametrize("function", [waits, triggers])
def test_what_devices_before_hopper_lack_is_said_of_the_node(function):
    g = gd.Graph("demo")
    x, y = g.device_array("x", 2, np.int32), g.device_array("y", 2, np.int32)
    g.kernel(function, grid=1, block=1, args=(x, y), name="early")
    assert not [found for found in g.check(target="sm_90") if found.severity == "error"]
    (found,) = [found for found in g.check(target="sm_89") if found.severity == "error"]
    assert (found.code, found.node, found.field, found.value) == ("GD205", "early", "target", "sm_89")
    assert "compute capability 9.0" in found.rule
    with pytest.raises(CheckError, match="early"):
        g.instantiate(gd.emulator(target="sm_80"))


def test_outside_of_kernels_they_have_no_meaning():
    with pytest.raises(NotImplementedError, match="grid_dependency_wait"):
        device.grid_dependency_wait()


@pytest.mark.parametrize("function", [waits, triggers, sets, sets_by_name])
def test_kernels_that_call_them_are_cached_by_content(function):
    kinds = (types.uint64, INTS)
    found = fingerprint(as_kernel(function), kinds, (9, 0))
    assert found is not None
    assert found == fingerprint(as_kernel(function), kinds, (9, 0))


def test_the_fingerprint_follows_the_function_that_is_called():
    def made(called: Any) -> str | None:
        def kernel(x):
            called()

        return fingerprint(as_kernel(kernel), (INTS,), (9, 0))

    assert None not in (made(device.launch_dependents), made(device.grid_dependency_wait))
    assert made(device.launch_dependents) != made(device.grid_dependency_wait)


def test_the_package_finds_them_late():
    code = (
        "import sys, graphdsl as gd; assert 'graphdsl.device' not in sys.modules; assert 'numba' not in sys.modules;"
        "assert 'device' in dir(gd); print(gd.device.__all__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(device.__all__)


def test_a_kernel_finds_them_through_a_package_that_nobody_asked_before():
    code = """
import numpy as np
import graphdsl as gd

def kernel(x):
    gd.device.grid_dependency_wait()
    x[0] = 7

g = gd.Graph("demo")
out = g.host_array("out", 1, np.int32)
g.kernel(kernel, grid=1, block=1, args=out)
with g.instantiate(gd.emulator()) as exe:
    exe.launch()
    exe.synchronize()
    print(exe["out"][0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "7"
