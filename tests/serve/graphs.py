"""A small graph for a bucket, as the tests of serving build it: each real row of out is x times a shared weight."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

import graphdsl as gd

WIDTH = 4


@cuda.jit
def scale_rows(x, y, w, count):
    row = cuda.grid(1)
    if row < count:
        for i in range(x.shape[1]):
            y[row, i] = w[i] * x[row, i]


def scaled(weight: Any, seen: list[int] | None = None):
    """A `build` of the axis batch: x lies alone in the arena, y is planned, and kept is left there to be read."""

    def build(batch):
        if seen is not None:
            seen.append(batch)
        g = gd.Graph(f"scaled{batch}")
        count = g.param("count", np.int32, default=batch)
        raw, out = (g.host_array(name, (batch, WIDTH), np.float32) for name in ("raw", "out"))
        x, y, kept = (g.device_array(name, (batch, WIDTH), np.float32) for name in ("x", "y", "kept"))
        w = g.external("w", weight)
        with g.sequence():
            g.memcpy(x, raw, name="load")
            g.memset(y, 0, name="clear")
            g.kernel(scale_rows, grid=1, block=batch, args=(x, y, w, count), name="scale")
            g.memcpy(kept, y, name="keep")
            g.memcpy(out, y, name="store")
        return g

    return build


def weight_of(device: Any, value: float) -> gd.DeviceArray:
    return gd.to_device(device, np.full(WIDTH, value, np.float32))


def cache_of(device: Any = None, batch=(1, 2, 4), *, build=None, value: float = 2.0, **options: Any) -> gd.GraphCache:
    device = gd.emulator() if device is None else device
    build = scaled(weight_of(device, value)) if build is None else build
    given: dict[str, Any] = {
        "inputs": {"raw": gd.Padding("batch", fill=0)},
        "outputs": {"out": "batch", "kept": "batch"},
        "sizes": {"batch": "count"},
    }
    return gd.GraphCache(build, gd.Buckets(batch=batch), device, **{**given, **options})


def rows(count: int, value: float = 1.0) -> np.ndarray:
    return np.full((count, WIDTH), value, np.float32) * np.arange(1, count + 1, dtype=np.float32)[:, None]


def ask(cache: gd.GraphCache, count: int, value: float = 1.0) -> np.ndarray:
    """What a request gets for its rows."""
    with cache(batch=count) as run:
        run.load(raw=rows(count, value))
        run.launch()
        return run["out"]
