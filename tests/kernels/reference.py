"""The NumPy meaning of the kernels of a language model, in float64 from weights that are already numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def rms_norm(x: Array, gain: Array, eps: float = 1e-5) -> Array:
    x = x.astype(np.float64)
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * gain


def rotated(x: Array, table: Array) -> Array:
    """Vectors (..., heads * head_size), each turned by its row of a table (..., 2, head_size / 2)."""
    cosine, sine = (table[..., None, part, :].astype(np.float64) for part in range(2))
    pairs = x.astype(np.float64).reshape(*x.shape[:-1], -1, cosine.shape[-1], 2)
    even, odd = pairs[..., 0], pairs[..., 1]
    turned = np.stack([even * cosine - odd * sine, odd * cosine + even * sine], axis=-1)
    return turned.reshape(x.shape)


def softmax(x: Array) -> Array:
    x = x.astype(np.float64)
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def attention(q: Array, keys: Array, values: Array, first: int) -> Array:
    """Causal attention with grouped heads.

    q is (count, heads, head_size), keys and values (positions, kv_heads, head_size); query i is at position first + i.
    """
    group = q.shape[1] // keys.shape[1]
    found = np.empty(q.shape, np.float64)
    for i, head in np.ndindex(q.shape[:2]):
        seen = slice(0, first + i + 1)
        scores = keys[seen, head // group].astype(np.float64) @ q[i, head] / np.sqrt(q.shape[2])
        found[i, head] = softmax(scores) @ values[seen, head // group].astype(np.float64)
    return found


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Philox 4x32-10."""
    a, b, c, d = counter
    k, m = key
    for _ in range(10):
        first, second = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (second >> 32) ^ b ^ k, second & 0xFFFFFFFF, (first >> 32) ^ d ^ m, first & 0xFFFFFFFF
        k, m = (k + 0x9E3779B9) & 0xFFFFFFFF, (m + 0xBB67AE85) & 0xFFFFFFFF
    return [a, b, c, d]
