"""What is measured of kernels of large models: `tests.kernels.speed` does it."""

from __future__ import annotations

from typing import Any

import numpy as np
from graphdsl.kernels import attention, matmul, matvec
from graphdsl.kernels.matmul import Tiling
from graphdsl.kernels.matvec import Shape

from .chains import PARTS_OF_LAYER, Case, Chain


class Large:
    """The arrays that the nodes of a large model share."""

    HIDDEN, WIDTH, TOKENS = 4096, 11008, 32000

    def __init__(self, chain: Chain, name: str, positions: int = 1024, count: int = 1) -> None:
        self.chain, self.name, self.positions, self.count = chain, name, positions, count
        self.x, self.q, self.y = (chain.array(count * self.HIDDEN, np.float32) for _ in range(3))
        self.hidden = chain.array(count * self.WIDTH, np.float32)
        self.position = chain.graph.device_array("position", count, np.int32)
        self.rotary, self.gain = chain.array(positions * 128, np.float32), chain.array(self.HIDDEN, np.float32)

    def qkv(self, **options: Any) -> None:
        self.caches()
        weights = self.chain.matrix(3 * self.HIDDEN, self.HIDDEN, self.name)
        launch = matvec.matvec_qkv_rotary_append(self.HIDDEN, 32, 32, 128, weights=self.name, **options)
        self.chain.node(launch, self.x, self.gain, weights, self.rotary, self.position, self.q, self.keys, self.values)

    def caches(self) -> None:
        size = self.count * self.positions * self.HIDDEN
        self.keys, self.values = (self.chain.array(size, np.float16, "cache") for _ in range(2))

    def attention(self, splits: int = 1, threads: int = 256) -> None:
        if not hasattr(self, "keys"):
            self.caches()
        launch = attention.decode_attention(
            32, 32, 128, count=self.count, positions=self.positions, splits=splits, threads=threads
        )
        if splits == 1:
            self.chain.node(launch, self.q, self.keys, self.values, self.position, self.y)
        else:
            parts = self.chain.array(self.count * 32 * splits * 130, np.float32)
            self.chain.node(launch, self.q, self.keys, self.values, self.position, parts)
            self.chain.node(attention.combined_attention(32, 128, count=self.count, splits=splits), parts, self.y)

    def output(self, **options: Any) -> None:
        launch = matvec.matvec(self.HIDDEN, self.HIDDEN, weights=self.name, add=True, **options)
        self.chain.node(launch, self.y, self.gain, self.chain.matrix(self.HIDDEN, self.HIDDEN, self.name), self.x)

    def gate_up(self, **options: Any) -> None:
        weights = self.chain.matrix(2 * self.WIDTH, self.HIDDEN, self.name)
        launch = matvec.matvec_gate_up(self.HIDDEN, self.WIDTH, weights=self.name, **options)
        self.chain.node(launch, self.x, self.gain, weights, self.hidden)

    def down(self, **options: Any) -> None:
        launch = matvec.matvec(self.WIDTH, self.HIDDEN, weights=self.name, add=True, **options)
        self.chain.node(launch, self.hidden, self.gain, self.chain.matrix(self.HIDDEN, self.WIDTH, self.name), self.x)

    def head(self, **options: Any) -> None:
        if not hasattr(self, "best"):
            self.best = self.chain.array(1, np.int64)
        launch = matvec.matvec_best(self.HIDDEN, self.TOKENS, weights=self.name, **options)
        self.chain.node(launch, self.x, self.gain, self.chain.matrix(self.TOKENS, self.HIDDEN, self.name), self.best)

    def many(self, columns: int, rows: int, tiling: Any) -> None:
        """A product with the vectors of a batch."""
        x, y = (self.chain.array(self.count * size, np.float32) for size in (columns, rows))
        launch = matmul.matmul(self.count, columns, rows, weights=self.name, tiling=tiling)
        self.chain.node(launch, x, self.gain, self.chain.matrix(rows, columns, self.name), y)


