"""Nodes chosen by name, pattern or scope."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from graphdsl.declare.nodes import Node
from graphdsl.declare.store import unknown_name
from graphdsl.errors import DeclarationError, GraphdslError


def selected(
    nodes: Sequence[Node],
    patterns: Iterable[str] = (),
    *,
    scope: str | None = None,
    error: type[GraphdslError] = DeclarationError,
) -> list[int]:
    """Indices of the nodes that one of the patterns matches, and that lie in the scope or in one inside of it.

    Parameters
    ----------
    nodes : sequence of Node
        To choose from.
    patterns : iterable of str
        Names, which may have ``*``, ``?`` and ``[abc]`` in them; these match across ``/``, too. None match all.
    scope : str, optional
        Name of a scope; by default nodes may lie anywhere.
    error : type
        What is raised if a pattern or the scope matches nothing.

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
