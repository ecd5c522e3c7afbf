"""What a plan says of lanes: how many there are, which edges they take, what a launch is predicted to take, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from graphdsl.errors import DeclarationError

Lanes = int | Literal["auto"] | None
"""How many lanes there are to be: at most so many; as many as pay; or as many as the graph has as it was declared."""


class Times(NamedTuple):
    """What a launch takes, as predicted, in microseconds.

    Attributes
    ----------
    launch : float
        Processor time.
    makespan : float
        GPU time, were all nodes launched at once.
    total : float
        From the beginning of the launch to the end of the last node.
    """

    launch: float
    makespan: float
    total: float


@dataclass(frozen=True)
class LevelLanes:
    """What was planned for a graph, or for a body in it; printed, it says so in words.

    Attributes
    ----------
    name : str
        Name of the graph or of the body.
    width : int or None
        How many lanes its nodes are threaded onto, on each device; None if they are left as they were declared.
    edges : tuple of pairs of str
        Source and target of each edge that is added.
    ends : pair of bool
        Whether a kernel that does nothing is put before all other nodes, and whether one is put behind them.
    before, after : Times or None
        What a launch takes without and with all this; None where it was not weighed.
    why : str
        What the edges are good for, or why there are none.
    """

    name: str
    width: int | None = None
    edges: tuple[tuple[str, str], ...] = ()
    ends: tuple[bool, bool] = (False, False)
    before: Times | None = None
    after: Times | None = None
    why: str = ""

    def __str__(self) -> str:
        return f"{self.name!r}: {self.why}"


@dataclass(frozen=True)
class LanePlan:
    """How the nodes of a graph were threaded onto lanes; printed, it says so in words.

    Attributes
    ----------
    asked : int, "auto" or None
        How many lanes there were to be.
    levels : tuple of LevelLanes
        The graph itself, and each body behind the level that holds it; none if nothing was asked.
    durations : dict of str to float
        The durations that were given.
    """

    asked: Lanes = None
    levels: tuple[LevelLanes, ...] = ()
    durations: Mapping[str, float] = field(default_factory=dict)

    @property
    def width(self) -> int | None:
        """How many lanes the nodes of the graph itself are threaded onto; None if they are left as they are."""
        return self.levels[0].width if self.levels else None

    @property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """Source and target of each edge that is added, in the graph and in its bodies."""
        return tuple(edge for level in self.levels for edge in level.edges)

    @property
    def ends(self) -> tuple[bool, bool]:
        """Whether a kernel that does nothing is put before all nodes of the graph itself, and one behind them."""
        return self.levels[0].ends if self.levels else (False, False)

    @property
    def before(self) -> Times | None:
        """What a launch of the graph itself takes as it was declared, where that was weighed."""
        return self.levels[0].before if self.levels else None

    @property
    def after(self) -> Times | None:
        """What it takes with the edges."""
        return self.levels[0].after if self.levels else None

    @property
    def why(self) -> str:
        """What the edges of the graph itself are good for, or why there are none."""
        return self.levels[0].why if self.levels else "no lanes were asked for"

    def __str__(self) -> str:
        return "\n".join([f"lanes={self.asked!r}", *(f"  {level}" for level in self.levels)])


def require_lanes(lanes: Any) -> None:
    """Refuse what is no number of lanes.

    Raises
    ------
    DeclarationError
        If it is none.
    """
    if lanes is None or lanes == "auto" or (type(lanes) is int and lanes >= 1):
        return
    raise DeclarationError(
        'lanes are a number of 1 or more, "auto" or None',
        field="lanes",
        value=repr(lanes),
        remedy='Pass "auto" to have as many as pay, None to leave nodes as they are, or how many there may be at most.',
    )
