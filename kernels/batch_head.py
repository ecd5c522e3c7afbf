"""From the last hidden states of some tokens to the tokens that follow them, each chosen in its own way."""

import functools

from numba import cuda, float32, int32, int64, uint32

from graphdsl import device

from .choices import choice_key, chosen_index
from .column_parts import Tiling, norm_scale_of, product
from .launch import Launch
from .sampling import drawing
from .threads import ALL_LANES, WARP, block, thread
from .tiles import BLOCK


@functools.cache
def batch_head(count, hidden, vocabulary, *, eps=1e-5, weights="q8_0", warps=0, multiprocessors=132, blocks=0):
    """RMS norm, the product with the rows of all tokens, and the largest of each.

    A block keeps the vectors in registers while it goes over rows of the table.

    Parameters
    ----------
    count : int
        Vectors: 8, 16 or 32.
    hidden, vocabulary : int
        Length of a vector; tokens, a multiple of 16.
    eps : float
        Of the norm.
    weights : str
        Format of the rows, as in `graphdsl.kernels.column_parts.words_of`.
    warps : int
        In a block, each with some of the columns; 0 for a number that suits. The order of sums depends on it.
    multiprocessors, blocks : int
        Of the device, and blocks on each of them; 0 for as many as their registers leave room for.

    Returns
    -------
    Launch
        Its kernel takes

        - ``x``, uint32 (rows * hidden,), read: vectors as `words_of` has them, with the gain of the norm.
        - ``squares``, float32 (rows * hidden / 8,), read: of the vectors without the gain.
        - ``table``, matrix (vocabulary, hidden), read before the wait.
        - ``sources``, int32 (count,), read: rows of ``x``; -1 for padding.
        - ``slots``, int32 (rows,), read: whose the rows are. No kernel that writes ``sources``, ``slots`` or
          ``temperature`` may still run when this one begins.
        - ``temperature``, float32, read, by slot: where it is above 0 logits are written.
        - ``logits``, float32 (count * vocabulary,), written.
        - ``best``, int64 (count,), read and written: becomes the `graphdsl.kernels.choices.choice_key` of the largest
          logit, where that is larger; 0 before.

    Raises
    ------
    ValueError
        If blocks cannot share the rows out.
    """
    blocks_of_row = hidden // BLOCK
    warps = warps or next(n for n in range(min(12, blocks_of_row), 0, -1) if blocks_of_row % n == 0)
    shape = product(hidden, vocabulary, weights, Tiling(count, 1, warps))
    load, fetch, multiply, made, spot = shape.load, shape.fetch, shape.multiply, shape.made, shape.spot
    held_words, given_words, shared, numbers, groups = (
        shape.held,
        shape.given,
        shape.shared,
        shape.numbers,
        shape.groups,
    )
    norm_scale = norm_scale_of(hidden, eps)
    threads, tiles = warps * WARP, vocabulary // 16
    blocks = blocks or {8: 3, 16: 2}.get(count, 1)
    grid = min(tiles, multiprocessors * blocks)
    turns, rounds = -(-tiles // grid), -(-numbers // warps)
    both = 2 * shared
    bounds = threads, blocks

    @cuda.jit(fastmath=True, launch_bounds=bounds)
    def batch_head(x, squares, table, sources, slots, temperature, logits, best):
        sums = cuda.shared.array(both, float32, alignment=16)
        inverse = cuda.shared.array(count, float32, alignment=16)
        held = cuda.local.array(held_words, uint32)
        ahead = cuda.local.array(held_words, uint32)
        given = cuda.local.array(given_words, uint32)
        keys = cuda.local.array(rounds, int64)
        drawn = cuda.local.array(rounds, int32)
        lane = thread() & 31
        tile = block()
        load(table, tile, held)
        for turn in range(rounds):
            number = turn * warps + (thread() >> 5)
            keys[turn] = int64(0)
            drawn[turn] = 0
            if number < numbers:
                source = sources[spot(number)[1]]
                if source >= 0 and temperature[slots[source]] > 0:
                    drawn[turn] = 1
        device.launch_dependents()
        device.grid_dependency_wait()
        for group in range(groups):
            fetch(x, group, max(sources[8 * group + (lane >> 2)], 0), given)
        for token in range(thread() >> 5, count, warps):
            inverse[token] = norm_scale(squares, max(sources[token], 0))
        for turn_of_block in range(turns):
            after = tile + grid
            if after < tiles:
                load(table, after, ahead)
            half = sums[(turn_of_block & 1) * shared : (turn_of_block & 1) * shared + shared]
            multiply(held, given, half)
            cuda.syncthreads()
            if tile < tiles:
                for turn in range(rounds):
                    number = turn * warps + (thread() >> 5)
                    if number < numbers:
                        row, token = spot(number)
                        logit = made(number, half) * inverse[token]
                        keys[turn] = max(keys[turn], choice_key(logit, 16 * tile + row))
                        if drawn[turn]:
                            logits[token * vocabulary + 16 * tile + row] = logit
            if after < tiles:
                for i in range(held_words):
                    held[i] = ahead[i]
            tile = after
        for turn in range(rounds):
            number = turn * warps + (thread() >> 5)
            if number < numbers:
                key = keys[turn]
                for step in (4, 8, 16):
                    key = max(key, cuda.shfl_xor_sync(ALL_LANES, key, step))
                if lane < 4:
                    cuda.atomic.max(best, spot(number)[1], key)

    return Launch(batch_head, grid, threads)


@functools.cache
def choose(count, vocabulary, *, threads=1024):
    """A token behind each row that wants one: the most probable, or one that is drawn among the ``top_k`` best.

    What is drawn depends on the logits, the seed and the position, as `graphdsl.kernels.sampling.sample_top_k` says.

    Parameters
    ----------
    count : int
        Tokens that can be chosen: a block each.
    vocabulary : int
        Fewer than 2**24.
    threads : int
        In a block: whole warps.

    Returns
    -------
    Launch
        Its kernel takes

        - ``logits``, ``best``, read: as `batch_head` makes them.
        - ``sources``, ``slots``, ``positions``, int32, read: the row of each choice, and the slots and positions of
          rows.
        - ``temperature``, ``top_k``, ``seed``, read, by slot.
        - ``chosen``, int32 (count,), written where there is a row with a position.
    """
    drawn = drawing(vocabulary, threads)

    @cuda.jit(fastmath=True, launch_bounds=threads)
    def choose(logits, best, sources, slots, positions, temperature, top_k, seed, chosen):
        i = block()
        source = sources[i]
        p = -1
        slot = 0
        if source >= 0:
            p = positions[source]
            slot = slots[source]
        warmth = temperature[slot]
        device.launch_dependents()
        device.grid_dependency_wait()
        if p >= 0:
            if warmth > 0:
                key = drawn(logits[i * vocabulary : (i + 1) * vocabulary], p, warmth, top_k[slot], seed[slot])
            else:
                key = best[i]
            if thread() == 0:
                chosen[i] = chosen_index(key)

    return Launch(choose, count, threads)
