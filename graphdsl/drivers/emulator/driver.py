"""The emulated device: every driver function of the seam, with the driver's rules and codes, on a machine with no GPU.

Handles are numbers that are never used twice. A launch runs its nodes at once, in the calling thread, unless it calls
host nodes or follows one that does (`in_flight`). What goes wrong in a node ends the launch, is kept, and is raised by
the next call that would wait for it or follows it: a synchronise, a copy to or from the host, an upload or a launch.
Then the emulator can be used again; on a GPU the context would be lost. One lock guards everything; it is open while a
host node runs.
"""

from __future__ import annotations

import copy
from dataclasses import replace

from graphdsl.declare.limits import DEFAULT_CAPABILITY, Target, limits_of
from graphdsl.drivers.base import Address, Handle, OneByOne, require_device
from graphdsl.drivers.emulator.calls.building import Building
from graphdsl.drivers.emulator.calls.kernels import Kernels
from graphdsl.drivers.emulator.calls.looking import Looking
from graphdsl.drivers.emulator.calls.memory import Memory
from graphdsl.drivers.emulator.calls.running import Running
from graphdsl.drivers.emulator.calls.state import new_handle
from graphdsl.drivers.emulator.calls.streams import Streams
from graphdsl.drivers.emulator.calls.updating import Updating
from graphdsl.drivers.emulator.gate import Gate, driver_call
from graphdsl.drivers.emulator.machine import Device, Machine
from graphdsl.drivers.emulator.memory import AddressSpace, Contents
from graphdsl.drivers.emulator.order import Order
from graphdsl.drivers.emulator.problems import PEER_ACCESS_UNSUPPORTED, Problem
from graphdsl.drivers.releases import settle
from graphdsl.errors import DeclarationError


