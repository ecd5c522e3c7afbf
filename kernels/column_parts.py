"""Products that have the warps of a block share out the columns of rows: the parts that kernels of `batch` are made of.

Each warp multiplies some columns of a tile of 16 rows with the vectors of some tokens, and then the sums of all warps
are added up, in an order that the number of tokens does not change. This module must not hold kernels.
"""

import functools
from typing import Any, NamedTuple

from numba import cuda, float32
from numba.cuda import libdevice

from graphdsl import device

from .threads import ALL_LANES, WARP, device_function, thread, warp_sum
from .tiles import BLOCK, FRAGMENTS, twice
from .weights import halves

_SHRINK = 2.0**-4  # of vectors, as `tiles` shrinks them
_GROUP = 8  # numbers of a vector whose squares are added


class Tiling(NamedTuple):
    """How a product is shared out.

    Attributes
    ----------
    tokens : int
        A block makes: 8, 16 or 32.
    tiles : int
        Of 16 rows of weights, that a block makes.
    warps : int
        In a block, each with some of the columns: a divisor of the blocks of 32 that a row has. The order of sums
        depends on it.
    """

    tokens: int
    tiles: int
    warps: int


class Product(NamedTuple):
    """A product, and the launch that makes it.

    Attributes
    ----------
    load : device function
        ``load(matrix, tile, held)`` loads the warp's part of the weights of a tile, the first of ``tiles``, into an
        array of ``held`` words.
    fetch : device function
        ``fetch(x, group, token, given)`` loads the warp's part of a token of each lane into an array of ``given``
        words.
    multiply : device function
        ``multiply(held, given, sums)`` puts products of the warp into shared memory of ``shared`` numbers.
    made : device function
        ``made(number, sums)`` adds up a number of the lane, behind a barrier.
    spot : device function
        ``spot(number)`` gives the row, and the token, both counted from the first of the block, whose product it is.
        Number ``(tile * groups + group) * 4 + i`` belongs to a tile and to a group of eight tokens. Rows differ by 1 in
        lanes that differ by 4.
    held, given, shared, numbers, groups : int
    """

    load: Any
    fetch: Any
    multiply: Any
    made: Any
    spot: Any
    held: int
    given: int
    shared: int
    numbers: int
    groups: int


@functools.cache
def words_of(columns, weights):
    """How vectors lie that are multiplied with weights of a format: ``columns`` words of uint32 a token.

    Parameters
    ----------
    columns : int
        Of the weights, a multiple of 32.
    weights : str
        Their format: ``"q8_0"``, ``"q4_0"``, ``"q4_1"`` or ``"q4_1 slices"``.

    Returns
    -------
    device function
        ``put(words, token, column, value, apart)`` writes a number of a token. All lanes of a warp take part, and the
        lane whose number differs by ``apart`` has the column that differs by 2.
    """
    blocks = columns // BLOCK
    place = FRAGMENTS[weights].numbers.place

    @device_function
    def put(words, token, column, value, apart):
        value *= float32(_SHRINK)
        other = cuda.shfl_xor_sync(ALL_LANES, value, apart)
        second = (column >> 1) & 1
        a = other if second else value
        c = value if second else other
        high = device.pack_half2(a, c)
        e, f = halves(high)
        quad = place((column & 31) >> 2)
        at = (token * blocks + (column >> 5)) * BLOCK + (quad >> 3) * 8 + ((quad & 7) >> 1) + (column & 1)
        words[at + 4 * second] = device.pack_half2(a - e, c - f) if second else high

    return put


