"""Rules about programmatic edges, which let a kernel start before the one in front of it has ended: GD116 to GD119."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from graphdsl.check.context import Context
from graphdsl.check.report import Finding
from graphdsl.check.rules import Found, rule
from graphdsl.declare.node import Node, Port
from graphdsl.declare.nodes import KernelNode
from graphdsl.errors import Location

if TYPE_CHECKING:
    from graphdsl.compile.image import KernelImage


class Edge(NamedTuple):
    """A programmatic edge, and where it was declared."""

    source: Node
    target: Node
    port: Port
    location: Location

    def __str__(self) -> str:
        return f"{self.source.name} -> {self.target.name}"


def programmatic_edges(context: Context) -> Iterator[Edge]:
    """The programmatic edges of all levels."""
    for source, target, edge in context.programmatic_edges:
        yield Edge(source, target, edge["port"], edge["locations"][0])


def _between_kernels(context: Context) -> Iterator[tuple[Edge, KernelImage | None, KernelImage | None]]:
    """The programmatic edges on which ends wait and trigger, with the compiled kernels of both ends."""
    for edge in programmatic_edges(context):
        if edge.port == "programmatic" and isinstance(edge.source, KernelNode) and isinstance(edge.target, KernelNode):
            yield edge, context.image_of.get(edge.source.name), context.image_of.get(edge.target.name)


@rule("GD116", "error", "Programmatic edges between kernels", subject="graph")
def programmatic_ends(context: Context, found: Found) -> Iterator[Finding]:
    """A programmatic edge joins two kernels.

    **Why.** Only a kernel can call for what is behind it before it ends, and only a kernel can wait in its midst. The
    driver refuses the edge with `CUDA_ERROR_INVALID_VALUE`.

    **Source.** CUDA Driver API, `CUgraphDependencyType`.

    **Remedy.** Leave out `programmatic=True`, or put the edge between kernels.

    **Wrong**

    ```python wrong
    load = g.memcpy(x, raw)
    run = g.kernel(scale, grid=4, block=256, args=(x, y, gain, n))
    g.edge(load, run, programmatic=True)
    ```

    **Right**

    ```python right
    load = g.memcpy(x, raw)
    run = g.kernel(scale, grid=4, block=256, args=(x, y, gain, n))
    g.edge(load, run)
    ```
    """
    for edge in programmatic_edges(context):
        for end in (edge.source, edge.target):
            if not isinstance(end, KernelNode):
                yield found(
                    f"a programmatic edge joins kernels, and {end.name} is a {end.kind} node",
                    node=end,
                    nodes=(edge.source.name, edge.target.name),
                    field="edges",
                    value=str(edge),
                    remedy="Leave out programmatic=True.",
                    location=edge.location,
                )


@rule("GD117", "error", "A wait in the kernel behind a programmatic edge", subject="graph")
def missing_wait(context: Context, found: Found) -> Iterator[Finding]:
    """A kernel behind a programmatic edge calls `graphdsl.device.grid_dependency_wait`, which orders its work.

    Edges with `port="launch_order"` order nothing but starts, and ask for no wait.

    **Why.** The edge lets the kernel start while the one in front still runs. What that one writes can be read only
    behind the wait: without one the kernel reads what was there before, on some runs, and nothing reports it. Nor do
    the kernels behind it wait for the one in front.

    **Source.** PTX ISA, `griddepcontrol`; CUDA C++ Programming Guide, "Programmatic Dependent Launch".

    **Remedy.** Call `grid_dependency_wait()` before the kernel reads what the one in front wrote, or writes what that
    one reads; or make the edge a full one.

    **Wrong**

    ```python wrong
    @cuda.jit
    def first(x):
        gd.device.launch_dependents()
        x[cuda.grid(1)] = 1

    @cuda.jit
    def second(x, y):
        i = cuda.grid(1)
        y[i] = 2 * x[i]

    a = g.kernel(first, grid=4, block=256, args=x)
    b = g.kernel(second, grid=4, block=256, args=(x, y))
    g.edge(a, b, programmatic=True)
    ```

    **Right**

    ```python right
    @cuda.jit
    def first(x):
        gd.device.launch_dependents()
        x[cuda.grid(1)] = 1

    @cuda.jit
    def second(x, y):
        i = cuda.grid(1)
        gd.device.grid_dependency_wait()
        y[i] = 2 * x[i]

    a = g.kernel(first, grid=4, block=256, args=x)
    b = g.kernel(second, grid=4, block=256, args=(x, y))
    g.edge(a, b, programmatic=True)
    ```
    """
    for edge, _, target in _between_kernels(context):
        if target is not None and target.graph_calls.waits is False:
            yield found(
                f"{edge.target.name} may start before {edge.source.name} has ended, and its kernel never waits for it",
                node=edge.target,
                nodes=(edge.source.name, edge.target.name),
                field="edges",
                value=str(edge),
                remedy="Call graphdsl.device.grid_dependency_wait() in the kernel, before it touches what both use, or "
                "leave out programmatic=True.",
                location=edge.location,
            )


@rule("GD118", "advice", "A trigger in the kernel in front of a programmatic edge", subject="graph")
def missing_trigger(context: Context, found: Found) -> Iterator[Finding]:
    """A kernel in front of a programmatic edge calls `graphdsl.device.launch_dependents`.

    **Why.** A block that does not call it does so by ending: the work of the two kernels then never overlaps.

    **Source.** CUDA C++ Programming Guide, "Programmatic Dependent Launch".

    **Remedy.** Call `launch_dependents()` as soon as the kernel behind may take its place beside this one: at the very
    start where multiprocessors are free, else once the long part is done.

    **Wrong**

    ```python wrong
    @cuda.jit
    def step(x):
        gd.device.grid_dependency_wait()
        x[cuda.grid(1)] += 1

    a = g.kernel(step, grid=4, block=256, args=x)
    b = g.kernel(step, grid=4, block=256, args=x)
    g.edge(a, b, programmatic=True)
    ```

    **Right**

    ```python right
    @cuda.jit
    def step(x):
        gd.device.launch_dependents()
        gd.device.grid_dependency_wait()
        x[cuda.grid(1)] += 1

    a = g.kernel(step, grid=4, block=256, args=x)
    b = g.kernel(step, grid=4, block=256, args=x)
    g.edge(a, b, programmatic=True)
    ```
    """
    for edge, source, _ in _between_kernels(context):
        if source is not None and source.graph_calls.triggers is False:
            yield found(
                f"the kernel of {edge.source.name} never lets {edge.target.name} start before it ends",
                node=edge.source,
                nodes=(edge.source.name, edge.target.name),
                field="edges",
                value=str(edge),
                remedy="Call graphdsl.device.launch_dependents() in it, or leave out programmatic=True.",
                location=edge.location,
            )
