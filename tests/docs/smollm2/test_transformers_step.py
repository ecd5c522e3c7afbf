"""Steps of transformers as a PyTorch CUDA graph: the tokens are those that the same model gives without one."""

from dataclasses import replace

import numpy as np
import pytest
from smollm2 import transformers_step
from smollm2.weights import SMOLLM2_135M

SMALL = replace(SMOLLM2_135M, hidden=64, layers=2, heads=2, kv_heads=1, head_size=32, mlp=96, vocabulary=128)


@pytest.mark.gpu
@pytest.mark.skipif(not transformers_step.is_there(), reason="needs PyTorch and transformers")
def test_the_graph_goes_on_as_the_model_does():
    prompts = np.random.default_rng(0).integers(0, SMALL.vocabulary, (3, 5))
    model = transformers_step.model_of(SMALL)
    steps, plain = (transformers_step.Steps(model, prompts, 8) for _ in range(2))
    assert len(transformers_step.read_behind(steps.launch, steps.tokens, 6)) == 6
    times = transformers_step.read_behind(lambda: plain.go_on(plain.tokens), plain.tokens, 6)
    assert times == sorted(times)
    assert steps.tokens.tolist() == plain.tokens.tolist()
    assert int(steps.cache.get_seq_length()) == int(plain.cache.get_seq_length())
