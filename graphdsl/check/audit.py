"""What is known of the order of nodes and of the memory that they touch; found once, when it is asked for.

Rules, inferred edges and updates ask the same. This module must not judge.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphdsl.cached import cached_property
from graphdsl.check.conflicts import Conflicts, Waiver, waivers_of
from graphdsl.check.inference import Relations
from graphdsl.check.masks import Verdict
from graphdsl.check.outline import Outline
from graphdsl.check.touched import Touched
from graphdsl.declare.ancestry import Inside
from graphdsl.declare.node import Node
from graphdsl.declare.operands import Buffer

MOST_PAIRS = 16
"""Of the pairs of nodes that are in conflict over one memory, so many are kept."""


@dataclass(frozen=True, eq=False)
class Audit:
    """Nodes, their order, and the memory that they touch.

    Attributes
    ----------
    nodes : sequence of Node
        Those of the graph and of all bodies.
    levels : iterable of Inside
        How they hang together.
    values : mapping of str to number
        Values of params by name.
    addresses : mapping of Buffer to int
        Where buffers lie that may overlap others.
    disabled : collection of int
        Indices of nodes that touch nothing.
    independent : sequence of pairs
        Names of nodes on either side that may run in any order.
    errors_only : bool
        True where what is not known for certain is not asked for.
    """

    nodes: Sequence[Node]
    levels: Iterable[Inside]
    values: Mapping[str, Any]
    addresses: Mapping[Buffer, int]
    disabled: Collection[int] = ()
    independent: Sequence[tuple[Sequence[str], Sequence[str]]] = ()
    errors_only: bool = False

    @cached_property
    def touched(self) -> Touched:
        """Who touches which bytes."""
        return Touched(self.nodes, self.values, self.addresses, self.disabled)

    @cached_property
    def outline(self) -> Outline:
        """The nodes in the order of the program."""
        return Outline(self.nodes, self.levels)

    @cached_property
    def waivers(self) -> list[Waiver]:
        """What may run in any order, as bits."""
        return waivers_of(self.outline, self.independent) if self.independent else []

    @cached_property
    def conflicts(self) -> Conflicts:
        """The pairs of nodes that touch the same bytes, one of them to write, and that nothing orders."""
        least = Verdict.CERTAIN if self.errors_only else Verdict.COMMUTES
        return Conflicts(self.touched, self.outline, self.waivers, most=MOST_PAIRS, least=least)

    @cached_property
    def relations(self) -> Relations:
        """Who needs an order with whom."""
        return Relations(self.touched, self.outline, self.waivers)

    @cached_property
    def relations_of_all(self) -> Relations:
        """Who is in conflict with whom, where that is said not to matter, too."""
        return Relations(self.touched, self.outline, least=Verdict.COMMUTES)
