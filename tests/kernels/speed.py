"""How long the kernels of language models take on a GPU: ``python -m tests.kernels.speed [--json FILE] [CASE ...]``.

Each case is a graph of nodes that follow each other by programmatic edges, each with weights of its own, as the layers
of a model have; what is given is the time of a node. Memory is not initialised: how fast these kernels are does not
depend on what they read, except for positions, which are set.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from graphdsl.kernels import attention, decode, embedding, head, matmul, sampling
from graphdsl.kernels.matmul import Tiling

import graphdsl as gd

from . import speed_engine, speed_large
from .chains import PARTS_OF_LAYER, Case, Chain

SMOL = {"hidden": 576, "heads": 9, "kv_heads": 3, "head_size": 64}
UNITS, VOCABULARY, LAYERS, POSITIONS = 1536, 49152, 30, 2048


class Model:
    """The arrays that the nodes of a decoding step share."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.x = [chain.array(SMOL["hidden"], np.float32, "x") for _ in range(2)]
        self.q = chain.array(576, np.float32, "q")
        self.position = chain.graph.device_array("position", 1, np.int32)
        self.rotary = chain.array(POSITIONS * 64, np.float32, "rotary")
        self.gain = chain.array(576, np.float32, "gain")
        self.layer = 0

    def qkv(self, **options: Any) -> None:
        x, other = self._turns()
        self.keys, self.values = (self.chain.array(POSITIONS * 192, np.float16, "cache") for _ in range(2))
        weights = self.chain.matrix(960, 576, "q4_1")
        launch = decode.qkv_rotary_append(**SMOL, **options)
        self.chain.node(
            launch, x, self.gain, weights, self.rotary, self.position, self.q, self.keys, self.values, other
        )

    def attention(self, **options: Any) -> None:
        if not hasattr(self, "keys"):
            self.keys, self.values = (self.chain.array(POSITIONS * 192, np.float16, "cache") for _ in range(2))
        weights = self.chain.matrix(576, 576, "q4_1")
        launch = decode.attention_output(**SMOL, **options)
        self.chain.node(launch, self.q, self.keys, self.values, self.position, weights, self._turns()[0])

    def mlp(self, **options: Any) -> None:
        x, other = self._turns()
        gate_up, down = self.chain.matrix(2 * UNITS, 576, "q4_1"), self.chain.matrix(576, UNITS, "q4_1")
        self.chain.node(decode.gated_mlp(576, UNITS, **options), x, self.gain, gate_up, down, other)
        self.layer += 1

    def _turns(self) -> tuple[Any, Any]:
        return self.x[self.layer % 2], self.x[1 - self.layer % 2]


def repeated(name: str, **options: Any) -> Case:
    def declare(chain: Chain) -> None:
        model = Model(chain)
        for _ in range(LAYERS):
            getattr(model, name)(**options)

    return Case(declare, LAYERS)


def repeated_head(**options: Any) -> Case:
    def declare(chain: Chain) -> None:
        model = Model(chain)
        best = chain.array(1, np.int64, "best")
        for _ in range(6):
            chain.node(
                head.greedy_head(576, VOCABULARY, **options),
                *(model.x[0], model.gain, chain.matrix(VOCABULARY, 576, "q8_0"), best),
            )

    return Case(declare, 6)


def others(which: str, **options: Any) -> Case:
    def declare(chain: Chain) -> None:
        model = Model(chain)
        logits = chain.graph.device_array("logits", VOCABULARY, np.float32)
        tokens = chain.array(POSITIONS, np.int32, "tokens")
        token, best = chain.array(1, np.int32), chain.array(1, np.int64)
        rest = (token, model.position, tokens)
        table = chain.matrix(VOCABULARY, 576, "q8_0")
        for _ in range(20):
            if which == "take_best":
                chain.node((sampling.take_best, 1, 32), best, *rest)
            elif which == "embedding":
                chain.node(embedding.embedding(576), model.position, table, model.x[0])
            else:
                scalars = np.float32(0.8), np.int32(options["k"]), np.uint64(1)
                chain.node(sampling.sample_top_k(VOCABULARY), logits, *rest, *scalars)

    return Case(declare, 20)


