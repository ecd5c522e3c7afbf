"""Rows of an embedding table, as float32."""

import functools

from numba import cuda, float32

from graphdsl import device

from .launch import Launch
from .threads import block, device_function, thread


@device_function
def _half(table, row, hidden, i):
    return float32(table[0][row * hidden + i])


@device_function
def _brain_float(table, row, hidden, i):
    return device.as_float32(table[0][row * hidden + i] << 16)


@device_function
def _scaled_byte(table, row, hidden, i):
    return float32(table[0][row * hidden + i]) * float32(table[1][(row * hidden + i) >> 5])


_NUMBERS = {"f16": _half, "bf16": _brain_float, "q8_0": _scaled_byte}


@functools.cache
def embedding(hidden, count=1, *, weights="q8_0", threads=128):
    """The rows of tokens.

    Parameters
    ----------
    hidden : int
        Length of a row, a multiple of 32.
    count : int
        Tokens.
    weights : str
        Format of the table: ``"f16"``, ``"bf16"`` or ``"q8_0"``, as in `graphdsl.kernels.weights`.
    threads : int
        In a block.

    Returns
    -------
    Launch
        Its kernel takes

        - ``tokens``, int32 (count,), read.
        - ``table``, matrix (vocabulary, hidden), read.
        - ``x``, float32 (count * hidden,), written.

    Raises
    ------
    ValueError
        If a table cannot have that format.
    """
    if weights not in _NUMBERS:
        raise ValueError(f"tables of embeddings have the formats {', '.join(_NUMBERS)}, not {weights!r}")
    number = _NUMBERS[weights]
    blocks = -(-hidden // threads)

    @cuda.jit(fastmath=True, launch_bounds=threads)
    def embedding(tokens, table, x):
        device.launch_dependents()
        device.grid_dependency_wait()
        i = (block() % blocks) * threads + thread()
        which = block() // blocks
        if i < hidden:
            x[which * hidden + i] = number(table, tokens[which], hidden, i)

    return Launch(embedding, blocks * count, threads)
