"""Rules about memsets: codes GD311 to GD314."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graphdsl.check.context import Context
from graphdsl.check.report import Finding
from graphdsl.check.rules import Found, rule
from graphdsl.check.subjects import sentences
from graphdsl.declare.nodes import MemsetNode
from graphdsl.declare.pattern import element_size, memset_pattern
from graphdsl.declare.scalars import convert_scalar
from graphdsl.errors import GraphdslError


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
