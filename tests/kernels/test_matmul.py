"""Products of weights with many tokens, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from graphdsl.kernels import matmul, packing
from graphdsl.kernels.matmul import Tiling

from . import reference
from .test_decode import matrix, numbers


def sliced(name):
    return name == "q4_1 slices"


def check_matmul(launch, count, columns, rows, name, eps=None, add=False, tiling=None):
    rng = np.random.default_rng(columns)
    x, gain = numbers(rng, count, columns, scale=3), 1 + numbers(rng, columns, scale=0.1)
    weights, dense = matrix(rng, rows, columns, "q4_1" if sliced(name) else name)
    if sliced(name):
        weights = packing.by_column_slices(weights, columns)
    y = numbers(rng, count, rows)
    given = x if eps is None else reference.rms_norm(x, gain, eps)
    expected = given.astype(np.float64) @ dense.T + (y if add else 0)
    if count > 8:
        x[-1] = np.nan  # padding
    launch(
        *matmul.matmul(count, columns, rows, weights=name, eps=eps, add=add, tiling=tiling),
        *(x.reshape(-1), gain, weights, y.reshape(-1)),
    )
    kept = slice(0, count - 1 if count > 8 else count)
    scale = np.abs(expected[kept]).max()
    np.testing.assert_allclose(y[kept], expected[kept], rtol=0, atol=scale * (1e-4 if name == "bf16" else 1e-5))


@pytest.mark.parametrize(
    ("name", "eps", "add", "tiling"),
    [("q4_1", 1e-5, False, (8, 2, 1)), ("q4_1 slices", None, True, (16, 1, 1)), ("bf16", None, False, (8, 1, 2))],
)
def test_matmul(launch, name, eps, add, tiling):
    check_matmul(launch, 16, 64, 32, name, eps, add, Tiling(*tiling))


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["q4_1", "q4_1 slices", "q4_0", "q8_0", "f16", "bf16"])
@pytest.mark.parametrize(("count", "columns", "rows"), [(16, 576, 960), (128, 1536, 576), (512, 576, 3072)])
def test_matmul_of_a_model(launch_on_gpu, name, count, columns, rows):
    check_matmul(launch_on_gpu, count, columns, rows, name, 1e-5, True)


def check_qkv(launch, count, length, position, *, hidden, heads, kv_heads, head_size, positions):
    rng = np.random.default_rng(length)
    x, gain = numbers(rng, count, hidden, scale=3), 1 + numbers(rng, hidden, scale=0.1)
    projection, dense = matrix(rng, (heads + 2 * kv_heads) * head_size, hidden)
    table = packing.rotary_table(positions, head_size)
    width = kv_heads * head_size
    keys, values = (numbers(rng, positions, width).astype(np.float16) for _ in range(2))
    q = np.empty((count, heads * head_size), np.float32)
    made = reference.rms_norm(x[:length], gain) @ dense.T
    expected_q, expected_k, expected_v = np.split(made, [q.shape[1], q.shape[1] + width], axis=1)
    where = slice(position, position + length)
    expected = keys.copy(), values.copy()
    expected[0][where] = reference.rotated(expected_k, table[where])
    expected[1][where] = expected_v
    x[length:] = np.nan
    launch(
        *matmul.matmul_qkv_rotary_append(count, hidden, heads, kv_heads, head_size),
        *(x.reshape(-1), gain, projection, table.reshape(-1), np.array([position], np.int32)),
        *(np.array([length], np.int32), q.reshape(-1), keys.reshape(-1), values.reshape(-1)),
    )
    np.testing.assert_allclose(q[:length], reference.rotated(expected_q, table[where]), rtol=1e-3, atol=1e-3)
    for found, wanted in zip((keys, values), expected, strict=True):
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=2e-3, atol=2e-3)


def test_matmul_qkv_rotary_append(launch):
    check_qkv(launch, 8, 5, 3, hidden=64, heads=2, kv_heads=1, head_size=32, positions=12)


def check_batch(launch, length, at, *, hidden, heads, kv_heads, head_size, positions):
    rng = np.random.default_rng(length)
    count, width = len(at), kv_heads * head_size
    x, gain = numbers(rng, count, hidden, scale=3), 1 + numbers(rng, hidden, scale=0.1)
    projection, dense = matrix(rng, (heads + 2 * kv_heads) * head_size, hidden)
    table = packing.rotary_table(positions, head_size)
    keys, values = (numbers(rng, count, positions, width).astype(np.float16) for _ in range(2))
    q = np.empty((count, heads * head_size), np.float32)
    made = reference.rms_norm(x, gain) @ dense.T
    expected_q, expected_k, expected_v = np.split(made, [q.shape[1], q.shape[1] + width], axis=1)
    expected = keys.copy(), values.copy()
    for i in range(length):
        expected[0][i, at[i]] = reference.rotated(expected_k[i], table[at[i]])
        expected[1][i, at[i]] = expected_v[i]
    launch(
        *matmul.matmul_qkv_rotary_append(count, hidden, heads, kv_heads, head_size, positions=positions),
        *(x.reshape(-1), gain, projection, table.reshape(-1), np.array(at, np.int32)),
        *(np.array([length], np.int32), q.reshape(-1), keys.reshape(-1), values.reshape(-1)),
    )
    np.testing.assert_allclose(q[:length], reference.rotated(expected_q, table[at])[:length], rtol=1e-3, atol=1e-3)
    for found, wanted in zip((keys, values), expected, strict=True):
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=2e-3, atol=2e-3)


def test_matmul_qkv_rotary_append_of_a_batch(launch):
    at = [0, 3, 1, 11, 2, 2, 5, 0]
    check_batch(launch, 7, at, hidden=64, heads=2, kv_heads=1, head_size=32, positions=12)


@pytest.mark.gpu
@pytest.mark.parametrize(("count", "length", "position"), [(16, 1, 0), (128, 100, 0), (256, 256, 44)])
def test_matmul_qkv_rotary_append_of_a_model(launch_on_gpu, count, length, position):
    check_qkv(launch_on_gpu, count, length, position, hidden=576, heads=9, kv_heads=3, head_size=64, positions=300)


def check_gate_up(launch, count, hidden, units):
    rng = np.random.default_rng(units)
    x, gain = numbers(rng, count, hidden, scale=3), 1 + numbers(rng, hidden, scale=0.1)
    (gate, dense_gate), (up, dense_up) = (matrix(rng, units, hidden) for _ in range(2))
    normed = reference.rms_norm(x, gain)
    expected = reference.silu(normed @ dense_gate.T) * (normed @ dense_up.T)
    y = np.empty((count, units), np.float32)
    both = packing.interleaved(gate, up, units, 16)
    launch(*matmul.matmul_gate_up(count, hidden, units), x.reshape(-1), gain, both, y.reshape(-1))
    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-3)


def test_matmul_gate_up(launch):
    check_gate_up(launch, 8, 64, 16)


@pytest.mark.gpu
@pytest.mark.parametrize("count", [16, 128, 512])
def test_matmul_gate_up_of_a_model(launch_on_gpu, count):
    check_gate_up(launch_on_gpu, count, 576, 1536)


def test_tilings_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="20 tokens"):
        matmul.matmul(20, 64, 64)
    with pytest.raises(ValueError, match="turns of 16 rows of gate"):
        matmul.matmul_gate_up(16, 64, 64, tiling=Tiling(8, 1, 1))
