"""Rules that a correct graph may break: codes GD701 to GD799."""

from __future__ import annotations

from collections.abc import Iterator

from graphdsl.check.context import Context
from graphdsl.check.report import Finding
from graphdsl.check.rules import Found, rule
from graphdsl.check.subjects import Switched, label, sentences, uses_of
from graphdsl.declare.condition import Condition
from graphdsl.declare.event import Event
from graphdsl.declare.expressions import Expr
from graphdsl.declare.operands import Array


@rule("GD701", "advice", "Copies to and from pinned memory")
def pageable_copy(context: Context, found: Found) -> Iterator[Finding]:
    """A copy between host and device is fastest from and to pinned memory.

    **Why.** The driver copies pageable memory through a pinned buffer of its own, piece by piece, and holds the
    launch up meanwhile.

    **Source.** CUDA C++ Best Practices Guide, "Pinned Memory"; CUDA Driver API, "API synchronization behavior".

    **Remedy.** Declare the `host_array` pinned, as it is by default; of external memory, copy what is used often into
    one.

    **Wrong**

    ```python wrong
    staged = g.host_array("staged", 1024, np.float32, pinned=False)
    g.memcpy(x, staged)
    ```

    **Right**

    ```python right
    staged = g.host_array("staged", 1024, np.float32)
    g.memcpy(x, staged)
    ```
    """
    for node in context.copies:
        spaces = node.destination.space, node.source.space
        if "device" in spaces and "pageable" in spaces:
            side = "source" if spaces[0] == "device" else "destination"
            yield found(
                "a copy of pageable memory is staged through pinned memory, and slower",
                node=node,
                field=side,
                value=getattr(node, side),
                remedy="Use pinned memory, as host_array gives by default.",
            )


@rule("GD702", "warning", "Operands that a node uses", subject="graph")
def unused_operand(context: Context, found: Found) -> Iterator[Finding]:
    """Each buffer and param is used by a node.

    **Why.** Memory that nothing uses is allocated all the same, and a param that nothing uses does nothing when it
    is updated: often another operand stands where it was meant to.

    **Remedy.** Use it, or remove its declaration.

    **Wrong**

    ```python wrong
    z = g.device_array("z", 1024, np.float32)
    g.memset(y, 0)
    ```

    **Right**

    ```python right
    z = g.device_array("z", 1024, np.float32)
    g.memset(z, 0)
    ```
    """
    used: set[object] = set()
    for operand in context.operands.values():
        if isinstance(operand, Array):
            used.add(operand.buffer)
        if isinstance(operand, (Array, Expr)):
            used |= operand.params
        if isinstance(operand, (Condition, Event)):
            used.add(operand)
    for name, operand in context.definition.operands.items():
        if operand not in used:
            what = type(operand).__name__.lower()
            yield found(
                "no node uses it",
                field=f"{what} {name!r}",
                remedy="Use it, or remove its declaration.",
                location=operand.location,
            )


@rule("GD703", "warning", "Disabled writers before readers", subject="graph")
def stale_reader(context: Context | Switched, found: Found) -> Iterator[Finding]:
    """What a node reads is written in the same launch, or by nobody: not by a node that is disabled.

    **Why.** A disabled node leaves its memory as it was. Nodes after it then read what an earlier launch left there, or
    what nobody ever wrote, or, in a planned array, what other arrays left that share its bytes. Copies and memsets are
    known exactly, and of Numba kernels what their code tells; other kernels and host functions count as reading and
    writing all arrays that they are passed, but for read-only ones.

    **Source.** CUDA Driver API, `cuGraphNodeSetEnabled`: a disabled node is functionally equivalent to an empty one.

    **Remedy.** Disable the readers too, or leave a writer before them enabled. `g.check(disabled=[...])` asks the
    question before there is an exec; `GraphExec.disable` answers it, and the logger ``graphdsl`` says it once.

    **Wrong**

    ```python wrong
    with g.sequence():
        g.memcpy(x, raw, name="load")
        g.memcpy(y, x, name="copy")
    disabled = ["load"]
    ```

    **Right**

    ```python right
    with g.sequence():
        g.memset(x, 0, name="clear")
        g.memcpy(x, raw, name="load")
        g.memcpy(y, x, name="copy")
    disabled = ["load"]
    ```
    """
    if isinstance(context, Context) and not context.disabled:
        return
    for stale in context.flow.stale_reads():
        yield found(
            f"it reads what the disabled node {stale.writer.name!r} would have written, and no enabled node before it "
            "writes that",
            node=stale.reader,
            nodes=(stale.reader.name, stale.writer.name),
            field=next((use.field for use in uses_of([stale.reader]) if use.operand is stale.array), None),
            value=f"{label(stale.array)}, bytes {stale.span[0]} to {stale.span[1]}",
            remedy=sentences("Disable it too, or enable a node before it that writes this memory.", _kept(stale.array)),
        )


def _kept(array: Array) -> str | None:
    """What keeps the contents of an array from launch to launch, where it may share its bytes with others."""
    buffer = array.buffer
    own = buffer.space == "device" and not (buffer.external or buffer.allocated)
    if not own or buffer.lifetime == "persistent":
        return None
    return f'What an earlier launch wrote is kept for sure if {buffer.name!r} has lifetime="persistent".'


_EDGES_SAVED = 8
"""From so many edges on that a barrier would save, it is worth a node."""


@rule("GD704", "advice", "A barrier where many wait for many", subject="graph")
def missing_barrier(context: Context, found: Found) -> Iterator[Finding]:
    """Where each of several nodes comes before each of several others, an empty node between them takes fewer edges.

    **Why.** n nodes before m take n times m edges, and with a barrier n plus m. The driver goes through all of them
    when the graph is built and launched.

    **Source.** CUDA Driver API, `cuGraphAddEmptyNode`.

    **Remedy.** Declare a node with `empty`, after the first and before the others.

    **Wrong**

    ```python wrong
    g.edge([g.memset(x[i : i + 1], 0) for i in range(5)], [g.memset(y[i : i + 1], 0) for i in range(5)])
    ```

    **Right**

    ```python right
    barrier = g.empty(name="barrier")
    g.edge([g.memset(x[i : i + 1], 0) for i in range(5)], barrier)
    g.edge(barrier, [g.memset(y[i : i + 1], 0) for i in range(5)])
    ```
    """
    for level in context.levels:
        alike: dict[frozenset[str], list[str]] = {}
        for name, targets in level.dag.adjacency():
            full = all(edge["port"] == "default" for edge in targets.values()) if len(targets) > 1 else False
            if full:
                alike.setdefault(frozenset(targets), []).append(name)
        for targets, names in alike.items():
            saved = len(names) * len(targets) - len(names) - len(targets)
            if saved >= _EDGES_SAVED:
                yield found(
                    f"{len(names)} nodes before {len(targets)} take {len(names) * len(targets)} edges, and "
                    f"{len(names) + len(targets)} with an empty node between them",
                    node=level.dag.nodes[names[0]]["node"],
                    nodes=names,
                    field="edges",
                    value=f"{names[0]} and {len(names) - 1} more -> {min(targets)} and {len(targets) - 1} more",
                    remedy="Declare a node with empty() after the first and before the others.",
                )
