"""Attention over a paged cache of keys and values: positions of a sequence lie in pages that a table names.

A cache is an array of float16 (pages, page_size, kv_heads, head_size), flat, and a page table an array of int32
(sequences, pages_per_sequence), flat: position p of sequence s stands at ``p % page_size`` of page
``table[s, p // page_size]``. Page 0 is nobody's: rows of tables begin as zeros.
"""

import functools

from numba import cuda, float32, uint32

from graphdsl import device

from .attention import attending
from .column_parts import words_of
from .launch import Launch
from .threads import WARP, block, thread


@functools.cache
def paged_attention(count, heads, kv_heads, head_size, *, page_size, pages_per_sequence, then="q4_1", threads=256):
    """Attention of some tokens, each of which sees its sequence up to its own position, over a paged cache.

    A block makes the query heads of a token that share keys and values, so that those are read once. The order of sums
    depends on the position and on ``threads``, and not on the other tokens or on the pages.

    Parameters
    ----------
    count : int
        Tokens, of any sequences.
    heads, kv_heads, head_size : int
        ``head_size`` 32, 64 or 128.
    page_size : int
        Positions in a page, a power of two.
    pages_per_sequence : int
        In a row of the page table.
    then : str
        Format of the weights that the result is multiplied with, as in `graphdsl.kernels.column_parts.words_of`.
    threads : int
        In a block: whole warps.

    Returns
    -------
    Launch
        Its kernel takes

        - ``q``, float32 (count * heads * head_size,), read.
        - ``keys``, ``values``, float16, a paged cache, read up to each token's position.
        - ``page_table``, int32, read.
        - ``slots``, int32 (count,), read: the row of the page table of each token.
        - ``positions``, int32 (count,), read: of each token; -1 for padding, which sees nothing and gets zeros.
        - ``firsts``, int32 (count,), read: what stands before this position is there already, and is read before the
          wait. No kernel that writes any of the last four may still run when this one begins.
        - ``words``, uint32 (count * heads * head_size,), written: the result, as `words_of` has it for ``then``.

    Raises
    ------
    ValueError
        If blocks are too small to write what they make, or pages have no power of two.
    """
    group = heads // kv_heads
    row, kv_row = heads * head_size, kv_heads * head_size
    numbers, extremes, words_of_queries = group * head_size, 32 * group, 8 * group
    if page_size < 1 or page_size & (page_size - 1):
        raise ValueError(f"pages of {page_size} positions are no power of two: take 16, or 32")
    if numbers % WARP or threads % WARP:
        raise ValueError(f"{numbers} numbers and blocks of {threads} threads are no whole warps: take multiples of 32")
    team, _, shared, load_queries, attend, place, parts = attending(
        head_size, threads, group, page_size=page_size, together=True
    )
    put = words_of(row, then)

    @cuda.jit(fastmath=True, launch_bounds=threads)
    def paged_attention(q, keys, values, page_table, slots, positions, firsts, words):
        made = cuda.shared.array(shared, float32, alignment=16)
        tops = cuda.shared.array(extremes, float32, alignment=16)
        sums = cuda.shared.array(extremes, float32, alignment=16)
        query = cuda.local.array(words_of_queries, float32)
        t = thread()
        kv_head = block() % kv_heads
        token = block() // kv_heads
        base = kv_head * head_size + (t % team) * 8
        last = max(positions[token], -1)
        first = firsts[token]
        begin = (slots[token] & 0xFFFFFF) * pages_per_sequence
        table = page_table[begin : begin + pages_per_sequence]
        p = t // team
        at = 0
        k0 = k1 = k2 = k3 = v0 = v1 = v2 = v3 = uint32(0)
        if p <= last:
            at = place(table, p) * kv_row + base
            if p < first:
                k0, k1, k2, k3 = device.load4_cg(keys, at)
                v0, v1, v2, v3 = device.load4_cg(values, at)
        device.launch_dependents()
        device.grid_dependency_wait()
        load_queries(q, token * row + kv_head * numbers, head_size, query)
        if p >= first and p <= last:
            k0, k1, k2, k3 = device.load4_cg(keys, at)
            v0, v1, v2, v3 = device.load4_cg(values, at)
        attend(
            query, keys, values, table, kv_row, base, p, last, last, k0, k1, k2, k3, v0, v1, v2, v3, made, tops, sums
        )
        i = t
        while i < numbers:
            value, total, _ = parts(i // head_size, i % head_size, made, tops, sums)
            put(words, token, kv_head * numbers + i, value / total if last >= 0 else float32(0), 2)
            i += threads

    return Launch(paged_attention, count * kv_heads, threads)
