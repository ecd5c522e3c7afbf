"""The engine on a GPU, with the real model: tokens are those of the reference, with neighbours as alone."""

import numpy as np
import pytest
from smollm2 import soak
from smollm2.engine import Engine
from smollm2.engine_graphs import Room, weight_arrays
from smollm2.launches import Launches
from smollm2.memory import arena

import graphdsl as gd

from . import held
from .reference import Reference, greedy

pytestmark = pytest.mark.gpu

ROOM = Room(pages=257)


@pytest.fixture(scope="module")
def engine(real):
    with Engine(Launches.of(real, gd.cuda(), ROOM)) as engine:
        yield engine


ROUNDING = 0.05
"""By so much two logits may change places: twice what `held` measured, and some more. The largest are above 10."""


def test_answers_are_those_of_the_reference(real, real_tokenizer, engine):
    """All at once; where rounding chose the other of two tokens, the request goes on from that of the reference."""
    prompts = held.conversations(real_tokenizer)
    left = [(wanted, 0) for wanted in greedy(Reference(real), prompts, held.STEPS)]
    asked, ties = list(prompts), 0
    while left:
        answers = [engine.submit(prompt, held.STEPS - done) for prompt, (_, done) in zip(asked, left)]
        engine.run()
        again = []
        for prompt, answer, (wanted, done) in zip(asked, answers, left, strict=True):
            if answer.tokens != wanted.tokens[done:]:
                step = held.first_difference(answer.tokens, wanted.tokens[done:])
                assert wanted.margin(done + step, answer.tokens[step]) < ROUNDING
                ties += 1
                if done + step + 1 < held.STEPS:
                    again.append(([*prompt, *wanted.tokens[done : done + step + 1]], (wanted, done + step + 1)))
        asked, left = [prompt for prompt, _ in again], [each for _, each in again]
    assert ties <= held.NEAR_TIES * len(prompts) * held.STEPS


def test_each_is_answered_as_if_it_were_alone(engine):
    """Half of them greedy, half drawn with seeds of their own; they come at random, and some leave before their end."""
    rng = np.random.default_rng(3)
    asks = []
    for i in range(60):
        prompt = rng.integers(0, engine.config.vocabulary, int(rng.integers(1, 300))).tolist()
        sampling = {"temperature": 0.8, "top_k": int(rng.integers(1, 100)), "seed": i} if i % 2 else {}
        asks.append((prompt, int(rng.integers(1, 60)), sampling))
    answers = []
    for prompt, most, sampling in asks:
        answers.append(engine.submit(prompt, most, **sampling))
        for _ in range(int(rng.integers(0, 6))):
            engine.turn()
        if rng.random() < 0.2:
            engine.cancel(answers[int(rng.integers(len(answers)))])
    engine.run()
    assert max(engine.batches) > 8
    for answer, (prompt, most, sampling) in zip(answers, asks):
        alone = engine.submit(prompt, most, **sampling)
        engine.run()
        assert answer.tokens == alone.tokens[: len(answer.tokens)]
        assert answer.ending == "cancelled" or len(answer.tokens) == most
    state = engine.launches.state
    assert state["free_count"].copy_to_host()[0] == ROOM.pages - 1


def test_a_short_soak(real, engine):
    prompts = soak.prompts_of(real.config.vocabulary, count=12)
    expected = soak.alone(engine, prompts, 48)
    spare = arena(engine.launches.device, weight_arrays(real, ROOM))
    blocks = soak.Blocks(engine.launches.device, engine.launches.weights, spare)
    record = soak.soak(engine, prompts, expected, blocks, steps=3000, swap_every=250)
    blocks.close()
    assert not record.wrong_answers, record.wrong
    assert record.swaps == 12
    assert record.growth[0] <= 0
