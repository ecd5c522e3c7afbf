"""The bench of `tests.drivers.emulator`, on which any driver can be asked: its kernels are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphdsl.compile.numba import compile_kernel
from graphdsl.declare.kernel import as_kernel
from graphdsl.drivers.base import Driver
from graphdsl.drivers.structs import (
    CHILD_GRAPH_NODE,
    CONDITIONAL_NODE,
    EDGE_DATA,
    EMPTY,
    GENERIC,
    HOST,
    KERNEL,
    MEMCPY,
    MEMSET,
    NODE_PARAMS,
    UNION_OFFSET,
)
from graphdsl.errors import DriverError
from tests.drivers.emulator.conftest import Bench

INVALID_VALUE, INVALID_HANDLE, NOT_SUPPORTED, INVALID_CLUSTER = 1, 400, 801, 912
"""Result codes that the cases expect."""

KINDS = {"kernel": KERNEL, "memcpy": MEMCPY, "memset": MEMSET, "host": HOST, "empty": EMPTY, "generic": GENERIC}


class Seam(Bench):
    """Builds graphs through the calls that every driver has."""

    device: Driver  # type: ignore[assignment]

    def load(self, function: Callable[..., Any], *kinds: Any, **options: Any) -> int:
        """The handle of a kernel, compiled for the device."""
        image = compile_kernel(as_kernel(function), kinds, self.device.limits.compute_capability)
        return self.device.library_get_kernel(self.device.library_load_data(image), image)

    def kernel(self, kernel: int, *args: Any, **fields: Any) -> int:
        return super().kernel(kernel, *args, **({"ctx": self.device.context} | fields))

    def node(self, graph: int, kind: str, params: int = 0) -> int:
        """Add a node with the call for many, which is made in the device's context."""
        return int(
            self.device.graph_add_nodes(graph, np.array([KINDS[kind]], np.uint8), np.array([params], np.uint64))[0]
        )

    def update(self, graph_exec: int, node: int, kind: str, params: int) -> None:
        """Change a node of an exec, with the call for many."""
        kinds, nodes, addresses = (
            np.array([value], dtype)
            for value, dtype in ((KINDS[kind], np.uint8), (node, np.uint64), (params, np.uint64))
        )
        self.device.graph_exec_set_params(graph_exec, kinds, nodes, addresses)

    def edges(self, graph: int, *pairs: tuple[int, int], data: tuple[int, ...] | None = None) -> None:
        """Add edges in one call; ``data`` are port, port and type, and a reserved byte."""
        sources, targets = (np.array(side, np.uint64) for side in zip(*pairs))
        rows = None
        if data is not None:
            rows = np.zeros(len(pairs), EDGE_DATA)
            rows["from_port"], rows["to_port"], rows["type"] = data[:3]
            rows["reserved"][:, 0] = data[3] if len(data) > 3 else 0
        self.device.graph_add_dependencies(graph, sources, targets, rows)

    def packed(self, kind: int, dtype: np.dtype[Any], **fields: Any) -> np.ndarray[Any, Any]:
        """A `NODE_PARAMS` that holds a struct; what the driver writes into it is seen in the array."""
        row = np.zeros(1, NODE_PARAMS)
        row["type"] = kind
        inner = row.view(np.uint8)[UNION_OFFSET : UNION_OFFSET + dtype.itemsize].view(dtype)
        for name, value in fields.items():
            inner[name] = value
        self.kept.append(row)
        return row

    def child(self, graph: int, inside: int) -> int:
        return self.node(graph, "generic", self.packed(4, CHILD_GRAPH_NODE, graph=inside).ctypes.data)

    def conditional(self, graph: int, handle: int, form: int = 0, size: int = 1) -> tuple[int, list[int]]:
        """A conditional node and its bodies."""
        context = self.device.context
        row = self.packed(13, CONDITIONAL_NODE, handle=handle, form=form, size=size, ctx=context)
        node = self.node(graph, "generic", row.ctypes.data)
        struct = row.view(np.uint8)[UNION_OFFSET : UNION_OFFSET + CONDITIONAL_NODE.itemsize].view(CONDITIONAL_NODE)
        bodies = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint64 * size).from_address(int(struct["bodies"][0])))
        return node, [int(body) for body in bodies]

    def exec_of(self, graph: int) -> int:
        return self.device.graph_instantiate_with_params(graph)

    def finish(self, graph_exec: int) -> None:
        """Launch and synchronise."""
        self.device.graph_launch(graph_exec, self.stream)
        self.device.stream_synchronize(self.stream)


def code_of(call: Callable[..., Any], *args: Any, **options: Any) -> int:
    """The result code of a call, 0 if it succeeds."""
    try:
        call(*args, **options)
    except DriverError as problem:
        return problem.code
    return 0


def refusal(call: Callable[..., Any], *args: Any, **options: Any) -> DriverError:
    """The error of a call that is refused."""
    with pytest.raises(DriverError) as caught:
        call(*args, **options)
    return caught.value
