"""Weights as NumPy arrays: from rows of numbers or blocks of GGUF to what kernels load, and back.

See `graphdsl.kernels.weights` for the formats. All functions here run on the host, once, before a graph is launched.
This module must not import Numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Matrix = tuple[Array, ...]

BLOCK = 32
"""Weights that share a scale."""

_BYTES = {"q4_0": 18, "q4_1": 20, "q8_0": 34}
"""Of a block, by format."""


def split_blocks(data: Array, name: str) -> Matrix:
    """Blocks of GGUF with the scales apart from the weights.

    Parameters
    ----------
    data : array of uint8
        Whole blocks, as a GGUF file has them, in any shape: of 18 bytes (q4_0), 20 (q4_1) or 34 (q8_0).
    name : str
        The format.

    Returns
    -------
    tuple of arrays
        As `graphdsl.kernels.weights` lists them.

    Raises
    ------
    ValueError
        If it is no such format, or these are no whole blocks.

    Examples
    --------
    >>> block = np.arange(20, dtype=np.uint8)
    >>> weights, scales = split_blocks(block, "q4_1")
    >>> weights.size, hex(scales[0])
    (16, '0x3020100')
    """
    nbytes = _block_bytes(name)
    data = np.ascontiguousarray(data, np.uint8).reshape(-1)
    if data.size % nbytes:
        raise ValueError(f"{data.size} bytes are no whole blocks of {name}, which have {nbytes} bytes")
    blocks = data.reshape(-1, nbytes)
    scales, weights = (np.ascontiguousarray(each) for each in np.split(blocks, [4 if name == "q4_1" else 2], axis=1))
    kind = np.int8 if name == "q8_0" else np.uint8
    return weights.reshape(-1).view(kind), scales.reshape(-1).view(np.uint32 if name == "q4_1" else np.float16)


def joined_blocks(matrix: Matrix, name: str) -> Array:
    """The blocks of GGUF that `split_blocks` took apart, as bytes in one dimension."""
    weights, scales = (np.ascontiguousarray(each).view(np.uint8) for each in matrix)
    nbytes = _block_bytes(name)
    head = 4 if name == "q4_1" else 2
    return np.concatenate([scales.reshape(-1, head), weights.reshape(-1, nbytes - head)], axis=1).reshape(-1)


def packed(weights: Array, name: str) -> Matrix:
    """Numbers in a format, rounded to the nearest it has; blocks are laid over their least and largest weight.

    Parameters
    ----------
    weights : array of float, (rows, columns)
        For blocks, a multiple of 32 columns.
    name : str
        The format.

    Returns
    -------
    tuple of arrays
        As `graphdsl.kernels.weights` lists them.

    Examples
    --------
    >>> packed(np.array([[1.0, -2.0]]), "bf16")
    (array([16256, 49152], dtype=uint16),)
    """
    rows = np.asarray(weights, np.float32).reshape(-1)
    if name == "f16":
        return (rows.astype(np.float16),)
    if name == "bf16":
        return (_brain_floats(rows),)
    _block_bytes(name)
    if weights.shape[-1] % BLOCK:
        raise ValueError(f"rows of {weights.shape[-1]} weights are no whole blocks of {BLOCK}")
    blocks = rows.reshape(-1, BLOCK)
    if name == "q8_0":
        scales = (np.abs(blocks).max(axis=1) / 127).astype(np.float16)
        return _steps(blocks, scales, -127, 127).astype(np.int8).reshape(-1), scales
    if name == "q4_0":
        peak = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1)[:, None], axis=1)[:, 0]
        scales = (peak / -8).astype(np.float16)  # the largest weight is -8 steps, of either sign
        return _nibbles(_steps(blocks, scales, -8, 7) + 8), scales
    least = blocks.min(axis=1).astype(np.float16)
    scales = ((blocks.max(axis=1) - least) / 15).astype(np.float16)
    words = np.stack([scales, least], axis=1).view(np.uint32).reshape(-1)
    return _nibbles(_steps(blocks - least[:, None].astype(np.float32), scales, 0, 15)), words


def unpacked(matrix: Matrix, name: str, columns: int) -> Array:
    """The numbers of a matrix in a format, as float32 of shape (rows, columns).

    Examples
    --------
    >>> unpacked(packed(np.array([[1.0, -2.0]]), "bf16"), "bf16", 2)
    array([[ 1., -2.]], dtype=float32)
    """
    if name == "f16":
        return matrix[0].astype(np.float32).reshape(-1, columns)
    if name == "bf16":
        return (matrix[0].astype(np.uint32) << 16).view(np.float32).reshape(-1, columns)
    _block_bytes(name)
    weights, scales = matrix
    least = np.zeros((1, 1), np.float32)
    if name == "q8_0":
        steps = weights.reshape(-1, BLOCK).astype(np.float32)
    else:
        pairs = weights.reshape(-1, BLOCK // 2)
        steps = np.concatenate([pairs & 15, pairs >> 4], axis=1).astype(np.float32)
    if name == "q4_0":
        steps -= 8
    if name == "q4_1":
        scales, least = scales.reshape(-1, 1).view(np.float16).astype(np.float32).T
        least = least[:, None]
    return (steps * scales.astype(np.float32)[:, None] + least).reshape(-1, columns)


def interleaved(first: Matrix, second: Matrix, rows: int, width: int) -> Matrix:
    """The rows of two matrices of one format and shape, in turns: ``width`` rows of the first, then of the second.

    `graphdsl.kernels.gated_mlp` takes gate and up so: what a block needs of both lies together.

    Parameters
    ----------
    first, second : tuple of arrays
    rows : int
        In each; a multiple of ``width``.
    width : int

    Examples
    --------
    >>> gate, up = (np.array([1, 2, 3, 4], np.float16),), (np.array([5, 6, 7, 8], np.float16),)
    >>> interleaved(gate, up, rows=4, width=2)[0].tolist()
    [1.0, 2.0, 5.0, 6.0, 3.0, 4.0, 7.0, 8.0]
    """
    if rows % width:
        raise ValueError(f"{rows} rows are no whole turns of {width}")
    pairs = (tuple(each.reshape(rows // width, 1, -1) for each in pair) for pair in zip(first, second, strict=True))
    return tuple(np.concatenate(pair, axis=1).reshape(-1) for pair in pairs)


def by_column_slices(matrix: Matrix, columns: int) -> Matrix:
    """A matrix of q4_1 by slices of 16 columns, each of which lies together: what a block of `gated_mlp` reads of down.

    Parameters
    ----------
    matrix : tuple of arrays
        In q4_1.
    columns : int
        Of the matrix; a multiple of 32.

    Returns
    -------
    tuple of arrays
        uint8 of shape (columns / 16, rows, 2, 4), flat: byte (k, j) holds weight 8 k + j in its lower half, and weight
        8 k + j + 4 in its upper half. uint32 of shape (columns / 32, rows), flat.
    """
    weights, scales = matrix
    blocks = weights.reshape(-1, columns // BLOCK, BLOCK // 2)
    steps = np.concatenate([blocks & 15, blocks >> 4], axis=2).reshape(len(blocks), columns // 16, 2, 2, 4)
    slices = (steps[..., 0, :] | steps[..., 1, :] << 4).reshape(len(blocks), columns // 16, 8)
    words = scales.reshape(len(blocks), columns // BLOCK)
    return np.ascontiguousarray(slices.transpose(1, 0, 2)).reshape(-1), np.ascontiguousarray(words.T).reshape(-1)


def rotary_table(positions: int, head_size: int, base: float = 10000.0) -> Array:
    """Cosines and sines of the angles by which rotary embedding turns pairs of a head.

    Parameters
    ----------
    positions : int
        From 0 on.
    head_size : int
    base : float
        ``rope_theta``: pair i at position p turns by ``p * base ** (-2 * i / head_size)``.

    Returns
    -------
    array of float32, (positions, 2, head_size / 2)
        Cosines, then sines.

    Examples
    --------
    >>> rotary_table(2, 4, 100.0)[1].round(2)
    array([[0.54, 1.  ],
           [0.84, 0.1 ]], dtype=float32)
    """
    turns = base ** (-np.arange(0, head_size, 2, dtype=np.float64) / head_size)
    angles = np.arange(positions)[:, None] * turns
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def _block_bytes(name: str) -> int:
    if name not in _BYTES:
        raise ValueError(f"blocks of weights have the formats {', '.join(_BYTES)}, not {name!r}")
    return _BYTES[name]


def _brain_floats(numbers: Array) -> Array:
    """The upper halves of float32, rounded to nearest, halves to even."""
    words = numbers.astype(np.float32).view(np.uint32)
    return ((words + 0x7FFF + (words >> 16 & 1)) >> 16).astype(np.uint16)


def _steps(blocks: Array, scales: Array, least: int, most: int) -> Array:
    """Weights in steps of the scale of their block."""
    scale = scales.astype(np.float32)[:, None]
    steps = np.divide(blocks, scale, out=np.zeros_like(blocks), where=scale != 0)
    return np.clip(np.rint(steps), least, most)


def _nibbles(steps: Array) -> Array:
    halves = steps.astype(np.uint8).reshape(-1, 2, BLOCK // 2)
    return (halves[:, 0] | halves[:, 1] << 4).reshape(-1)
