"""Weights times many vectors, for the processing of prompts and for batches: ``y = x @ weights.T``.

The vectors are the rows of a matrix of float32, one a token. All kernels are made of `multiplied`, and differ in what
they do before (a norm) and behind (add, rotate and append, gate). Rows of ``x`` do not touch each other's results: what
stands in rows of padding, NaN included, stays there.
"""

import functools
from typing import Any, NamedTuple

from numba import cuda, float32, uint32
from numba.cuda import libdevice

from graphdsl import device

from .launch import Launch
from .threads import ALL_LANES, WARP, block, device_function, lanes_sum, thread
from .tiles import BLOCK, FRAGMENTS, twice

_LOG2_E = 1.4426950408889634


class Tiling(NamedTuple):
    """How a product is shared out.

    Attributes
    ----------
    tokens : int
        A block makes, a multiple of 8.
    tiles : int
        Of 16 rows of weights, that a warp makes: 1 or 2.
    warps : int
        In a block, each with rows of its own.
    """

    tokens: int
    tiles: int
    warps: int


class Shape(NamedTuple):
    """A product, and the launch that makes it.

    Attributes
    ----------
    multiplied : device function
        ``multiplied(x, gain, matrix, found)`` fills an array of the thread: number ``(tile * groups + group) * 4 + i``
        is the product of row ``first_row() + 16 * tile + 8 * (i // 2)`` with token
        ``first_token() + 8 * group + i % 2``.
    first_row, first_token : device functions
    numbers, groups : int
        In that array, and of 8 tokens in the block.
    grid, block : int
    """

    multiplied: Any
    first_row: Any
    first_token: Any
    numbers: int
    groups: int
    grid: int
    block: int


