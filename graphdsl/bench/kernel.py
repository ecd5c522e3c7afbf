"""The kernel of every node that is measured: one small block, and a result by which a lost node would be noticed."""

from numba import cuda


@cuda.jit
def step(x, gain, n):
    """Add ``gain`` to the first ``n`` elements of ``x``; atomic, because nodes that run side by side share ``x``.

    Parameters
    ----------
    x : array of float32, read and written
    gain : float32
    n : int32
    """
    i = cuda.grid(1)
    if i < n:
        cuda.atomic.add(x, i, gain)
