"""The kernels of a graph launched one by one into a stream, by Numba: what a program does that has no graph.

A comparison: the same kernels, arguments and order. Numba launches know no programmatic edges, so no kernel begins
before the one in front of it has ended.
"""

from __future__ import annotations

from typing import Any

from numba import cuda

import graphdsl as gd
from graphdsl.declare.expressions import Param
from graphdsl.declare.operands import Buffer


class StreamLaunches:
    """What an exec launches, without its graph; it is used in the place of the exec.

    Parameters
    ----------
    graph : Graph
        Of kernels alone, whose arguments are arrays, params and numbers.
    exe : GraphExec
        An exec of it on a GPU: its memory is worked on.
    stream : int, optional
        Handle of the stream; by default one of its own.
    """

    def __init__(self, graph: gd.Graph, exe: gd.GraphExec, stream: int | None = None) -> None:
        self._exe = exe
        self._nodes = graph.all_nodes
        self._stream = cuda.stream() if stream is None else cuda.external_stream(stream)
        kernels = {node.kernel for node in self._nodes}
        self._compiled = {kernel: cuda.jit(**kernel.options)(kernel.function) for kernel in kernels}
        self.update()

    def update(self, **values: Any) -> None:
        """Change params, as an update of the exec does."""
        if values:
            self._exe.update(**values)
        self._launches = [
            (
                self._compiled[node.kernel][node.grid, node.block, self._stream],
                [self._argument(arg) for arg in node.args],
            )
            for node in self._nodes
        ]

    def _argument(self, operand: Any) -> Any:
        if isinstance(operand, tuple):
            return tuple(map(self._argument, operand))
        if isinstance(operand, Param):
            return operand.dtype.type(self._exe[operand.name])
        if not isinstance(operand, Buffer):
            return operand
        found = self._exe[operand.name]
        return cuda.as_cuda_array(found if operand.space == "device" else _Pinned(found), sync=False)

    def launch(self) -> None:
        for configured, arguments in self._launches:
            configured(*arguments)

    def synchronize(self) -> None:
        self._stream.synchronize()

    def close(self) -> None:
        self._exe.close()

    def __getitem__(self, name: str) -> Any:
        return self._exe[name]


class _Pinned:
    """Page-locked host memory as a kernel sees it, at the same address; Numba would copy a NumPy array each time."""

    def __init__(self, array: Any) -> None:
        self.owner = array
        self.__cuda_array_interface__ = {**array.__array_interface__, "strides": None, "version": 3}