@functools.cache
def product(count, columns, rows, weights, eps, tiling):
    """The product that the kernels here are made of.

    Parameters
    ----------
    count, columns, rows : int
        Tokens, length of a token's vector, rows of weights.
    weights : str
        Format, as in `graphdsl.kernels.tiles`.
    eps : float or None
        Of the root mean square norm of the tokens; None for no norm.
    tiling : Tiling

    Returns
    -------
    Shape

    Raises
    ------
    ValueError
        If the tiling does not divide the matrices.
    """
    form = FRAGMENTS[weights]
    tokens, tiles, warps = tiling
    rows_of_block = 16 * tiles * warps
    if count % tokens or tokens % 8 or rows % rows_of_block or columns % BLOCK:
        raise ValueError(
            f"{count} tokens by {rows} rows of {columns} weights cannot be shared out by blocks of {tokens} tokens by "
            f"{rows_of_block} rows: take a tiling that divides them, of a multiple of 8 tokens"
        )
    threads = warps * WARP
    chunk = next(size for size in (128, 64, 32) if columns % size == 0)  # columns in shared memory at a time
    chunks, blocks = columns // chunk, columns // BLOCK
    blocks_of_chunk = chunk // BLOCK
    quads = chunk // 4  # of a token
    turns = -(-tokens * quads // threads)
    stride = chunk // 2 + (16 if chunk % 64 == 0 else 0)  # words of a token: lanes of two tokens stay off each other
    groups, token_tiles = tokens // 8, count // tokens
    shared_words, held_words = tokens * stride, tiles * 2 * blocks_of_chunk * form.held
    size, load, words, scales, (scaled, place, split, multiply, one, factor) = form
    both = twice(multiply)
    normed = eps is not None
    epsilon = eps if normed else 0.0
    numbers, fresh_numbers = tiles * groups * 4, 4 * turns

    @device_function
    def first_row():
        return (block() // token_tiles) * rows_of_block + (thread() >> 5) * (16 * tiles) + ((thread() & 31) >> 2)

    @device_function
    def first_token():
        return (block() % token_tiles) * tokens + 2 * (thread() & 3)

    @device_function
    def load_weights(matrix, at_chunk, held):
        row = first_row()
        part = thread() & 3
        for half_tile in range(2 * tiles):
            for each in range(blocks_of_chunk):
                at = (half_tile * blocks_of_chunk + each) * size
                load(matrix, rows, blocks, row + 8 * half_tile, at_chunk * blocks_of_chunk + each, part, held, at)

    @device_function
    def fetch(x, at_chunk, fresh):
        """Load the thread's part of a chunk of the tokens."""
        for turn in range(turns):
            i = turn * threads + thread()
            if i < tokens * quads:
                row = (block() % token_tiles) * tokens + i // quads
                a, b, c, d = device.load4_cg(x, row * columns + at_chunk * chunk + 4 * (i % quads))
                fresh[4 * turn], fresh[4 * turn + 1], fresh[4 * turn + 2], fresh[4 * turn + 3] = a, b, c, d

    @device_function
    def stage(fresh, gain, at_chunk, high, low, squares):
        """Put what was loaded into shared memory, in two parts; count the squares for the norm."""
        for turn in range(turns):
            i = turn * threads + thread()
            if i < tokens * quads:
                quad = i % quads
                a, b, c, d = fresh[4 * turn], fresh[4 * turn + 1], fresh[4 * turn + 2], fresh[4 * turn + 3]
                if normed:
                    squares[turn] += a * a + b * b + c * c + d * d
                    e, f, g, h = device.load4(gain, at_chunk * chunk + 4 * quad)
                    a, b, c, d = a * e, b * f, c * g, d * h
                at = (i // quads) * stride + ((quad >> 3) * BLOCK + place(quad & 7)) // 2
                high[at], high[at + 1], low[at], low[at + 1] = split(a, b, c, d)

    @device_function
    def multiply_block(high, low, held, each, found):
        """Add the products of a block of columns."""
        lane = thread() & 31
        zero = float32(0)
        for group in range(groups):
            at = (group * 8 + (lane >> 2)) * stride + each * (BLOCK // 2) + (lane & 3) * 4
            h0, h1, h2, h3 = device.load4(high, at)
            l0, l1, l2, l3 = device.load4(low, at)
            s0, s1 = zero, zero
            if scaled:
                s0, s1, s2, s3 = both(one, one, one, one, h0, h1, l0, l1, zero, zero, zero, zero)
                s0, s1, s2, s3 = both(one, one, one, one, h2, h3, l2, l3, s0, s1, s2, s3)
            for tile in range(tiles):
                upper = (2 * tile * blocks_of_chunk + each) * size
                lower = ((2 * tile + 1) * blocks_of_chunk + each) * size
                a0, a2, a4, a6 = words(held, upper)
                a1, a3, a5, a7 = words(held, lower)
                to = (tile * groups + group) * 4
                if scaled:
                    c0, c1, c2, c3 = both(a0, a1, a2, a3, h0, h1, l0, l1, zero, zero, zero, zero)
                    c0, c1, c2, c3 = both(a4, a5, a6, a7, h2, h3, l2, l3, c0, c1, c2, c3)
                    scale, least = scales(held, upper)
                    scale *= float32(2**24)
                    found[to] += scale * c0 + least * s0
                    found[to + 1] += scale * c1 + least * s1
                    scale, least = scales(held, lower)
                    scale *= float32(2**24)
                    found[to + 2] += scale * c2 + least * s0
                    found[to + 3] += scale * c3 + least * s1
                else:
                    c0, c1, c2, c3 = found[to], found[to + 1], found[to + 2], found[to + 3]
                    c0, c1, c2, c3 = both(a0, a1, a2, a3, h0, h1, l0, l1, c0, c1, c2, c3)
                    c0, c1, c2, c3 = both(a4, a5, a6, a7, h2, h3, l2, l3, c0, c1, c2, c3)
                    found[to], found[to + 1], found[to + 2], found[to + 3] = c0, c1, c2, c3

    @device_function
    def multiplied(x, gain, matrix, found):
        high = cuda.shared.array(shared_words, uint32, alignment=16)
        low = cuda.shared.array(shared_words, uint32, alignment=16)
        inverse = cuda.shared.array(tokens, float32, alignment=16)
        held = cuda.local.array(held_words, uint32)
        ahead = cuda.local.array(held_words, uint32)
        fresh = cuda.local.array(fresh_numbers, float32)
        squares = cuda.local.array(turns, float32)
        load_weights(matrix, 0, held)
        device.launch_dependents()
        device.grid_dependency_wait()
        for i in range(numbers):
            found[i] = float32(0)
        for turn in range(turns):
            squares[turn] = float32(0)
        fetch(x, 0, fresh)
        for at_chunk in range(chunks):
            stage(fresh, gain, at_chunk, high, low, squares)
            cuda.syncthreads()
            if at_chunk + 1 < chunks:  # on its way while this chunk is multiplied
                fetch(x, at_chunk + 1, fresh)
                load_weights(matrix, at_chunk + 1, ahead)
            for each in range(blocks_of_chunk):
                multiply_block(high, low, held, each, found)
            if at_chunk + 1 < chunks:
                for i in range(held_words):
                    held[i] = ahead[i]
            cuda.syncthreads()
        if normed:
            for turn in range(turns):
                total = lanes_sum(squares[turn], quads)
                i = turn * threads + thread()
                if i < tokens * quads and i % quads == 0:
                    inverse[i // quads] = libdevice.rsqrtf(total * float32(1 / columns) + float32(epsilon))
            cuda.syncthreads()
        for tile in range(tiles):
            for group in range(groups):
                to = (tile * groups + group) * 4
                even = float32(factor)
                odd = float32(factor)
                if normed:
                    even *= inverse[group * 8 + 2 * (thread() & 3)]
                    odd *= inverse[group * 8 + 2 * (thread() & 3) + 1]
                found[to] *= even
                found[to + 1] *= odd
                found[to + 2] *= even
                found[to + 3] *= odd

    grid = token_tiles * (rows // rows_of_block)
    return Shape(multiplied, first_row, first_token, numbers, groups, grid, threads)


@functools.cache
def matmul(count, columns, rows, *, weights="q4_1", eps=None, add=False, tiling=None):
    """``y = x @ weights.T``, with a norm of ``x`` before, and added to ``y`` if it is to be.

    Parameters
    ----------
    count : int
        Tokens, a multiple of 8.
    columns, rows : int
        Of the weights.
    weights : str
        Their format, as in `graphdsl.kernels.tiles`.
    eps : float, optional
        Of the root mean square norm; None for no norm.
    add : bool
        Add to ``y``.
    tiling : Tiling, optional
        One that suits the shape, by default.

    Returns
    -------
    Launch
        Its kernel takes

        - ``x``, float32 (count * columns,), read.
        - ``gain``, float32 (columns,), read: of the norm. Without one, any float32 array; it is not read.
        - ``matrix`` (rows, columns), read; before the wait, too.
        - ``y``, float32 (count * rows,), written, and read if it is added to.

    Raises
    ------
    ValueError
        If the tiling does not divide the matrices.
    """
    shape = product(count, columns, rows, weights, eps, tiling or tiling_for(count, columns, rows))
    multiplied, first_row, first_token = shape.multiplied, shape.first_row, shape.first_token
    numbers, groups = shape.numbers, shape.groups
    tiles = numbers // (4 * groups)

    @cuda.jit(fastmath=True, launch_bounds=shape.block)
    def matmul(x, gain, matrix, y):
        found = cuda.local.array(numbers, float32)
        multiplied(x, gain, matrix, found)
        for tile in range(tiles):
            for group in range(groups):
                for i in range(4):
                    at = (first_token() + 8 * group + (i & 1)) * rows + first_row() + 16 * tile + 8 * (i >> 1)
                    value = found[(tile * groups + group) * 4 + i]
                    if add:
                        value += y[at]
                    y[at] = value

    return Launch(matmul, shape.grid, shape.block)


@functools.cache
def matmul_qkv_rotary_append(
    count, hidden, heads, kv_heads, head_size, *, eps=1e-5, weights="q4_1", positions=0, tiling=None
):
    """`graphdsl.kernels.decode.qkv_rotary_append` for many tokens: of one sequence, or each of one of its own.

    Parameters
    ----------
    count, hidden, heads, kv_heads, head_size : int
        Tokens, a multiple of 8; and the shape of the model.
    eps, weights, tiling
        As `matmul` takes them.
    positions : int
        0 for tokens that follow each other in one sequence. Otherwise each is of a sequence of its own, and so many
        positions of each sequence are in the cache.

    Returns
    -------
    Launch
        Its kernel takes

        - ``x``, float32 (count * hidden,), read.
        - ``gain``, float32 (hidden,), read: of the norm.
        - ``projection``, matrix ((heads + 2 * kv_heads) * head_size, hidden), read: rows of queries, keys, values.
        - ``rotary``, float32 (positions * head_size,), read.
        - ``position``, int32, read: (1,), of the first token; or (count,), of each token in its sequence.
        - ``length``, int32 (1,), read: how many tokens there are; the others are padding.
        - ``q``, float32 (count * heads * head_size,), written.
        - ``keys``, ``values``, float16 (positions * kv_heads * head_size,), of each sequence after the other, written
          at the positions of the tokens, but not of padding.

    Raises
    ------
    ValueError
        If the tiling does not divide the matrices.
    """
    q_rows, kv_rows = heads * head_size, kv_heads * head_size
    rows = q_rows + 2 * kv_rows
    shape = product(count, hidden, rows, weights, eps, tiling or tiling_for(count, hidden, rows))
    multiplied, first_row, first_token = shape.multiplied, shape.first_row, shape.first_token
    numbers, groups = shape.numbers, shape.groups
    tiles = numbers // (4 * groups)
    half = head_size // 2
    apart = positions > 0

    @cuda.jit(fastmath=True, launch_bounds=shape.block)
    def matmul_qkv_rotary_append(x, gain, projection, rotary, position, length, q, keys, values):
        found = cuda.local.array(numbers, float32)
        multiplied(x, gain, projection, found)
        count_of_tokens = length[0]
        for tile in range(tiles):
            for group in range(groups):
                for i in range(4):
                    value = found[(tile * groups + group) * 4 + i]
                    other = cuda.shfl_xor_sync(ALL_LANES, value, 4)  # the other row of the pair
                    token = first_token() + 8 * group + (i & 1)
                    row = first_row() + 16 * tile + 8 * (i >> 1)
                    p = position[token if apart else 0] & 0xFFFFF
                    to = p + token * positions if apart else p + token
                    if row < q_rows + kv_rows and token < count_of_tokens:
                        at = (p if apart else to) * head_size + ((row & (head_size - 1)) >> 1)
                        cosine = rotary[at]
                        sine = rotary[at + half]
                        value = value * cosine + other * sine if row & 1 else value * cosine - other * sine
                    if row < q_rows:
                        q[token * q_rows + row] = value
                    elif token < count_of_tokens:
                        if row < q_rows + kv_rows:
                            keys[to * kv_rows + row - q_rows] = value
                        else:
                            values[to * kv_rows + row - q_rows - kv_rows] = value

    return Launch(matmul_qkv_rotary_append, shape.grid, shape.block)


@functools.cache
def matmul_gate_up(count, hidden, units, *, eps=1e-5, weights="q4_1", width=16, tiling=None):
    """RMS norm, gate and up, and the gating: ``silu(n @ gate.T) * (n @ up.T)``, ``n = norm(x)``.

    Parameters
    ----------
    count, hidden, units : int
        Tokens, a multiple of 8; length of a token's vector; rows of gate and of up.
    eps, weights, tiling
        As `matmul` takes them.
    width : int
        Rows by which gate and up take turns, 16 or 8.

    Returns
    -------
    Launch
        Its kernel takes

        - ``x``, float32 (count * hidden,), read.
        - ``gain``, float32 (hidden,), read: of the norm.
        - ``gate_up``, matrix (2 * units, hidden), read: `graphdsl.kernels.packing.interleaved` by ``width``.
        - ``y``, float32 (count * units,), written.

    Raises
    ------
    ValueError
        If the tiling does not divide the matrices, or a warp would have gate without up.
    """
    tiling = tiling or tiling_for(count, hidden, 2 * units, width // 8)
    if width not in (8, 16) or 8 * tiling.tiles % width:
        raise ValueError(
            f"a warp of {tiling.tiles} tiles has no turns of {width} rows of gate and up: it needs 2 tiles"
        )
    shape = product(count, hidden, 2 * units, weights, eps, tiling)
    multiplied, first_row, first_token = shape.multiplied, shape.first_row, shape.first_token
    numbers, groups = shape.numbers, shape.groups
    turns = numbers // (8 * groups) if width == 16 else numbers // (4 * groups)
    rows_of_turn = 2 if width == 16 else 1
    up_of_gate = groups * 4 if width == 16 else 2  # how much further an array of the thread has up

    @cuda.jit(fastmath=True, launch_bounds=shape.block)
    def matmul_gate_up(x, gain, gate_up, y):
        found = cuda.local.array(numbers, float32)
        multiplied(x, gain, gate_up, found)
        for turn in range(turns):
            row = first_row() + 2 * width * turn
            unit = row // (2 * width) * width + row % width
            for group in range(groups):
                for i in range(2 * rows_of_turn):
                    at = (turn * rows_of_turn * groups + group) * 4 + i
                    gate = found[at]
                    silu = gate / (float32(1) + libdevice.exp2f(gate * float32(-_LOG2_E)))
                    to = (first_token() + 8 * group + (i & 1)) * units + unit + 8 * (i >> 1)
                    y[to] = silu * found[at + up_of_gate]

    return Launch(matmul_gate_up, shape.grid, shape.block)


def tiling_for(count, columns, rows, tiles=1):
    """A tiling that divides ``count`` tokens and ``rows`` rows.

    Small weights: few tokens a block, so that there are several blocks for each multiprocessor of a large GPU, some of
    which work while others wait. Large weights: many tokens, so that weights are read few times.

    Examples
    --------
    >>> tiling_for(128, 576, 960), tiling_for(32, 4096, 12288)
    (Tiling(tokens=8, tiles=1, warps=4), Tiling(tokens=32, tiles=1, warps=4))
    """
    warps = next((warps for warps in (4, 2, 1) if rows % (16 * tiles * warps) == 0), 0)
    if not warps or count % 8:
        raise ValueError(
            f"{count} tokens by {rows} rows: make the tokens a multiple of 8, and the rows one of {16 * tiles}"
        )
    blocks = 480 if rows * columns < 2**22 else 120
    fitting = [size for size in (64, 32, 16, 8) if count % size == 0]
    enough = [size for size in fitting if count // size * (rows // (16 * tiles * warps)) >= blocks]
    return Tiling((enough or fitting[-1:])[0], tiles, warps)
