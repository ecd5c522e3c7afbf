"""Rules about copies and memsets of rows: what the driver's two and three dimensions hold; codes GD322 to GD327, GD330.

A copy walks through slices, rows, and the bytes of a row; a memset through rows and bytes. Dimensions that follow one
another without a gap on both sides are one to it (`graphdsl.declare.rows`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from graphdsl.check.context import Context
from graphdsl.check.report import Finding
from graphdsl.check.rules import Found, rule
from graphdsl.check.subjects import label, sentences
from graphdsl.declare.nodes import MemcpyNode, MemsetNode
from graphdsl.declare.operands import Array
from graphdsl.declare.pattern import element_size
from graphdsl.declare.rows import padded

SECTOR_BYTES = 32
"""What device memory is read and written in (CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory")."""


def sides(node: MemcpyNode | MemsetNode) -> list[tuple[str, Array]]:
    """Fields of the operands in memory, in the order of the strides of the node's dimensions."""
    found: list[tuple[str, Array]] = [("destination", node.destination)]
    return [*found, ("source", node.source)] if isinstance(node, MemcpyNode) else found


@rule("GD322", "error", "Copies of at most three dimensions")
def copy_dimensions(context: Context, found: Found) -> Iterator[Finding]:
    """A copy has at most three dimensions: slices, rows, and the bytes of a row.

    Dimensions count where a step over one of them does not land behind all of the next, on either side: a contiguous
    array has one, whatever its shape. If elements of the last dimension lie apart, each of them is a row.

    **Why.** The driver's copy has a width, a height and a depth, and one pitch for all rows of a side.

    **Source.** CUDA Driver API, `CUDA_MEMCPY3D`.

    **Remedy.** Copy slice by slice, or use a kernel.

    **Wrong**

    ```python wrong
    cube = g.device_array("cube", (4, 8, 8, 16), np.float32)
    part = g.host_array("part", (4, 4, 4, 8), np.float32)
    g.memcpy(part, cube[:, :4, :4, :8])
    ```

    **Right**

    ```python right
    cube = g.device_array("cube", (4, 8, 8, 16), np.float32)
    part = g.host_array("part", (4, 4, 4, 8), np.float32)
    for i in range(4):
        g.memcpy(part[i], cube[i, :4, :4, :8])
    ```
    """
    for node in context.copies:
        dimensions = context.dimensions(node)
        if dimensions is not None and len(dimensions) > 3:
            yield found(
                f"a copy has at most three dimensions, and of the source {label(node.source)} and the destination "
                f"{label(node.destination)} together {len(dimensions)} do not follow one another",
                node=node,
                field="source",
                value=f"strides {node.source.strides}, destination strides {node.destination.strides}",
                remedy="Copy slice by slice, or use a kernel.",
            )


@rule("GD323", "error", "Memsets of at most two dimensions")
def memset_dimensions(context: Context, found: Found) -> Iterator[Finding]:
    """A memset has at most two dimensions: rows, and the elements of a row.

    Dimensions count where a step over one of them does not land behind all of the next: a contiguous array has one,
    whatever its shape. If elements of the last dimension lie apart, each of them is a row.

    **Why.** The driver's memset has a width, a height and one pitch.

    **Source.** CUDA Driver API, `CUDA_MEMSET_NODE_PARAMS`.

    **Remedy.** Set it slice by slice, or use a kernel.

    **Wrong**

    ```python wrong
    cube = g.device_array("cube", (4, 8, 16), np.float32)
    g.memset(cube[:, :4, :8], 0)
    ```

    **Right**

    ```python right
    cube = g.device_array("cube", (4, 8, 16), np.float32)
    for i in range(4):
        g.memset(cube[i, :4, :8], 0)
    ```
    """
    for node in context.memsets:
        dimensions = context.dimensions(node)
        if dimensions is not None and len(dimensions) > 2:
            yield found(
                f"a memset has at most two dimensions, and {len(dimensions)} of this destination do not follow one "
                f"another: its strides are {node.destination.strides} bytes",
                node=node,
                field="destination",
                value=node.destination,
                remedy="Set it slice by slice, or use a kernel.",
            )


@rule("GD324", "error", "Slices a whole number of rows apart")
def slice_pitch(context: Context, found: Found) -> Iterator[Finding]:
    """In a copy of three dimensions, slices are a whole number of rows apart, on both sides.

    **Why.** The driver is told how many rows a slice has room for, not how many bytes.

    **Source.** CUDA Driver API, `CUDA_MEMCPY3D`: `srcHeight` and `dstHeight` count rows.

    **Remedy.** Copy slice by slice, or take another step between the rows.

    **Wrong**

    ```python wrong
    cube = g.device_array("cube", (4, 10, 16), np.float32)
    part = g.host_array("part", (4, 4, 8), np.float32)
    g.memcpy(part, cube[:, ::3, :8])
    ```

    **Right**

    ```python right
    cube = g.device_array("cube", (4, 10, 16), np.float32)
    part = g.host_array("part", (4, 5, 8), np.float32)
    g.memcpy(part, cube[:, ::2, :8])
    ```
    """
    for node in context.copies:
        dimensions = context.dimensions(node)
        if dimensions is None or len(dimensions) != 3:
            continue
        slices, rows, _ = dimensions
        for (side, array), apart, pitch in zip(sides(node), slices.strides, rows.strides, strict=True):
            if pitch and apart > pitch and apart % pitch:  # slices closer than rows change places, which is GD306's
                yield found(
                    f"slices of a copy are a whole number of rows apart, and these {apart} bytes with rows {pitch} "
                    "bytes apart",
                    node=node,
                    field=side,
                    value=array,
                    remedy="Copy slice by slice, or take another step between the rows.",
                )


@rule("GD325", "error", "Rows that lie apart")
def rows_apart(context: Context, found: Found) -> Iterator[Finding]:
    """The rows of a copy or memset do not lie in one another, nor do its slices: a step is no shorter than what it
    steps over.

    **Why.** The driver refuses a pitch below the width of a row. Such strides come with external arrays: broadcast
    ones, whose strides are 0, and sliding windows.

    **Source.** CUDA Driver API, `cuMemcpy3D`: `srcPitch` must be at least `WidthInBytes`.

    **Remedy.** Adopt a copy of it that is contiguous, or use a kernel.

    **Wrong**

    ```python wrong
    table = g.device_array("table", (8, 16), np.float32)
    ones = g.external("ones", np.broadcast_to(np.ones(16, np.float32), (8, 16)))
    g.memcpy(table, ones)
    ```

    **Right**

    ```python right
    table = g.device_array("table", (8, 16), np.float32)
    ones = g.external("ones", np.ones((8, 16), np.float32))
    g.memcpy(table, ones)
    ```
    """
    for node in context.transfers:
        dimensions = context.dimensions(node) or ()
        for i, (side, array) in enumerate(sides(node)):
            steps = [(each.strides[i], each.extent) for each in dimensions]
            for (apart, _), (step, extent) in pairwise(steps):
                # What is no whole number of steps is GD324's, or changes places and is GD306's.
                if step and apart % step == 0 and apart < step * extent:
                    yield found(
                        f"rows and slices of a {node.kind} are at least as far apart as they are long, and {apart} "
                        f"bytes from one to the next are fewer than {step * extent}",
                        node=node,
                        field=side,
                        value=array,
                        remedy="Adopt a copy of it that is contiguous, or use a kernel.",
                    )
                    break


@rule("GD326", "error", "Rows no farther apart than the device takes")
def pitch_limit(context: Context, found: Found) -> Iterator[Finding]:
    """The rows of a copy are no farther apart than the device's largest pitch, 2,147,483,647 bytes.

    **Why.** The driver refuses a larger pitch.

    **Source.** CUDA Driver API, `cuMemcpy3D` and `CU_DEVICE_ATTRIBUTE_MAX_PITCH`.

    **Remedy.** Copy row by row, or use a kernel.

    **Wrong**

    ```python wrong
    wide = g.device_array("wide", (2, 2**30), np.float32)
    g.memcpy(g.host_array("ends", (2, 16), np.float32), wide[:, :16])
    ```

    **Right**

    ```python right
    wide = g.device_array("wide", (2, 2**28), np.float32)
    g.memcpy(g.host_array("ends", (2, 16), np.float32), wide[:, :16])
    ```
    """
    most = context.limits.max_pitch
    for node in context.copies:
        dimensions = context.dimensions(node)
        if dimensions is None or len(dimensions) > 3:
            continue
        slices, rows, _ = padded(dimensions)
        if slices.extent == rows.extent == 1:  # the driver looks at no pitch then
            continue
        for (side, array), pitch in zip(sides(node), rows.strides, strict=True):
            if pitch > most:
                yield found(
                    f"{context.limits.name} takes rows of a copy up to {most} bytes apart, and these are {pitch}",
                    node=node,
                    field=side,
                    value=array,
                    remedy="Copy row by row, or use a kernel.",
                )


@rule("GD327", "error", "Memsets aligned to their elements")
def memset_alignment(context: Context, found: Found) -> Iterator[Finding]:
    """The rows of a memset begin at multiples of what it repeats: 1, 2 or 4 bytes.

    **Why.** The driver refuses other destinations and pitches. Such strides come with external arrays, of fields of
    packed structures for instance.

    **Source.** CUDA Driver API, `cuMemsetD2D32`: destination and pitch must be aligned.

    **Remedy.** Adopt an aligned array, or fill with a kernel.

    **Wrong**

    ```python wrong
    class Packed:
        __cuda_array_interface__ = {
            "shape": (8,), "strides": (6,), "typestr": "<f4", "data": (4096, False), "version": 3
        }

    g.memset(g.external("packed", Packed()), 0)
    ```

    **Right**

    ```python right
    class Aligned:
        __cuda_array_interface__ = {
            "shape": (8,), "strides": (8,), "typestr": "<f4", "data": (4096, False), "version": 3
        }

    g.memset(g.external("aligned", Aligned()), 0)
    ```
    """
    for node in context.memsets:
        dimensions, region = context.dimensions(node), context.region(node.destination)
        if dimensions is None or region is None or len(dimensions) > 2:
            continue
        size = element_size(node.destination.dtype)
        _, rows, _ = padded(dimensions)
        pitch = rows.strides[0]
        if region.offset % size or (rows.extent > 1 and pitch % size):
            yield found(
                f"rows of a memset begin at multiples of {size} bytes, and these begin at byte {region.offset} of "
                f"{node.destination.buffer.name!r}, {pitch} bytes apart",
                node=node,
                field="destination",
                value=node.destination,
                remedy="Adopt an aligned array, or fill with a kernel.",
            )


@rule("GD330", "advice", "Rows of at least 32 bytes")
def short_rows(context: Context, found: Found) -> Iterator[Finding]:
    """Each row of a copy or memset of rows has at least 32 bytes.

    **Why.** Device memory is read and written in sectors of 32 bytes, and the driver works row by row. A column of a
    table of numbers, or every other element, is as many rows as it has elements.

    **Source.** CUDA C++ Best Practices Guide, coalesced access to global memory.

    **Remedy.** Work on whole rows, or gather and scatter with a kernel.

    **Wrong**

    ```python wrong
    table = g.device_array("table", (32, 32), np.float32)
    g.memset(table[:, 0], 0)
    ```

    **Right**

    ```python right
    table = g.device_array("table", (32, 32), np.float32)
    g.memset(table[:, :8], 0)
    ```
    """
    for node in context.transfers:
        dimensions = context.dimensions(node)
        if dimensions is None or len(dimensions) == 1:
            continue
        *outer, row = dimensions
        if 0 < row.extent < SECTOR_BYTES and any(each.extent > 1 for each in outer):
            yield found(
                f"memory is read and written in sectors of {SECTOR_BYTES} bytes, and each row of this {node.kind} has "
                f"{row.extent}",
                node=node,
                field="destination",
                value=node.destination,
                remedy=sentences(context.origin(node.destination), "Work on whole rows, or use a kernel."),
            )
