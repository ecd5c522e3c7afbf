"""What cannot be done to planned arrays: other arrays have their bytes before their first use and after their last.

So nobody reads or writes them but the nodes that the plan knows of, and these do to them what the plan was made for.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np

from graphdsl.compile.accesses import accesses, steers
from graphdsl.compile.roles import UNWRITTEN, place_of, roles
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import KernelNode, buffers_of, named_operands
from graphdsl.declare.operands import Array, Buffer
from graphdsl.drivers.base import Address
from graphdsl.errors import MemoryFault, UpdateError
from graphdsl.plan import Plan
from graphdsl.plan.levels import insides
from graphdsl.run.send import Sender

REMEDY = 'Declare it with lifetime="persistent"'


def let_share(plan: Plan, sender: Sender, addresses: Mapping[str, Address]) -> None:
    """Tell the driver when planned arrays are defined, which an emulator holds the nodes of an exec to."""
    if plan.planned:
        number = {node.name: index for index, node in enumerate(plan.nodes)}
        sender.let_share(
            [
                (addresses[name], each.nbytes, np.array([number[user] for user in each.users], np.intp))
                for name, each in plan.planned.items()
            ]
        )


def refuse_planned(buffer: Buffer) -> None:
    """Refuse to hand out an array that is planned."""
    raise UpdateError(
        "what a planned array holds before and after a launch is undefined: other arrays have its bytes then",
        field=buffer.name,
        value=repr(buffer),
        remedy=f"{REMEDY}, or copy it to another array with a memcpy node. To look at what is between nodes, "
        "instantiate with share_memory=False.",
        location=buffer.location,
    )


def require_planned_use(plan: Plan, nodes: Sequence[Node], index: int, before: Node) -> None:
    """Refuse an update of a node after which it, or another one, reads or writes planned arrays at the wrong time.

    Parameters
    ----------
    plan : Plan
        What the exec was built from.
    nodes : sequence of Node
        Its nodes, the updated one among them.
    index : int
        Which of them that is.
    before : Node
        What it was.
    """
    node = nodes[index]
    if not plan.planned or node is before:
        return
    old, new = (_planned(each, plan) for each in (before, node))
    if old == new:
        return
    declared = {buffer for buffer, *_ in _planned(plan.nodes[index], plan)}
    for buffer, *_ in new:
        if buffer not in declared:
            raise _refused(
                f"planned array {buffer.name!r} is there for the nodes that were declared to use it, and other arrays "
                "have its bytes when others run",
                node,
                buffer,
            )
    touched = dict.fromkeys(buffer for buffer, *_ in (*old, *new))
    for buffer, role in roles(nodes, insides(plan.levels), touched).items():
        if role.kind in UNWRITTEN and role.node is not None:
            raise _refused(
                f"planned array {buffer.name!r} is undefined at the start of a launch, and then {role.why}",
                node,
                buffer,
            )


def steers_planned(plan: Plan, node: KernelNode, argument: int) -> bool:
    """True if the number that is an argument of a kernel tells where it touches planned arrays."""
    planned = plan.planned
    return bool(planned) and any(buffer.name in planned for buffer in buffers_of(node)) and steers(node, argument)


def _refused(rule: str, node: Node, buffer: Buffer) -> UpdateError:
    fields = (name for name, operand in node.fields() if isinstance(operand, Array) and operand.buffer is buffer)
    return UpdateError(
        rule,
        node=node.name,
        field=next(fields, None),
        value=repr(buffer),
        remedy=f"{REMEDY}.",
        location=node.location,
    )


def _planned(node: Node, plan: Plan) -> list[tuple[Any, ...]]:
    """What a node does to planned arrays: the array, and what tells it from anything else."""
    planned = plan.planned
    if not any(buffer.name in planned for buffer in buffers_of(node)):
        return []
    return [
        (each.array.buffer, each.reads, each.writes, each.known, each.scattered, *place_of(each))
        for each in accesses(node)
        if each.array.buffer.name in planned
    ]


def say_array(
    addresses: Mapping[str, Any], planned: Container[str], in_arena: bool, fault: MemoryFault, node: Node
) -> None:
    """Say of a fault which array of a node it is about, and of a planned one that nothing is in it from before."""
    address = getattr(fault, "address", None)
    for name, operand in named_operands(node):
        start = addresses.get(name)
        if not isinstance(operand, Buffer) or address is None or start is None:
            continue
        if start <= address < start + operand.allocation_nbytes:
            fault.about(field=name)
            if name in planned:
                rule = "it is a planned array, which other arrays have the bytes of before and after it is used"
                fault.about(rule=f"{fault.rule}; {rule}", remedy=f"{fault.remedy} {REMEDY} to keep what is in it.")
            elif in_arena and not operand.external and getattr(fault, "kind", "").startswith("read of never-written"):
                rule = "it lies in an arena, and a launch of another exec there ends what was in it"
                fault.about(rule=f"{fault.rule}; {rule}", remedy=f"{fault.remedy} Keep outside what must stay.")
            return
