"""Kernels that are made for a shape, and so for one launch."""

from typing import Any, NamedTuple


class Launch(NamedTuple):
    """A kernel, and the launch that it is made for.

    Attributes
    ----------
    kernel : Numba kernel
    grid, block : int
        In one dimension.
    """

    kernel: Any
    grid: int
    block: int
