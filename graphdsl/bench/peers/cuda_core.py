"""NVIDIA's `cuda.core`: graphs built node by node with `GraphDefinition`, and changed node by node."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from graphdsl.bench.measure import Samples, around, every_call, no_collection, timed
from graphdsl.bench.peers import Setting, gpu
from graphdsl.bench.peers.built import Built, measure_built
from graphdsl.bench.records import Case
from graphdsl.bench.shapes import THREADS, edges

UPDATES = (100, 10_000, 40_000)
"""After how many updates of one exec a further one is timed: its exec keeps account of all of them."""


def unavailable() -> str | None:
    """Why it cannot be measured here; None if it can."""
    try:
        from cuda.core.graph import GraphDefinition
    except ImportError as problem:
        return f"this cuda.core has no graph definitions: {problem}"
    return None if hasattr(GraphDefinition, "launch") else "this cuda.core builds no kernel nodes"


def measure(case: Case, setting: Setting) -> Samples:
    """Measure one graph."""
    pairs = edges(*case)
    before: list[list[int]] = [[] for _ in range(case.nodes)]
    for source, target in pairs:
        before[target].append(source)
    return measure_built(lambda: _build(before, setting), case, setting)


def extras(setting: Setting) -> Iterator[tuple[Case, Samples]]:
    """The time of an update after many others of the same exec."""
    calls = UPDATES[0] if setting.quick else UPDATES[-1]
    case = Case("chain", 1)
    built = _build([[]], setting)
    try:
        with no_collection():
            times = every_call(built.updates["update"], calls + 50)
        yield case, {f"update_at_{at}": around(times, at) for at in UPDATES if at <= calls}
    finally:
        built.close()


def _build(before: list[list[int]], setting: Setting) -> Built:
    from cuda.core import Device, LaunchConfig, ObjectCode, Stream, launch
    from cuda.core.graph import GraphDefinition

    gpu.use_primary_context()
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    kernel = ObjectCode.from_cubin(setting.cubin).get_kernel(setting.entry)
    config = LaunchConfig(grid=1, block=THREADS)
    operands = gpu.Operands()
    start = time.perf_counter_ns()
    definition = GraphDefinition()
    nodes: list[Any] = []
    for sources in before:
        root = nodes[sources[0]] if sources else definition
        node = root.launch(config, kernel, *operands.values)
        for source in sources[1:]:
            node.pred.add(nodes[source])
        nodes.append(node)
    emitted = time.perf_counter_ns()
    graph = definition.instantiate()
    instantiated = time.perf_counter_ns()
    upload = timed(lambda: graph.upload(stream))
    stream.sync()
    *words, _, n = operands.values
    arguments = itertools.cycle([(*words, np.float32(gain), n) for gain in (2, 1)])

    def update() -> None:
        args = next(arguments)
        for node in nodes:
            graph[node].update(config=config, kernel=kernel, args=args)

    def close() -> None:
        stream.sync()
        graph.close()
        stream.close()
        operands.free()

    return Built(
        launch=partial(graph.launch, stream),
        synchronize=stream.sync,
        launch_on=lambda handle: graph.launch(Stream.from_handle(handle)),
        stages={
            "emit": (emitted - start) / 1e3,
            "instantiation": (instantiated - emitted) / 1e3,
            "upload_api_time": upload,
        },
        launch_one=lambda: launch(stream, config, kernel, *operands.values),
        updates={"update": update},
        require_result=lambda: operands.require_sum(len(nodes)),
        close=close,
    )
