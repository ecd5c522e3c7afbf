"""Kernels in the emulator: what they compute, and how they fail."""

from __future__ import annotations

import math
import threading
from collections import namedtuple
from math import sqrt
from typing import Any

import numba
import numpy as np
import pytest
from numba import cuda, float32, int32, types
from numba.cuda import libdevice
from numba.cuda.libdevice import sqrtf
from numba.cuda.random import init_xoroshiro128p_states_cpu, xoroshiro128p_dtype, xoroshiro128p_uniform_float32

from graphdsl.compile.image import ArrayValue
from graphdsl.drivers.emulator import Emulator
from graphdsl.drivers.emulator.problems import NEVER_WRITTEN, OUTSIDE, OUTSIDE_ARRAY, RELEASED
from graphdsl.errors import DriverError, MemoryFault
from tests.drivers.emulator import device_functions
from tests.drivers.emulator.conftest import Bench, Fresh, image_of
from tests.drivers.emulator.device_functions import plain, square

F4 = types.Array(types.float32, 1, "C")
TABLE = np.array([3, 1, 2], np.int32)


def sqrtf_by_name(x):
    return sqrtf(x)


def through_module(x):
    return libdevice.sqrtf(x)


def scale(x, y, gain, n):
    i = cuda.grid(1)
    if i < n:
        y[i] = gain * x[i]


def test_a_kernel_runs_from_its_packed_bytes(bench: Bench) -> None:
    x = np.arange(100, dtype=np.float32)
    y = Fresh(100, np.float32)
    bench.run(scale, 4, 32, x, y, np.float32(3), np.int32(100))
    assert np.array_equal(y.result, 3 * x)


def test_a_kernel_that_the_decorator_made(bench: Bench) -> None:
    y = Fresh(8, np.float32)
    bench.run(cuda.jit(scale).py_func, 1, 8, np.ones(8, np.float32), y, np.float32(2), np.int32(8))
    assert y.result.tolist() == [2] * 8


def test_indices_in_three_dimensions(bench: Bench) -> None:
    def kernel(out):
        x, y, z = cuda.grid(3)
        sx, sy, _sz = cuda.gridsize(3)
        out[z, y, x] = x + sx * (y + sy * z)
        if cuda.threadIdx.z == 0 and cuda.blockIdx.x == 1:
            out[z, y, x] += 1000 * (cuda.blockDim.y + 10 * cuda.gridDim.x)

    out = Fresh((2, 6, 4), np.int64)
    bench.run(kernel, (2, 3), (2, 2, 2), out)
    wanted = np.arange(48).reshape(2, 6, 4)
    wanted[0, :, 2:] += 1000 * 22
    assert np.array_equal(out.result, wanted)


def test_two_dimensional_arrays_and_slices(bench: Bench) -> None:
    def row_sums(a, out):
        i = cuda.grid(1)
        row = a[i]
        total = 0.0
        for value in row[1:-1]:
            total += value
        out[i] = total + row[-1] + a[i, 0]

    a = np.arange(12, dtype=np.float64).reshape(3, 4)
    out = Fresh(3, np.float64)
    bench.run(row_sums, 1, 3, a, out)
    assert np.array_equal(out.result, a.sum(1))


def test_strided_and_fortran_arrays(bench: Bench) -> None:
    def copy(a, out):
        i, j = cuda.grid(2)
        out[i, j] = a[i, j]

    base = np.arange(24, dtype=np.float32)
    address = bench.upload(base)
    out = bench.device.mem_alloc(24)
    strided = np.lib.stride_tricks.as_strided(base[2:], (2, 3), (32, 8))
    kinds = (types.Array(types.float32, 2, "A"), types.Array(types.float32, 2, "F"))
    values = (ArrayValue(address + 8, (2, 3), (32, 8)), ArrayValue(out, (2, 3), (4, 8)))
    params = bench.kernel(bench.load(copy, *kinds), kinds, values, block=(2, 3, 1))
    graph, _ = bench.chain((bench.device.graph_add_kernel_node, params))
    bench.launch(graph)
    assert np.array_equal(bench.download(out, (3, 2), np.float32).T, strided)


