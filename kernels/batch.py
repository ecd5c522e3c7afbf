"""Products of weights with the vectors of some tokens, made for little time: a step of several sequences.

`matmul` shares rows of weights out over warps. Here the warps of a block make the same rows, each with some of their
columns, so that none of them goes through a row by itself: a model whose rows are short has its weights on their way
before the kernel in front has ended, and each thread waits for memory once. Sums are made in an order that the number of
tokens does not change: what a token gets does not depend, to the last bit, on how many others there are.

Vectors come as what tensor cores multiply, ready to be loaded: each number in two of 16 bits, high and low. The kernels
that make a vector write it so; see `words_of`. A norm is left to the product that follows: vectors have its gain but not
its scale, and beside them lie ``squares``, the sums of squares of each eight numbers of a token.
"""

import functools
from typing import Any, NamedTuple

from numba import cuda, float32, uint32
from numba.cuda import libdevice

from graphdsl import device

from .launch import Launch
from .threads import ALL_LANES, WARP, block, device_function, thread, warp_sum
from .tiles import BLOCK, FRAGMENTS, twice
from .weights import halves

_LOG2_E = 1.4426950408889634
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
        In a block, each with some of the columns: a divisor of the blocks of 32 that a row has. Sums are made in another
        order with another number of them.
    """

    tokens: int
    tiles: int
    warps: int


class Product(NamedTuple):
    """A product, and the launch that makes it.

    Attributes
    ----------
    load : device function
        ``load(matrix, tile, held)`` loads the warp's part of the weights of a tile, the first of ``tiles``, into an array
        of ``held`` words.
    fetch : device function
        ``fetch(x, group, token, given)`` loads the warp's part of a token of each lane into an array of ``given`` words.
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
            f"{rows} rows of {blocks} blocks of 32 weights cannot be shared out by {warps} warps that make {tiles} tiles "
            f"of 16 rows with {tokens} tokens: take numbers that divide them, and 8, 16 or 32 tokens"
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


def tiling_for(count, columns, rows, tiles=1):
    """A tiling that divides ``count`` tokens and ``rows`` rows, with warps for each three blocks of columns or so.

    Examples
    --------
    >>> tiling_for(32, 576, 960), tiling_for(8, 1536, 576)
    (Tiling(tokens=16, tiles=1, warps=6), Tiling(tokens=8, tiles=1, warps=16))
    """
    blocks = columns // BLOCK
    if count % 8 or rows % (16 * tiles) or columns % BLOCK:
        raise ValueError(
            f"{count} tokens by {rows} rows of {columns} weights: make the tokens a multiple of 8, the rows one of "
            f"{16 * tiles}, and the weights of a row one of {BLOCK}"
        )
    warps = max(n for n in range(1, 17) if blocks % n == 0 and n <= max(1, -(-blocks // 3)))
    fitting = [size for size in (32, 16, 8) if count % size == 0]
    enough = [size for size in fitting if count // size * (rows // (16 * tiles)) >= 96]
    return Tiling((enough or fitting[-1:])[0], tiles, warps)
