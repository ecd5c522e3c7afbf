"""Rules about copies: codes GD302 and GD304 to GD308."""

from __future__ import annotations

from collections.abc import Iterator

from graphdsl.check.context import Context, label, sentences
from graphdsl.check.report import Finding
from graphdsl.check.rules import Found, rule
from graphdsl.declare.nodes import MemcpyNode
from graphdsl.declare.operands import Array


@rule("GD302", "error", "No more bytes copied than source and destination have")
def copy_size(context: Context, found: Found) -> Iterator[Finding]:
    """The bytes that a copy is told to move fit its destination and its source.

    **Why.** The driver knows allocations, not arrays: it would copy over the neighbours, or fail with
    `CUDA_ERROR_INVALID_VALUE`.

    **Source.** CUDA Driver API, `cuMemcpy3D`.

    **Remedy.** Copy fewer bytes, or leave `nbytes` out to copy the arrays whole.

    **Wrong**

    ```python wrong
    g.memcpy(x, raw, nbytes=8192)
    ```

    **Right**

    ```python right
    g.memcpy(x, raw, nbytes=4096)
    ```
    """
    for node in context.copies:
        if node.nbytes is None:
            continue
        nbytes = context.value(node.nbytes)
        for side in ("destination", "source"):
            array: Array = getattr(node, side)
            region = context.region(array)
            if nbytes is not None and region is not None and nbytes > region.nbytes:
                yield found(
                    f"the {side} {label(array)} has {region.nbytes} bytes",
                    node=node,
                    field="nbytes",
                    value=nbytes,
                    remedy=sentences(context.origin(node.nbytes), "Copy fewer bytes, or leave nbytes out."),
                )


@rule("GD304", "error", "Copies between equal dtypes")
def copy_dtype(context: Context, found: Found) -> Iterator[Finding]:
    """Source and destination of a copy have one dtype, unless `nbytes` says that bytes are meant.

    **Why.** A copy moves bytes; it converts nothing.

    **Remedy.** Declare both with one dtype, convert with a kernel, or pass `nbytes`.

    **Wrong**

    ```python wrong
    samples = g.host_array("samples", 1024, np.int32)
    g.memcpy(x, samples)
    ```

    **Right**

    ```python right
    samples = g.host_array("samples", 1024, np.int32)
    g.memcpy(x, samples, nbytes=4096)
    ```
    """
    for node in context.copies:
        if node.nbytes is None and node.destination.dtype != node.source.dtype:
            yield found(
                f"a copy converts nothing, and the destination {label(node.destination)} is {node.destination.dtype}",
                node=node,
                field="source",
                value=node.source,
                remedy="Use one dtype, convert with a kernel, or pass nbytes to copy the bytes as they are.",
            )


@rule("GD305", "error", "Copies between equal shapes")
def copy_shape(context: Context, found: Found) -> Iterator[Finding]:
    """Source and destination of a copy have one shape, unless `nbytes` says that bytes are meant.

    **Why.** A copy broadcasts nothing: sizes that differ mean that one of the operands is not the one intended.

    **Remedy.** Slice the larger one, or pass `nbytes`.

    **Wrong**

    ```python wrong
    half = g.host_array("half", 512, np.float32)
    g.memcpy(x, half)
    ```

    **Right**

    ```python right
    half = g.host_array("half", 512, np.float32)
    g.memcpy(x[:512], half)
    ```
    """
    for node in context.copies:
        to, source = context.region(node.destination), context.region(node.source)
        if node.nbytes is None and to is not None and source is not None and to.shape != source.shape:
            yield found(
                f"a copy broadcasts nothing: the destination {label(node.destination)} has the shape {to.shape}, the "
                f"source {source.shape}",
                node=node,
                field="source",
                value=node.source,
                remedy=sentences(context.origin(node.source), "Slice the larger one, or pass nbytes to copy bytes."),
            )


@rule("GD306", "error", "Copies between arrays of one memory order")
def copy_order(context: Context, found: Found) -> Iterator[Finding]:
    """Source and destination of a copy lie in memory in the same order, both C or both Fortran.

    **Why.** A copy moves bytes in the order in which they lie: between the two orders it would transpose.

    **Remedy.** Adopt the array in C order (`numpy.ascontiguousarray`), or transpose with a kernel.

    **Wrong**

    ```python wrong
    table = g.device_array("table", (32, 32), np.float32)
    g.memcpy(table, g.external("loaded", np.zeros((32, 32), np.float32, order="F")))
    ```

    **Right**

    ```python right
    table = g.device_array("table", (32, 32), np.float32)
    g.memcpy(table, g.external("loaded", np.zeros((32, 32), np.float32)))
    ```
    """
    for node in context.copies:
        orders = node.destination.layout, node.source.layout
        if node.nbytes is None and set(orders) == {"C", "F"}:
            yield found(
                f"a copy moves bytes as they lie: the destination is in {orders[0]} order, the source in {orders[1]}",
                node=node,
                field="source",
                value=node.source,
                remedy="Use one order, transpose with a kernel, or pass nbytes to copy the bytes as they are.",
            )


@rule("GD307", "error", "Contiguous operands of copies and memsets")
def contiguous(context: Context, found: Found) -> Iterator[Finding]:
    """The operands of a copy or memset are contiguous, whatever the values of params.

    **Why.** A one-dimensional copy or memset works on one run of bytes.

    **Source.** CUDA Driver API, `CUDA_MEMCPY3D` and `CUDA_MEMSET_NODE_PARAMS` with a height of 1.

    **Remedy.** Slice the first dimension only, or use a kernel.

    **Wrong**

    ```python wrong
    g.memset(x[::2], 0)
    ```

    **Right**

    ```python right
    g.memset(x[:512], 0)
    ```
    """
    for node in context.transfers:
        for side in ("destination", "source") if isinstance(node, MemcpyNode) else ("destination",):
            array: Array = getattr(node, side)
            if array.layout == "A":
                yield found(
                    f"a {node.kind} works on contiguous memory, and the strides of this one are {array.strides} bytes",
                    node=node,
                    field=side,
                    value=array,
                    remedy="Slice the first dimension only, or use a kernel.",
                )


@rule("GD308", "error", "Copies between bytes that do not overlap")
def copy_overlap(context: Context, found: Found) -> Iterator[Finding]:
    """Source and destination of a copy share no bytes.

    **Why.** The driver copies in any order: where they overlap, the result is undefined.

    **Source.** CUDA Driver API, `cuMemcpy`: source and destination may not overlap.

    **Remedy.** Copy through another buffer.

    **Wrong**

    ```python wrong
    g.memcpy(x[:512], x[256:768])
    ```

    **Right**

    ```python right
    g.memcpy(x[:512], x[512:])
    ```
    """
    for node in context.copies:
        if node.destination.buffer is not node.source.buffer:
            continue
        to, source = context.region(node.destination), context.region(node.source)
        given = context.value(node.nbytes)
        if to is None or source is None or (given is None and node.nbytes is not None):
            continue
        nbytes = min(to.nbytes, source.nbytes) if given is None else given
        shared = min(to.offset, source.offset) + nbytes - max(to.offset, source.offset)
        if shared > 0:
            yield found(
                f"source and destination of a copy share no bytes, and {shared} bytes are in both this source and the "
                f"destination {label(node.destination)}",
                node=node,
                field="source",
                value=node.source,
                remedy="Copy through another buffer.",
            )
