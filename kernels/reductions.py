"""Reductions that give the same result on every run: one partial result a block, in a fixed order and without atomics.

With one block the partial result is the whole one. Large arrays take two nodes: the first with a grid that fills the
device, the second with one block over the partial results of the first.
"""

from numba import cuda


@cuda.jit(device=True)
def _plus(a, b):
    return a + b


@cuda.jit(device=True)
def _larger(a, b):
    return max(a, b)


@cuda.jit(device=True)
def _fold(tile, mine, combine):
    """Combine the values of all threads of the block, each of which brings ``mine``; thread 0 gets the result."""
    thread = cuda.threadIdx.x
    threads = cuda.blockDim.x
    tile[thread] = mine
    cuda.syncthreads()
    while threads > 1:
        half = (threads + 1) // 2
        if thread + half < threads:
            tile[thread] = combine(tile[thread], tile[thread + half])
        cuda.syncthreads()
        threads = half
    return tile[0]


@cuda.jit
def block_sum(x, partial):
    """Sum of what each block strides over; sums are made in the dtype of ``partial``.

    Parameters
    ----------
    x : array of shape (n,), read
    partial : array of shape (blocks in the grid,), written
        With one block, the sum of ``x``.

    Notes
    -----
    Any block of up to 1024 threads, in one dimension.
    """
    tile = cuda.shared.array(1024, partial.dtype)
    mine = partial.dtype.type(0)
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        mine += x[i]
    total = _fold(tile, mine, _plus)
    if cuda.threadIdx.x == 0:
        partial[cuda.blockIdx.x] = total


@cuda.jit
def block_max(x, partial):
    """Largest of ``x[0]`` and what each block strides over.

    Parameters
    ----------
    x : array of shape (n,), read
        n >= 1; no element is a NaN.
    partial : array of shape (blocks in the grid,), written
        With one block, the largest element of ``x``.

    Notes
    -----
    Any block of up to 1024 threads, in one dimension.
    """
    tile = cuda.shared.array(1024, partial.dtype)
    mine = x[0]
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        mine = max(mine, x[i])
    largest = _fold(tile, mine, _larger)
    if cuda.threadIdx.x == 0:
        partial[cuda.blockIdx.x] = largest
