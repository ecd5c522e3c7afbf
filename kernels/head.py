"""From the last hidden state to the next token: the output head with greedy choice, logits, and sampling.

The token, its position and all tokens so far stay in device memory, so that a graph goes from one token to the next
with no host. Choices are made by numbers of 63 bits, the larger the better: see `choice_key`.
"""

import functools
import math

from numba import cuda, float32, int64, uint32, uint64

from graphdsl import device

from .launch import Launch
from .norm import norm_into_shared
from .random import philox, uniform
from .threads import ALL_LANES, WARP, block, block_sum, device_function, lanes_sum, thread
from .weights import FORMATS, padded, place


@device_function
def ordered(value):
    """A word that is as large, compared to others, as the float32 that it stands for."""
    word = device.as_word(value)
    if word < 0x80000000:
        return word ^ 0x80000000
    return word ^ 0xFFFFFFFF


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


@functools.cache
def _head(hidden, vocabulary, eps, weights, lanes, threads, best):
    """The output head that gives the key of the best token (``best``), or all logits."""
    form = FORMATS[weights]
    vectors = hidden // form.width
    steps = -(-vectors // lanes)
    rows = threads // lanes
    if WARP % lanes or vocabulary % rows:
        raise ValueError(
            f"{vocabulary} tokens cannot be shared out by blocks of {threads} threads, {lanes} a token: take numbers "
            "of lanes that divide a warp, and of tokens a block that divide the vocabulary"
        )
    count, load_gain, norm = norm_into_shared(hidden, threads, eps)
    load, dot, width = form.load, form.dot, form.width
    tile, words, warps = padded(hidden), 5 * steps, threads // WARP
    bounds = threads, 1024 // threads  # warps enough on a multiprocessor to keep memory busy

    @device_function
    def multiplied(x, gain, table):
        """The logit of the row that the thread's lanes make."""
        normed = cuda.shared.array(tile, float32, alignment=16)
        partial = cuda.shared.array(32, float32, alignment=16)
        t = thread()
        row = block() * rows + t // lanes
        lane = t % lanes
        held = cuda.local.array(words, uint32)
        for step in range(steps):
            vector = step * lanes + lane
            if vector < vectors:
                a, b, c, d, scale = load(table, row * vectors + vector)
                held[5 * step], held[5 * step + 1], held[5 * step + 2], held[5 * step + 3] = a, b, c, d
                held[5 * step + 4] = scale
        gains = cuda.local.array(count, float32)
        mine = cuda.local.array(count, float32)
        load_gain(gain, gains)
        device.launch_dependents()
        device.grid_dependency_wait()
        scale = norm(x, gains, mine, normed, partial)
        total = float32(0)
        for step in range(steps):
            vector = step * lanes + lane
            if vector < vectors:
                a, b, c, d = held[5 * step], held[5 * step + 1], held[5 * step + 2], held[5 * step + 3]
                total += dot(a, b, c, d, held[5 * step + 4], normed, place(vector * width))
        return lanes_sum(total, lanes) * scale

    @cuda.jit(fastmath=True, launch_bounds=bounds)
    def greedy_head(x, gain, table, best):
        keys = cuda.shared.array(32, int64)
        logit = multiplied(x, gain, table)
        key = block_max_key(choice_key(logit, block() * rows + thread() // lanes), keys, warps)
        if thread() == 0:
            cuda.atomic.max(best, 0, key)

    @cuda.jit(fastmath=True, launch_bounds=bounds)
    def logits_head(x, gain, table, logits):
        logit = multiplied(x, gain, table)
        if thread() % lanes == 0:
            logits[block() * rows + thread() // lanes] = logit

    return Launch(greedy_head if best else logits_head, vocabulary // rows, threads)


def greedy_head(hidden, vocabulary, *, eps=1e-5, weights="q8_0", lanes=4, threads=256):
    """RMS norm, the product with the rows of all tokens, and the choice of the largest.

    Parameters
    ----------
    hidden : int
        Length of the residual stream, a multiple of 32.
    vocabulary : int
        Tokens; a multiple of those that a block makes, ``threads / lanes``.
    eps : float
        Of the norm.
    weights : str
        Format of the rows, as in `graphdsl.kernels.weights`.
    lanes : int
        Neighbouring lanes that make a row, a power of two. Each loads its whole part of the row before it waits.
    threads : int
        In a block.

    Returns
    -------
    Launch
        Its kernel takes

        - ``x``, float32 (hidden,), read: the residual stream.
        - ``gain``, float32 (hidden,), read: of the norm.
        - ``table``, matrix (vocabulary, hidden), read.
        - ``best``, int64 (1,), read and written: becomes the `choice_key` of the largest logit, where that is larger;
          0 before.

    Raises
    ------
    ValueError
        If blocks cannot share the tokens out.
    """
    return _head(hidden, vocabulary, eps, weights, lanes, threads, True)


def logits_head(hidden, vocabulary, *, eps=1e-5, weights="q8_0", lanes=4, threads=256):
    """As `greedy_head`, with all logits as the result.

    Returns
    -------
    Launch
        Its kernel takes ``x``, ``gain`` and ``table`` as that of `greedy_head`, and then

        - ``logits``, float32 (vocabulary,), written.
    """
    return _head(hidden, vocabulary, eps, weights, lanes, threads, False)


@cuda.jit
def take_best(best, token, position, tokens):
    """Go on with the token that `greedy_head` found best.

    Parameters
    ----------
    best : array of int64, (1,), read and written
        0 behind it, for the next time.
    token : array of int32, (1,), written
    position : array of int32, (1,), read and written
        One more behind it.
    tokens : array of int32, (positions,), written
        At the new position, if there is one.

    Notes
    -----
    One block; one thread of it does all.
    """
    device.launch_dependents()
    device.grid_dependency_wait()
    if thread() == 0:
        key = best[0]
        best[0] = 0
        append_token(chosen_index(key), token, position, tokens)


@functools.cache
def sample_top_k(vocabulary, *, threads=1024):
    """Sampling by temperature among the tokens with the largest logits.

    A token i is taken with a probability proportional to ``exp(logits[i] / temperature)``: the largest
    ``logits[i] / temperature + g[i]`` wins, where the g are from Gumbel's distribution. They are made of the words that
    `graphdsl.kernels.random.philox` gives for the counter ``(i, position)`` and the seed: the same on every device.

    Parameters
    ----------
    vocabulary : int
        Tokens, less than 2**24.
    threads : int
        In the one block, whole warps.

    Returns
    -------
    Launch
        Its kernel takes

        - ``logits``, float32 (vocabulary,), read.
        - ``token``, ``position``, ``tokens``, as `take_best` takes them.
        - ``temperature``, float32: 0 for the largest logit.
        - ``k``, int32: how many of the largest logits to choose from, and those equal to the last of them; all if it is
          no less than the vocabulary.
        - ``seed``, uint64.
    """
    count = -(-vocabulary // threads)
    warps = threads // WARP

    @cuda.jit(fastmath=True, launch_bounds=threads)
    def sample_top_k(logits, token, position, tokens, temperature, k, seed):
        partial = cuda.shared.array(64, float32, alignment=16)
        keys = cuda.shared.array(32, int64)
        t = thread()
        mine = cuda.local.array(count, uint32)
        device.launch_dependents()
        device.grid_dependency_wait()
        for step in range(count):
            i = step * threads + t
            mine[step] = ordered(logits[i]) if i < vocabulary else 0
        # The largest word that k of the ordered logits reach, from its highest bit down; the two halves of the shared
        # array take turns, so that one barrier a bit is enough.
        least = 0
        bit = 31
        while bit >= 0 and k < vocabulary:
            tried = least | (1 << bit)
            reached = float32(0)
            for step in range(count):
                if mine[step] >= tried:
                    reached += float32(1)
            if block_sum(reached, partial[32 * (bit & 1) : 32 * (bit & 1) + 32], warps) >= k:
                least = tried
            bit -= 1
        p = position[0]
        noise = float32(1)
        scale = float32(1)
        if temperature > 0:
            scale = float32(1) / temperature
        else:
            noise = float32(0)
        best = int64(0)
        for i in range(t, vocabulary, threads):
            logit = logits[i]
            if ordered(logit) >= least:
                drawn = uniform(philox(uint64(i), uint64(p), seed))
                gumbel = -math.log(-math.log(drawn))
                best = max(best, choice_key(logit * scale + noise * gumbel, i))
        best = block_max_key(best, keys, warps)
        if t == 0:
            append_token(chosen_index(best), token, position, tokens)

    return Launch(sample_top_k, 1, threads)
