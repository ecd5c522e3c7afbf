"""A small graph for a bucket, as the tests of serving build it: each real row of out is x times a shared weight."""

from __future__ import annotations

from collections.abc import Callable
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


class Pool:
    """Lends memory of a device, as memory resources of cuda.core do; what is given back is freed, and faults if used.

    Attributes
    ----------
    sizes : list of int
        Bytes that were asked for.
    closed : list of int
        Which of them were given back, in order.
    returned : callable
        Is told of each that is given back, before.
    """

    def __init__(self, device: Any) -> None:
        self.device = device
        self.sizes: list[int] = []
        self.closed: list[int] = []
        self.returned: Callable[[int], None] = lambda number: None

    def allocate(self, nbytes: int, *, stream: Any) -> Any:
        assert stream.__cuda_stream__()[1]
        self.sizes.append(nbytes)
        return _Lease(self, len(self.sizes) - 1, self.made(nbytes))

    def made(self, nbytes: int) -> Any:
        return gd.device_array(self.device, nbytes, np.uint8)

    @property
    def used(self) -> int:
        """Bytes that were not given back."""
        return sum(self.sizes) - sum(self.sizes[number] for number in self.closed)


class _Lease:
    def __init__(self, pool: Pool, number: int, memory: Any) -> None:
        self.pool, self.number, self.memory = pool, number, memory

    @property
    def __cuda_array_interface__(self) -> Any:
        return self.memory.__cuda_array_interface__

    def close(self) -> None:
        self.pool.returned(self.number)
        self.pool.closed.append(self.number)
        self.memory = None


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
