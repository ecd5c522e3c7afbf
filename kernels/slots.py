"""The state of the sequences that an engine serves, in device memory: who runs, where, and in which pages.

State lies by slot: its arrays have an element for each, and one more for the scrap slot, the last, which never runs:
rows of padding have it. What a launch works on lies by row, and its first kernel writes it: `begin_step` for a step of
running sequences, `begin_prompt` for tokens of one new sequence. Its last kernel, `advance`, goes on with the tokens
that were chosen: it stops sequences, gives their pages back, and takes pages for the positions to come. Each of them is
one block, and pages change hands nowhere else, so that nobody races for them.

Host memory that a launch reads or writes is a ring: launch k, as the device counts them, uses row ``k % ring``.

Kernels here take arrays of one dimension by these names, of int32 but where it says otherwise:

================  ==================  ==================================================================================
by slot           shape               what
================  ==================  ==================================================================================
``state``         (slots + 1,)        one of the states
``token``         (slots + 1,)        the last token, which the next step processes
``position``      (slots + 1,)        where that stands in the sequence
``held``          (slots + 1,)        how many pages the slot holds
``page_table``    slots + 1 rows      the pages, ``pages_per_sequence`` in a row; see `graphdsl.kernels.paged`
``limit``         (slots + 1,)        tokens that the sequence may have
``stop``          (slots + 1,)        the token that stops it; -1 for none
``temperature``   (slots + 1,)        float32: 0 for the most probable token
``top_k``         (slots + 1,)        how many tokens are drawn from
``seed``          (slots + 1,)        uint64
``free_pages``    (pages,)            pages that nobody holds: the first ``free_count[0]``
``step``          (1,)                launches so far
================  ==================  ==================================================================================

=====================  ===========  ====================================================================================
by row of the launch   shape        what
=====================  ===========  ====================================================================================
``tokens``             (rows,)      tokens to be processed; rows are a multiple of 8
``slots``              (rows,)      whose they are
``positions``          (rows,)      where they stand in their sequences; -1 for padding
``firsts``             (rows,)      what stands before that position in the sequence is in the cache already
``places``             (rows,)      where keys and values go in the cache, counted in positions
``sources``            (outs,)      the rows behind which a token is chosen; -1 for none; outs are a multiple of 8
``best``               (outs,)      int64, zeros: for the `graphdsl.kernels.choices.choice_key` of the largest logits
``chosen``             (outs,)      the tokens that are chosen
=====================  ===========  ====================================================================================
"""

import functools

from numba import cuda, int32, uint64

from graphdsl import device

from .launch import Launch
from .threads import device_function, thread

IDLE, RUNNING, STOPPED, FULL, EXHAUSTED = range(5)
"""States of a slot: one that stopped met its stop token, a full one its limit, an exhausted one found no free page."""

REQUEST = 10
"""Words of a request; see `begin_prompt`."""


