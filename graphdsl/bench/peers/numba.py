"""Numba without graphs: the same kernel, launched into a stream again and again. This is what a graph replaces."""

from __future__ import annotations

import numpy as np

from graphdsl.bench.measure import Samples
from graphdsl.bench.peers import Setting, gpu
from graphdsl.bench.peers.built import Built, measure_built
from graphdsl.bench.records import Case
from graphdsl.bench.shapes import ELEMENTS, THREADS

_LONGEST_QUEUE = 500  # launches into a stream that is held must not fill its queue: they would wait for ever


def unavailable() -> str | None:
    """Why it cannot be measured here; None if it can."""
    from numba import cuda

    return None if cuda.is_available() else "Numba finds no GPU"


def measure(case: Case, setting: Setting) -> Samples:
    """Measure the launches of as many kernels as a chain has nodes."""
    from numba import cuda

    from graphdsl.bench.kernel import step

    gpu.use_primary_context()
    gain, n = np.float32(1), np.int32(THREADS)

    def build() -> Built:
        stream = cuda.stream()
        x = cuda.to_device(np.zeros(ELEMENTS, np.float32), stream=stream)
        configured = step[1, THREADS, stream]

        def launch() -> None:
            for _ in range(case.nodes):
                configured(x, gain, n)

        def launch_on(handle: int) -> None:
            held = step[1, THREADS, cuda.external_stream(handle)]
            for _ in range(case.nodes):
                held(x, gain, n)

        def require_result() -> None:
            found = x.copy_to_host(stream=stream)
            stream.synchronize()
            if found[0] != case.nodes:
                raise RuntimeError(f"the kernels were launched and gave {found[0]}, not {case.nodes}")

        return Built(
            launch=launch,
            synchronize=stream.synchronize,
            launch_on=launch_on if case.nodes <= _LONGEST_QUEUE else None,
            launch_one=lambda: configured(x, gain, n),
            require_result=require_result,
        )

    return measure_built(build, case, setting)
