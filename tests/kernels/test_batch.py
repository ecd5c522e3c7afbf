"""Products for a step of several sequences, against NumPy; and that a token gets the same among any others."""

from __future__ import annotations

import numpy as np
import pytest
from graphdsl.kernels import batch, batch_head, embedding, packing
from graphdsl.kernels.choices import chosen_index
from graphdsl.kernels.column_parts import Tiling, tiling_for

from . import reference
from .test_decode import matrix, numbers


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


def check_residual(launch, count, columns, hidden, sliced, tiling=None):
    rng = np.random.default_rng(columns)
    x, y = numbers(rng, count, columns, scale=3), numbers(rng, count, hidden)
    gain = 1 + numbers(rng, hidden, scale=0.1)
    weights, dense = matrix(rng, hidden, columns)
    expected = x.astype(np.float64) @ dense.T + y
    name = "q4_1"
    if sliced:
        weights, name = packing.by_column_slices(weights, columns), "q4_1 slices"
    words, squares = np.zeros(count * hidden, np.uint32), np.zeros(count * hidden // 8, np.float32)
    then = "q8_0" if sliced else "q4_1"
    kernel = batch.batch_residual(count, columns, hidden, weights=name, then=then, tiling=tiling)
    launch(*kernel, reference.as_words(x, sliced), weights, gain, y.reshape(-1), words, squares)
    close(y, expected)
    close(reference.of_words(words, count, sliced), expected * gain)
    close(squares, reference.squares(expected))
    return y, words, squares


@pytest.mark.parametrize("sliced", [False, True])
def test_batch_residual(launch, sliced):
    check_residual(launch, 8, 64, 32, sliced, Tiling(8, 1, 2))


@pytest.mark.gpu
@pytest.mark.parametrize(("columns", "sliced"), [(576, False), (1536, True)])
@pytest.mark.parametrize("tokens", [8, 16, 32])
def test_batch_residual_of_a_model(launch_on_gpu, columns, sliced, tokens):
    warps = tiling_for(32, columns, 576).warps
    check_residual(launch_on_gpu, 32, columns, 576, sliced, Tiling(tokens, 1, warps))


def check_gate_up(launch, count, hidden, units, tiling=None):
    rng = np.random.default_rng(units)
    x, gain = numbers(rng, count, hidden, scale=3), 1 + numbers(rng, hidden, scale=0.1)
    (gate, dense_gate), (up, dense_up) = (matrix(rng, units, hidden) for _ in range(2))
    normed = reference.rms_norm(x, gain)
    words = np.zeros(count * units, np.uint32)
    kernel = batch.batch_gate_up(count, hidden, units, tiling=tiling)
    both = packing.interleaved(gate, up, units, 16)
    launch(*kernel, reference.as_words(x * gain), reference.squares(x), both, words)
    close(reference.of_words(words, count, True), reference.silu(normed @ dense_gate.T) * (normed @ dense_up.T))


def test_batch_gate_up(launch):
    check_gate_up(launch, 8, 64, 32, Tiling(8, 2, 2))


@pytest.mark.gpu
@pytest.mark.parametrize("count", [8, 32, 64])
def test_batch_gate_up_of_a_model(launch_on_gpu, count):
    check_gate_up(launch_on_gpu, count, 576, 1536)


def check_qkv(launch, count, *, hidden, heads, kv_heads, head_size, places):
    rng = np.random.default_rng(count)
    x, gain = numbers(rng, count, hidden, scale=3), 1 + numbers(rng, hidden, scale=0.1)
    projection, dense = matrix(rng, (heads + 2 * kv_heads) * head_size, hidden)
    table, width = packing.rotary_table(40, head_size), kv_heads * head_size
    keys, values = (numbers(rng, places, width).astype(np.float16) for _ in range(2))
    positions = rng.integers(0, 40, count).astype(np.int32)
    where = rng.permutation(places)[:count].astype(np.int32)
    positions[2] = -1
    real = positions >= 0
    q = np.empty((count, heads * head_size), np.float32)
    made = reference.rms_norm(x, gain) @ dense.T
    expected_q, expected_k, expected_v = np.split(made, [q.shape[1], q.shape[1] + width], axis=1)
    expected = keys.copy(), values.copy()
    expected[0][where[real]] = reference.rotated(expected_k, table[positions])[real]
    expected[1][where[real]] = expected_v[real]
    launch(
        *batch.batch_qkv(count, hidden, heads, kv_heads, head_size),
        *(reference.as_words(x * gain), reference.squares(x), projection, table.reshape(-1), positions, where),
        *(q.reshape(-1), keys.reshape(-1), values.reshape(-1)),
    )
    np.testing.assert_allclose(q[real], reference.rotated(expected_q, table[positions])[real], rtol=1e-3, atol=1e-3)
    for found, wanted in zip((keys, values), expected, strict=True):
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=2e-3, atol=2e-3)


