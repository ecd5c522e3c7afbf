"""Weights times one vector, as fast as memory gives them: the decoding of one token by a large language model.

A few blocks a multiprocessor go over tiles of 16 or 32 rows; the warps of a block share the columns of a tile, 128 at a
time. Products are made on tensor cores, as in `graphdsl.kernels.tiles`, because nothing else turns weights of 4 bits
into sums as fast as memory gives them. Each warp has the weights of its next two turns on their way, those of the first
two before it waits for the kernel in front.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from numba import cuda, float32, uint32
from numba.cuda import libdevice

from graphdsl import device

from .choices import choice_key
from .launch import Launch
from .threads import ALL_LANES, WARP, block, block_sum, device_function, lanes_sum, thread
from .tiles import BLOCK, BRAIN_FLOATS, HALVES, NIBBLES, Numbers, no_scales, plain_words, twice, words_of_nibbles
from .weights import halves

_LOG2_E = 1.4426950408889634
_SHARED_BYTES = 48 * 1024  # of a block, without asking for more
_TURN = 4  # blocks of columns that a warp takes at a time


class Stream(NamedTuple):
    """How a warp takes weights in a format, four blocks of a row at a time.

    Attributes
    ----------
    tiles : int
        Of 16 rows, that a warp makes at a time.
    held : int
        Words that a lane holds of a row.
    load : device function
        ``load(matrix, turn, part, held, at)`` loads those of lane ``part`` of four; turns count over all rows.
    words : device function
        ``words(held, at, each)`` makes four words of one of the four blocks: two for each product.
    scales : device function
        ``scales(held, at, each)`` gives its scale, and what is added to each weight.
    numbers : Numbers
    """

    tiles: int
    held: int
    load: Callable[..., Any]
    words: Callable[..., Any]
    scales: Callable[..., Any]
    numbers: Numbers


@device_function
def _load_plain(matrix, turn, part, held, at):
    for each in range(_TURN):
        a, b, c, d = device.load4(matrix[0], ((turn * _TURN + each) * 4 + part) * 8)
        held[at + 4 * each], held[at + 4 * each + 1], held[at + 4 * each + 2], held[at + 4 * each + 3] = a, b, c, d


@device_function
def _plain_words(held, at, each):
    return plain_words(held, at + 4 * each)


@device_function
def _no_scales(held, at, each):
    return no_scales(held, at)


@device_function
def _load_nibbles(matrix, turn, part, held, at):
    a, b, c, d = device.load4(matrix[0], (turn * 4 + part) * 16)
    held[at], held[at + 1], held[at + 2], held[at + 3] = a, b, c, d
    held[at + 4] = device.load_word(matrix[1], turn * _TURN)
    held[at + 5] = device.load_word(matrix[1], turn * _TURN + 2)


@device_function
def _load_nibbles_and_least(matrix, turn, part, held, at):
    a, b, c, d = device.load4(matrix[0], (turn * 4 + part) * 16)
    held[at], held[at + 1], held[at + 2], held[at + 3] = a, b, c, d
    a, b, c, d = device.load4(matrix[1], turn * _TURN)
    held[at + 4], held[at + 5], held[at + 6], held[at + 7] = a, b, c, d


@device_function
def _words_of_nibbles(held, at, each):
    return words_of_nibbles(held, at + each)


@device_function
def _scales_of_nibbles(held, at, each):
    scale = halves(held[at + 4 + each // 2])[each % 2]
    return scale, float32(-8) * scale


@device_function
def _scales_of_nibbles_and_least(held, at, each):
    return halves(held[at + 4 + each])


STREAMS = {
    "f16": Stream(1, 16, _load_plain, _plain_words, _no_scales, HALVES),
    "bf16": Stream(1, 16, _load_plain, _plain_words, _no_scales, BRAIN_FLOATS),
    "q4_0": Stream(2, 6, _load_nibbles, _words_of_nibbles, _scales_of_nibbles, NIBBLES),
    "q4_1": Stream(2, 8, _load_nibbles_and_least, _words_of_nibbles, _scales_of_nibbles_and_least, NIBBLES),
}
"""By the name of the format; those of 4 bits with `graphdsl.kernels.packing.by_lanes`."""


def streamed(columns, rows, weights, eps, warps, multiprocessors, finish):
    """A device function that multiplies a matrix with a vector, and the launch that it needs.

    Parameters
    ----------
    columns, rows : int
        Of the matrix: multiples of 128, and of the rows of a tile.
    weights : str
        Its format.
    eps : float or None
        Of a root mean square norm of the vector; None for no norm.
    warps : int
        In a block.
    multiprocessors : int
        Of the device.
    finish : device function
        ``finish(to, row, value, lane)`` is called by all lanes of a warp, those of a tile with its rows.

    Returns
    -------
    run : device function
        ``run(x, gain, matrix, to)``.
    grid, threads : int
    bounds : tuple of int
        The launch bounds.

    Raises
    ------
    ValueError
        If the matrix has no whole tiles.
    """
    tiles, size, load, words, scales, (scaled, place, split, multiply, _, factor) = STREAMS[weights]
    height = 16 * tiles
    if rows % height or columns % (_TURN * BLOCK):
        raise ValueError(
            f"{rows} rows of {columns} weights have no whole tiles of {height} rows by {_TURN * BLOCK} columns"
        )
    threads = warps * WARP
    all_tiles = rows // height
    grid = min(all_tiles, multiprocessors * max(1, 16 // warps))
    turns = columns // (_TURN * BLOCK)
    padded = -(-turns // (2 * warps)) * 2 * warps  # each warp makes as many of a tile, two at a time
    quads = columns // 4
    rounds = -(-quads // threads)
    vector_words, words_held = columns // 2, 2 * tiles * size
    numbers = 4 * tiles
    blocks = columns // BLOCK
    # Tiles take turns between two halves of shared memory where there is room for two: one barrier each is enough then.
    one_half = warps * height
    needed = 4 * (2 * vector_words + WARP + blocks + 2 * one_half)
    halves = 2 if needed <= _SHARED_BYTES else 1
    gain_numbers, made_numbers = 4 * rounds, halves * one_half
    both = twice(multiply)
    normed = eps is not None
    unit, last = (2.0**24 * factor, 1.0) if scaled else (1.0, factor)  # what sums are multiplied with, and results
    epsilon = eps if normed else 0.0

    @device_function
    def load_turn(matrix, tile, turn, held):
        lane = thread() & 31
        for half_tile in range(2 * tiles):
            row = tile * height + 8 * half_tile + (lane >> 2)
            load(matrix, row * turns + turn, lane & 3, held, half_tile * size)

    @device_function
    def stage(x, gains, high, low, sums):
        """Put the vector into shared memory, in two parts, and the sum of each block; gives the sum of the squares of
        what the thread puts.
        """
        squares = float32(0)
        for step in range(rounds):
            i = step * threads + thread()
            if i < quads:
                a, b, c, d = device.load4_cg(x, 4 * i)
                if normed:
                    squares += a * a + b * b + c * c + d * d
                    a, b = a * gains[4 * step], b * gains[4 * step + 1]
                    c, d = c * gains[4 * step + 2], d * gains[4 * step + 3]
                at = ((i >> 3) * BLOCK + place(i & 7)) // 2
                high[at], high[at + 1], low[at], low[at + 1] = split(a, b, c, d)
            else:
                a = b = c = d = float32(0)
            if scaled:
                total = lanes_sum(a + b + c + d, 8)
                if i < quads and i & 7 == 0:
                    sums[i >> 3] = total
        return squares

    @device_function
    def multiply_turn(high, low, sums, turn, held, found):
        """Add the products of four blocks of columns. Every column of the result is that of the one vector."""
        zero = float32(0)
        for each in range(_TURN):
            at = (turn * _TURN + each) * (BLOCK // 2) + (thread() & 3) * 4
            h0, h1, h2, h3 = device.load4(high, at)
            l0, l1, l2, l3 = device.load4(low, at)
            total = sums[turn * _TURN + each] if scaled else zero
            for tile in range(tiles):
                a0, a2, a4, a6 = words(held, 2 * tile * size, each)
                a1, a3, a5, a7 = words(held, (2 * tile + 1) * size, each)
                if scaled:
                    c0, c1, c2, c3 = multiply(a0, a1, a2, a3, h0, h1, zero, zero, zero, zero)
                    c0, c1, c2, c3 = multiply(a4, a5, a6, a7, h2, h3, c0, c1, c2, c3)
                    d0, d1, d2, d3 = multiply(a0, a1, a2, a3, l0, l1, zero, zero, zero, zero)
                    d0, d1, d2, d3 = multiply(a4, a5, a6, a7, l2, l3, d0, d1, d2, d3)
                    scale, least = scales(held, 2 * tile * size, each)
                    found[4 * tile] += scale * float32(unit) * (c0 + d0) + least * total
                    scale, least = scales(held, (2 * tile + 1) * size, each)
                    found[4 * tile + 2] += scale * float32(unit) * (c2 + d2) + least * total
                else:
                    c0, c1, c2, c3 = found[4 * tile], found[4 * tile + 1], found[4 * tile + 2], found[4 * tile + 3]
                    c0, c1, c2, c3 = both(a0, a1, a2, a3, h0, h1, l0, l1, c0, c1, c2, c3)
                    c0, c1, c2, c3 = both(a4, a5, a6, a7, h2, h3, l2, l3, c0, c1, c2, c3)
                    found[4 * tile], found[4 * tile + 1], found[4 * tile + 2], found[4 * tile + 3] = c0, c1, c2, c3

    @device_function
    def go_on(matrix, tile, turn, held):
        """Load what comes after the turns that the warps make now: of the same tile, or of the block's next one."""
        turn += 2 * warps
        if turn >= padded:
            tile += grid
            turn -= padded
        if tile < all_tiles and turn < turns:
            load_turn(matrix, tile, turn, held)

    @device_function
    def run(x, gain, matrix, to):
        high = cuda.shared.array(vector_words, uint32, alignment=16)
        low = cuda.shared.array(vector_words, uint32, alignment=16)
        partial = cuda.shared.array(32, float32, alignment=16)
        made = cuda.shared.array(made_numbers, float32, alignment=16)
        sums = cuda.shared.array(blocks, float32, alignment=16)
        even = cuda.local.array(words_held, uint32)
        odd = cuda.local.array(words_held, uint32)
        gains = cuda.local.array(gain_numbers, float32)
        found = cuda.local.array(numbers, float32)
        t = thread()
        lane = t & 31
        warp = t >> 5
        tile = block()
        if 2 * warp < turns:  # two turns that lie together
            load_turn(matrix, tile, 2 * warp, even)
        if 2 * warp + 1 < turns:
            load_turn(matrix, tile, 2 * warp + 1, odd)
        if normed:
            for step in range(rounds):
                i = step * threads + t
                if i < quads:
                    a, b, c, d = device.load4(gain, 4 * i)
                    gains[4 * step], gains[4 * step + 1], gains[4 * step + 2], gains[4 * step + 3] = a, b, c, d
        device.launch_dependents()
        device.grid_dependency_wait()
        inverse = float32(last)
        squares = stage(x, gains, high, low, sums)
        if normed:
            mean = block_sum(squares, partial, warps) * float32(1 / columns)
            inverse *= libdevice.rsqrtf(mean + float32(epsilon))
        else:
            cuda.syncthreads()
        half = 0
        while tile < all_tiles:
            for i in range(numbers):
                found[i] = float32(0)
            turn = 2 * warp
            while turn < padded:
                if turn < turns:
                    multiply_turn(high, low, sums, turn, even, found)
                go_on(matrix, tile, turn, even)
                if turn + 1 < turns:
                    multiply_turn(high, low, sums, turn + 1, odd, found)
                go_on(matrix, tile, turn + 1, odd)
                turn += 2 * warps
            if lane & 3 == 0:
                for each in range(tiles):
                    at = half + warp * height + 16 * each + (lane >> 2)
                    made[at] = found[4 * each]
                    made[at + 8] = found[4 * each + 2]
            cuda.syncthreads()
            if warp == 0:
                value = float32(0)
                for each in range(warps):
                    value += made[half + each * height + (lane & (height - 1))]
                finish(to, tile * height + (lane & (height - 1)), value * inverse, lane)
            if halves == 2:
                half = one_half - half
            else:
                cuda.syncthreads()
            tile += grid

    return run, grid, threads, (threads, max(1, 16 // warps))


@functools.cache
def matvec(columns, rows, *, weights="bf16", eps=None, add=False, warps=8, multiprocessors=132):
    """``y = weights @ x``, with a norm of ``x`` before, and added to ``y`` if it is to be.

    Parameters
    ----------
    columns : int
        A multiple of 128.
    rows : int
        A multiple of 16, or of 32 for weights of 4 bits.
    weights : str
        Their format: ``"f16"``, ``"bf16"``, ``"q4_0"`` or ``"q4_1"``, the latter two with
        `graphdsl.kernels.packing.by_lanes`.
    eps : float, optional
        Of the root mean square norm; None for no norm.
    add : bool
        Add to ``y``.
    warps : int
        In a block: 8 or 16, which share the columns.
    multiprocessors : int
        Of the device: how many blocks are enough follows from it.

    Returns
    -------
    Launch
        Its kernel takes

        - ``x``, float32 (columns,), read.
        - ``gain``, float32 (columns,), read: of the norm. Without one, any float32 array; it is not read.
        - ``matrix`` (rows, columns), read, before the wait, too.
        - ``y``, float32 (rows,), written, and read if it is added to.

    Raises
    ------
    ValueError
        If the matrix has no whole tiles.
    """

    @device_function
    def finish(to, row, value, lane):
        if lane < height:
            if add:
                value += to[0][row]
            to[0][row] = value

    height = 16 * STREAMS[weights].tiles
    run, grid, threads, bounds = streamed(columns, rows, weights, eps, warps, multiprocessors, finish)

    @cuda.jit(fastmath=True, launch_bounds=bounds)
    def matvec(x, gain, matrix, y):
        run(x, gain, matrix, (y,))

    return Launch(matvec, grid, threads)


@functools.cache
def matvec_qkv_rotary_append(
    hidden, heads, kv_heads, head_size, *, eps=1e-5, weights="bf16", warps=8, multiprocessors=132
):
    """As `graphdsl.kernels.decode.qkv_rotary_append`, for a large model.

    Returns
    -------
    Launch
        Its kernel takes ``x``, ``gain``, ``projection``, ``rotary``, ``position``, ``q``, ``keys`` and ``values`` as
        that of `qkv_rotary_append` takes them; nothing is cleared, and ``position`` is read behind the wait.

    Raises
    ------
    ValueError
        If the projection has no whole tiles.
    """
    q_rows, kv_rows = heads * head_size, kv_heads * head_size
    half = head_size // 2
    height = 16 * STREAMS[weights].tiles

    @device_function
    def finish(to, row, value, lane):
        rotary, position, q, keys, values = to
        other = cuda.shfl_xor_sync(ALL_LANES, value, 1)
        p = position[0] & 0xFFFFF
        if lane < height:
            if row < q_rows + kv_rows:
                at = p * head_size + ((row & (head_size - 1)) >> 1)
                cosine = rotary[at]
                sine = rotary[at + half]
                value = value * cosine + other * sine if row & 1 else value * cosine - other * sine
            if row < q_rows:
                q[row] = value
            elif row < q_rows + kv_rows:
                keys[p * kv_rows + row - q_rows] = value
            else:
                values[p * kv_rows + row - q_rows - kv_rows] = value

    run, grid, threads, bounds = streamed(hidden, q_rows + 2 * kv_rows, weights, eps, warps, multiprocessors, finish)

    @cuda.jit(fastmath=True, launch_bounds=bounds)
    def matvec_qkv_rotary_append(x, gain, projection, rotary, position, q, keys, values):
        run(x, gain, projection, (rotary, position, q, keys, values))

    return Launch(matvec_qkv_rotary_append, grid, threads)


@functools.cache
def matvec_gate_up(hidden, units, *, eps=1e-5, weights="bf16", warps=8, multiprocessors=132):
    """RMS norm, gate and up, and the gating: ``silu(gate @ n) * (up @ n)``, ``n = norm(x)``.

    Returns
    -------
    Launch
        Its kernel takes

        - ``x``, float32 (hidden,), read.
        - ``gain``, float32 (hidden,), read: of the norm.
        - ``gate_up``, matrix (2 * units, hidden), read: `graphdsl.kernels.packing.interleaved` by 8 rows, or by 16 for
          weights of 4 bits.
        - ``y``, float32 (units,), written.

    Raises
    ------
    ValueError
        If the matrix has no whole tiles.
    """
    turn = 8 * STREAMS[weights].tiles

    @device_function
    def finish(to, row, gate, lane):
        up = cuda.shfl_xor_sync(ALL_LANES, gate, turn)
        if lane < turn:
            silu = gate / (float32(1) + libdevice.exp2f(gate * float32(-_LOG2_E)))
            to[0][row // (2 * turn) * turn + lane] = silu * up

    run, grid, threads, bounds = streamed(hidden, 2 * units, weights, eps, warps, multiprocessors, finish)

    @cuda.jit(fastmath=True, launch_bounds=bounds)
    def matvec_gate_up(x, gain, gate_up, y):
        run(x, gain, gate_up, (y,))

    return Launch(matvec_gate_up, grid, threads)


@functools.cache
def matvec_best(hidden, vocabulary, *, eps=1e-5, weights="bf16", warps=8, multiprocessors=132):
    """RMS norm, the product with the rows of all tokens, and the choice of the largest, for a large model.

    Returns
    -------
    Launch
        Its kernel takes ``x``, ``gain``, ``table`` and ``best`` as that of `graphdsl.kernels.head.greedy_head` does.

    Raises
    ------
    ValueError
        If the matrix has no whole tiles.
    """

    @device_function
    def finish(to, row, value, lane):
        key = choice_key(value, row)
        for step in (16, 8, 4, 2, 1):  # lanes that have the row of another change nothing
            key = max(key, cuda.shfl_xor_sync(ALL_LANES, key, step))
        if lane == 0:
            cuda.atomic.max(to[0], 0, key)

    run, grid, threads, bounds = streamed(hidden, vocabulary, weights, eps, warps, multiprocessors, finish)

    @cuda.jit(fastmath=True, launch_bounds=bounds)
    def matvec_best(x, gain, table, best):
        run(x, gain, table, (best,))

    return Launch(matvec_best, grid, threads)