@functools.cache
def begin_step(sequences, rows, scrap, *, page_size, pages_per_sequence, ring):
    """The rows of a step: the last tokens of sequences that run.

    Parameters
    ----------
    sequences, rows : int
        Slots that the host names, and rows that there are: no fewer, and a multiple of 8.
    scrap : int
        The scrap slot.
    page_size, pages_per_sequence : int
        Of the cache.
    ring : int
        Rows of host memory, a power of two.

    Returns
    -------
    Launch
        Its kernel takes ``wanted``, int32 (ring, sequences), read: the slots of the rows, each at most once, and the
        scrap slot for padding. Then, read: ``step``, ``state``, ``token``, ``position``, ``page_table``; and written:
        ``tokens``, ``slots``, ``positions``, ``firsts``, ``places``, ``sources``, ``best``. Put full edges behind it:
        kernels read all this before they wait.
    """
    shift, inside = page_size.bit_length() - 1, page_size - 1
    threads = 32 * -(-rows // 32)

    @cuda.jit(launch_bounds=threads)
    def begin_step(
        wanted, step, state, token, position, page_table, tokens, slots, positions, firsts, places, sources, best
    ):
        r = thread()
        if r < rows:
            slot = scrap
            if r < sequences:
                slot = min(wanted[step[0] & (ring - 1), r] & 0xFFFFFF, scrap)
            runs = slot != scrap and state[slot] == RUNNING
            tokens[r] = token[slot] if runs else 0
            slots[r] = slot
            positions[r] = position[slot] if runs else -1
            firsts[r] = position[slot] if runs else -1
            sources[r] = r
            best[r] = 0
            place = 0
            if runs:
                p = position[slot] & 0xFFFFFF
                place = (page_table[slot * pages_per_sequence + (p >> shift)] << shift) | (p & inside)
            places[r] = place

    return Launch(begin_step, 1, threads)


@device_function
def _give_back(slot, held, page_table, free_pages, free_count, pages_per_sequence, threads):
    """Give back all pages of a slot; all threads of the block, none of which may be at it still."""
    count = held[slot]
    free = free_count[0]
    cuda.syncthreads()
    for i in range(thread(), count, threads):
        free_pages[free + i] = page_table[slot * pages_per_sequence + i]
        page_table[slot * pages_per_sequence + i] = 0
    if thread() == 0:
        free_count[0] = free + count
        held[slot] = 0
    cuda.syncthreads()


@functools.cache
def begin_prompt(rows, outs, scrap, *, page_size, pages_per_sequence, ring):
    """Admit a sequence, or a further part of its prompt: its pages, its sampling, and the rows of the launch.

    Parameters
    ----------
    rows, outs : int
        Tokens that there is room for, and tokens that can be chosen, of which one is; multiples of 8.
    scrap, page_size, pages_per_sequence, ring
        As `begin_step` takes them.

    Returns
    -------
    Launch
        Its kernel takes

        - ``prompt``, int32 (ring, rows), read.
        - ``request``, int32 (ring, 10), read: the slot; the position of the first token of these; how many there are;
          1 if the prompt ends with them; ``limit``, ``stop``, ``top_k``, the bits of ``temperature``, and the lower
          and the upper half of ``seed``. With no tokens the slot gives its pages back and is idle.
        - ``step``, read; and written: ``state``, ``limit``, ``stop``, ``top_k``, ``temperature``, ``seed``.
        - ``held``, ``page_table``, ``free_pages``, ``free_count``, read and written. If there are not enough pages the
          slot gives its own back, is exhausted, and all rows are padding.
        - ``tokens``, ``slots``, ``positions``, ``firsts``, ``places``, ``sources``, ``best``, written, as by
          `begin_step`.
    """
    shift, inside = page_size.bit_length() - 1, page_size - 1
    threads, room = 256, page_size * pages_per_sequence

    @cuda.jit(launch_bounds=threads)
    def begin_prompt(
        prompt, request, step, state, limit, stop, top_k, temperature, seed, held, page_table, free_pages, free_count,
        tokens, slots, positions, firsts, places, sources, best,
    ):  # fmt: skip
        t = thread()
        row = step[0] & (ring - 1)
        words = request[row]
        slot = min(words[0] & 0xFFFFFF, scrap - 1)
        start = words[1] & 0xFFFFFF
        count = min(max(words[2], 0), rows)
        if start + count > room:
            count = 0
        final = words[3] != 0
        has = held[slot]
        takes = 0 if count == 0 else max(0, ((start + count + inside) >> shift) - has)
        free = free_count[0]
        enough = takes <= free
        cuda.syncthreads()
        if enough and count > 0:
            for i in range(t, takes, threads):
                page_table[slot * pages_per_sequence + has + i] = free_pages[free - 1 - i]
            if t == 0:
                free_count[0] = free - takes
                held[slot] = has + takes
            cuda.syncthreads()
        else:
            count = 0
            _give_back(slot, held, page_table, free_pages, free_count, pages_per_sequence, threads)
        if t == 0:
            state[slot] = IDLE if enough else EXHAUSTED
            limit[slot] = min(words[4], room)
            stop[slot] = words[5]
            top_k[slot] = max(words[6], 1)
            temperature[slot] = device.as_float32(words[7] & 0xFFFFFFFF)
            seed[slot] = (uint64(words[8]) & uint64(0xFFFFFFFF)) | (uint64(words[9]) << uint64(32))
        for r in range(t, rows, threads):
            real = r < count
            p = start + r if real else 0
            tokens[r] = prompt[row, r] if real else 0
            slots[r] = slot
            positions[r] = p if real else -1
            firsts[r] = start if real else -1
            places[r] = (page_table[slot * pages_per_sequence + (p >> shift)] << shift) | (p & inside) if real else 0
        for i in range(t, outs, threads):
            sources[i] = -1
            if i == 0 and not enough:
                sources[i] = 0  # padding, whose slot tells the host that it is exhausted
            elif i == 0 and final:
                sources[i] = count - 1
            best[i] = 0

    return Launch(begin_prompt, 1, threads)


@functools.cache
def advance(outs, shown, *, page_size, pages_per_sequence, ring):
    """Go on with the tokens that were chosen.

    Parameters
    ----------
    outs, shown : int
        Tokens that were chosen, and the first of them, that the host sees.
    page_size, pages_per_sequence, ring
        As `begin_step` takes them.

    Returns
    -------
    Launch
        Its kernel takes

        - ``chosen``, ``sources``, ``slots``, ``positions``, ``limit``, ``stop``, read.
        - ``step``, ``state``, ``token``, ``position``, ``held``, ``page_table``, ``free_pages``, ``free_count``, read
          and written.
        - ``states``, ``shown_tokens``, int32 (ring, shown), host memory, written: the states behind the launch, and
          then the tokens; 0 and -1 where nothing was chosen.
    """
    threads = 32 * -(-outs // 32)
    shift = page_size.bit_length() - 1
    words = threads + 1

    @cuda.jit(launch_bounds=threads)
    def advance(
        chosen, sources, slots, positions, limit, stop,
        step, state, token, position, held, page_table, free_pages, free_count, states, shown_tokens,
    ):  # fmt: skip
        leaving = cuda.shared.array(words, int32)
        wanting = cuda.shared.array(words, int32)
        whose = cuda.shared.array(words, int32)
        t = thread()
        device.launch_dependents()
        device.grid_dependency_wait()
        row = step[0] & (ring - 1)
        now = IDLE
        found = -1
        slot = 0
        last = -1
        if t < outs and sources[t] >= 0:
            slot = slots[sources[t]]
            last = positions[sources[t]]
            now = state[slot]
        wants = False
        if last >= 0:
            found = chosen[t]
            now = RUNNING
            if found == stop[slot]:
                now = STOPPED
            elif last + 2 >= limit[slot]:
                now = FULL
            token[slot] = found
            position[slot] = last + 1
            wants = now == RUNNING and ((last + 1) >> shift) >= held[slot]
        whose[t] = slot
        leaving[t] = last >= 0 and now != RUNNING
        wanting[t] = wants
        if cuda.syncthreads_or(leaving[t]):
            for i in range(outs):
                if leaving[i]:
                    _give_back(whose[i], held, page_table, free_pages, free_count, pages_per_sequence, threads)
        if cuda.syncthreads_or(int32(wants)):
            free = free_count[0]
            before = 0
            every = 0
            for i in range(outs):
                if i < t:
                    before += wanting[i]
                every += wanting[i]
            cuda.syncthreads()
            leaving[t] = 0
            if wants and before < free:
                page_table[slot * pages_per_sequence + held[slot]] = free_pages[free - 1 - before]
                held[slot] += 1
            elif wants:
                now = EXHAUSTED
                leaving[t] = 1
            if t == 0:
                free_count[0] = max(free - every, 0)
            if cuda.syncthreads_or(leaving[t]):
                for i in range(outs):
                    if leaving[i]:
                        _give_back(whose[i], held, page_table, free_pages, free_count, pages_per_sequence, threads)
        if last >= 0:
            state[slot] = now
        if t < shown:
            states[row, t] = now
            cuda.threadfence_system()
            shown_tokens[row, t] = found
        if t == 0:
            step[0] += 1

    return Launch(advance, 1, threads)
