"""Graphs of kernels that follow each other, of which the time is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

import graphdsl as gd

PARTS_OF_LAYER = ("qkv", "attention", "output", "gate_up", "down")


class Case(NamedTuple):
    """What is measured.

    Attributes
    ----------
    declare : callable
        Given a `Chain`, adds its nodes.
    per : int
        Times are divided by it.
    position : int
        In the sequence.
    programmatic : bool
        Whether edges are.
    length : int
        Of a prompt.
    contents : dict of str to numpy.ndarray, optional
        What arrays hold, by name, before each sample.
    """

    declare: Callable[[Chain], None]
    per: int = 1
    position: int = 80
    programmatic: bool = True
    length: int = 0
    contents: Mapping[str, np.ndarray[Any, Any]] | None = None


class Chain:
    """A graph whose nodes follow each other."""

    def __init__(self, programmatic: bool = True) -> None:
        self.graph = gd.Graph("speed")
        self.nbytes = 0
        self.programmatic = programmatic
        self._last: Any = None
        self._names = 0

    def array(self, count: int, dtype: Any, name: str = "array") -> Any:
        self._names += 1
        return self.graph.device_array(f"{name}{self._names}", count, dtype)

    def matrix(self, rows: int, columns: int, name: str) -> tuple[Any, ...]:
        """Weights, which count as bytes that must be read."""
        kinds = {
            "f16": [(1, np.float16)], "bf16": [(1, np.uint16)], "q8_0": [(1, np.int8), (32, np.float16)],
            "q4_0": [(2, np.uint8), (32, np.float16)], "q4_1": [(2, np.uint8), (32, np.uint32)],
        }[name]  # fmt: skip
        made = tuple(self.array(rows * columns // share, dtype, name) for share, dtype in kinds)
        self.nbytes += sum(array.nbytes for array in made)
        return made

    def node(self, launch: tuple[Any, int, int], *args: Any) -> None:
        kernel, grid, block = launch
        node = self.graph.kernel(kernel, grid=grid, block=block, args=args)
        if self._last is not None:
            self.graph.edge(self._last, node, programmatic=self.programmatic)
        self._last = node
