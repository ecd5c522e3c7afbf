"""What the driver asks of a graph before it makes an exec of it, with the names of its refusals."""

from __future__ import annotations

from graphdsl.drivers.base import Address
from graphdsl.drivers.emulator.graph import Graph, Node, node_in_cycle
from graphdsl.drivers.emulator.machine import Device, Machine
from graphdsl.drivers.emulator.problems import NOT_SUPPORTED, InstantiateProblem, Problem

_IN_BODIES = frozenset(("kernel", "memcpy", "memset", "empty", "child", "conditional", "captured"))


def require_instantiable(graph: Graph, machine: Machine) -> None:
    """Refuse a graph that no exec can be made of.

    Raises
    ------
    Problem
        With ``node_handle`` where one node is to blame.
    """
    if graph.execs and (graph.has_conditions or graph.allocations):
        raise Problem("a graph with conditional, alloc or free nodes has one exec at a time", NOT_SUPPORTED)
    unused = [handle for handle, condition in graph.conditions.items() if not condition.used]
    if unused:
        raise InstantiateProblem(f"no conditional node asks the condition {unused[0]:#x}", "CONDITIONAL_HANDLE_UNUSED")
    _require(graph, machine)


def _require(graph: Graph, machine: Machine, owner: Device | None = None) -> None:
    """Refuse what is wrong in a graph; ``owner`` is the device of the conditional node whose body it is in."""
    blamed = node_in_cycle(graph)
    if blamed is not None:
        raise InstantiateProblem(f"Node {blamed:#x} is on a cycle", "INVALID_STRUCTURE", blamed)
    for node in graph.nodes.values():
        if owner is not None:
            _require_fit_for_body(node, machine, owner)
        try:
            node.kind.require_ready(machine, node.params)
        except Problem as problem:
            problem.details["node_handle"] = node.handle
            raise
        for inside in graph.inner.get(node.handle, ()):
            _require(inside, machine, node.params.device if node.kind.name == "conditional" else owner)


def _require_fit_for_body(node: Node, machine: Machine, owner: Device) -> None:
    if node.kind.name not in _IN_BODIES:
        raise InstantiateProblem(
            f"a body of a conditional node holds no {node.kind.name} nodes", "NODE_OPERATION_NOT_SUPPORTED", node.handle
        )
    if getattr(node.params, "device", owner) is not owner:
        rule = "all that is in a body of a conditional node runs in its context"
    elif any(not _reaches(machine, owner, address) for address in node.kind.addresses(node.params)):
        rule = "a body of a conditional node copies to and from memory that the device reaches"
    else:
        return
    raise InstantiateProblem(rule, "MULTIPLE_CTXS_NOT_SUPPORTED", node.handle)


def _reaches(machine: Machine, device: Device, address: Address) -> bool:
    owner = machine.space.owner(address)
    return not machine.space.is_pageable(address) and (
        owner in (None, device.ordinal) or (device.ordinal, owner) in machine.peers
    )
