"""The kernels of the nodes that are measured: a result in each, by which a lost node would be noticed."""

from numba import cuda, float32


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


@cuda.jit
def spin(count, rounds):
    """Compute for as long as ``rounds`` take, in every thread, and count the run in the first of them.

    Parameters
    ----------
    count : array of float32, read and written
    rounds : int32
    """
    value = float32(1)
    for _ in range(rounds):
        value = value * float32(0.5) + float32(1)  # each waits for the one before
    if cuda.grid(1) == 0 or value < float32(0):  # never less: but then every thread must know it
        count[0] += float32(1)


@cuda.jit
def chase(following, count):
    """Follow eight references, each of which waits for the one before, and count the run: no loop, about 2 µs.

    Parameters
    ----------
    following : array of int32, read
        Where each reference leads; an element for each thread of a block.
    count : array of float32, read and written
    """
    at = cuda.threadIdx.x
    at = following[following[following[following[at]]]]
    at = following[following[following[following[at]]]]
    if cuda.grid(1) == 0 or at < 0:  # never less: but then every thread must know it
        count[0] += float32(1)


def affine(x, factor, term):
    """``x * factor + term``, for each element of what is fused."""
    return x * factor + term
