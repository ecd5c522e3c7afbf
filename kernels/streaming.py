"""Weights times one vector, as fast as memory gives them: what the kernels of `graphdsl.kernels.matvec` share.

A few blocks a multiprocessor go over tiles of 16 or 32 rows; the warps of a block share the columns of a tile, 128 at a
time, which make a turn. Products are made on tensor cores, as in `graphdsl.kernels.tiles`, because nothing else turns
weights of 4 bits into sums as fast as memory gives them. Each warp has the weights of its next turns on their way,
those of the first before it waits for the kernel in front.

A tensor core multiplies a matrix with eight vectors, and there is one. Its upper part is the even ones of the eight,
its lower part the odd ones, so that one product makes both. With weights of 4 bits, lane part p of four holds what a
row has in block p of a turn: vectors 2 p and 2 p + 1 are zero but for that block, and the part that has their results
has the sum of its block alone, to which it applies the block's scale.

This module must not hold kernels.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from numba import cuda, float32, uint32
from numba.cuda import libdevice

from graphdsl import device

from .threads import WARP, block, device_function, lanes_sum, thread, warp_sum
from .tiles import BLOCK, BRAIN_FLOATS, HALVES, NIBBLES, Numbers, plain_words, words_of_nibbles
from .weights import halves

TURN = 4
"""Blocks of columns that a warp takes at a time."""

_SHARED_BYTES = 48 * 1024  # of a block, without asking for more
_AT_ONCE = 6  # loads of a thread
_COLUMNS = TURN * BLOCK
_SECTOR = 32  # bytes, by which memory goes into the L2 cache


class Shape(NamedTuple):
    """How the product is shared out.

    Attributes
    ----------
    warps : int
        In a block, a power of two; they share the columns.
    blocks : int
        On a multiprocessor.
    resident : int
        Blocks of which a multiprocessor can hold the registers. Where they are more than ``blocks``, those of the next
        kernel can start by a programmatic edge, and have their first weights on the way, while these still run.
    tiles : int
        Of 16 rows, that a warp makes at a time: 1 or 2.
    ahead : int
        Turns of which a warp has the weights on their way: a step.
    far : int
        Steps behind those of which the L2 cache is to have the weights.
    shared : int
        Bytes of shared memory that a block has at least: blocks of kernels that want it divided differently from the
        L1 cache do not share a multiprocessor.
    """

    warps: int = 8
    blocks: int = 2
    resident: int = 2
    tiles: int = 1
    ahead: int = 2
    far: int = 0
    shared: int = 0


class Stream(NamedTuple):
    """How a warp takes weights in a format, a turn at a time.

    Attributes
    ----------
    held : int
        Words that a lane holds of a row.
    parts : tuple of tuple of int
        For each array, elements in a turn of a row, and their bytes.
    load : device function
        ``load(matrix, turn, part, held, at)`` loads those of lane ``part`` of four; turns count over all rows.
    words : device function
        ``words(held, at, each)`` makes four words of one of the four words or vectors: two for each product.
    scaled : device function
        ``scaled(held, at, value, total)`` is the sum of a block of weights, given that of their numbers times the
        vector, and that of the vector.
    numbers : Numbers
    """

    held: int
    parts: tuple[tuple[int, int], ...]
    load: Callable[..., Any]
    words: Callable[..., Any]
    scaled: Callable[..., Any]
    numbers: Numbers


@device_function
def _load_plain(matrix, turn, part, held, at):
    for each in range(TURN):
        a, b, c, d = device.load4(matrix[0], ((turn * TURN + each) * 4 + part) * 8)
        held[at + 4 * each], held[at + 4 * each + 1], held[at + 4 * each + 2], held[at + 4 * each + 3] = a, b, c, d


@device_function
def _plain_words(held, at, each):
    return plain_words(held, at + 4 * each)


@device_function
def _not_scaled(held, at, value, total):
    return value


@device_function
def _load_nibbles(matrix, turn, part, held, at):
    a, b, c, d = device.load4(matrix[0], (turn * TURN + part) * 16)
    held[at], held[at + 1], held[at + 2], held[at + 3] = a, b, c, d
    held[at + 4] = device.as_word(matrix[1][turn * TURN + part])


@device_function
def _load_nibbles_and_least(matrix, turn, part, held, at):
    a, b, c, d = device.load4(matrix[0], (turn * TURN + part) * 16)
    held[at], held[at + 1], held[at + 2], held[at + 3] = a, b, c, d
    held[at + 4] = device.load_word(matrix[1], turn * TURN + part)


@device_function
def _words_of_nibbles(held, at, each):
    return words_of_nibbles(held, at + each)


@device_function
def _scaled_nibbles(held, at, value, total):
    return halves(held[at + 4])[0] * (value - float32(8) * total)


@device_function
def _scaled_nibbles_and_least(held, at, value, total):
    scale, least = halves(held[at + 4])
    return scale * value + least * total


_PLAIN, _NIBBLES, _NIBBLES_AND_LEAST = ((128, 256),), ((64, 64), (4, 8)), ((64, 64), (4, 16))
STREAMS = {
    "f16": Stream(16, _PLAIN, _load_plain, _plain_words, _not_scaled, HALVES),
    "bf16": Stream(16, _PLAIN, _load_plain, _plain_words, _not_scaled, BRAIN_FLOATS),
    "q4_0": Stream(5, _NIBBLES, _load_nibbles, _words_of_nibbles, _scaled_nibbles, NIBBLES),
    "q4_1": Stream(
        5, _NIBBLES_AND_LEAST, _load_nibbles_and_least, _words_of_nibbles, _scaled_nibbles_and_least, NIBBLES
    ),
}
"""By the name of the format."""

# The fastest of the cases in tests/kernels/speed_large.py.
PLAIN, OF_4_BITS = Shape(), Shape(16, blocks=1, resident=1, tiles=2)


def shape_for(weights):
    """The shape for weights in a format where none is given."""
    return OF_4_BITS if STREAMS[weights].numbers.scaled else PLAIN


@device_function
def _nothing(to, row, lane):
    return float32(0), float32(0)


def _fetched(height, turns, ahead, elements, nbytes):
    """A device function that has the L2 cache fetch what a tile of some rows has from a turn on in an array."""
    sectors = -(-ahead * nbytes // _SECTOR)
    width = elements * _SECTOR // nbytes  # elements in a sector
    items = height * sectors

    @device_function
    def fetched(array, tile, turn):
        for each in range(-(-items // WARP)):
            item = each * WARP + (thread() & 31)
            at = turn * elements + item % sectors * width
            if item < items and at < turns * elements:
                device.prefetch_l2(array, (tile * height + item // sectors) * (turns * elements) + at)

    return fetched


def streamed(columns, rows, weights, eps, shape, multiprocessors, finish, begin=_nothing):
    """A device function that multiplies a matrix with a vector, and the launch that it needs.

    Parameters
    ----------
    columns, rows : int
        Of the matrix: multiples of 128, and of the rows of a tile.
    weights : str
        Its format.
    eps : float or None
        Of a root mean square norm of the vector; None for no norm.
    shape : Shape or None
        None for `shape_for` the format.
    multiprocessors : int
        Of the device.
    finish : device function
        ``finish(to, row, value, a, b, lane)`` is called by all lanes of a warp with rows of a tile: those from 16 or 32
        on have the rows of others again.
    begin : device function
        ``begin(to, row, lane)`` loads the two numbers that it gets besides, as a tile begins.

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
    size, parts, load, words, apply_scale, (scaled, place, split, multiply, _, factor) = STREAMS[weights]
    warps, blocks, resident, tiles, ahead, far, shared = shape or shape_for(weights)
    height = 16 * tiles
    if rows % height or columns % _COLUMNS:
        raise ValueError(f"{rows} rows of {columns} weights have no whole tiles of {height} rows by {_COLUMNS} columns")
    threads = warps * WARP
    all_tiles = rows // height
    grid = min(all_tiles, multiprocessors * blocks)
    turns = columns // _COLUMNS
    step = ahead * warps  # turns that the warps of a block make before any makes one more
    padded = -(-turns // step) * step
    quads = columns // 4
    rounds = -(-quads // threads)
    at_once = min(rounds, _AT_ONCE)
    held_words = 2 * tiles * size
    all_held = ahead * held_words
    # Parts of the vector, those of a lane's eight columns beside each other, and then zeros, eight banks further.
    nothing, vector_words = columns + 8, columns + 40
    sums_held = columns // BLOCK if scaled else 1
    numbers = 2 * tiles if scaled else 4 * tiles
    # Tiles take turns between two halves of shared memory where there is room for two: one barrier each is enough then.
    one_half = warps * height
    needed = 4 * (vector_words + WARP + sums_held + 2 * one_half)
    halves = 2 if needed <= _SHARED_BYTES else 1
    vector_words += max(0, shared - needed) // 4
    gain_numbers, given_numbers, made_numbers = 4 * rounds, 4 * at_once, halves * one_half
    normed = eps is not None
    unit = 2.0**24 * factor if scaled else factor  # what sums of products must be multiplied with
    epsilon = eps if normed else 0.0

    fetch_weights = _fetched(height, turns, ahead, *parts[0])
    fetch_scales = _fetched(height, turns, ahead, *parts[-1])

    @device_function
    def load_turn(matrix, tile, turn, held, at):
        lane = thread() & 31
        first = (tile * height + (lane >> 2)) * turns + turn
        for half_tile in range(2 * tiles):
            load(matrix, first + half_tile * (8 * turns), lane & 3, held, at + half_tile * size)

    @device_function
    def fetch_step(matrix, tile, turn, steps):
        """Have the L2 cache fetch the weights of the warp so many steps further."""
        turn += steps * step
        while turn >= padded:
            tile += grid
            turn -= padded
        if tile < all_tiles and turn < turns:
            fetch_weights(matrix[0], tile, turn)
            if scaled:
                fetch_scales(matrix[1], tile, turn)

    @device_function
    def stage(x, gains, vector, sums):
        """Put the vector into shared memory, in two parts, and the sum of each block; gives the sum of the squares of
        what the thread puts.
        """
        given = cuda.local.array(given_numbers, float32)
        squares = float32(0)
        for first in range(0, rounds, at_once):
            for each in range(min(at_once, rounds - first)):  # all are asked for before any is waited for
                i = (first + each) * threads + thread()
                if i < quads:
                    a, b, c, d = device.load4_cg(x, 4 * i)
                else:
                    a = b = c = d = float32(0)
                given[4 * each], given[4 * each + 1], given[4 * each + 2], given[4 * each + 3] = a, b, c, d
            for each in range(min(at_once, rounds - first)):
                i = (first + each) * threads + thread()
                a, b, c, d = given[4 * each], given[4 * each + 1], given[4 * each + 2], given[4 * each + 3]
                if normed:
                    squares += a * a + b * b + c * c + d * d
                    at = 4 * (first + each)
                    a, b, c, d = a * gains[at], b * gains[at + 1], c * gains[at + 2], d * gains[at + 3]
                if i < quads:
                    word = place(i & 7) // 2
                    at = (i >> 3) * BLOCK + (word >> 2) * 8 + (word & 3)
                    vector[at], vector[at + 1], vector[at + 4], vector[at + 5] = split(a, b, c, d)
                if scaled:
                    total = lanes_sum(a + b + c + d, 8)
                    if i < quads and i & 7 == 0:
                        sums[i >> 3] = total * float32(1 / unit)
        return squares

    @device_function
    def multiply_turn(vector, sums, turn, held, at, found):
        """Add the products of a turn."""
        lane = thread() & 31
        part = lane & 3
        lower = ((lane >> 2) & 1) * 4
        if scaled:
            total = sums[turn * TURN + part]
            own = (turn * TURN + part) * BLOCK + lower if lane >> 3 == part else nothing
            for tile in range(tiles):
                c0 = c1 = c2 = c3 = float32(0)
                for each in range(TURN):
                    b0, b1, b2, b3 = device.load4(vector, own + 8 * each)
                    a0, a2, a4, a6 = words(held, at + 2 * tile * size, each)
                    a1, a3, a5, a7 = words(held, at + (2 * tile + 1) * size, each)
                    c0, c1, c2, c3 = multiply(a0, a1, a2, a3, b0, b1, c0, c1, c2, c3)
                    c0, c1, c2, c3 = multiply(a4, a5, a6, a7, b2, b3, c0, c1, c2, c3)
                found[2 * tile] += apply_scale(held, at + 2 * tile * size, c0 + c1, total)
                found[2 * tile + 1] += apply_scale(held, at + (2 * tile + 1) * size, c2 + c3, total)
        else:
            own = turn * _COLUMNS + 8 * part + lower
            for tile in range(tiles):
                c0, c1, c2, c3 = found[4 * tile], found[4 * tile + 1], found[4 * tile + 2], found[4 * tile + 3]
                for each in range(TURN):
                    b0, b1, b2, b3 = device.load4(vector, own + BLOCK * each)
                    a0, a2, a4, a6 = words(held, at + 2 * tile * size, each)
                    a1, a3, a5, a7 = words(held, at + (2 * tile + 1) * size, each)
                    c0, c1, c2, c3 = multiply(a0, a1, a2, a3, b0, b1, c0, c1, c2, c3)
                    c0, c1, c2, c3 = multiply(a4, a5, a6, a7, b2, b3, c0, c1, c2, c3)
                found[4 * tile], found[4 * tile + 1], found[4 * tile + 2], found[4 * tile + 3] = c0, c1, c2, c3

    @device_function
    def put(found, made, at):
        """Put what the warp found for its columns of each row into shared memory."""
        lane = thread() & 31
        for half_tile in range(2 * tiles):
            value = lanes_sum(found[half_tile], 4) if scaled else found[2 * half_tile] + found[2 * half_tile + 1]
            if lane & 3 == 0:
                made[at + 8 * half_tile + (lane >> 2)] = value

    @device_function
    def go_on(matrix, tile, turn, held, at):
        """Load what comes after the turns that the warps make now: of the same tile, or of the block's next one."""
        turn += step
        if turn >= padded:
            tile += grid
            turn -= padded
        if tile < all_tiles and turn < turns:
            load_turn(matrix, tile, turn, held, at)

    @device_function
    def run(x, gain, matrix, to):
        vector = cuda.shared.array(vector_words, uint32, alignment=16)
        partial = cuda.shared.array(32, float32, alignment=16)
        made = cuda.shared.array(made_numbers, float32, alignment=16)
        sums = cuda.shared.array(sums_held, float32, alignment=16)
        held = cuda.local.array(all_held, uint32)
        gains = cuda.local.array(gain_numbers, float32)
        found = cuda.local.array(numbers, float32)
        t = thread()
        lane = t & 31
        warp = t >> 5
        tile = block()
        for each in range(ahead):  # turns that lie together
            if ahead * warp + each < turns:
                load_turn(matrix, tile, ahead * warp + each, held, each * held_words)
        for each in range(far):
            fetch_step(matrix, tile, ahead * warp, each + 1)
        if normed:
            for each in range(rounds):
                i = each * threads + t
                if i < quads:
                    a, b, c, d = device.load4(gain, 4 * i)
                else:
                    a = b = c = d = float32(0)
                gains[4 * each], gains[4 * each + 1], gains[4 * each + 2], gains[4 * each + 3] = a, b, c, d
        if t < WARP:
            vector[nothing + t] = 0
        device.launch_dependents()
        device.grid_dependency_wait()
        squares = stage(x, gains, vector, sums)
        inverse = float32(0 if normed else unit)
        cuda.syncthreads()
        half = 0
        while tile < all_tiles:
            row = (tile & 0xFFFFFF) * height + (lane & (height - 1))
            if warp == 0:
                first, second = begin(to, row, lane)
            else:
                first = second = float32(0)
            for i in range(numbers):
                found[i] = float32(0)
            turn = ahead * warp
            while turn < padded:
                if far:
                    fetch_step(matrix, tile, turn, far + 1)
                for each in range(ahead):
                    if turn + each < turns:
                        multiply_turn(vector, sums, turn + each, held, each * held_words, found)
                    go_on(matrix, tile, turn + each, held, each * held_words)
                turn += step
            if normed and tile == block():
                squares = warp_sum(squares)
                if lane == 0:
                    partial[warp] = squares
            put(found, made, (half & one_half) + warp * height)
            cuda.syncthreads()
            if warp == 0:
                if inverse == float32(0):
                    mean = warp_sum(partial[lane] if lane < warps else float32(0)) * float32(1 / columns)
                    inverse = libdevice.rsqrtf(mean + float32(epsilon)) * float32(unit)
                value = float32(0)
                for each in range(warps):
                    value += made[(half & one_half) + each * height + (lane & (height - 1))]
                finish(to, row, value * inverse, first, second, lane)
            if halves == 2:
                half ^= one_half
            else:
                cuda.syncthreads()
            tile += grid

    return run, grid, threads, (threads, resident)
