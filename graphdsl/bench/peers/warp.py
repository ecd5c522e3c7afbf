"""NVIDIA Warp: a stream is captured. Its nodes run the same kernel, written in Warp's Python and compiled by Warp."""

import time
from functools import partial

from graphdsl.bench.measure import Samples
from graphdsl.bench.peers import Setting, gpu
from graphdsl.bench.peers.built import Built, measure_built
from graphdsl.bench.records import Case
from graphdsl.bench.shapes import ELEMENTS, THREADS

# Warp reads the annotations of kernels as objects: this module must not postpone them.


def unavailable() -> str | None:
    """Why it cannot be measured here; None if it can."""
    try:
        import warp
    except ImportError as problem:
        return f"Warp is not installed: {problem}"
    return None if warp.is_cuda_available() else "Warp finds no GPU"


def measure(case: Case, setting: Setting) -> Samples:
    """Measure a chain."""
    import warp

    gpu.use_primary_context()

    @warp.kernel  # type: ignore[untyped-decorator]
    def step(x: warp.array(dtype=warp.float32), gain: warp.float32, n: warp.int32):  # type: ignore[no-untyped-def, valid-type]
        i = warp.tid()
        if i < n:
            warp.atomic_add(x, i, gain)

    device = warp.get_device("cuda:0")

    def build() -> Built:
        stream = warp.Stream(device)
        with warp.ScopedStream(stream):
            x = warp.zeros(ELEMENTS, dtype=warp.float32, device=device)
            arguments = {"dim": THREADS, "inputs": [x, 1.0, THREADS], "device": device, "block_dim": THREADS}
            warp.launch(step, **arguments)  # compiles: that may not happen in a capture
            x.zero_()
            warp.synchronize_stream(stream)
            start = time.perf_counter_ns()
            with warp.ScopedCapture(stream=stream) as capture:
                for _ in range(case.nodes):
                    warp.launch(step, **arguments)
            captured = time.perf_counter_ns()
        graph = capture.graph

        def require_result() -> None:
            found = float(x.numpy()[0])
            if found != case.nodes:
                raise RuntimeError(f"the graph was launched and gave {found}, not {case.nodes}")

        return Built(
            launch=partial(warp.capture_launch, graph, stream=stream),
            synchronize=partial(warp.synchronize_stream, stream),
            launch_on=lambda handle: warp.capture_launch(graph, stream=warp.Stream(device, cuda_stream=handle)),
            launch_one=lambda: warp.launch(step, stream=stream, **arguments),
            stages={"capture": (captured - start) / 1e3},
            require_result=require_result,
        )

    return measure_built(build, case, setting)