def test_scalars_of_every_kind(bench: Bench) -> None:
    def kernel(out, a, b, c, d, e, f):
        out[0] = a
        out[1] = b
        out[2] = c
        out[3] = d
        out[4] = e.real
        out[5] = e.imag
        out[6] = f

    out = Fresh(7, np.float64)
    scalars = (np.int8(-3), np.uint64(2**53), np.float32(0.5), np.bool_(True), np.complex64(1 + 2j), np.float16(0.25))
    bench.run(kernel, 1, 1, out, *scalars)
    assert out.result.tolist() == [-3, 2**53, 0.5, 1, 1, 2, 0.25]


def test_integer_arithmetic_is_that_of_numba(bench: Bench) -> None:
    def kernel(pixels, n, out):
        out[0] = pixels[0] + pixels[1]
        out[1] = pixels[1] - 101
        out[2] = pixels[0] << 8
        out[3] = n * n

    out = Fresh(4, np.int64)
    bench.run(kernel, 1, 1, np.array([200, 100], np.uint8), np.int32(100_000), out)
    assert out.result.tolist() == [300, -1, 51200, 10**10]


def test_single_precision_stays_single(bench: Bench) -> None:
    def kernel(x, out):
        out[0] = math.sqrt(x[0])
        out[1] = x[0] * x[0]

    out = Fresh(2, np.float64)
    third = np.float32(1 / 3)
    bench.run(kernel, 1, 1, np.array([third]), out)
    assert out.result.tolist() == [float(np.sqrt(third)), float(third * third)]


def test_math_gives_what_a_device_gives_where_python_raises(bench: Bench) -> None:
    def kernel(x, out):
        out[0] = math.log(x[0])
        out[1] = sqrt(-1.0)
        out[2] = math.exp(1e4)
        out[3] = x[1] / x[0]
        out[4] = math.pow(2, -1)

    out = Fresh(5, np.float64)
    bench.run(kernel, 1, 1, np.array([0.0, 1.0]), out)
    assert np.array_equal(out.result, [-np.inf, np.nan, np.inf, np.inf, 0.5], equal_nan=True)


def test_tuples_of_arrays(bench: Bench) -> None:
    def kernel(pair, out):
        i = cuda.grid(1)
        out[i] = pair[0][i] + pair.second[i]

    pair_type = namedtuple("pair_type", "first second")
    a, b = bench.upload(np.arange(4, dtype=np.float32)), bench.upload(np.ones(4, np.float32))
    out = bench.device.mem_alloc(16)
    arrays = [ArrayValue(address, (4,), (4,)) for address in (a, b, out)]
    kinds = (types.NamedUniTuple(F4, 2, pair_type), F4)
    params = bench.kernel(bench.load(kernel, *kinds), kinds, (pair_type(*arrays[:2]), arrays[2]), block=(4, 1, 1))
    bench.launch(bench.chain((bench.device.graph_add_kernel_node, params))[0])
    assert bench.download(out, 4, np.float32).tolist() == [1, 2, 3, 4]


def test_records(bench: Bench) -> None:
    dtype = np.dtype([("x", np.float32), ("n", np.int32), ("v", np.float64, (2,))], align=True)

    def kernel(points, one):
        i = cuda.grid(1)
        points[i].x = 2 * points[i]["x"] + one.x
        point = points[i]
        point.n += i
        point.v[1] = one.v[0]

    points = np.zeros(3, dtype)
    points["x"] = [1, 2, 3]
    one = np.zeros(1, dtype)
    one["x"], one["v"] = 10, 7
    address, of_one = bench.upload(points), bench.upload(one)
    record = numba.from_dtype(dtype)
    kinds = (types.Array(record, 1, "C"), record)
    values = (ArrayValue(address, (3,), (dtype.itemsize,)), ArrayValue(of_one, (), ()))
    params = bench.kernel(bench.load(kernel, *kinds), kinds, values, block=(3, 1, 1))
    bench.launch(bench.chain((bench.device.graph_add_kernel_node, params))[0])
    found = bench.download(address, 3, dtype)
    assert found["x"].tolist() == [12, 14, 16]
    assert found["n"].tolist() == [0, 1, 2]
    assert found["v"].tolist() == [[0, 7]] * 3


