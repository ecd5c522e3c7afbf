"""List scheduling: nodes threaded onto lanes by critical path, and the edges that hold them there.

Pure functions over indices and numbers. This module must not know what a node does.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from graphdsl.declare.ancestry import implied

Edge = tuple[int, int]
"""Source and target."""


class Schedule(NamedTuple):
    """What threading nodes onto lanes gives.

    Attributes
    ----------
    edges : list of pairs of int
        The edges to add: source and target of each, sorted. No other edge implies one of them.
    makespan : float
        When the last node ends, in the unit of the durations.
    """

    edges: list[Edge]
    makespan: float


def schedule(
    edges: Sequence[Edge],
    durations: Sequence[float],
    groups: Sequence[Hashable],
    lanes: int | Mapping[Hashable, int],
) -> Schedule:
    """Thread the nodes of a DAG onto lanes: whenever a lane is free, the ready node with the longest way to the end.

    Parameters
    ----------
    edges : sequence of pairs of int
        Source and target of each edge, as indices of nodes; a source is less than its target.
    durations : sequence of float
        How long each node takes.
    groups : sequence of hashable
        Whose lanes each node is threaded onto; None for one that begins as soon as it is ready, on no lane.
    lanes : int, or mapping of group to int
        How many lanes each group has, 1 or more.

    Returns
    -------
    Schedule
        With its edges added, no more nodes of a group are unordered among each other than it has lanes.

    Examples
    --------
    >>> schedule([], [1.0, 1.0, 1.0, 3.0], [0, 0, 0, 0], 2)
    Schedule(edges=[(0, 1), (1, 2)], makespan=3.0)
    >>> schedule([(0, 1)], [1.0, 1.0], [0, 0], 1)
    Schedule(edges=[], makespan=2.0)
    """
    befores, afters = neighbours(len(durations), edges)
    urgent = ways_to_the_end(afters, durations)
    given = dict.fromkeys(groups, lanes) if isinstance(lanes, int) else lanes
    candidates, begins, makespan = _threaded(befores, afters, urgent, durations, groups, given)
    # Only a node before the target that begins once the source has ended can be behind the source, too.
    doubtful = [
        (source, target)
        for source, target in candidates
        if any(begins[source] + durations[source] <= begins[each] for each in befores[target])
    ]
    together = {(source, target) for source, target in (*edges, *candidates)}
    spared = {(source, target) for source, target, _ in implied(len(durations), together, doubtful)} if doubtful else ()
    return Schedule(sorted(set(candidates).difference(spared)), makespan)


def neighbours(count: int, edges: Sequence[Edge]) -> tuple[list[list[int]], list[list[int]]]:
    """The nodes right before each node, and those right after it."""
    befores: list[list[int]] = [[] for _ in range(count)]
    afters: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        befores[target].append(source)
        afters[source].append(target)
    return befores, afters


def ways_to_the_end(afters: Sequence[Sequence[int]], durations: Sequence[float]) -> list[float]:
    """The longest way from the beginning of each node to the end of the graph; sources are less than targets.

    Examples
    --------
    >>> ways_to_the_end([[1, 2], [], []], [1.0, 2.0, 5.0])
    [6.0, 2.0, 5.0]
    """
    ways = list(durations)
    for node in range(len(ways) - 1, -1, -1):
        after = afters[node]
        if after:
            ways[node] += max([ways[each] for each in after])
    return ways


def _threaded(
    befores: Sequence[Sequence[int]],
    afters: Sequence[Sequence[int]],
    urgent: Sequence[float],
    durations: Sequence[float],
    groups: Sequence[Hashable],
    lanes: Mapping[Hashable, int],
) -> tuple[list[Edge], list[float], float]:
    """The node before each on its lane, if it is not right before it anyway; when each begins; when the last ends."""
    pairs: list[Edge] = []
    begins = [0.0] * len(befores)
    waiting = [len(before) for before in befores]
    ready: dict[Hashable, list[tuple[float, int]]] = {group: [] for group in groups}
    # Of all groups: the lanes of one are numbered behind those of another.
    idle: dict[Hashable, OrderedDict[int, None]] = {}
    last: list[int] = []  # the node that ran last on each lane, -1 if there was none
    for group, count in lanes.items():
        if group is not None:
            idle[group] = OrderedDict.fromkeys(range(len(last), len(last) + count))
            last += [-1] * count
    lane_of = [-1] * len(befores)
    running: list[tuple[float, int]] = []
    for node, number in enumerate(waiting):
        if not number:
            ready[groups[node]].append((-urgent[node], node))
    for queue in ready.values():
        heapify(queue)
    now, touched = 0.0, set(groups)
    while True:
        for group in touched:
            queue, free = ready[group], idle.get(group)
            while queue and (free is None or free):
                node = heappop(queue)[1]
                if free is not None:
                    for before in befores[node]:
                        lane = lane_of[before]
                        if lane >= 0 and last[lane] == before and lane in free:
                            del free[lane]
                            break
                    else:
                        lane = free.popitem(last=False)[0]
                        if last[lane] >= 0:
                            pairs.append((last[lane], node))
                    last[lane] = node
                    lane_of[node] = lane
                begins[node] = now
                heappush(running, (now + durations[node], node))
        if not running:
            return pairs, begins, now
        touched = set()
        now = running[0][0]
        while running and running[0][0] <= now:
            node = heappop(running)[1]
            group = groups[node]
            if group is not None:
                idle[group][lane_of[node]] = None
                touched.add(group)
            for after in afters[node]:
                waiting[after] -= 1
                if not waiting[after]:
                    heappush(ready[groups[after]], (-urgent[after], after))
                    touched.add(groups[after])
