"""Finds the two nodes to blame for orders that give different results, and says so.

This module must not decide which orders are tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from graphdsl.declare.definition import Definition
from graphdsl.declare.node import Node
from graphdsl.errors import DriverError, GraphdslError, MemoryFault, OrderError
from graphdsl.testing.differences import Comparison, Difference
from graphdsl.testing.orders import Between, Step, following, preorder
from graphdsl.testing.trial import Outcome, Trial


class Swap(NamedTuple):
    """Two launches that differ by two nodes, and come to different results.

    Attributes
    ----------
    first, second : Outcome
        The launches.
    orders : tuple of lists of Step
        The orders that were asked for.
    nodes : tuple of str
        The nodes: the first one runs first in the first launch.
    overlap : bool
        True if the second node waits for the first one, which ran before it in the first launch, and in its wait in
        the second.
    look_at : int
        How many steps have been taken once both have run.
    """

    first: Outcome
    second: Outcome
    orders: tuple[list[Step], list[Step]]
    nodes: tuple[str, str]
    overlap: bool
    look_at: int

    def turned(self) -> Swap:
        """The other one first."""
        return self._replace(first=self.second, second=self.first, orders=self.orders[::-1], nodes=self.nodes[::-1])


def closest(trial: Trial, first: Outcome, last: Outcome, comparison: Comparison) -> Swap:
    """Two orders between two that give different results, which differ by one swap of neighbours.

    Each order on the way from the first to the last swaps two neighbours of the one before. Of any two on the way whose
    results differ, one half of the way between them has ends that differ too.
    """
    for outcome in (first, last):
        overlap = _overlap(trial, outcome, comparison)
        if overlap is not None:
            return overlap
    between = Between(first.order, last.order)
    low, high = (0, first), (len(between) - 1, last)
    while high[0] - low[0] > 1:
        place = (low[0] + high[0]) // 2
        outcome = trial.run(following(between[place]))
        if comparison.same(low[1], outcome):
            low = (place, outcome)
        else:
            high = (place, outcome)
    pairs = enumerate(zip(low[1].order, high[1].order))
    parting, (one, other) = next((place, pair) for place, pair in pairs if pair[0] != pair[1])
    orders = between[low[0]], between[high[0]]
    return Swap(low[1], high[1], orders, (one[0], other[0]), False, parting + 2)


def _overlap(trial: Trial, outcome: Outcome, comparison: Comparison) -> Swap | None:
    """Two launches that differ by a kernel that runs before another one, or in its wait; None if all come to the same.

    What ran in waits is let run before, one kernel after the other.
    """
    left = list(outcome.within)
    before = outcome
    for step in outcome.within:
        order = [each for each in outcome.order if each not in left[1:]]
        left.remove(step)
        after = trial.run(following(order))
        if not comparison.same(before, after):
            behind = outcome.within[step]
            orders = order, [each for each in order if each != step]
            return Swap(after, before, orders, (step[0], behind[0]), True, outcome.order.index(behind) + 1)
        before = after
    return None


def order_error(graph: Definition, trial: Trial, swap: Swap, comparison: Comparison) -> OrderError:
    """What there is to say of two orders.

    Parameters
    ----------
    graph : Definition
        The graph.
    trial : Trial
        Where the launches ran.
    swap : Swap
        The launches.
    comparison : Comparison
        What counts at the end.
    """
    numbers = {node.name: number for number, node in enumerate(preorder(graph))}
    # The order to keep is the one in which nothing fails, or else that of the declaration.
    failed = [outcome.failure is not None for outcome in (swap.first, swap.second)]
    declared = numbers[swap.nodes[0]] < numbers[swap.nodes[1]]
    if not swap.overlap and (failed == [True, False] or (failed[0] == failed[1] and not declared)):
        swap = swap.turned()
    output = None if any(failed) else comparison.difference(swap.first.memory, swap.second.memory)
    first, second = (graph.node(name) for name in swap.nodes)
    source, target = _side_by_side(graph, first, second)
    found = _behind(trial, swap) or output
    return OrderError(
        f"{_left_open(first, swap.overlap)}, and {_effect(swap, (first, second), found, output)}",
        nodes=(first.name, second.name),
        locations=(first.location, second.location),
        edge=(source.name, target.name),
        buffer=found.buffer if found else _faulty(trial, swap),
        index=found.index if found else None,
        values=found.values if found else (None, None),
        output=output.buffer if output else None,
        orders=(_names(swap.first.order), _names(swap.second.order)),
        failures=(swap.first.failure, swap.second.failure),
        graph=graph.name,
        node=second.name,
        remedy=f"Wait for it earlier, with grid_dependency_wait, or declare a full edge {source.name} >> {target.name}."
        if swap.overlap
        else f"Declare the edge {source.name} >> {target.name}, if that order is meant.",
        location=second.location,
    )


def _left_open(first: Node, overlap: bool) -> str:
    where = f"node {first.name!r} ({first.location[0]}:{first.location[1]})"
    if overlap:
        return f"what it does before its wait runs beside {where} or behind it"
    return f"whether it or {where} runs first is left open"


def _effect(swap: Swap, nodes: tuple[Node, Node], found: Difference | None, output: Difference | None) -> str:
    first, second = (repr(node.name) for node in nodes)
    text = []
    if found is not None:
        ways = [_value(value) for value in found.values]
        text.append(f"{found} is {ways[0]} after {first} and {second}, and {ways[1]} the other way round")
    for outcome, order in ((swap.first, f"{first} first"), (swap.second, f"{second} first")):
        if outcome.failure is not None:
            text.append(f"with {order} {_told(outcome.failure)}")
    if output is not None and output != found:
        ways = [_value(value) for value in output.values]
        text.append(f"at the end {output} is {ways[0]} or {ways[1]}")
    return "; ".join(text)


def _told(failure: GraphdslError) -> str:
    reason = failure.reason if isinstance(failure, DriverError) else None
    where = "a node" if failure.node is None else f"node {failure.node!r}"
    return f"{where} fails: {(reason or failure.rule).rstrip('.')}"


def _value(value: Any) -> str:
    return "never written" if value is None else repr(value)


def _behind(trial: Trial, swap: Swap) -> Difference | None:
    """What differs as soon as both nodes have run: the memory that they meet in."""
    midway = [trial.run(following(order), look_at=swap.look_at).midway for order in swap.orders]
    if midway[0] is None or midway[1] is None:
        return None
    return Comparison(trial.buffers, list(trial.buffers)).difference(midway[0], midway[1])


def _faulty(trial: Trial, swap: Swap) -> str | None:
    """The buffer that a node failed over."""
    for failure in (swap.first.failure, swap.second.failure):
        address = getattr(failure, "address", None) if isinstance(failure, MemoryFault) else None
        for name, buffer in trial.buffers.items():
            if address is not None and 0 <= address - trial.address(name) < buffer.allocation_nbytes:
                return name
    return None


def _side_by_side(graph: Definition, first: Node, second: Node) -> tuple[Node, Node]:
    """What an edge can join: the nodes, or what holds them in the level that both are in."""
    holders = {id(body): node for node in graph.all_nodes for body in node.bodies}

    def levels(node: Node | None) -> dict[int, Node]:
        found = {}
        while node is not None:
            found[id(node.definition)] = node
            node = holders.get(id(node.definition))
        return found

    ours, theirs = levels(first), levels(second)
    common = next(level for level in ours if level in theirs)
    return ours[common], theirs[common]


def _names(order: Sequence[Step]) -> tuple[str, ...]:
    return tuple(name for name, _ in order)


def not_repeatable(graph: Definition, first: Outcome, again: Outcome, comparison: Comparison) -> GraphdslError:
    """What to say of a graph that does not do the same twice in one order."""
    failure = first.failure or again.failure
    what = f"in one {_told(failure)}" if failure else f"{comparison.difference(first.memory, again.memory)} differs"
    return GraphdslError(
        f"two launches in one order do not come to the same ({what}), so orders cannot be compared",
        graph=graph.name,
        remedy="Let host nodes and emulated calls keep nothing between launches, and draw from a fixed seed in each.",
    )
