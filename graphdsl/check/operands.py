"""Rules about what copies, memsets and host functions are given: codes GD301, GD303, GD309 and GD321."""

from __future__ import annotations

from collections.abc import Iterator

from graphdsl.check.context import Context
from graphdsl.check.report import Finding
from graphdsl.check.rules import Found, rule
from graphdsl.check.subjects import sentences
from graphdsl.declare.nodes import MemcpyNode
from graphdsl.declare.operands import Array
from graphdsl.errors import text_of


@rule("GD301", "error", "Views inside what they are slices of")
def view_bounds(context: Context, found: Found) -> Iterator[Finding]:
    """A slice or index whose bounds are expressions stays inside the dimension: 0 <= start <= stop <= extent.

    Bounds that are plain numbers are clipped, as NumPy clips them; bounds that follow from params are not, since a
    kernel would be launched with fewer elements than it was told of.

    **Why.** The memory behind a view is not checked by the device: it would read and write other operands.

    **Remedy.** Keep the params in range, or clip: `x[:gd.minimum(n, 1024)]`.

    **Wrong**

    ```python wrong
    m = g.param("m", np.int32, default=2000)
    g.memset(x[:m], 0)
    ```

    **Right**

    ```python right
    m = g.param("m", np.int32, default=1000)
    g.memset(x[:m], 0)
    ```
    """
    broken = context.broken_views
    for use in context.uses(broken):
        view, (axis, start, stop, extent) = broken[id(use.operand)]
        yield found(
            f"dimension {axis} has {extent} elements, and this is "
            + (f"index {start}" if stop == start + 1 else f"the slice {start}:{stop}"),
            node=use.node,
            field=use.field,
            value=view,
            remedy=sentences(context.origin(view), "Keep it in range, or clip it with minimum and maximum."),
        )


@rule("GD303", "error", "At least one byte to copy or set")
def empty_operation(context: Context, found: Found) -> Iterator[Finding]:
    """A copy or memset works on at least one byte.

    **Why.** An update of an instantiated graph refuses operations of no bytes, so a graph that begins with one could
    never be changed.

    **Source.** CUDA Driver API, `cuGraphExecMemcpyNodeSetParams` and `cuGraphExecMemsetNodeSetParams`: zero-length
    operations are not supported.

    **Remedy.** Keep the size positive, and skip the work with `exe.node(name).disable()`.

    **Wrong**

    ```python wrong
    m = g.param("m", np.int32, default=0)
    g.memcpy(x[:m], raw[:m])
    ```

    **Right**

    ```python right
    m = g.param("m", np.int32, default=1)
    g.memcpy(x[:m], raw[:m])
    ```
    """
    for node in context.transfers:
        given = node.nbytes if isinstance(node, MemcpyNode) else None
        nbytes = context.value(given) if given is not None else _nbytes(context, node.destination)
        if nbytes is not None and nbytes <= 0:
            operand = node.destination if given is None else given
            yield found(
                f"a {node.kind} works on at least one byte, and this one on {text_of(nbytes)}",
                node=node,
                field="destination" if given is None else "nbytes",
                value=operand,
                remedy=sentences(context.origin(operand), "Keep the size positive, or disable the node."),
            )


def _nbytes(context: Context, array: Array) -> int | None:
    region = context.region(array)
    return None if region is None else region.nbytes


@rule("GD309", "error", "No writing into read-only memory")
def readonly(context: Context, found: Found) -> Iterator[Finding]:
    """The destination of a copy or memset is memory that its owner lets others write.

    **Why.** A read-only array belongs to somebody who counts on it: a constant, a mapped file, the text of a program.

    **Remedy.** Adopt a writable copy: `g.external("table", table.copy())`.

    **Wrong**

    ```python wrong
    table = np.zeros(1024, np.float32)
    table.flags.writeable = False
    g.memcpy(g.external("table", table), x)
    ```

    **Right**

    ```python right
    table = np.zeros(1024, np.float32)
    g.memcpy(g.external("table", table), x)
    ```
    """
    for node in context.transfers:
        if node.destination.buffer.readonly:
            yield found(
                f"the owner of {node.destination.buffer.name!r} forbids writing",
                node=node,
                field="destination",
                value=node.destination,
                remedy="Adopt a writable copy of it.",
            )


@rule("GD321", "error", "Host functions work on host memory")
def host_argument(context: Context, found: Found) -> Iterator[Finding]:
    """An array passed to a host function lies in host memory, pinned or pageable.

    **Why.** The processor cannot read device memory, and a host function may make no CUDA calls to copy it.

    **Source.** CUDA Driver API, `cuLaunchHostFunc`.

    **Remedy.** Copy it to a `host_array` before, and order the function after the copy.

    **Wrong**

    ```python wrong
    g.host(print, args=y)
    ```

    **Right**

    ```python right
    g.memcpy(raw, y) >> g.host(print, args=raw)
    ```
    """
    on_device = (id(array) for array in context.arrays if array.space == "device")
    for use in context.uses(on_device, context.hosts):
        yield found(
            "a host function cannot read device memory",
            node=use.node,
            field=use.field,
            value=use.operand,
            remedy="Copy it to a host_array first, and order the function after the copy.",
        )
