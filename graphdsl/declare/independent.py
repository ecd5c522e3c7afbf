"""What a user says may run in any order though it touches the same memory, and why.

This module must not judge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from graphdsl.declare.node import NodeOrNodes, flatten
from graphdsl.errors import DeclarationError, Location

if TYPE_CHECKING:
    from graphdsl.declare.store import Level


class Independent(NamedTuple):
    """Nodes of which each on one side may run before, after or beside each on the other.

    Attributes
    ----------
    one, other : tuple of str
        Names of the nodes on either side; one that holds others stands for all of these.
    why : str
        The user's reason.
    location : tuple of str and int
        Where it was said.
    """

    one: tuple[str, ...]
    other: tuple[str, ...]
    why: str
    location: Location

    def __str__(self) -> str:
        return f"{_side(self.one)} and {_side(self.other)}"


def checked_independent(
    level: Level, one: NodeOrNodes, other: NodeOrNodes, why: Any, location: Location
) -> Independent:
    """What was said, refused if it names nodes of other graphs or gives no reason."""
    if not isinstance(why, str) or not why.strip():
        raise DeclarationError(
            "nodes are independent for a reason, which the report of a check lists",
            field="why",
            value=repr(why),
            remedy='Say it in a few words, such as why="each writes its own half".',
        )
    sides = flatten(one, field="independent"), flatten(other, field="independent")
    for node in (*sides[0], *sides[1]):
        if node.definition.root is not level.root:
            raise DeclarationError(
                f"node {node.name!r} belongs to {node.definition.title}, and a graph speaks of its own nodes",
                node=node.name,
                field="independent",
                remedy="Call independent on the graph that has the nodes.",
                location=node.location,
            )
    first, second = (tuple(node.name for node in side) for side in sides)
    return Independent(first, second, why.strip(), location)


def copy_independents(source: Level, target: Level, prefix: str = "") -> None:
    """Say of the nodes of a copy what was said of those of the graph that was copied, as far as the copy has them."""
    known = target.root._named
    for each in source.root._independents:
        names = ([prefix + name for name in side if prefix + name in known] for side in (each.one, each.other))
        one, other = map(tuple, names)
        if one and other:
            target.root._independents.append(Independent(one, other, each.why, each.location))


def _side(names: tuple[str, ...]) -> str:
    if not names:
        return "no node"
    listed = ", ".join(map(repr, names[:_LISTED]))
    return listed if len(names) <= _LISTED else f"{listed} and {len(names) - _LISTED} more"


_LISTED = 3
