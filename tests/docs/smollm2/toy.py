"""A model for which a token is a few additions, in the graphs of the engine: its state and pages are the real ones.

The token that follows others is a sum over all of them, each times its place, read through the page table: one that is
read from a wrong page, a wrong place or a neighbour changes all that follow.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from graphdsl.kernels import slots
from numba import cuda
from smollm2.engine_graphs import RING, Room
from smollm2.memory import arena
from smollm2.model import Chain

VOCABULARY = 97


@dataclass(frozen=True)
class Config:
    vocabulary: int = VOCABULARY


ROOM = Room(slots=4, pages=12, page_size=2, context=16)


@cuda.jit
def remember(tokens, places, positions, kept):
    """Put the tokens of all rows where the page table has them."""
    r = cuda.grid(1)
    if r < tokens.size and positions[r] >= 0:
        kept[places[r]] = tokens[r]


@functools.cache
def think(room):
    pages, page = room.pages_per_sequence, room.page_size

    @cuda.jit
    def think(slots, positions, sources, page_table, kept, weight, chosen):
        """The token that follows those of a sequence."""
        i = cuda.grid(1)
        if i < chosen.size and sources[i] >= 0 and positions[sources[i]] >= 0:
            row = sources[i]
            total = weight[0]
            for p in range(positions[row] + 1):
                place = page_table[slots[row] * pages + p // page] * page + p % page
                total += (p + 3) * (kept[place] + 1)
            chosen[i] = total % VOCABULARY

    return think


def answer(prompt, most, *, weight=5, stop=None):
    """What the graphs answer, in plain Python."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + most and (stop is None or len(tokens) == len(prompt) or tokens[-1] != stop):
        tokens.append((weight + sum((p + 3) * (token + 1) for p, token in enumerate(tokens))) % VOCABULARY)
    return tokens[len(prompt) :]


def state(device, room=ROOM):
    """The state of an engine."""
    count = room.slots + 1
    ints = ("token", "position", "state", "held", "limit", "stop", "top_k")
    free = np.arange(room.pages - 1, 0, -1, dtype=np.int32)
    return arena(
        device,
        {
            **{name: np.zeros(count, np.int32) for name in ints},
            "temperature": np.zeros(count, np.float32),
            "seed": np.zeros(count, np.uint64),
            "page_table": np.zeros(count * room.pages_per_sequence, np.int32),
            "free_pages": np.append(free, np.int32(0)),
            "free_count": np.array([free.size], np.int32),
            "step": np.zeros(1, np.int32),
            "kept": np.full(room.positions, -(10**6), np.int32),
        },
    )


def weights(device, weight=5):
    """The one weight of the model."""
    return arena(device, {"weight": np.array([weight], np.int32)})


class _Graph:
    def __init__(self, name, rows, outs, room, memory):
        self.chain = Chain(name, overlapping=False)
        self.graph = g = self.chain.graph
        self.room = room
        self.given = {key: g.external(key, array) for key, array in memory.items()}
        for key in ("tokens", "slots", "positions", "firsts", "places"):
            setattr(self, key, g.device_array(f"row_{key}", rows, np.int32))
        self.sources, self.chosen = (g.device_array(key, outs, np.int32) for key in ("sources", "chosen"))
        self.best = g.device_array("best", outs, np.int64)
        self.begun = (self.tokens, self.slots, self.positions, self.firsts, self.places, self.sources, self.best)
        self.paging = {"page_size": room.page_size, "pages_per_sequence": room.pages_per_sequence, "ring": RING}
        self.pages = self.take("held", "page_table", "free_pages", "free_count")

    def take(self, *names):
        return tuple(self.given[name] for name in names)

    def choose(self, rows, shown):
        """All behind the first kernel."""
        g, chain = self.graph, self.chain
        launched = chain.add
        launched(
            slots.Launch(remember, 1, rows), (self.tokens, self.places, self.positions, *self.take("kept")), "keep"
        )
        table = self.take("page_table", "kept", "weight")
        where = self.slots, self.positions, self.sources
        launched(slots.Launch(think(self.room), 1, self.chosen.shape[0]), (*where, *table, self.chosen), "think")
        tokens, states = (g.host_array(key, (RING, shown), np.int32) for key in ("tokens", "states"))
        went = self.take("step", "state", "token", "position")
        args = (self.chosen, self.sources, self.slots, self.positions, *self.take("limit", "stop"), *went, *self.pages)
        launched(slots.advance(shown, shown, **self.paging), (*args, states, tokens), "advance")
        return g


def step_graph(config, sequences, room, memory):
    made = _Graph(f"step{sequences}", sequences, sequences, room, memory)
    wanted = made.graph.host_array("slots", (RING, sequences), np.int32)
    begin = slots.begin_step(sequences, sequences, room.scrap_slot, **made.paging)
    state = made.take("step", "state", "token", "position", "page_table")
    made.chain.add(begin, (wanted, *state, *made.begun), "begin")
    return made.choose(sequences, sequences)


def prompt_graph(config, rows, room, memory):
    made = _Graph(f"prompt{rows}", rows, 1, room, memory)
    g = made.graph
    given = g.host_array("prompt", (RING, rows), np.int32), g.host_array("request", (RING, slots.REQUEST), np.int32)
    begin = slots.begin_prompt(rows, 1, room.scrap_slot, **made.paging)
    state = made.take("step", "state", "limit", "stop", "top_k", "temperature", "seed")
    made.chain.add(begin, (*given, *state, *made.pages, *made.begun), "begin")
    return made.choose(rows, 1)
