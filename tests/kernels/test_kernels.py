"""Each kernel against NumPy, as the only kernel of a graph; and what the compiler makes of it."""

import numpy as np
import pytest
from numba import float32, int16, int32, void

from graphdsl import kernels
from graphdsl.compile.numba import compile_kernel
from graphdsl.declare.kernel import as_kernel

GRIDS = [(1, 1), (1, 8), (3, 5), (9, 4)]  # too small for the arrays, uneven, and larger than needed
N = 33


def signal(dtype=np.float32, size=N, seed=0):
    return (100 * np.random.default_rng(seed).standard_normal(size)).astype(dtype)


@pytest.mark.parametrize(("grid", "block"), GRIDS)
@pytest.mark.parametrize(
    ("kernel", "function"),
    [
        (kernels.fill, lambda y, a: np.full_like(y, a)),
        (kernels.cast, lambda x, y: x.astype(y.dtype)),
        (kernels.scale, lambda x, y, a: a * x),
        (kernels.axpy, lambda x, y, a: y + a * x),
        (kernels.square, lambda x, y: x * x),
        (kernels.add, lambda x1, x2, y: x1 + x2),
        (kernels.subtract, lambda x1, x2, y: x1 - x2),
        (kernels.multiply, lambda x1, x2, y: x1 * x2),
        (kernels.silu_multiply, lambda x1, x2, y: x1 / (1 + np.exp(-x1.astype(np.float64))) * x2),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_elementwise(launch, kernel, function, grid, block):
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    args = [np.float32(2.5) if name == "a" else signal(seed=seed) for seed, name in enumerate(names)]
    expected = function(*args)
    launch(kernel, grid, block, *args)
    # A GPU multiplies and adds in one step, rounded once: axpy differs from NumPy in the last bit.
    np.testing.assert_allclose(args[names.index("y")], expected, rtol=1e-6, atol=1e-3)


def test_elementwise_in_place(launch):
    x = signal()
    expected = x - 2 * x
    launch(kernels.scale, 2, 8, x, x, np.float32(-1))
    np.testing.assert_array_equal(x, expected)


def test_cast_cuts_fractions_off_towards_zero(launch):
    y = np.zeros(4, np.int32)
    launch(kernels.cast, 1, 4, np.array([1.9, -1.9, 0.5, -0.5], np.float32), y)
    assert y.tolist() == [1, -1, 0, 0]


def padded_fir(x, taps):
    half = taps.size // 2
    padded = np.pad(x.astype(np.float64), (taps.size - 1 - half, half), mode="edge")
    return np.convolve(padded, taps.astype(np.float64), mode="valid")


@pytest.mark.parametrize(("grid", "block"), GRIDS)
@pytest.mark.parametrize("taps", [1, 2, 5, 8, 51])
def test_fir(launch, grid, block, taps):
    x, taps, y = signal(), signal(size=taps, seed=1), np.empty(N, np.float32)
    launch(kernels.fir, grid, block, x, taps, y)
    np.testing.assert_allclose(y, padded_fir(x, taps), rtol=1e-5, atol=1e-2)


def test_fir_of_integers_and_as_documented(launch):
    x, taps, y = signal(np.int16), np.array([0.25, 0.5, -1.0], np.float32), np.empty(N, np.float32)
    launch(kernels.fir, 2, 16, x, taps, y)
    documented = np.convolve(np.pad(x, taps.size // 2, mode="edge"), taps, mode="valid")
    np.testing.assert_allclose(y, documented, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize(("grid", "block"), GRIDS)
@pytest.mark.parametrize("width", [1, 2, 7, 10, 80])
def test_moving_mean(launch, grid, block, width):
    x, y = signal(), np.empty(N, np.float32)
    launch(kernels.moving_mean, grid, block, x, y, width)
    padded = np.pad(x, (width // 2, width - 1 - width // 2), mode="edge").astype(np.float64)
    expected = np.lib.stride_tricks.sliding_window_view(padded, width).mean(axis=1)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-3)


def test_filters_leave_a_constant_as_it_is(launch):
    x, y = np.full(N, 3, np.float32), np.empty(N, np.float32)
    launch(kernels.moving_mean, 1, 8, x, y, 6)
    np.testing.assert_array_equal(y, x)
    launch(kernels.fir, 1, 8, x, np.array([0.25, 0.25, 0.5], np.float32), y)
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize("size", [1, 6, N])
@pytest.mark.parametrize(("grid", "block"), [(1, 1), (1, 7), (1, 16), (4, 6), (5, 8)])
@pytest.mark.parametrize(("kernel", "function"), [(kernels.block_sum, np.sum), (kernels.block_max, np.max)])
def test_reductions_of_blocks_and_of_their_results(launch, kernel, function, size, grid, block):
    x = -1 - np.abs(signal(np.int32, size))  # negative, so that a maximum that starts at 0 shows
    partial, whole = np.empty(grid, np.int32), np.empty(1, np.int32)
    launch(kernel, grid, block, x, partial)
    for index in range(grid):
        strided = [x[i] for i in range(size) if i // block % grid == index]
        assert partial[index] == (sum(strided) if function is np.sum else max([x[0], *strided]))
    launch(kernel, 1, block, partial, whole)
    assert whole[0] == function(x)


SINGLE = {
    "fill": void(float32[::1], float32),
    "cast": void(int32[::1], float32[::1]),
    "scale": void(float32[::1], float32[::1], float32),
    "axpy": void(float32[::1], float32[::1], float32),
    "square": void(float32[::1], float32[::1]),
    "add": void(float32[::1], float32[::1], float32[::1]),
    "subtract": void(float32[::1], float32[::1], float32[::1]),
    "multiply": void(float32[::1], float32[::1], float32[::1]),
    "fir": void(int16[::1], float32[::1], float32[::1]),
    "moving_mean": void(float32[::1], float32[::1], int32),
    "block_sum": void(float32[::1], float32[::1]),
    "block_max": void(float32[::1], float32[::1]),
    "silu_multiply": void(float32[::1], float32[::1], float32[::1]),
    "rms_norm": void(float32[:, ::1], float32[::1], float32[:, ::1], float32),
    "softmax": void(float32[:, ::1], float32[:, ::1], float32),
    "argmax": void(float32[:, ::1], int32[::1]),
    "rotary_embedding": void(float32[:, :, ::1], float32[:, :, ::1], int32[::1], float32[:, :, ::1]),
}


@pytest.mark.parametrize("name", kernels.__all__)
def test_single_precision_operands_make_no_double_precision_code(name):
    image = compile_kernel(as_kernel(getattr(kernels, name)), SINGLE[name].args, (9, 0))
    assert ".entry" in image.ptx
    assert ".f64" not in image.ptx
    assert "call" not in image.ptx