def test_atomics(bench: Bench) -> None:
    def kernel(values, bins, most, grid, old):
        i = cuda.grid(1)
        old[i] = cuda.atomic.add(bins, values[i], 1)
        cuda.atomic.max(most, 0, values[i])
        cuda.atomic.add(grid, (0, values[i] % 2), 0.5)
        cuda.atomic.cas(most, 1, 0, i + 1)

    values = np.array([1, 3, 1, 1, 2, 3], np.int32)
    bins, most, grid, old = (
        np.zeros(4, np.int32),
        np.zeros(2, np.int32),
        np.zeros((1, 2), np.float32),
        Fresh(6, np.int32),
    )
    bench.run(kernel, 2, 3, values, bins, most, grid, old)
    assert bins.tolist() == [0, 3, 1, 2]
    assert most.tolist() == [3, 1]
    assert grid.tolist() == [[0.5, 2.5]]
    assert old.result.tolist() == [0, 0, 1, 2, 0, 1]


def test_shared_memory_and_barriers(bench: Bench) -> None:
    def block_sums(x, out):
        tile = cuda.shared.array(64, float32)
        t = cuda.threadIdx.x
        tile[t] = x[cuda.grid(1)]
        cuda.syncthreads()
        step = 32
        while step > 0:
            if t < step:
                tile[t] += tile[t + step]
            cuda.syncthreads()
            step //= 2
        if t == 0:
            out[cuda.blockIdx.x] = tile[0]

    x = np.arange(192, dtype=np.float32)
    out = Fresh(3, np.float32)
    bench.run(block_sums, 3, 64, x, out)
    assert np.array_equal(out.result, x.reshape(3, 64).sum(1))


