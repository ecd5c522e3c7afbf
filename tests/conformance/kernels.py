"""Small kernels that the cases share."""

from __future__ import annotations

from numba import cuda


@cuda.jit
def scale(x, y, gain, n):
    i = cuda.grid(1)
    if i < n:
        y[i] = gain * x[i]


@cuda.jit
def add_to(x, value, n):
    i = cuda.grid(1)
    if i < n:
        x[i] += value


@cuda.jit
def count_threads(counter):
    cuda.atomic.add(counter, 0, 1)


@cuda.jit
def reverse_block(x):
    shared = cuda.shared.array(64, "int32")
    i = cuda.threadIdx.x
    shared[i] = x[i]
    cuda.syncthreads()
    x[i] = shared[cuda.blockDim.x - 1 - i]


@cuda.jit
def sum_dynamic_shared(x, out):
    shared = cuda.shared.array(0, "float32")
    i = cuda.threadIdx.x
    shared[i] = x[i]
    cuda.syncthreads()
    if i == 0:
        total = shared[0]
        for k in range(1, cuda.blockDim.x):
            total += shared[k]
        out[0] = total


@cuda.jit
def transpose(x, y):
    i, j = cuda.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        y[j, i] = x[i, j]


@cuda.jit(device=True)
def square(value):
    return value * value


@cuda.jit
def squares(x, n):
    i = cuda.grid(1)
    if i < n:
        x[i] = square(x[i])


@cuda.jit
def conjugate(x, factor):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = factor * complex(x[i].real, -x[i].imag)


@cuda.jit
def weighted(pair, weights, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = weights[0] * pair[0][i] + weights[1] * pair[1][i]


@cuda.jit
def move_points(points, dx):
    i = cuda.grid(1)
    if i < points.size:
        points[i].x += dx


@cuda.jit
def store_flag(out, flag, tiny):
    if flag:
        out[0] = tiny
