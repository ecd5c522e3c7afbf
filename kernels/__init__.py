"""Ready-made Numba kernels to put into graphs, installed as ``graphdsl.kernels``.

Kernels of arrays (elementwise, filters, reductions) take their inputs, then their outputs, then their scalars, and walk
their arrays in strides of the whole grid: any grid and block give the same result, and no element is left out when a
grid is small. Lengths come from the arrays, so part of an array is a slice: ``args=(x[:n], y[:n])``. Types follow the
operands.

Kernels of language models (`decode`, `head`, `embedding`, `norm`) are made for the shape of a model: a function gives
the kernel with the grid and block that it needs, and the same one for the same shape. Their weights are made by
`packing`, in the formats of `weights`.

This package must not launch anything, and imports nothing but NumPy, Numba and `graphdsl.device`: it works on a machine
with no GPU.
"""

from .elementwise import add, axpy, cast, fill, multiply, scale, silu_multiply, square, subtract
from .filters import fir, moving_mean
from .norm import rms_norm
from .reductions import block_max, block_sum
from .rows import argmax, rotary_embedding, softmax

__all__ = [
    "add",
    "argmax",
    "axpy",
    "block_max",
    "block_sum",
    "cast",
    "fill",
    "fir",
    "moving_mean",
    "multiply",
    "rms_norm",
    "rotary_embedding",
    "scale",
    "silu_multiply",
    "softmax",
    "square",
    "subtract",
]
