"""The rule about imported nodes: code GD251."""

from __future__ import annotations

from collections.abc import Iterator

from graphdsl.check.context import Context
from graphdsl.check.report import Finding
from graphdsl.check.rules import Found, rule
from graphdsl.declare.imported import has_imported, keeper_of


@rule("GD251", "advice", "What imported nodes use is kept alive", subject="graph")
def kept_alive(context: Context, found: Found) -> Iterator[Finding]:
    """An imported graph knows who owns the functions, the memory and the host data that its nodes use.

    **Why.** They are known by their addresses. Once their owner is gone, a launch runs whatever lies there then. One
    finding stands for all such nodes of a graph.

    **Remedy.** Pass the object that holds the graph to `from_handle`, or the owner with `owner=`.

    **Wrong**

    ```python wrong
    g.host(print)
    exe = g.instantiate(gd.emulator())
    g = gd.from_handle(exe.graph_handle, exe.device)
    ```

    **Right**

    ```python right
    g.host(print)
    exe = g.instantiate(gd.emulator())
    g = gd.from_handle(exe)
    ```
    """
    if not has_imported(context.nodes, context.definition.operands.values()):  # most graphs have nothing of the kind
        return
    nodes = [node for node in context.nodes if any(keeper.owner is None for keeper in keeper_of(node))]
    if nodes:
        yield found(
            "nobody is known to keep alive what imported nodes use",
            node=nodes[0],
            nodes=[node.name for node in nodes],
            field="owner",
            value=None,
            remedy="Pass the object that holds the graph to from_handle, or the owner with owner=.",
        )
