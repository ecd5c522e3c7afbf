"""Rows of an embedding table, as float32."""

import functools

from numba import cuda, float32

from graphdsl import device

from .column_parts import words_of
from .launch import Launch
from .threads import block, device_function, lanes_sum, thread


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


@functools.cache
def batch_embedding(hidden, count, *, weights="q8_0", then="q4_1", threads=192):
    """The rows of tokens, and what the first product of `graphdsl.kernels.batch` takes of them.

    Parameters
    ----------
    hidden, count, weights, threads
        As `embedding` takes them.
    then : str
        Format of the weights of that product.

    Returns
    -------
    Launch
        Its kernel takes

        - ``tokens``, int32 (count,), read before the wait.
        - ``table``, matrix (vocabulary, hidden), read before the wait.
        - ``gain``, float32 (hidden,), read before the wait: of the first norm.
        - ``x``, float32 (count * hidden,), written.
        - ``words``, uint32 (count * hidden,), written: ``x * gain`` as `graphdsl.kernels.column_parts.words_of` has it.
        - ``squares``, float32 (count * hidden / 8,), written: of ``x``.
    """
    number, put = _NUMBERS[weights], words_of(hidden, then)
    blocks = -(-hidden // threads)
    parts = hidden // 8

    @cuda.jit(fastmath=True, launch_bounds=threads)
    def batch_embedding(tokens, table, gain, x, words, squares):
        i = (block() % blocks) * threads + thread()
        which = block() // blocks
        if i < hidden:  # whole warps
            value = number(table, tokens[which], hidden, i)
            factor = gain[i]
            device.launch_dependents()
            device.grid_dependency_wait()
            x[which * hidden + i] = value
            put(words, which, i, value * factor, 2)
            total = lanes_sum(value * value, 8)
            if thread() & 7 == 0:
                squares[which * parts + (i >> 3)] = total

    return Launch(batch_embedding, blocks * count, threads)
