"""Makes what an exec consists of: kernels loaded, memory allocated, nodes packed, the driver's graph built.

Whatever fails on the way, what was made before it is taken back. This module must not launch or change anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from graphdsl.compile.numba import compile_kernel
from graphdsl.compile.signature import argument_types
from graphdsl.declare.expressions import convert_scalar, value_of
from graphdsl.declare.limits import PORTABLE_CLUSTER
from graphdsl.declare.nodes import KernelNode, Node
from graphdsl.drivers.base import Driver, Handle
from graphdsl.errors import UpdateError
from graphdsl.plan import Plan
from graphdsl.run.binding import Binding, Memory
from graphdsl.run.callbacks import HostCalls
from graphdsl.run.calls import CallLog
from graphdsl.run.emit import begin, emit
from graphdsl.run.modules import LoadedKernel, load
from graphdsl.run.packing import Packing
from graphdsl.run.retire import Retired
from graphdsl.run.send import Sender
from graphdsl.run.shadow import Shadow
from graphdsl.run.templates import Shared


@dataclass(frozen=True, eq=False)
class Parts:
    """What an exec consists of.

    Attributes
    ----------
    stream : int
        Its own stream.
    graph_exec : int
        The driver's exec.
    memory : Memory
        Where its buffers lie.
    hosts : HostCalls
        The calls of its host nodes.
    retired : Retired
        What updates replaced and launches may still use.
    shadow : Shadow
        What is set in it.
    sender : Sender
        The way to change it.
    """

    stream: Handle
    graph_exec: Handle
    memory: Memory
    hosts: HostCalls
    retired: Retired
    shadow: Shadow
    sender: Sender


def build(
    made: Plan,
    device: Driver,
    values: Mapping[str, Any],
    resources: ExitStack,
    log: CallLog,
    *,
    kernels: Sequence[LoadedKernel | None] | None = None,
    bound: Mapping[str, Binding] = MappingProxyType({}),
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
        What external buffers are bound to instead of the owners in the definition, by name.
    """
    # What is made first is released last: the exec and its graph go before the memory and the kernels they use.
    stream = device.stream_create()
    log.add("cuStreamCreate")
    resources.callback(device.stream_destroy, stream)
    loaded = _load(made.nodes, device, log) if kernels is None else list(kernels)
    resources.callback(loaded.clear)
    current = _param_values(made, values)
    memory = Memory(made, device, log, current, bound)
    resources.callback(memory.release)
    hosts = HostCalls(memory)
    resources.callback(hosts.close)
    retired = Retired(device)
    resources.callback(retired.close)
    graph = begin(made, device, current, resources, log)
    packing = Packing(made.nodes, loaded, device.context, device.ordinal)
    shadow = Shadow(made.nodes, current, packing, device.limits, hosts)
    _allow(made.nodes, loaded, current, log)
    emitted = emit(made, graph, packing, Shared(current), device, stream, resources, log)
    sender = Sender(shadow.nodes, packing, device, emitted.graph_exec, emitted.handles)
    return Parts(stream, emitted.graph_exec, memory, hosts, retired, shadow, sender)


def _load(nodes: Sequence[Node], device: Driver, log: CallLog) -> list[LoadedKernel | None]:
    """The kernel of each node on the device; None for a node of another kind."""
    target = device.limits.compute_capability
    alike: dict[Any, LoadedKernel] = {}  # operands are known by identity: the nodes keep them alive
    typed: dict[Any, LoadedKernel] = {}

    def loaded(node: KernelNode) -> LoadedKernel:
        key = (node.kernel, id(node.signature), *map(id, node.args))
        found = alike.get(key)
        if found is None:
            details: dict[str, Any] = {"node": node.name, "location": node.location}
            types = argument_types(node.kernel, node.args, signature=node.signature, **details)
            found = typed.get((node.kernel, types))
            if found is None:
                image = compile_kernel(node.kernel, types, target, **details)
                found = typed[node.kernel, types] = load(image, device, log)
            alike[key] = found
        return found

    return [loaded(node) if isinstance(node, KernelNode) else None for node in nodes]


def _param_values(made: Plan, values: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, param in made.params.items():
        value = values.get(name, param.default)
        if value is not None:  # one that no node uses may stay unset
            found[name] = convert_scalar(value, param.dtype, field=name, error=UpdateError)
    return found


def _allow(
    nodes: Sequence[Node], kernels: Sequence[LoadedKernel | None], values: Mapping[str, Any], log: CallLog
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
    for kernel in large:
        if kernel.allow_large_clusters():
            log.add("cuKernelSetAttribute", kernel.image.name, NON_PORTABLE_CLUSTER_SIZE_ALLOWED=1)
    for kernel, nbytes in most.items():
        if kernel.allow_shared_bytes(nbytes):
            log.add("cuKernelSetAttribute", kernel.image.name, MAX_DYNAMIC_SHARED_SIZE_BYTES=nbytes)
