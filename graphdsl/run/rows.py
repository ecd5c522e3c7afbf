"""Copies and memsets as the driver is told of their rows: fields of its structs, and what updates must keep of them.

An exec's copy of several rows cannot be updated at all, and of a memset of several rows only the destination and the
value can (cuda.h, `cuGraphExecMemcpyNodeSetParams` and `cuGraphExecMemsetNodeSetParams`). This module must not pack or
send anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from graphdsl.declare.expressions import value_of
from graphdsl.declare.nodes import MemcpyNode, MemsetNode
from graphdsl.declare.operands import Array, Extent
from graphdsl.declare.pattern import element_size
from graphdsl.declare.rows import Dimension, padded

SIDES = ("destination", "source")
"""Of a copy, in the order of the strides of its dimensions."""


def copied_rows(dimensions: tuple[Dimension, ...]) -> dict[str, Extent]:
    """The fields of a copy that say how much is copied, and how far apart it lies on either side."""
    slices, rows, row = padded(dimensions)
    fields: dict[str, Extent] = {"width": row.extent, "height": rows.extent, "depth": slices.extent}
    for i, side in enumerate(SIDES):
        pitch = rows.strides[i]
        fields[f"{side}_pitch"] = pitch
        fields[f"{side}_height"] = slices.strides[i] // pitch if pitch else 0
    return fields


def set_rows(node: MemsetNode) -> dict[str, Extent]:
    """The fields of a memset that say how much is set, and how far apart it lies."""
    _, rows, row = padded(node.dimensions)
    width = row.extent // element_size(node.destination.dtype)
    return {"width": width, "height": rows.extent, "pitch": rows.strides[0]}


class Rows(NamedTuple):
    """What an update must keep, and how messages call it.

    Attributes
    ----------
    text : str
        For messages.
    kept : object
        Equal as long as it is kept.
    """

    text: str
    kept: Any

    def __str__(self) -> str:
        return self.text


_ONE_RUN = Rows("one run of bytes", None)
_ONE_ROW = Rows("one row", None)


def kept_of_copy(node: MemcpyNode, side: str, values: Mapping[str, Any]) -> Rows:
    """Of one run of bytes nothing but that it is one; of several rows all that a side of a copy says."""
    dimensions = node.dimensions
    if len(dimensions) == 1:
        return _ONE_RUN
    fields = {name: int(value_of(extent, values)) for name, extent in copied_rows(dimensions).items()}
    slices, rows, width = fields["depth"], fields["height"], fields["width"]
    if slices == rows == 1:
        return _ONE_RUN
    array: Array = getattr(node, side)
    address = values[array.buffer.name] + value_of(array.offset, values)
    text = f"{rows} rows of {width} bytes"
    text = f"{slices} slices of {text}" if slices > 1 else text
    return Rows(text, (slices, rows, width, fields[f"{side}_pitch"], fields[f"{side}_height"], address))


def kept_of_memset(node: MemsetNode, values: Mapping[str, Any]) -> Rows:
    """Of one row nothing but that it is one; of several rows how many there are, how long, and how far apart."""
    if len(node.dimensions) == 1:
        return _ONE_ROW
    fields = {name: int(value_of(extent, values)) for name, extent in set_rows(node).items()}
    if fields["height"] == 1:
        return _ONE_ROW
    size = element_size(node.destination.dtype)
    text = f"{fields['height']} rows of {fields['width']} times {size} bytes, {fields['pitch']} bytes apart"
    return Rows(text, (size, *fields.values()))