@functools.cache
def product(columns, rows, weights, tiling):
    """The product that the kernels here are made of.

    Raises
    ------
    ValueError
        If the tiling does not divide the matrices.
    """
    form = FRAGMENTS[weights]
    tokens, tiles, warps = tiling
    blocks = columns // BLOCK
    if columns % BLOCK or blocks % warps or rows % (16 * tiles) or tokens not in (8, 16, 32):
        raise ValueError(
            f"{rows} rows of {blocks} blocks of 32 weights cannot be shared out by {warps} warps that make {tiles} "
            f"tiles of 16 rows with {tokens} tokens: take numbers that divide them, and 8, 16 or 32 tokens"
        )
    if not form.numbers.scaled:
        raise ValueError(f"weights of {weights} have no scales: these kernels are made for such as have")
    each, groups, halves_of_tiles = blocks // warps, tokens // 8, 2 * tiles
    numbers = tiles * groups * 4
    size, load_words, words, scales, (_, _, _, product_of_fragments, one, _) = form
    both = twice(product_of_fragments)

    @device_function
    def load(matrix, tile, held):
        lane = thread() & 31
        for half in range(halves_of_tiles):
            for k in range(each):
                row = 16 * tile + 8 * half + (lane >> 2)
                at = (half * each + k) * size
                load_words(matrix, rows, blocks, row, (thread() >> 5) * each + k, lane & 3, held, at)

    @device_function
    def fetch(x, group, token, given):
        for k in range(each):
            at = (token * blocks + (thread() >> 5) * each + k) * BLOCK + (thread() & 3) * 8
            to = (group * each + k) * 8
            given[to], given[to + 1], given[to + 2], given[to + 3] = device.load4_cg(x, at)
            given[to + 4], given[to + 5], given[to + 6], given[to + 7] = device.load4_cg(x, at + 4)

    @device_function
    def multiply(held, given, sums):
        zero = float32(0)
        found = cuda.local.array(numbers, float32)
        for i in range(numbers):
            found[i] = zero
        for k in range(each):
            for group in range(groups):
                at = (group * each + k) * 8
                h0, h1, h2, h3 = given[at], given[at + 1], given[at + 2], given[at + 3]
                l0, l1, l2, l3 = given[at + 4], given[at + 5], given[at + 6], given[at + 7]
                s0, s1, s2, s3 = both(one, one, one, one, h0, h1, l0, l1, zero, zero, zero, zero)
                s0, s1, s2, s3 = both(one, one, one, one, h2, h3, l2, l3, s0, s1, s2, s3)
                for tile in range(tiles):
                    upper = (2 * tile * each + k) * size
                    lower = ((2 * tile + 1) * each + k) * size
                    a0, a2, a4, a6 = words(held, upper)
                    a1, a3, a5, a7 = words(held, lower)
                    c0, c1, c2, c3 = both(a0, a1, a2, a3, h0, h1, l0, l1, zero, zero, zero, zero)
                    c0, c1, c2, c3 = both(a4, a5, a6, a7, h2, h3, l2, l3, c0, c1, c2, c3)
                    to = (tile * groups + group) * 4
                    scale, least = scales(held, upper)
                    scale *= float32(2**24)
                    found[to] += scale * c0 + least * s0
                    found[to + 1] += scale * c1 + least * s1
                    scale, least = scales(held, lower)
                    scale *= float32(2**24)
                    found[to + 2] += scale * c2 + least * s0
                    found[to + 3] += scale * c3 + least * s1
        for i in range(numbers):
            sums[((thread() >> 5) * numbers + i) * WARP + (thread() & 31)] = found[i]

    @device_function
    def made(number, sums):
        total = float32(0)
        for warp in range(warps):
            total += sums[(warp * numbers + number) * WARP + (thread() & 31)]
        return total * float32(1 / _SHRINK)

    @device_function
    def spot(number):
        tile, group, lane = (number >> 2) // groups, (number >> 2) % groups, thread() & 31
        return 16 * tile + 8 * ((number >> 1) & 1) + (lane >> 2), 8 * group + 2 * (lane & 3) + (number & 1)

    held = halves_of_tiles * each * size
    return Product(load, fetch, multiply, made, spot, held, groups * each * 8, warps * numbers * WARP, numbers, groups)


@functools.cache
def norm_scale_of(hidden, eps):
    """A device function ``norm_scale(squares, row)``: what the norm multiplies a vector with. A warp makes it."""
    count, epsilon = hidden // _GROUP, eps

    @device_function
    def norm_scale(squares, row):
        total = float32(0)
        for i in range(thread() & 31, count, WARP):
            total += cuda.ldcg(squares, row * count + i)
        return libdevice.rsqrtf(warp_sum(total) * float32(1 / hidden) + float32(epsilon))

    return norm_scale


@device_function
def put_squares(squares, count, token, column, value):
    """Write the squares of eight numbers: their columns are apart by 4 lanes each."""
    total = value * value
    for step in (4, 8, 16):
        total += cuda.shfl_xor_sync(ALL_LANES, total, step)
    if thread() & 31 < 4:
        squares[token * count + (column >> 3)] = total


def tiling_for(count, columns, rows, tiles=1):
    """A tiling that divides ``count`` tokens and ``rows`` rows, with a warp for each two blocks of columns.

    Blocks make 8 tokens, and as many of 2, 4 or 8 times ``tiles`` tiles as leave 72 blocks, of which an H200 has had
    enough: the vectors of 8 tokens are small beside the weights, and the more rows a block makes, the less often they
    are loaded.

    Examples
    --------
    >>> tiling_for(32, 576, 960), tiling_for(8, 1536, 576)
    (Tiling(tokens=8, tiles=2, warps=9), Tiling(tokens=8, tiles=1, warps=24))
    """
    blocks = columns // BLOCK
    if count % 8 or rows % (16 * tiles) or columns % BLOCK:
        raise ValueError(
            f"{count} tokens by {rows} rows of {columns} weights: make the tokens a multiple of 8, the rows one of "
            f"{16 * tiles}, and the weights of a row one of {BLOCK}"
        )
    warps = max(n for n in range(1, 25) if blocks % n == 0 and n <= max(1, -(-blocks // 2)))
    more = (size for size in (8, 4, 2) if size > tiles and rows % (16 * size) == 0 and size % tiles == 0)
    enough = (size for size in more if count // 8 * (rows // (16 * size)) >= 72)
    return Tiling(8, next(enough, tiles), warps)
