"""From the last hidden state to logits, or at once to the best of the tokens."""

import functools

from numba import cuda, float32, int64, uint32

from graphdsl import device

from .choices import block_max_key, choice_key
from .launch import Launch
from .norm import norm_into_shared
from .threads import WARP, block, device_function, lanes_sum, thread
from .weights import FORMATS, padded, place


@functools.cache
def _head(hidden, vocabulary, eps, weights, lanes, threads, blocks, multiprocessors, best):
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
    grid = min(blocks * multiprocessors, vocabulary // rows)
    rounds = -(-vocabulary // (rows * grid))

    @device_function
    def load_vector(table, row, step, held):
        vector = step * lanes + thread() % lanes
        if vector < vectors and row < vocabulary:
            a, b, c, d, scale = load(table, row * vectors + vector)
            held[5 * step], held[5 * step + 1], held[5 * step + 2], held[5 * step + 3] = a, b, c, d
            held[5 * step + 4] = scale

    def made(keep):
        """A device function that makes all logits of the block; ``keep(out, key, row, logit)`` gives the next key."""

        @device_function
        def logits(x, gain, table, out):
            normed = cuda.shared.array(tile, float32, alignment=16)
            partial = cuda.shared.array(32, float32, alignment=16)
            t = thread()
            row = block() * rows + t // lanes
            held = cuda.local.array(words, uint32)
            for step in range(steps):
                load_vector(table, row, step, held)
            gains = cuda.local.array(count, float32)
            mine = cuda.local.array(count, float32)
            load_gain(gain, gains)
            device.launch_dependents()
            device.grid_dependency_wait()
            scale = norm(x, gains, mine, normed, partial)
            key = int64(0)
            for _ in range(rounds):
                total = float32(0)
                for step in range(steps):
                    vector = step * lanes + t % lanes
                    if vector < vectors:
                        a, b, c, d = held[5 * step], held[5 * step + 1], held[5 * step + 2], held[5 * step + 3]
                        total += dot(a, b, c, d, held[5 * step + 4], normed, place(vector * width))
                    load_vector(table, row + grid * rows, step, held)  # for the next round
                logit = lanes_sum(total, lanes) * scale
                if row < vocabulary:
                    key = keep(out, key, row, logit)
                row += grid * rows
            return key

        return logits

    @device_function
    def keep_best(best, key, row, logit):
        return max(key, choice_key(logit, row))

    @device_function
    def keep_all(logits, key, row, logit):
        if thread() % lanes == 0:
            logits[row] = logit
        return key

    best_of_block, all_of_block = made(keep_best), made(keep_all)
    bounds = threads, max(1, blocks)

    @cuda.jit(fastmath=True, launch_bounds=bounds)
    def greedy_head(x, gain, table, best):
        keys = cuda.shared.array(32, int64)
        key = block_max_key(best_of_block(x, gain, table, best), keys, warps)
        if thread() == 0:
            cuda.atomic.max(best, 0, key)

    @cuda.jit(fastmath=True, launch_bounds=bounds)
    def logits_head(x, gain, table, logits):
        all_of_block(x, gain, table, logits)

    return Launch(greedy_head if best else logits_head, grid, threads)


def greedy_head(hidden, vocabulary, *, eps=1e-5, weights="q8_0", lanes=4, threads=256, blocks=2, multiprocessors=132):
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
    blocks, multiprocessors : int
        Blocks on a multiprocessor, each of which makes several groups of tokens, and how many of them the device has.

    Returns
    -------
    Launch
        Its kernel takes

        - ``x``, float32 (hidden,), read: the residual stream.
        - ``gain``, float32 (hidden,), read: of the norm.
        - ``table``, matrix (vocabulary, hidden), read.
        - ``best``, int64 (1,), read and written: becomes the `graphdsl.kernels.choices.choice_key` of the largest
          logit, where that is larger; 0 before.

    Raises
    ------
    ValueError
        If blocks cannot share the tokens out.
    """
    return _head(hidden, vocabulary, eps, weights, lanes, threads, blocks, multiprocessors, True)


def logits_head(hidden, vocabulary, *, eps=1e-5, weights="q8_0", lanes=4, threads=256, blocks=2, multiprocessors=132):
    """As `greedy_head`, with all logits as the result.

    Returns
    -------
    Launch
        Its kernel takes ``x``, ``gain`` and ``table`` as that of `greedy_head`, and then

        - ``logits``, float32 (vocabulary,), written.
    """
    return _head(hidden, vocabulary, eps, weights, lanes, threads, blocks, multiprocessors, False)
