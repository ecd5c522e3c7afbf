"""PyTorch: a stream is captured. Its nodes are ``x.add_(1)`` on 64 elements, because it cannot launch our kernel."""

from __future__ import annotations

import time

from graphdsl.bench.measure import Samples
from graphdsl.bench.peers import Setting, gpu
from graphdsl.bench.peers.built import Built, measure_built
from graphdsl.bench.records import Case
from graphdsl.bench.shapes import ELEMENTS


def unavailable() -> str | None:
    """Why it cannot be measured here; None if it can."""
    try:
        import torch
    except ImportError as problem:
        return f"PyTorch is not installed: {problem}"
    return None if torch.cuda.is_available() else "PyTorch finds no GPU"


def measure(case: Case, setting: Setting) -> Samples:
    """Measure a chain."""
    import torch

    gpu.use_primary_context()
    stream = torch.cuda.Stream()
    torch.cuda.set_stream(stream)  # a replay goes into the current stream
    x = torch.zeros(ELEMENTS, device="cuda")
    x.add_(1)  # loads the code: that may not happen in a capture

    def build() -> Built:
        x.zero_()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        start = time.perf_counter_ns()
        graph.capture_begin(capture_error_mode="thread_local")
        for _ in range(case.nodes):
            x.add_(1)
        graph.capture_end()  # instantiates too
        captured = time.perf_counter_ns()

        def launch_on(handle: int) -> None:
            with torch.cuda.stream(torch.cuda.ExternalStream(handle)):
                graph.replay()

        def require_result() -> None:
            if float(x[0]) != case.nodes:
                raise RuntimeError(f"the graph was launched and gave {float(x[0])}, and should have given {case.nodes}")

        return Built(
            launch=graph.replay,
            synchronize=stream.synchronize,
            launch_on=launch_on,
            launch_one=lambda: x.add_(1),
            stages={"capture": (captured - start) / 1e3},
            require_result=require_result,
            close=graph.reset,
        )

    return measure_built(build, case, setting)
