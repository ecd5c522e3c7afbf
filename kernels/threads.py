"""Device functions that the kernels share: where a thread is, and sums, maxima and the largest key over threads.

This module must not hold kernels.
"""

import functools

from numba import cuda, float32

device_function = functools.partial(cuda.jit, device=True, forceinline=True, fastmath=True)
"""Decorator of the device functions here: inlined, with the arithmetic of kernels that have ``fastmath``."""

ALL_LANES = 0xFFFFFFFF
WARP = 32


@device_function
def thread():
    """``threadIdx.x``; the mask says that it is not negative, so that no index is counted from the end of an array."""
    return cuda.threadIdx.x & 1023


@device_function
def block():
    """``blockIdx.x``, of fewer than 2**24 blocks; masked as `thread` is."""
    return cuda.blockIdx.x & 0xFFFFFF


@device_function
def lanes_sum(value, lanes):
    """Sum over neighbouring lanes, a power of two of them; each gets it. All lanes of the warp take part."""
    step = lanes >> 1
    while step > 0:
        value += cuda.shfl_xor_sync(ALL_LANES, value, step)
        step >>= 1
    return value


@device_function
def warp_sum(value):
    """Sum over the warp; each lane gets it."""
    return lanes_sum(value, WARP)


@device_function
def warp_max(value):
    """Largest value of the warp; each lane gets it."""
    for step in (16, 8, 4, 2, 1):
        value = max(value, cuda.shfl_xor_sync(ALL_LANES, value, step))
    return value


@device_function
def block_max(value, partial, warps):
    """Largest value of the block, as `block_sum` gives the sum."""
    value = warp_max(value)
    if thread() & 31 == 0:
        partial[thread() >> 5] = value
    cuda.syncthreads()
    lane = thread() & 31
    return warp_max(partial[lane] if lane < warps else value)


@device_function
def block_sum(value, partial, warps):
    """Sum over the block; each thread gets it, behind a barrier.

    Parameters
    ----------
    value : float32
    partial : shared array of float32, of at least ``warps`` elements
        Not used by anybody since the last barrier.
    warps : int
        In the block.
    """
    value = warp_sum(value)
    if thread() & 31 == 0:
        partial[thread() >> 5] = value
    cuda.syncthreads()
    if warps > 8:  # fewer are read faster than they are exchanged
        lane = thread() & 31
        return warp_sum(partial[lane] if lane < warps else float32(0))
    total = float32(0)
    for warp in range(warps):
        total += partial[warp]
    return total
