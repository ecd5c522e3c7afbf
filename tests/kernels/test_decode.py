"""The kernels that decode a token, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from graphdsl.kernels import decode, packing

from . import reference

SMALL = {"hidden": 64, "heads": 2, "kv_heads": 1, "head_size": 32, "units": 64, "threads": 64, "parts": 1}
MODEL = {"hidden": 576, "heads": 9, "kv_heads": 3, "head_size": 64, "units": 1536, "threads": 256, "parts": 2}
POSITIONS = 24


def numbers(rng, *shape, scale=1.0):
    return (scale * rng.standard_normal(shape)).astype(np.float32)


def matrix(rng, rows, columns, name="q4_1"):
    made = packing.packed(numbers(rng, rows, columns, scale=columns**-0.5), name)
    return made, packing.unpacked(made, name, columns).astype(np.float64)


def check_qkv(launch, position, weights="q4_1", *, hidden, heads, kv_heads, head_size, threads, **_):
    rng = np.random.default_rng(position)
    x, gain = numbers(rng, hidden, scale=3), 1 + numbers(rng, hidden, scale=0.1)
    rows = (heads + 2 * kv_heads) * head_size
    projection, dense = matrix(rng, rows, hidden, weights)
    table = packing.rotary_table(POSITIONS, head_size)
    width = kv_heads * head_size
    keys, values = (numbers(rng, POSITIONS * width).astype(np.float16) for _ in range(2))
    q, cleared = np.empty(heads * head_size, np.float32), np.ones(hidden, np.float32)
    before = keys.copy(), values.copy()
    kernel, grid, block = decode.qkv_rotary_append(hidden, heads, kv_heads, head_size, weights=weights, threads=threads)
    where = np.array([position], np.int32)
    launch(kernel, grid, block, x, gain, projection, table.reshape(-1), where, q, keys, values, cleared)

    made = dense @ reference.rms_norm(x, gain)
    expected_q, expected_k, expected_v = np.split(made, [q.size, q.size + width])
    np.testing.assert_allclose(q, reference.rotated(expected_q, table[position]), rtol=1e-3, atol=1e-3)
    for found, old, expected in zip(
        (keys, values), before, (reference.rotated(expected_k, table[position]), expected_v), strict=True
    ):
        old.reshape(POSITIONS, -1)[position] = expected
        np.testing.assert_allclose(found.astype(np.float64), old.astype(np.float64), rtol=2e-3, atol=2e-3)
        others = np.arange(POSITIONS) != position
        assert (found.reshape(POSITIONS, -1)[others] == old.reshape(POSITIONS, -1)[others]).all()
    assert not cleared.any()


@pytest.mark.parametrize("position", [0, 7])
def test_qkv_rotary_append(launch, position):
    check_qkv(launch, position, **SMALL)


@pytest.mark.gpu
@pytest.mark.parametrize("weights", ["q4_1", "q4_0", "q8_0", "f16", "bf16"])
def test_qkv_rotary_append_of_a_model(launch_on_gpu, weights):
    check_qkv(launch_on_gpu, 17, weights, **MODEL)


def check_attention(
    launch, position, weights="q4_1", *, hidden, heads, kv_heads, head_size, parts, positions=POSITIONS, **_
):
    rng = np.random.default_rng(position)
    q = numbers(rng, heads * head_size)
    keys, values = (numbers(rng, positions * kv_heads * head_size).astype(np.float16) for _ in range(2))
    projection, dense = matrix(rng, hidden, heads * head_size, weights)
    x = numbers(rng, hidden)
    cache = [each.reshape(positions, kv_heads, head_size) for each in (keys, values)]
    expected = x + dense @ reference.attention(q.reshape(1, heads, head_size), *cache, position).reshape(-1)
    kernel, grid, block = decode.attention_output(hidden, heads, kv_heads, head_size, weights=weights, parts=parts)
    for array in (keys, values):
        array.reshape(positions, -1)[position + 1 :] = np.nan  # what is behind the position is not looked at
    launch(kernel, grid, block, q, keys, values, np.array([position], np.int32), projection, x)
    np.testing.assert_allclose(x, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("position", [0, 1, 7, 8, 23])
def test_attention_output(launch, position):
    check_attention(launch, position, **SMALL)


@pytest.mark.gpu
@pytest.mark.parametrize("parts", [2, 3, 6])
@pytest.mark.parametrize("position", [0, 1, 71, 72, 143, 500])
def test_attention_output_of_a_model(launch_on_gpu, position, parts):
    check_attention(launch_on_gpu, position, positions=512, **{**MODEL, "parts": parts})


def check_gated_mlp(launch, *, hidden, units, lanes=0, **_):
    rng = np.random.default_rng(units)
    x, gain = numbers(rng, hidden, scale=3), 1 + numbers(rng, hidden, scale=0.1)
    (gate, dense_gate), (up, dense_up) = (matrix(rng, units, hidden) for _ in range(2))
    down, dense_down = matrix(rng, hidden, units)
    y = np.zeros(hidden, np.float32)
    normed = reference.rms_norm(x, gain)
    expected = x + dense_down @ (reference.silu(dense_gate @ normed) * (dense_up @ normed))
    kernel, grid, block = decode.gated_mlp(hidden, units, lanes=lanes)
    both = packing.interleaved(gate, up, units, 16)
    launch(kernel, grid, block, x, gain, both, packing.by_column_slices(down, units), y)
    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-3)


def test_gated_mlp(launch):
    check_gated_mlp(launch, hidden=96, units=64)


@pytest.mark.gpu
@pytest.mark.parametrize("lanes", [0, 6, 8, 18])
def test_gated_mlp_of_a_model(launch_on_gpu, lanes):
    check_gated_mlp(launch_on_gpu, lanes=lanes, **MODEL)
