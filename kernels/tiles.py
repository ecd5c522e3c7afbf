"""Products of weights with many vectors at once, on tensor cores: what the kernels of `matmul` share.

A warp multiplies 16 or 32 rows of weights with tiles of 8 vectors. Nothing is rounded that single precision would keep:

- Weights of 4 or 8 bits go in as the whole numbers that they are, and their scale is applied to sums over blocks of 32.
  A number q below 1024 becomes a float16 by doing nothing: its bits are those of q * 2**-24.
- Vectors are split into two numbers of 16 bits each, ``x = high + low``, which makes two products.

Which column of the weights meets which lane is free, as long as the vectors are laid out in the same order: each lane
takes eight neighbouring weights of a block, as they lie in memory. This module must not hold kernels.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from numba import float32

from graphdsl import device

from .threads import device_function
from .weights import brain_floats, halves

BLOCK = 32
"""Columns of weights that are multiplied at a time."""


class Numbers(NamedTuple):
    """How the numbers of a format go into matrix products: eight weights of a lane make two words for each of two.

    Attributes
    ----------
    scaled : bool
        True if the weights of a block have a scale, and their numbers are 2**-24 of what they stand for.
    place : device function
        ``place(quad)`` is where the numbers of a vector from ``4 * quad`` on go, of the 32 of a block.
    split : device function
        ``split(a, b, c, d)`` gives four words: the upper and the lower parts of four numbers of a vector.
    multiply : device function
        `graphdsl.device.mma_f16` or `mma_bf16`.
    one : int
        The word of two ones: the product with them is the sum of the vector.
    factor : float
        What results must be multiplied with.
    """

    scaled: bool
    place: Callable[..., Any]
    split: Callable[..., Any]
    multiply: Callable[..., Any]
    one: int
    factor: float


class Fragments(NamedTuple):
    """How a warp takes weights in a format, block by block.

    Attributes
    ----------
    held : int
        Words that a lane holds of a row.
    load : device function
        ``load(matrix, rows, blocks, row, block, part, held, at)`` loads those of lane ``part`` of four into an array.
        ``rows`` and ``blocks`` are those of the matrix.
    words : device function
        ``words(held, at)`` makes four words of them: two for each product.
    scales : device function
        ``scales(held, at)`` gives the scale, and what is added to each weight.
    numbers : Numbers
    """

    held: int
    load: Callable[..., Any]
    words: Callable[..., Any]
    scales: Callable[..., Any]
    numbers: Numbers


# Vectors

_SHRINK = 2.0**-4  # of vectors as float16, which end at 65504


@device_function
def _split_halves(a, b, c, d):
    a, b, c, d = a * float32(_SHRINK), b * float32(_SHRINK), c * float32(_SHRINK), d * float32(_SHRINK)
    high, higher = device.pack_half2(a, b), device.pack_half2(c, d)
    e, f = halves(high)
    g, h = halves(higher)
    return high, higher, device.pack_half2(a - e, b - f), device.pack_half2(c - g, d - h)


@device_function
def _split_halves_for_bytes(a, b, c, d):
    """As weights lie that a mask took out of a word: the first beside the third."""
    return _split_halves(a, c, b, d)


@device_function
def _split_brain_floats(a, b, c, d):
    high, higher = device.pack_bfloat2(a, b), device.pack_bfloat2(c, d)
    e, f = brain_floats(high)
    g, h = brain_floats(higher)
    return high, higher, device.pack_bfloat2(a - e, b - f), device.pack_bfloat2(c - g, d - h)


@device_function
def _in_order(quad):
    return quad * 4


@device_function
def _lower_halves_first(quad):
    """Each lane has the lower halves of four bytes, and then their upper halves, which are 16 columns further."""
    return (quad & 3) * 8 + (quad >> 2) * 4


# Weights


@device_function
def _load_plain(matrix, rows, blocks, row, block, part, held, at):
    a, b, c, d = device.load4(matrix[0], ((row * blocks + block) * 4 + part) * 8)
    held[at], held[at + 1], held[at + 2], held[at + 3] = a, b, c, d


@device_function
def plain_words(held, at):
    """Four words as they are."""
    return held[at], held[at + 1], held[at + 2], held[at + 3]


@device_function
def no_scales(held, at):
    """Of weights that are numbers."""
    return float32(1), float32(0)


@device_function
def _load_bytes(matrix, rows, blocks, row, block, part, held, at):
    first = ((row * blocks + block) * 4 + part) * 8
    held[at] = device.load_word(matrix[0], first)
    held[at + 1] = device.load_word(matrix[0], first + 4)
    held[at + 2] = device.as_word(matrix[1][row * blocks + block])


@device_function
def _words_of_bytes(held, at):
    low = held[at] ^ 0x80808080  # adds 128 to each
    high = held[at + 1] ^ 0x80808080
    return low & 0xFF00FF, (low >> 8) & 0xFF00FF, high & 0xFF00FF, (high >> 8) & 0xFF00FF


@device_function
def _scales_of_bytes(held, at):
    scale = halves(held[at + 2])[0]
    return scale, float32(-128) * scale


@device_function
def _load_nibbles(matrix, rows, blocks, row, block, part, held, at):
    held[at] = device.load_word(matrix[0], ((row * blocks + block) * 4 + part) * 4)
    held[at + 1] = device.as_word(matrix[1][row * blocks + block])


@device_function
def _load_nibbles_and_least(matrix, rows, blocks, row, block, part, held, at):
    held[at] = device.load_word(matrix[0], ((row * blocks + block) * 4 + part) * 4)
    held[at + 1] = matrix[1][row * blocks + block]


@device_function
def _load_slices(matrix, rows, blocks, row, block, part, held, at):
    """Of a matrix by slices of 16 columns, each with two words of a row."""
    held[at] = device.load_word(matrix[0], (((block * 2 + (part >> 1)) * rows + row) * 2 + (part & 1)) * 4)
    held[at + 1] = matrix[1][block * rows + row]


@device_function
def words_of_nibbles(held, at):
    """Of a word of eight weights of 4 bits: a mask takes out every fourth."""
    word = held[at]
    return word & 0xF000F, (word >> 8) & 0xF000F, (word >> 4) & 0xF000F, (word >> 12) & 0xF000F


@device_function
def _scales_of_nibbles(held, at):
    scale = halves(held[at + 1])[0]
    return scale, float32(-8) * scale


@device_function
def _scales_of_nibbles_and_least(held, at):
    return halves(held[at + 1])


_HALVES = (device.mma_f16, 0x3C003C00, 1 / _SHRINK)
HALVES = Numbers(False, _in_order, _split_halves, *_HALVES)
BRAIN_FLOATS = Numbers(False, _in_order, _split_brain_floats, device.mma_bf16, 0x3F803F80, 1.0)
BYTES = Numbers(True, _in_order, _split_halves_for_bytes, *_HALVES)
NIBBLES = Numbers(True, _lower_halves_first, _split_halves_for_bytes, *_HALVES)

FRAGMENTS = {
    "f16": Fragments(4, _load_plain, plain_words, no_scales, HALVES),
    "bf16": Fragments(4, _load_plain, plain_words, no_scales, BRAIN_FLOATS),
    "q8_0": Fragments(3, _load_bytes, _words_of_bytes, _scales_of_bytes, BYTES),
    "q4_0": Fragments(2, _load_nibbles, words_of_nibbles, _scales_of_nibbles, NIBBLES),
    "q4_1": Fragments(2, _load_nibbles_and_least, words_of_nibbles, _scales_of_nibbles_and_least, NIBBLES),
    "q4_1 slices": Fragments(2, _load_slices, words_of_nibbles, _scales_of_nibbles_and_least, BYTES),
}
"""By the name of the format; ``"q4_1 slices"`` is what `graphdsl.kernels.packing.by_column_slices` makes."""


@functools.cache
def twice(multiply):
    """A device function for the product of a fragment with both parts of vectors."""

    @device_function
    def twice(a0, a1, a2, a3, h0, h1, l0, l1, c0, c1, c2, c3):
        c0, c1, c2, c3 = multiply(a0, a1, a2, a3, h0, h1, c0, c1, c2, c3)
        return multiply(a0, a1, a2, a3, l0, l1, c0, c1, c2, c3)

    return twice
