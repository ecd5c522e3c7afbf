"""Attention over a cache, of many tokens and of one with a long past, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from graphdsl.kernels import attention

from . import reference
from .test_decode import numbers


def check_causal(launch, count, length, position, heads, kv_heads, head_size, **options):
    rng = np.random.default_rng(length)
    positions = position + length + 3
    q = numbers(rng, count, heads, head_size)
    keys, values = (numbers(rng, positions, kv_heads, head_size).astype(np.float16) for _ in range(2))
    expected = reference.attention(q[:length], keys, values, position)
    keys[position + length :] = values[position + length :] = np.nan  # nobody looks behind the last token
    y = np.empty_like(q)
    where = np.array([position], np.int32), np.array([length], np.int32)
    launch(
        *attention.causal_attention(count, heads, kv_heads, head_size, **options),
        *(q.reshape(-1), keys.reshape(-1), values.reshape(-1), *where, y.reshape(-1)),
    )
    np.testing.assert_allclose(y[:length], expected, rtol=1e-3, atol=1e-3)
    assert np.isfinite(y).all()


@pytest.mark.parametrize(("length", "position"), [(8, 0), (5, 0), (3, 6)])
def test_causal_attention(launch, length, position):
    check_causal(launch, 8, length, position, 2, 1, 32, queries=2, threads=64)


@pytest.mark.gpu
@pytest.mark.parametrize("queries", [1, 2, 4, 8])
@pytest.mark.parametrize(("count", "length", "position"), [(16, 15, 0), (128, 128, 0), (256, 129, 0), (64, 33, 200)])
@pytest.mark.parametrize(("heads", "kv_heads", "head_size"), [(9, 3, 64), (4, 4, 128)])
def test_causal_attention_of_a_model(launch_on_gpu, queries, count, length, position, heads, kv_heads, head_size):
    check_causal(launch_on_gpu, count, length, position, heads, kv_heads, head_size, queries=queries)


def check_decode(launch, positions, at, heads, kv_heads, head_size, splits, **options):
    rng = np.random.default_rng(splits)
    count = len(at)
    q = numbers(rng, count, heads, head_size)
    keys, values = (numbers(rng, count, positions, kv_heads, head_size).astype(np.float16) for _ in range(2))
    expected = [reference.attention(q[i : i + 1], keys[i], values[i], at[i])[0] for i in range(count)]
    for i, p in enumerate(at):
        keys[i, p + 1 :] = values[i, p + 1 :] = np.nan
    y = np.empty_like(q)
    made = y if splits == 1 else np.empty((count, heads, splits, head_size + 2), np.float32)
    launch(
        *attention.decode_attention(
            heads, kv_heads, head_size, count=count, positions=positions, splits=splits, **options
        ),
        *(q.reshape(-1), keys.reshape(-1), values.reshape(-1), np.array(at, np.int32), made.reshape(-1)),
    )
    if splits > 1:
        combined = attention.combined_attention(heads, head_size, count=count, splits=splits)
        launch(*combined, made.reshape(-1), y.reshape(-1))
    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("splits", [1, 3])
def test_decode_attention(launch, splits):
    check_decode(launch, 40, [0, 37], 2, 1, 32, splits, threads=32)


@pytest.mark.gpu
@pytest.mark.parametrize("splits", [1, 4])
@pytest.mark.parametrize(("heads", "kv_heads", "head_size"), [(9, 3, 64), (32, 32, 128)])
def test_decode_attention_of_a_model(launch_on_gpu, splits, heads, kv_heads, head_size):
    check_decode(launch_on_gpu, 600, [0, 3, 128, 599], heads, kv_heads, head_size, splits)


def test_a_block_of_decode_attention_has_a_thread_for_each_element_of_a_head():
    with pytest.raises(ValueError, match="blocks of 32 threads cannot write heads of 64 elements"):
        attention.decode_attention(2, 1, 64, threads=32)
