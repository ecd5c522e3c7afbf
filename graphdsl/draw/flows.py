"""What nodes read and write, as tables and drawings say it: rows of text, and what flows along edges.

This module must not judge: an edge that nothing flows along may be meant all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from graphdsl.compile.accesses import Told, accesses, explained
from graphdsl.declare.accesses import Access, Span
from graphdsl.declare.definition import Definition
from graphdsl.declare.expressions import Expr, Param
from graphdsl.declare.node import Node
from graphdsl.declare.operands import Array, Buffer

_NAMES_SHOWN = 3


class Row(NamedTuple):
    """One line about an array that a node is given, in words."""

    node: Node
    field: str
    array: str
    access: str
    where: str
    why: str


def rows(definition: Definition) -> Iterator[Row]:
    """What each node does to each of its arrays.

    Bytes are counted in the array, from its first element on, with the defaults of the params.

    Examples
    --------
    >>> graph = Definition("demo")
    >>> x = graph.device_array("x", 8, "f4")
    >>> _ = graph.memset(x, 0)
    >>> [row[1:] for row in rows(graph)]
    [('destination', 'x', 'writes', 'all of it', '')]
    """
    values = defaults(definition)
    for node in definition.all_nodes:
        for told in explained(node):
            field = told.field.removeprefix("argument ").strip("'")
            yield Row(node, field, _array_text(told.array), _access_text(told), _where(told, values), told.why)


def defaults(definition: Definition) -> dict[str, Any]:
    """The values that params have if nobody gives others."""
    params = (operand for operand in definition.operands.values() if isinstance(operand, Param))
    return {param.name: param.default for param in params if param.default is not None}


def _array_text(array: Array) -> str:
    return array.name if isinstance(array, Buffer) else repr(array)


def _access_text(told: Told) -> str:
    access = told.access
    if access is None:
        return "nothing"
    if access.atomic is not None:
        return f"atomic {access.atomic}"
    words = " and ".join(word for word, done in (("reads", access.reads), ("writes", access.writes)) if done)
    return words if access.known else f"unknown, so {words}"


def _where(told: Told, values: Mapping[str, Any]) -> str:
    access = told.access
    if access is None:
        return ""
    scattered = ", scattered" if access.scattered and access.known else ""
    whole, span = access._replace(nbytes=None, skipped=0).span(values), access.span(values)
    if span == whole:
        return "all of it" + scattered
    start, stop = (end - whole[0] for end in span)
    return f"bytes {start} to {max(start, stop)}" + scattered


# Edges


class Flow(NamedTuple):
    """What an edge orders.

    Attributes
    ----------
    carried : tuple of str
        Buffers that the source writes and the target reads.
    reused : tuple of str
        Those that the target writes after the source has read or written them, and does not read.
    """

    carried: tuple[str, ...]
    reused: tuple[str, ...]

    @property
    def text(self) -> str:
        """A short label: what is carried, and in parentheses what is only used again."""
        names = [*self.carried, *(f"({name})" for name in self.reused)]
        more = len(names) - _NAMES_SHOWN
        return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")

    @property
    def explanation(self) -> str:
        """The whole of it in words."""
        parts = (("carries", self.carried), ("lets be used again:", self.reused))
        return "; ".join(f"{verb} {', '.join(names)}" for verb, names in parts if names)


class Flows:
    """What flows along the edges of a graph; each node is looked at once.

    Parameters
    ----------
    definition : Definition
        The graph. A node that holds bodies does what the nodes in them do.
    """

    def __init__(self, definition: Definition) -> None:
        self._values = defaults(definition)
        self._memo: dict[Expr, Any] = {}
        self._done: dict[str, list[tuple[Access, Span]]] = {}

    def along(self, source: Node, target: Node) -> Flow:
        """What an edge orders, by buffers that both ends touch in the same bytes."""
        before: dict[Buffer, list[tuple[Access, Span]]] = {}
        for access, span in self._touched(source):
            before.setdefault(access.array.buffer, []).append((access, span))
        carried: dict[str, None] = {}
        reused: dict[str, None] = {}
        for access, (start, stop) in self._touched(target):
            buffer = access.array.buffer
            for other, (first, last) in before.get(buffer, ()):
                if max(start, first) >= min(stop, last):
                    continue
                if other.writes and access.reads:
                    carried[buffer.name] = None
                elif access.writes:
                    reused[buffer.name] = None
        return Flow(tuple(carried), tuple(name for name in reused if name not in carried))

    def _touched(self, node: Node) -> list[tuple[Access, Span]]:
        found = self._done.get(node.name)
        if found is None:
            found = [(access, access.span(self._values, self._memo)) for access in accesses(node)]
            found += (each for body in node.bodies for inner in body.nodes for each in self._touched(inner))
            self._done[node.name] = found
        return found
