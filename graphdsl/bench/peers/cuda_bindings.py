"""NVIDIA's `cuda.bindings`: the driver's functions, called from Python one by one.

One struct of parameters is made and used for all nodes, which is the fastest way: a struct made anew for each call
costs several times as much.
"""

from __future__ import annotations

import itertools
import time
from functools import partial

from graphdsl.bench.measure import Samples, timed
from graphdsl.bench.peers import Setting, gpu
from graphdsl.bench.peers.built import Built, measure_built
from graphdsl.bench.records import Case
from graphdsl.bench.shapes import THREADS, edges


def unavailable() -> str | None:
    """Always there: graphdsl stands on it."""
    return None


def measure(case: Case, setting: Setting) -> Samples:
    """Measure one graph."""
    from cuda.bindings import driver

    context = gpu.use_primary_context()
    library = gpu.call(driver.cuLibraryLoadFromFile, setting.cubin.encode(), None, None, 0, None, None, 0)
    kernel = gpu.call(driver.cuLibraryGetKernel, library, setting.entry.encode())
    pairs = edges(*case)

    def build() -> Built:
        operands = gpu.Operands()
        params = driver.CUDA_KERNEL_NODE_PARAMS()
        params.kern, params.ctx = kernel, driver.CUcontext(context)
        params.gridDimX = params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1
        params.blockDimX = THREADS
        params.kernelParams = operands.pointers.ctypes.data
        start = time.perf_counter_ns()
        graph = gpu.call(driver.cuGraphCreate, 0)
        nodes = [gpu.call(driver.cuGraphAddKernelNode, graph, None, 0, params) for _ in range(case.nodes)]
        if pairs:
            before, after = [nodes[a] for a, _ in pairs], [nodes[b] for _, b in pairs]
            gpu.call(driver.cuGraphAddDependencies, graph, before, after, None, len(pairs))
        emitted = time.perf_counter_ns()
        graph_exec = gpu.call(driver.cuGraphInstantiateWithParams, graph, driver.CUDA_GRAPH_INSTANTIATE_PARAMS())
        instantiated = time.perf_counter_ns()
        stream = driver.CUstream(gpu.stream())
        upload = timed(lambda: driver.cuGraphUpload(graph_exec, stream))
        gpu.synchronize(stream)
        packed = int(operands.pointers.ctypes.data)
        function = gpu.call(driver.cuKernelGetFunction, kernel)
        gains = itertools.cycle((2.0, 1.0))

        def update() -> None:
            operands.set_gain(next(gains))
            for node in nodes:
                driver.cuGraphExecKernelNodeSetParams(graph_exec, node, params)

        def close() -> None:
            gpu.synchronize(stream)
            gpu.call(driver.cuGraphExecDestroy, graph_exec)
            gpu.call(driver.cuGraphDestroy, graph)
            gpu.call(driver.cuStreamDestroy, stream)
            operands.free()

        return Built(
            launch=partial(driver.cuGraphLaunch, graph_exec, stream),
            synchronize=partial(gpu.synchronize, stream),
            launch_on=lambda handle: driver.cuGraphLaunch(graph_exec, handle),
            stages={
                "emit": (emitted - start) / 1e3,
                "instantiation": (instantiated - emitted) / 1e3,
                "upload_api_time": upload,
            },
            launch_one=lambda: driver.cuLaunchKernel(function, 1, 1, 1, THREADS, 1, 1, 0, stream, packed, 0),
            updates={"update": update},
            require_result=lambda: operands.require_sum(case.nodes),
            close=close,
        )

    return measure_built(build, case, setting)