class Emulator(Kernels, Memory, Streams, Building, Looking, Running, Updating, OneByOne):
    """One emulated device, the first of an emulated computer; see `graphdsl.drivers.base.Driver` for the functions.

    Parameters
    ----------
    order : "declared", "random", "reverse" or callable
        In which topological order a launch runs its nodes, those in children and bodies beside those outside: ties by
        insertion, drawn anew for each launch, or ties by reverse insertion. A callable is given the handles of the
        nodes that are ready, in the order of insertion, and gives the one that runs next; it may not call the device.
        A result that depends on the order needs an edge.
    seed : int, optional
        Of the random order; by default another each time.
    target : str, tuple of int, or Limits, or a list of them
        Compute capability of the device, such as ``"sm_90"``; a list has one for each device of the computer.
    memory_bytes : int
        Memory of each device; that of the largest GPU by default. A byte takes two of this machine's once it is
        touched, and nothing before.
    build_only : bool
        Build graphs only, to look at the driver calls: external memory may lie on other devices, and launches are
        refused.
    devices : int, optional
        How many devices the computer has; by default one, or as many as ``target`` lists. `sibling` gives the others.
    peer_access : bool
        Whether each device can reach the memory of the others.

    Attributes
    ----------
    name, emulated, limits, context, ordinal, device_count
        As `Driver` has them.
    gate : Gate
        What all calls pass through.
    history : collections.deque of str
        Names of the driver functions that were called, the last 1,000 of them.
    fail_next : callable
        Plans a failure of a coming call, for tests of what happens then; see `Gate.fail_next`.

    Raises
    ------
    DeclarationError
        If ``order`` or ``target`` is not known, or there would be no device.

    Examples
    --------
    >>> emulator = Emulator(order="random", seed=1)
    >>> address = emulator.mem_alloc(1024)
    >>> emulator.live["allocations"]
    1
    >>> emulator.mem_free(address)
    """

    emulated = True
    survives_fork = True

    def __init__(
        self,
        order: Order = "declared",
        seed: int | None = None,
        target: Target | list[Target] = DEFAULT_CAPABILITY,
        memory_bytes: int = 288 * 2**30,
        build_only: bool = False,
        devices: int | None = None,
        peer_access: bool = True,
    ) -> None:
        if not callable(order) and order not in ("declared", "random", "reverse"):
            raise DeclarationError(
                "the order of execution is declared, random or reverse, or a function that chooses",
                field="order",
                value=repr(order),
                remedy='Pass order="declared".',
            )
        made = _devices(target, devices)
        space = AddressSpace(memory_bytes)
        super().__init__(Machine(space, made, made[0], Gate(), build_only=build_only), order, seed)
        self.history = self.gate.history
        self.fail_next = self.gate.fail_next
        self._peer_access = peer_access
        self._siblings: list[Emulator] = []  # all devices, where there are several
        if len(made) > 1:
            self._siblings += [self, *(copy.copy(self) for _ in made[1:])]
            for sibling, device in zip(self._siblings, made):
                sibling._machine = replace(self._machine, device=device)

    def __repr__(self) -> str:
        return f"<{self.name}, order={self.order!r}>"

    # Other devices

    @property
    def device_count(self) -> int:
        return len(self._machine.devices)

    def sibling(self, ordinal: int) -> Emulator:
        require_device(self, ordinal)
        return self._siblings[ordinal] if self._siblings else self

    @driver_call("cuDeviceCanAccessPeer")
    def device_can_access_peer(self, peer: int) -> bool:
        require_device(self, peer)
        return self._peer_access and peer != self.ordinal

    @driver_call("cuCtxEnablePeerAccess")
    def ctx_enable_peer_access(self, context: Handle) -> None:
        peer = self._machine.device_of(context)
        if peer is self._machine.device:
            raise Problem("a device is no peer of itself", PEER_ACCESS_UNSUPPORTED)
        if not self._peer_access:
            raise Problem(f"{self.name} does not reach the memory of {peer.limits.name}", PEER_ACCESS_UNSUPPORTED)
        self._machine.peers.add((self.ordinal, peer.ordinal))

    # For tests

    @property
    def live(self) -> dict[str, int]:
        """How many of each kind of resource have not been given back, once all that was dropped is."""
        settle()
        space = self._machine.space
        with self.gate.lock:
            return {
                "allocations": len(space.live("device")),
                "pinned": len(space.live("pinned")),
                "libraries": len(self._libraries),
                "streams": len(self._streams),
                "events": len(self._machine.events),
                "graphs": len(self._graphs),
                "execs": len(self._execs),
            }

    @property
    def allocations(self) -> list[tuple[Address, int]]:
        """Address and size of each allocation of device memory that has not been freed."""
        with self.gate.lock:
            return [(region.base, region.nbytes) for region in self._machine.space.live("device")]

    def contents(self, address: Address, nbytes: int) -> Contents:
        """A copy of what memory of a device or of the host holds, and which bytes were written; waits for nothing."""
        with self.gate.lock:
            return self._machine.space.contents(address, nbytes)

    def restore(self, address: Address, contents: Contents) -> None:
        """Let memory hold what it held before: bytes that nobody had written count as not written again."""
        with self.gate.lock:
            self._machine.space.restore(address, contents)


def _devices(target: Target | list[Target], count: int | None) -> tuple[Device, ...]:
    """The devices of a computer; what messages call them tells them apart."""
    targets = target if isinstance(target, list) else [target] * (1 if count is None else count)
    if not targets or count not in (None, len(targets)):
        raise DeclarationError(
            "an emulated computer has one device at least, and each has one target",
            field="devices",
            value=count,
            remedy="Pass how many there are, or a list of targets, one for each.",
        )
    made = []
    for ordinal, limits in enumerate(map(limits_of, targets)):
        which = f", device {ordinal}" if len(targets) > 1 else ""
        made.append(Device(ordinal, replace(limits, name=f"emulator ({limits.name}{which})"), new_handle()))
    return tuple(made)
