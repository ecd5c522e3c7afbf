"""Update of a whole exec from another graph, by the rules of `cuGraphExecUpdate` in cuda.h 13.

Nodes are paired from the sinks on, in the order in which these were added, along dependencies, in the order in which
the edges were. All is compared before anything is changed. This module must not know what nodes do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from graphdsl.drivers.base import Handle
from graphdsl.drivers.emulator.graph import Exec, Graph, Node
from graphdsl.drivers.emulator.machine import Machine
from graphdsl.drivers.emulator.nodes import KERNEL
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
    """The node of the graph for each of the exec, by handle; who is blamed is what driver 580 does on an H200."""
    if len(found.nodes) != len(graph.nodes):
        raise UpdateProblem(f"the exec has {len(found.nodes)} nodes, and the graph {len(graph.nodes)}", _TOPOLOGY)
    ours, theirs = _sinks(found), _sinks(graph)
    if len(ours) != len(theirs):
        extra = theirs[len(ours)] if len(theirs) > len(ours) else 0
        raise UpdateProblem(f"the exec has {len(ours)} nodes with none after them, not {len(theirs)}", _TOPOLOGY, extra)
    pairs: dict[Handle, Handle] = {}
    taken: dict[Handle, Handle] = {}
    waiting: list[tuple[Handle, Handle]] = []

    def pair(handle: Handle, other: Handle) -> None:
        kinds = found.nodes[handle].kind, graph.nodes[other].kind
        if kinds[0] is not kinds[1]:
            raise UpdateProblem(f"a {kinds[0].name} node becomes one of {kinds[1].name}", "NODE_TYPE_CHANGED", other)
        pairs[handle], taken[other] = other, handle
        waiting.append((handle, other))

    for handle, other in zip(ours, theirs, strict=True):
        pair(handle, other)
    while waiting:
        handle, other = waiting.pop()
        before, other_before = found.dependencies[handle], graph.dependencies[other]
        if len(before) != len(other_before):
            rule = f"a node with {len(before)} dependencies gets {len(other_before)}"
            raise UpdateProblem(rule, _TOPOLOGY, other)
        for (source, data), (other_source, other_data) in zip(before.items(), other_before.items(), strict=True):
            known = pairs.get(source, other_source) == other_source and taken.get(other_source, source) == source
            if not known or data != other_data:
                what = "by another edge" if known else "on another node"
                raise UpdateProblem(f"a dependency is {what}", _TOPOLOGY, other, other_source)
            if source not in pairs:
                pair(source, other_source)
    return pairs


def _sinks(graph: Exec | Graph) -> list[Handle]:
    """Nodes with none after them, the last one added first."""
    sources = {before for others in graph.dependencies.values() for before in others}
    return [handle for handle in reversed(graph.nodes) if handle not in sources]


def _accepted(machine: Machine, node: Node, given: Node, by_priority: bool) -> Any:
    """The parameters that a node of an exec takes over from one of a graph."""
    if node.kind.name == "conditional":
        raise UpdateProblem("the emulator does not pair the conditions of two graphs", "NOT_SUPPORTED", given.handle)
    if node.kind is KERNEL:
        ours, theirs = node.params.attributes, given.params.attributes
        _require_attributes(ours, theirs, given.handle, by_priority)
        # Attributes that are given are taken over, none is taken back, and clusters need not divide the grid any more.
        return replace(given.params, attributes={**ours, **theirs})
    try:
        return node.kind.accept(machine, node.params, given.params)
    except Problem as problem:
        raise UpdateProblem(problem.rule, "PARAMETERS_CHANGED", given.handle) from problem


def _require_attributes(ours: Mapping[int, Any], theirs: Mapping[int, Any], blamed: Handle, by_priority: bool) -> None:
    """Refuse another cooperative flag, and another priority where priorities count."""
    fixed = {"cooperative": COOPERATIVE, **({"priority": PRIORITY} if by_priority else {})}
    for name, number in fixed.items():
        was, becomes = (int(each[number][name]) if number in each else 0 for each in (ours, theirs))
        if was != becomes:
            raise UpdateProblem(f"the attribute {name} is {was} and becomes {becomes}", "ATTRIBUTES_CHANGED", blamed)
