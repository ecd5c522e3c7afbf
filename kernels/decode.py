"""The decoding of one token by a small language model, in three kernels a layer.

A model of a few hundred megabytes spends its time between kernels: these do as much as they can between two points
where all blocks must wait for each other. They are made for kernels that overlap, by programmatic edges: each loads its
weights into registers, and only then waits for the kernel in front (`graphdsl.device.grid_dependency_wait`); and it
lets the kernel behind begin as soon as its own loads are on their way.

The residual stream is two vectors in turns. The attention kernel adds to the one that the layer began with; the MLP
kernel reads that, and adds all of it and what it makes itself to the other one, with which the next layer begins.
Each layer's first kernel clears the one that the MLP will add to. Sums are made atomically, so that their last bits
may differ from run to run.

Each function here gives a `graphdsl.kernels.launch.Launch`: a kernel for the shape of a model, with the grid and block
that it must be launched with. The same arguments give the same one.
"""

import functools

from numba import cuda, float32, uint32
from numba.cuda import libdevice

from graphdsl import device

from .attention import attending
from .launch import Launch
from .norm import norm_into_shared
from .threads import WARP, block, lanes_sum, thread, warp_sum
from .weights import FORMATS, Q4_1, dot_of_nibbles, padded, place, scale_and_least

_LOG2_E = 1.4426950408889634
_SLICE = 16  # hidden units of the MLP that a block makes


