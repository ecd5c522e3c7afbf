"""Ready-made Numba kernels."""
