"""Device functions in a module of their own, reached in every way that kernels reach them."""

from __future__ import annotations

import math

import numpy as np
from numba import cuda
from numba import cuda as renamed
from numba.cuda import blockDim, blockIdx, syncthreads, threadIdx
from numba.cuda import grid as global_index

WEIGHTS = np.array([1, 10, 100], np.uint8)


@cuda.jit(device=True)
def square(x):
    return x * x


@cuda.jit(device=True)
def fourth(x):
    return square(square(x))


def plain(x):
    return fourth(x) + 1


@cuda.jit(device=True)
def factorial(n):
    return 1 if n <= 1 else n * factorial(n - 1)


@cuda.jit(device=True)
def index_by_name():
    return blockIdx.x * blockDim.x + threadIdx.x


@cuda.jit(device=True)
def index_by_grid():
    return global_index(1)


@cuda.jit(device=True)
def index_by_renamed():
    return renamed.grid(1)


@cuda.jit(device=True)
def reverse_in_block(tile, value):
    i = threadIdx.x
    tile[i] = value
    syncthreads()
    return tile[blockDim.x - 1 - i]


@cuda.jit(device=True)
def weight(i):
    return WEIGHTS[i]


@cuda.jit(device=True)
def root(x):
    return math.sqrt(x)
