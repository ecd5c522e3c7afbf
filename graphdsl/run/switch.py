"""Enables and disables nodes of an exec, and says what reads stale memory then.

A disabled node keeps its edges. This module must not know how nodes are chosen.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from graphdsl.check import Finding, check_disabled
from graphdsl.declare.nesting import ChildNode
from graphdsl.declare.nodes import EmptyNode
from graphdsl.plan import Level
from graphdsl.plan.levels import insides
from graphdsl.run.changes import require_can_disable
from graphdsl.run.send import Sender
from graphdsl.run.shadow import Shadow

_logger = logging.getLogger("graphdsl")

_MOST_STATES = 1024  # sets of disabled nodes that are remembered of each exec


@dataclass(frozen=True)
class Switched:
    """What enabling or disabling nodes did.

    Attributes
    ----------
    nodes : tuple of str
        Names of the nodes that are the other way now; those that were as wanted already are left out.
    enabled : bool
        What they are now.
    stale : tuple of Finding
        Nodes of the exec that read what only a disabled node would have written (GD703).
    """

    nodes: tuple[str, ...]
    enabled: bool
    stale: tuple[Finding, ...]

    def __str__(self) -> str:
        what = "enabled" if self.enabled else "disabled"
        return "\n".join([f"{what}: {', '.join(self.nodes) or 'nothing'}", *map(str, self.stale)])


class Switches:
    """Which nodes of an exec are enabled.

    Parameters
    ----------
    name : str
        Of the exec, for the logger.
    shadow : Shadow
        What is set in it.
    sender : Sender
        The way to the driver.
    levels : iterable of Level
        How its nodes hang together.
    """

    def __init__(self, name: str, shadow: Shadow, sender: Sender, levels: Iterable[Level]) -> None:
        self._name = name
        self._shadow = shadow
        self._sender = sender
        self._levels = tuple(levels)
        self._told: set[tuple[str, ...]] = set()
        self._judged: set[frozenset[int]] = set()

    def switch_one(self, index: int, enabled: bool) -> None:
        """Enable or disable a node.

        What gets stale is looked for once for each set of disabled nodes: it takes its time, and nodes may be switched
        thousands of times a second.
        """
        disabled = self._shadow.disabled
        if not enabled:
            require_can_disable(self._shadow.nodes[index])
        if (index in disabled) is not enabled:  # it is so already
            return
        self._sender.set_enabled((index,), enabled)
        (disabled.discard if enabled else disabled.add)(index)
        state = frozenset(disabled)
        if state and state not in self._judged:
            if len(self._judged) >= _MOST_STATES:
                self._judged.clear()
            self._judged.add(state)
            self._tell(self._stale())

    def switch(self, indices: Iterable[int], enabled: bool) -> Switched:
        """Enable or disable nodes, all of them or none.

        Empty nodes do nothing either way, and stay as they are; so does a child of which all nodes are chosen, too.
        What cannot be disabled is enabled as it is.
        """
        nodes, wanted = self._shadow.nodes, set(indices)
        idle = {
            index for index in wanted if isinstance(nodes[index], EmptyNode) or self._is_chosen_whole(index, wanted)
        }
        chosen = sorted(wanted - idle)
        if not enabled:
            for index in chosen:
                require_can_disable(nodes[index])
        changed = self._set(chosen, enabled)
        stale = self._stale()
        self._tell(stale)
        return Switched(tuple(nodes[index].name for index in changed), enabled, tuple(stale))

    def _is_chosen_whole(self, index: int, wanted: Collection[int]) -> bool:
        """True for a child node if the nodes inside are chosen."""
        if not isinstance(self._shadow.nodes[index], ChildNode):
            return False
        inside = (each for level in self._levels if level.owner == index for each in range(level.start, level.stop))
        return all(each in wanted for each in inside)

    def take_over(self, disabled: Sequence[int], other: Switches) -> None:
        """Disable what was disabled in another exec of the graph; what was told of that one is not told again."""
        self._set(disabled, False)
        self._told |= other._told

    def _set(self, indices: Sequence[int], enabled: bool) -> Sequence[int]:
        """Make nodes what they are not yet; gives those."""
        disabled = self._shadow.disabled
        changed = [index for index in indices if (index in disabled) is enabled]
        self._sender.set_enabled(changed, enabled)
        (disabled.difference_update if enabled else disabled.update)(changed)
        return changed

    def _stale(self) -> list[Finding]:
        shadow = self._shadow
        return check_disabled(shadow.nodes, insides(self._levels), shadow.disabled, shadow.values)

    def _tell(self, stale: Iterable[Finding]) -> None:
        """Log what has not been said of the pair of nodes before."""
        for finding in stale:
            if finding.nodes not in self._told:
                self._told.add(finding.nodes)
                _logger.warning("exec %r: %s", self._name, finding)
