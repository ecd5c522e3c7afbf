"""Rules about copies and memsets on several devices: codes GD336 to GD338."""

from __future__ import annotations

from collections.abc import Iterator

from graphdsl.check.conditionals import in_bodies
from graphdsl.check.context import Context
from graphdsl.check.devices import is_apart
from graphdsl.check.report import Finding
from graphdsl.check.rules import Found, rule
from graphdsl.check.subjects import label
from graphdsl.declare.nodes import MemcpyNode


@rule("GD336", "error", "Copies and memsets on a device that has their memory")
def transfer_device(context: Context, found: Found) -> Iterator[Finding]:
    """A copy or memset that is put on a device works on memory of that device.

    One that is put on none runs where its destination is, or else where its source is.

    **Why.** Another device would have to reach the memory of both sides, and all that it copies would cross it. A
    memset runs in the context of the memory.

    **Source.** CUDA Driver API, `cuGraphAddMemcpyNode` and `cuGraphAddMemsetNode`.

    **Remedy.** Leave the node out of the block of `on`, or declare its memory in it.

    **Wrong**

    ```python wrong
    with g.on(1):
        g.memcpy(x, raw)
    ```

    **Right**

    ```python right
    with g.on(1):
        z = g.device_array("z", 1024, np.float32)
        g.memcpy(z, raw)
    ```
    """
    targets = context.targets
    for node in context.transfers if targets.several else ():
        arrays = (node.destination, node.source) if isinstance(node, MemcpyNode) else (node.destination,)
        places = {targets.number(array.buffer.device): array for array in arrays if array.space == "device"}
        if places and targets.number(node.device) not in places:
            where = " and ".join(f"{label(array)} on {targets.name(number)}" for number, array in places.items())
            yield found(
                f"a {node.kind} runs on a device that has its memory: {where}",
                node=node,
                field="device",
                value=targets.number(node.device),
                remedy="Leave the node out of the block of graph.on, or declare the memory in it.",
            )


@rule("GD337", "error", "Copies in bodies between memory that the device reaches", subject="graph")
def body_copy(context: Context, found: Found) -> Iterator[Finding]:
    """A copy in a body of a conditional node works on memory that the device of that node reaches.

    **Why.** The device runs the body by itself: nobody is there to copy through the host. The driver tells at
    instantiation, as `CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED`.

    **Source.** CUDA Programming Guide, "Conditional Graph Nodes": both operands are accessible from the device.

    **Remedy.** Copy before the conditional node, or behind it.

    **Wrong**

    ```python wrong
    target = gd.emulator(devices=2, peer_access=False)
    with g.on(1):
        z = g.device_array("z", 1024, np.float32)
    with g.if_(g.condition("large", default=0)) as body:
        body.memcpy(x, z)
    ```

    **Right**

    ```python right
    target = gd.emulator(devices=2)
    with g.on(1):
        z = g.device_array("z", 1024, np.float32)
    with g.if_(g.condition("large", default=0)) as body:
        body.memcpy(x, z)
    ```
    """
    for owner, node in in_bodies(context.definition.nodes) if context.targets.apart else ():
        for field, operand in node.fields() if isinstance(node, MemcpyNode) else ():
            if is_apart(context, owner.device, operand):
                yield found(
                    f"a copy in the body of {owner.name!r} works on memory that {context.targets.name(owner.device)} "
                    f"reaches, and it does not reach that of {context.targets.name(operand.buffer.device)}",
                    node=node,
                    field=field,
                    value=operand,
                    remedy="Copy it outside of the body.",
                )


@rule("GD338", "advice", "Copies between devices that reach each other")
def staged_copy(context: Context, found: Found) -> Iterator[Finding]:
    """A copy between two devices that do not reach each other's memory goes through the host.

    **Why.** It takes the time of two copies, and memory of the host.

    **Source.** CUDA Driver API, `cuDeviceCanAccessPeer`.

    **Remedy.** Choose devices with a link between them (`nvidia-smi topo -p2p r` shows which), or keep the data where
    it is.

    **Wrong**

    ```python wrong
    target = gd.emulator(devices=2, peer_access=False)
    with g.on(1):
        z = g.device_array("z", 1024, np.float32)
    g.memcpy(z, x)
    ```

    **Right**

    ```python right
    target = gd.emulator(devices=2)
    with g.on(1):
        z = g.device_array("z", 1024, np.float32)
    g.memcpy(z, x)
    ```
    """
    targets = context.targets
    for node in context.copies if targets.apart else ():
        for side in (node.destination, node.source):
            if is_apart(context, node.device, side):
                yield found(
                    f"{targets.name(node.device)} does not reach the memory of {targets.name(side.buffer.device)}, so "
                    "that the copy goes through the host",
                    node=node,
                    field="source" if side is node.source else "destination",
                    value=side,
                    remedy="Choose devices with a link between them, or keep the data where it is.",
                )
