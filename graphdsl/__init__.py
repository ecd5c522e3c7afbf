"""graphdsl: explicit CUDA graphs in Python."""
