"""Graphs of copies and memsets, drawn at random, that give the same results in whatever order their nodes run.

Each node is ordered behind those before it in a program that touch what it touches, and behind no others.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

import graphdsl as gd
from graphdsl.declare.node import Node

NAMES = "abcd"
LENGTH = 8
SLICES = (*[(0, 8)] * 4, (0, 4), (4, 8), (2, 6))


class Step(NamedTuple):
    """A copy of as many elements as ``where`` and ``of`` both have; without ``source`` a memset."""

    target: str
    where: tuple[int, int]
    source: str | None
    of: tuple[int, int]
    value: int


class Block(NamedTuple):
    """Steps in a child, or in the body of an if with a condition that is true or not."""

    form: str
    steps: tuple[Step, ...]


Item = Step | Block

_slices = st.sampled_from(SLICES)
_names = st.sampled_from(NAMES)
_values = st.integers(0, 255)


@st.composite
def programs(draw: st.DrawFn) -> list[Item]:
    """Some steps, each often from where the one before went to; some stand in a body."""
    last = draw(_names)
    items: list[Item] = []
    for _ in range(draw(st.integers(1, 8))):
        steps = []
        form = draw(st.sampled_from(["", "", "child", "then", "not"]))
        for _ in range(draw(st.integers(1, 3)) if form else 1):
            target = draw(_names)
            source = draw(
                st.sampled_from([None, last, last, *NAMES]).filter(lambda name, target=target: name != target)
            )
            steps.append(Step(target, draw(_slices), source, draw(_slices), draw(_values)))
            last = target
        items.append(Block(form, tuple(steps)) if form else steps[0])
    return items


def graph_of(items: Iterable[Item], lifetime: str = "auto", drawn: random.Random | None = None) -> gd.Graph:
    """The graph of a program; with ``drawn`` its arrays and nodes are declared in another order."""
    graph = gd.Graph("program")
    names = list(NAMES)
    if drawn is not None:
        drawn.shuffle(names)
    for name in names:
        graph.device_array(name, LENGTH, np.uint8, lifetime=lifetime)
    numbered = list(enumerate(items))
    order = numbered[:]
    if drawn is not None:
        drawn.shuffle(order)
    nodes = {number: _node(graph, item, number) for number, item in order}
    _connect(graph, numbered, nodes, drawn)
    return graph


def _connect(graph, numbered, nodes: dict[int, Node], drawn: random.Random | None) -> None:
    pairs = [(i, j) for j, later in numbered for i, earlier in numbered[:j] if _conflict(earlier, later)]
    if drawn is not None:
        drawn.shuffle(pairs)
    for i, j in pairs:
        graph.edge(nodes[i], nodes[j])


def _conflict(one: Item, other: Item) -> bool:
    writes, uses = ({step.target for step in _steps(item)} for item in (one, other)), []
    for item in (one, other):
        uses.append({step.target for step in _steps(item)} | {step.source for step in _steps(item)} - {None})
    first, second = writes
    return bool(first & uses[1] or second & uses[0])


def _steps(item: Item) -> tuple[Step, ...]:
    return item.steps if isinstance(item, Block) else (item,)


def _node(graph: gd.Graph, item: Item, number: int) -> Node:
    if isinstance(item, Step):
        return _step(graph, graph, item, f"s{number:02}")
    if item.form == "child":
        inner = gd.Graph("inner")
        for name in NAMES:
            inner.device_array(name, LENGTH, np.uint8)
        _fill(inner, inner, item)
        return graph.child(inner, {name: graph.operands[name] for name in NAMES}, name=f"s{number:02}")
    made = graph.if_(graph.condition(f"c{number}", default=int(item.form == "then")), name=f"s{number:02}")
    _fill(graph, made.bodies[0], item)
    return made


def _fill(graph: gd.Graph, level, block: Block) -> None:
    numbered = list(enumerate(block.steps))
    _connect(level, numbered, {number: _step(graph, level, step, f"i{number}") for number, step in numbered}, None)


def _step(graph: gd.Graph, level, step: Step, name: str) -> Node:
    start, stop = step.where
    target = graph.operands[step.target]
    if step.source is None:
        return level.memset(target if stop - start == LENGTH else target[start:stop], step.value, name=name)
    first, last = step.of
    count = min(stop - start, last - first)
    source = graph.operands[step.source]
    parts = (
        (array, low) if count == LENGTH else (array[low : low + count], low)
        for array, low in ((target, start), (source, first))
    )
    (into, _), (of, _) = parts
    return level.memcpy(into, of, name=name)
