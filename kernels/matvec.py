"""Weights times one vector, as fast as memory gives them: the decoding of one token by a large language model.

See `graphdsl.kernels.streaming` for how. Weights lie as `graphdsl.kernels.packing` makes them.
"""

import functools

from numba import cuda, float32
from numba.cuda import libdevice

from .choices import choice_key
from .launch import Launch
from .streaming import Shape, shape_for, streamed
from .threads import ALL_LANES, device_function

_LOG2_E = 1.4426950408889634
__all__ = ["Shape", "matvec", "matvec_best", "matvec_gate_up", "matvec_qkv_rotary_append"]


@functools.cache
def matvec(columns, rows, *, weights="bf16", eps=None, add=False, shape=None, multiprocessors=132):
    """``y = weights @ x``, with a norm of ``x`` before, and added to ``y`` if it is to be.

    Parameters
    ----------
    columns : int
        A multiple of 128.
    rows : int
        A multiple of 16, or of 32 if the shape has two tiles.
    weights : str
        Their format: ``"f16"``, ``"bf16"``, ``"q4_0"`` or ``"q4_1"``.
    eps : float, optional
        Of the root mean square norm; None for no norm.
    add : bool
        Add to ``y``.
    shape : Shape, optional
        How the product is shared out; by default, one for the format.
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
    def begin(to, row, lane):
        return to[0][row] if add else float32(0), float32(0)

    @device_function
    def finish(to, row, value, before, _, lane):
        if lane < height:
            to[0][row] = value + before

    shape = shape or shape_for(weights)
    height = 16 * shape.tiles
    run, grid, threads, bounds = streamed(columns, rows, weights, eps, shape, multiprocessors, finish, begin)

    @cuda.jit(fastmath=True, launch_bounds=bounds)
    def matvec(x, gain, matrix, y):
        run(x, gain, matrix, (y,))

    return Launch(matvec, grid, threads)


@functools.cache
def matvec_qkv_rotary_append(
    hidden, heads, kv_heads, head_size, *, eps=1e-5, weights="bf16", shape=None, multiprocessors=132
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
    shape = shape or shape_for(weights)
    height = 16 * shape.tiles

    @device_function
    def begin(to, row, lane):
        rotary, position = to[0], to[1]
        at = (position[0] & 0xFFFFF) * head_size + ((row & (head_size - 1)) >> 1)
        return rotary[at], rotary[at + half]

    @device_function
    def finish(to, row, value, cosine, sine, lane):
        _, position, q, keys, values = to
        other = cuda.shfl_xor_sync(ALL_LANES, value, 1)
        p = position[0] & 0xFFFFF
        if lane < height:
            if row < q_rows + kv_rows:
                value = value * cosine + other * sine if row & 1 else value * cosine - other * sine
            if row < q_rows:
                q[row] = value
            elif row < q_rows + kv_rows:
                keys[p * kv_rows + row - q_rows] = value
            else:
                values[p * kv_rows + row - q_rows - kv_rows] = value

    run, grid, threads, bounds = streamed(
        hidden, q_rows + 2 * kv_rows, weights, eps, shape, multiprocessors, finish, begin
    )

    @cuda.jit(fastmath=True, launch_bounds=bounds)
    def matvec_qkv_rotary_append(x, gain, projection, rotary, position, q, keys, values):
        run(x, gain, projection, (rotary, position, q, keys, values))

    return Launch(matvec_qkv_rotary_append, grid, threads)


@functools.cache
def matvec_gate_up(hidden, units, *, eps=1e-5, weights="bf16", shape=None, multiprocessors=132):
    """RMS norm, gate and up, and the gating: ``silu(gate @ n) * (up @ n)``, ``n = norm(x)``.

    Returns
    -------
    Launch
        Its kernel takes

        - ``x``, float32 (hidden,), read.
        - ``gain``, float32 (hidden,), read: of the norm.
        - ``gate_up``, matrix (2 * units, hidden), read: `graphdsl.kernels.packing.interleaved` by 8 rows.
        - ``y``, float32 (units,), written.

    Raises
    ------
    ValueError
        If the matrix has no whole tiles.
    """
    shape = shape or shape_for(weights)
    height = 16 * shape.tiles

    @device_function
    def finish(to, row, gate, _, unused, lane):
        up = cuda.shfl_xor_sync(ALL_LANES, gate, 8)
        if lane < height and lane & 8 == 0:
            silu = gate / (float32(1) + libdevice.exp2f(gate * float32(-_LOG2_E)))
            to[0][(row >> 4) * 8 + (lane & 7)] = silu * up

    run, grid, threads, bounds = streamed(hidden, 2 * units, weights, eps, shape, multiprocessors, finish)

    @cuda.jit(fastmath=True, launch_bounds=bounds)
    def matvec_gate_up(x, gain, gate_up, y):
        run(x, gain, gate_up, (y,))

    return Launch(matvec_gate_up, grid, threads)


@functools.cache
def matvec_best(hidden, vocabulary, *, eps=1e-5, weights="bf16", shape=None, multiprocessors=132):
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
    def finish(to, row, value, _, unused, lane):
        key = choice_key(value, row)
        for step in (16, 8, 4, 2, 1):  # lanes that have the row of another change nothing
            key = max(key, cuda.shfl_xor_sync(ALL_LANES, key, step))
        if lane == 0:
            cuda.atomic.max(to[0], 0, key)

    run, grid, threads, bounds = streamed(hidden, vocabulary, weights, eps, shape, multiprocessors, finish)

    @cuda.jit(fastmath=True, launch_bounds=bounds)
    def matvec_best(x, gain, table, best):
        run(x, gain, table, (best,))

    return Launch(matvec_best, grid, threads)
