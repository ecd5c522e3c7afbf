"""What an engine launches without graphs: the kernels of each, one by one, for comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import graphdsl as gd

from .launches import Launches
from .stream_launches import StreamLaunches


class OneByOne(Launches):
    """The launches of an engine, whose kernels Numba launches into a stream; it needs a GPU."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.cache: Any = _Kernels(self)


class _Kernels:
    """What is used of a cache of graphs, without graphs."""

    def __init__(self, launches: Launches) -> None:
        self._declared = launches._declared
        self._device = launches.device
        self._buckets = launches.cache.buckets
        self._stream = launches.device.stream_create()
        self._made: dict[Any, StreamLaunches] = {}
        launches.cache.close()

    @contextmanager
    def __call__(self, **sizes: int) -> Iterator[Any]:
        bucket = self._buckets.of(**sizes)
        exe = self._exec(bucket)
        yield SimpleNamespace(exec=exe, bucket=bucket, launch=exe.launch)

    def _exec(self, bucket: gd.Bucket) -> StreamLaunches:
        if bucket not in self._made:
            graph = self._declared(**bucket)
            exe = graph.instantiate(self._device, share_memory=False)  # all arrays are given to the kernels
            self._made[bucket] = StreamLaunches(graph, exe, self._stream)
        return self._made[bucket]

    def warm_up(self) -> None:
        for bucket in self._buckets:
            self._exec(bucket)

    def swap(self, weights: Mapping[str, Any]) -> None:
        for made in self._made.values():
            made.update(**weights)

    def close(self) -> None:
        for made in self._made.values():
            made.close()
        self._made.clear()
        self._device.stream_destroy(self._stream)
