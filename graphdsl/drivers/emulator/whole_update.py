"""Update of a whole exec from another graph, by the rules of `cuGraphExecUpdate` in cuda.h 13.

Nodes are paired from the sinks, in the order in which these were added, along dependencies, in the order in which the
edges were. All is compared before anything is changed. This module must not know what nodes do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graphdsl.drivers.base import Handle
from graphdsl.drivers.emulator.graph import Exec, Graph, Node
from graphdsl.drivers.emulator.nodes import Machine
from graphdsl.drivers.emulator.problems import Problem, UpdateProblem
from graphdsl.drivers.structs import COOPERATIVE, PRIORITY

_TOPOLOGY = "TOPOLOGY_CHANGED"


def update_whole(machine: Machine, found: Exec, graph: Graph) -> None:
    """Give the nodes of an exec the parameters of those of a graph, or change nothing."""
    changes = list(_changes(machine, found, graph))
    for node, params in changes:
        node.params = params


def _changes(machine: Machine, found: Exec, graph: Graph) -> Iterator[tuple[Node, Any]]:
    """The nodes of the exec, each with its new parameters."""
    for handle, other in _paired(found, graph).items():
        node, given = found.nodes[handle], graph.nodes[other]
        yield node, _accepted(machine, node, given, found.by_priority)
        inside = zip(found.inner.get(handle, ()), graph.inner.get(other, ()), strict=True)
        for inner, inner_graph in inside:
            yield from _changes(machine, inner, inner_graph)


def _paired(found: Exec, graph: Graph) -> dict[Handle, Handle]:
    """The node of the graph for each of the exec, by handle."""
    if len(found.nodes) != len(graph.nodes):
        raise UpdateProblem(f"the exec has {len(found.nodes)} nodes, and the graph {len(graph.nodes)}", _TOPOLOGY)
    ours, theirs = _sinks(found), _sinks(graph)
    if len(ours) != len(theirs):
        extra = theirs[len(ours)] if len(theirs) > len(ours) else 0
        raise UpdateProblem(f"the exec has {len(ours)} nodes with none after them, not {len(theirs)}", _TOPOLOGY, extra)
    pairs: dict[Handle, Handle] = {}
    taken: dict[Handle, Handle] = {}
    waiting = list(zip(ours, theirs, strict=True))[::-1]
    for handle, other in waiting:
        pairs[handle], taken[other] = other, handle
    while waiting:
        handle, other = waiting.pop()
        _require_alike(found, handle, graph, other)
        for (before, data), (other_before, other_data) in zip(
            found.dependencies[handle].items(), graph.dependencies[other].items(), strict=True
        ):
            known = pairs.get(before, other_before) == other_before and taken.get(other_before, before) == before
            if not known or data != other_data:
                what = "another edge" if known else "another node"
                raise UpdateProblem(f"a dependency is on {what}", _TOPOLOGY, other, other_before)
            if before not in pairs:
                pairs[before], taken[other_before] = other_before, before
                waiting.append((before, other_before))
    return pairs


def _require_alike(found: Exec, handle: Handle, graph: Graph, other: Handle) -> None:
    ours, theirs = found.nodes[handle].kind, graph.nodes[other].kind
    if ours is not theirs:
        raise UpdateProblem(f"a {ours.name} node becomes a {theirs.name} node", "NODE_TYPE_CHANGED", other)
    counts = len(found.dependencies[handle]), len(graph.dependencies[other])
    if counts[0] != counts[1]:
        raise UpdateProblem(f"a node with {counts[0]} dependencies gets {counts[1]}", _TOPOLOGY, other)


def _sinks(graph: Exec | Graph) -> list[Handle]:
    """Nodes with none after them, in the order in which they were added."""
    sources = {before for others in graph.dependencies.values() for before in others}
    return [handle for handle in graph.nodes if handle not in sources]


def _accepted(machine: Machine, node: Node, given: Node, by_priority: bool) -> Any:
    """The parameters that a node of an exec takes over from one of a graph."""
    if node.kind.name == "conditional":
        raise UpdateProblem("the emulator does not pair the conditions of two graphs", "NOT_SUPPORTED", given.handle)
    _require_attributes(node.params, given, by_priority)
    spaces, others = (_spaces(machine, each) for each in (node, given))
    if spaces != others:
        raise UpdateProblem(f"memory is {spaces} and becomes {others}", "PARAMETERS_CHANGED", given.handle)
    try:
        return node.kind.accept(machine, node.params, given.params)
    except Problem as problem:
        raise UpdateProblem(problem.rule, "PARAMETERS_CHANGED", given.handle) from problem


def _require_attributes(params: Any, given: Node, by_priority: bool) -> None:
    """Refuse another cooperative flag, and another priority where priorities count; others stay without a word."""
    fixed = {"cooperative": COOPERATIVE, **({"priority": PRIORITY} if by_priority else {})}
    for name, number in fixed.items():
        ours, theirs = (getattr(each, "attributes", {}).get(number) for each in (params, given.params))
        values = [0 if value is None else int(value[name]) for value in (ours, theirs)]
        if values[0] != values[1]:
            rule = f"the attribute {name} is {values[0]} and becomes {values[1]}"
            raise UpdateProblem(rule, "ATTRIBUTES_CHANGED", given.handle)


def _spaces(machine: Machine, node: Node) -> list[str]:
    """Where the memory of a node lies, for each of its addresses."""
    regions = (machine.space.find(address) for address in node.kind.addresses(node.params))
    return ["pageable" if region is None else region.kind for region in regions]
