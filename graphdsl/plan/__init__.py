"""Decides what a definition leaves open: the order of its nodes, their lanes, and the place of its memory.

Pure functions: a definition goes in, a plan comes out, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphdsl.cached import cached_property
from graphdsl.declare.condition import Condition
from graphdsl.declare.definition import Definition
from graphdsl.declare.event import Event
from graphdsl.declare.expressions import Param
from graphdsl.declare.independent import Independent
from graphdsl.declare.limits import Target
from graphdsl.declare.node import Node
from graphdsl.declare.operand_level import Operand
from graphdsl.declare.operands import Buffer
from graphdsl.declare.targets import Targets, targets_of
from graphdsl.plan.costs import Costs
from graphdsl.plan.durations import Durations, require_durations
from graphdsl.plan.lane_plan import LanePlan, Lanes, require_lanes
from graphdsl.plan.lanes import thread
from graphdsl.plan.levels import Level, levels_of
from graphdsl.plan.memory import MemoryPlan, Place, Steps, plan_memory

__all__ = ["LanePlan", "Lanes", "Level", "MemoryPlan", "Place", "Plan", "plan"]


@dataclass(frozen=True, eq=False)
class Plan:
    """All that is needed to build a graph: an immutable snapshot of a definition.

    Attributes
    ----------
    name : str
        Name of the graph.
    nodes : tuple of Node
        Level by level, each in canonical order.
    levels : tuple of Level
        The graph itself, and each body behind the level that holds it.
    operands : dict of str to Buffer, Param or Condition
        By name.
    params : dict of str to Param
        By name.
    buffers : dict of str to Buffer
        By name.
    conditions : tuple of Condition
        By name.
    events : dict of str to Event
        By name.
    devices : frozenset of int or None
        Numbers of the devices that nodes, memory and events are on; None for that which the graph is instantiated on.
    memory : dict of int or None to MemoryPlan
        Where the device arrays that the exec owns lie, by the device that has them: known before any is allocated.
    lanes : LanePlan
        How nodes were threaded onto lanes; the levels have the edges.
    share_memory : bool
        False if no arrays share bytes, because that was asked for.
    independents : tuple of Independent
        What the user says may run in any order.
    declared : tuple of str
        Names of the nodes, level by level, in the order of declaration.
    """

    name: str
    nodes: tuple[Node, ...]
    levels: tuple[Level, ...]
    operands: dict[str, Operand]
    params: dict[str, Param]
    buffers: dict[str, Buffer]
    conditions: tuple[Condition, ...]
    events: dict[str, Event]
    devices: frozenset[int | None]
    memory: dict[int | None, MemoryPlan]
    lanes: LanePlan
    share_memory: bool
    independents: tuple[Independent, ...]
    declared: tuple[str, ...]

    @cached_property
    def planned(self) -> dict[str, Place]:
        """The arrays that are undefined before and after a launch, by name: others may have their bytes."""
        return {name: place for memory in self.memory.values() for name, place in memory.planned.items()}

    @cached_property
    def steps(self) -> tuple[str, ...]:
        """The names of all nodes in canonical order, of those that hold others with these behind them."""
        return tuple(self.nodes[index].name for index in Steps(self.nodes, self.levels).order)

    @cached_property
    def times(self) -> dict[str, tuple[int, ...]]:
        """The steps at which each planned array is used, by its name; of a loop its first and its last."""
        at, found = Steps(self.nodes, self.levels), {}
        ends = {node.name: {at.first[index], at.last[index]} for index, node in enumerate(self.nodes)}
        for name, place in self.planned.items():
            found[name] = tuple(sorted(set().union(*(ends[user] for user in place.users))))
        return found

    def nbytes_on(self, ordinal: int = 0) -> int:
        """Bytes of the arrays that an exec owns on the device of that number, where it is instantiated there.

        So much has to be given to `Graph.instantiate` as ``arena=``.

        Examples
        --------
        >>> graph = Definition("demo")
        >>> _ = graph.memset(graph.device_array("x", 100, np.float32), 0)
        >>> plan(graph).nbytes_on()
        512
        """
        return sum(self.memory[number].nbytes for number in self.numbers_of(ordinal))

    def numbers_of(self, ordinal: int) -> list[int | None]:
        """The numbers by which arrays are on the device of the exec: its own, and None."""
        return [number for number in (None, ordinal) if number in self.memory]

    @property
    def edges(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Source and target of each edge of the graph itself, as indices into ``nodes``; sorted."""
        return self.levels[0].edges


def plan(
    definition: Definition,
    *,
    lanes: Lanes = None,
    durations: Mapping[str, float] | None = None,
    values: Mapping[str, Any] | None = None,
    target: Target | list[Target] | Targets | None = None,
    costs: Costs | None = None,
    share_memory: bool = True,
) -> Plan:
    """Plan a definition that has passed its checks.

    Parameters
    ----------
    definition : Definition
        What to plan.
    lanes : int, "auto" or None
        How many lanes nodes are threaded onto: at most so many, as many as pay, or none.
    durations : dict of str to float, optional
        GPU time of nodes in microseconds, by name, where it is known.
    values : dict of str to number, optional
        Values of params by name, instead of their defaults.
    target : str, tuple, Limits, list of these, or Targets, optional
        The devices that it is planned for.
    costs : Costs, optional
        What launches and nodes cost; by default as measured on an H200.
    share_memory : bool
        Let arrays share bytes; if not, each has bytes of its own, whatever its lifetime.

    Raises
    ------
    DeclarationError
        If ``lanes`` or ``durations`` are none.

    Examples
    --------
    >>> graph = Definition("demo")
    >>> first, second = graph.empty(name="first"), graph.empty(name="second")
    >>> _ = first >> second
    >>> [node.name for node in plan(graph).nodes], plan(graph).edges.tolist()
    (['first', 'second'], [[0, 1]])
    """
    nodes, levels = levels_of(definition)
    operands = definition.operands
    buffers = {name: operand for name, operand in operands.items() if isinstance(operand, Buffer)}
    params = {name: operand for name, operand in operands.items() if isinstance(operand, Param)}
    conditions = (operand for operand in operands.values() if isinstance(operand, Condition))
    # By the order that was declared: so the places do not hang on lanes.
    memory = plan_memory(nodes, levels, filter(_is_placed, buffers.values()), share=share_memory)
    planned = LanePlan()
    require_lanes(lanes)
    require_durations(definition, durations or {})
    if lanes is not None:
        targets, costs = targets_of(target, definition.devices), costs or Costs()
        current = {name: param.default for name, param in params.items()} | dict(values or {})
        works = Durations(durations or {}, current, targets, costs)
        nodes, levels, done = thread(definition, nodes, levels, lanes, works, targets, costs)
        planned = LanePlan(lanes, tuple(done), dict(durations or {}))
    return Plan(
        name=definition.name,
        nodes=tuple(nodes),
        levels=tuple(levels),
        operands=dict(operands),
        params=params,
        buffers=buffers,
        conditions=tuple(sorted(conditions, key=lambda condition: condition.name)),
        events={name: operand for name, operand in operands.items() if isinstance(operand, Event)},
        devices=definition.devices,
        memory=memory,
        lanes=planned,
        share_memory=share_memory,
        independents=definition.independents,
        declared=tuple(name for level in definition.levels for name in level.dag),
    )


def _is_placed(buffer: Buffer) -> bool:
    """True for an array of the device that every exec owns from its beginning to its end."""
    return buffer.space == "device" and not buffer.external and not buffer.allocated
