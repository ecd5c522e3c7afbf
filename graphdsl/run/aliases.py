"""What an update makes of the order of nodes when it binds memory that other memory of the exec overlaps.

Two buffers that a graph declares apart may come to lie in the same bytes, and nodes that needed no order then need one.
Most updates bind memory that nothing overlaps, and cost a comparison of addresses. This module must not change an exec.
"""

from __future__ import annotations

import logging
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from graphdsl.check import Finding, check_shared
from graphdsl.declare.ancestry import Inside
from graphdsl.declare.operands import Buffer
from graphdsl.declare.regions import Intervals
from graphdsl.errors import UpdateError
from graphdsl.plan import Plan
from graphdsl.plan.levels import insides
from graphdsl.run.shadow import Shadow

_logger = logging.getLogger("graphdsl")

_MOST_JUDGED = 64  # ways to overlap that are remembered
_FEW = 4  # buffers bound at a time, up to which comparing each with all is cheaper than sorting

_Beside = Callable[[int, int, Mapping[str, Any]], Iterable[Buffer]]


class Aliases:
    """Which buffers of an exec overlap, and whether their nodes are in order.

    Parameters
    ----------
    plan : Plan
        What the exec was built from.
    shadow : Shadow
        What is set in it.
    """

    def __init__(self, plan: Plan, shadow: Shadow) -> None:
        self._plan = plan
        self._shadow = shadow
        placed = [each for each in plan.buffers.values() if not each.allocated and each.allocation_nbytes]
        self._externals = [buffer for buffer in placed if buffer.external]
        self._own = [buffer for buffer in placed if not buffer.external]
        self._places: Intervals | None = None
        self._judged: dict[Any, tuple[Finding, ...]] = {}
        self._told: set[tuple[str, ...]] = set()

    def forget(self) -> None:
        """Forget what is known of the nodes: one has other fields now."""
        self._judged.clear()

    def warnings(self, changes: Mapping[str, Any], bound: Collection[str]) -> tuple[Finding, ...]:
        """What may come of an update that binds buffers, by name; raises if something does for certain.

        Parameters
        ----------
        changes : dict of str to number
            Values of params and addresses of buffers that the update sets.
        bound : collection of str
            The names of those that are buffers or events.

        Raises
        ------
        UpdateError
            If nodes that no edge orders would touch the same bytes.
        """
        values = ChainMap(dict(changes), self._shadow.values)
        buffers = (self._plan.buffers.get(name) for name in bound)
        return self._judge([buffer for buffer in buffers if buffer is not None], values, self._shadow.disabled)

    def require_enabled(self, indices: Iterable[int]) -> None:
        """Refuse to enable nodes that would touch the same bytes as others in no order."""
        disabled = self._shadow.disabled
        if self._externals and disabled:
            self._judge(self._externals, self._shadow.values, disabled - set(indices))

    def tell(self, warnings: Iterable[Finding]) -> None:
        """Log what has not been said of the pair of nodes before."""
        for finding in warnings:
            if finding.nodes not in self._told:
                self._told.add(finding.nodes)
                _logger.warning("exec %r: %s", self._plan.name, finding)

    def _judge(
        self, bound: Sequence[Buffer], values: Mapping[str, Any], disabled: Collection[int]
    ) -> tuple[Finding, ...]:
        beside = self._beside(values) if len(bound) > _FEW else self._compared
        met = [(buffer, other) for buffer in bound for other in self._met(buffer, values, beside)]
        if not met:
            return ()
        shared = dict.fromkeys(buffer for pair in met for buffer in pair)
        base = min(values[buffer.name] for buffer in shared)
        params = (values.get(name) for name in self._plan.params)
        key = (tuple((buffer, values[buffer.name] - base) for buffer in shared), frozenset(disabled), *params)
        found = self._judged.get(key)
        if found is None:
            if len(self._judged) >= _MOST_JUDGED:
                self._judged.clear()
            addresses = {buffer: values[buffer.name] for buffer in shared}
            said = self._plan.independents
            judged = check_shared(self._shadow.nodes, self._levels(), disabled, values, addresses, said)
            found = self._judged[key] = tuple(judged)
        errors = [finding for finding in found if finding.severity == "error"]
        if errors:
            raise _refusal(errors, met)
        return found

    def _levels(self) -> list[Inside]:
        """The levels, with their nodes in the order of declaration."""
        rank = {name: number for number, name in enumerate(self._plan.declared)}
        names = [node.name for node in self._shadow.nodes]

        def place(index: int) -> int:
            return rank.get(names[index], len(rank))  # a node that was put around lanes touches nothing

        return [level._replace(nodes=sorted(level.nodes, key=place)) for level in insides(self._plan.levels)]

    def _met(self, buffer: Buffer, values: Mapping[str, Any], beside: _Beside) -> Iterable[Buffer]:
        """The buffers that lie where one does; ``beside`` finds the external ones."""
        start = values[buffer.name]
        stop = start + buffer.allocation_nbytes
        yield from (other for other in beside(start, stop, values) if other is not buffer)
        if self._places is None:  # the exec's own stay where they are
            self._places = _intervals(self._own, values)
        yield from (self._own[number] for number in self._places.near(start, stop))

    def _compared(self, start: int, stop: int, values: Mapping[str, Any]) -> Iterator[Buffer]:
        """The external buffers that have something between two addresses."""
        for other in self._externals:
            place = values[other.name]
            if place < stop and start < place + other.allocation_nbytes:
                yield other

    def _beside(self, values: Mapping[str, Any]) -> _Beside:
        """The same for many questions, which would each go through all of them."""
        places = _intervals(self._externals, values)
        return lambda start, stop, _: (self._externals[number] for number in places.near(start, stop))


def _intervals(buffers: Iterable[Buffer], values: Mapping[str, Any]) -> Intervals:
    """Where buffers lie, by their numbers."""
    starts = ((values[buffer.name], buffer) for buffer in buffers)
    return Intervals((place, place + buffer.allocation_nbytes, number) for number, (place, buffer) in enumerate(starts))


def _refusal(errors: Sequence[Finding], met: Sequence[tuple[Buffer, Buffer]]) -> UpdateError:
    first = errors[0]
    buffer, other = met[0]
    more = f", and {len(errors) - 1} more such pairs" if len(errors) > 1 else ""
    return UpdateError(
        f"it would overlap the memory of {other.name!r}, and two nodes be in conflict{more}: {first.rule}",
        node=first.node,
        field=buffer.name,
        value=first.value,
        remedy=f"Bind memory that nothing else overlaps, or declare the edge and instantiate again. {first.remedy}",
        location=first.location,
    )