def test_shared_arrays_of_one_line_and_of_device_functions_are_their_own(bench: Bench) -> None:
    def kernel(out):
        a, b = cuda.shared.array(4, int32), cuda.shared.array((2, 2), int32)
        i = cuda.threadIdx.x
        a[i] = i
        b[i // 2, i % 2] = 10 * i
        out[i] = device_functions.reverse_in_block(a, a[i]) + b[i // 2, i % 2]

    out = Fresh(4, np.int32)
    bench.run(kernel, 1, 4, out)
    assert out.result.tolist() == [3, 12, 21, 30]


def test_dynamic_shared_memory_is_one_block_of_bytes(bench: Bench) -> None:
    def kernel(out):
        floats = cuda.shared.array(0, float32)
        words = cuda.shared.array(0, int32)
        i = cuda.threadIdx.x
        floats[i] = 1.0
        cuda.syncthreads()
        out[i] = words[floats.size - 1 - i]

    out = Fresh(4, np.int32)
    bench.run(kernel, 1, 4, out, shared_bytes=16)
    assert out.result.tolist() == [0x3F800000] * 4


def test_shared_memory_does_not_outlive_its_block(bench: Bench) -> None:
    def kernel(out):
        tile = cuda.shared.array(1, int32)
        if cuda.blockIdx.x == 0:
            tile[0] = 1
        out[cuda.blockIdx.x] = tile[0]

    with pytest.raises(MemoryFault, match=r"shared array\[0\]") as caught:
        bench.run(kernel, 2, 1, Fresh(2, np.int32))
    assert attributes(caught.value, "kind", "block") == (NEVER_WRITTEN, (1, 0, 0))


def test_local_memory_belongs_to_a_thread(bench: Bench) -> None:
    def kernel(out):
        mine = cuda.local.array(2, int32)
        mine[0] = cuda.grid(1)
        out[cuda.grid(1)] = mine[0]
        if cuda.grid(1) == 2:
            out[0] = mine[1]

    with pytest.raises(MemoryFault, match=r"local array\[1\]") as caught:
        bench.run(kernel, 1, 3, Fresh(3, np.int32))
    assert attributes(caught.value, "thread") == ((2, 0, 0),)


def test_threads_that_have_ended_count_as_arrived(bench: Bench) -> None:
    def kernel(out):
        i = cuda.threadIdx.x
        if i % 2:
            return
        cuda.syncthreads()
        out[i] = cuda.syncthreads_count(i > 1)

    out = np.zeros(8, np.int32)
    bench.run(kernel, 1, 8, out)
    assert out.tolist() == [3, 0, 3, 0, 3, 0, 3, 0]


def test_barriers_that_count(bench: Bench) -> None:
    def kernel(out):
        i = cuda.threadIdx.x
        out[i, 0] = cuda.syncthreads_count(i < 5)
        out[i, 1] = cuda.syncthreads_and(i < 5)
        out[i, 2] = cuda.syncthreads_or(i < 5)

    out = Fresh((8, 3), np.int32)
    bench.run(kernel, 1, 8, out)
    assert out.result.tolist() == [[5, 0, 1]] * 8


def test_barriers_that_are_never_reached_do_not_hang(bench: Bench) -> None:
    def kernel(out):
        if cuda.threadIdx.x < 16:
            cuda.syncthreads()
        else:
            cuda.syncwarp()
        out[0] = 1

    with pytest.raises(DriverError, match="32 threads wait for others that never come") as caught:
        bench.run(kernel, 1, 32, Fresh(1, np.int32))
    assert caught.value.code == 719


def test_warp_functions(bench: Bench) -> None:
    def kernel(out):
        i = cuda.threadIdx.x
        total = i
        for delta in (16, 8, 4, 2, 1):
            total += cuda.shfl_down_sync(0xFFFFFFFF, total, delta)
        out[i, 0] = cuda.shfl_sync(0xFFFFFFFF, total, 0)
        out[i, 1] = cuda.shfl_up_sync(0xFFFFFFFF, i, 1)
        out[i, 2] = cuda.shfl_xor_sync(0xFFFFFFFF, i, 1)
        out[i, 3] = cuda.ballot_sync(0xFFFFFFFF, i % 32 < 4)
        out[i, 4] = cuda.any_sync(0xFFFFFFFF, i == 33) + 10 * cuda.all_sync(0xFFFFFFFF, i < 40)
        out[i, 5] = cuda.match_any_sync(0xFFFFFFFF, i % 32 // 16)
        out[i, 6] = cuda.popc(cuda.lanemask_lt()) + cuda.laneid

    out = Fresh((64, 7), np.int64)
    bench.run(kernel, 1, 64, out)
    found = out.result
    assert found[:, 0].tolist() == [sum(range(32))] * 32 + [sum(range(32, 64))] * 32
    assert found[:3, 1].tolist() == [0, 0, 1]
    assert found[32:34, 1].tolist() == [32, 32]
    assert found[:, 2].tolist() == [i ^ 1 for i in range(64)]
    assert set(found[:, 3]) == {15}
    assert found[[0, 32], 4].tolist() == [10, 1]
    assert found[[0, 16], 5].tolist() == [0xFFFF, 0xFFFF0000]
    assert found[:, 6].tolist() == [2 * (i % 32) for i in range(64)]


def test_a_shuffle_from_a_lane_that_takes_no_part(bench: Bench) -> None:
    def kernel(out):
        out[cuda.threadIdx.x] = cuda.shfl_down_sync(0xFFFFFFFF, 1, 16)

    with pytest.raises(DriverError, match="lane 20, which takes no part"):
        bench.run(kernel, 1, 20, Fresh(20, np.int32))


def test_warps_go_on_without_each_other(bench: Bench) -> None:
    def kernel(out):
        i = cuda.threadIdx.x
        if i < 32:
            for _ in range(3):
                cuda.syncwarp()
        cuda.syncthreads()
        out[i] = cuda.activemask()

    out = Fresh(40, np.int64)
    bench.run(kernel, 1, 40, out)
    assert out.result[0] == 0xFFFFFFFF


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("cuda.popc(-1)", 32),
        ("cuda.popc(2**40)", 1),
        ("cuda.clz(1)", 31),
        ("cuda.clz(0)", 32),
        ("cuda.ffs(8)", 4),
        ("cuda.ffs(0)", 0),
        ("cuda.brev(1)", 2**31),
        ("cuda.cbrt(-8.0)", -2),
        ("cuda.fma(2.0, 3.0, 4.0)", 10),
        ("cuda.selp(True, 1, 2)", 1),
        ("cuda.warpsize", 32),
        ("cuda.fp16.hfloor(np.float16(1.5))", 1),
        ("float32(0.1)", np.float32(0.1)),
        ("cuda.ldcs(TABLE, 0)", 3),
        ("cuda.const.array_like(TABLE)[2]", 2),
    ],
)
def test_functions_of_the_device(bench: Bench, expression: str, wanted: float) -> None:
    namespace: dict[str, Any] = {"cuda": cuda, "np": np, "float32": float32, "TABLE": TABLE, "__name__": __name__}
    exec(f"def kernel(out):\n    out[0] = {expression}", namespace)
    out = Fresh(1, np.float64)
    bench.run(namespace["kernel"], 1, 1, out)
    assert out.result[0] == wanted


def test_device_functions_from_everywhere(bench: Bench) -> None:
    @cuda.jit(device=True)
    def local_twice(x):
        return 2 * x

    @numba.njit
    def of_the_host(x):
        return x + 0.5

    offset = 100

    def kernel(out):
        out[0] = square(3)
        out[1] = plain(2)
        out[2] = device_functions.fourth(2)
        out[3] = device_functions.factorial(5)
        out[4] = local_twice(square(2)) + offset
        out[5] = of_the_host(1)
        out[6] = device_functions.root(16.0)
        out[7] = device_functions.weight(1) + device_functions.weight(2)
        out[8] = [local_twice(x) for x in (1, 2)][1]

    out = Fresh(9, np.float64)
    bench.run(kernel, 1, 1, out)
    assert out.result.tolist() == [9, 17, 16, 120, 108, 1.5, 4, 110, 4]


def test_names_imported_from_numba_cuda(bench: Bench) -> None:
    def kernel(out):
        i = device_functions.index_by_name()
        out[i] = i + device_functions.index_by_grid() + device_functions.index_by_renamed() + numba.cuda.grid(1)

    out = Fresh(8, np.int32)
    bench.run(kernel, 2, 4, out)
    assert out.result.tolist() == [4 * i for i in range(8)]


def test_the_users_functions_and_modules_stay_as_they_are(bench: Bench) -> None:
    before = dict(vars(device_functions))
    test_device_functions_from_everywhere(bench)
    assert {name: id(value) for name, value in vars(device_functions).items()} == {
        name: id(value) for name, value in before.items()
    }
    assert square.py_func.__globals__["cuda"] is cuda


def test_global_arrays_are_constants(bench: Bench) -> None:
    table = np.array([1.0, 2.0])

    def kernel(out):
        out[0] = table[1]

    image = image_of(kernel, types.Array(types.float64, 1, "C"))
    library = bench.device.library_load_data(image)
    table[1] = 99
    out = bench.device.mem_alloc(8)
    kinds, values = image.layout.types, (ArrayValue(out, (1,), (8,)),)
    params = bench.kernel(bench.device.library_get_kernel(library, image), kinds, values)
    bench.launch(bench.chain((bench.device.graph_add_kernel_node, params))[0])
    assert bench.download(out, 1, np.float64)[0] == 2


def test_random_numbers_of_numba(bench: Bench) -> None:
    def kernel(states, out):
        i = cuda.grid(1)
        out[i] = xoroshiro128p_uniform_float32(states, i)

    states = np.zeros(4, xoroshiro128p_dtype)
    init_xoroshiro128p_states_cpu(states, 1, 0)
    out = Fresh(4, np.float32)
    bench.run(kernel, 1, 4, states, out)
    assert ((out.result >= 0) & (out.result < 1)).all()
    assert len(set(out.result.tolist())) == 4


def test_an_intrinsic_says_what_it_means_in_the_emulator(bench: Bench) -> None:
    class Intrinsic:
        @staticmethod
        def __graphdsl_simulate__(api, value):
            return value + api.blockIdx.x

    intrinsic = Intrinsic()

    def kernel(out):
        out[cuda.blockIdx.x] = intrinsic(10)

    out = Fresh(2, np.int32)
    bench.run(kernel, 2, 1, out)
    assert out.result.tolist() == [10, 11]


@pytest.mark.parametrize("function", [cuda.libdevice.rsqrtf, sqrtf_by_name, through_module])
def test_libdevice_is_found_however_it_is_named(bench: Bench, function: Any) -> None:
    called = cuda.jit(device=True)(function) if function in (sqrtf_by_name, through_module) else function

    def kernel(out):
        out[0] = called(np.float32(4))

    out = Fresh(1, np.float32)
    bench.run(kernel, 1, 1, out)
    assert out.result[0] == (0.5 if function is cuda.libdevice.rsqrtf else 2)


def test_what_has_no_meaning_in_the_emulator(bench: Bench) -> None:
    def kernel(out):
        out[0] = cuda.libdevice.normcdff(2.0)

    with pytest.raises(DriverError, match=r"numba\.cuda\.libdevice\.normcdff has no meaning in the emulator"):
        bench.run(kernel, 1, 1, Fresh(1, np.float32))

    from numba.cuda import laneid

    def other(out):
        out[0] = laneid

    with pytest.raises(DriverError, match=r"Write cuda\.laneid") as caught:
        bench.run(other, 1, 1, Fresh(1, np.float32))
    assert (caught.value.call, caught.value.code) == ("cuLibraryLoadData", 801)


def test_blocks_cannot_wait_for_each_other(bench: Bench) -> None:
    def kernel(out):
        cuda.cg.this_grid().sync()
        out[cuda.grid(1)] = 1

    for grid, block in ((1, 4), (2, 2)):
        with pytest.raises(DriverError, match="cooperative launch"):
            bench.run(kernel, grid, block, Fresh(4, np.int32))


class TestCooperativeLaunches:
    """All blocks run at once, and wait for each other."""

    def test_every_block_sees_what_all_wrote_before(self, bench: Bench) -> None:
        def kernel(x, y):
            i = cuda.grid(1)
            for step in range(3):
                x[i] = y[y.size - 1 - i] + step
                cuda.cg.this_grid().sync()
                y[i] = x[x.size - 1 - i]
                cuda.cg.this_grid().sync()

        x, y = Fresh(24, np.int32), np.arange(24, dtype=np.int32)
        expected = y.copy()
        for step in range(3):
            expected = (expected[::-1] + step)[::-1]
        bench.run(kernel, 4, 6, x, y, cooperative=True)
        np.testing.assert_array_equal(y, expected)

    def test_blocks_keep_barriers_and_shared_memory_of_their_own(self, bench: Bench) -> None:
        def kernel(x, out):
            fixed, dynamic = cuda.shared.array(4, np.int32), cuda.shared.array(0, np.int32)
            i, t = cuda.grid(1), cuda.threadIdx.x
            fixed[t] = x[i]
            dynamic[t] = -x[i]
            cuda.cg.this_grid().sync()
            out[i] = fixed[3 - t] + 100 * dynamic[(t + 1) % 4]
            if cuda.blockIdx.x == 1:
                for _ in range(3):
                    cuda.syncthreads()
            out[i] += cuda.syncthreads_count(t < cuda.blockIdx.x)
            out[i] += 1000 * cuda.shfl_sync(0xF, cuda.blockIdx.x, 0)
            cuda.cg.this_grid().sync()

        x, out = np.arange(12, dtype=np.int32), Fresh(12, np.int32)
        bench.run(kernel, 3, 4, x, out, shared_bytes=16, cooperative=True)
        expected = []
        for block in range(3):
            part = x[4 * block : 4 * block + 4]
            expected.extend(part[::-1] - 100 * np.roll(part, -1) + block + 1000 * block)
        np.testing.assert_array_equal(out.result, expected)

    def test_grids_of_three_dimensions(self, bench: Bench) -> None:
        def kernel(out, total):
            x, y, z = cuda.blockIdx.x, cuda.blockIdx.y, cuda.blockIdx.z
            out[z, y, x] = x + 10 * y + 100 * z
            cuda.cg.this_grid().sync()
            if x == 0 and y == 0 and z == 0:
                total[0] = out[1, 2, 1]

        out, total = Fresh((2, 3, 2), np.int32), np.zeros(1, np.int32)
        bench.run(kernel, (2, 3, 2), 1, out, total, cooperative=True)
        assert total[0] == 121

    def test_a_thread_that_ended_is_missed(self, bench: Bench) -> None:
        def kernel(out):
            i = cuda.grid(1)
            if i >= out.size:
                return
            out[i] = 1
            cuda.cg.this_grid().sync()
            out[i] = 2

        bench.run(kernel, 2, 4, Fresh(8, np.int32), cooperative=True)
        with pytest.raises(DriverError, match="waits for the whole grid, and 1 threads of it have ended") as caught:
            bench.run(kernel, 2, 4, Fresh(7, np.int32), cooperative=True)
        assert caught.value.code == 719

    def test_threads_that_wait_elsewhere_are_waited_for_in_vain(self, bench: Bench) -> None:
        def kernel(out):
            if cuda.threadIdx.x == 0:
                cuda.cg.this_grid().sync()
            else:
                cuda.syncthreads()
            out[cuda.grid(1)] = 1

        with pytest.raises(DriverError, match="wait for others that never come"):
            bench.run(kernel, 2, 2, Fresh(4, np.int32), cooperative=True)

    def test_a_failure_names_thread_and_block(self, bench: Bench) -> None:
        def kernel(out):
            cuda.cg.this_grid().sync()
            if cuda.blockIdx.x == 2:
                raise ValueError("two")
            cuda.cg.this_grid().sync()

        with pytest.raises(DriverError, match="ValueError: two") as caught:
            bench.run(kernel, 4, 2, Fresh(4, np.int32), cooperative=True)
        assert attributes(caught.value, "thread", "block") == ((0, 0, 0), (2, 0, 0))

    def test_a_grid_larger_than_the_device_is_refused(self, bench: Bench) -> None:
        def kernel(out):
            pass

        with pytest.raises(DriverError) as caught:
            bench.run(kernel, 132 * 2 + 1, 1024, Fresh(1, np.int32), cooperative=True)
        assert (caught.value.call, caught.value.code) == ("cuGraphKernelNodeSetAttribute", 720)


# Failures


def attributes(error: BaseException, *names: str) -> tuple[Any, ...]:
    return tuple(getattr(error, name) for name in names)


def test_an_exception_carries_the_place_in_the_kernel(bench: Bench) -> None:
    def kernel(out):
        i = cuda.grid(1)
        if i == 5:
            raise ValueError("five")
        out[i] = i

    with pytest.raises(DriverError, match="ValueError: five") as caught:
        bench.run(kernel, 2, 4, Fresh(8, np.int32))
    error = caught.value
    assert (error.call, error.code, error.code_name) == ("cuStreamSynchronize", 719, "CUDA_ERROR_LAUNCH_FAILED")
    assert attributes(error, "thread", "block") == ((1, 0, 0), (1, 0, 0))
    line = kernel.__code__.co_firstlineno + 3
    assert attributes(error, "source") == ((__file__, line),)
    assert error.node_handle == error.node_of_test  # type: ignore[attr-defined]
    assert isinstance(error.__cause__, ValueError)
    assert "thread (1, 0, 0) of block (1, 0, 0) of kernel 'kernel'" in str(error)


@pytest.mark.parametrize("what", ["raise", "assert", "division"])
def test_what_a_gpu_would_not_report_is_said(bench: Bench, what: str) -> None:
    def raises(out):
        raise ValueError

    def asserts(out):
        assert cuda.threadIdx.x > 3

    def divides(out):
        for i in range(2):
            out[0] = 1 // i

    function = {"raise": raises, "assert": asserts, "division": divides}[what]
    with pytest.raises(DriverError, match="A GPU does not report what a kernel raises") as caught:
        bench.run(function, 1, 1, Fresh(1, np.int32))
    assert caught.value.code == 719


def test_what_only_the_emulator_refuses_is_not_said_to_be_silent_on_a_gpu(bench: Bench) -> None:
    def kernel(out):
        out[0] = cuda.shfl_sync(1, 1, 7)

    with pytest.raises(DriverError, match="takes no part in it") as caught:
        bench.run(kernel, 1, 1, Fresh(1, np.int32))
    assert caught.value.remedy is None


def test_an_index_outside_of_an_array(bench: Bench) -> None:
    def kernel(x, out):
        out[cuda.grid(1)] = x[cuda.grid(1)]

    with pytest.raises(MemoryFault, match=r"x\[4\]") as caught:
        bench.run(kernel, 1, 8, np.zeros(4, np.float32), Fresh(8, np.float32))
    error = caught.value
    assert (error.code, error.code_name) == (700, "CUDA_ERROR_ILLEGAL_ADDRESS")
    assert attributes(error, "kind", "argument", "index", "thread") == (OUTSIDE_ARRAY, "x", 4, (4, 0, 0))
    assert error.node_handle == error.node_of_test  # type: ignore[attr-defined]


def test_a_fault_in_a_device_function_names_its_line(bench: Bench) -> None:
    def kernel(out):
        out[0] = device_functions.weight(3)

    with pytest.raises(MemoryFault, match=r"constant array\[3\]") as caught:
        bench.run(kernel, 1, 1, Fresh(1, np.int32))
    line = device_functions.weight.py_func.__code__.co_firstlineno + 2
    assert attributes(caught.value, "source") == ((device_functions.__file__, line),)


def test_a_read_of_what_no_thread_wrote(bench: Bench) -> None:
    def kernel(out):
        i = cuda.grid(1)
        if i < 3:
            out[i] = i
        else:
            out[0] += out[i]

    with pytest.raises(MemoryFault) as caught:
        bench.run(kernel, 1, 8, Fresh(8, np.float32))
    found = attributes(caught.value, "kind", "argument", "index", "offset", "thread")
    assert found == (NEVER_WRITTEN, "out", 3, 12, (3, 0, 0))


@pytest.mark.parametrize("state", ["freed", "too small", "pageable", "nobody's"])
def test_arguments_that_lead_nowhere(bench: Bench, state: str) -> None:
    host = np.zeros(8, np.float32)
    address = {"pageable": host.ctypes.data, "nobody's": 2**61}.get(state) or bench.upload(host[:7])
    if state == "freed":
        bench.device.mem_free(address)
    kinds = (F4, F4, types.float32, types.int32)
    array = ArrayValue(address, (8,), (4,))
    params = bench.kernel(bench.load(scale, *kinds), kinds, (array, array, 1.0, 8), block=(8, 1, 1))
    bench.launch(bench.chain((bench.device.graph_add_kernel_node, params))[0])
    with pytest.raises(MemoryFault) as caught:
        bench.device.stream_synchronize(bench.stream)
    assert caught.value.code == 700
    assert attributes(caught.value, "kind") == (RELEASED if state == "freed" else OUTSIDE,)


def test_parameters_that_contradict_each_other(bench: Bench) -> None:
    kinds = (F4, F4, types.float32, types.int32)
    array = ArrayValue(bench.upload(np.zeros(8, np.float32)), (8,), (4,))
    params = bench.kernel(bench.load(scale, *kinds), kinds, (array, array, 1.0, 8))
    leaves = bench.kept[-3]
    leaves[2][0] = 7  # the size of the first array
    bench.launch(bench.chain((bench.device.graph_add_kernel_node, params))[0])
    with pytest.raises(DriverError, match="argument 'x'") as caught:
        bench.device.stream_synchronize(bench.stream)
    assert caught.value.code == 719


def test_pinned_memory_is_reached_by_kernels(bench: Bench) -> None:
    pinned = bench.device.mem_host_alloc(32)
    floats = pinned.view(np.float32)
    floats[:] = 4
    kinds = (F4, F4, types.float32, types.int32)
    array = ArrayValue(pinned.ctypes.data, (8,), (4,))
    params = bench.kernel(bench.load(scale, *kinds), kinds, (array, array, 2.0, 8), block=(8, 1, 1))
    bench.launch(bench.chain((bench.device.graph_add_kernel_node, params))[0])
    assert floats.tolist() == [8] * 8


def test_kernels_run_in_several_threads_at_once() -> None:
    """Emulators of their own, the same functions: one barrier kernel, one without."""

    def kernel(out):
        i = cuda.threadIdx.x
        tile = cuda.shared.array(8, int32)
        out[i] = device_functions.reverse_in_block(tile, i) + cuda.blockIdx.x

    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            bench = Bench(Emulator())
            for _ in range(3):
                out, y = Fresh(8, np.int32), Fresh(64, np.float32)
                bench.run(kernel, 1, 8, out)
                assert out.result.tolist() == list(range(7, -1, -1))
                bench.run(scale, 2, 32, np.full(64, number, np.float32), y, np.float32(2), np.int32(64))
                assert y.result.tolist() == [2 * number] * 64
        except BaseException as problem:
            failures.append(problem)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
