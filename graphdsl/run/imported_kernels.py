"""Reads kernel nodes of graphs that others have built: functions, launches, bytes of parameters, attributes.

This module must not know the nodes around them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple, get_args

import numpy as np

from graphdsl.compile.demangle import demangled, title_of
from graphdsl.declare.attributes import Access, AccessPolicy, ClusterPolicy, LaunchAttributes, SyncDomain
from graphdsl.declare.imported import (
    FunctionAttributes,
    ImportedKernel,
    Keeper,
    LoadedFunction,
    ParameterPlace,
    RawBytes,
)
from graphdsl.declare.operands import Buffer
from graphdsl.drivers.base import Driver, Handle
from graphdsl.drivers.structs import (
    ACCESS_POLICY_WINDOW,
    ATTRIBUTE_VALUES,
    CLUSTER_DIMENSION,
    CLUSTER_SCHEDULING_POLICY,
    COOPERATIVE,
    FUNC_BINARY_VERSION,
    FUNC_MAX_DYNAMIC_SHARED_BYTES,
    FUNC_MAX_THREADS,
    FUNC_REGISTERS,
    FUNC_SHARED_BYTES,
    KERNEL_NODE,
    MEM_SYNC_DOMAIN,
    MEM_SYNC_DOMAIN_MAP,
    PREFERRED_CLUSTER_DIMENSION,
    PRIORITY,
)
from graphdsl.errors import DeclarationError, DriverError

_BUFFER_POINTER = 1  # CU_LAUNCH_PARAM_BUFFER_POINTER


class FoundKernel(NamedTuple):
    """What a kernel node was made from.

    Attributes
    ----------
    kernel : ImportedKernel
        One object for all nodes of a function.
    context : int
        The context that it runs in; 0 for the current one.
    grid, block : tuple of three int
        Blocks in the grid, threads in a block.
    shared_bytes : int
        Dynamic shared memory of a block.
    args : tuple of RawBytes
        The bytes of each parameter.
    attributes : LaunchAttributes or None
        Those that are not as the driver has them by default.
    """

    kernel: ImportedKernel
    context: Handle
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    args: tuple[RawBytes, ...]
    attributes: LaunchAttributes | None


class KernelReader:
    """Reads the kernel nodes of one graph.

    Parameters
    ----------
    device : Driver
        Whose driver it is.
    keeper : Keeper
        What keeps functions loaded.
    window : callable
        Gives the buffer over so many bytes at an address.
    """

    def __init__(self, device: Driver, keeper: Keeper, window: Callable[[int, int], Buffer]) -> None:
        self._device = device
        self._keeper = keeper
        self._window = window
        self._kernels: dict[tuple[Handle, bool], ImportedKernel] = {}

    def read(self, handle: Handle, where: str) -> FoundKernel:
        """Read a node; ``where`` is what messages call it."""
        row = np.zeros(1, KERNEL_NODE)
        self._device.graph_kernel_node_get_params(handle, row.ctypes.data)
        fields = row[0]
        kernel = self._kernel(int(fields["func"]), int(fields["kern"]))
        return FoundKernel(
            kernel,
            int(fields["ctx"]),
            tuple(fields["grid"].tolist()),
            tuple(fields["block"].tolist()),
            int(fields["shared_bytes"]),
            _parameters(fields, kernel.origin.arguments_info, where),
            self._attributes(handle),
        )

    def _kernel(self, function: Handle, kernel: Handle) -> ImportedKernel:
        """The kernel of a handle; one object for all its nodes."""
        key = (function, True) if function else (kernel, False)
        if key not in self._kernels:
            device = self._device
            own = function or device.kernel_get_function(kernel)
            symbol = device.func_get_name(own)
            name = demangled(symbol)
            attributes = FunctionAttributes(
                device.func_get_attribute(own, FUNC_REGISTERS),
                device.func_get_attribute(own, FUNC_SHARED_BYTES),
                device.func_get_attribute(own, FUNC_MAX_THREADS),
                device.func_get_attribute(own, FUNC_MAX_DYNAMIC_SHARED_BYTES),
                device.func_get_attribute(own, FUNC_BINARY_VERSION),
            )
            places = tuple(ParameterPlace(*place) for place in device.func_get_param_info(own))
            loaded = LoadedFunction(*key, name, attributes, places, self._keeper)
            self._kernels[key] = ImportedKernel(loaded, symbol, title_of(name))
        return self._kernels[key]

    def _attributes(self, handle: Handle) -> LaunchAttributes | None:
        """The launch attributes of a node that are not as the driver has them by default."""
        given: dict[str, Any] = {}
        for number, dtype in ATTRIBUTE_VALUES.items():
            value = np.zeros(1, dtype)
            try:
                self._device.graph_kernel_node_get_attribute(handle, number, value.ctypes.data)
            except DriverError:  # an older driver, or a device without it: then no node has it
                continue
            given |= _ATTRIBUTES[number](self, value[0])
        given = {name: value for name, value in given.items() if value is not None}
        if "preferred_cluster" in given and given["preferred_cluster"] == given.get("cluster"):
            del given["preferred_cluster"]
        return LaunchAttributes(**given) if given else None

    def _policy(self, value: np.void) -> dict[str, Any]:
        nbytes = int(value["nbytes"])
        if not nbytes:
            return {}
        array = self._window(int(value["base"]), nbytes)
        hit, miss = (get_args(Access)[int(value[field])] for field in ("hit", "miss"))
        return {"access_policy": AccessPolicy(array, float(value["hit_ratio"]), hit, miss)}


def _dims(name: str) -> Callable[[KernelReader, np.void], dict[str, Any]]:
    def read(reader: KernelReader, value: np.void) -> dict[str, Any]:
        dims = tuple(value["dims"].tolist())
        return {name: dims if max(dims) > 1 else None}

    return read


def _choice(name: str, field: str, options: Any) -> Callable[[KernelReader, np.void], dict[str, Any]]:
    return lambda reader, value: {name: get_args(options)[int(value[field])] if value[field] else None}


_ATTRIBUTES: dict[int, Callable[[KernelReader, np.void], dict[str, Any]]] = {
    ACCESS_POLICY_WINDOW: KernelReader._policy,
    COOPERATIVE: lambda reader, value: {"cooperative": True if value["cooperative"] else None},
    CLUSTER_DIMENSION: _dims("cluster"),
    CLUSTER_SCHEDULING_POLICY: _choice("cluster_policy", "policy", ClusterPolicy),
    PRIORITY: lambda reader, value: {"priority": int(value["priority"]) or None},
    MEM_SYNC_DOMAIN_MAP: lambda reader, value: {
        "sync_domain_map": _domains(int(value["default"]), int(value["remote"]))
    },
    MEM_SYNC_DOMAIN: _choice("sync_domain", "domain", SyncDomain),
    PREFERRED_CLUSTER_DIMENSION: _dims("preferred_cluster"),
}
"""How the value of an attribute is read; None stands for what the driver has by default."""


def _domains(default: int, remote: int) -> tuple[int, int] | None:
    return None if (default, remote) in ((0, 1), (0, 0)) else (default, remote)


def _parameters(fields: np.void, places: tuple[ParameterPlace, ...], where: str) -> tuple[RawBytes, ...]:
    """The bytes of each parameter: each has an address, or all lie in one buffer."""
    pointers, extra = int(fields["kernel_params"]), int(fields["extra"])
    if pointers:
        addresses = [_word(pointers + 8 * index) for index in range(len(places))]
    elif extra:
        buffer = _buffer(extra, where)
        addresses = [buffer + place.offset for place in places]
    elif places:
        raise DeclarationError(
            "the driver does not say what the kernel is given",
            node=where,
            field="kernelParams",
            value="NULL",
            remedy="Build the node with kernelParams.",
        )
    else:
        addresses = []
    return tuple(RawBytes(ctypes.string_at(address, place.size)) for address, place in zip(addresses, places))


def _buffer(extra: int, where: str) -> int:
    """The buffer among the options of a launch: pairs of a number and a value, up to a 0."""
    while key := _word(extra):
        if key == _BUFFER_POINTER:
            return _word(extra + 8)
        extra += 16
    raise DeclarationError(
        "the options of the launch name no buffer of parameters", node=where, field="extra", remedy="Use kernelParams."
    )


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value
