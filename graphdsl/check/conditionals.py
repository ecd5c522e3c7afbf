"""Rules about conditional nodes, their conditions and their bodies: codes GD501 to GD507."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import networkx as nx

from graphdsl.check.context import Context
from graphdsl.check.report import Finding
from graphdsl.check.rules import Found, rule
from graphdsl.check.subjects import uses_of
from graphdsl.declare.condition import Condition
from graphdsl.declare.nesting import ConditionalNode
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import KernelNode, MemcpyNode, MemsetNode, named_operands

if TYPE_CHECKING:
    from graphdsl.compile.image import ParameterLayout

_IN_BODIES = ("kernel", "memcpy", "memset", "empty", "child", "conditional", "captured")


@rule("GD501", "error", "Bodies hold what the device runs by itself", subject="graph")
def body_kinds(context: Context, found: Found) -> Iterator[Finding]:
    """A body of a conditional node holds kernels, copies, memsets, and empty, child, conditional and captured nodes.

    That goes for children in it, too. What captured work consists of only the driver tells, at instantiation.

    **Why.** The device decides which bodies run, without the host: it can call no host function, record no event and
    allocate nothing. The driver tells at instantiation, as `CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED`.

    **Source.** CUDA Driver API, `CUDA_CONDITIONAL_NODE_PARAMS`; measured on driver 580.

    **Remedy.** Declare the node before or after the conditional node.

    **Wrong**

    ```python wrong
    with g.if_(g.condition("large", default=0)) as body:
        body.host(print)
    ```

    **Right**

    ```python right
    g.if_(g.condition("large", default=0)) >> g.host(print)
    ```
    """
    for owner, node in in_bodies(context.definition.nodes):
        if node.kind not in _IN_BODIES:
            yield found(
                f"the body of a conditional node, here of {owner.name!r}, holds nodes of the kinds "
                f"{', '.join(_IN_BODIES)}",
                node=node,
                field="kind",
                value=node.kind,
                remedy="Declare it outside of the body, before or after the conditional node.",
            )


@rule("GD502", "error", "Bodies reach no pageable memory", subject="graph")
def body_memory(context: Context, found: Found) -> Iterator[Finding]:
    """Copies and memsets in a body of a conditional node use device memory and pinned memory.

    **Why.** The device runs the body by itself, and cannot reach pageable memory. The driver tells at instantiation,
    as `CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED`, which says nothing of memory.

    **Source.** CUDA Programming Guide, "Conditional Graph Nodes"; measured on driver 580.

    **Remedy.** Declare the `host_array` pinned, as it is by default, or copy outside of the body.

    **Wrong**

    ```python wrong
    staged = g.host_array("staged", 1024, np.float32, pinned=False)
    with g.if_(g.condition("large", default=0)) as body:
        body.memcpy(x, staged)
    ```

    **Right**

    ```python right
    with g.if_(g.condition("large", default=0)) as body:
        body.memcpy(x, raw)
    ```
    """
    for owner, node in in_bodies(context.definition.nodes):
        for field, operand in node.fields() if isinstance(node, (MemcpyNode, MemsetNode)) else ():
            if getattr(operand, "space", None) == "pageable":
                yield found(
                    f"a copy in the body of a conditional node, here of {owner.name!r}, uses device memory and pinned "
                    "memory",
                    node=node,
                    field=field,
                    value=operand,
                    remedy="Declare the host array pinned, or copy outside of the body.",
                )


@rule("GD503", "error", "Each condition decides for one node", subject="graph")
def one_node_per_condition(context: Context, found: Found) -> Iterator[Finding]:
    """A condition is asked by exactly one conditional node.

    **Why.** The driver makes one for each node: it refuses a second node at once, and a condition that no node asks
    at instantiation, as `CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED`.

    **Source.** CUDA Driver API, `cuGraphConditionalHandleCreate`; measured on driver 580.

    **Remedy.** Declare a condition for each node. A kernel can set several.

    **Wrong**

    ```python wrong
    large = g.condition("large", default=0)
    g.if_(large) >> g.if_(large)
    ```

    **Right**

    ```python right
    g.if_(g.condition("large", default=0)) >> g.if_(g.condition("small", default=0))
    ```
    """
    asking: dict[Condition, list[ConditionalNode]] = {}
    for node in context.of_kind(ConditionalNode):
        asking.setdefault(node.condition, []).append(node)
    for name, operand in context.definition.operands.items():
        if not isinstance(operand, Condition):
            continue
        nodes = asking.get(operand, [])
        if len(nodes) != 1:
            yield found(
                f"a condition decides for exactly one node, and this one for {len(nodes)}",
                node=nodes[-1] if nodes else None,
                nodes=[node.name for node in nodes],
                field=f"condition {name!r}",
                value=", ".join(node.name for node in nodes) or "no node",
                remedy="Declare a condition for each conditional node, and none more.",
                location=operand.location,
            )


@rule("GD504", "error", "Conditions have a value when they are asked", subject="graph")
def undefined_condition(context: Context, found: Found) -> Iterator[Finding]:
    """A condition without a default is set by a kernel that is ordered before the node that asks it.

    **Why.** Its value is undefined at the start of each launch.

    **Source.** CUDA Driver API, `cuGraphConditionalHandleCreate`.

    **Remedy.** Give it a default, or order a kernel before that sets it.

    **Wrong**

    ```python wrong
    g.if_(g.condition("large"))
    ```

    **Right**

    ```python right
    g.if_(g.condition("large", default=0))
    ```
    """
    for node in context.of_kind(ConditionalNode):
        if node.condition.default is None:
            setters = [kernel for kernel in context.kernels if _sets(context, kernel, node.condition)]
            if not _any_before(context, node, setters):
                there = f"{_names(setters)} not ordered before it" if setters else "no kernel sets it"
                yield found(
                    f"a condition without a default is set by a kernel before it is asked, and {there}",
                    node=node,
                    field="condition",
                    value=node.condition,
                    remedy="Give the condition a default, or order a kernel before that sets it.",
                )


@rule("GD505", "warning", "While loops end", subject="graph")
def endless_loop(context: Context, found: Found) -> Iterator[Finding]:
    """The body of a while node holds a kernel that sets its condition.

    **Why.** Nothing else sets the condition to 0 while the loop runs: it never ends, and neither does the launch.

    **Remedy.** Let a kernel in the body call `graphdsl.device.set_condition`.

    **Wrong**

    ```python wrong
    with g.while_(g.condition("more", default=1)) as body:
        body.memset(x, 0)
    ```

    **Right**

    ```python right
    @cuda.jit
    def step(more, x):
        x[0] -= 1
        if x[0] <= 0:
            gd.device.set_condition(more, 0)

    more = g.condition("more", default=1)
    with g.while_(more) as body:
        body.kernel(step, grid=1, block=1, args=(more, x))
    ```
    """
    for node in context.of_kind(ConditionalNode):
        if node.form == "while":
            inside = (each for body in node.bodies for each in body.all_nodes if each.name not in context.disabled)
            if not any(_sets(context, inner, node.condition) for inner in inside):
                yield found(
                    "the body of a while node holds a kernel that sets its condition, or it never ends",
                    node=node,
                    field="condition",
                    value=node.condition,
                    remedy="Pass the condition to a kernel in the body, which sets it to 0.",
                )


@rule("GD506", "error", "Conditions are set by kernels", subject="graph")
def condition_elsewhere(context: Context, found: Found) -> Iterator[Finding]:
    """A condition is an argument of kernels, and what its conditional node asks, and nothing else.

    **Why.** What a kernel is given is a handle, which has a meaning only for `graphdsl.device.set_condition`.

    **Remedy.** Pass it to a kernel. For the host to decide, pass a param to a kernel that sets the condition from it.

    **Wrong**

    ```python wrong
    large = g.condition("large", default=0)
    g.host(print, args=large) >> g.if_(large)
    ```

    **Right**

    ```python right
    @cuda.jit
    def decide(large, n):
        gd.device.set_condition(large, n > 512)

    large = g.condition("large", default=0)
    g.kernel(decide, grid=1, block=1, args=(large, n)) >> g.if_(large)
    ```
    """
    others = (node for node in context.nodes if not isinstance(node, (KernelNode, ConditionalNode)))
    for use in uses_of(others):
        if isinstance(use.operand, Condition):
            yield found(
                "a condition is an argument of kernels, and nothing else",
                node=use.node,
                field=use.field,
                value=use.operand,
                remedy="Pass a param to the node, and to a kernel that sets the condition from it.",
            )


def in_bodies(nodes: Iterable[Node], owner: ConditionalNode | None = None) -> Iterator[tuple[ConditionalNode, Node]]:
    """The nodes in bodies of conditional nodes, at any depth, each with the outermost of these."""
    for node in nodes:
        if owner is not None:
            yield owner, node
        outermost = node if owner is None and isinstance(node, ConditionalNode) else owner
        for body in node.bodies:
            yield from in_bodies(body.nodes, outermost)


def _sets(context: Context, node: Node, condition: Condition) -> bool:
    """True for a kernel that may set the condition: its code does, or cannot be told from doing so."""
    if not isinstance(node, KernelNode):
        return False
    image = context.image_of.get(node.name)
    if image is None:
        return any(operand is condition for _, operand in named_operands(node))
    places = image.graph_calls.conditions
    return places is None or any(_at(node, image.layout, place) is condition for place in places)


def _at(node: KernelNode, layout: ParameterLayout, place: int) -> Any:
    """What stands where a parameter of the compiled kernel comes from; None if it comes from no argument."""
    start, _ = layout.parameters[place]
    leaf = next((leaf for leaf in layout.leaves if leaf.offset == start), None)
    if leaf is None:
        return None
    operand, path = node.args[leaf.argument], leaf.path
    while path[:1] == ("item",):
        operand, path = operand[path[1]], path[2:]
    return operand


def _any_before(context: Context, node: Node, wanted: list[KernelNode]) -> bool:
    """True if one of the wanted kernels is ordered before a node: on its level, or before what holds that."""
    names = {kernel.name for kernel in wanted}
    for at in context.holders(node):
        dag = at.definition.dag
        before = [dag.nodes[name]["node"] for name in nx.ancestors(dag, at.name)]
        inside = [inner for each in before for body in each.bodies for inner in body.all_nodes]
        if any(each.name in names for each in (*before, *inside)):
            return True
    return False


def _names(nodes: list[KernelNode]) -> str:
    return f"{', '.join(repr(node.name) for node in nodes[:4])} {'is' if len(nodes) == 1 else 'are'}"
