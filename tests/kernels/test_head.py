"""The output head, the choice of a token, and the embedding of one, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from graphdsl.kernels import embedding, head, sampling

from . import reference
from .test_decode import matrix, numbers


def a_head(rng, hidden, vocabulary):
    x, gain = numbers(rng, hidden, scale=3), 1 + numbers(rng, hidden, scale=0.1)
    table, dense = matrix(rng, vocabulary, hidden, "q8_0")
    return x, gain, table, dense @ reference.rms_norm(x, gain)


def check_greedy(launch, hidden, vocabulary, **options):
    x, gain, table, logits = a_head(np.random.default_rng(vocabulary), hidden, vocabulary)
    best = np.zeros(1, np.int64)
    launch(*head.greedy_head(hidden, vocabulary, **options), x, gain, table, best)
    token, position, tokens = np.zeros(1, np.int32), np.array([3], np.int32), np.full(5, -1, np.int32)
    launch(sampling.take_best, 1, 32, best, token, position, tokens)
    assert token[0] == logits.argmax()
    assert (position[0], tokens.tolist(), best[0]) == (4, [-1, -1, -1, -1, token[0]], 0)
    launch(sampling.take_best, 1, 32, np.array([2**31 * 5 + 2**31 - 1 - 7]), token, position, tokens)
    assert (token[0], position[0], tokens[4] == 7) == (7, 5, False)  # behind the end nothing is written


def test_take_all(launch):
    chosen, token = np.array([5, 6, 7], np.int32), np.zeros(3, np.int32)
    position, tokens = np.array([0, 3, 1], np.int32), np.full((3, 4), -1, np.int32)
    launch(sampling.take_all, 1, 2, chosen, token, position, tokens)
    assert (token.tolist(), position.tolist()) == ([5, 6, 7], [1, 4, 2])
    assert tokens.tolist() == [[-1, 5, -1, -1], [-1] * 4, [-1, -1, 7, -1]]


def test_greedy_head(launch):
    check_greedy(launch, 64, 96, lanes=2, threads=64, blocks=2, multiprocessors=1)


@pytest.mark.gpu
@pytest.mark.parametrize("options", [{}, {"lanes": 8}, {"lanes": 2, "threads": 128}])
def test_greedy_head_of_a_model(launch_on_gpu, options):
    check_greedy(launch_on_gpu, 576, 49152, **options)


def check_logits(launch, hidden, vocabulary, **options):
    x, gain, table, expected = a_head(np.random.default_rng(vocabulary), hidden, vocabulary)
    logits = np.empty(vocabulary, np.float32)
    launch(*head.logits_head(hidden, vocabulary, **options), x, gain, table, logits)
    np.testing.assert_allclose(logits, expected, rtol=1e-3, atol=1e-3)


def test_logits_head(launch):
    check_logits(launch, 96, 32, lanes=2, threads=64)


@pytest.mark.gpu
def test_logits_head_of_a_model(launch_on_gpu):
    check_logits(launch_on_gpu, 576, 49152)


def drawn(logits, position, temperature, k, seed):
    """The token that is sampled, and by how much it wins."""
    words = [reference.philox([i, 0, position, 0], [seed & 0xFFFFFFFF, seed >> 32])[0] for i in range(logits.size)]
    noise = -np.log(-np.log(((np.array(words) >> 9) + 0.5) * 2.0**-23))
    kept = logits >= np.sort(logits)[-min(k, logits.size)]
    if temperature:
        values = np.where(kept, logits.astype(np.float64) / temperature + noise, -np.inf)
    else:
        values = np.where(kept, logits, -np.inf)
    first, second = np.sort(values)[[-1, -2]]
    return values.argmax(), first - second


def check_sample(launch, vocabulary, threads, temperature, k, seed=2**33 + 5):
    logits = numbers(np.random.default_rng(k), vocabulary, scale=2)
    token, position, tokens = np.zeros(1, np.int32), np.array([6], np.int32), np.zeros(8, np.int32)
    expected, margin = drawn(logits, 6, temperature, k, seed)
    assert margin > 1e-4  # otherwise rounding decides: take another seed
    launch(
        *sampling.sample_top_k(vocabulary, threads=threads),
        *(logits, token, position, tokens, np.float32(temperature), np.int32(k), np.uint64(seed)),
    )
    assert (token[0], position[0], tokens[7]) == (expected, 7, expected)


@pytest.mark.parametrize(("temperature", "k"), [(0.0, 5), (0.8, 1), (0.8, 5), (3.0, 40), (1.0, 1000)])
def test_sample_top_k(launch, temperature, k):
    check_sample(launch, 70, 64, temperature, k)


@pytest.mark.gpu
@pytest.mark.parametrize(("temperature", "k"), [(0.0, 5), (0.8, 40), (3.0, 2000), (1.0, 100_000)])
def test_sample_top_k_of_a_model(launch_on_gpu, temperature, k):
    check_sample(launch_on_gpu, 49152, 1024, temperature, k)


def test_the_reference_of_philox_gives_the_words_that_its_authors_publish():
    assert reference.philox([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    ones = [0xFFFFFFFF] * 4
    assert reference.philox(ones, ones[:2]) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


@pytest.mark.parametrize("weights", ["f16", "bf16", "q8_0"])
def test_embedding(launch, weights):
    hidden, tokens = 64, np.array([3, 0, 3, 7], np.int32)
    table, dense = matrix(np.random.default_rng(0), 8, hidden, weights)
    x = np.empty(tokens.size * hidden, np.float32)
    launch(*embedding.embedding(hidden, tokens.size, weights=weights, threads=32), tokens, table, x)
    np.testing.assert_array_equal(x.reshape(-1, hidden), dense[tokens].astype(np.float32))


def test_formats_that_no_table_has_are_refused():
    with pytest.raises(ValueError, match="q4_1"):
        embedding.embedding(64, weights="q4_1")
