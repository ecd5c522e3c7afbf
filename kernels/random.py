"""Random numbers without state: the words that a counter and a seed give, the same on every device.

Philox with four words and ten rounds, by John K. Salmon, Mark A. Moraes, Ron O. Dror and David E. Shaw, "Parallel
random numbers: as easy as 1, 2, 3" (SC 2011). This module must not hold kernels.
"""

from numba import float32, uint64

from .threads import device_function

_WORD = 0xFFFFFFFF


@device_function
def philox(low, high, seed):
    """The first word that Philox 4x32-10 gives.

    Parameters
    ----------
    low, high : uint64
        The counter of 128 bits.
    seed : uint64
        The key.

    Returns
    -------
    uint64
        Less than 2**32.
    """
    word, half = uint64(_WORD), uint64(32)
    a, b, c, d = low & word, low >> half, high & word, high >> half
    key, other = seed & word, seed >> half
    for _ in range(10):
        first, second = a * uint64(0xD2511F53), c * uint64(0xCD9E8D57)
        a, b, c, d = (second >> half) ^ b ^ key, second & word, (first >> half) ^ d ^ other, first & word
        key, other = (key + uint64(0x9E3779B9)) & word, (other + uint64(0xBB67AE85)) & word
    return a


@device_function
def uniform(word):
    """A float32 between 0 and 1, neither of them, of the upper 23 of 32 random bits."""
    return (float32(word >> uint64(9)) + float32(0.5)) * float32(2**-23)
