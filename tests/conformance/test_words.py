"""The functions of graphdsl.device that load, store and reinterpret words: the same on the emulator and on the GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import cuda, float32

import graphdsl as gd
from graphdsl import device as on_device
from graphdsl.drivers.base import Driver

RNG = np.random.default_rng(7)
WORDS = RNG.integers(0, 2**32, 256, dtype=np.uint32)
SPECIAL = np.array([0, 1, 0x7C00, 0xFC00, 0x7E00, 0x8000, 0x03FF, 0x3C00], np.uint16)  # float16: subnormals, infinities


def ran(device: Driver, kernel: Any, threads: int, *arrays: Any) -> list[np.ndarray[Any, Any]]:
    """What arrays hold after one block of a kernel."""
    g = gd.Graph("words")
    hosts = [g.host_array(f"h{i}", array.shape, array.dtype) for i, array in enumerate(arrays)]
    operands = [g.device_array(f"d{i}", array.shape, array.dtype) for i, array in enumerate(arrays)]
    with g.sequence():
        for host, operand in zip(hosts, operands, strict=True):
            g.memcpy(operand, host)
        g.kernel(kernel, grid=1, block=threads, args=operands)
        for host, operand in zip(hosts, operands, strict=True):
            g.memcpy(host, operand)
    with g.instantiate(device) as exe:
        for host, array in zip(hosts, arrays, strict=True):
            exe[host.name][...] = array
        exe.launch()
        exe.synchronize()
        return [exe[host.name].copy() for host in hosts]


def moved(x, y):
    i = 4 * cuda.threadIdx.x
    a, b, c, d = on_device.load4(x, i)
    on_device.store4(y, i, b, a, d, c)


def moved_past_l1(x, y):
    i = 4 * cuda.threadIdx.x
    on_device.prefetch_l2(x, i)
    a, b, c, d = on_device.load4_cg(x, i)
    on_device.store4(y, i, b, a, d, c)


@pytest.mark.parametrize("kernel", [moved, moved_past_l1])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint32])
def test_four_elements(device, kernel, dtype):
    x = (WORDS & 0x3FFFFFFF).view(dtype)
    _, y = ran(device, kernel, 64, x, np.zeros(256, dtype))
    np.testing.assert_array_equal(y, x.reshape(-1, 2)[:, ::-1].reshape(-1))


@pytest.mark.parametrize("past_l1", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.float16, np.uint16])
def test_the_words_of_smaller_elements(device, dtype, past_l1):
    load = on_device.load4_cg if past_l1 else on_device.load4
    count = 16 // np.dtype(dtype).itemsize

    def kernel(x, y):
        i = cuda.threadIdx.x
        a, b, c, d = load(x, count * i)
        on_device.store4(y, 4 * i, a, b, c, d)

    x = WORDS.view(dtype)
    _, y = ran(device, kernel, 64, x, np.zeros(256, np.uint32))
    np.testing.assert_array_equal(y, WORDS)


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.int32])
def test_one_word(device, dtype):
    count = 4 // np.dtype(dtype).itemsize

    def kernel(x, y):
        i = cuda.threadIdx.x
        y[i] = on_device.load_word(x, count * i)

    _, y = ran(device, kernel, 256, WORDS.view(dtype), np.zeros(256, np.uint32))
    np.testing.assert_array_equal(y, WORDS)


def through_shared_memory(x, y):
    tile = cuda.shared.array(64, float32, alignment=16)
    i = 4 * cuda.threadIdx.x
    a, b, c, d = on_device.load4(x, i)
    on_device.store4(tile, i, a, b, c, d)
    cuda.syncthreads()
    a, b, c, d = on_device.load4(tile, 60 - i)
    on_device.store4(y, i, a, b, c, d)


def test_shared_memory(device):
    x = RNG.standard_normal(64).astype(np.float32)
    _, y = ran(device, through_shared_memory, 16, x, np.zeros(64, np.float32))
    np.testing.assert_array_equal(y, x.reshape(-1, 4)[::-1].reshape(-1))


def summed(x, total):
    i = 4 * cuda.threadIdx.x
    a, b, c, d = on_device.load4(x, i)
    on_device.atomic_add4(total, 0, a, b, c, d)
    on_device.atomic_add(total, 5, a)


def test_atomic_sums(device):
    x = RNG.integers(-9, 9, 256).astype(np.float32)
    _, total = ran(device, summed, 64, x, np.ones(8, np.float32))
    rows = x.reshape(-1, 4)
    assert total.tolist() == [*(1 + rows.sum(axis=0)), 1, 1 + rows[:, 0].sum(), 1, 1]


def reinterpreted(x, h, numbers, words, halves, half_words):
    i = cuda.threadIdx.x
    numbers[i] = on_device.as_float32(x[i])
    words[i] = on_device.as_word(numbers[i])
    low, high = on_device.as_half2(x[i])
    halves[2 * i] = low
    halves[2 * i + 1] = high
    half_words[i] = on_device.as_word(h[i])


def test_bits_in_other_types(device):
    x = WORDS.copy()
    x[:4] = SPECIAL.view(np.uint32)
    h = np.resize(SPECIAL, 256).view(np.float16)
    given = (
        x,
        h,
        np.zeros(256, np.float32),
        np.zeros(256, np.uint32),
        np.zeros(512, np.float16),
        np.zeros(256, np.uint32),
    )
    _, _, numbers, words, halves, half_words = ran(device, reinterpreted, 256, *given)
    assert numbers.view(np.uint32).tolist() == words.tolist() == x.tolist()
    assert halves.view(np.uint16).tolist() == x.view(np.uint16).tolist()
    assert half_words.tolist() == h.view(np.uint16).tolist()


def packed(x, halves, brains):
    i = cuda.threadIdx.x
    halves[i] = on_device.pack_half2(x[2 * i], x[2 * i + 1])
    brains[i] = on_device.pack_bfloat2(x[2 * i], x[2 * i + 1])


def test_numbers_rounded_into_words(device):
    x = RNG.standard_normal(256).astype(np.float32) * 10.0 ** RNG.integers(-9, 6, 256)
    x = x.astype(np.float32)
    x[:5] = np.inf, -np.inf, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-11  # halves, to even
    _, halves, brains = ran(device, packed, 128, x, *(np.zeros(128, np.uint32) for _ in range(2)))
    with np.errstate(over="ignore"):
        assert halves.view(np.uint16).tolist() == x.astype(np.float16).view(np.uint16).tolist()
    found = (brains.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    assert (found[:4] == [np.inf, -np.inf, 1, 1 + 2**-6]).all()
    assert (np.abs(found[2:] - x[2:]) <= np.abs(x[2:]) * 2.0**-8).all()


def fragments(a: Any, b: Any, kind: Any) -> tuple[Any, Any]:
    """Those of mma_f16 for each lane, from matrices of words of 16 bits, as its documentation says."""
    made_a, made_b = np.zeros((32, 4, 2), kind), np.zeros((32, 2, 2), kind)
    for lane in range(32):
        g, i = lane // 4, 2 * (lane % 4)
        made_a[lane] = a[g, i : i + 2], a[g + 8, i : i + 2], a[g, i + 8 : i + 10], a[g + 8, i + 8 : i + 10]
        made_b[lane] = b[i : i + 2, g], b[i + 8 : i + 10, g]
    return made_a.view(np.uint32).reshape(-1), made_b.view(np.uint32).reshape(-1)


def multiplied_halves(a, b, c):
    i = cuda.threadIdx.x
    a0, a1, a2, a3 = on_device.load4(a, 4 * i)
    c0, c1, c2, c3 = on_device.load4(c, 4 * i)
    c0, c1, c2, c3 = on_device.mma_f16(a0, a1, a2, a3, b[2 * i], b[2 * i + 1], c0, c1, c2, c3)
    on_device.store4(c, 4 * i, c0, c1, c2, c3)


def multiplied_brain_floats(a, b, c):
    i = cuda.threadIdx.x
    a0, a1, a2, a3 = on_device.load4(a, 4 * i)
    c0, c1, c2, c3 = on_device.load4(c, 4 * i)
    c0, c1, c2, c3 = on_device.mma_bf16(a0, a1, a2, a3, b[2 * i], b[2 * i + 1], c0, c1, c2, c3)
    on_device.store4(c, 4 * i, c0, c1, c2, c3)


@pytest.mark.parametrize("kernel", [multiplied_halves, multiplied_brain_floats])
def test_products_of_matrices(device, kernel):
    a, b, c = (RNG.standard_normal(shape) for shape in ((16, 16), (16, 8), (16, 8)))
    a[0, 0] = 2.0**-24 * 7  # no normal number of float16
    c = c.astype(np.float32)
    if kernel is multiplied_halves:
        a, b = a.astype(np.float16), b.astype(np.float16)
        given = fragments(a, b, np.float16)
    else:
        words = [(each.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) for each in (a, b)]
        given = fragments(*words, np.uint16)
        a, b = ((each.astype(np.uint32) << 16).view(np.float32) for each in words)
    lanes = np.arange(32)
    rows, columns = lanes // 4, 2 * (lanes % 4)

    def of_lanes(matrix: Any) -> Any:
        return np.stack([matrix[rows + place // 2 * 8, columns + place % 2] for place in range(4)], axis=1)

    _, _, found = ran(device, kernel, 32, *given, of_lanes(c).astype(np.float32).reshape(-1))
    expected = a.astype(np.float64) @ b.astype(np.float64) + c
    np.testing.assert_allclose(found.reshape(32, 4), of_lanes(expected), rtol=1e-5, atol=1e-5)


# Numbers below are those that a GPU gives as well.


def of_libdevice(x, y):
    i = cuda.threadIdx.x
    y[0, i] = cuda.libdevice.exp2f(x[i])
    y[1, i] = cuda.libdevice.rsqrtf(x[i])
    y[2, i] = cuda.libdevice.int_as_float(cuda.libdevice.byte_perm(0x11223344, 0x55667788, 0x7632))
    y[3, i] = cuda.libdevice.fast_expf(x[i])
    y[4, i] = cuda.libdevice.float2int_rn(x[i])
    y[5, i] = cuda.libdevice.saturatef(x[i])
    y[6, i] = cuda.libdevice.umulhi(0x80000000, 6)
    y[7, i] = cuda.libdevice.fmaf_rn(x[i], x[i], float32(1))


def test_libdevice(device):
    x = np.array([0.25, 1, 2.5, 3.5], np.float32)
    _, y = ran(device, of_libdevice, 4, x, np.zeros((8, 4), np.float32))
    word = np.array([0x55661122], np.uint32).view(np.float32)[0]
    expected = [2**x, 1 / np.sqrt(x), [word] * 4, np.exp(x), np.rint(x), np.minimum(x, 1), [3] * 4, x * x + 1]
    np.testing.assert_allclose(y, expected, rtol=1e-5)
