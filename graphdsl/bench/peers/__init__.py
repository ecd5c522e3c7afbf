"""The libraries that are measured beside each other, one module for each.

A module has ``unavailable() -> str | None``, which says why the library cannot be measured here, and
``measure(case, setting) -> Samples``, which measures one graph. It may have ``extras(setting)``, which gives a case and
samples for each thing that is measured once. Libraries are imported inside these functions: each module is used in a
process of its own, and importing it must always work.
"""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass, replace
from types import ModuleType

from graphdsl.bench.measure import FULL, QUICK, Budget
from graphdsl.bench.records import OURS, Case

_ALL_SHAPES = ("chain", "fan-out", "diamond", "random")
_CHAIN = ("chain",)


@dataclass(frozen=True)
class Peer:
    """A library that can be measured.

    Attributes
    ----------
    module : str
        Module of this package.
    title : str
        What tables call it.
    shapes : tuple of str
        What it is measured on. A library that captures a stream gets a chain without further streams and events.
    most_nodes : int
        How large graphs are that it is measured on.
    seconds : float
        How long it may take.
    """

    module: str
    title: str
    shapes: tuple[str, ...] = _ALL_SHAPES
    most_nodes: int = 1_000
    seconds: float = 45.0


PEERS: dict[str, Peer] = {
    OURS: Peer("ours", "graphdsl", most_nodes=100_000, seconds=120.0),
    "c": Peer("c", "C", most_nodes=100_000),
    "cuda_bindings": Peer("cuda_bindings", "cuda.bindings"),
    "cuda_core": Peer("cuda_core", "cuda.core"),
    "cupy": Peer("cupy", "CuPy", _CHAIN),
    "torch": Peer("torch", "PyTorch", _CHAIN),
    "warp": Peer("warp", "Warp", _CHAIN),
    "numba": Peer("numba", "Numba, stream launches", _CHAIN),
}
"""By the names that results have."""


def peer_module(name: str) -> ModuleType:
    """The module of a library."""
    return importlib.import_module(f"{__name__}.{PEERS[name].module}")


_LEAST_SAMPLES = ((1_000, 5), (10_000, 3), (math.inf, 1))  # by the number of nodes: building many takes long


@dataclass(frozen=True)
class Setting:
    """What every measurement of a run is given.

    Attributes
    ----------
    cubin : str
        File with the machine code of `graphdsl.bench.kernel.step`; empty where there is no GPU.
    entry : str
        The kernel's symbol in it.
    quick : bool
        Measure little.
    """

    cubin: str = ""
    entry: str = ""
    quick: bool = False

    def budget(self, case: Case) -> Budget:
        """How long to measure one thing of a graph: the larger it is, the fewer samples there must be."""
        budget = QUICK if self.quick else FULL
        most = next(count for nodes, count in _LEAST_SAMPLES if case.nodes <= nodes)
        return replace(budget, least=min(budget.least, most))

    @property
    def has_gpu(self) -> bool:
        """True if there is a GPU to measure on."""
        return bool(self.cubin)


def cases_of(name: str, cases: list[Case]) -> list[Case]:
    """Those of the cases that a library is measured on, the largest last: if time is up, the most is known."""
    peer = PEERS[name]
    kept = [case for case in cases if case.shape in peer.shapes and case.nodes <= peer.most_nodes]
    return sorted(kept, key=lambda case: case.nodes)
