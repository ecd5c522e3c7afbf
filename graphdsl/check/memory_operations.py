"""Rules about copies, memsets, views, and what host functions are given: codes GD301 to GD329."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graphdsl.check.context import Context, label, sentences
from graphdsl.check.report import Finding
from graphdsl.check.rules import Found, rule
from graphdsl.declare.expressions import convert_scalar
from graphdsl.declare.nodes import MemcpyNode, MemsetNode
from graphdsl.declare.operands import Array
from graphdsl.declare.pattern import element_size, memset_pattern
from graphdsl.errors import GraphdslError, text_of


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
    for node in _operations(context):
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


def _operations(context: Context) -> Iterator[MemcpyNode | MemsetNode]:
    yield from context.copies
    yield from context.memsets


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
    for node in _operations(context):
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
    for node in _operations(context):
        if node.destination.buffer.readonly:
            yield found(
                f"the owner of {node.destination.buffer.name!r} forbids writing",
                node=node,
                field="destination",
                value=node.destination,
                remedy="Adopt a writable copy of it.",
            )


@rule("GD311", "error", "Memset values that the dtype holds")
def memset_value(context: Context, found: Found) -> Iterator[Finding]:
    """The value of a memset is one that the dtype of its destination holds.

    **Why.** Each element is set to the bytes of that dtype.

    **Remedy.** Pass a value in range, or declare the destination with a wider dtype.

    **Wrong**

    ```python wrong
    marks = g.device_array("marks", 1024, np.uint8)
    g.memset(marks, 300)
    ```

    **Right**

    ```python right
    marks = g.device_array("marks", 1024, np.uint8)
    g.memset(marks, 255)
    ```
    """
    for node in context.memsets:
        value = context.value(node.value)
        if node.destination.dtype.names is not None or (value is None and node.value is not None):
            continue
        try:
            convert_scalar(value, node.destination.dtype, field="value")
        except GraphdslError as problem:
            yield found(
                problem.rule,
                node=node,
                field="value",
                value=problem.value,
                remedy=sentences(context.origin(node.value), problem.remedy),
            )


@rule("GD312", "error", "Memset values whose bytes repeat")
def memset_repeats(context: Context, found: Found) -> Iterator[Finding]:
    """The bytes of the value of a memset repeat every four bytes: those of 0 and -1 do at any width.

    **Why.** The driver sets 1, 2 or 4 bytes over and over. The value 1.0 in float64 is 8 bytes that do not repeat.

    **Source.** CUDA Driver API, `CUDA_MEMSET_NODE_PARAMS`: `elementSize` is 1, 2 or 4.

    **Remedy.** Fill with a kernel (`graphdsl.kernels` has one), or use a dtype of 4 bytes.

    **Wrong**

    ```python wrong
    wide = g.device_array("wide", 1024, np.float64)
    g.memset(wide, 1.0)
    ```

    **Right**

    ```python right
    wide = g.device_array("wide", 1024, np.float64)
    g.memset(wide, 0.0)
    ```
    """
    for node in context.memsets:
        value, dtype = _memset_value(context, node), node.destination.dtype
        if value is not None and memset_pattern(value, dtype) is None:
            yield found(
                f"a memset repeats {element_size(dtype)} bytes, and the {dtype.itemsize} bytes of this {dtype} do not "
                "repeat so",
                node=node,
                field="value",
                value=value,
                remedy=sentences(context.origin(node.value), "Fill with a kernel, or use a dtype of 4 bytes."),
            )


def _memset_value(context: Context, node: MemsetNode) -> Any:
    """The value of a memset as its dtype holds it; None if it does not, which GD311 reports."""
    value = context.value(node.value)
    if value is None or node.destination.dtype.names is not None:
        return None
    try:
        return convert_scalar(value, node.destination.dtype, field="value")
    except GraphdslError:
        return None


@rule("GD313", "error", "Memsets of memory that the device reaches")
def memset_pageable(context: Context, found: Found) -> Iterator[Finding]:
    """The destination of a memset is device memory or pinned host memory.

    **Why.** A memset runs on the device, which does not reach ordinary host memory.

    **Source.** CUDA Driver API, `CUDA_MEMSET_NODE_PARAMS`: `dst` is a device pointer.

    **Remedy.** Use pinned memory, or fill it in a host function.

    **Wrong**

    ```python wrong
    result = g.host_array("result", 1024, np.float32, pinned=False)
    g.memset(result, 0)
    ```

    **Right**

    ```python right
    result = g.host_array("result", 1024, np.float32)
    g.memset(result, 0)
    ```
    """
    for node in context.memsets:
        if node.destination.space == "pageable":
            yield found(
                "a memset cannot reach pageable host memory",
                node=node,
                field="destination",
                value=node.destination,
                remedy="Use pinned memory, as host_array gives by default, or fill it in a host function.",
            )


@rule("GD314", "error", "Memsets of numbers")
def memset_structured(context: Context, found: Found) -> Iterator[Finding]:
    """The destination of a memset has a dtype of numbers, not a structured one.

    **Why.** One value cannot stand for a structure of several.

    **Remedy.** Set the memory as bytes, through an array that shares it, or fill with a kernel.

    **Wrong**

    ```python wrong
    pairs = g.device_array("pairs", 1024, [("key", np.int32), ("count", np.int32)])
    g.memset(pairs, 0)
    ```

    **Right**

    ```python right
    counts = g.device_array("counts", 1024, np.int32)
    g.memset(counts, 0)
    ```
    """
    for node in context.memsets:
        if node.destination.dtype.names is not None:
            yield found(
                "a memset sets numbers, and this dtype is a structure",
                node=node,
                field="destination",
                value=node.destination,
                remedy="Fill it with a kernel, or keep each field in an array of its own.",
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
