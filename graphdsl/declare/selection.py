"""Nodes chosen by name, pattern, scope or tag."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from graphdsl.declare.node import Node
from graphdsl.declare.store import unknown_name
from graphdsl.errors import DeclarationError, GraphdslError


def selected(
    nodes: Sequence[Node],
    patterns: Iterable[str] = (),
    *,
    scope: str | None = None,
    tag: str | None = None,
    error: type[GraphdslError] = DeclarationError,
) -> list[int]:
    """Indices of the nodes that match one of the patterns, lie in the scope or inside of it, and have the tag.

    Parameters
    ----------
    nodes : sequence of Node
        To choose from.
    patterns : iterable of str
        Names, which may have ``*``, ``?`` and ``[abc]`` in them; these match across ``/``, too. None match all.
    scope : str, optional
        Name of a scope; by default nodes may lie anywhere.
    tag : str, optional
        One of their tags; by default they may have any or none.
    error : type
        What is raised if the scope, the tag or a pattern matches nothing.

    Examples
    --------
    >>> from graphdsl.declare.definition import Definition
    >>> graph = Definition()
    >>> for name in ("load", "layer0/scale", "layer0/inner/add", "layer01/scale"):
    ...     _ = graph.empty(name=name)
    >>> selected(graph.nodes, ["l*d"]), selected(graph.nodes, scope="layer0")
    ([0, 2], [1, 2])
    """
    inside: Sequence[int] = range(len(nodes))
    if scope is not None:
        inside = [i for i in inside if nodes[i].scope == scope or nodes[i].scope.startswith(f"{scope}/")]
        if not inside:
            raise unknown_name(scope, {node.scope for node in nodes} - {""}, "scope", error)
    if tag is not None:
        inside = [i for i in inside if tag in nodes[i].tags]
        if not inside:
            raise unknown_name(tag, {tag for node in nodes for tag in node.tags}, "tag", error)
    patterns = list(patterns)
    if not patterns:
        return list(inside)
    chosen: dict[int, None] = {}
    for pattern in patterns:
        found = [i for i in inside if nodes[i].name == pattern]
        found = found or [i for i in inside if fnmatchcase(nodes[i].name, str(pattern))]
        if not found:
            raise unknown_name(pattern, [nodes[i].name for i in inside], "node", error)
        chosen.update(dict.fromkeys(found))
    return sorted(chosen)
