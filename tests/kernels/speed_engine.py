"""Cases of a step of an engine, of many sequences on a paged cache: `tests.kernels.speed` measures them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
from graphdsl.kernels import batch, batch_head, paged
from graphdsl.kernels.column_parts import Tiling
from graphdsl.kernels.slots import RUNNING

from .chains import Case, Chain

SMOL = {"hidden": 576, "heads": 9, "kv_heads": 3, "head_size": 64}
HIDDEN, UNITS, VOCABULARY, LAYERS = 576, 1536, 49152, 30
PAGE, CONTEXT, SLOTS = 16, 2048, 32
PAGES = CONTEXT // PAGE


def state(position: int, temperature: float) -> dict[str, Any]:
    """All slots run, at a position, each in pages of its own, as an engine has them after a while."""
    slots = SLOTS + 1
    table = 1 + np.random.default_rng(0).permutation(slots * PAGES).astype(np.int32)
    everywhere = {
        "state": RUNNING, "position": position, "held": PAGES, "limit": CONTEXT, "stop": -1, "top_k": 40, "token": 5,
    }  # fmt: skip
    return {
        **{name: np.full(slots, value, np.int32) for name, value in everywhere.items()},
        "temperature": np.full(slots, temperature, np.float32),
        "seed": np.arange(slots, dtype=np.uint64),
        "page_table": table,
        "step": np.zeros(1, np.int32),
    }


def step(sequences: int, position: int, temperature: float = 0.0, **tuning: Any) -> Case:
    """A whole step."""

    def declare(chain: Chain) -> None:
        sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "examples"))
        from smollm2.engine_graphs import Room, engine_graph
        from smollm2.weights import SMOLLM2_135M

        room = Room(SLOTS, 1 + (SLOTS + 1) * PAGES, PAGE, CONTEXT)
        chain.graph = engine_graph(SMOLLM2_135M, sequences, room, tuning=tuning)

    return Case(declare, 1, contents=state(position, temperature))


class Batch:
    """The arrays that the kernels of a step share."""

    def __init__(self, chain: Chain, count: int) -> None:
        self.chain, self.count = chain, count
        self.x, self.q = (chain.array(count * HIDDEN, np.float32) for _ in range(2))
        self.words, self.mixed = (chain.array(count * HIDDEN, np.uint32) for _ in range(2))
        self.units = chain.array(count * UNITS, np.uint32)
        self.squares = chain.array(count * HIDDEN // 8, np.float32)
        self.gain, self.rotary = chain.array(HIDDEN, np.float32), chain.array(CONTEXT * 64, np.float32)
        self.positions, self.places, self.firsts, self.slots, self.sources = (
            chain.graph.device_array(name, count, np.int32)
            for name in ("positions", "places", "firsts", "slots", "sources")
        )
        self.table = chain.graph.device_array("page_table", SLOTS * PAGES, np.int32)

    def caches(self) -> tuple[Any, ...]:
        return tuple(self.chain.array((1 + SLOTS * PAGES) * PAGE * 192, np.float16, "cache") for _ in range(2))

    def qkv(self, **options: Any) -> None:
        launch = batch.batch_qkv(self.count, **SMOL, **options)
        where = self.rotary, self.positions, self.places
        matrix = self.chain.matrix(960, HIDDEN, "q4_1")
        self.chain.node(launch, self.words, self.squares, matrix, *where, self.q, *self.caches())

    def attention(self, **options: Any) -> None:
        launch = paged.paged_attention(self.count, 9, 3, 64, page_size=PAGE, pages_per_sequence=PAGES, **options)
        where = self.table, self.slots, self.positions, self.firsts
        self.chain.node(launch, self.q, *self.caches(), *where, self.mixed)

    def output(self, **options: Any) -> None:
        launch = batch.batch_residual(self.count, HIDDEN, HIDDEN, **options)
        matrix = self.chain.matrix(HIDDEN, HIDDEN, "q4_1")
        self.chain.node(launch, self.mixed, matrix, self.gain, self.x, self.words, self.squares)

    def gate_up(self, **options: Any) -> None:
        launch = batch.batch_gate_up(self.count, HIDDEN, UNITS, **options)
        self.chain.node(launch, self.words, self.squares, self.chain.matrix(2 * UNITS, HIDDEN, "q4_1"), self.units)

    def down(self, **options: Any) -> None:
        launch = batch.batch_residual(self.count, UNITS, HIDDEN, weights="q4_1 slices", **options)
        matrix = self.chain.matrix(HIDDEN, UNITS, "q4_1")
        self.chain.node(launch, self.units, matrix, self.gain, self.x, self.words, self.squares)

    def head(self, **options: Any) -> None:
        launch = batch_head.batch_head(self.count, HIDDEN, VOCABULARY, **options)
        temperature = self.chain.array(SLOTS, np.float32)
        logits, best = self.chain.array(self.count * VOCABULARY, np.float32), self.chain.array(self.count, np.int64)
        table = self.chain.matrix(VOCABULARY, HIDDEN, "q8_0")
        rest = self.sources, self.slots, temperature, logits, best
        self.chain.node(launch, self.words, self.squares, table, *rest)


def part(name: str, count: int = 32, position: int = 100, nodes: int = LAYERS, **options: Any) -> Case:
    """One kernel, with weights and a cache of its own for each node."""

    def declare(chain: Chain) -> None:
        model = Batch(chain, count)
        for _ in range(nodes):
            getattr(model, name)(**options)

    rows = np.arange(count, dtype=np.int32)
    table = 1 + np.random.default_rng(0).permutation(SLOTS * PAGES).astype(np.int32)
    everywhere = {name: np.full(count, position, np.int32) for name in ("positions", "firsts")}
    used = {"slots": rows, "sources": rows, "places": PAGE * (1 + rows), "page_table": table, **everywhere}
    return Case(declare, nodes, contents={name: array.astype(np.int32) for name, array in used.items()})


def _tilings(name: str, *tilings: tuple[int, int, int], count: int = 32) -> dict[str, Case]:
    return {f"engine {name} {count} {t}": part(name, count, tiling=Tiling(*t)) for t in tilings}


_STEPS = {
    **{f"engine step {n} at {p}": step(n, p) for n in (1, 2, 4, 8, 16, 32) for p in (100, 500, 1500)},
    "engine step 32 at 100, drawn": step(32, 100, 0.8),
    **{
        f"engine step {n} at {p}, attention 256": step(n, p, attention={"threads": 256})
        for n in (1, 32)
        for p in (100, 500)
    },
}

CASES = {
    **(_STEPS if importlib.util.find_spec("gguf") else {}),
    **_tilings("qkv", (8, 1, 9), (8, 1, 18), count=8),
    **_tilings("qkv", (8, 1, 9), (8, 2, 9), (8, 4, 9), (16, 2, 9), (8, 1, 6)),
    **_tilings("output", (8, 1, 9), (8, 1, 18), count=8),
    **_tilings("output", (8, 1, 9), (8, 2, 9), (16, 1, 9), (8, 1, 6)),
    **_tilings("gate_up", (8, 2, 9), (8, 2, 18), count=8),
    **_tilings("gate_up", (8, 2, 9), (8, 4, 9), (8, 8, 9), (16, 4, 9), (8, 2, 6)),
    **_tilings("down", (8, 1, 16), (8, 1, 24), count=8),
    **_tilings("down", (8, 1, 24), (8, 2, 24), (8, 4, 24), (16, 2, 24), (8, 2, 16)),
    **{f"engine {name} 8": part(name, 8) for name in ("qkv", "attention", "output", "gate_up", "down")},
    **{
        f"engine attention 32 {threads} at {p}": part("attention", position=p, threads=threads)
        for p in (100, 500)
        for threads in (256, 384, 512, 768)
    },
    **{
        f"engine head {count} {warps} {blocks}": part("head", count, nodes=6, warps=warps, blocks=blocks)
        for count in (8, 16, 32)
        for warps, blocks in ((9, 1), (9, 2), (9, 3), (6, 2), (6, 3), (18, 1))
    },
}
