"""Lanes: chains that unordered nodes are threaded onto, and ends around them, where a launch is faster so.

Every node with none before it costs processor time at each launch, and every node with none behind. A plan puts a
kernel that does nothing before the one and behind the other, which changes nothing else; and it adds edges, each
between two nodes that nothing orders and of which the first surely ends, until no more nodes run side by side than pays
or is asked for. Pure functions: nodes and levels go in and come out, the same for the same DAG. This module must not
change what was declared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from graphdsl.cached import cached_property
from graphdsl.declare.definition import Definition
from graphdsl.declare.nesting import ChildNode, ConditionalNode
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import EmptyNode, KernelNode, MemcpyNode, MemsetNode
from graphdsl.declare.targets import Targets
from graphdsl.plan.assured import assured
from graphdsl.plan.branches import Branches, branches
from graphdsl.plan.costs import Costs
from graphdsl.plan.durations import Durations, Work
from graphdsl.plan.ends import NO_ENDS, Ends, with_ends
from graphdsl.plan.lane_plan import LevelLanes, Times
from graphdsl.plan.levels import NO_EDGES, Edges, Level
from graphdsl.plan.scheduling import Edge, neighbours, schedule, ways_to_the_end

CANDIDATES = (16, 24, 32, 48, 64, 96, 128)
"""Numbers of lanes that are weighed. Devices run no more than 128 grids at once."""

_CLEAR = 0.9
"""A launch must be predicted to take no more than this part of its time: the model is no finer."""

_HARMLESS = 0.01
"""What frees the processor may lengthen a launch by no more than this part of its time."""

_ALIKE = 1.02  # numbers of lanes whose times differ by less are as good as each other

_LEAST_SAVED = 4.0  # microseconds of a launch: what is less is not looked into
_MUCH = 0.25  # of the processor time of a launch: what is worth to be freed

_THREADED = (KernelNode, MemcpyNode, MemsetNode, ChildNode, ConditionalNode)


class Planned(NamedTuple):
    """What was made of a graph: its nodes and levels, and what was done at each level.

    Attributes
    ----------
    nodes : list of Node
        With the ends that were put around the nodes of levels.
    levels : list of Level
        With the edges that were added.
    lanes : list of LevelLanes
        What was done, and why.
    """

    nodes: list[Node]
    levels: list[Level]
    lanes: list[LevelLanes]


def thread(
    definition: Definition,
    nodes: list[Node],
    levels: list[Level],
    lanes: int | Literal["auto"],
    durations: Durations,
    targets: Targets,
    costs: Costs,
) -> Planned:
    """Thread the nodes of each level onto lanes and put ends around them, where that is asked for or pays.

    Parameters
    ----------
    definition : Definition
        Whose graph it is.
    nodes, levels : list of Node, list of Level
        What `graphdsl.plan.levels.levels_of` gives.
    lanes : int or "auto"
        How many lanes a level has at most; or as many as pay.
    durations : Durations
        What nodes take.
    targets : Targets
        The devices that they run on.
    costs : Costs
        What launches cost.
    """
    planner = _Planner(nodes, levels, lanes, durations, targets, costs)
    done = [planner.level(which) for which in range(len(levels))]
    made, laned = nodes, [replace(level, added=found.added) for level, found in zip(levels, done, strict=True)]
    for which, found in enumerate(done):
        if found.ends != NO_ENDS:
            made, laned = with_ends(definition, made, laned, which, *found.ends)
    return Planned(made, laned, [found.said for found in done])


class _Done(NamedTuple):
    """What is to be done at a level: the edges to add, the ends to put around it, and what is said of it."""

    added: Edges
    ends: Ends
    said: LevelLanes


class _Look:
    """What the nodes of a level take, which are numbered from 0 on.

    Attributes
    ----------
    edges : list of pairs of int
        As declared.
    likely, most : list of float
        How long each node takes, with what lies between nodes, and might take at most.
    area : float
        How long the device is busy at least.
    """

    def __init__(self, edges: list[Edge], works: Sequence[Work], gap: float) -> None:
        self.edges = edges
        self.likely = [work.duration + gap if work.most else 0.0 for work in works]
        self.most = [max(work.most + gap, likely) for work, likely in zip(works, self.likely, strict=True)]
        self.area = sum([work.duration * work.share for work in works])
        self._afters = neighbours(len(works), edges)[1]

    def makespan(self, durations: Sequence[float]) -> float:
        """How long the nodes take at least: the longest way through the level, or the device until it is done."""
        return max(self.area, max(ways_to_the_end(self._afters, durations), default=0.0))


def _busy(groups: Sequence[int | None], durations: Sequence[float]) -> float:
    """How long the nodes of a device take that are threaded, one after the other: of that where it is longest."""
    found: dict[int, float] = {}
    for group, duration in zip(groups, durations, strict=True):
        if group is not None:
            found[group] = found.get(group, 0.0) + duration
    return max(found.values(), default=0.0)


class _Planner:
    """Says what is to be done at each level."""

    def __init__(
        self,
        nodes: Sequence[Node],
        levels: Sequence[Level],
        lanes: int | Literal["auto"],
        durations: Durations,
        targets: Targets,
        costs: Costs,
    ) -> None:
        self._nodes = nodes
        self._levels = levels
        self._lanes = lanes
        self._durations = durations
        self._number = targets.number
        self._costs = costs
        self._several = targets.several
        self._inside: dict[int, Branches] = {}  # of what is inside of children, by the node that holds it

    def level(self, which: int) -> _Done:
        """What is to be done at a level."""
        level = self._levels[which]
        if isinstance(self._lanes, int) and _chains(level.stop - level.start, level.edges) > self._lanes:
            return self._narrowed(which, self._lanes)
        found = self._branches[which]
        if level.owner >= 0 and isinstance(self._nodes[level.owner], ChildNode):
            return _left(level, "launched as a part of what holds it")
        cost = self._cost(which, found)
        if cost < _LEAST_SAVED:
            return _left(level, f"{_text(found)} cost {cost:.1f} µs")
        if self._several:
            return _left(level, "it is on several devices, whose nodes are threaded if a number of lanes is asked for")
        return self._best(which)

    @cached_property
    def _branches(self) -> list[Branches]:
        """Where the branches of each level begin and end."""
        found: dict[int, Branches] = {}
        for which in range(len(self._levels) - 1, -1, -1):
            level = self._levels[which]
            found[which] = self._count(which)
            if level.owner >= 0 and isinstance(self._nodes[level.owner], ChildNode):
                self._inside[level.owner] = found[which]
        return [found[which] for which in range(len(self._levels))]

    def _count(self, which: int, added: Edges = NO_EDGES) -> Branches:
        level = self._levels[which]
        nodes = self._nodes[level.start : level.stop]
        kinds, empty, inside = set(map(type, nodes)), [], {}
        if EmptyNode in kinds:
            empty = [index for index, node in enumerate(nodes) if isinstance(node, EmptyNode)]
        if ChildNode in kinds:
            start = level.start
            inside = {index - start: self._inside[index] for index in range(start, level.stop) if index in self._inside}
        return branches(len(nodes), level.edges - level.start, empty, inside, added)

    @cached_property
    def _looks(self) -> list[_Look]:
        """All levels looked at, those inside of others first."""
        found: dict[int, _Look] = {}
        inside: dict[int, list[Work]] = {}
        work_of, gap = self._durations.of, self._costs.node_gap
        for which in range(len(self._levels) - 1, -1, -1):
            level = self._levels[which]
            works = [
                work_of(self._nodes[index], max(inside[index]) if index in inside else None)
                for index in range(level.start, level.stop)
            ]
            look = found[which] = _Look((level.edges - level.start).tolist(), works, gap)
            if level.owner >= 0:
                likely = look.makespan(look.likely)
                body = Work(likely, look.makespan(look.most), look.area / likely if likely else 0.0)
                inside.setdefault(level.owner, []).append(body)
        return [found[which] for which in range(len(self._levels))]

    def _groups(self, which: int) -> list[int | None]:
        """The device whose lanes each node of a level is threaded onto; None for one that is left as it is."""
        level, ends, number = self._levels[which], self._assured, self._number
        programmatic = set(level.edges[level.ports != 0].ravel().tolist())
        return [
            number(node.device) if ends[index] and isinstance(node, _THREADED) and index not in programmatic else None
            for index, node in enumerate(self._nodes[level.start : level.stop], level.start)
        ]

    @cached_property
    def _assured(self) -> list[bool]:
        return assured(self._nodes, self._levels, self._number)

    # What is done

    def _narrowed(self, which: int, width: int) -> _Done:
        """At most so many lanes, and ends where they pay."""
        level = self._levels[which]
        groups, look = self._groups(which), self._looks[which]
        if all(group is None for group in groups):
            return _left(level, "it has no nodes that surely end, and could be waited for")
        before = self._times(which, self._branches[which], look.makespan(look.likely))
        return self._threaded(which, width, groups, before)

    def _best(self, which: int) -> _Done:
        """Ends around a level, and lanes in it, where that pays."""
        level, found = self._levels[which], self._branches[which]
        look = self._looks[which]
        makespan = look.makespan(look.likely)
        before, ends = self._times(which, found, makespan), self._ends(which, found)
        after = self._times(which, found, makespan, ends)
        if not self._pays(before, after):
            return _left(level, f"{_text(found)} cost {before.launch:.1f} of {before.total:.1f} µs", before)
        spared = self._costs.fork * (max(found) - CANDIDATES[0])
        if self._lanes == "auto" and level.owner < 0 and ends == (True, True) and spared > (1 - _CLEAR) * after.total:
            groups = self._groups(which)
            width = self._weighed(which, groups)
            if width is not None:
                return self._threaded(which, width, groups, before)
        return _Done(NO_EDGES, ends, self._said(level, None, ends, before, after))

    def _weighed(self, which: int, groups: Sequence[int | None]) -> int | None:
        """The number of lanes that is best, should nodes take as long as they might; None if that gains too little."""
        look, found = self._looks[which], self._branches[which]
        # What is left as it is delays nothing but what was declared to be behind it.
        most = [
            likely if group is None else at_most
            for group, likely, at_most in zip(groups, look.likely, look.most, strict=True)
        ]
        if math.inf in most:
            return None
        longest, busy = look.makespan(most), _busy(groups, most)

        def weigh(width: int, longest: float, busy: float) -> float:
            return self._times(which, Branches(width, width), max(longest, busy / width), (True, True)).total

        weighed = {width: weigh(width, longest, busy) for width in CANDIDATES}
        # The more lanes, the less a duration matters that was judged wrongly.
        width = max(width for width in CANDIDATES if weighed[width] <= _ALIKE * min(weighed.values()))
        if weighed[width] > (1 + _HARMLESS) * self._times(which, found, longest, (True, True)).total:
            return None
        longest, busy = look.makespan(look.likely), _busy(groups, look.likely)
        alone = self._times(which, found, longest, (True, True)).total
        return width if weigh(width, longest, busy) <= _CLEAR * alone else None

    def _threaded(self, which: int, width: int, groups: Sequence[int | None], before: Times) -> _Done:
        level, look = self._levels[which], self._looks[which]
        edges, makespan = schedule(look.edges, look.likely, groups, width)
        added = np.array(edges, np.int64).reshape(-1, 2) + level.start
        left = self._count(which, added - level.start)
        ends = NO_ENDS if self._several else self._ends(which, left)
        after = self._times(which, left, makespan, ends)
        names = tuple((self._nodes[source].name, self._nodes[target].name) for source, target in added.tolist())
        said = self._said(level, width, ends, before, after)
        return _Done(added, ends, replace(said, edges=names))

    # What a launch takes

    def _cost(self, which: int, found: Branches) -> float:
        """What the branches of a level cost: processor time, or GPU time in the body of a conditional node."""
        costs = self._costs
        if self._levels[which].owner >= 0:
            return costs.body_branch * (found.firsts - 1)
        return costs.launch(0, found.firsts, found.lasts) - costs.graph_launch

    def _ends(self, which: int, found: Branches) -> Ends:
        """The ends that cost less than half of what they save."""
        begin = 2 * self._costs.nothing <= self._cost(which, Branches(found.firsts, 1))
        return begin, 2 * self._costs.nothing <= self._cost(which, Branches(1, found.lasts)) or (
            begin and self._levels[which].owner >= 0
        )

    def _times(self, which: int, found: Branches, makespan: float, ends: Ends = NO_ENDS) -> Times:
        """What a launch takes if its nodes take so long, could they all begin at once; without ends at least."""
        costs, level = self._costs, self._levels[which]
        count = level.stop - level.start + sum(ends)
        left = Branches(1 if ends[0] else found.firsts, 1 if ends[1] else found.lasts)
        forks = costs.fork * found.firsts if ends[0] else 0.0
        gpu = max(makespan, costs.dispatch * count + forks) + costs.nothing * sum(ends)
        if level.owner >= 0:
            gpu += self._cost(which, left)
            return Times(0.0, gpu, gpu)
        launch = costs.launch(count, *left) + forks
        return Times(launch, gpu, costs.latency + max(launch, costs.graph_launch + gpu))

    def _pays(self, before: Times, after: Times) -> bool:
        """True if a launch is clearly faster, or frees the processor and is hardly slower."""
        if after.total <= _CLEAR * before.total:
            return True
        freed = before.launch - after.launch
        return freed >= max(_LEAST_SAVED, _MUCH * before.launch) and after.total <= (1 + _HARMLESS) * before.total

    def _said(self, level: Level, width: int | None, ends: Ends, before: Times, after: Times) -> LevelLanes:
        what = [f"{width} lanes"] if width else []
        what += [name for name, wanted in zip(("a kernel before all others", "one behind them"), ends) if wanted]
        gain = f"{before.total:.0f} -> {after.total:.0f} µs, of the processor {before.launch:.0f} -> {after.launch:.0f}"
        return LevelLanes(level.name, width, (), ends, before, after, f"{' and '.join(what)}: {gain}")


def _left(level: Level, why: str, before: Times | None = None) -> _Done:
    return _Done(NO_EDGES, NO_ENDS, LevelLanes(level.name, before=before, why=why))


def _text(found: Branches) -> str:
    return f"{found.firsts} nodes with none before and {found.lasts} with none behind"


def _chains(count: int, edges: Edges) -> int:
    """How many chains cover a level, if each node is followed by the first after it that is free; an upper bound."""
    if not len(edges):
        return count
    first = np.flatnonzero(np.diff(edges[:, 0], prepend=-1))  # sorted by source
    return count - len(np.unique(edges[first, 1]))
