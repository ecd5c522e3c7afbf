"""Rules about declared edges that could be left out: codes GD606 and GD607."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphdsl.check.context import Context
from graphdsl.check.justified import all_idle
from graphdsl.check.report import Finding
from graphdsl.check.rules import Found, rule

_MOST_EDGES = 8
"""Edges that are named in one finding; the others are counted."""


@rule("GD606", "advice", "Edges that order what need not be ordered", subject="graph")
def idle_edge(context: Context, found: Found) -> Iterator[Finding]:
    """An edge between two nodes that work is needed by a conflict: without it, two nodes would touch the same bytes in
    no order, one of them to write.

    More precisely: an edge is needed if there are two nodes in conflict, and every way from one to the other leads over
    it. Host functions, captured work, events, words, graph memory, conditions, and kernels whose code nobody reads may
    do more than can be seen, and count as being in conflict with all others. Edges from and to empty nodes are left
    out, and so are levels of more than 20,000 nodes, and such as would take too long to judge.

    **Why.** What is ordered cannot run at the same time. Often the edge was right once, or joins other nodes than it
    was meant to.

    **Remedy.** Remove it, or keep it where the order serves what a check cannot see, such as the time at which work
    begins.

    **Wrong**

    ```python wrong
    g.memset(x, 0, name="clear_x") >> g.memset(y, 0, name="clear_y")
    ```

    **Right**

    ```python right
    g.memset(x, 0, name="clear_x") >> g.memcpy(y, x, name="copy")
    ```
    """
    audit = context.audit
    if audit.outline.order and not context.disabled:
        for edges in all_idle(audit.relations_of_all):
            named = [f"{context.nodes[a].name} -> {context.nodes[b].name}" for a, b in edges]
            yield found(
                f"no two nodes would be in conflict without {_it(named)}",
                node=context.nodes[edges[0][1]],
                nodes=_names(context, edges),
                field="edges",
                value=_listed(named),
                remedy="Remove what serves nothing else: nodes that share nothing can run at the same time.",
            )


@rule("GD607", "advice", "Edges that others imply", subject="graph")
def implied_edge(context: Context, found: Found) -> Iterator[Finding]:
    """No edge joins two nodes that other edges order already.

    **Why.** It orders nothing, and the driver goes through it when the graph is built and launched.

    **Remedy.** Remove it; `graphdsl.passes.transitive_reduction` gives the graph without any.

    **Wrong**

    ```python wrong
    a, b, c = g.memset(x, 0, name="a"), g.memset(x, 1, name="b"), g.memset(x, 2, name="c")
    a >> b >> c
    a >> c
    ```

    **Right**

    ```python right
    a, b, c = g.memset(x, 0, name="a"), g.memset(x, 1, name="b"), g.memset(x, 2, name="c")
    a >> b >> c
    ```
    """
    outline = context.audit.outline
    for level in outline.levels if outline.order else ():
        edges = outline.implied[id(level)]
        if edges:
            named = [f"{context.nodes[a].name} -> {context.nodes[b].name}" for a, b, _ in edges]
            via = context.nodes[edges[0][2]].name
            yield found(
                f"{_it(named)} {'is' if len(named) == 1 else 'are'} implied by others (the first by way of {via})",
                node=context.nodes[edges[0][1]],
                nodes=_names(context, [edge[:2] for edge in edges]),
                field="edges",
                value=_listed(named),
                remedy="Remove what others imply, or call graphdsl.passes.transitive_reduction.",
            )


def _it(named: Sequence[str]) -> str:
    return "this edge" if len(named) == 1 else f"any one of these {len(named)} edges"


def _listed(named: Sequence[str]) -> str:
    more = f" and {len(named) - _MOST_EDGES} more" if len(named) > _MOST_EDGES else ""
    return ", ".join(named[:_MOST_EDGES]) + more


def _names(context: Context, edges: Sequence[tuple[int, int]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(context.nodes[index].name for edge in edges for index in edge))
