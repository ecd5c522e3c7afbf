"""Root mean square norm: by itself, and as the first step of kernels that multiply what it gives.

``rms_norm(x) = x * gain / sqrt(mean(x * x) + eps)``, over the last axis.
"""

import functools

from numba import cuda, float32
from numba.cuda import libdevice

from graphdsl import device

from .threads import WARP, block, block_sum, device_function, thread
from .weights import place


@cuda.jit(fastmath=True)
def rms_norm(x, gain, y, eps):
    """``y = x * gain / sqrt(mean(x * x) + eps)``, row by row; a block takes a row at a time.

    Parameters
    ----------
    x : array of float32, (rows, hidden), read
    gain : array of float32, (hidden,), read
    y : array of float32, (rows, hidden), written
        May be ``x``.
    eps : float32

    Notes
    -----
    Blocks of whole warps, in one dimension.
    """
    partial = cuda.shared.array(32, float32, alignment=16)
    for row in range(block(), x.shape[0], cuda.gridDim.x):
        squares = float32(0)
        for i in range(thread(), x.shape[1], cuda.blockDim.x):
            squares += x[row, i] * x[row, i]
        scale = libdevice.rsqrtf(block_sum(squares, partial, cuda.blockDim.x >> 5) / float32(x.shape[1]) + eps)
        for i in range(thread(), x.shape[1], cuda.blockDim.x):
            y[row, i] = x[row, i] * scale * gain[i]
        cuda.syncthreads()  # before the partial sums of the next row


@functools.cache
def norm_into_shared(hidden, threads, eps):
    """Device functions that norm a vector into shared memory, where all threads of a block multiply with it.

    Parameters
    ----------
    hidden : int
        Length of the vector, a multiple of 4.
    threads : int
        In the block.
    eps : float

    Returns
    -------
    count : int
        Numbers that each thread keeps of the vector: in steps of ``4 * threads``, four that lie together.
    load : device function
        ``load(array, mine)`` loads the thread's part of an array. For the gain, before the vector is there.
    norm : device function
        ``norm(x, gain, mine, shared, partial)`` loads the thread's part of ``x`` into ``mine``, past the L1 cache, puts
        ``x * gain`` into ``shared`` as `graphdsl.kernels.weights.place` says, and gives what it must be multiplied
        with: ``1 / sqrt(mean(x * x) + eps)``. All threads can read it then. ``partial`` has an element for each warp.
    """
    quarters = hidden // 4
    steps = -(-quarters // threads)
    warps = threads // WARP

    @device_function
    def load(array, mine):
        for step in range(steps):
            i = step * threads + thread()
            if i < quarters:
                mine[4 * step], mine[4 * step + 1], mine[4 * step + 2], mine[4 * step + 3] = device.load4(array, 4 * i)

    @device_function
    def norm(x, gain, mine, shared, partial):
        squares = float32(0)
        for step in range(steps):
            i = step * threads + thread()
            if i < quarters:
                a, b, c, d = device.load4_cg(x, 4 * i)
                mine[4 * step], mine[4 * step + 1], mine[4 * step + 2], mine[4 * step + 3] = a, b, c, d
                squares += a * a + b * b + c * c + d * d
                e, f, g, h = gain[4 * step], gain[4 * step + 1], gain[4 * step + 2], gain[4 * step + 3]
                device.store4(shared, place(4 * i), a * e, b * f, c * g, d * h)
        return libdevice.rsqrtf(block_sum(squares, partial, warps) * float32(1 / hidden) + float32(eps))

    return 4 * steps, load, norm
