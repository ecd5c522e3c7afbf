"""What a pass did, one entry for each thing, and what it could not do and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from graphdsl.declare.node import Node
from graphdsl.errors import Location

Kind = Literal["edge dropped", "nodes fused", "node dropped", "node emptied", "operand dropped"]


class Named(NamedTuple):
    """A node or an operand of the graph that was given: its name, and where it was declared."""

    name: str
    location: Location | None

    def __str__(self) -> str:
        return self.name if self.location is None else f"{self.name} ({self.location[0]}:{self.location[1]})"


@dataclass(frozen=True)
class Change:
    """One thing that a pass did.

    Attributes
    ----------
    kind : str
        ``"edge dropped"``, ``"nodes fused"``, ``"node dropped"``, ``"node emptied"`` or ``"operand dropped"``.
    subjects : tuple of Named
        The ends of the edge, the nodes, or the operand.
    why : str
        The reason, or what came of it.
    """

    kind: Kind
    subjects: tuple[Named, ...]
    why: str

    def __str__(self) -> str:
        joint = " -> " if self.kind == "edge dropped" else " + "
        return f"{self.kind}: {joint.join(map(str, self.subjects))}: {self.why}"


class Changes(tuple[Change, ...]):
    """What a pass did, in order: a tuple of `Change`, empty if it changed nothing. ``str`` gives one line for each."""

    __slots__ = ()

    def of(self, kind: Kind) -> list[tuple[str, ...]]:
        """Names of the subjects of the changes of one kind.

        Examples
        --------
        >>> Changes([Change("node dropped", (Named("log", None),), "nobody reads tmp")]).of("node dropped")
        [('log',)]
        """
        return [tuple(subject.name for subject in each.subjects) for each in self if each.kind == kind]

    def __add__(self, other: object) -> Changes:
        return Changes((*self, *other)) if isinstance(other, Changes) else NotImplemented

    def __str__(self) -> str:
        return "\n".join(map(str, self)) or "nothing to change"


def named(*nodes: Node) -> tuple[Named, ...]:
    """The nodes as subjects of a change."""
    return tuple(Named(node.name, node.location) for node in nodes)
