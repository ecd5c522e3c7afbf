"""Rules about several devices: codes GD231 to GD235."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from graphdsl.check.conditionals import in_bodies
from graphdsl.check.context import Context
from graphdsl.check.programmatic import programmatic_edges
from graphdsl.check.report import Finding
from graphdsl.check.rules import Found, rule
from graphdsl.check.subjects import uses_of
from graphdsl.declare.condition import Condition
from graphdsl.declare.nesting import ChildNode, ConditionalNode
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import BatchMemOpNode, EmptyNode, HostNode, KernelNode
from graphdsl.declare.operands import Array

_NOWHERE = (HostNode, EmptyNode, ChildNode)
"""Kinds of node that run on no device, or where the nodes inside do."""


@rule("GD231", "error", "Devices that the computer has", subject="graph")
def known_device(context: Context, found: Found) -> Iterator[Finding]:
    """Nodes run, and memory lies, on devices that the target has: those of a list, or those of the computer.

    One finding stands for all that is on a device.

    **Why.** A device that is not there can neither run a node nor have memory.

    **Remedy.** Choose a device that is there, or instantiate the graph on a computer with more of them;
    `gd.emulator(devices=4)` has as many as wanted.

    **Wrong**

    ```python wrong
    target = ["sm_90", "sm_90"]
    with g.on(2):
        g.memset(g.device_array("z", 1024, np.float32), 0)
    ```

    **Right**

    ```python right
    target = ["sm_90", "sm_90"]
    with g.on(1):
        g.memset(g.device_array("z", 1024, np.float32), 0)
    ```
    """
    targets = context.targets
    if targets.count is None or len(targets.limits) == len({*map(targets.number, context.definition.devices)}):
        return
    nodes: dict[int, list[Node]] = defaultdict(list)
    for node in context.nodes:
        nodes[targets.number(node.device)].append(node)
    for number in sorted(set(map(targets.number, context.definition.devices)) - targets.limits.keys()):
        buffers = [name for name, operand in context.definition.operands.items() if _device(operand) == number]
        there = nodes[number]
        yield found(
            f"there {'are' if targets.count != 1 else 'is'} {targets.count} device{'s' if targets.count != 1 else ''}, "
            "numbered from 0",
            node=there[0] if there else None,
            nodes=[node.name for node in there],
            field="device" if there else f"operand {buffers[0]!r}",
            value=number,
            remedy="Choose a device that is there, or another computer; emulator(devices=4) has as many as wanted.",
            location=None if there else context.definition.operands[buffers[0]].location,
        )


def _device(operand: object) -> int | None:
    return getattr(operand, "device", None)


@rule("GD232", "error", "Memory that the device of a kernel reaches")
def reachable_argument(context: Context, found: Found) -> Iterator[Finding]:
    """An array passed to a kernel lies on the kernel's device, or on one whose memory that device reaches. So do words
    that a node writes or waits for.

    Where it does, peer access is enabled when the graph is instantiated. Pinned memory is reached by all devices.

    **Why.** A thread that follows an address which its device does not reach ends the launch with
    `CUDA_ERROR_ILLEGAL_ADDRESS`.

    **Source.** CUDA Driver API, `cuDeviceCanAccessPeer` and `cuCtxEnablePeerAccess`.

    **Remedy.** Run the kernel where its memory is, or copy the memory there first.

    **Wrong**

    ```python wrong
    target = gd.emulator(devices=2, peer_access=False)
    with g.on(1):
        z = g.device_array("z", 1024, np.float32)
    g.kernel(scale, grid=4, block=256, args=(x, z, gain, n))
    ```

    **Right**

    ```python right
    target = gd.emulator(devices=2, peer_access=False)
    with g.on(1):
        z = g.device_array("z", 1024, np.float32)
        g.memcpy(z, x) >> g.kernel(scale, grid=4, block=256, args=(z, z, gain, n))
    ```
    """
    if not context.targets.apart:
        return
    for use in uses_of([*context.kernels, *context.of_kind(BatchMemOpNode)]):
        if is_apart(context, use.node.device, use.operand):
            yield found(
                f"a {use.node.kind} on {context.targets.name(use.node.device)} does not reach the memory of "
                f"{context.targets.name(use.operand.buffer.device)}",
                node=use.node,
                field=use.field,
                value=use.operand,
                remedy="Run it where the memory is, or copy the memory first.",
            )


def is_apart(context: Context, device: int | None, operand: object) -> bool:
    """True for memory of another device that a device does not reach."""
    targets = context.targets
    if not isinstance(operand, Array) or operand.space != "device":
        return False
    return (targets.number(device), targets.number(operand.buffer.device)) in targets.apart


@rule("GD233", "error", "A conditional node and its bodies on one device", subject="graph")
def body_device(context: Context, found: Found) -> Iterator[Finding]:
    """All nodes in the bodies of a conditional node run on the device of that node, at any depth.

    **Why.** The device decides which bodies run, without the host and without other devices. The driver tells at
    instantiation, as `CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED`.

    **Source.** CUDA Driver API, `CUDA_CONDITIONAL_NODE_PARAMS`: all kernels in the bodies, and the condition, belong to
    one context.

    **Remedy.** Declare the conditional node on the device where its bodies are to run: `with g.on(1):`.

    **Wrong**

    ```python wrong
    with g.if_(g.condition("large", default=0)) as body:
        with body.on(1):
            body.kernel(scale, grid=4, block=256, args=(raw, raw, gain, n))
    ```

    **Right**

    ```python right
    with g.on(1), g.if_(g.condition("large", default=0)) as body:
        body.kernel(scale, grid=4, block=256, args=(raw, raw, gain, n))
    ```
    """
    if not context.targets.several:
        return
    for owner, node in in_bodies(context.definition.nodes):
        if not isinstance(node, _NOWHERE) and not _together(context, owner, node):
            yield found(
                f"all in the bodies of a conditional node runs where it does, and {owner.name!r} is on "
                f"{context.targets.name(owner.device)}",
                node=node,
                field="device",
                value=context.targets.number(node.device),
                remedy=f"Put both on one device: a block of graph.on({context.targets.number(node.device)}) around the "
                "conditional node, or one of body.on around this one.",
            )


def _together(context: Context, first: Node, second: Node) -> bool:
    return context.targets.number(first.device) == context.targets.number(second.device)


@rule("GD234", "error", "Conditions set on the device of their node", subject="graph")
def condition_device(context: Context, found: Found) -> Iterator[Finding]:
    """A kernel that is given a condition runs on the device of the conditional node that asks it.

    **Why.** A condition belongs to a context: what a kernel in another one does with it is undefined.

    **Source.** CUDA Driver API, `cuGraphConditionalHandleCreate`.

    **Remedy.** Run the kernel on that device, and copy what it decides by.

    **Wrong**

    ```python wrong
    @cuda.jit
    def decide(large):
        gd.device.set_condition(large, 1)

    large = g.condition("large", default=0)
    with g.on(1):
        decision = g.kernel(decide, grid=1, block=1, args=large)
    decision >> g.if_(large)
    ```

    **Right**

    ```python right
    @cuda.jit
    def decide(large):
        gd.device.set_condition(large, 1)

    large = g.condition("large", default=0)
    with g.on(1):
        g.kernel(decide, grid=1, block=1, args=large) >> g.if_(large)
    ```
    """
    if not context.targets.several:
        return
    asking = {node.condition: node for node in context.nodes if isinstance(node, ConditionalNode)}
    for use in uses_of(context.kernels):
        asker = asking.get(use.operand) if isinstance(use.operand, Condition) else None
        if asker is not None and not _together(context, asker, use.node):
            yield found(
                f"a condition is set on the device of its node, and {asker.name!r} is on "
                f"{context.targets.name(asker.device)}",
                node=use.node,
                field=use.field,
                value=f"{use.operand} on {context.targets.name(use.node.device)}",
                remedy="Run the kernel on that device.",
            )


@rule("GD235", "error", "Programmatic edges on one device", subject="graph")
def programmatic_device(context: Context, found: Found) -> Iterator[Finding]:
    """A programmatic edge joins two kernels of one device.

    **Why.** It lets a device start a kernel while another one of its own still runs; devices know nothing of each
    other's blocks. The driver takes the edge all the same (measured on driver 580), and promises nothing.

    **Source.** CUDA Programming Guide, "Programmatic Dependent Launch".

    **Remedy.** Leave out `programmatic=True`.

    **Wrong**

    ```python wrong
    @cuda.jit
    def step(x):
        gd.device.launch_dependents()
        gd.device.grid_dependency_wait()
        x[cuda.grid(1)] += 1

    a = g.kernel(step, grid=4, block=256, args=raw)
    with g.on(1):
        b = g.kernel(step, grid=4, block=256, args=raw)
    g.edge(a, b, programmatic=True)
    ```

    **Right**

    ```python right
    @cuda.jit
    def step(x):
        gd.device.launch_dependents()
        gd.device.grid_dependency_wait()
        x[cuda.grid(1)] += 1

    a = g.kernel(step, grid=4, block=256, args=raw)
    with g.on(1):
        b = g.kernel(step, grid=4, block=256, args=raw)
    a >> b
    ```
    """
    for edge in programmatic_edges(context) if context.targets.several else ():
        ends = edge.source, edge.target
        if all(isinstance(end, KernelNode) for end in ends) and not _together(context, *ends):
            there, here = (context.targets.name(end.device) for end in ends)
            yield found(
                f"a programmatic edge joins kernels of one device, and here of {there} and {here}",
                node=edge.target,
                nodes=[end.name for end in ends],
                field="edges",
                value=str(edge),
                remedy="Leave out programmatic=True.",
                location=edge.location,
            )
