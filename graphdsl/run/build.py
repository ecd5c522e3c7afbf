"""Makes what an exec consists of: kernels loaded, memory allocated, nodes packed, the driver's graph built.

Whatever fails on the way, what was made before it is taken back. This module must not launch or change anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from graphdsl.compile.image import KernelImage
from graphdsl.compile.kernels import argument_types, compile_kernel
from graphdsl.declare.expressions import value_of
from graphdsl.declare.limits import PORTABLE_CLUSTER
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import KernelNode
from graphdsl.declare.scalars import convert_scalar
from graphdsl.drivers.base import Driver, Handle
from graphdsl.errors import DriverError, UpdateError
from graphdsl.plan import Plan
from graphdsl.run.arena import Arena
from graphdsl.run.binding import Binding, Memory
from graphdsl.run.callbacks import HostCalls
from graphdsl.run.calls import CallLog
from graphdsl.run.captured import Captures
from graphdsl.run.devices import Devices
from graphdsl.run.emit import begin, blame, emit
from graphdsl.run.modules import LoadedKernel, load
from graphdsl.run.packing import Packing
from graphdsl.run.planned import let_share
from graphdsl.run.retire import Retired
from graphdsl.run.send import Sender
from graphdsl.run.shadow import Shadow
from graphdsl.run.templates import Shared


class Held:
    """Releases the host calls, the memory and the kernels of an exec; an update of the whole exec puts others there."""

    def __init__(self) -> None:
        self.resources = ExitStack()

    def replace(self, resources: ExitStack) -> Callable[[], None]:
        """Hold other resources; gives what releases those before."""
        before, self.resources = self.resources, resources
        return before.close

    def close(self) -> None:
        """Release what is held."""
        self.resources.close()


@dataclass(frozen=True, eq=False)
class Parts:
    """What an exec consists of.

    Attributes
    ----------
    devices : Devices
        Where its nodes and its memory are.
    stream : int
        Its own stream.
    graph : int
        The driver's graph that it was made from.
    memory : Memory
        Where its buffers lie.
    hosts : HostCalls
        The calls of its host nodes.
    captures : Captures
        What records the work of its captured nodes.
    held : Held
        What releases these, the memory and the kernels.
    retired : Retired
        What updates replaced and launches may still use.
    shadow : Shadow
        What is set in it.
    sender : Sender
        The way to change it.
    arena : Arena or None
        The memory that was given for its arrays.
    upload_seconds : float
        What it took to bring it to the device.
    """

    devices: Devices
    stream: Handle
    graph: Handle
    memory: Memory
    hosts: HostCalls
    captures: Captures
    held: Held
    retired: Retired
    shadow: Shadow
    sender: Sender
    arena: Arena | None
    upload_seconds: float


@dataclass(frozen=True, eq=False)
class Needs:
    """What the nodes of a graph refer to.

    Attributes
    ----------
    kernels : list of LoadedKernel or None
        The kernel of each node.
    values : dict of str to number
        The value of each param and the address of each buffer, by name.
    memory : Memory
        Where its buffers lie.
    """

    kernels: list[LoadedKernel | None]
    values: dict[str, Any]
    memory: Memory

    def shadow(
        self,
        made: Plan,
        devices: Devices,
        hosts: HostCalls,
        captures: Captures,
        resources: ExitStack,
        log: CallLog,
    ) -> Shadow:
        """The nodes, with room for them packed; the conditions of the graph must be among the values."""
        packing = Packing(made.nodes, self.kernels, devices)
        shadow = Shadow(made.nodes, self.values, packing, devices.targets, hosts, captures, self.memory)
        resources.callback(shadow.release_bound)
        _allow(made.nodes, self.kernels, self.values, devices, log)
        return shadow


def gather(
    made: Plan,
    devices: Devices,
    values: Mapping[str, Any],
    resources: ExitStack,
    log: CallLog,
    *,
    kernels: Sequence[LoadedKernel | None] | None = None,
    bound: Mapping[str, Binding] = MappingProxyType({}),
    arena: Arena | None = None,
    owners: Mapping[str, Any] = MappingProxyType({}),
) -> Needs:
    """Find or make what the nodes of a plan refer to; the parameters are those of `build`."""
    devices.include(made.devices)
    devices.let_reach(made.nodes, log)
    loaded = _load(made.nodes, devices, log) if kernels is None else list(kernels)
    resources.callback(loaded.clear)
    current = param_values(made, values)
    memory = Memory(made, devices, log, current, bound, arena=arena, owners=owners)
    resources.callback(memory.release)
    return Needs(loaded, current, memory)


def build(
    made: Plan,
    device: Driver,
    values: Mapping[str, Any],
    resources: ExitStack,
    log: CallLog,
    *,
    kernels: Sequence[LoadedKernel | None] | None = None,
    bound: Mapping[str, Binding] = MappingProxyType({}),
    hosts: HostCalls | None = None,
    arena: Arena | None = None,
    owners: Mapping[str, Any] = MappingProxyType({}),
) -> Parts:
    """Build an exec.

    Parameters
    ----------
    made : Plan
        What to build.
    device : Driver
        Where it runs.
    values : dict of str to number
        Values of params by name, instead of their defaults.
    resources : ExitStack
        Takes what releases each part.
    log : CallLog
        Takes the driver calls made.
    kernels : sequence of LoadedKernel or None, optional
        The kernel of each node, where they are loaded already.
    bound : dict of str to Binding, optional
        Where buffers and events are that need not be made, by name.
    hosts : HostCalls, optional
        Where the calls of its host nodes are kept, if that is not to be a new place.
    arena : Arena, optional
        Memory for its device arrays, if none is to be allocated.
    owners : dict of str to object
        Owners of external operands by name, instead of those that are declared.
    """
    # What is made first is released last: the exec and its graph go before the memory and the kernels they use.
    stream = device.stream_create()
    log.add("cuStreamCreate")
    resources.callback(device.stream_destroy, stream)
    hosts = HostCalls(made.name) if hosts is None else hosts
    held = Held()
    resources.callback(held.close)
    devices = Devices(device)
    resources.callback(devices.close)
    needs = gather(made, devices, values, held.resources, log, kernels=kernels, bound=bound, arena=arena, owners=owners)
    retired = Retired(device)
    resources.callback(retired.close)
    graph = begin(made, devices, needs.values, resources, log)
    captures = Captures(made.name, devices, stream, hosts.failures)
    shadow = needs.shadow(made, devices, hosts, captures, held.resources, log)
    emitted = emit(made, graph, shadow, Shared(needs.values), devices, stream, resources, log)
    captures.built = True
    sender = Sender(shadow.nodes, shadow.packing, device, emitted.graph_exec, emitted.handles)
    let_share(made, sender, needs.values)
    if arena is not None:
        device.graph_exec_let_enter(sender.graph_exec, arena.address, arena.nbytes, arena.tenant)
    uploaded = emitted.upload_seconds
    return Parts(devices, stream, graph, needs.memory, hosts, captures, held, retired, shadow, sender, arena, uploaded)


def _load(nodes: Sequence[Node], devices: Devices, log: CallLog) -> list[LoadedKernel | None]:
    """The kernel of each node on its device; None for a node of another kind."""
    alike: dict[Any, LoadedKernel] = {}  # operands are known by identity: the nodes keep them alive
    typed: dict[Any, LoadedKernel] = {}

    def loaded(node: KernelNode) -> LoadedKernel:
        key = (node.kernel, node.device, id(node.signature), *map(id, node.args))
        found = alike.get(key)
        if found is None:
            device = devices[node.device]
            target = device.limits.compute_capability
            types = argument_types(node, target)
            found = typed.get((node.kernel, types, device))
            if found is None:
                image = compile_kernel(node.kernel, types, target, node=node.name, location=node.location)
                found = typed[node.kernel, types, device] = _loaded_for(node, image, devices, log)
            alike[key] = found
        return found

    return [loaded(node) if isinstance(node, KernelNode) else None for node in nodes]


def _loaded_for(node: KernelNode, image: KernelImage, devices: Devices, log: CallLog) -> LoadedKernel:
    try:
        return load(image, devices[node.device], log, devices.said(node.device))
    except DriverError as problem:
        blame(problem, node)
        raise


def param_values(made: Plan, values: Mapping[str, Any]) -> dict[str, Any]:
    """The value of each param that has one, by name."""
    found = {}
    for name, param in made.params.items():
        value = values.get(name, param.default)
        if value is not None:  # one that no node uses may stay unset
            found[name] = convert_scalar(value, param.dtype, field=name, error=UpdateError)
    return found


def _allow(
    nodes: Sequence[Node],
    kernels: Sequence[LoadedKernel | None],
    values: Mapping[str, Any],
    devices: Devices,
    log: CallLog,
) -> None:
    """Let each kernel have what one of its nodes asks for and no kernel has by itself.

    That is the most dynamic shared memory of its nodes, and clusters of more blocks than every device has.
    """
    most: dict[LoadedKernel, int] = {}
    large: list[LoadedKernel] = []
    for node, kernel in zip(nodes, kernels, strict=True):
        if kernel is not None and isinstance(node, KernelNode):
            most[kernel] = max(most.get(kernel, 0), value_of(node.shared_bytes, values))
            if node.attributes is not None and node.attributes.cluster_blocks > PORTABLE_CLUSTER:
                large.append(kernel)

    def told(kernel: LoadedKernel, **attribute: int) -> None:
        log.add("cuKernelSetAttribute", kernel.image.name, **attribute, **devices.said(kernel.device.ordinal))

    for kernel in large:
        if kernel.allow_large_clusters():
            told(kernel, NON_PORTABLE_CLUSTER_SIZE_ALLOWED=1)
    for kernel, nbytes in most.items():
        if kernel.allow_shared_bytes(nbytes):
            told(kernel, MAX_DYNAMIC_SHARED_SIZE_BYTES=nbytes)
