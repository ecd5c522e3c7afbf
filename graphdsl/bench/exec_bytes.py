"""Measures what nodes of execs take of the device's memory and of the process: chains of one kind of node, many times.

``python -m graphdsl.bench.exec_bytes FILE.json``, on a machine with a GPU, in some seconds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import graphdsl as gd
from graphdsl.bench import kernel
from graphdsl.bench.machine import facts
from graphdsl.bench.measure import no_collection, resident_bytes

if TYPE_CHECKING:
    from graphdsl.drivers.base import Driver

NODES = 500
"""Nodes of a graph."""

EXECS = 40
"""Execs of it that are made: together they take much more than the two megabytes that memory is given out in."""

Declare = Callable[[gd.Graph, str], Any]


def kinds(graph: gd.Graph) -> dict[str, Declare]:
    """How a node of each kind is declared, by its name; on arrays of the graph."""
    x, y = (graph.device_array(name, 64, np.float32) for name in "xy")
    gain, n = graph.param("gain", np.float32, default=1.0), np.int32(32)
    return {
        "kernel": lambda g, name: g.kernel(kernel.step, grid=1, block=32, args=(x, gain, n), name=name),
        "memcpy": lambda g, name: g.memcpy(y, x, name=name),
        "memset": lambda g, name: g.memset(x, 0, name=name),
        "empty": lambda g, name: g.empty(name=name),
    }


KINDS = tuple(kinds(gd.Graph("kinds")))
"""The kinds of nodes that are measured."""


def chain(kind: str, nodes: int) -> gd.Graph:
    """A chain of nodes of one kind.

    Examples
    --------
    >>> len(chain("memset", 3))
    3
    """
    graph = gd.Graph(f"{nodes} times {kind}")
    declare = kinds(graph)[kind]
    with graph.sequence():
        for number in range(nodes):
            declare(graph, f"node{number}")
    return graph


def bytes_per_node(device: Driver, kind: str, nodes: int = NODES, execs: int = EXECS) -> dict[str, float]:
    """What a node takes in each of many execs, beside the first, in bytes.

    Returns
    -------
    dict of str to float
        ``device``: of the memory of the device. ``host``: of the process, the driver's and the package's part, where
        the machine tells.
    """
    graph = chain(kind, nodes)
    with ExitStack() as made, no_collection():

        def launched() -> None:
            exe = made.enter_context(graph.instantiate(device))
            exe.launch()
            exe.synchronize()

        launched()  # code is loaded, and what the process needs once is there
        before, resident = device.mem_get_info()[0], resident_bytes()
        for _ in range(execs):
            launched()
        found = {"device": (before - device.mem_get_info()[0]) / (nodes * execs)}
        after = resident_bytes()
        if resident is not None and after is not None:
            found["host"] = (after - resident) / (nodes * execs)
    return found


def _measured(kind: str) -> dict[str, float]:
    return bytes_per_node(gd.cuda(0), kind)


def main(path: Path) -> None:
    """Measure all kinds, print a table and write it as JSON."""
    found = {}
    for kind in KINDS:  # each in a process of its own: what another one gave back would seem to cost nothing
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            found[kind] = process.submit(_measured, kind).result()
    print(f"{gd.cuda(0).name}: bytes a node of {EXECS} execs of {NODES} nodes")
    for kind, each in found.items():
        print(f"{kind:>8}", *(f"{where} {nbytes:,.0f}" for where, nbytes in each.items()), flush=True)
    record = {"machine": facts(), "nodes": NODES, "execs": EXECS, "bytes": found}
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
