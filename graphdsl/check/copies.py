"""Rules about copies: codes GD302 and GD304 to GD308."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from graphdsl.check.context import Context
from graphdsl.check.report import Finding
from graphdsl.check.rules import Found, rule
from graphdsl.check.subjects import label, sentences
from graphdsl.declare.interop import host_view
from graphdsl.declare.operands import Array
from graphdsl.declare.rows import Dimension


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
    """The dimensions of source and destination of a copy lie in memory in the same order, such as both in C order.

    **Why.** A copy moves rows of bytes in the order in which they lie: between two orders it would transpose.

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
        # Outer dimensions come first, as the destination has them. A stride of 0 is GD325's.
        steps = [each.strides[1] for each in context.dimensions(node) or () if each.strides[1]]
        if any(outer < inner for outer, inner in pairwise(steps)):
            yield found(
                f"a copy moves bytes as they lie: the strides of the destination are {node.destination.strides}, those "
                f"of the source {node.source.strides}, and their order differs",
                node=node,
                field="source",
                value=node.source,
                remedy="Use one order, transpose with a kernel, or pass nbytes to copy the bytes as they are.",
            )


@rule("GD307", "error", "Contiguous operands where bytes are counted")
def contiguous(context: Context, found: Found) -> Iterator[Finding]:
    """The operands of a copy with `nbytes` are contiguous, whatever the values of params.

    **Why.** So many bytes from the start of both are one run of bytes on either side.

    **Source.** CUDA Driver API, `CUDA_MEMCPY3D` with a height of 1.

    **Remedy.** Leave `nbytes` out and slice both sides, or use a kernel.

    **Wrong**

    ```python wrong
    g.memcpy(x[::2], raw, nbytes=2048)
    ```

    **Right**

    ```python right
    g.memcpy(x[::2], raw[:512])
    ```
    """
    for node in context.copies:
        for side in ("destination", "source"):
            array: Array = getattr(node, side)
            if node.nbytes is not None and array.layout == "A":
                yield found(
                    f"nbytes counts bytes of contiguous memory, and the strides of this {side} are {array.strides} "
                    "bytes",
                    node=node,
                    field=side,
                    value=array,
                    remedy="Leave nbytes out and slice both sides, or use a kernel.",
                )


@rule("GD308", "error", "Copies between bytes that do not overlap")
def copy_overlap(context: Context, found: Found) -> Iterator[Finding]:
    """Source and destination of a copy share no bytes. Rows may lie between rows of the other.

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
        dimensions = context.dimensions(node)
        offsets = [context.region(array) for array in (node.destination, node.source)]
        if dimensions is None or None in offsets:
            continue
        shared = _shared_bytes(dimensions, *(region.offset for region in offsets if region))
        if shared:
            yield found(
                f"source and destination of a copy share no bytes, and {shared} in both this source and the "
                f"destination {label(node.destination)}",
                node=node,
                field="source",
                value=node.source,
                remedy="Copy through another buffer.",
            )


def _shared_bytes(dimensions: tuple[Dimension, ...], to: int, source: int) -> str:
    """How many bytes at two offsets are the same, in words with a verb; empty if there are none."""
    if any(each.extent < 1 for each in dimensions):
        return ""
    if len(dimensions) == 1:
        both = dimensions[0].extent - abs(to - source)
        return f"{both} bytes are" if both > 0 else ""
    shape = tuple(int(each.extent) for each in dimensions)
    destination, origin = (
        host_view(_ANYWHERE + offset, shape, tuple(each.strides[i] for each in dimensions), np.dtype(np.uint8), None)
        for i, offset in enumerate((to, source))
    )
    try:
        shared = np.shares_memory(destination, origin, _MAX_WORK)  # type: ignore[arg-type]  # the stubs know two values
        return "some bytes are" if shared else ""
    except np.exceptions.TooHardError:  # better silent than wrong
        return ""


_ANYWHERE = 2**20
"""An address that nobody looks at: whether two arrays overlap follows from where they would lie."""

_MAX_WORK = 100_000
"""Of NumPy's exact search for a shared byte; copies of up to three dimensions need a few steps of it."""
