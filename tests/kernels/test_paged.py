"""Attention over pages, against NumPy, and that it does not matter which pages they are."""

from __future__ import annotations

import numpy as np
import pytest
from graphdsl.kernels import paged

from . import reference
from .test_decode import numbers


def check_paged(launch, at, heads, kv_heads, head_size, page_size, pages_per_sequence, firsts=None, **options):
    rng = np.random.default_rng(len(at))
    count, pages = len(at), 1 + len(at) * pages_per_sequence
    q = numbers(rng, count, heads, head_size)
    keys, values = (numbers(rng, pages, page_size, kv_heads, head_size).astype(np.float16) for _ in range(2))
    table = 1 + rng.permutation(pages - 1).astype(np.int32).reshape(count, pages_per_sequence)
    slots = rng.permutation(count).astype(np.int32)
    expected = np.zeros((count, heads, head_size))
    for i, p in enumerate(at):
        if p >= 0:
            mine = [cache[table[slots[i]]].reshape(-1, kv_heads, head_size) for cache in (keys, values)]
            expected[i] = reference.attention(q[i : i + 1], *mine, p)[0]
    keys[0] = values[0] = np.nan  # nobody reads the scrap page
    words = np.zeros(count * heads * head_size, np.uint32)
    shape = {"page_size": page_size, "pages_per_sequence": pages_per_sequence}
    launch(
        *paged.paged_attention(count, heads, kv_heads, head_size, **shape, **options),
        *(q.reshape(-1), keys.reshape(-1), values.reshape(-1), table.reshape(-1), slots),
        *(np.array(at, np.int32), np.array(firsts or at, np.int32), words),
    )
    found = reference.of_words(words, count).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_paged_attention(launch):
    check_paged(launch, [13, -1, 0], 2, 1, 32, 4, 4, firsts=[2, -1, 0], threads=32)


@pytest.mark.gpu
@pytest.mark.parametrize("threads", [128, 256, 512, 1024])
def test_paged_attention_of_a_model(launch_on_gpu, threads):
    check_paged(launch_on_gpu, [0, 15, 16, 99, -1, 500, 1023, 64], 9, 3, 64, 16, 64, threads=threads)


def test_pages_are_powers_of_two():
    with pytest.raises(ValueError, match="pages of 12 positions"):
        paged.paged_attention(8, 2, 1, 32, page_size=12, pages_per_sequence=4)
