"""How weights lie in memory, and their products with a vector: float16, bfloat16, and blocks of 8 and of 4 bits.

A matrix of weights is a tuple of arrays of one dimension, which `graphdsl.kernels.packing` makes from rows of weights:

========  ==============================================  ===========================================================
format    arrays                                          a weight
========  ==============================================  ===========================================================
f16       float16 (rows * columns,)                       the number
bf16      uint16 (rows * columns,): NumPy has no dtype    the upper half of a float32
q8_0      int8 (rows * columns,), float16 of 32 columns   ``scale * q``
q4_0      uint8 (rows * columns / 2,), float16 of 32      ``scale * (q - 8)``
q4_1      uint8 (rows * columns / 2,), uint32 of 32       ``scale * q + least``; the word holds scale and least, float16
========  ==============================================  ===========================================================

Blocks are those of GGUF, with the scales apart, so that the rest is loaded 16 bytes at a time: byte j of the 16 bytes
of a block of 4 bits holds weight j in its lower half and weight j + 16 in its upper half.

Kernels load vectors of 16 bytes with ``load`` and multiply them in registers with ``dot``. This module must not hold
kernels.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from numba import float32
from numba.cuda import libdevice

from graphdsl import device

from .threads import device_function


class Format(NamedTuple):
    """How weights lie in memory.

    Attributes
    ----------
    name : str
        ``"f16"``, ``"bf16"``, ``"q8_0"``, ``"q4_0"`` or ``"q4_1"``.
    width : int
        Weights in 16 bytes.
    load : device function
        ``load(matrix, vector)`` gives five words: the 16 bytes of a vector, counted over all rows, and its scale.
    dot : device function
        ``dot(a, b, c, d, scale, x, at)`` is the product of a loaded vector with what shared memory holds from ``at``
        on, laid out as `place` says.
    """

    name: str
    width: int
    load: Callable[..., Any]
    dot: Callable[..., Any]


@device_function
def place(index):
    """Where shared memory holds the element of a vector.

    Four floats of padding behind each 32 keep lanes that read 16 bytes each, one weight vector apart, off each other's
    banks.
    """
    return index + (index >> 5) * 4


def padded(count):
    """Floats of shared memory that a vector takes.

    Examples
    --------
    >>> padded(64)
    72
    """
    return count + -(-count // 32) * 4


@device_function
def halves(word):
    """The two float16 in a word, as float32."""
    low, high = device.as_half2(word)
    return float32(low), float32(high)


@device_function
def brain_floats(word):
    """The two bfloat16 in a word, as float32."""
    return device.as_float32(word << 16), device.as_float32(word & 0xFFFF0000)


@device_function
def _load_plain(matrix, vector):
    a, b, c, d = device.load4(matrix[0], vector * 8)
    return a, b, c, d, a  # no scale


def _dot_of_pairs(pair):
    """Product of eight numbers of 16 bits, which ``pair`` takes out of a word."""

    @device_function
    def dot(a, b, c, d, scale, x, at):
        x0, x1, x2, x3 = device.load4(x, at)
        x4, x5, x6, x7 = device.load4(x, at + 4)
        a0, a1 = pair(a)
        b0, b1 = pair(b)
        c0, c1 = pair(c)
        d0, d1 = pair(d)
        return (a0 * x0 + b0 * x2 + c0 * x4 + d0 * x6) + (a1 * x1 + b1 * x3 + c1 * x5 + d1 * x7)

    return dot


@device_function
def _load_8_bits(matrix, vector):
    a, b, c, d = device.load4(matrix[0], vector * 16)
    return a, b, c, d, device.as_word(matrix[1][vector >> 1])


@device_function
def _byte(word, selector):
    """The byte that a selector puts below the exponent of 2**23, which makes 2**23 + byte of it, less 128."""
    return device.as_float32(libdevice.byte_perm(word, 0x4B000000, selector)) - float32(8388736)


@device_function
def _dot_of_bytes(word, x, at):
    word ^= 0x80808080  # adds 128 to each
    x0, x1, x2, x3 = device.load4(x, at)
    return (_byte(word, 0x7440) * x0 + _byte(word, 0x7442) * x2) + (_byte(word, 0x7441) * x1 + _byte(word, 0x7443) * x3)


@device_function
def _dot_8_bits(a, b, c, d, scale, x, at):
    low = _dot_of_bytes(a, x, at) + _dot_of_bytes(b, x, at + 4)
    high = _dot_of_bytes(c, x, at + 8) + _dot_of_bytes(d, x, at + 12)
    return halves(scale)[0] * (low + high)


@device_function
def _load_4_bits(matrix, vector):
    a, b, c, d = device.load4(matrix[0], vector * 16)
    return a, b, c, d, device.as_word(matrix[1][vector])


@device_function
def _load_4_bits_and_least(matrix, vector):
    a, b, c, d = device.load4(matrix[0], vector * 16)
    return a, b, c, d, matrix[1][vector]


@device_function
def _left(word, bits, scale, least):
    """The weight whose four bits are moved up into the top of the mantissa of 16, which makes 16 + q of them."""
    return scale * device.as_float32(0x41800000 | ((word << bits) & 0x780000)) + least


@device_function
def _right(word, bits, scale, least):
    """As `_left`, moved down."""
    return scale * device.as_float32(0x41800000 | ((word >> bits) & 0x780000)) + least


@device_function
def dot_of_nibbles(word, scale, least, x, low, high):
    """Product of the eight weights in a word of 4-bit weights.

    Parameters
    ----------
    word : uint32
    scale, least : float32
        A weight is ``scale * (16 + q) + least``.
    x : shared array of float32
    low, high : int
        Where it has the factors of the lower and of the upper halves of the bytes; multiples of 4.
    """
    x0, x1, x2, x3 = device.load4(x, low)
    x4, x5, x6, x7 = device.load4(x, high)
    even = _left(word, 19, scale, least) * x0
    odd = _left(word, 15, scale, least) * x4
    even += _left(word, 11, scale, least) * x1
    odd += _left(word, 7, scale, least) * x5
    even += _left(word, 3, scale, least) * x2
    odd += _right(word, 1, scale, least) * x6
    even += _right(word, 5, scale, least) * x3
    odd += _right(word, 9, scale, least) * x7
    return even + odd


@device_function
def _dot_of_block(a, b, c, d, scale, least, x, at):
    low = dot_of_nibbles(a, scale, least, x, at, at + 16) + dot_of_nibbles(b, scale, least, x, at + 4, at + 20)
    high = dot_of_nibbles(c, scale, least, x, at + 8, at + 24) + dot_of_nibbles(d, scale, least, x, at + 12, at + 28)
    return low + high


@device_function
def scale_and_least(word):
    """Scale of a block of q4_1, and what `dot_of_nibbles` adds: the weights come to it with 16 on top."""
    scale, least = halves(word)
    return scale, least - float32(16) * scale


@device_function
def _dot_4_bits_and_least(a, b, c, d, word, x, at):
    scale, least = scale_and_least(word)
    return _dot_of_block(a, b, c, d, scale, least, x, at)


@device_function
def _dot_4_bits(a, b, c, d, word, x, at):
    scale = halves(word)[0]
    return _dot_of_block(a, b, c, d, scale, float32(-24) * scale, x, at)


F16 = Format("f16", 8, _load_plain, _dot_of_pairs(halves))
BF16 = Format("bf16", 8, _load_plain, _dot_of_pairs(brain_floats))
Q8_0 = Format("q8_0", 16, _load_8_bits, _dot_8_bits)
Q4_0 = Format("q4_0", 32, _load_4_bits, _dot_4_bits)
Q4_1 = Format("q4_1", 32, _load_4_bits_and_least, _dot_4_bits_and_least)

FORMATS = {each.name: each for each in (F16, BF16, Q8_0, Q4_0, Q4_1)}
"""The formats by name."""
