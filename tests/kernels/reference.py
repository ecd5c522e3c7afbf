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


def _columns_of_words(columns: int, in_order: bool) -> Array:
    """The column of each number of 16 bits in the words of a vector: (block, part, word, half)."""
    block, part, word, half = np.ogrid[: columns // 32, :4, :4, :2]
    quad = 2 * part + (word >> 1) if in_order else part + 4 * (word >> 1)
    return 32 * block + 4 * quad + (word & 1) + 2 * half


def as_words(x: Array, in_order: bool = False) -> Array:
    """Vectors (count, columns) as `graphdsl.kernels.column_parts.words_of` has them: two float16 a number."""
    small = x.astype(np.float32) / 16
    high = small.astype(np.float16)
    both = np.stack([high, (small - high).astype(np.float16)], axis=1)[..., _columns_of_words(x.shape[1], in_order)]
    return np.ascontiguousarray(both.transpose(0, 2, 3, 1, 4, 5)).view(np.uint32).reshape(-1)


def of_words(words: Array, count: int, in_order: bool = False) -> Array:
    """What words stand for: the way back of `as_words`."""
    columns = words.size // count
    parts = words.reshape(count, columns // 32, 4, 2, 4).view(np.float16).reshape(count, columns // 32, 4, 2, 4, 2)
    found = np.empty((count, columns), np.float64)
    found[:, _columns_of_words(columns, in_order)] = 16 * parts.astype(np.float64).sum(axis=3)
    return found


def squares(x: Array) -> Array:
    """The sums of squares of each eight numbers."""
    return (x.astype(np.float64) ** 2).reshape(-1, 8).sum(axis=1).astype(np.float32)