def test_batch_qkv(launch):
    check_qkv(launch, 8, hidden=32, heads=1, kv_heads=1, head_size=32, places=16)


@pytest.mark.gpu
@pytest.mark.parametrize("count", [8, 32, 256])
def test_batch_qkv_of_a_model(launch_on_gpu, count):
    check_qkv(launch_on_gpu, count, hidden=576, heads=9, kv_heads=3, head_size=64, places=512)


def check_head(launch, count, hidden, vocabulary, **options):
    rng = np.random.default_rng(vocabulary)
    x, gain = numbers(rng, count, hidden, scale=3), 1 + numbers(rng, hidden, scale=0.1)
    table, dense = matrix(rng, vocabulary, hidden, "q8_0")
    sources = rng.permutation(count).astype(np.int32)
    slots, temperature = np.arange(count, dtype=np.int32) % 2, np.array([0, 0.5], np.float32)
    logits, best = np.full((count, vocabulary), np.nan, np.float32), np.zeros(count, np.int64)
    launch(
        *batch_head.batch_head(count, hidden, vocabulary, **options),
        *(reference.as_words(x * gain, True), reference.squares(x), table, sources, slots, temperature),
        *(logits.reshape(-1), best),
    )
    expected = (reference.rms_norm(x, gain) @ dense.T)[sources]
    drawn = temperature[slots[sources]] > 0
    close(logits[drawn], expected[drawn])
    assert np.isnan(logits[~drawn]).all()
    tokens = [chosen_index.py_func(int(key)) for key in best]
    assert (np.take_along_axis(expected, np.array(tokens)[:, None], 1)[:, 0] >= expected.max(axis=1) - 1e-4).all()


def test_batch_head(launch):
    check_head(launch, 8, 32, 48, multiprocessors=2)


@pytest.mark.gpu
@pytest.mark.parametrize("count", [8, 16, 32])
def test_batch_head_of_a_model(launch_on_gpu, count):
    check_head(launch_on_gpu, count, 576, 49152)


def test_batch_embedding(launch):
    rng = np.random.default_rng(3)
    table, dense = matrix(rng, 8, 32, "q8_0")
    gain, tokens = 1 + numbers(rng, 32, scale=0.1), np.array([3, 7], np.int32)
    x, words, squares = np.empty(64, np.float32), np.zeros(64, np.uint32), np.zeros(8, np.float32)
    launch(*embedding.batch_embedding(32, 2, threads=32), tokens, table, gain, x, words, squares)
    close(x.reshape(2, 32), dense[tokens])
    close(reference.of_words(words, 2), dense[tokens] * gain)
    close(squares, reference.squares(dense[tokens]))


@pytest.mark.gpu
def test_a_token_gets_the_same_bits_with_any_number_of_others(launch_on_gpu):
    rng = np.random.default_rng(0)
    weights, _ = matrix(rng, 576, 576)
    gain, x = np.ones(576, np.float32), numbers(rng, 64, 576)
    found = []
    for count in (8, 16, 32, 64):
        y, words, squares = (np.zeros(count * 576, np.float32), np.zeros(count * 576, np.uint32),
                             np.zeros(count * 72, np.float32))  # fmt: skip
        kernel = batch.batch_residual(count, 576, 576)
        launch_on_gpu(*kernel, reference.as_words(x[:count]), weights, gain, y, words, squares)
        found.append(y[: 8 * 576])
    assert all((each == found[0]).all() for each in found)


def test_tilings_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="5 warps"):
        batch.batch_residual(8, 576, 576, tiling=Tiling(8, 1, 5))
    with pytest.raises(ValueError, match="gate without up"):
        batch.batch_gate_up(8, 64, 64, tiling=Tiling(8, 1, 1))
    with pytest.raises(ValueError, match="20 tokens"):
        tiling_for(20, 64, 64)
