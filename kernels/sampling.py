"""The choice of the next token from logits: the largest, or one that is drawn.

See `graphdsl.kernels.choices` for where the token goes.
"""

import functools
import math

from numba import cuda, float32, int32, int64, uint32, uint64

from graphdsl import device

from .choices import append_token, block_max_key, choice_key, chosen_index, ordered
from .launch import Launch
from .random import philox, uniform
from .threads import WARP, block_sum, device_function, thread


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


@cuda.jit
def take_all(chosen, token, position, tokens):
    """Go on with a token for each of several sequences, as `graphdsl.kernels.argmax` gives them of rows of logits.

    Parameters
    ----------
    chosen : array of int32, (count,), read
    token : array of int32, (count,), written
    position : array of int32, (count,), read and written
        One more behind it.
    tokens : array of int32, (count, positions), written
        At the new positions, where there are such.

    Notes
    -----
    Any grid and block, in one dimension.
    """
    device.launch_dependents()
    device.grid_dependency_wait()
    for i in range(cuda.grid(1), chosen.size, cuda.gridsize(1)):
        append_token(chosen[i], token[i : i + 1], position[i : i + 1], tokens[i])


@device_function
def _gain(logit, index, position, temperature, seed):
    """The logit over the temperature, and a number from Gumbel's distribution: the token with the largest is drawn."""
    if temperature <= 0:
        return logit
    drawn = uniform(philox(uint64(index), uint64(position), seed))
    return logit / temperature - math.log(-math.log(drawn))


@functools.cache
def drawing(vocabulary, threads):
    """A device function with which a block draws a token, as `sample_top_k` does.

    Parameters
    ----------
    vocabulary : int
        Tokens, less than 2**24.
    threads : int
        In the block, whole warps.

    Returns
    -------
    device function
        ``drawn(logits, p, temperature, k, seed)`` gives the `graphdsl.kernels.choices.choice_key` of the token behind
        position ``p`` to thread 0.
    """
    count = -(-vocabulary // threads)
    warps = threads // WARP

    @device_function
    def reached_by_threads(word, k):
        """The largest number that k of the block's words reach, from its highest bit down."""
        least = uint32(0)
        bit = min(31, 30 + k)  # 31, which the compiler does not know: instructions that run once are slow to come by
        while bit >= 0:
            tried = least | uint32(1 << bit)
            if cuda.syncthreads_count(int32(word >= tried)) >= k:
                least = tried
            bit -= 1
        return least

    @device_function
    def reached_by_all(mine, k, partial):
        """The largest number that k of all words reach. Its halves take turns, so that one barrier a bit is enough."""
        least = uint32(0)
        bit = min(31, 30 + k)
        while bit >= 0:
            tried = least | uint32(1 << bit)
            reached = float32(0)
            for step in range(count):
                if mine[step] >= tried:
                    reached += float32(1)
            if block_sum(reached, partial[32 * (bit & 1) : 32 * (bit & 1) + 32], warps) >= k:
                least = tried
            bit -= 1
        return least

    @device_function
    def drawn(logits, p, temperature, k, seed):
        partial = cuda.shared.array(64, float32, alignment=16)
        keys = cuda.shared.array(32, int64)
        candidates = cuda.shared.array(threads, int32)
        found = cuda.shared.array(1, int32)
        t = thread()
        mine = cuda.local.array(count, uint32)
        if t == 0:
            found[0] = 0
        largest = uint32(0)
        for step in range(count):
            i = step * threads + t
            mine[step] = ordered(logits[i]) if i < vocabulary else uint32(0)
            largest = max(largest, mine[step])
        # What k threads have a word above, k words are above: few others are, and only they can be among the k.
        few = k <= threads
        if few:
            bound = reached_by_threads(largest, k)
            for i in range(t, logits.size, threads):  # not unrolled, and once more from the cache
                if ordered(logits[i]) >= bound:
                    at = cuda.atomic.add(found, 0, 1)
                    if at < threads:
                        candidates[at] = i
            cuda.syncthreads()
            few = found[0] <= threads
        best = int64(0)
        if few:
            i = candidates[t] if t < found[0] else 0
            word = ordered(logits[i]) if t < found[0] else uint32(0)
            if word >= reached_by_threads(word, k) and t < found[0]:
                best = choice_key(_gain(logits[i], i, p, temperature, seed), i)
        else:
            least = reached_by_all(mine, k, partial) if k < vocabulary else uint32(0)
            for i in range(t, logits.size, threads):
                if ordered(logits[i]) >= least:
                    best = max(best, choice_key(_gain(logits[i], i, p, temperature, seed), i))
        return block_max_key(best, keys, warps)

    return drawn


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
        - ``k``, int32, at least 1: how many of the largest logits to choose from, and those equal to the last of them;
          all if it is no less than the vocabulary. Up to ``threads`` is fast.
        - ``seed``, uint64.
    """
    drawn = drawing(vocabulary, threads)

    @cuda.jit(fastmath=True, launch_bounds=threads)
    def sample_top_k(logits, token, position, tokens, temperature, k, seed):
        device.launch_dependents()
        device.grid_dependency_wait()
        best = drawn(logits, position[0], temperature, k, seed)
        if thread() == 0:
            append_token(chosen_index(best), token, position, tokens)

    return Launch(sample_top_k, 1, threads)
