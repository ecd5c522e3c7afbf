"""How much a thread may do, held to what the toolkit makes for each target."""

import math

import pytest
from numba import cuda, float32
from numba.cuda import types

from graphdsl import kernels
from graphdsl.bench.kernel import spin, step
from graphdsl.compile.effort import UNKNOWN, read_effort
from graphdsl.compile.numba import compile_kernel
from graphdsl.declare.kernel import as_kernel

FLOATS = types.float32[::1]
TYPES = (FLOATS, FLOATS, types.float32, types.int32)
TARGETS = ((7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0))


def scale(x, y, gain, n):
    i = cuda.grid(1)
    if i < n:
        y[i] = gain * x[i]


def root(x, y, gain, n):  # its slow ways are functions beside the kernel, which branch much
    i = cuda.grid(1)
    if i < n:
        y[i] = math.sqrt(x[i] / gain)


def refuse(x, y, gain, n):
    i = cuda.grid(1)
    if i > n:
        raise ValueError
    y[i] = x[i] // gain


def four(x, y, gain, n):  # unrolled
    i = cuda.grid(1)
    total = float32(0)
    for k in range(4):
        total += x[i + k]
    y[i] = total


def turn(x, y, gain, n):
    shared = cuda.shared.array(128, float32)
    at = cuda.threadIdx.x
    shared[at] = x[at]
    cuda.syncthreads()
    y[at] = shared[127 - at]


def stride(x, y, gain, n):
    for i in range(cuda.grid(1), n, cuda.gridsize(1)):
        y[i] = gain * x[i]


def wait(x, y, gain, n):  # read once: what is left is a branch to itself
    while x[0] == 0:
        pass
    y[0] = gain


def poll(x, y, gain, n):
    while cuda.atomic.add(x, 0, float32(0)) == 0:
        pass
    y[0] = gain


def power(x, y, gain, n):
    i = cuda.grid(1)
    y[i] = x[i] ** n


def sleep(x, y, gain, n):
    cuda.nanosleep(1_000_000)
    y[0] = gain


def effort(function, argtypes, target):
    return compile_kernel(as_kernel(function), argtypes, target).effort


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("function", [scale, root, refuse, four, turn])
def test_a_kernel_without_a_loop_ends_soon(function, target):
    found = effort(function, TYPES, target)
    assert not found.loops
    assert 10 < found.instructions < 300


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("function", [stride, wait, poll, power, sleep])
def test_a_loop_is_seen(function, target):
    assert effort(function, TYPES, target).loops


def test_kernels_of_the_package():
    assert not effort(step, (FLOATS, types.float32, types.int32), (9, 0)).loops
    assert effort(spin, (FLOATS, types.int32), (9, 0)).loops
    assert effort(kernels.moving_mean, (FLOATS, FLOATS, types.int32), (9, 0)).loops


def test_code_that_nobody_knows_may_loop():
    image = compile_kernel(as_kernel(scale), TYPES, (9, 0))
    assert read_effort(image.cubin[:100], image.entry, (9, 0)) == UNKNOWN
    assert read_effort(image.cubin, "another", (9, 0)) == UNKNOWN
