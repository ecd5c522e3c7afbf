"""One output element from the input elements at the same index.

Inputs may alias outputs: each element is read before it is written, by the same thread. This module must not hold
kernels that read their neighbours.
"""

import math

from numba import cuda, float32


@cuda.jit
def fill(y, value):
    """Set every element of ``y`` to ``value``; unlike a memset node, for any dtype and value.

    Parameters
    ----------
    y : array of shape (n,), written
    value : scalar
    """
    for i in range(cuda.grid(1), y.size, cuda.gridsize(1)):
        y[i] = value


@cuda.jit
def cast(x, y):
    """Convert the elements of ``x`` to the dtype of ``y``, as C does: a fraction is cut off towards zero.

    Parameters
    ----------
    x : array of shape (n,), read
    y : array of shape (n,), written
    """
    for i in range(cuda.grid(1), y.size, cuda.gridsize(1)):
        y[i] = x[i]


@cuda.jit
def scale(x, y, a):
    """``y = a * x``.

    Parameters
    ----------
    x : array of shape (n,), read
    y : array of shape (n,), written
    a : scalar
    """
    for i in range(cuda.grid(1), y.size, cuda.gridsize(1)):
        y[i] = a * x[i]


@cuda.jit
def axpy(x, y, a):
    """``y += a * x``.

    Parameters
    ----------
    x : array of shape (n,), read
    y : array of shape (n,), read and written
    a : scalar
    """
    for i in range(cuda.grid(1), y.size, cuda.gridsize(1)):
        y[i] += a * x[i]


@cuda.jit
def square(x, y):
    """``y = x * x``.

    Parameters
    ----------
    x : array of shape (n,), read
    y : array of shape (n,), written
    """
    for i in range(cuda.grid(1), y.size, cuda.gridsize(1)):
        y[i] = x[i] * x[i]


@cuda.jit
def add(x1, x2, y):
    """``y = x1 + x2``.

    Parameters
    ----------
    x1, x2 : array of shape (n,), read
    y : array of shape (n,), written
    """
    for i in range(cuda.grid(1), y.size, cuda.gridsize(1)):
        y[i] = x1[i] + x2[i]


@cuda.jit
def subtract(x1, x2, y):
    """``y = x1 - x2``.

    Parameters
    ----------
    x1, x2 : array of shape (n,), read
    y : array of shape (n,), written
    """
    for i in range(cuda.grid(1), y.size, cuda.gridsize(1)):
        y[i] = x1[i] - x2[i]


@cuda.jit
def multiply(x1, x2, y):
    """``y = x1 * x2``, element by element.

    Parameters
    ----------
    x1, x2 : array of shape (n,), read
    y : array of shape (n,), written
    """
    for i in range(cuda.grid(1), y.size, cuda.gridsize(1)):
        y[i] = x1[i] * x2[i]


@cuda.jit
def silu_multiply(gate, up, y):
    """``y = gate / (1 + exp(-gate)) * up``: the gating of an MLP.

    Parameters
    ----------
    gate, up : array of float32, (n,), read
    y : array of float32, (n,), written
        May be either of them.
    """
    for i in range(cuda.grid(1), y.size, cuda.gridsize(1)):
        y[i] = gate[i] / (float32(1) + math.exp(-gate[i])) * up[i]
