"""Filters of one-dimensional signals, centred so that they delay nothing; the first and last sample are repeated
beyond the ends, so that a constant signal stays constant.

Each thread computes whole output samples, reading its inputs through the cache. This module must not hold recursive
filters, whose samples depend on each other.
"""

from numba import cuda


@cuda.jit
def fir(x, taps, y):
    """Finite impulse response: ``y[i] = sum(taps[k] * x[i + taps.size // 2 - k] for k in range(taps.size))``.

    Sums are made in the dtype of ``y``. With an odd number of taps the result is that of
    ``numpy.convolve(numpy.pad(x, taps.size // 2, mode="edge"), taps, mode="valid")``.

    Parameters
    ----------
    x : array of shape (n,), read
    taps : array of shape (m,), read
        Impulse response, m >= 1.
    y : array of shape (n,), written
        May not alias ``x``.
    """
    half = taps.size // 2
    last = x.size - 1
    for i in range(cuda.grid(1), y.size, cuda.gridsize(1)):
        total = y.dtype.type(0)
        for k in range(taps.size):
            total += taps[k] * x[min(max(i + half - k, 0), last)]
        y[i] = total


@cuda.jit
def moving_mean(x, y, width):
    """Mean of the ``width`` samples from ``i - width // 2`` on: ``y[i] = mean(x[i - width // 2 :][:width])``.

    Sums are made in the dtype of ``y``.

    Parameters
    ----------
    x : array of shape (n,), read
    y : array of shape (n,), written
        Of a float dtype; may not alias ``x``.
    width : integer
        Samples in the window, >= 1.
    """
    last = x.size - 1
    for i in range(cuda.grid(1), y.size, cuda.gridsize(1)):
        total = y.dtype.type(0)
        first = i - width // 2
        for j in range(first, first + width):
            total += x[min(max(j, 0), last)]
        y[i] = total / y.dtype.type(width)
