"""The node kinds that the emulator knows: for each, how the driver reads it, what it refuses, and what it does.

A node kind is a row of functions, here or, for copies and memsets, in `graphdsl.drivers.emulator.transfers`. The rules
are those of `CUDA_KERNEL_NODE_PARAMS_v2` and its siblings in cuda.h 13, with the result codes that driver 580 gave on
an H200. This module must not know edges or execs.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from graphdsl.compile.image import KernelImage
from graphdsl.declare.limits import Limits
from graphdsl.drivers.base import Address
from graphdsl.drivers.emulator.attributes import (
    Values,
    is_cooperative,
    read_attribute,
    require_clusters,
    require_possible_clusters,
    require_resident,
)
from graphdsl.drivers.emulator.machine import Device, LoadedKernel, Machine
from graphdsl.drivers.emulator.problems import INVALID_HANDLE, NOT_SUPPORTED, Problem
from graphdsl.drivers.emulator.scheduler import Place
from graphdsl.drivers.host_threads import host_function
from graphdsl.drivers.structs import HOST_NODE, KERNEL_NODE


@dataclass(frozen=True)
class NodeKind:
    """A kind of node.

    Attributes
    ----------
    name : str
        What messages call it.
    read : callable
        Takes the machine and the address of a struct; gives a copy of all it says, or raises `Problem`.
    run : callable
        Takes the machine and that copy; of a kernel also, where it has something to wait for, what runs that.
    accept : callable
        Takes the machine and the copies before and after an update of an exec; gives what the node becomes, or raises
        `Problem`.
    require_ready : callable
        Takes the machine and that copy when a graph is instantiated; raises `Problem` if such a node cannot run.
    can_disable : bool
        True if an exec can skip it.
    addresses : callable
        Takes that copy; gives an address of each range of memory that the node itself reads or writes.
    """

    name: str
    read: Callable[[Machine, Address], Any]
    run: Callable[..., None]
    accept: Callable[[Machine, Any, Any], Any] = lambda machine, old, new: new
    require_ready: Callable[[Machine, Any], None] = lambda machine, params: None
    addresses: Callable[[Any], tuple[Address, ...]] = lambda params: ()
    can_disable: bool = False


def struct_at(address: Address, dtype: np.dtype[Any]) -> np.void:
    """A copy of the struct at an address."""
    if not address:
        raise Problem("the address of the node's parameters is NULL")
    return np.frombuffer(ctypes.string_at(address, dtype.itemsize), dtype)[0]  # type: ignore[no-any-return]


# Kernel


@dataclass(frozen=True)
class _Launch:
    device: Device
    kernel: LoadedKernel
    grid: Place
    block: Place
    shared_bytes: int
    parameters: bytes
    attributes: Values = field(default_factory=dict)


def _read_kernel(machine: Machine, address: Address) -> _Launch:
    fields = struct_at(address, KERNEL_NODE)
    handle = int(fields["func"] or fields["kern"])
    if not handle:
        raise Problem("the node names no kernel", INVALID_HANDLE)
    kernel = machine.kernels.get(handle)
    if kernel is None or not kernel.loaded:
        raise Problem(f"{handle:#x} is no kernel of a loaded library")
    device = machine.device_of(int(fields["ctx"]))
    device.require_runs(kernel.image)
    grid, block = Place(*fields["grid"].tolist()), Place(*fields["block"].tolist())
    _check_shape(kernel.image, grid, block, device.limits)
    shared_bytes, most = int(fields["shared_bytes"]), kernel.max_shared_bytes(device)
    if shared_bytes > most:
        raise Problem(
            f"{shared_bytes} bytes of dynamic shared memory; {kernel.image.name!r} may have {most}",
            remedy="Raise it with kernel_set_max_shared_bytes before the node is added.",
        )
    parameters = _read_parameters(kernel.image, fields, device.limits)
    return _launchable(_Launch(device, kernel, grid, block, shared_bytes, parameters))


def _check_shape(image: KernelImage, grid: Place, block: Place, limits: Limits) -> None:
    for name, extents, most in (("grid", grid, limits.max_grid), ("block", block, limits.max_block)):
        for axis, extent, limit in zip("xyz", extents, most):
            if not 1 <= extent <= limit:
                raise Problem(f"{name}.{axis} = {extent}; it must be from 1 to {limit}")
    threads = math.prod(block)
    most_threads = min(image.max_threads, limits.max_threads)
    if threads > most_threads:
        raise Problem(f"{threads} threads in a block, and {image.name!r} runs with at most {most_threads}")
    if image.block is not None and tuple(block) != image.block:
        raise Problem(f"a block of {tuple(block)} threads, and {image.name!r} was compiled for {image.block}")


def _read_parameters(image: KernelImage, fields: np.void, limits: Limits) -> bytes:
    """The parameter bytes, gathered from the places that the array of pointers names."""
    layout = image.layout
    pointers = int(fields["kernel_params"])
    if int(fields["extra"]):
        if pointers:
            raise Problem("kernelParams and extra must not both be given")
        raise Problem("the emulator takes parameters through kernelParams, not through extra", NOT_SUPPORTED)
    if layout.nbytes > limits.parameter_bytes:
        raise Problem(f"{layout.nbytes} bytes of parameters, and the device takes {limits.parameter_bytes}")
    if layout.parameters and not pointers:
        raise Problem(f"{image.name!r} has {len(layout.parameters)} parameters, and kernelParams is NULL")
    data = bytearray(layout.nbytes)
    for index, (offset, size) in enumerate(layout.parameters):
        place = ctypes.c_uint64.from_address(pointers + 8 * index).value
        if not place:
            raise Problem(f"the pointer to parameter {index} of {image.name!r} is NULL")
        data[offset : offset + size] = ctypes.string_at(place, size)
    return bytes(data)


def with_attribute(machine: Machine, launch: _Launch, number: int, address: Address) -> _Launch:
    """The launch of a kernel node once an attribute is set."""
    value = read_attribute(number, address, launch.device.limits)
    return _launchable(replace(launch, attributes={**launch.attributes, number: value}))


def _launchable(launch: _Launch) -> _Launch:
    """The launch itself, if its attributes suit it."""
    attributes, image, limits = launch.attributes, launch.kernel.image, launch.device.limits
    large = launch.device.ordinal in launch.kernel.large_clusters
    require_clusters(attributes, launch.grid, limits, image, large_allowed=large)
    if is_cooperative(attributes):
        require_resident(launch.grid, launch.block, launch.shared_bytes, limits, image)
    return launch


def _require_ready(machine: Machine, launch: _Launch) -> None:
    require_possible_clusters(launch.attributes, launch.device.limits, launch.kernel.image)


def _accept_kernel(machine: Machine, old: _Launch, new: _Launch) -> _Launch:
    """An update of an exec carries no attributes: those that the node has stay."""
    if new.device is not old.device:
        raise Problem("a kernel node of an exec keeps its context", remedy="Build the graph anew.")
    return _launchable(replace(new, attributes=old.attributes))


def _run_kernel(machine: Machine, launch: _Launch, before_wait: Callable[[], None] | None = None) -> None:
    kernel = launch.kernel
    if not kernel.loaded:
        raise Problem(
            f"the library of kernel {kernel.image.name!r} has been unloaded",
            INVALID_HANDLE,
            "Keep it loaded as long as an exec refers to it.",
        )
    kernel.emulated.run(
        machine.reach_of(launch.device),
        launch.grid,
        launch.block,
        launch.shared_bytes,
        launch.parameters,
        cooperative=is_cooperative(launch.attributes),
        before_wait=before_wait,
        conditions=machine.conditions_of(launch.device),
    )


# Host


@dataclass(frozen=True)
class _HostCall:
    function: Address
    user_data: Address


_HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _read_host(machine: Machine, address: Address) -> _HostCall:
    fields = struct_at(address, HOST_NODE)
    if not int(fields["function"]):
        raise Problem("the address of the host function is NULL")
    return _HostCall(int(fields["function"]), int(fields["user_data"]))


def _run_host(machine: Machine, call: _HostCall) -> None:
    with machine.gate.open(), host_function():
        _HostFunction(call.function)(call.user_data)


KERNEL = NodeKind("kernel", _read_kernel, _run_kernel, _accept_kernel, _require_ready, can_disable=True)
HOST = NodeKind("host", _read_host, _run_host)
EMPTY = NodeKind("empty", lambda machine, address: None, lambda machine, params: None)
