"""Finds what nodes read that nobody has written in this launch, because the writers are disabled.

This module must not report: the rule about it does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from graphdsl.compile.accesses import accesses
from graphdsl.declare.accesses import Span
from graphdsl.declare.ancestry import Inside, ancestors, flattened
from graphdsl.declare.expressions import Expr
from graphdsl.declare.node import Node
from graphdsl.declare.operands import Array, Buffer


class Stale(NamedTuple):
    """Bytes that a node reads and a disabled node before it would have written.

    Attributes
    ----------
    writer, reader : Node
        The disabled one, and the one that reads all the same.
    array : Buffer or View
        What it reads, as its operand.
    span : tuple of int
        Bytes of the buffer: the first, and the one behind the last.
    """

    writer: Node
    reader: Node
    array: Array
    span: Span


@dataclass(frozen=True)
class Flow:
    """Nodes and their order, and which of them are disabled.

    Attributes
    ----------
    nodes : sequence of Node
        Those of the graph and of all bodies.
    levels : iterable of Inside
        How they hang together. If there is a cycle, nothing is found.
    disabled : collection of int
        Indices of the disabled nodes.
    values : mapping of str to number
        Values of params by name.
    """

    nodes: Sequence[Node]
    levels: Iterable[Inside]
    disabled: Collection[int]
    values: Mapping[str, Any]

    def stale_reads(self) -> list[Stale]:
        """What enabled nodes read though a disabled node before them writes it, and no enabled one does."""
        touched = [list(accesses(node)) for node in self.nodes]
        wanted = {each.array.buffer for index in self.disabled for each in touched[index] if each.writes}
        if not wanted:
            return []
        writers = {buffer: _Writers() for buffer in wanted}
        bits: dict[int, int] = {}
        memo: dict[Expr, Any] = {}
        for index, found in enumerate(touched):
            for each in found:
                if each.writes and each.array.buffer in wanted:
                    bit = bits.setdefault(index, 1 << len(bits))
                    table = writers[each.array.buffer]
                    table.add(index, bit, each.span(self.values, memo), each.array.buffer, index in self.disabled)
        stale: dict[tuple[int, int, Buffer], Stale] = {}
        for index, before in ancestors(bits, *flattened(len(self.nodes), self.levels)):
            if index >= len(self.nodes) or index in self.disabled:
                continue
            for each in touched[index]:
                buffer = each.array.buffer
                if not each.reads or buffer not in wanted or not writers[buffer].in_question(before):
                    continue
                for writer, span in writers[buffer].missing(before, each.span(self.values, memo)):
                    made = Stale(self.nodes[writer], self.nodes[index], each.array, span)
                    stale.setdefault((writer, index, buffer), made)
        return list(stale.values())


@dataclass
class _Writers:
    """Who writes one buffer: bits, indices and spans of the enabled and of the disabled nodes."""

    enabled: list[tuple[int, Span]] = field(default_factory=list)
    disabled: list[tuple[int, int, Span]] = field(default_factory=list)
    any_disabled: int = 0
    whole: int = 0

    def add(self, index: int, bit: int, span: Span, buffer: Buffer, disabled: bool) -> None:
        if disabled:
            self.disabled.append((bit, index, span))
            self.any_disabled |= bit
            return
        self.enabled.append((bit, span))
        if span[0] <= 0 and span[1] >= buffer.allocation_nbytes:
            self.whole |= bit

    def in_question(self, before: int) -> bool:
        """True if a disabled writer comes before, and no enabled one that writes all of the buffer."""
        return bool(before & self.any_disabled) and not before & self.whole

    def missing(self, before: int, read: Span) -> Iterable[tuple[int, Span]]:
        """The disabled writers among those before, each with the first bytes read that only it would write."""
        written = sorted(span for bit, span in self.enabled if before & bit)
        for bit, index, span in self.disabled:
            if before & bit:
                left = _first_left((max(span[0], read[0]), min(span[1], read[1])), written)
                if left is not None:
                    yield index, left


def _first_left(span: Span, taken: Iterable[Span]) -> Span | None:
    """The first bytes of a span that no span of ``taken``, which is sorted, has; None if there are none.

    Examples
    --------
    >>> _first_left((0, 8), [(0, 4), (2, 6)]), _first_left((0, 8), [(0, 4), (4, 9)]), _first_left((0, 8), [(4, 6)])
    ((6, 8), None, (0, 4))
    """
    start, stop = span
    for first, last in taken:
        if first > start:
            return (start, min(first, stop)) if start < stop else None
        start = max(start, last)
    return (start, stop) if start < stop else None
