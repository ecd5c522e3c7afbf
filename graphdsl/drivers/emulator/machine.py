"""What an emulated computer has: devices, the memory that they share an address space of, and what is loaded on them.

This module must not know kinds of nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from graphdsl.compile.image import KernelImage
from graphdsl.declare.limits import Limits
from graphdsl.drivers.base import Address, Handle
from graphdsl.drivers.emulator.gate import Gate
from graphdsl.drivers.emulator.kernels import EmulatedKernel
from graphdsl.drivers.emulator.memory import AddressSpace, Reach
from graphdsl.drivers.emulator.problems import INVALID_CONTEXT, NO_BINARY_FOR_GPU, Problem


@dataclass(frozen=True)
class Device:
    """One device of the computer.

    Attributes
    ----------
    ordinal : int
        Its number.
    limits : Limits
        What it can do.
    context : int
        Handle of its context; it has one.
    """

    ordinal: int
    limits: Limits
    context: Handle

    def require_runs(self, image: KernelImage) -> None:
        """Refuse code that was compiled for other devices."""
        major, minor = self.limits.compute_capability
        if image.target[0] != major or image.target[1] > minor:
            wanted, given = (f"sm_{a}{b}" for a, b in (self.limits.compute_capability, image.target))
            raise Problem(
                f"kernel {image.name!r} is compiled for {given}, and the device is {wanted}", NO_BINARY_FOR_GPU
            )


class LoadedKernel:
    """A kernel of a loaded library, for all devices that can run its code.

    Attributes
    ----------
    image : KernelImage
        What was loaded.
    emulated : EmulatedKernel
        What runs.
    large_clusters : set of int
        The devices on which a cluster may have more blocks than every device has.
    loaded : bool
        False once the library is unloaded.
    """

    def __init__(self, image: KernelImage) -> None:
        self.image = image
        self.emulated = EmulatedKernel(image)
        self.large_clusters: set[int] = set()
        self.loaded = True
        self._max_shared_bytes: dict[int, int] = {}

    def max_shared_bytes(self, device: Device) -> int:
        """Dynamic shared memory that a launch on a device may ask for."""
        least = max(device.limits.shared_bytes - self.image.shared_bytes, 0)
        return self._max_shared_bytes.get(device.ordinal, least)

    def set_max_shared_bytes(self, device: Device, nbytes: int) -> None:
        """Let launches on a device ask for so much."""
        most = device.limits.shared_optin_bytes - self.image.shared_bytes
        if not 0 <= nbytes <= most:
            raise Problem(f"{nbytes} bytes of dynamic shared memory, and {self.image.name!r} can have 0 to {most}")
        self._max_shared_bytes[device.ordinal] = nbytes


@dataclass(frozen=True)
class Machine:
    """What nodes refer to.

    Attributes
    ----------
    space : AddressSpace
        Memory, of all devices.
    devices : tuple of Device
        By their numbers.
    device : Device
        The one whose context is current.
    gate : Gate
        What all calls pass through.
    kernels : dict
        Kernels by handle.
    conditions : dict
        Conditions by handle.
    events : dict
        Events by handle.
    peers : set of pairs of int
        Devices that reach memory of another one: which, and whose.
    build_only : bool
        True if nodes may refer to memory of other computers: none will run.
    """

    space: AddressSpace
    devices: tuple[Device, ...]
    device: Device
    gate: Gate
    kernels: dict[Handle, LoadedKernel] = field(default_factory=dict)
    conditions: dict[Handle, Any] = field(default_factory=dict)
    events: dict[Handle, Any] = field(default_factory=dict)
    peers: set[tuple[int, int]] = field(default_factory=set)
    build_only: bool = False

    def device_of(self, context: Handle) -> Device:
        """The device of a context that a node is to run in; NULL is the current one."""
        if not context:
            return self.device
        for device in self.devices:
            if device.context == context:
                return device
        raise Problem(f"{context:#x} is no context of a device", INVALID_CONTEXT)

    def reach_of(self, device: Device) -> Reach:
        """The memory that kernels on a device reach."""
        if len(self.devices) == 1:
            return self.space
        owners = {owner for ordinal, owner in self.peers if ordinal == device.ordinal}
        return self.space.reached_by(device.ordinal, owners)

    def conditions_of(self, device: Device) -> Mapping[Handle, Any]:
        """The conditions that kernels on a device can set: those of its context."""
        if len(self.devices) == 1:
            return self.conditions
        return {handle: found for handle, found in self.conditions.items() if found.context == device.context}

    def require_memory(self, address: Address, nbytes: int, device: Device | None = None) -> None:
        """Refuse a node that refers to memory which is not there, or which a device does not reach."""
        if not self.build_only or self.space.find(address) is not None:
            (self.space if device is None else self.reach_of(device)).locate(address, nbytes, used=False)
