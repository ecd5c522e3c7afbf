"""The functions of graphdsl.device: what they become in PTX, what they take, and what they do in the emulator."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numba import cuda, float32
from numba.cuda import types

import graphdsl as gd
from graphdsl import device
from graphdsl.compile.fingerprint import fingerprint
from graphdsl.compile.image import KernelImage
from graphdsl.compile.numba import compile_kernel
from graphdsl.declare.kernel import as_kernel
from graphdsl.device import set_condition
from graphdsl.errors import CheckError, CompileError, MemoryFault

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


FLOATS, BYTES, HALVES, DOUBLES = types.float32[::1], types.uint8[::1], types.float16[::1], types.float64[::1]


def by_vectors(x, y, z):
    a, b, c, d = device.load4(x, 8)
    device.prefetch_l2(y, 4)
    device.grid_dependency_wait()
    e, f, g, h = device.load4_cg(y, 4)
    device.store4(z, 0, a + e, b + f, c + g, d + h)
    device.atomic_add4(z, 4, a, b, c, d)
    device.atomic_add(z, 1, a)


def test_vectors_are_one_instruction():
    image = compiled(by_vectors, FLOATS, FLOATS, FLOATS)
    found = re.findall(
        r"(?:ld|st|red|atom|prefetch)\.global\S*|griddepcontrol\.wait", image.ptx[image.ptx.index("{") :]
    )
    assert [re.sub(r"\.[fbu]32", ".32", each) for each in found] == [
        *("ld.global.v4.32", "prefetch.global.L2", "griddepcontrol.wait", "ld.global.cg.v4.32", "st.global.v4.32"),
        *("red.global.v4.32.add", "red.global.add.32"),
    ]


def multiplies(a, c):
    x, y, z, w = device.mma_f16(a[0], a[1], a[2], a[3], a[4], a[5], c[0], c[1], c[2], c[3])
    device.store4(c, 0, x, y, z, w)


def test_tensor_cores_multiply():
    assert "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" in compiled(multiplies, types.uint32[::1], FLOATS).ptx


@pytest.mark.parametrize(
    ("call", "kinds", "why"),
    [
        (lambda x, i: device.load4(x, i), (DOUBLES, types.int64), "load4 loads elements of 1, 2 or 4 bytes; .*float64"),
        (
            lambda x, i: device.load4(x, i),
            (types.float32[:, ::1], types.int64),
            "load4 takes an array of one dimension",
        ),
        (lambda x, i: device.load4_cg(x, i), (types.float32[:], types.int64), "load4_cg takes an array.* contiguous"),
        (lambda x, i: device.load4_cg(x, i), (types.bool_[::1], types.int64), "load4_cg loads elements of 1, 2 or 4"),
        (lambda x, i: device.load4(x, i), (FLOATS, types.float32), "load4 takes an integer as index; float32 given"),
        (lambda x, i: device.load_word(x, i), (DOUBLES, types.int64), "load_word loads elements of 1, 2 or 4 bytes"),
        (
            lambda x, i: device.prefetch_l2(x, i),
            (FLOATS, types.float32),
            "prefetch_l2 takes an integer as index; float32",
        ),
        (
            lambda x, i: device.prefetch_l2(x[i], i),
            (FLOATS, types.int64),
            "prefetch_l2 takes an array of one dimension",
        ),
        (lambda x, i: device.load_word(i, x), (FLOATS, types.int64), "load_word takes an array of one dimension"),
        (
            lambda x, i: device.store4(x, i, 1, 1, 1, 1),
            (BYTES, types.int64),
            "store4 stores elements of 4 bytes; .*uint8",
        ),
        (lambda x, i: device.store4(x, 0.5, 1, 1, 1, i), (FLOATS, types.int64), "store4 takes an integer as index"),
        (lambda x, i: device.atomic_add(x, i, 1), (DOUBLES, types.int64), "atomic_add takes an array of float32"),
        (
            lambda x, i: device.atomic_add4(x, i, 1, 1, 1, 1),
            (HALVES, types.int64),
            "atomic_add4 takes an array of float32",
        ),
        (lambda x, i: device.as_float32(x[i]), (FLOATS, types.int64), "as_float32 takes an integer; float32 given"),
        (lambda x, i: device.as_word(x[i]), (DOUBLES, types.int64), "as_word takes a float32 or a float16; float64"),
        (lambda x, i: device.as_half2(x[i]), (FLOATS, types.int64), "as_half2 takes an integer; float32 given"),
    ],
)
def test_what_they_do_not_take_is_said(call, kinds, why):
    called = cuda.jit(call, device=True)

    def kernel(x, i):
        called(x, i)

    with pytest.raises(CompileError, match=why):
        compiled(kernel, *kinds)


def test_memory_that_may_not_be_written_is_not():
    def kernel(x):
        device.store4(x, 0, 1, 1, 1, 1)

    frozen = types.Array(types.float32, 1, "C", readonly=True)
    with pytest.raises(CompileError, match="that can be written"):
        compiled(kernel, frozen)


def misplaced(x, y):
    a, b, c, d = device.load4(x, 2)
    device.store4(y, 0, a, b, c, d)


def too_far(x, y):
    device.store4(y, 8, x[0], x[0], x[0], x[0])


def from_the_end(x, y):
    device.atomic_add(y, -1, x[0])


def into_shared(x, y):
    tile = cuda.shared.array(8, float32)  # at a multiple of 4 bytes
    device.store4(tile, 4, x[0], x[0], x[0], x[0])


def fetched_too_far(x, y):
    device.prefetch_l2(y, 8)


def unwritten(x, y):
    y[0] = device.load4_cg(y, 4)[3]


@pytest.mark.parametrize(
    ("kernel", "kind", "argument", "code"),
    [
        (misplaced, "access at an address that is not aligned to its size", "x", 716),
        (into_shared, "access at an address that is not aligned to its size", "shared array", 716),
        (too_far, "index outside of an array", "y", 700),
        (fetched_too_far, "index outside of an array", "y", 700),
        (from_the_end, "index outside of an array", "y", 700),
        (unwritten, "read of never-written bytes", "y", 700),
    ],
)
def test_the_emulator_checks_vectors_as_a_gpu_and_closer(kernel, kind, argument, code):
    g = gd.Graph("demo")
    x, y = g.device_array("x", 8, np.float32), g.device_array("y", 8, np.float32)
    g.memset(x, 1.0) >> g.kernel(kernel, grid=1, block=1, args=(x, y), name="k")
    with g.instantiate(gd.emulator()) as exe:
        exe.launch()
        with pytest.raises(MemoryFault) as caught:
            exe.synchronize()
    assert (caught.value.kind, caught.value.argument, caught.value.code) == (kind, argument, code)


def test_outside_of_kernels_they_have_no_meaning():
    with pytest.raises(NotImplementedError, match="grid_dependency_wait"):
        device.grid_dependency_wait()


@pytest.mark.parametrize("function", [waits, triggers, sets, sets_by_name, by_vectors, multiplies])
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


def test_the_fingerprint_tells_the_products_of_matrices_apart():
    def made(multiply: Any) -> str | None:
        def kernel(x):
            multiply(x[0], x[0], x[0], x[0], x[0], x[0], 0, 0, 0, 0)

        return fingerprint(as_kernel(kernel), (INTS,), (9, 0))

    assert None is not made(device.mma_f16) != made(device.mma_bf16) is not None


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
