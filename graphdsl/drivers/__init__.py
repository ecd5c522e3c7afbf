"""Where a graph runs: a CUDA device, or an emulator of one. Only this stage talks to CUDA."""
