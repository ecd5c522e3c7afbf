"""Plans a graph as another plan was made, lanes and ends and all, so that an exec of the one can become the other."""

from __future__ import annotations

from dataclasses import replace

from graphdsl.declare.definition import Definition
from graphdsl.declare.targets import Targets
from graphdsl.plan import Level, Plan
from graphdsl.plan.assured import assured
from graphdsl.plan.ends import NO_ENDS, is_end, with_ends


def laned_alike(definition: Definition, made: Plan, like: Plan, targets: Targets) -> Plan | None:
    """A plan of a graph without lanes, with those of another plan.

    Parameters
    ----------
    definition : Definition
        The graph.
    made : Plan
        Its plan, without lanes.
    like : Plan
        The other.
    targets : Targets
        The devices that both are for.

    Returns
    -------
    Plan or None
        None if the graphs have other nodes or edges, or a node that others wait for on a lane no longer surely ends.
    """
    nodes, levels = list(made.nodes), list(made.levels)
    if len(levels) != len(like.levels):
        return None
    for which, done in enumerate(like.lanes.levels):
        if done.ends != NO_ENDS:
            nodes, levels = with_ends(definition, nodes, levels, which, *done.ends)
    if [node.name for node in nodes] != [node.name for node in like.nodes]:
        return None
    if not all(map(_alike, levels, like.levels)):
        return None
    if like.lanes.edges:
        ends = assured(nodes, levels, targets.number)
        if not all(ends[index] for index in waited_for(like)):
            return None
    laned = tuple(replace(level, added=other.added) for level, other in zip(levels, like.levels, strict=True))
    return replace(made, nodes=tuple(nodes), levels=laned, lanes=like.lanes)


def waited_for(made: Plan) -> set[int]:
    """Indices of the nodes that others wait for on a lane."""
    sources = {source for level in made.levels for source in level.added[:, 0].tolist()}
    return {source for source in sources if not is_end(made.nodes[source])}


def _alike(level: Level, other: Level) -> bool:
    return (
        (level.start, level.stop, level.owner, level.body) == (other.start, other.stop, other.owner, other.body)
        and level.edges.tolist() == other.edges.tolist()
        and level.ports.tolist() == other.ports.tolist()
    )
