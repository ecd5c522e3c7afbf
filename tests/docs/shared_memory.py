"""What the page about shared memory compares; `python -m tests.docs.shared_memory` writes table and picture anew."""

from __future__ import annotations

import random
import re
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
from numba import cuda

import graphdsl as gd
from graphdsl.draw.memory import to_svg
from graphdsl.plan import plan

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "guide" / "sharing-memory.md"
PICTURE = ROOT / "docs" / "images" / "ecg-memory.svg"
MEBI = 2**20


def one(x, y):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = x[i % x.size]


def two(a, b, y):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = a[i % a.size] + b[i % b.size]


def ecg() -> gd.Graph:
    """The detector of heartbeats."""
    sys.path.insert(0, str(ROOT / "docs" / "examples"))
    from ecg import build

    return build()


def chain() -> gd.Graph:
    """32 layers, one after the other, each with a result of 1 to 4 MiB and weights that stay."""
    g, drawn = gd.Graph("chain"), random.Random(32)
    sizes = [MEBI * drawn.randint(1, 4) for _ in range(32)]
    raw, out = g.host_array("raw", sizes[0], np.uint8), g.host_array("out", sizes[-1], np.uint8)
    results = [g.device_array(f"result{i}", size, np.uint8) for i, size in enumerate(sizes)]
    with g.sequence():
        g.memcpy(results[0], raw)
        for number, (before, after) in enumerate(pairwise(results)):
            weights = g.device_array(f"weights{number}", MEBI, np.uint8, lifetime="persistent")
            g.kernel(two, grid=gd.cdiv(after.size, 256), block=256, args=(before, weights, after))
        g.memcpy(out, results[-1])
    return g


def unet(depth: int = 5) -> gd.Graph:
    """A U-Net: on the way down each level is kept for the way up, where it is joined to what comes from below."""
    g, size = gd.Graph("unet"), 4 * MEBI
    raw, out = g.host_array("raw", size, np.uint8), g.host_array("out", size, np.uint8)

    def layer(name: str, size: int, *args: gd.Buffer) -> gd.Buffer:
        made = g.device_array(name, size, np.uint8)
        kernel = one if len(args) == 1 else two
        g.kernel(kernel, grid=gd.cdiv(size, 256), block=256, args=(*args, made), name=f"make_{name}")
        return made

    with g.sequence():
        x = g.device_array("x", size, np.uint8)
        g.memcpy(x, raw, name="load")
        kept = []
        for level in range(depth):
            kept.append(layer(f"kept{level}", size, x))
            size //= 2
            x = layer(f"down{level}", size, kept[-1])
        for level in reversed(range(depth)):
            size *= 2
            x = layer(f"up{level}", size, x)
            x = layer(f"joined{level}", 2 * size, x, kept[level])
            x = layer(f"mixed{level}", size, x)
        g.memcpy(out, x, name="store")
    return g


def drawn_graph(seed: int, layers: int, width: int) -> gd.Graph:
    """Layers of kernels, each of which reads results of one or two kernels of the two layers before."""
    g, drawn = gd.Graph(f"drawn {seed}"), random.Random(seed)
    raw = g.host_array("raw", MEBI, np.uint8)
    made: list[list[tuple[gd.Buffer, object]]] = [[]]
    x = g.device_array("x", MEBI, np.uint8)
    made[0].append((x, g.memcpy(x, raw, name="load")))
    for layer in range(layers):
        before = [each for some in made[-2:] for each in some]
        made.append([])
        for number in range(width):
            sources = drawn.sample(before, min(len(before), drawn.randint(1, 2)))
            size = 256 * drawn.randint(1, 4096)
            result = g.device_array(f"r{layer}_{number}", size, np.uint8)
            kernel = one if len(sources) == 1 else two
            args = (*(array for array, _ in sources), result)
            node = g.kernel(kernel, grid=gd.cdiv(size, 256), block=256, args=args, name=f"k{layer}_{number}")
            [source for _, source in sources] >> node
            made[-1].append((result, node))
    for array, node in made[-1]:
        out = g.host_array(f"out_{array.name}", array.shape, np.uint8)
        node >> g.memcpy(out, array, name=f"store_{array.name}")
    return g


GRAPHS = {
    "[the ECG example](../examples/ecg.py)": ecg,
    "a chain of 32 layers": chain,
    "a U-Net of 5 levels": unet,
    "50 layers of 2 kernels, drawn by lot": lambda: drawn_graph(1, 50, 2),
    "20 layers of 8 kernels, drawn by lot": lambda: drawn_graph(2, 20, 8),
    "5 layers of 40 kernels, drawn by lot": lambda: drawn_graph(3, 5, 40),
}


def table() -> str:
    """The comparison, in Markdown."""
    rows = ["| graph | planned arrays | one behind the other | planned | lower bound |", "|---|---|---|---|---|"]
    for name, build in GRAPHS.items():
        memory = plan(build()).memory[None]
        sizes = (memory.sum_nbytes, memory.peak_nbytes, memory.least_nbytes)
        rows.append(f"| {name} | {len(memory.planned)} | {' | '.join(f'{size / 1024:,.1f} KiB' for size in sizes)} |")
    return "\n".join(rows)


_TABLE = re.compile(r"(?<=<!-- table -->\n).*?(?=\n<!-- end -->)", re.DOTALL)


def with_table(text: str) -> str:
    """The text of the page with the comparison as it is now."""
    return _TABLE.sub(lambda _: table(), text)


def picture() -> str:
    """The memory of the ECG example, as SVG."""
    return to_svg(plan(ecg()))


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
    PICTURE.write_text(picture())
