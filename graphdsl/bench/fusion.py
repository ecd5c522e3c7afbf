"""Measures what fusion saves: a chain of elementwise kernels on a million floats, as declared and as one kernel.

``python -m graphdsl.bench.fusion FILE.json``, on a machine with a GPU, in some seconds.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import graphdsl as gd
from graphdsl.bench import kernel
from graphdsl.bench.machine import facts
from graphdsl.bench.measure import QUICK, launched, no_collection, spread

CHAIN = 8
ELEMENTS = 1 << 20
_ROUNDS = 300
_WARM = 3


def chain(kernels: int, elements: int) -> gd.Graph:
    """Elementwise kernels one after the other, from ``x`` to ``y`` by way of arrays that nothing else reads."""
    graph = gd.Graph(f"chain of {kernels}")
    names = ["x", *(f"t{index}" for index in range(1, kernels)), "y"]
    arrays = [graph.device_array(name, elements, np.float32) for name in names]
    function = gd.elementwise(kernel.affine)
    with graph.sequence():
        for index in range(kernels):
            args = (arrays[index], np.float32(0.5), np.float32(index))
            graph.elementwise(function, arrays[index + 1], args, name=f"affine{index}")
    return graph


def expected(kernels: int, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What the chain makes of ``x``."""
    for index in range(kernels):
        x = x * np.float32(0.5) + np.float32(index)
    return x


def require_right(graph_exec: Any, kernels: int) -> None:
    """Launch once, and make sure that the result is right.

    Raises
    ------
    AssertionError
        If it is not: then no time that was measured means anything.
    """
    x = np.arange(graph_exec["x"].shape[0], dtype=np.float32) % 1000
    graph_exec["x"].copy_from_host(x)
    graph_exec.launch()
    graph_exec.synchronize()
    np.testing.assert_allclose(graph_exec["y"].copy_to_host(), expected(kernels, x), rtol=1e-5)


def measure(path: Path) -> None:
    """Measure both graphs in turn, and write what one launch takes as JSON."""
    from graphdsl.bench.peers.gpu import DeviceClock, use_primary_context

    use_primary_context()
    device = gd.cuda(0)
    declared = chain(CHAIN, ELEMENTS)
    graphs = {"declared": declared, "fused": gd.passes.fuse_elementwise(declared)[0]}
    samples: dict[str, dict[str, list[float]]] = {name: {"api": [], "total": [], "gpu": []} for name in graphs}
    with ExitStack() as resources:
        clock = resources.enter_context(DeviceClock())
        execs = {name: resources.enter_context(graph.instantiate(device)) for name, graph in graphs.items()}
        for graph_exec in execs.values():
            require_right(graph_exec, CHAIN)
        with no_collection():
            for number in range(_ROUNDS):
                for name, graph_exec in execs.items():
                    api, total = launched(graph_exec.launch, graph_exec.synchronize)
                    if number >= _WARM:
                        samples[name]["api"].append(api)
                        samples[name]["total"].append(total)
            for name, graph_exec in execs.items():
                samples[name]["gpu"] += clock.measure(graph_exec.launch, QUICK)
                graph_exec.synchronize()
    records = []
    for name, graph in graphs.items():
        summed = {metric: asdict(spread(times)) for metric, times in samples[name].items()}
        records.append({"name": name, "nodes": len(graph), **summed})
        medians = ", ".join(f"{metric} {each['median']:.1f}" for metric, each in summed.items())
        print(f"{name}: {medians} us", flush=True)
    found = {"machine": facts(), "kernels": CHAIN, "elements": ELEMENTS, "records": records}
    path.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    measure(Path(sys.argv[1]))
