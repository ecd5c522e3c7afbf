"""Device functions that choose among tokens, and go on with the one that is chosen.

The token, its position and all tokens so far stay in device memory, so that a graph goes from one token to the next
with no host. This module must not hold kernels.
"""

from numba import cuda, int64, uint32

from graphdsl import device

from .threads import ALL_LANES, device_function, thread


@device_function
def ordered(value):
    """A word that is as large, compared to others, as the float32 that it stands for."""
    word = device.as_word(value)
    if word < 0x80000000:
        return uint32(word ^ 0x80000000)
    return uint32(word ^ 0xFFFFFFFF)


@device_function
def choice_key(value, index):
    """A number that is the larger, the larger the value, and of equal values the smaller the index; never 0.

    An int64: Numba shuffles no unsigned ones.
    """
    return (int64(ordered(value)) << 31) | (0x7FFFFFFF - index)


@device_function
def chosen_index(key):
    """The index in a `choice_key`."""
    return 0x7FFFFFFF - (key & 0x7FFFFFFF)


@device_function
def block_max_key(key, keys, warps):
    """The largest key of the block, for thread 0, behind a barrier; ``keys`` is shared, with an element a warp."""
    for step in (16, 8, 4, 2, 1):
        key = max(key, cuda.shfl_xor_sync(ALL_LANES, key, step))
    if thread() & 31 == 0:
        keys[thread() >> 5] = key
    cuda.syncthreads()
    if thread() == 0:
        for warp in range(1, warps):
            key = max(key, keys[warp])
    return key


@device_function
def append_token(chosen, token, position, tokens):
    """Go on with a token: one thread writes it behind the position, which moves on."""
    after = position[0] + 1
    token[0] = chosen
    position[0] = after
    if after < tokens.size:
        tokens[after] = chosen
