"""What the user says: operands, kernels, nodes, edges. Pure Python; needs neither CUDA nor Numba."""
