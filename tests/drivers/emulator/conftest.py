"""A bench to test the emulator on: images made by hand from Python functions, structs packed by hand."""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numba.cuda import types
from numba.cuda.np.numpy_support import from_dtype

from graphdsl.compile.image import ArrayValue, KernelImage
from graphdsl.compile.signature import encode, parameter_layout
from graphdsl.drivers.emulator import Emulator
from graphdsl.drivers.structs import (
    ATTRIBUTE_VALUES,
    COOPERATIVE,
    HOST_NODE,
    KERNEL_NODE,
    MEMCPY_NODE,
    MEMORY_TYPE_DEVICE,
    MEMORY_TYPE_HOST,
    MEMSET_NODE,
)
from graphdsl.errors import DriverError, MemoryFault

HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def image_of(function: Callable[..., Any], *kinds: Any, shared_bytes: int = 0, max_threads: int = 1024) -> KernelImage:
    """What compiling ``function`` for Numba types would give, without machine code."""
    names = tuple(inspect.signature(function).parameters)
    layout = parameter_layout(kinds, names)
    name = function.__name__
    return KernelImage(name, name, b"", (9, 0), layout, function, shared_bytes, 16, max_threads, "")


class Fresh:
    """A device array whose memory nobody has written; ``result`` holds what the kernel left."""

    def __init__(self, shape: int | tuple[int, ...], dtype: Any) -> None:
        self.result = np.zeros(shape, dtype)


class Bench:
    """An emulator, and what is needed to build graphs on it in a line."""

    def __init__(self, device: Emulator) -> None:
        self.device = device
        self.stream = device.stream_create()
        self.kept: list[Any] = []

    # Structs: the address of each stays good as long as the bench lives

    def _struct(self, dtype: np.dtype[Any], **fields: Any) -> int:
        row = np.zeros(1, dtype)
        for name, value in fields.items():
            row[name] = value
        self.kept.append(row)
        return row.ctypes.data

    def load(self, function: Callable[..., Any], *kinds: Any, **options: Any) -> int:
        """The handle of a kernel."""
        image = image_of(function, *kinds, **options)
        return self.device.library_get_kernel(self.device.library_load_data(image), image)

    def kernel(
        self,
        kernel: int,
        kinds: Sequence[Any] = (),
        values: Sequence[Any] = (),
        grid: Any = (1, 1, 1),
        block: Any = (1, 1, 1),
        **fields: Any,
    ) -> int:
        """A kernel node that passes ``values``, each leaf in a place of its own."""
        leaves = [
            np.array([leaf], described.dtype)
            for kind, value in zip(kinds, values)
            for described, leaf in zip(parameter_layout((kind,)).leaves, encode(kind, value))
        ]
        pointers = np.array([leaf.ctypes.data for leaf in leaves], np.uint64)
        self.kept += [leaves, pointers]
        given = {"kern": kernel, "grid": grid, "block": block, "kernel_params": pointers.ctypes.data if leaves else 0}
        return self._struct(KERNEL_NODE, **(given | fields))

    def memcpy(self, destination: int, source: int, nbytes: int, kinds: str = "dd", /, **fields: Any) -> int:
        """A copy; ``kinds`` are the memory types of destination and source: ``d`` device, ``h`` host."""
        given: dict[str, Any] = {"width": nbytes, "height": 1, "depth": 1, "ctx": self.device.context}
        for side, address, kind in (("destination", destination, kinds[0]), ("source", source, kinds[1])):
            given[f"{side}_memory_type"] = MEMORY_TYPE_DEVICE if kind == "d" else MEMORY_TYPE_HOST
            given[f"{side}_{'device' if kind == 'd' else 'host'}"] = address
        return self._struct(MEMCPY_NODE, **(given | fields))

    def memset(self, destination: int, value: int, count: int, size: int = 4, /, **fields: Any) -> int:
        given = {"destination": destination, "value": value, "element_size": size, "width": count, "height": 1}
        given["ctx"] = self.device.context
        return self._struct(MEMSET_NODE, **(given | fields))

    def host(self, function: Callable[[int | None], None], user_data: int = 0) -> int:
        pointer = HostFunction(function)
        self.kept.append(pointer)
        address = ctypes.cast(pointer, ctypes.c_void_p).value
        return self._struct(HOST_NODE, function=address, user_data=user_data)

    # Memory

    def upload(self, array: np.ndarray[Any, Any]) -> int:
        address = self.device.mem_alloc(max(array.nbytes, 1))
        self.device.memcpy_htod(address, np.ascontiguousarray(array), self.stream)
        return address

    def download(self, address: int, shape: Any, dtype: Any) -> np.ndarray[Any, Any]:
        found = np.empty(shape, dtype)
        self.device.memcpy_dtoh(found, address, self.stream)
        return found

    # Running

    def launch(self, graph: int) -> int:
        """Instantiate and launch; gives the exec."""
        graph_exec = self.device.graph_instantiate_with_params(graph)
        self.device.graph_launch(graph_exec, self.stream)
        return graph_exec

    def chain(self, *adders: tuple[Callable[[int, int], int], int]) -> tuple[int, list[int]]:
        """A graph of nodes, each after the one before; gives it and their handles."""
        graph = self.device.graph_create()
        handles = [add(graph, params) for add, params in adders]
        pairs = np.array(handles, np.uint64)
        self.device.graph_add_dependencies(graph, pairs[:-1], pairs[1:])
        return graph, handles

    def run(
        self,
        function: Callable[..., Any],
        grid: Any,
        block: Any,
        *args: Any,
        shared_bytes: int = 0,
        cooperative: bool = False,
    ) -> int:
        """Run a kernel the way Numba would: arrays are uploaded and copied back, scalars are of their NumPy type.

        Gives the handle of the node.
        """
        kinds, values, back = [], [], []
        for arg in args:
            array = arg.result if isinstance(arg, Fresh) else arg
            if not isinstance(array, np.ndarray):
                kinds.append(from_dtype(np.asarray(arg).dtype))
                values.append(arg)
                continue
            address = self.device.mem_alloc(array.nbytes) if isinstance(arg, Fresh) else self.upload(array)
            kinds.append(types.Array(from_dtype(array.dtype), array.ndim, "C"))
            values.append(ArrayValue(address, array.shape, array.strides))
            back.append((array, address))
        params = self.kernel(
            self.load(function, *kinds), kinds, values, _dims(grid), _dims(block), shared_bytes=shared_bytes
        )
        graph, (node,) = self.chain((self.device.graph_add_kernel_node, params))
        if cooperative:
            value = self._struct(ATTRIBUTE_VALUES[COOPERATIVE], cooperative=1)
            self.device.graph_kernel_node_set_attribute(node, COOPERATIVE, value)
        self.launch(graph)
        try:
            self.device.stream_synchronize(self.stream)
        except Exception as problem:
            problem.node_of_test = node  # type: ignore[attr-defined]
            raise
        for array, address in back:
            self.device.memcpy_dtoh(array, address, self.stream)
        return node