def large(name: str, part: str, nodes: int = 6, position: int = 128, positions: int = 1024, **options: Any) -> Case:
    def declare(chain: Chain) -> None:
        model = Large(chain, name, positions)
        for _ in range(nodes):
            getattr(model, part)(**options)

    return Case(declare, nodes, position)


def large_layers(name: str, layers: int, shape: tuple[int, ...]) -> Case:
    """Layers of a large model, all products in one shape; the time is that of a layer."""

    def declare(chain: Chain) -> None:
        model = Large(chain, name)
        for _ in range(layers):
            for part in PARTS_OF_LAYER:
                getattr(model, part)(**({} if part == "attention" else {"shape": Shape(*shape)}))

    return Case(declare, layers, 128)


def large_step(name: str, position: int = 128, **options: Any) -> Case:
    def declare(chain: Chain) -> None:
        model = Large(chain, name)
        for _ in range(32):
            for part in PARTS_OF_LAYER:
                getattr(model, part)(**options.get(part, {}))
        model.head(**options.get("head", {}))

    return Case(declare, 1, position)


def batch(name: str, columns: int, rows: int, tiling: Any, count: int = 32) -> Case:
    def declare(chain: Chain) -> None:
        model = Large(chain, name, 16, count)
        for _ in range(6):
            model.many(columns, rows, Tiling(*tiling))

    return Case(declare, 6)


# Warps, blocks on a multiprocessor, blocks resident, tiles, turns ahead, steps far, shared memory.
SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "bf16": ((8, 2, 2, 1, 2), (8, 2, 2, 1, 2, 1), (8, 2, 3, 1, 2), (8, 1, 2, 1, 4), (16, 1, 2, 1, 1, 1)),
    "q4_1": (
        *((8, 2, 2, 2, 2), (8, 2, 3, 2, 2), (8, 2, 4, 1, 2), (8, 1, 2, 1, 4), (8, 1, 2, 2, 2), (8, 1, 2, 2, 4)),
        *((16, 1, 1, 2, 2), (16, 1, 2, 1, 2), (16, 1, 2, 1, 1), (16, 1, 2, 2, 1), (4, 2, 4, 1, 4)),
        *((8, 2, 3, 2, 2, 1), (8, 2, 4, 1, 2, 1), (8, 1, 2, 2, 2, 1), (16, 1, 2, 1, 2, 1), (16, 1, 2, 1, 2, 2)),
        *((16, 1, 2, 1, 2, 0, 46000), (16, 1, 2, 1, 2, 1, 46000)),
    ),
    "q4_0": (),
}
LARGE_PARTS = ("qkv", "output", "gate_up", "down", "head")
CASES = {
    **{
        f"large {name} {part}{' ' * bool(shape)}{' '.join(map(str, shape))}": large(
            name, part, shape=Shape(*shape) if shape else None
        )
        for name, shapes in SHAPES.items()
        for part in LARGE_PARTS
        for shape in ((), *shapes)
    },
    **{
        f"large {name} layers {' '.join(map(str, shape))}": large_layers(name, 8, shape)
        for name, shapes in SHAPES.items()
        for shape in shapes
    },
    **{
        f"large attention {splits} {threads} at {position}": large(
            "bf16", "attention", position=position, positions=4096, splits=splits, threads=threads
        )
        for splits, threads, position in (
            *((1, 256, 128), (1, 512, 128), (4, 128, 128), (4, 256, 128)),
            *((1, 512, 2000), (4, 256, 2000), (8, 256, 2000), (16, 128, 2000)),
        )
    },
    **{f"large step {name}": large_step(name) for name in ("bf16", "q4_1", "q4_0")},
    **{
        f"batch {name} {columns} {rows} {t}": batch(name, columns, rows, t)
        for name in ("bf16", "q4_1")
        for columns, rows in ((4096, 12288), (11008, 4096))
        for t in ((32, 1, 4), (32, 2, 2), (32, 2, 4), (32, 1, 2))
    },
}