@functools.cache
def qkv_rotary_append(hidden, heads, kv_heads, head_size, *, eps=1e-5, weights="q4_1", threads=256):
    """RMS norm, the projections to queries, keys and values, rotary embedding, and the append to the KV cache.

    Parameters
    ----------
    hidden : int
        Length of the residual stream, a multiple of 32.
    heads, kv_heads, head_size : int
        ``head_size`` is a power of two; ``(heads + 2 * kv_heads) * head_size`` a multiple of the rows of a block.
    eps : float
        Of the norm.
    weights : str
        Format of the projections, as in `graphdsl.kernels.weights`.
    threads : int
        In a block: a warp makes a row, so 64, 128, 256, ...

    Returns
    -------
    Launch
        Its kernel takes

        - ``x``, float32 (hidden,), read: the residual stream.
        - ``gain``, float32 (hidden,), read: of the norm.
        - ``projection``, matrix ((heads + 2 * kv_heads) * head_size, hidden), read: rows of queries, keys, values.
        - ``rotary``, float32 (positions * head_size,), read: `graphdsl.kernels.packing.rotary_table`.
        - ``position``, int32 (1,), read before the wait: no kernel that writes it may still run then.
        - ``q``, float32 (heads * head_size,), written.
        - ``keys``, ``values``, float16 (positions * kv_heads * head_size,), written at the position.
        - ``cleared``, float32 (hidden,), written: zeros, for the MLP to add to.

        Elements 2 i and 2 i + 1 of a head turn together, as GGUF files of this architecture have their rows.

    Raises
    ------
    ValueError
        If blocks would not divide the rows.
    """
    form = FORMATS[weights]
    q_rows, kv_rows = heads * head_size, kv_heads * head_size
    rows = q_rows + 2 * kv_rows
    warps = threads // WARP
    if rows % warps or warps % 2:
        raise ValueError(f"{rows} rows cannot be shared out by blocks of {warps} warps, each with a row: take another")
    vectors = hidden // form.width
    steps = -(-vectors // WARP)
    count, load_gain, norm = norm_into_shared(hidden, threads, eps)
    half = head_size // 2
    load, dot, width = form.load, form.dot, form.width
    tile, words = padded(hidden), 5 * steps

    @cuda.jit(fastmath=True, launch_bounds=threads)
    def qkv_rotary_append(x, gain, projection, rotary, position, q, keys, values, cleared):
        normed = cuda.shared.array(tile, float32, alignment=16)
        partial = cuda.shared.array(32, float32, alignment=16)
        made = cuda.shared.array(32, float32, alignment=16)
        t = thread()
        lane = t & 31
        first = block() * warps
        held = cuda.local.array(words, uint32)
        for step in range(steps):
            vector = step * WARP + lane
            if vector < vectors:
                a, b, c, d, scale = load(projection, (first + (t >> 5)) * vectors + vector)
                held[5 * step], held[5 * step + 1], held[5 * step + 2], held[5 * step + 3] = a, b, c, d
                held[5 * step + 4] = scale
        gains = cuda.local.array(count, float32)
        mine = cuda.local.array(count, float32)
        load_gain(gain, gains)
        row = first + t
        p = position[0] & 0xFFFFF
        cosine = float32(1)
        sine = float32(0)
        if t < warps and row < q_rows + kv_rows:
            pair = (row & (head_size - 1)) >> 1
            cosine = rotary[p * head_size + pair]
            sine = rotary[p * head_size + half + pair]
        device.launch_dependents()
        device.grid_dependency_wait()
        scale = norm(x, gain=gains, mine=mine, shared=normed, partial=partial)
        i = block() * threads + t
        if i < hidden:
            cleared[i] = float32(0)
        total = float32(0)
        for step in range(steps):
            vector = step * WARP + lane
            if vector < vectors:
                a, b, c, d = held[5 * step], held[5 * step + 1], held[5 * step + 2], held[5 * step + 3]
                total += dot(a, b, c, d, held[5 * step + 4], normed, place(vector * width))
        total = warp_sum(total)
        if lane == 0:
            made[t >> 5] = total * scale
        cuda.syncthreads()
        if t < warps:
            value = made[t]
            other = made[t ^ 1]
            value = value * cosine + other * sine if t & 1 else value * cosine - other * sine
            if row < q_rows:
                q[row] = value
            elif row < q_rows + kv_rows:
                keys[p * kv_rows + row - q_rows] = value
            else:
                values[p * kv_rows + row - q_rows - kv_rows] = value

    if -(-hidden // threads) > rows // warps:
        raise ValueError(
            f"{rows // warps} blocks of {threads} threads do not clear {hidden} elements: take fewer warps"
        )
    return Launch(qkv_rotary_append, rows // warps, threads)


@functools.cache
def attention_output(hidden, heads, kv_heads, head_size, *, weights="q4_1", parts=2):
    """Attention of one query over a KV cache with grouped heads, and the output projection of what it gives.

    A block makes one head, and its share of some rows of the output projection.

    Parameters
    ----------
    hidden, heads, kv_heads, head_size : int
        As `qkv_rotary_append` takes them; ``head_size`` 64 or 128, or 32 for small tests.
    weights : str
        Format of the output projection.
    parts : int
        Blocks that share the rows of a head, all of which make the attention of the head. More read the weights faster,
        and do more work.

    Returns
    -------
    Launch
        Its kernel takes

        - ``q``, float32 (heads * head_size,), read.
        - ``keys``, ``values``, float16 (positions * kv_heads * head_size,), read up to the position. Before the wait
          those of earlier positions are read: no kernel that writes them may still run then.
        - ``position``, int32 (1,), read before the wait, as by `qkv_rotary_append`.
        - ``projection``, matrix (hidden, heads * head_size), read.
        - ``x``, float32 (hidden,), read and written: the residual stream, which is added to.

    Raises
    ------
    ValueError
        If the rows cannot be shared out so.
    """
    form = FORMATS[weights]
    rows = hidden // parts
    lanes = head_size // form.width  # of a row, a vector each
    threads = rows * lanes
    if hidden % parts or threads % WARP or threads > 1024 or threads < head_size:
        raise ValueError(
            f"{parts} parts of {hidden} rows make blocks of {threads} threads: take another number of them, so that "
            f"they are whole warps, at least {head_size} threads and at most 1024"
        )
    vectors = heads * lanes  # of a row of the projection
    team, _, shared, load_queries, attend, _, parts_of = attending(head_size, threads, 1)
    kv_rows = kv_heads * head_size
    group = heads // kv_heads
    load, dot, width = form.load, form.dot, form.width
    tile = padded(head_size)

    @cuda.jit(fastmath=True, launch_bounds=threads)
    def attention_output(q, keys, values, position, projection, x):
        tops = cuda.shared.array(32, float32, alignment=16)
        sums = cuda.shared.array(32, float32, alignment=16)
        made = cuda.shared.array(shared, float32, alignment=16)
        out = cuda.shared.array(tile, float32, alignment=16)
        query = cuda.local.array(8, float32)
        t = thread()
        head = block() // parts
        row = (block() % parts) * rows + t // lanes
        part = t % lanes
        w0, w1, w2, w3, w_scale = load(projection, row * vectors + head * lanes + part)
        base = (head // group) * head_size + (t % team) * 8
        now = position[0] & 0xFFFFF
        # Positions before this one are there already: the first is loaded before the wait.
        p = t // team
        k0 = k1 = k2 = k3 = v0 = v1 = v2 = v3 = uint32(0)
        if p < now:
            k0, k1, k2, k3 = device.load4(keys, p * kv_rows + base)
            v0, v1, v2, v3 = device.load4(values, p * kv_rows + base)
        device.launch_dependents()
        device.grid_dependency_wait()
        load_queries(q, head * head_size, 0, query)
        if p == now:
            k0, k1, k2, k3 = device.load4_cg(keys, p * kv_rows + base)
            v0, v1, v2, v3 = device.load4_cg(values, p * kv_rows + base)
        attend(
            query, keys, values, position, kv_rows, base, p, now, now, k0, k1, k2, k3, v0, v1, v2, v3, made, tops, sums
        )
        if t < head_size:
            value, total, _ = parts_of(0, t, made, tops, sums)
            out[place(t)] = value / total
        cuda.syncthreads()
        share = lanes_sum(dot(w0, w1, w2, w3, w_scale, out, place(part * width)), lanes)
        if part == 0:
            device.atomic_add(x, row, share)

    return Launch(attention_output, heads * parts, threads)


@functools.cache
def gated_mlp(hidden, units, *, eps=1e-5, lanes=0):
    """RMS norm, the SiLU-gated MLP, and the residual: ``y = x + down @ (silu(gate @ n) * (up @ n))``, ``n = norm(x)``.

    A block makes 16 hidden units, and what they give to all rows of down. All weights are q4_1.

    Parameters
    ----------
    hidden : int
        Length of the residual stream, a multiple of 32.
    units : int
        Width of the MLP, a multiple of 32.
    eps : float
        Of the norm.
    lanes : int
        Threads that make a row of gate or up, 32 rows a block; 0 for a number that gives each as many weights, if there
        is one.

    Returns
    -------
    Launch
        Its kernel takes

        - ``x``, float32 (hidden,), read: the residual stream.
        - ``gain``, float32 (hidden,), read: of the norm.
        - ``gate_up``, matrix (2 * units, hidden), read: `graphdsl.kernels.packing.interleaved` by 16 rows.
        - ``down``, read: `graphdsl.kernels.packing.by_column_slices` of the matrix (hidden, units).
        - ``y``, float32 (hidden,), read and written: what is added to, all zeros before.

    Raises
    ------
    ValueError
        If blocks would have more than 1024 threads.
    """
    vectors = hidden // Q4_1.width
    lanes = lanes or _shared_out(vectors)
    steps = -(-vectors // lanes)
    threads = 2 * _SLICE * lanes
    if threads > 1024:
        raise ValueError(f"{lanes} threads a row make blocks of {threads} threads, of which there can be 1024")
    quarters = hidden // 4
    rounds = -(-quarters // threads)
    blocks = units // _SLICE
    count, load_gain, norm = norm_into_shared(hidden, threads, eps)
    load, dot, width = Q4_1.load, Q4_1.dot, Q4_1.width
    tile, words, down_words = padded(hidden), 5 * steps, 12 * rounds

    @cuda.jit(fastmath=True, launch_bounds=threads)
    def gated_mlp(x, gain, gate_up, down, y):
        normed = cuda.shared.array(tile, float32, alignment=16)
        partial = cuda.shared.array(32, float32, alignment=16)
        shares = cuda.shared.array(threads, float32, alignment=16)
        made = cuda.shared.array(_SLICE, float32, alignment=16)
        t = thread()
        b = block()
        row = t // lanes
        lane = t % lanes
        held = cuda.local.array(words, uint32)
        for step in range(steps):
            vector = step * lanes + lane
            if vector < vectors:
                a, b_, c, d, scale = load(gate_up, (b * 2 * _SLICE + row) * vectors + vector)
                held[5 * step], held[5 * step + 1], held[5 * step + 2], held[5 * step + 3] = a, b_, c, d
                held[5 * step + 4] = scale
        # Four rows of down a thread: 8 bytes of weights each, and a word with the scale.
        downs = cuda.local.array(down_words, uint32)
        for step in range(rounds):
            i = step * threads + t
            if i < quarters:
                for k in range(2):
                    a, b_, c, d = device.load4(down[0], (b * hidden + 4 * i + 2 * k) * 8)
                    at = 12 * step + 4 * k
                    downs[at], downs[at + 1], downs[at + 2], downs[at + 3] = a, b_, c, d
                a, b_, c, d = device.load4(down[1], (b >> 1) * hidden + 4 * i)
                at = 12 * step + 8
                downs[at], downs[at + 1], downs[at + 2], downs[at + 3] = a, b_, c, d
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
                a, b_, c, d = held[5 * step], held[5 * step + 1], held[5 * step + 2], held[5 * step + 3]
                total += dot(a, b_, c, d, held[5 * step + 4], normed, place(vector * width))
        shares[t] = total
        cuda.syncthreads()
        if t < _SLICE:
            gate = float32(0)
            up = float32(0)
            for k in range(lanes):
                gate += shares[t * lanes + k]
                up += shares[(t + _SLICE) * lanes + k]
            gate *= scale
            made[t] = gate / (float32(1) + libdevice.exp2f(gate * float32(-_LOG2_E))) * up * scale
        cuda.syncthreads()
        for step in range(rounds):
            i = step * threads + t
            if i < quarters:
                rows = cuda.local.array(4, float32)
                for k in range(4):
                    factor, least = scale_and_least(downs[12 * step + 8 + k])
                    at = 12 * step + 2 * k
                    rows[k] = dot_of_nibbles(downs[at], factor, least, made, 0, 4)
                    rows[k] += dot_of_nibbles(downs[at + 1], factor, least, made, 8, 12)
                if i % blocks == b:  # one block adds what was there before
                    for k in range(4):
                        rows[k] += mine[4 * step + k]
                device.atomic_add4(y, 4 * i, rows[0], rows[1], rows[2], rows[3])

    return Launch(gated_mlp, blocks, threads)


def _shared_out(vectors):
    """How many threads share a row of so many vectors: about two vectors each, and all as many if that can be."""
    near = range(max(1, vectors // 4), min(vectors, 32) + 1)
    return min(near, key=lambda lanes: (vectors % lanes > 0, abs(lanes - vectors / 2)))
