"""The ways to change a part of an instantiated graph, by how large the part is: which is fastest, and where it turns.

A chain of 1,000 nodes is changed by one update of a param, node by node, as a whole with `cuGraphExecUpdate`, and by a
new exec. Whole-graph update is called on the handles of execs that the library has made: the exec is thrown away
afterwards, because the library does not know of the change.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from cuda.bindings import driver

import graphdsl as gd
from graphdsl.bench.measure import Budget, Samples, no_collection, repeated, rounds, timed
from graphdsl.bench.peers import Setting, gpu
from graphdsl.bench.records import Case
from graphdsl.bench.shapes import ELEMENTS, node_name, shape
from graphdsl.bench.timed_driver import TimedDriver

if TYPE_CHECKING:
    from graphdsl.drivers.base import Driver

CASE = Case("chain", 1000)
PERCENT = (1, 10, 50, 100)

WAYS = {
    "change_by_param": "one update of a param",
    "change_by_node": "node by node",
    "change_whole": "whole graph: emit and cuGraphExecUpdate",
    "change_by_exec": "a new exec",
}
"""Metrics without the percentage that ends them, and what they are."""


def fractions(device: Driver, setting: Setting) -> Iterator[tuple[Case, Samples]]:
    """Change a part of the nodes in each way; metrics are `WAYS` and ``exec_update``, each with the percentage."""
    gpu.use_primary_context()
    budget = setting.budget(CASE)
    memory = gd.device_array(device, ELEMENTS, np.float32)  # one for all execs, so that only the params differ
    for percent in PERCENT:
        touched = CASE.nodes * percent // 100
        graph = shape(*CASE, memory=memory, touched=touched)
        with no_collection():
            found = {**_in_place(graph, device, touched, budget), **_anew(graph, device, budget)}
        yield CASE, {f"{metric}_{percent}": samples for metric, samples in found.items()}


def _in_place(graph: gd.Graph, device: Driver, touched: int, budget: Budget) -> Samples:
    """Updates of one exec; the second kind takes the nodes away from the param, and so comes last."""
    gains = itertools.cycle((2.0, 1.0))
    names = [node_name(index) for index in range(touched)]
    with graph.instantiate(device) as graph_exec:

        def by_node() -> None:
            gain = next(gains)
            for name in names:
                graph_exec.node(name).update(args={"gain": gain})

        return {
            "change_by_param": repeated(lambda: graph_exec.update(gain=next(gains)), budget),
            "change_by_node": repeated(by_node, budget),
        }


def _anew(graph: gd.Graph, device: Driver, budget: Budget) -> Samples:
    """A new exec with other values, and the whole-graph update of an old exec from the graph of the new one."""
    timing = TimedDriver(device)
    seam: Any = timing
    found: Samples = defaultdict(list)
    for _ in rounds(budget):
        with graph.instantiate(seam):
            old = timing.last["graph_instantiate_with_params"]
            timing.reset()
            start = time.perf_counter_ns()
            new = graph.instantiate(seam, values={"gain": 2.0})
            found["change_by_exec"].append((time.perf_counter_ns() - start) / 1e3)
            source = timing.last["graph_create"]
            update = timed(partial(gpu.call, driver.cuGraphExecUpdate, old, source))
            found["exec_update"].append(update)
            found["change_whole"].append(timing.emission + update)
            new.close()
    return dict(found)
