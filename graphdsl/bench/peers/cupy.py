"""CuPy: a stream is captured; the graph that comes of it cannot be changed."""

from __future__ import annotations

import time
from functools import partial

from graphdsl.bench.measure import Samples, timed
from graphdsl.bench.peers import Setting, gpu
from graphdsl.bench.peers.built import Built, measure_built
from graphdsl.bench.records import Case
from graphdsl.bench.shapes import THREADS


def unavailable() -> str | None:
    """Why it cannot be measured here; None if it can."""
    try:
        import cupy
    except ImportError as problem:
        return f"CuPy is not installed: {problem}"
    return None if cupy.cuda.is_available() else "CuPy finds no GPU"


def measure(case: Case, setting: Setting) -> Samples:
    """Measure a chain."""
    import cupy

    gpu.use_primary_context()
    kernel = cupy.RawModule(path=setting.cubin).get_function(setting.entry)

    def build() -> Built:
        operands = gpu.Operands()
        stream = cupy.cuda.Stream(non_blocking=True)
        start = time.perf_counter_ns()
        with stream:
            stream.begin_capture()
            for _ in range(case.nodes):
                kernel((1,), (THREADS,), operands.values)
            graph = stream.end_capture()
        captured = time.perf_counter_ns()
        upload = timed(lambda: graph.upload(stream))
        stream.synchronize()

        def close() -> None:
            stream.synchronize()
            operands.free()

        return Built(
            launch=partial(graph.launch, stream),
            synchronize=stream.synchronize,
            launch_on=lambda handle: graph.launch(cupy.cuda.ExternalStream(handle)),
            launch_one=lambda: kernel((1,), (THREADS,), operands.values, stream=stream),
            stages={"capture": (captured - start) / 1e3, "upload_api_time": upload},
            require_result=lambda: operands.require_sum(case.nodes),
            close=close,
        )

    return measure_built(build, case, setting)