def _dims(extents: Any) -> tuple[int, int, int]:
    given = extents if isinstance(extents, tuple) else (extents,)
    return (*given, 1, 1)[:3]  # type: ignore[return-value]


@pytest.fixture
def device() -> Emulator:
    return Emulator()


@pytest.fixture
def bench(device: Emulator) -> Iterator[Bench]:
    return Bench(device)


@pytest.fixture
def memory(bench: Bench) -> dict[str, int]:
    """Addresses of 4096 bytes of each kind."""
    device = bench.device
    pinned, pageable = device.mem_host_alloc(4096), np.zeros(4096, np.uint8)
    bench.kept += [pinned, pageable]
    released = device.mem_alloc(4096)
    device.mem_free(released)
    return {
        "a": device.mem_alloc(4096),
        "b": bench.upload(np.zeros(4096, np.uint8)),
        "pinned": pinned.ctypes.data,
        "pageable": pageable.ctypes.data,
        "released": released,
        "null": 0,
    }


def refused(call: Any, code: int, *args: Any) -> DriverError:
    """The error of a call that is refused with a code."""
    with pytest.raises(DriverError) as caught:
        call(*args)
    assert caught.value.code == code, caught.value
    return caught.value


def sync_fault(bench: Bench) -> MemoryFault:
    """The fault that a launch ended with."""
    with pytest.raises(MemoryFault) as caught:
        bench.device.stream_synchronize(bench.stream)
    assert caught.value.code == 700
    return caught.value


def updated(bench: Bench, call: Any, graph_exec: int, node: int, params: int, code: int) -> None:
    """Make the call that updates a node, and hold its result to a code; 0 is success."""
    if code:
        assert "Exec" in refused(call, code, graph_exec, node, params).call
    else:
        call(graph_exec, node, params)
