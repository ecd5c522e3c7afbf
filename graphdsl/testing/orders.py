"""Orders of the nodes of a graph, and what lies between two of them. This module must not run anything."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from graphdsl.declare.ancestry import flattened, insides
from graphdsl.declare.definition import Definition
from graphdsl.declare.node import Node

Step = tuple[str, int]
"""A node that runs, by its name, and how often it has come before in the launch: in turns of a body, and if one behind
it may overlap it, when its turn has come and when it runs."""

Rank = Callable[[Step], Any]
"""Of the nodes that are ready the one of least rank runs next."""

IDLE = ("empty", "child")
"""Kinds of nodes that do nothing themselves: when they run changes nothing."""


def preorder(definition: Definition) -> Iterator[Node]:
    """The nodes as they were declared, those inside of a node behind it.

    Examples
    --------
    >>> graph = Definition()
    >>> with graph.while_(graph.condition("more"), name="loop") as body:
    ...     _ = body.empty(name="step")
    >>> _ = graph.empty(name="end")
    >>> [node.name for node in preorder(graph)]
    ['loop', 'loop/step', 'end']
    """
    pending = definition.nodes[::-1]
    while pending:
        node = pending.pop()
        yield node
        for body in node.bodies[::-1]:
            pending += body.nodes[::-1]


def drawn(rng: random.Random, late: str | None = None) -> Rank:
    """A rank drawn for each step; one node runs as late as it can, behind all that it is not ordered with."""
    ranks: dict[Step, float] = {}
    return lambda step: (step[0] == late, ranks.setdefault(step, rng.random()))


def following(order: Sequence[Step], rest: float = math.inf) -> Rank:
    """The rank that gives an order; what it does not have is of rank ``rest``: it comes last, or with -1 at once."""
    places = {step: place for place, step in enumerate(order)}
    return lambda step: places.get(step, rest)


def every_order(definition: Definition, ran: Collection[str], most: int) -> list[list[Step]] | None:
    """All orders in which nodes can run that each run once, but for nodes that do nothing; None if there are more.

    Parameters
    ----------
    definition : Definition
        The graph.
    ran : collection of str
        The nodes: those in bodies that a condition does not choose are not among them.
    most : int
        How many orders there may be.

    Examples
    --------
    >>> graph = Definition()
    >>> x = graph.device_array("x", 4, "f4")
    >>> a, b, c = (graph.memset(x, 0, name=name) for name in "abc")
    >>> _ = a >> c
    >>> [[name for name, _ in order] for order in every_order(graph, "abc", 10)]
    [['a', 'b', 'c'], ['a', 'c', 'b'], ['b', 'a', 'c']]
    >>> every_order(graph, "abc", 2)
    """
    steps = _Steps(definition, ran)
    found: list[list[Step]] = []
    choices: list[int] = []
    while True:
        order, widths = steps.run(choices)
        # One that has n choices at some step has n! orders at least, and each step adds those of its other choices.
        least = max(math.factorial(min(max(widths, default=1), 12)), sum(widths) - len(widths) + 1)
        if (not found and least > most) or len(found) == most:
            return None
        found.append(order)
        choices += [0] * (len(widths) - len(choices))
        while choices and choices[-1] + 1 == widths[len(choices) - 1]:
            choices.pop()
        if not choices:
            return found
        choices[-1] += 1


class _Steps:
    """The nodes that run and their edges as one graph, with the ends of those that hold others."""

    def __init__(self, definition: Definition, ran: Collection[str]) -> None:
        nodes = definition.all_nodes
        levels = [
            level
            for level in insides(definition, nodes)
            if level.owner < 0 or (nodes[level.owner].name in ran and all(nodes[i].name in ran for i in level.nodes))
        ]
        count, edges = flattened(len(nodes), levels)
        inside = [index for level in levels for index in level.nodes]
        numbers = {node.name: number for number, node in enumerate(preorder(definition))}
        self._names = {index: nodes[index].name for index in inside if nodes[index].kind not in IDLE}
        self._numbers = {index: numbers[name] for index, name in self._names.items()}
        self._missing = dict.fromkeys([*inside, *range(len(nodes), count)], 0)
        self._after: dict[int, list[int]] = {index: [] for index in self._missing}
        for source, target in edges:
            self._after[source].append(target)
            self._missing[target] += 1

    def run(self, choices: Sequence[int]) -> tuple[list[Step], list[int]]:
        """The order that choices lead to, the first one where there are no more of them, and how many each step has."""
        missing = dict(self._missing)
        ready: list[int] = []
        order: list[Step] = []
        widths: list[int] = []
        self._offer([index for index, number in missing.items() if not number], missing, ready)
        while ready:
            ready.sort(key=self._numbers.__getitem__)
            place = choices[len(widths)] if len(widths) < len(choices) else 0
            widths.append(len(ready))
            index = ready.pop(place)
            order.append((self._names[index], 0))
            self._offer(self._end(index, missing), missing, ready)
        return order, widths

    def _offer(self, indices: list[int], missing: dict[int, int], ready: list[int]) -> None:
        """Note what can run; what does nothing has run already."""
        while indices:
            index = indices.pop()
            if index in self._names:
                ready.append(index)
            else:
                indices += self._end(index, missing)

    def _end(self, index: int, missing: dict[int, int]) -> list[int]:
        for target in self._after[index]:
            missing[target] -= 1
        return [target for target in self._after[index] if not missing[target]]


class Between:
    """The orders between two, each of which swaps two neighbours of the one before.

    Parameters
    ----------
    first, last : sequence of Step
        The two. What one of them lacks it gets behind its end.

    Examples
    --------
    >>> between = Between([("a", 0), ("b", 0), ("c", 0)], [("c", 0), ("b", 0), ("a", 0)])
    >>> len(between), "".join(name for name, _ in between[1]), "".join(name for name, _ in between[3])
    (4, 'acb', 'cba')
    """

    def __init__(self, first: Sequence[Step], last: Sequence[Step]) -> None:
        self._first = [*first, *_missing(first, last)]
        self._moves: list[tuple[int, int]] = []  # each step that comes forward: from which place, and to which
        order = list(self._first)
        for place, step in enumerate([*last, *_missing(last, first)]):
            now = order.index(step, place)
            order.insert(place, order.pop(now))
            self._moves.append((now, place))

    def __len__(self) -> int:
        return 1 + sum(now - place for now, place in self._moves)

    def __getitem__(self, number: int) -> list[Step]:
        order = list(self._first)
        for now, place in self._moves:
            swaps = min(now - place, number)
            order.insert(now - swaps, order.pop(now))
            number -= swaps
        return order


def _missing(order: Sequence[Step], other: Sequence[Step]) -> list[Step]:
    known = set(order)
    return [step for step in other if step not in known]
