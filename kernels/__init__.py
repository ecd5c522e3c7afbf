"""Ready-made Numba kernels to put into graphs, installed as ``graphdsl.kernels``.

Every kernel takes its inputs, then its outputs, then its scalars, and walks its arrays in strides of the whole grid:
any grid and block give the same result, and no element is left out when a grid is small. Lengths come from the arrays,
so part of an array is a slice: ``args=(x[:n], y[:n])``. Types follow the operands.

This package must not launch anything, and imports nothing but Numba: it works on a machine with no GPU.
"""

from .elementwise import add, axpy, cast, fill, multiply, scale, square, subtract
from .filters import fir, moving_mean
from .reductions import block_max, block_sum

__all__ = [
    "add",
    "axpy",
    "block_max",
    "block_sum",
    "cast",
    "fill",
    "fir",
    "moving_mean",
    "multiply",
    "scale",
    "square",
    "subtract",
]