def step(position: int = 80, **options: Any) -> Case:
    """A whole token."""

    def declare(chain: Chain) -> None:
        model = Model(chain)
        token, best = chain.array(1, np.int32), chain.array(1, np.int64)
        tokens, table = chain.array(POSITIONS, np.int32, "tokens"), chain.matrix(VOCABULARY, 576, "q8_0")
        chain.node(embedding.embedding(576), model.position, table, model.x[0])
        for _ in range(LAYERS):
            model.qkv(**options.get("qkv", {}))
            model.attention(**options.get("attention", {}))
            model.mlp(**options.get("mlp", {}))
        chain.node(head.greedy_head(576, VOCABULARY, **options.get("head", {})), model.x[0], model.gain, table, best)
        elsewhere = chain.array(1, np.int32, "elsewhere")  # the position stays
        chain.node((sampling.take_best, 1, 32), best, token, elsewhere, tokens)

    return Case(declare, 1, position, options.get("programmatic", True))


class Prompt:
    """The arrays that the nodes of a prompt share."""

    def __init__(self, chain: Chain, count: int) -> None:
        self.chain, self.count = chain, count
        self.x, self.y, self.q = (chain.array(count * 576, np.float32) for _ in range(3))
        self.hidden = chain.array(count * UNITS, np.float32)
        self.position, self.length = (chain.graph.device_array(name, 1, np.int32) for name in ("position", "length"))
        self.rotary, self.gain = chain.array(POSITIONS * 64, np.float32), chain.array(576, np.float32)

    def qkv(self, **options: Any) -> None:
        self.keys, self.values = (self.chain.array(POSITIONS * 192, np.float16, "cache") for _ in range(2))
        self.chain.node(
            matmul.matmul_qkv_rotary_append(self.count, **SMOL, **options),
            *(self.x, self.gain, self.chain.matrix(960, 576, "q4_1"), self.rotary, self.position, self.length),
            *(self.q, self.keys, self.values),
        )

    def attention(self, **options: Any) -> None:
        if not hasattr(self, "keys"):
            self.keys, self.values = (self.chain.array(POSITIONS * 192, np.float16, "cache") for _ in range(2))
        launch = attention.causal_attention(self.count, 9, 3, 64, **options)
        self.chain.node(launch, self.q, self.keys, self.values, self.position, self.length, self.y)

    def output(self, **options: Any) -> None:
        launch = matmul.matmul(self.count, 576, 576, add=True, **options)
        self.chain.node(launch, self.y, self.gain, self.chain.matrix(576, 576, "q4_1"), self.x)

    def gate_up(self, **options: Any) -> None:
        launch = matmul.matmul_gate_up(self.count, 576, UNITS, **options)
        self.chain.node(launch, self.x, self.gain, self.chain.matrix(2 * UNITS, 576, "q4_1"), self.hidden)

    def down(self, **options: Any) -> None:
        launch = matmul.matmul(self.count, UNITS, 576, weights="q4_1 slices", add=True, **options)
        self.chain.node(launch, self.hidden, self.gain, self.chain.matrix(576, UNITS, "q4_1"), self.x)


def prompt(count: int, *parts: str, **options: Any) -> Case:
    """All layers for a prompt, or parts of them, from position 0 on."""

    def declare(chain: Chain) -> None:
        model = Prompt(chain, count)
        for _ in range(LAYERS):
            for part in parts or PARTS_OF_LAYER:
                getattr(model, part)(**(options if parts else {}))

    return Case(declare, LAYERS if parts else 1, 0, length=count)


