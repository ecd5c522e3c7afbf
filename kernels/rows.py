"""Kernels of the rows of a matrix: a block takes a row at a time, any grid gives the same result.

Blocks are of whole warps, in one dimension.
"""

import math

from numba import cuda, float32, int64

from .choices import block_max_key, choice_key, chosen_index
from .threads import block, block_max, block_sum, thread


@cuda.jit(fastmath=True)
def softmax(x, y, temperature):
    """``y = exp((x - max(x)) / temperature)``, divided by its sum, row by row.

    Parameters
    ----------
    x : array of float32, (rows, columns), read
    y : array of float32, (rows, columns), written
        May be ``x``.
    temperature : float32
        More than 0; 1 for softmax itself.
    """
    partial = cuda.shared.array(64, float32, alignment=16)
    warps = cuda.blockDim.x >> 5
    for row in range(block(), x.shape[0], cuda.gridDim.x):
        largest = x[row, 0]
        for i in range(thread(), x.shape[1], cuda.blockDim.x):
            largest = max(largest, x[row, i])
        largest = block_max(largest, partial[:32], warps)
        total = float32(0)
        for i in range(thread(), x.shape[1], cuda.blockDim.x):
            power = math.exp((x[row, i] - largest) / temperature)
            y[row, i] = power
            total += power
        total = block_sum(total, partial[32:], warps)
        for i in range(thread(), x.shape[1], cuda.blockDim.x):
            y[row, i] /= total
        cuda.syncthreads()  # before the partial results of the next row


@cuda.jit(fastmath=True)
def argmax(x, index):
    """Index of the largest element of each row, the first of those that are equal.

    Parameters
    ----------
    x : array of float32, (rows, columns), read
        Of fewer than 2**31 columns.
    index : array of int32, (rows,), written
    """
    keys = cuda.shared.array(32, int64)
    for row in range(block(), x.shape[0], cuda.gridDim.x):
        key = int64(0)
        for i in range(thread(), x.shape[1], cuda.blockDim.x):
            key = max(key, choice_key(x[row, i], i))
        key = block_max_key(key, keys, cuda.blockDim.x >> 5)
        if thread() == 0:
            index[row] = chosen_index(key)
        cuda.syncthreads()  # before the keys of the next row


@cuda.jit(fastmath=True)
def rotary_embedding(x, table, positions, y):
    """Rotary embedding: elements 2 i and 2 i + 1 of each head turn by the angle of pair i at the row's position.

    Parameters
    ----------
    x : array of float32, (rows, heads, head_size), read
    table : array of float32, (positions, 2, head_size / 2), read
        `graphdsl.kernels.packing.rotary_table`.
    positions : array of int32, (rows,), read
    y : array of float32, (rows, heads, head_size), written
        May be ``x``.
    """
    half = x.shape[2] // 2
    for row in range(block(), x.shape[0], cuda.gridDim.x):
        p = positions[row]
        for i in range(thread(), x.shape[1] * half, cuda.blockDim.x):
            head = i // half
            pair = i % half
            even = x[row, head, 2 * pair]
            odd = x[row, head, 2 * pair + 1]
            cosine = table[p, 0, pair]
            sine = table[p, 1, pair]
            y[row, head, 2 * pair] = even * cosine - odd * sine
            y[row, head, 2 * pair + 1] = odd * cosine + even * sine
