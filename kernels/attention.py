"""Attention over a cache of keys and values, with grouped heads, for one query or several of one head.

``softmax(q @ keys.T / sqrt(head_size)) @ values``, where a query sees the positions up to its own. Neighbouring lanes
make a team, each with eight elements of the head; each team goes over positions of its own with a softmax on line, and
then what the teams of a warp have is put together, and what the warps of a block have. The cache is float16; everything
else is float32.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from numba import cuda, float32, uint32
from numba.cuda import libdevice

from graphdsl import device

from .launch import Launch
from .threads import ALL_LANES, WARP, block, device_function, lanes_sum, thread

_LOG2_E = 1.4426950408889634
_NOTHING = -1e30  # less than any score


class Attending(NamedTuple):
    """What the threads of a block need to make the attention of some queries of one head.

    Attributes
    ----------
    team : int
        Lanes that make a position.
    teams : int
        In the block.
    shared : int
        Numbers of shared memory that the results of the warps take; their maxima and sums take ``32 * queries`` each.
    load_queries : device function
        ``load_queries(q, first, stride, query)`` loads a thread's part of the queries into an array of
        ``8 * queries``; they begin at ``first`` and are ``stride`` apart.
    attend : device function
        ``attend(query, keys, values, table, stride, base, p, limit, last, k0, ..., k3, v0, ..., v3, made, tops, sums)``
        goes over the positions from ``p`` on, those of the thread's team, up to ``limit``, and no further than each
        query's own, of which ``last`` is that of the last. Positions are ``stride`` apart in the cache, and the team's
        part of one begins at ``base``. The words of the first are given, so that they may be loaded before. The results
        of the warps go to shared memory; then comes a barrier.
    place : device function
        ``place(table, p)`` is where a position is in the cache: in the page that a table of pages names, if there are
        pages, or else where it would be in a row. Such a cache has no table: any array will do.
    parts : device function
        ``parts(query, element, made, tops, sums)`` gives one number of the result, behind that barrier, which is still
        to be divided by the second, and the largest score that both were made with.
    """

    team: int
    teams: int
    shared: int
    load_queries: Callable[..., Any]
    attend: Callable[..., Any]
    place: Callable[..., Any]
    parts: Callable[..., Any]


@functools.cache
def attending(head_size, threads, queries, splits=1, *, page_size=0, together=False):
    """The device functions for a shape.

    Parameters
    ----------
    head_size : int
        32, 64 or 128.
    threads : int
        In the block: whole warps.
    queries : int
        Of one head, at positions that follow each other.
    splits : int
        Blocks that share the positions.
    page_size : int
        Positions in a page, a power of two; 0 for a cache without pages.
    together : bool
        All queries are at the last position: those of several heads that share keys and values.

    Returns
    -------
    Attending
    """
    team = head_size // 8
    teams, warps = threads // team, threads // WARP
    stride_of_teams = teams * splits
    sums_of_eight = 8 * queries
    scale = _LOG2_E / math.sqrt(head_size)
    between = 0 if together else 1
    shift, inside = page_size.bit_length() - 1, page_size - 1

    @device_function
    def place(table, p):
        if page_size == 0:
            return p
        return ((table[p >> shift] & 0xFFFFFF) << shift) | (p & inside)

    @device_function
    def load_queries(q, first, stride, query):
        for j in range(queries):
            for k in range(2):
                at = first + j * stride + (thread() % team) * 8 + 4 * k
                to = 8 * j + 4 * k
                query[to], query[to + 1], query[to + 2], query[to + 3] = device.load4_cg(q, at)

    @device_function
    def dot(a, b, c, d, query, at):
        a0, a1 = device.as_half2(a)
        b0, b1 = device.as_half2(b)
        c0, c1 = device.as_half2(c)
        d0, d1 = device.as_half2(d)
        even = float32(a0) * query[at] + float32(b0) * query[at + 2]
        odd = float32(a1) * query[at + 1] + float32(b1) * query[at + 3]
        even += float32(c0) * query[at + 4] + float32(d0) * query[at + 6]
        odd += float32(c1) * query[at + 5] + float32(d1) * query[at + 7]
        return even + odd

    @device_function
    def add_pair(total, at, factor, weight, word):
        """``total = total * factor + weight * v``, of the two halves in a word."""
        low, high = device.as_half2(word)
        total[at] = total[at] * factor + weight * float32(low)
        total[at + 1] = total[at + 1] * factor + weight * float32(high)

    @device_function
    def join_warp(top, total, summed, j):
        """Put together what the teams of a warp have for a query."""
        higher = top[j]
        step = team
        while step < WARP:
            higher = max(higher, cuda.shfl_xor_sync(ALL_LANES, higher, step))
            step *= 2
        factor = libdevice.exp2f(top[j] - higher)
        top[j] = higher
        total[j] *= factor
        for k in range(8):
            summed[8 * j + k] *= factor
        step = team
        while step < WARP:
            total[j] += cuda.shfl_xor_sync(ALL_LANES, total[j], step)
            for k in range(8):
                summed[8 * j + k] += cuda.shfl_xor_sync(ALL_LANES, summed[8 * j + k], step)
            step *= 2

    @device_function
    def attend(
        query, keys, values, table, stride, base, p, limit, last, k0, k1, k2, k3, v0, v1, v2, v3, made, tops, sums
    ):
        top = cuda.local.array(queries, float32)
        total = cuda.local.array(queries, float32)
        summed = cuda.local.array(sums_of_eight, float32)
        for j in range(queries):
            top[j] = float32(_NOTHING)
            total[j] = float32(0)
            for k in range(8):
                summed[8 * j + k] = float32(0)
        # All lanes of a warp go round as often: they exchange what they have.
        first = p - (thread() & 31) // team
        while first <= limit:
            u0, u1, u2, u3 = v0, v1, v2, v3
            after = p + stride_of_teams
            scores = cuda.local.array(queries, float32)
            for j in range(queries):
                scores[j] = dot(k0, k1, k2, k3, query, 8 * j)
            if after <= limit:  # one ahead, so that nobody waits for memory
                at = place(table, after) * stride + base
                k0, k1, k2, k3 = device.load4_cg(keys, at)
                v0, v1, v2, v3 = device.load4_cg(values, at)
            for j in range(queries):
                score = lanes_sum(scores[j], team) * float32(scale)
                unseen = p > min(limit, last - (queries - 1 - j) * between)
                if unseen:
                    score = float32(_NOTHING)
                higher = max(top[j], score)
                factor = libdevice.exp2f(top[j] - higher)
                weight = libdevice.exp2f(score - higher)
                if unseen:
                    weight = float32(0)
                top[j] = higher
                total[j] = total[j] * factor + weight
                add_pair(summed, 8 * j, factor, weight, u0)
                add_pair(summed, 8 * j + 2, factor, weight, u1)
                add_pair(summed, 8 * j + 4, factor, weight, u2)
                add_pair(summed, 8 * j + 6, factor, weight, u3)
            p = after
            first += stride_of_teams
        t = thread()
        for j in range(queries):
            join_warp(top, total, summed, j)
            if t & 31 < team:
                at = ((t >> 5) * queries + j) * head_size + (t % team) * 8
                device.store4(made, at, summed[8 * j], summed[8 * j + 1], summed[8 * j + 2], summed[8 * j + 3])
                device.store4(made, at + 4, summed[8 * j + 4], summed[8 * j + 5], summed[8 * j + 6], summed[8 * j + 7])
                if t % team == 0:
                    tops[j * 32 + (t >> 5)] = top[j]
                    sums[j * 32 + (t >> 5)] = total[j]
        cuda.syncthreads()

    @device_function
    def parts(j, element, made, tops, sums):
        highest = tops[j * 32]
        for warp in range(1, warps):
            highest = max(highest, tops[j * 32 + warp])
        value = float32(0)
        total = float32(0)
        for warp in range(warps):
            factor = libdevice.exp2f(tops[j * 32 + warp] - highest)
            value += factor * made[(warp * queries + j) * head_size + element]
            total += factor * sums[j * 32 + warp]
        return value, total, highest

    return Attending(team, teams, warps * queries * head_size, load_queries, attend, place, parts)


@functools.cache
def causal_attention(count, heads, kv_heads, head_size, *, queries=4, threads=0):
    """Attention of many tokens of one sequence, each of which sees those before it and itself.

    A block makes a head for some tokens that follow each other.

    Parameters
    ----------
    count : int
        Tokens.
    heads, kv_heads, head_size : int
        ``head_size`` 32, 64 or 128.
    queries : int
        Tokens that a block makes; divides ``count``.
    threads : int
        In a block: whole warps; 0 for a number that suits the count.

    Returns
    -------
    Launch
        Its kernel takes

        - ``q``, float32 (count * heads * head_size,), read.
        - ``keys``, ``values``, float16 (positions * kv_heads * head_size,), read up to each token's position, which the
          kernel in front may have written.
        - ``position``, int32 (1,), read before the wait: of the first token. No kernel that writes it may still run.
        - ``length``, int32 (1,), read before the wait, as ``position``: how many tokens there are. Others are padding:
          what they get means nothing, and of the cache nothing is read that the tokens do not see.
        - ``y``, float32 (count * heads * head_size,), written. ``y`` may be ``q``.

    Raises
    ------
    ValueError
        If blocks cannot share the tokens out.
    """
    if count % queries:
        raise ValueError(f"{count} tokens cannot be shared out by blocks of {queries}: take a number that divides them")
    threads = threads or (256 if count <= 128 else 128)
    team, _, shared, load_queries, attend, _, parts = attending(head_size, threads, queries)
    row, kv_row, group, blocks = heads * head_size, kv_heads * head_size, heads // kv_heads, count // queries
    words, numbers, extremes = 8 * queries, queries * head_size, 32 * queries

    @cuda.jit(fastmath=True, launch_bounds=threads)
    def causal_attention(q, keys, values, position, length, y):
        made = cuda.shared.array(shared, float32, alignment=16)
        tops = cuda.shared.array(extremes, float32, alignment=16)
        sums = cuda.shared.array(extremes, float32, alignment=16)
        query = cuda.local.array(words, float32)
        t = thread()
        head = block() % heads
        token = (blocks - 1 - block() // heads) * queries  # those that see most begin first
        base = (head // group) * head_size + (t % team) * 8
        first = position[0] & 0xFFFFF
        last = first + token + queries - 1
        limit = min(last, first + length[0] - 1)
        device.launch_dependents()
        device.grid_dependency_wait()
        load_queries(q, token * row + head * head_size, row, query)
        p = t // team
        k0 = k1 = k2 = k3 = v0 = v1 = v2 = v3 = uint32(0)
        if p <= limit:
            k0, k1, k2, k3 = device.load4_cg(keys, p * kv_row + base)
            v0, v1, v2, v3 = device.load4_cg(values, p * kv_row + base)
        attend(
            query,
            keys,
            values,
            position,
            kv_row,
            base,
            p,
            limit,
            last,
            k0,
            k1,
            k2,
            k3,
            v0,
            v1,
            v2,
            v3,
            made,
            tops,
            sums,
        )
        i = t
        while i < numbers:
            j = i // head_size
            value, total, _ = parts(j, i % head_size, made, tops, sums)
            y[(token + j) * row + head * head_size + i % head_size] = value / total
            i += threads

    return Launch(causal_attention, blocks * heads, threads)


@functools.cache
def decode_attention(heads, kv_heads, head_size, *, count=1, positions=0, splits=1, threads=256):
    """Attention of one query over a KV cache, or of one for each of several sequences.

    A block makes a head of a sequence, or a part of its positions where a sequence is long: then `combined_attention`
    makes the result of the parts.

    Parameters
    ----------
    heads, kv_heads, head_size : int
        ``head_size`` 32, 64 or 128.
    count : int
        Sequences.
    positions : int
        In the cache of each sequence; counts where there are several.
    splits : int
        Blocks that share the positions of a head, each of which takes every so manieth.
    threads : int
        In a block: whole warps.

    Returns
    -------
    Launch
        Its kernel takes

        - ``q``, float32 (count * heads * head_size,), read.
        - ``keys``, ``values``, float16 (count * positions * kv_heads * head_size,), read up to the position, of which
          the kernel in front may have written any.
        - ``position``, int32 (count,), read before the wait: no kernel that writes it may still run.
        - ``y``, float32 (count * heads * head_size,), written. With several splits
          (count * heads * splits * (head_size + 2),): the parts.

    Raises
    ------
    ValueError
        If a block has fewer threads than a head has elements.

    Examples
    --------
    >>> decode_attention(32, 32, 128, splits=4).grid
    128
    """
    if threads < head_size:
        raise ValueError(f"blocks of {threads} threads cannot write heads of {head_size} elements: take {head_size}")
    team, teams, shared, load_queries, attend, _, parts = attending(head_size, threads, 1, splits)
    kv_row, group, row = kv_heads * head_size, heads // kv_heads, heads * head_size
    width = head_size + 2
    capacity = positions * kv_row

    @cuda.jit(fastmath=True, launch_bounds=threads)
    def decode_attention(q, keys, values, position, y):
        made = cuda.shared.array(shared, float32, alignment=16)
        tops = cuda.shared.array(32, float32, alignment=16)
        sums = cuda.shared.array(32, float32, alignment=16)
        query = cuda.local.array(8, float32)
        t = thread()
        split = block() % splits
        head = block() // splits % heads
        sequence = block() // (splits * heads)
        base = sequence * capacity + (head // group) * head_size + (t % team) * 8
        last = position[sequence] & 0xFFFFF
        device.launch_dependents()
        device.grid_dependency_wait()
        load_queries(q, sequence * row + head * head_size, 0, query)
        p = split * teams + t // team
        k0 = k1 = k2 = k3 = v0 = v1 = v2 = v3 = uint32(0)
        if p <= last:
            k0, k1, k2, k3 = device.load4_cg(keys, p * kv_row + base)
            v0, v1, v2, v3 = device.load4_cg(values, p * kv_row + base)
        attend(
            query, keys, values, position, kv_row, base, p, last, last, k0, k1, k2, k3, v0, v1, v2, v3, made, tops, sums
        )
        if t < head_size:
            value, total, highest = parts(0, t, made, tops, sums)
            if splits == 1:
                y[sequence * row + head * head_size + t] = value / total
            else:
                y[block() * width + t] = value
                if t == 0:
                    y[block() * width + head_size] = total
                    y[block() * width + head_size + 1] = highest

    return Launch(decode_attention, count * heads * splits, threads)


@functools.cache
def combined_attention(heads, head_size, *, count=1, splits=4):
    """The result of the parts that `decode_attention` made, with the same arguments.

    Returns
    -------
    Launch
        Its kernel takes

        - ``parts``, float32 (count * heads * splits * (head_size + 2),), read.
        - ``y``, float32 (count * heads * head_size,), written.
    """
    width = head_size + 2

    @cuda.jit(fastmath=True, launch_bounds=head_size)
    def combined_attention(parts, y):
        device.launch_dependents()
        device.grid_dependency_wait()
        first = block() * splits * width
        highest = parts[first + head_size + 1]
        for split in range(1, splits):
            highest = max(highest, parts[first + split * width + head_size + 1])
        value = float32(0)
        total = float32(0)
        for split in range(splits):
            at = first + split * width
            factor = libdevice.exp2f(parts[at + head_size + 1] - highest)
            value += factor * parts[at + thread()]
            total += factor * parts[at + head_size]
        y[block() * head_size + thread()] = value / total

    return Launch(combined_attention, count * heads, head_size)