CASES = {
    "step": step(),
    "step, full edges": step(programmatic=False),
    "step at 16": step(16, mlp={"lanes": 18}),
    "step at 500": step(500, mlp={"lanes": 18}),
    **{f"step, mlp {n}": step(mlp={"lanes": n}) for n in (6, 8, 9, 18)},
    **{
        f"step, mlp 18, qkv {n}, parts {m}": step(mlp={"lanes": 18}, qkv={"threads": n}, attention={"parts": m})
        for n in (128, 256, 512)
        for m in (2, 3)
    },
    **{
        f"step, mlp 18, head {n} {m} {k}": step(mlp={"lanes": 18}, head={"lanes": n, "threads": m, "blocks": k})
        for n, m, k in ((4, 256, 2), (4, 256, 3), (4, 256, 4), (4, 128, 4), (4, 512, 1), (8, 256, 2), (2, 128, 4))
    },
    "qkv": repeated("qkv"),
    "attention": repeated("attention"),
    **{f"mlp {n}": repeated("mlp", lanes=n) for n in (9, 18)},
    **{
        f"head {n} {m} {k}": repeated_head(lanes=n, threads=m, blocks=k)
        for n, m, k in ((4, 256, 2), (4, 256, 3), (4, 256, 4), (4, 128, 4), (4, 512, 1), (8, 256, 2), (2, 128, 4))
    },
    **{name: others(name) for name in ("take_best", "embedding")},
    **{f"sample {k}": others("sample", k=k) for k in (40, 1000, 5000, 100_000)},
    **{f"prompt {n}": prompt(n) for n in (16, 32, 64, 128, 256, 512)},
    **{f"prompt {n} {part}": prompt(n, part) for n in (16, 128, 512) for part in PARTS_OF_LAYER},
    **{
        f"prompt {n} attention {q} {t}": prompt(n, "attention", queries=q, threads=t)
        for n in (128, 512)
        for q, t in ((1, 128), (2, 128), (4, 64), (4, 256), (8, 128))
    },
    **{
        f"prompt {n} {part} {t}": prompt(n, part, tiling=Tiling(*t))
        for n, part, t in (
            *((16, "qkv", t) for t in ((16, 1, 1), (8, 1, 2), (16, 1, 4))),
            *((16, "down", t) for t in ((16, 1, 1), (8, 1, 1), (8, 1, 2), (16, 1, 4))),
            *((128, "qkv", t) for t in ((32, 1, 4), (32, 1, 2), (16, 1, 2), (8, 1, 4))),
            *((128, "down", t) for t in ((16, 1, 4), (32, 1, 2), (16, 1, 2), (32, 1, 4))),
            *((128, "gate_up", t) for t in ((32, 2, 4), (16, 2, 4), (32, 2, 2), (64, 2, 2))),
            *((512, "down", t) for t in ((64, 1, 4), (64, 1, 2), (32, 1, 2), (32, 2, 2))),
            *((512, "gate_up", t) for t in ((32, 2, 4), (64, 2, 2), (32, 2, 2))),
        )
    },
    **speed_engine.CASES,
    **speed_large.CASES,
}


def measured(case: Case) -> dict[str, float]:
    """Microseconds of a node, and what it reads of weights in gigabytes a second."""
    chain = Chain(case.programmatic)
    case.declare(chain)
    with chain.graph.instantiate(gd.cuda(), share_memory=False) as exe:  # what is read is written beforehand
        for name, value in (("position", case.position), ("length", case.length)):
            if name in chain.graph.operands:
                exe[name].copy_from_host(np.full(exe[name].shape, value, np.int32))
        if "logits" in chain.graph.operands:
            shape = exe["logits"].shape
            exe["logits"].copy_from_host(np.random.default_rng(0).standard_normal(shape).astype(np.float32))
        times = []
        for sample in range(12):
            for name, array in (case.contents or {}).items():
                exe[name].copy_from_host(array)
            start = time.perf_counter()
            for _ in range(10):
                exe.launch()
            exe.synchronize()
            if sample >= 2:
                times.append((time.perf_counter() - start) / 10)
    once = statistics.median(times)
    return {"us": 1e6 * once / case.per, "gb_s": chain.nbytes / once / 1e9, "bytes": chain.nbytes / case.per}


def compiled(names: list[str]) -> None:
    """Compile the kernels of cases for the cache on disk."""
    for name in names:
        chain = Chain()
        CASES[name].declare(chain)
        chain.graph.check("sm_90")


def is_wanted(name: str, wanted: list[str]) -> bool:
    return not wanted or any(name.startswith(each) for each in wanted)


def lines(wanted: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, case in CASES.items():
        if is_wanted(name, wanted):
            try:
                yield name, measured(case)
            except gd.errors.GraphdslError as problem:  # the others are worth having
                yield name, {"error": str(problem)[:500]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--jobs", type=int, default=0, help="compile in so many processes before")
    parser.add_argument("cases", nargs="*", help="what their names begin with")
    given = parser.parse_args()
    found: dict[str, Any] = {}
    start = time.perf_counter()
    if given.jobs:
        names = [name for name in CASES if is_wanted(name, given.cases)]
        with ProcessPoolExecutor(given.jobs, multiprocessing.get_context("spawn")) as pool:
            list(pool.map(compiled, [names[i : i + 4] for i in range(0, len(names), 4)]))
        print(f"{time.perf_counter() - start:6.1f} s  compiled", flush=True)
    for name, result in lines(given.cases):
        found[name] = result
        print(
            f"{time.perf_counter() - start:6.1f} s  {name:24}",
            *(f"{k} {v:.5g}" if isinstance(v, float) else v for k, v in result.items()),
            flush=True,
        )
        if given.json:
            given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
