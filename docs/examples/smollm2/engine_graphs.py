"""The graphs of an engine that serves many requests: a step of those that run, and one for parts of a new prompt.

All of them share the state of the engine, which lies in device memory, by slot: `graphdsl.kernels.slots` says what
there is. The host writes into rings of pinned memory what a launch shall do before it launches it, and reads what came
of it afterwards: launch k, of any of the graphs, uses row ``k % RING``. So launches can be queued while requests come
and go, and nothing of a graph has to be updated.

Steps of any number of sequences, and prompts in any parts, go through the same kernels, whose sums have one order: the
tokens of a request do not depend on who else is served.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from graphdsl.kernels import batch, batch_head, embedding, paged, slots

import graphdsl as gd

from .memory import Memory, Operands, contents
from .model import Chain
from .weights import Config, Weights

RING = 64
"""Launches that can be queued, at most."""


@dataclass(frozen=True)
class Room:
    """What an engine has room for.

    Attributes
    ----------
    slots : int
        Sequences at the same time, at most 32 or a multiple of it.
    pages : int
        Of the cache, the first of which nobody gets: it is the scrap page.
    page_size : int
        Tokens in a page, a power of two.
    context : int
        Tokens of a sequence, prompt and answer, at most.
    """

    slots: int = 32
    pages: int = 2049
    page_size: int = 16
    context: int = 2048

    @property
    def scrap_slot(self) -> int:
        """The slot of rows of padding."""
        return self.slots

    @property
    def pages_per_sequence(self) -> int:
        return -(-self.context // self.page_size)

    @property
    def positions(self) -> int:
        """Of all pages."""
        return self.pages * self.page_size


def request(
    slot: int,
    start: int,
    count: int,
    *,
    final: bool = True,
    limit: int,
    stop: int = -1,
    temperature: float = 0.0,
    top_k: int = 40,
    seed: int = 0,
) -> np.ndarray:
    """What a prompt graph is asked for, as the words of a row of its ``request``.

    Parameters
    ----------
    slot : int
    start, count : int
        The position of the first of these tokens in the sequence, 0 for a new one; and how many they are. With none of
        them the slot gives its pages back and is idle, whatever it did.
    final : bool
        The prompt ends with them, and a token is chosen. If not, more of it follows.
    limit : int
        Tokens of prompt and answer, at most.
    stop : int
        A token behind which the answer ends; -1 for none.
    temperature : float
        0 for the most probable token.
    top_k : int
        How many of the most probable tokens to draw from.
    seed : int
        With the position it decides what is drawn.

    Examples
    --------
    >>> request(3, 0, 5, limit=100).tolist()
    [3, 0, 5, 1, 100, -1, 40, 0, 0, 0]
    """
    warmth = int(np.float32(temperature).view(np.int32))
    words = [slot, start, count, final, limit, stop, top_k, warmth, seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    return np.array(words, np.int64).astype(np.int32)  # the words of a seed as they are


class _State(Operands):
    """The weights of a model and the state of an engine, as operands of a graph."""

    NAMES = (
        *("token", "position", "state", "held", "limit", "stop", "top_k", "temperature", "seed"),
        *("page_table", "free_pages", "free_count", "step"),
    )

    def __init__(self, graph: gd.Graph, config: Config, room: Room, memory: Memory | None) -> None:
        count = room.slots + 1
        super().__init__(graph, config, room.context, memory, count)
        self.room = room
        self.places = room.positions
        self.state, self.held, self.limit, self.stop, self.top_k = (
            self.array(name, count, np.int32) for name in ("state", "held", "limit", "stop", "top_k")
        )
        self.temperature = self.array("temperature", count, np.float32)
        self.seed = self.array("seed", count, np.uint64)
        self.page_table = self.array("page_table", count * room.pages_per_sequence, np.int32)
        self.free_pages = self.array("free_pages", room.pages, np.int32)
        self.free_count, self.step = (self.array(name, 1, np.int32) for name in ("free_count", "step"))

    @property
    def pages(self) -> tuple[Any, ...]:
        """What changes hands."""
        return self.held, self.page_table, self.free_pages, self.free_count


def _is_state(name: str) -> bool:
    return name in _State.NAMES or name.endswith(("/keys", "/values"))


def weight_arrays(weights: Weights, room: Room) -> dict[str, np.ndarray]:
    """What the weights of the graphs hold, by the names of operands; `graphdsl.kernels.packing` tells how they lie."""
    made = contents(weights, room.context)
    return {name: array for name, array in made.items() if not _is_state(name) and name != "best"}


def state_arrays(config: Config, room: Room) -> dict[str, np.ndarray]:
    """What the state of an engine holds before the first launch, by the names of operands."""
    graph = gd.Graph("names")
    state = _State(graph, config, room, None)
    for i in range(config.layers):
        with graph.scope(f"layer{i}"):
            state.layer(i)
    made = {name: np.zeros(x.shape, x.dtype) for name, x in graph.operands.items() if _is_state(name)}
    free = np.arange(room.pages - 1, 0, -1)  # the lowest is taken first, and page 0 by nobody
    made["free_pages"][: free.size] = free
    made["free_count"][0] = free.size
    return made


def engine_graph(
    config: Config,
    sequences: int,
    room: Room,
    memory: Memory | None = None,
    *,
    overlapping: bool = True,
    tuning: dict[str, Any] | None = None,
) -> gd.Graph:
    """The graph of a step: each of some sequences that run goes on by a token.

    The host writes ``slots``, int32 (RING, sequences), pinned: the slot of each row, and `Room.scrap_slot` for padding.
    It finds the tokens in ``tokens``, int32 (RING, sequences), -1 where there is none, and what became of the sequences
    in ``states``.

    Parameters
    ----------
    config : Config
        Of a model that is not large.
    sequences : int
        At most `Room.slots`.
    room : Room
    memory : mapping, optional
        The memory that the graphs of an engine share, as `weight_arrays` and `state_arrays` name it.
    overlapping : bool
        Let a kernel begin while the one in front of it ends, by programmatic edges.
    tuning : dict, optional
        Options of kernels, by their names in the graph: ``qkv``, ``attention``, ``output``, ``gate_up``, ``down``,
        ``head``.
    """
    chain = Chain(f"step{sequences}", overlapping)
    shared = _State(chain.graph, config, room, memory)
    rows = 8 * -(-sequences // 8)
    made = _Rows(chain.graph, rows, rows)
    wanted = chain.graph.host_array("slots", (RING, sequences), np.int32)
    begin = slots.begin_step(sequences, rows, room.scrap_slot, **_paging(room), ring=RING)
    chain.add(
        begin,
        (wanted, shared.step, shared.state, shared.token, shared.position, shared.page_table, *made.begun),
        "begin",
    )
    _layers_and_choice(chain, shared, made, sequences, {"attention": _threads(config, room, 512)} | (tuning or {}))
    return chain.graph


def engine_prompt_graph(
    config: Config,
    rows: int,
    room: Room,
    memory: Memory | None = None,
    *,
    overlapping: bool = True,
    tuning: dict[str, Any] | None = None,
) -> gd.Graph:
    """The graph that admits a sequence: it processes up to ``rows`` tokens of a prompt, and chooses what follows.

    The host writes ``prompt``, int32 (RING, rows), pinned, and ``request``, int32 (RING, 10), as `request` makes it. It
    finds the token in ``tokens``, int32 (RING, 1), -1 if none was chosen, and what became of it in ``states``.

    Parameters
    ----------
    config, room, memory, overlapping, tuning
        As `engine_graph` takes them.
    rows : int
        A multiple of 8.
    """
    chain = Chain(f"engine_prompt{rows}", overlapping)
    shared = _State(chain.graph, config, room, memory)
    made = _Rows(chain.graph, rows, 8)
    g = chain.graph
    given = g.host_array("prompt", (RING, rows), np.int32), g.host_array("request", (RING, slots.REQUEST), np.int32)
    sampling = shared.limit, shared.stop, shared.top_k, shared.temperature, shared.seed
    begin = slots.begin_prompt(rows, 8, room.scrap_slot, **_paging(room), ring=RING)
    chain.add(begin, (*given, shared.step, shared.state, *sampling, *shared.pages, *made.begun), "begin")
    _layers_and_choice(chain, shared, made, 1, {"attention": _threads(config, room, 256)} | (tuning or {}))
    return g


class _Rows:
    """What a launch works on, by row."""

    def __init__(self, graph: gd.Graph, rows: int, outs: int) -> None:
        self.rows, self.outs = rows, outs
        self.tokens, self.slots, self.positions, self.firsts, self.places = (
            graph.device_array(f"row_{name}", rows, np.int32)
            for name in ("tokens", "slots", "positions", "firsts", "places")
        )
        self.sources, self.chosen = (graph.device_array(name, outs, np.int32) for name in ("sources", "chosen"))
        self.best = graph.device_array("best", outs, np.int64)

    @property
    def begun(self) -> tuple[Any, ...]:
        """What the first kernel writes."""
        return self.tokens, self.slots, self.positions, self.firsts, self.places, self.sources, self.best


def _paging(room: Room) -> dict[str, int]:
    return {"page_size": room.page_size, "pages_per_sequence": room.pages_per_sequence}


def _threads(config: Config, room: Room, most: int) -> Mapping[str, Any]:
    """Blocks of attention: large ones for the few tokens of a step, but none with more positions than there can be.

    Those of a step and of a prompt may differ, since each token of a request always comes by the same kind of graph.
    """
    needed = room.context * config.head_size // 8  # eight elements of a position to a thread
    return {"threads": min(most, 32 * -(-needed // 32))}


def _layers_and_choice(chain: Chain, shared: _State, made: _Rows, shown: int, tuning: dict[str, Any]) -> None:
    """All kernels behind the first: the layers, the head, the choice of tokens, and what follows from it."""
    c, g, n, room = shared.config, chain.graph, made.rows, shared.room
    x = g.device_array("x", n * c.hidden, np.float32)
    q = g.device_array("q", n * c.query_rows, np.float32)
    vectors, mixed, units = (
        g.device_array(name, n * size, np.uint32)
        for name, size in (("vectors", c.hidden), ("mixed", c.query_rows), ("units", c.mlp))
    )
    squares = g.device_array("squares", n * c.hidden // 8, np.float32)
    logits = g.device_array("logits", made.outs * c.vocabulary, np.float32)
    normed = vectors, squares
    shape = c.hidden, c.heads, c.kv_heads, c.head_size
    options = {name: tuning.get(name, {}) for name in ("qkv", "attention", "output", "gate_up", "down", "head")}
    project = batch.batch_qkv(n, *shape, eps=c.epsilon, **options["qkv"])
    attend = paged.paged_attention(n, *shape[1:], **_paging(room), **options["attention"])
    output = batch.batch_residual(n, c.query_rows, c.hidden, **options["output"])
    gate_up = batch.batch_gate_up(n, c.hidden, c.mlp, eps=c.epsilon, **options["gate_up"])
    down, last = (
        batch.batch_residual(n, c.mlp, c.hidden, weights="q4_1 slices", then=then, **options["down"])
        for then in ("q4_1", "q8_0")
    )
    layers = []
    for i in range(c.layers):
        with g.scope(f"layer{i}"):
            layers.append(shared.layer(i))
    gains = [layer["attn_norm"] for layer in layers] + [shared.norm]
    embed = embedding.batch_embedding(c.hidden, n)
    chain.add(embed, (made.tokens, shared.table, gains[0], x, *normed), "embed", after=chain.last)
    for i, layer in enumerate(layers):
        with g.scope(f"layer{i}"):
            cache = layer["keys"], layer["values"]
            where = shared.page_table, made.slots, made.positions, made.firsts
            placed = shared.rotary, made.positions, made.places
            chain.add(project, (*normed, layer["qkv"], *placed, q, *cache), "qkv")
            chain.add(attend, (q, *cache, *where, mixed), "attention")
            chain.add(output, (mixed, layer["output"], layer["ffn_norm"], x, *normed), "output")
            chain.add(gate_up, (*normed, layer["gate_up"], units), "gate_up")
            behind = last if i == c.layers - 1 else down
            chain.add(behind, (units, layer["down"], gains[i + 1], x, *normed), "down")
    sampling = shared.temperature, shared.top_k, shared.seed
    best = batch_head.batch_head(made.outs, c.hidden, c.vocabulary, eps=c.epsilon, **options["head"])
    chain.add(best, (*normed, shared.table, made.sources, made.slots, shared.temperature, logits, made.best), "head")
    choose = batch_head.choose(shown, c.vocabulary, threads=min(1024, 32 * -(-c.vocabulary // 32)))
    rows = made.sources, made.slots, made.positions
    chain.add(choose, (logits, made.best, *rows, *sampling, made.chosen), "choose")
    tokens, states = (g.host_array(name, (RING, shown), np.int32) for name in ("tokens", "states"))
    advance = slots.advance(shown, shown, **_paging(room), ring=RING)
    went = shared.step, shared.state, shared.token, shared.position, *shared.pages
    chain.add(advance, (made.chosen, *rows, shared.limit, shared.stop, *went, states, tokens), "advance")
