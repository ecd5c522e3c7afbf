"""How long the kernels of language models take on a GPU: ``python -m tests.kernels.speed [--json FILE] [CASE ...]``.

Each case is a graph of nodes that follow each other by programmatic edges, each with weights of its own, as the layers
of a model have; what is given is the time of a node. Memory is not initialised: how fast these kernels are does not
depend on what they read, except for positions, which are set.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from graphdsl.kernels import decode, embedding, head, sampling

import graphdsl as gd

SMOL = {"hidden": 576, "heads": 9, "kv_heads": 3, "head_size": 64}
UNITS, VOCABULARY, LAYERS, POSITIONS = 1536, 49152, 30, 2048


class Case(NamedTuple):
    """What is measured.

    Attributes
    ----------
    declare : callable
        Given a `Chain`, adds its nodes.
    per : int
        Times are divided by it.
    position : int
        In the sequence.
    """

    declare: Callable[[Chain], None]
    per: int = 1
    position: int = 80


class Chain:
    """A graph whose nodes follow each other."""

    def __init__(self, programmatic: bool = True) -> None:
        self.graph = gd.Graph("speed")
        self.nbytes = 0
        self.programmatic = programmatic
        self._last: Any = None
        self._names = 0

    def array(self, count: int, dtype: Any, name: str = "array") -> Any:
        self._names += 1
        return self.graph.device_array(f"{name}{self._names}", count, dtype)

    def matrix(self, rows: int, columns: int, name: str) -> tuple[Any, ...]:
        """Weights, which count as bytes that must be read."""
        kinds = {
            "f16": [(1, np.float16)], "bf16": [(1, np.uint16)], "q8_0": [(1, np.int8), (32, np.float16)],
            "q4_0": [(2, np.uint8), (32, np.float16)], "q4_1": [(2, np.uint8), (32, np.uint32)],
        }[name]  # fmt: skip
        made = tuple(self.array(rows * columns // share, dtype, name) for share, dtype in kinds)
        self.nbytes += sum(array.nbytes for array in made)
        return made

    def node(self, launch: tuple[Any, int, int], *args: Any) -> None:
        kernel, grid, block = launch
        node = self.graph.kernel(kernel, grid=grid, block=block, args=args)
        if self._last is not None:
            self.graph.edge(self._last, node, programmatic=self.programmatic)
        self._last = node


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


def others(which: str) -> Case:
    def declare(chain: Chain) -> None:
        model = Model(chain)
        logits, tokens = chain.array(VOCABULARY, np.float32), chain.array(POSITIONS, np.int32)
        token, best = chain.array(1, np.int32), chain.array(1, np.int64)
        rest = (token, model.position, tokens)
        table = chain.matrix(VOCABULARY, 576, "q8_0")
        for _ in range(20):
            if which == "take_best":
                chain.node((sampling.take_best, 1, 32), best, *rest)
            elif which == "embedding":
                chain.node(embedding.embedding(576), model.position, table, model.x[0])
            else:
                scalars = np.float32(0.8), np.int32(40), np.uint64(1)
                chain.node(sampling.sample_top_k(VOCABULARY), logits, *rest, *scalars)

    return Case(declare, 20)


def step(position: int = 80, **options: Any) -> Case:
    """A whole token."""

    def declare(chain: Chain) -> None:
        model = Model(chain)
        token, best = chain.array(1, np.int32), chain.array(1, np.int64)
        tokens, table = chain.array(POSITIONS, np.int32), chain.matrix(VOCABULARY, 576, "q8_0")
        chain.node(embedding.embedding(576), model.position, table, model.x[0])
        for _ in range(LAYERS):
            model.qkv(**options.get("qkv", {}))
            model.attention(**options.get("attention", {}))
            model.mlp(**options.get("mlp", {}))
        chain.node(head.greedy_head(576, VOCABULARY, **options.get("head", {})), model.x[0], model.gain, table, best)
        elsewhere = chain.array(1, np.int32, "elsewhere")  # the position stays
        chain.node((sampling.take_best, 1, 32), best, token, elsewhere, tokens)

    return Case(declare, 1, position)


CASES = {
    "step": step(),
    "step at 16": step(16),
    "step at 500": step(500),
    **{f"step, parts {n}": step(attention={"parts": n}) for n in (3, 6)},
    **{f"step, qkv {n}": step(qkv={"threads": n}) for n in (128, 512)},
    **{f"step, mlp {n}": step(mlp={"lanes": n}) for n in (6, 8, 18)},
    **{f"step, head {n} {m}": step(head={"lanes": n, "threads": m}) for n, m in ((8, 256), (4, 128), (4, 512))},
    "qkv": repeated("qkv"),
    "attention": repeated("attention"),
    "mlp": repeated("mlp"),
    **{
        f"head {n} {m}": repeated_head(lanes=n, threads=m)
        for n, m in ((4, 256), (8, 256), (2, 256), (4, 128), (4, 512))
    },
    **{name: others(name) for name in ("take_best", "embedding", "sample")},
}


def measured(case: Case) -> dict[str, float]:
    """Microseconds of a node, and what it reads of weights in gigabytes a second."""
    chain = Chain()
    case.declare(chain)
    with chain.graph.instantiate(gd.cuda()) as exe:
        exe["position"].copy_from_host(np.array([case.position], np.int32))
        for name in chain.graph.operands:
            if name.startswith("tokens"):
                exe[name].copy_from_host(np.zeros(exe[name].shape, np.int32))
        times = []
        for sample in range(12):
            start = time.perf_counter()
            for _ in range(10):
                exe.launch()
            exe.synchronize()
            if sample >= 2:
                times.append((time.perf_counter() - start) / 10)
    once = statistics.median(times)
    return {"us": 1e6 * once / case.per, "gb_s": chain.nbytes / once / 1e9, "bytes": chain.nbytes / case.per}


def lines(wanted: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, case in CASES.items():
        if not wanted or any(name.startswith(each) for each in wanted):
            try:
                yield name, measured(case)
            except gd.errors.GraphdslError as problem:  # the others are worth having
                yield name, {"error": str(problem)[:500]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("cases", nargs="*", help="what their names begin with")
    given = parser.parse_args()
    found = {}
    start = time.perf_counter()
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
