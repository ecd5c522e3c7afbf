"""Rules about batch memory operation nodes: codes GD341 and GD342."""

from __future__ import annotations

from collections.abc import Iterator

from graphdsl.check.context import Context
from graphdsl.check.report import Finding
from graphdsl.check.rules import Found, rule
from graphdsl.check.subjects import label
from graphdsl.declare.nodes import BatchMemOpNode

_MOST = 255


@rule("GD341", "error", "Memory operations work on one word")
def one_word(context: Context, found: Found) -> Iterator[Finding]:
    """A memory operation works on one integer of 4 or 8 bytes, in device or pinned memory.

    **Why.** The device does it with one access, and cannot reach pageable memory.

    **Source.** CUDA Driver API, `cuStreamBatchMemOp`.

    **Remedy.** Pass one element, such as `flags[0]`, of an array of `uint32` or `uint64`.

    **Wrong**

    ```python wrong
    g.batch_mem_ops(gd.write_value(x[0], 1), may_deadlock=True)
    ```

    **Right**

    ```python right
    flags = g.device_array("flags", 4, np.uint32)
    g.batch_mem_ops(gd.write_value(flags[0], 1), may_deadlock=True)
    ```
    """
    for node in context.nodes:
        for index, operation in enumerate(node.operations) if isinstance(node, BatchMemOpNode) else ():
            array = operation.array
            if array is None:
                continue
            size = context.value(array.size)
            if array.dtype.kind not in "iu" or array.dtype.itemsize not in (4, 8) or size not in (None, 1):
                rule, remedy = (
                    f"a memory operation works on one integer of 4 or 8 bytes, and {label(array)} is "
                    f"{array.dtype}{list(array.shape)}",
                    "Pass one element of an array of uint32 or uint64, such as flags[0].",
                )
            elif array.space == "pageable":
                rule, remedy = (
                    "a memory operation reaches device memory and pinned memory",
                    "Declare the host array pinned, as it is by default.",
                )
            else:
                continue
            yield found(rule, node=node, field=f"operations[{index}].array", value=label(array), remedy=remedy)


@rule("GD342", "error", "No more memory operations than a node can have")
def too_many_operations(context: Context, found: Found) -> Iterator[Finding]:
    """A batch memory operation node has at most 255 operations.

    **Why.** The driver refuses more with `CUDA_ERROR_INVALID_VALUE`.

    **Source.** Measured on driver 580.

    **Remedy.** Declare several nodes, one after the other.

    **Wrong**

    ```python wrong
    flags = g.device_array("flags", 256, np.uint32)
    g.batch_mem_ops([gd.write_value(flags[i], 1) for i in range(256)], may_deadlock=True)
    ```

    **Right**

    ```python right
    flags = g.device_array("flags", 256, np.uint32)
    g.batch_mem_ops([gd.write_value(flags[i], 1) for i in range(255)], may_deadlock=True)
    ```
    """
    for node in context.nodes:
        if isinstance(node, BatchMemOpNode) and len(node.operations) > _MOST:
            yield found(
                f"a batch memory operation node has at most {_MOST} operations",
                node=node,
                field="operations",
                value=len(node.operations),
                remedy="Declare several nodes, one after the other.",
            )
