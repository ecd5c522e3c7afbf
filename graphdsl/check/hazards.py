"""Rules about nodes that touch the same memory in no order: codes GD601 to GD605.

Who is in conflict with whom, `graphdsl.check.conflicts` finds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from graphdsl.check.conflicts import Conflict, Conflicts, Tally
from graphdsl.check.context import Context
from graphdsl.check.masks import Verdict
from graphdsl.check.report import Finding
from graphdsl.check.rules import Found, rule, rules
from graphdsl.check.subjects import label, uses_of
from graphdsl.compile.accesses import explained
from graphdsl.declare.node import Node
from graphdsl.declare.operands import Array, Buffer

_MOST_MEMORIES = 32
"""Of the buffers that pairs are in conflict over, so many are listed."""


@rule("GD601", "error", "Conflicting accesses are ordered", subject="graph")
def hazard(context: Context | Shared, found: Found) -> Iterator[Finding]:
    """Of two nodes that touch the same bytes, one of them to write, one comes after the other.

    The pair is reported with what it is: RAW (the one declared first writes what the other reads), WAR (it reads what
    the other writes) or WAW (both write), with the bytes, and with the edge that orders the two as they are declared.
    The bytes are those of views, row by row: columns of one matrix have none in common. Bodies of which one alone runs
    are in no conflict with each other.

    **Why.** Nodes that no path of edges joins run at the same time, or in any order. What is read is then what was
    there before or after the write, by chance, and no tool reports it.

    **Source.** CUDA C++ Programming Guide, "CUDA Graphs": operations run once those that they depend on are done.

    **Remedy.** Declare the edge. `Graph.infer_edges` declares all that are missing. Where the order does not matter,
    `Graph.independent` says so, and why.

    **Wrong**

    ```python wrong
    load = g.memcpy(x, raw, name="load")
    copy = g.memcpy(y, x, name="copy")
    ```

    **Right**

    ```python right
    load = g.memcpy(x, raw, name="load")
    copy = g.memcpy(y, x, name="copy")
    load >> copy
    ```
    """
    yield from _pairs(context, found, Verdict.CERTAIN)


@rule("GD602", "warning", "Accesses that may conflict are ordered", subject="graph")
def possible_hazard(context: Context | Shared, found: Found) -> Iterator[Finding]:
    """Of two nodes that may touch the same bytes, one of them to write, one comes after the other.

    It is GD601 where something is not known: what a kernel or a function does to an array that it is passed, or which
    bytes a view has while a param has no value. It is then taken to read and to write all of the array.

    **Why.** If the guess is right, the result is left to chance.

    **Remedy.** Declare the edge, or say with `Graph.independent` why none is needed.

    **Wrong**

    ```python wrong
    def fill(array):
        array[:] = 1

    fill = g.host(fill, raw, name="fill")
    load = g.memcpy(x, raw, name="load")
    ```

    **Right**

    ```python right
    def fill(array):
        array[:] = 1

    fill = g.host(fill, raw, name="fill")
    load = g.memcpy(x, raw, name="load")
    fill >> load
    ```
    """
    yield from _pairs(context, found, Verdict.GUESSED)


@rule("GD603", "advice", "Atomic operations in any order", subject="graph")
def commuting(context: Context, found: Found) -> Iterator[Finding]:
    """Nodes that do nothing but the same atomic operation to the same memory need no order among them.

    Additions, minima, maxima and bitwise operations give the same in whatever order they are done, but for the
    rounding of floating-point additions. The pair is listed, so that whoever wants equal bits on every run sees it.

    **Why.** What two nodes add up is right without an edge, and the last bits may differ from run to run.

    **Remedy.** None is needed. `Graph.independent` says so with a reason; an edge makes the order the same every time.

    **Wrong**

    ```python wrong
    @cuda.jit
    def count(x, total):
        cuda.atomic.add(total, 0, x[cuda.grid(1)])

    total = g.device_array("total", 1, np.float32)
    first = g.kernel(count, grid=2, block=256, args=(x[:512], total), name="first")
    second = g.kernel(count, grid=2, block=256, args=(x[512:], total), name="second")
    ```

    **Right**

    ```python right
    @cuda.jit
    def count(x, total):
        cuda.atomic.add(total, 0, x[cuda.grid(1)])

    total = g.device_array("total", 1, np.float32)
    first = g.kernel(count, grid=2, block=256, args=(x[:512], total), name="first")
    second = g.kernel(count, grid=2, block=256, args=(x[512:], total), name="second")
    g.independent(first, second, why="sums of float32, equal up to rounding")
    ```
    """
    yield from _pairs(context, found, Verdict.COMMUTES)


@rule("GD604", "advice", "What is said to be independent", subject="graph")
def waived(context: Context, found: Found) -> Iterator[Finding]:
    """Each call of `Graph.independent` is listed with its reason, and with the pairs of nodes that it speaks of.

    **Why.** Whoever reads the report sees which conflicts were looked at, and what somebody thought of them.

    **Remedy.** None, as long as the reason holds.

    **Wrong**

    ```python wrong
    low = g.memset(x, 0, name="low")
    high = g.memset(x, 0, name="high")
    g.independent(low, high, why="both write the same")
    ```

    **Right**

    ```python right
    low = g.memset(x[:512], 0, name="low")
    high = g.memset(x[512:], 0, name="high")
    ```
    """
    for said, tallies in zip(context.definition.independents, context.audit.conflicts.waived, strict=False):
        first = min((tally.pairs[0] for tally in tallies.values()), default=None)
        if first is not None:
            conflict = context.audit.conflicts.explained(first)
            count = sum(tally.count for tally in tallies.values())
            more = f" (and {count - 1} more such pairs)" if count > 1 else ""
            yield found(
                f"{conflict.kind}: {_deeds(conflict)}, and nothing orders them{more}; that is meant: {said.why}",
                node=conflict.second,
                nodes=(conflict.first.name, conflict.second.name),
                field=_field(conflict.second, conflict.arrays[1]),
                value=_bytes(conflict),
                location=said.location,
            )


@rule("GD605", "warning", "Nothing to be independent of", subject="graph")
def stale_waiver(context: Context, found: Found) -> Iterator[Finding]:
    """`Graph.independent` speaks of nodes that touch the same memory in no order.

    **Why.** One that speaks of others does nothing today, and hides the conflict that a later change brings. Often the
    nodes are others than was meant, or an edge has been added since.

    **Remedy.** Remove it, or name the nodes that are in conflict.

    **Wrong**

    ```python wrong
    load = g.memcpy(x, raw, name="load")
    copy = g.memcpy(y, x, name="copy")
    load >> copy
    g.independent(load, copy, why="raw never changes")
    ```

    **Right**

    ```python right
    load = g.memcpy(x, raw, name="load")
    copy = g.memcpy(y, x, name="copy")
    load >> copy
    ```
    """
    if context.disabled or not context.audit.conflicts.outline.order:  # then it may speak of what is not there now
        return
    for said, tallies in zip(context.definition.independents, context.audit.conflicts.waived, strict=False):
        if not tallies:
            yield found(
                "no two of these nodes touch the same memory in no order, so that this keeps nothing from being "
                "reported",
                nodes=tuple(dict.fromkeys((*said.one, *said.other))),
                field="independent",
                value=str(said),
                remedy="Remove it, or name the nodes that are in conflict.",
                location=said.location,
            )


def shared_hazards(conflicts: Conflicts) -> Iterator[Finding]:
    """What GD601 and GD602 find of pairs of nodes that touch buffers of two names, where these overlap."""
    for each in rules():
        if each.code in ("GD601", "GD602"):
            yield from each.findings(Shared(conflicts))


@dataclass
class Shared:
    """As much of a context as the rules about pairs need, where pairs on one buffer are known already."""

    conflicts: Conflicts


def _pairs(context: Context | Shared, found: Found, verdict: Verdict) -> Iterator[Finding]:
    """A finding for each pair, the first of many, and one that counts the others."""
    if isinstance(context, Shared):
        pairs = (pair for tally in context.conflicts.of(verdict) for pair in tally.pairs)
        for conflict in map(context.conflicts.explained, pairs):
            if conflict.arrays[0].buffer is not conflict.arrays[1].buffer:
                yield _finding(conflict, found, verdict)
        return
    tallies = context.audit.conflicts.of(verdict)
    for tally in tallies[:_MOST_MEMORIES]:
        for pair in tally.pairs:
            yield _finding(context.audit.conflicts.explained(pair), found, verdict)
        if tally.count > len(tally.pairs):
            yield _rest(context, found, tally)
    left = tallies[_MOST_MEMORIES:]
    if left:
        count = sum(tally.count for tally in left)
        yield found(
            f"{count} more pairs of nodes are in conflict over {len(left)} other buffers, and nothing orders them",
            field="edges",
            remedy="Call infer_edges() for the edges that are missing, or mend those above and check again.",
        )


def _rest(context: Context, found: Found, tally: Tally) -> Finding:
    last = context.audit.conflicts.explained(tally.pairs[-1])
    return found(
        f"{tally.count - len(tally.pairs)} more pairs of nodes are in conflict over it, and nothing orders them",
        field="edges",
        value=last.arrays[1].buffer.name,
        remedy="Call infer_edges() for the edges that are missing, or mend those above and check again.",
    )


def _finding(conflict: Conflict, found: Found, verdict: Verdict) -> Finding:
    first, second = conflict.first, conflict.second
    before, after = conflict.edge
    edge = f"{before.name} >> {after.name}"
    remedies = {
        Verdict.CERTAIN: f"Add the edge {edge}, or say why none is needed with independent.",
        Verdict.GUESSED: f"Add the edge {edge}, or say why none is needed with independent.",
        Verdict.COMMUTES: f"Nothing, if the order does not matter; else add the edge {edge}.",
    }
    return found(
        f"{conflict.kind}: {_deeds(conflict)}, and nothing orders them{_doubt(conflict, verdict)}",
        node=second,
        nodes=(first.name, second.name),
        field=_field(second, conflict.arrays[1]),
        value=_bytes(conflict),
        remedy=remedies[verdict],
    )


def _deeds(conflict: Conflict) -> str:
    first, second = conflict.first, conflict.second
    return f"{first.name!r} {conflict.does[0]} it {_place(first)}, {second.name!r} {conflict.does[1]} it"


def _place(node: Node) -> str:
    return f"({Path(node.location[0]).name}:{node.location[1]})"


def _doubt(conflict: Conflict, verdict: Verdict) -> str:
    if verdict is not Verdict.GUESSED:
        return ""
    if not conflict.sure:
        return "; whether they have a byte in common is not known"
    pairs = zip((conflict.first, conflict.second), conflict.arrays, strict=True)
    reasons = [f"what {node.name!r} does ({why})" for node, array in pairs if (why := _why(node, array))]
    return f"; {' and '.join(reasons) or 'what they do'} is not known, and counts as reading and writing"


def _why(node: Node, array: Array) -> str:
    """Why it is not known what a node does to an array; empty if it is known."""
    return next((told.why for told in explained(node) if told.array is array and told.why), "")


def _field(node: Node, array: Array) -> str | None:
    return next((use.field for use in uses_of([node]) if use.operand is array), None)


def _bytes(conflict: Conflict) -> str:
    """The bytes in question, from the start of the buffer."""
    one, other = (array.buffer for array in conflict.arrays)
    shared = f", the memory of {one.name}" if one is not other else ""
    gaps = ", with gaps" if conflict.region.rows else ""
    array = conflict.arrays[1]
    of = "" if isinstance(array, Buffer) else f" of {other.name}"
    return f"{label(array)}{shared}, {conflict.region}{of}{gaps}"
