"""The engine on a GPU, with the real model: the tokens of a request are those that it has when it is alone."""

import numpy as np
import pytest
from smollm2 import soak
from smollm2.engine import Engine
from smollm2.engine_graphs import Room, weight_arrays
from smollm2.launches import Launches
from smollm2.memory import arena

import graphdsl as gd

pytestmark = pytest.mark.gpu

ROOM = Room(pages=257)


@pytest.fixture(scope="module")
def engine(real):
    with Engine(Launches.of(real, gd.cuda(), ROOM)) as engine:
        yield engine


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
