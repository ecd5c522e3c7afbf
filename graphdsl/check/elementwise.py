"""Rules about elementwise kernels: codes GD261 and GD262."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from graphdsl.check.context import Context
from graphdsl.check.report import Finding
from graphdsl.check.rules import Found, rule
from graphdsl.check.subjects import label, sentences
from graphdsl.declare.accesses import Access
from graphdsl.declare.elementwise import ElementwiseKernel
from graphdsl.declare.interop import foreign_array
from graphdsl.declare.nodes import KernelNode
from graphdsl.declare.operands import Array, Buffer
from graphdsl.declare.regions import Region, overlap, region_of


@rule("GD261", "error", "What elementwise nodes write is not read beside it")
def overlapping_elements(context: Context, found: Found) -> Iterator[Finding]:
    """An array that an elementwise node writes is the same elements as another one of its arrays, or shares no memory
    with it.

    **Why.** Each thread reads and writes its own element, in any order of threads: an array that overlaps what is
    written by a shift is read before or behind the write, as it happens. The rule holds for memory that an update
    binds, too.

    **Remedy.** Write to another array, or pass the very same slice.

    **Wrong**

    ```python wrong
    @gd.elementwise
    def smooth(left, right):
        return (left + right) / 2

    g.elementwise(smooth, x[1:], (x[:-1], x[1:]))
    ```

    **Right**

    ```python right
    @gd.elementwise
    def smooth(left, right):
        return (left + right) / 2

    g.elementwise(smooth, y[1:], (x[:-1], x[1:]))
    ```
    """
    for node in context.kernels:
        if isinstance(node.kernel, ElementwiseKernel):
            for index, other in _overlaps(context, node):
                yield found(
                    "it overlaps what the node writes, and is not the same elements",
                    node=node,
                    field=node.argument_name(other),
                    value=f"{label(node.args[other])}, beside {label(node.args[index])}",
                    remedy="Write to another array, or pass the very same slice for both.",
                )


@rule("GD262", "error", "Arrays of elementwise nodes have one shape")
def different_shapes(context: Context, found: Found) -> Iterator[Finding]:
    """The arrays of an elementwise node have one shape, with the values that params have. An array of no dimensions
    goes with all of them.

    **Why.** The node has a thread for each element of the first, which would read and write outside of a smaller one.

    **Remedy.** Slice them to one shape; where extents follow params, by the same expression.

    **Wrong**

    ```python wrong
    @gd.elementwise
    def double(x):
        return x + x

    g.elementwise(double, y, x[:n])
    values = {"n": 1000}
    ```

    **Right**

    ```python right
    @gd.elementwise
    def double(x):
        return x + x

    g.elementwise(double, y[:n], x[:n])
    values = {"n": 1000}
    ```
    """
    for node in context.kernels:
        if isinstance(node.kernel, ElementwiseKernel):
            regions = [context.region(arg) if isinstance(arg, Array) and arg.shape else None for arg in node.args]
            first = next((region.shape for region in regions if region), ())
            for index, region in enumerate(regions):
                if region and region.shape != first:
                    yield found(
                        f"its shape is {region.shape}, and that of the first array is {first}",
                        node=node,
                        field=node.argument_name(index),
                        value=label(node.args[index]),
                        remedy=sentences(context.origin(node.args[index]), "Slice the arrays to one shape."),
                    )


def _overlaps(context: Context, node: KernelNode) -> Iterator[tuple[int, int]]:
    """The arguments that are written, each with others that share memory with it and are not the same elements."""
    assert isinstance(node.kernel, ElementwiseKernel), node
    places = [_place(context, arg) if isinstance(arg, Array) else None for arg in node.args]
    for index, place in enumerate(places):
        if place is not None and node.kernel.writes(index):
            for other, beside in enumerate(places):
                if beside is not None and other != index and place.meets(beside):
                    yield index, other


class _Place(NamedTuple):
    """Where the elements of an array lie: the memory, the bytes in it, and what equal elements have in common."""

    memory: str | None
    region: Region
    elements: object

    def meets(self, other: _Place) -> bool:
        """True if the two share bytes, or may, and are not the same elements."""
        if self.memory != other.memory or self.elements == other.elements:
            return False
        return overlap(self.region, other.region) is not False


def _place(context: Context, array: Array) -> _Place | None:
    found = context.region(array)
    if found is None:
        return None
    memory, base = _memory(context, array.buffer)
    region, _ = region_of(Access(array, True, True), context.values, base)
    return _Place(memory, region, (region.start, found.shape, array.strides, array.dtype))


def _memory(context: Context, buffer: Buffer) -> tuple[str | None, int]:
    """The address of a buffer where it is known, else a memory of its own that begins at 0."""
    if buffer.name in context.values:  # an exec knows all of them
        return None, int(context.values[buffer.name])
    return (None, foreign_array(buffer.owner, buffer.name).address) if buffer.external else (buffer.name, 0)
