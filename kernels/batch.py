"""Products of weights with the vectors of some tokens, made for little time: a step of several sequences.

`matmul` shares rows of weights out over warps. Here the warps of a block make the same rows, each with some of their
columns, so that none of them goes through a row by itself: a model whose rows are short has its weights on their way
before the kernel in front has ended, and each thread waits for memory once. Sums are made in an order that the number
of tokens does not change: what a token gets does not depend, to the last bit, on how many others there are.

Vectors come as what tensor cores multiply, ready to be loaded: each number in two of 16 bits, high and low. The kernels
that make a vector write it so; see
`graphdsl.kernels.column_parts.words_of`. A norm is left to the product that follows: vectors have its gain but not
its scale, and beside them lie ``squares``, the sums of squares of each eight numbers of a token.
"""

import functools

from numba import cuda, float32, uint32
from numba.cuda import libdevice

from graphdsl import device

from .column_parts import norm_scale_of, product, put_squares, tiling_for, words_of
from .launch import Launch
from .threads import ALL_LANES, WARP, block, thread

_LOG2_E = 1.4426950408889634
_GROUP = 8  # numbers of a vector whose squares are added


@functools.cache
def batch_qkv(count, hidden, heads, kv_heads, head_size, *, eps=1e-5, weights="q4_1", tiling=None):
    """The projections to queries, keys and values, rotary embedding, and the append to a paged KV cache.

    Parameters
    ----------
    count, hidden, heads, kv_heads, head_size : int
        Tokens, a multiple of 8; and the shape of the model.
    eps : float
        Of the norm.
    weights : str
        Format of the projections, as in `words_of`.
    tiling : Tiling, optional
        One that suits the shape, by default.

    Returns
    -------
    Launch
        Its kernel takes

        - ``x``, uint32 (count * hidden,), read: vectors as `words_of` has them, with the gain of the norm.
        - ``squares``, float32 (count * hidden / 8,), read: of the vectors without the gain.
        - ``projection``, matrix ((heads + 2 * kv_heads) * head_size, hidden), read before the wait: rows of queries,
          keys, values.
        - ``rotary``, float32 (positions * head_size,), read.
        - ``positions``, int32 (count,), read: of the tokens in their sequences; -1 for padding.
        - ``places``, int32 (count,), read: where they stand in the cache. No kernel that writes ``positions`` or
          ``places`` may still run when this one begins.
        - ``q``, float32 (count * heads * head_size,), written.
        - ``keys``, ``values``, float16 (places * kv_heads * head_size,), written at the places, but not for padding.

    Raises
    ------
    ValueError
        If the tiling does not divide the matrices.
    """
    q_rows, kv_rows = heads * head_size, kv_heads * head_size
    rows = q_rows + 2 * kv_rows
    tiling = tiling or tiling_for(count, hidden, rows)
    tokens, tiles, warps = tiling
    load, fetch, multiply, made, spot, held_words, given_words, shared, numbers, groups = product(
        hidden, rows, weights, tiling
    )
    norm_scale = norm_scale_of(hidden, eps)
    token_tiles, threads, half = count // tokens, warps * WARP, head_size // 2
    rounds = -(-numbers // warps)

    @cuda.jit(fastmath=True, launch_bounds=threads)
    def batch_qkv(x, squares, projection, rotary, positions, places, q, keys, values):
        sums = cuda.shared.array(shared, float32, alignment=16)
        inverse = cuda.shared.array(tokens, float32, alignment=16)
        held = cuda.local.array(held_words, uint32)
        given = cuda.local.array(given_words, uint32)
        lane = thread() & 31
        first = (block() % token_tiles) * tokens
        tile = (block() // token_tiles) * tiles
        load(projection, tile, held)
        device.launch_dependents()
        device.grid_dependency_wait()
        for group in range(groups):
            fetch(x, group, first + 8 * group + (lane >> 2), given)
        for token in range(thread() >> 5, tokens, warps):
            inverse[token] = norm_scale(squares, first + token)
        multiply(held, given, sums)
        cuda.syncthreads()
        for turn in range(rounds):
            number = turn * warps + (thread() >> 5)
            if number < numbers:
                row, local = spot(number)
                row += 16 * tile
                token = first + local
                value = made(number, sums) * inverse[local]
                other = cuda.shfl_xor_sync(ALL_LANES, value, 4)  # the other row of the pair
                p = positions[token]
                if p >= 0 and row < q_rows + kv_rows:
                    at = (p & 0xFFFFFF) * head_size + ((row & (head_size - 1)) >> 1)
                    cosine = rotary[at]
                    sine = rotary[at + half]
                    value = value * cosine + other * sine if row & 1 else value * cosine - other * sine
                if row < q_rows:
                    q[token * q_rows + row] = value
                elif p >= 0:
                    to = (places[token] & 0xFFFFFF) * kv_rows
                    if row < q_rows + kv_rows:
                        keys[to + row - q_rows] = value
                    else:
                        values[to + row - q_rows - kv_rows] = value

    return Launch(batch_qkv, token_tiles * (rows // (16 * tiles)), threads)


@functools.cache
def batch_residual(count, columns, hidden, *, weights="q4_1", then="q4_1", tiling=None):
    """A product that is added to the residual stream, and what the next product takes of it.

    Parameters
    ----------
    count, columns, hidden : int
        Tokens, a multiple of 8; length of the vectors that are multiplied, and of the residual stream.
    weights, then : str
        Formats of the weights, and of those that the next product has.
    tiling : Tiling, optional
        One that suits the shape, by default.

    Returns
    -------
    Launch
        Its kernel takes

        - ``x``, uint32 (count * columns,), read: vectors as `words_of` has them.
        - ``matrix`` (hidden, columns), read before the wait.
        - ``gain``, float32 (hidden,), read before the wait: of the next norm.
        - ``y``, float32 (count * hidden,), read and written: the residual stream.
        - ``words``, uint32 (count * hidden,), written: ``y * gain`` as `words_of` has it.
        - ``squares``, float32 (count * hidden / 8,), written: of ``y``.

    Raises
    ------
    ValueError
        If the tiling does not divide the matrices.
    """
    tiling = tiling or tiling_for(count, columns, hidden)
    tokens, tiles, warps = tiling
    load, fetch, multiply, made, spot, held_words, given_words, shared, numbers, groups = product(
        columns, hidden, weights, tiling
    )
    put = words_of(hidden, then)
    token_tiles, threads, parts = count // tokens, warps * WARP, hidden // _GROUP
    rounds = -(-numbers // warps)

    @cuda.jit(fastmath=True, launch_bounds=threads)
    def batch_residual(x, matrix, gain, y, words, squares):
        sums = cuda.shared.array(shared, float32, alignment=16)
        held = cuda.local.array(held_words, uint32)
        given = cuda.local.array(given_words, uint32)
        gains = cuda.local.array(rounds, float32)
        before = cuda.local.array(rounds, float32)
        lane = thread() & 31
        first = (block() % token_tiles) * tokens
        tile = (block() // token_tiles) * tiles
        load(matrix, tile, held)
        for turn in range(rounds):
            number = turn * warps + (thread() >> 5)
            if number < numbers:
                gains[turn] = gain[16 * tile + spot(number)[0]]
        device.launch_dependents()
        device.grid_dependency_wait()
        for group in range(groups):
            fetch(x, group, first + 8 * group + (lane >> 2), given)
        for turn in range(rounds):
            number = turn * warps + (thread() >> 5)
            if number < numbers:
                row, local = spot(number)
                before[turn] = cuda.ldcg(y, (first + local) * hidden + 16 * tile + row)
        multiply(held, given, sums)
        cuda.syncthreads()
        for turn in range(rounds):
            number = turn * warps + (thread() >> 5)
            if number < numbers:
                row, local = spot(number)
                row += 16 * tile
                token = first + local
                value = before[turn] + made(number, sums)
                y[token * hidden + row] = value
                put(words, token, row, value * gains[turn], 8)
                put_squares(squares, parts, token, row, value)

    return Launch(batch_residual, token_tiles * (hidden // (16 * tiles)), threads)


@functools.cache
def batch_gate_up(count, hidden, units, *, eps=1e-5, weights="q4_1", then="q4_1 slices", tiling=None):
    """Gate and up, and the gating: ``silu(n @ gate.T) * (n @ up.T)``, of the normed vectors n.

    Parameters
    ----------
    count, hidden, units : int
        Tokens, a multiple of 8; length of a token's vector; rows of gate and of up.
    eps, weights, then, tiling
        As `batch_qkv` and `batch_residual` take them; of two tiles.

    Returns
    -------
    Launch
        Its kernel takes

        - ``x``, ``squares``, read as by `batch_qkv`.
        - ``gate_up``, matrix (2 * units, hidden), read before the wait: `graphdsl.kernels.packing.interleaved` by 16.
        - ``words``, uint32 (count * units,), written: the result as `words_of` has it for ``then``.

    Raises
    ------
    ValueError
        If the tiling does not divide the matrices, or a block would have gate without up.
    """
    tiling = tiling or tiling_for(count, hidden, 2 * units, 2)
    tokens, tiles, warps = tiling
    if tiles % 2:
        raise ValueError(f"a block of {tiles} tiles has gate without up: it needs 2, or a multiple")
    load, fetch, multiply, made, spot, held_words, given_words, shared, numbers, groups = product(
        hidden, 2 * units, weights, tiling
    )
    norm_scale = norm_scale_of(hidden, eps)
    put = words_of(units, then)
    token_tiles, threads = count // tokens, warps * WARP
    gates = numbers // 2
    rounds = -(-gates // warps)

    @cuda.jit(fastmath=True, launch_bounds=threads)
    def batch_gate_up(x, squares, gate_up, words):
        sums = cuda.shared.array(shared, float32, alignment=16)
        inverse = cuda.shared.array(tokens, float32, alignment=16)
        held = cuda.local.array(held_words, uint32)
        given = cuda.local.array(given_words, uint32)
        lane = thread() & 31
        first = (block() % token_tiles) * tokens
        tile = (block() // token_tiles) * tiles
        load(gate_up, tile, held)
        device.launch_dependents()
        device.grid_dependency_wait()
        for group in range(groups):
            fetch(x, group, first + 8 * group + (lane >> 2), given)
        for token in range(thread() >> 5, tokens, warps):
            inverse[token] = norm_scale(squares, first + token)
        multiply(held, given, sums)
        cuda.syncthreads()
        for turn in range(rounds):
            which = turn * warps + (thread() >> 5)
            if which < gates:
                pair = (which >> 2) // groups
                number = which + pair * groups * 4
                row, local = spot(which)
                gate = made(number, sums) * inverse[local]
                up = made(number + groups * 4, sums) * inverse[local]
                silu = gate / (float32(1) + libdevice.exp2f(gate * float32(-_LOG2_E)))
                put(words, first + local, 8 * tile + row, silu * up, 8)

    return Launch(batch_gate_up, token_tiles * (2 * units // (16 * tiles)), threads)
