"""An engine's graphs, against the reference: requests come and go, and get what they would get alone."""

from __future__ import annotations

import numpy as np
import pytest
from smollm2.engine_graphs import RING, Room, engine_graph, engine_prompt_graph, request, state_arrays, weight_arrays
from smollm2.memory import arena
from smollm2.weights import Config, random_weights

import graphdsl as gd

from .reference import Reference, greedy

RUNNING, STOPPED, FULL, EXHAUSTED = 1, 2, 3, 4
CONFIG = Config(hidden=32, layers=1, heads=1, kv_heads=1, head_size=32, mlp=32, vocabulary=48)
ROOM = Room(slots=3, pages=6, page_size=2, context=8)
TUNING = {"attention": {"threads": 32}, "head": {"multiprocessors": 1}}


class Engine:
    """What the host does: it fills rows of rings, launches, and reads rows."""

    def __init__(self, device, weights, room, buckets, rows, tuning=None) -> None:
        self.room = room
        arrays = weight_arrays(weights, room) | state_arrays(weights.config, room)
        self.memory = arena(device, arrays)
        shared = {"room": room, "memory": self.memory, "tuning": tuning}
        self.steps = {n: engine_graph(weights.config, n, **shared).instantiate(device) for n in buckets}
        self.prompts = engine_prompt_graph(weights.config, rows, **shared).instantiate(device)
        self.launches = 0

    def prompt(self, slot, tokens, *, start=0, **options):
        row, exe = self.launches % RING, self.prompts
        exe["prompt"][row, : len(tokens)] = tokens
        exe["request"][row] = request(slot, start, len(tokens), **options)
        return self._launched(exe)[0]

    def step(self, *slots, bucket):
        row, exe = self.launches % RING, self.steps[bucket]
        exe["slots"][row] = [*slots, *[self.room.scrap_slot] * (bucket - len(slots))]
        return self._launched(exe)

    def _launched(self, exe):
        row = self.launches % RING
        self.launches += 1
        exe.launch()
        exe.synchronize()
        return list(zip(exe["tokens"][row].tolist(), exe["states"][row].tolist()))

    def __getitem__(self, name):
        return self.memory[name].copy_to_host()


@pytest.fixture(scope="module")
def weights():
    return random_weights(CONFIG, 1)


@pytest.fixture
def engine(weights):
    return Engine(gd.emulator(), weights, ROOM, (1, 2), 8, TUNING)


def test_graphs_of_an_engine_have_no_findings():
    assert not list(engine_graph(CONFIG, 2, ROOM, tuning=TUNING).check())
    assert not list(engine_prompt_graph(CONFIG, 8, ROOM, tuning=TUNING).check())


def test_requests_get_what_they_would_get_alone_and_give_their_pages_back(engine, weights):
    first, second = greedy(Reference(weights), [[3, 1, 28], [36]], 3)
    assert engine.prompt(1, [3, 1], final=False, limit=6) == (-1, 0)
    assert engine.prompt(1, [28], start=2, limit=6) == (first.tokens[0], RUNNING)
    assert engine.step(1, bucket=1) == [(first.tokens[1], RUNNING)]
    assert engine.prompt(0, [36], limit=8, stop=second.tokens[1]) == (second.tokens[0], RUNNING)
    both = engine.step(0, 1, bucket=2)
    assert both == [(second.tokens[1], STOPPED), (first.tokens[2], FULL)]
    assert engine.step(1, bucket=1) == [(-1, FULL)]  # it runs no more
    assert (engine["free_count"][0], engine["held"].any(), engine["page_table"].any()) == (5, False, False)
    assert sorted(engine["free_pages"][:5]) == [1, 2, 3, 4, 5]


def test_who_finds_no_page_is_marked_and_the_others_go_on(engine, weights):
    (wanted,) = greedy(Reference(weights), [[7, 8, 21]], 2)
    assert engine.prompt(2, [1, 2, 3, 4, 5, 6, 7], limit=8)[1] == FULL  # the token fills it at once
    assert engine.prompt(0, [1, 2, 3, 4], limit=8)[1] == RUNNING  # 3 pages, one of them for the token that follows
    assert engine.prompt(2, [1, 2, 3, 4, 5], limit=8) == (-1, EXHAUSTED)
    assert engine.prompt(1, [7, 8, 21], limit=8) == (wanted.tokens[0], RUNNING)  # the last 2 pages
    assert engine.step(1, bucket=1) == [(wanted.tokens[1], EXHAUSTED)]
    assert engine["state"].tolist() == [RUNNING, EXHAUSTED, EXHAUSTED, 0]
    assert (engine["held"].tolist(), engine["free_count"][0]) == ([3, 0, 0, 0], 2)
    assert engine.prompt(0, [], limit=8) == (-1, 0)  # given up
    assert engine["free_count"][0] == 5


@pytest.mark.gpu
@pytest.mark.parametrize("warmth", [0.0, 0.8])
def test_a_request_gets_the_same_tokens_in_any_bucket_slot_and_pages(real, warmth):
    rng = np.random.default_rng(0)
    engine = Engine(gd.cuda(), real, Room(slots=32, pages=2049, context=512), (1, 2, 8, 16, 32), 64)
    prompts = [rng.integers(0, real.config.vocabulary, rng.integers(1, 64)).tolist() for _ in range(32)]
    drawn = [{"limit": 512, "temperature": warmth, "seed": 1000 + i} for i in range(32)]
    alone = []
    for i, prompt in enumerate(prompts):
        made = [engine.prompt(i % 3, prompt, **drawn[i])[0]]
        alone.append(made + [engine.step(i % 3, bucket=1 + i % 2)[0][0] for _ in range(24)])
        engine.prompt(i % 3, [], limit=1)
    slots = rng.permutation(32).tolist()
    together = [[engine.prompt(slots[i], prompt, **drawn[i])[0]] for i, prompt in enumerate(prompts)]
    for _ in range(24):
        for made, (token, _) in zip(together, engine.step(*slots, bucket=32), strict=True):
            made.append(token)
    assert together == alone
    if not warmth:
        wanted = greedy(Reference(real), prompts[:4], 8)
        assert [made[:8] for made in alone[:4]] == [each.tokens for each in wanted]
