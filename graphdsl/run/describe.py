"""The calls that add nodes and edges, as text that a person can read: the same for every driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import Any

import numpy as np

from graphdsl.compile.image import KernelImage
from graphdsl.declare.kernel import name_of
from graphdsl.declare.nesting import ChildNode, ConditionalNode
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import (
    AllocNode,
    BatchMemOpNode,
    CapturedNode,
    EmptyNode,
    EventRecordNode,
    EventWaitNode,
    FreeNode,
    HostNode,
    KernelNode,
    MemcpyNode,
    MemsetNode,
    NativeHostNode,
)
from graphdsl.plan import Plan
from graphdsl.plan.levels import PORTS
from graphdsl.run.calls import Call
from graphdsl.run.devices import Devices
from graphdsl.run.rows import copied_rows, set_rows
from graphdsl.run.templates import body_count

_OWN_CALLS: dict[type[Node], str] = {
    KernelNode: "cuGraphAddKernelNode",
    MemcpyNode: "cuGraphAddMemcpyNode",
    MemsetNode: "cuGraphAddMemsetNode",
    HostNode: "cuGraphAddHostNode",
    NativeHostNode: "cuGraphAddHostNode",
    EmptyNode: "cuGraphAddEmptyNode",
}
"""Kinds that have a call of their own; all others are added by ``cuGraphAddNode``."""

_ARROWS = {number: "->" if port == "default" else f"-{port}->" for port, number in PORTS.items()}


def describe_node(node: Node, image: KernelImage | None, devices: Devices) -> Call:
    """The call that adds a node."""
    fields = _kernel_fields(node, image) if isinstance(node, KernelNode) else _fields(node)
    said = {} if isinstance(node, _NOWHERE) else devices.said(node.device)
    return Call(_OWN_CALLS.get(type(node), "cuGraphAddNode"), node.name, (*fields, *said.items()))


_NOWHERE = (HostNode, NativeHostNode, EmptyNode, ChildNode)
"""What runs on no device, or on those of its nodes."""


def describe_edges(
    plan: Plan, name: str, edges: np.ndarray[Any, Any], ports: np.ndarray[Any, np.dtype[np.uint8]]
) -> Call:
    """The call that adds edges to the graph or body called ``name``; ends are indices into the nodes of the plan."""
    ends = zip(edges.tolist(), ports.tolist(), strict=True)
    nodes = plan.nodes
    text = ", ".join(f"{nodes[source].name} {_ARROWS[port]} {nodes[target].name}" for (source, target), port in ends)
    return Call("cuGraphAddDependencies", name, (("edges", f"[{text}]"),))


Fields = list[tuple[str, Any]]


def _kernel_fields(node: KernelNode, image: KernelImage | None) -> Fields:
    assert image is not None, node
    types = ", ".join(map(str, image.layout.types))
    return [
        ("kern", f"{node.kernel.name}({types})"),
        ("grid", _dims(node.grid)),
        ("block", _dims(node.block)),
        ("sharedMemBytes", node.shared_bytes),
        ("kernelParams", "(" + ", ".join(map(_operand, node.args)) + ")"),
    ]


@singledispatch
def _fields(node: Node) -> Fields:
    return []


@_fields.register
def _(node: MemcpyNode) -> Fields:
    shown = [(_COPIED[name], extent) for name, extent in _shown(copied_rows(node.dimensions))]
    return [("dst", _operand(node.destination)), ("src", _operand(node.source)), *shown]


@_fields.register
def _(node: MemsetNode) -> Fields:
    return [("dst", _operand(node.destination)), ("value", node.value), *_shown(set_rows(node))]


@_fields.register
def _(node: HostNode) -> Fields:
    return [("fn", name_of(node.function, type(node.function).__name__))]


@_fields.register
def _(node: NativeHostNode) -> Fields:
    return [("fn", "a C function")]


@_fields.register
def _(node: CapturedNode) -> Fields:
    work = f"what {name_of(node.function, type(node.function).__name__)} does"
    return [("type", "GRAPH"), ("graph", work), ("args", "(" + ", ".join(map(_operand, node.args)) + ")")]


@_fields.register
def _(node: ChildNode) -> Fields:
    return [("type", "GRAPH"), ("graph", node.graph)]


@_fields.register
def _(node: ConditionalNode) -> Fields:
    return [
        ("type", "CONDITIONAL"),
        ("handle", node.condition),
        ("conditionalType", node.form.upper()),
        ("size", body_count(node)),
    ]


@_fields.register
def _(node: EventRecordNode) -> Fields:
    return [("type", "EVENT_RECORD"), ("event", node.event)]


@_fields.register
def _(node: EventWaitNode) -> Fields:
    return [("type", "WAIT_EVENT"), ("event", node.event)]


@_fields.register
def _(node: AllocNode) -> Fields:
    return [("type", "MEM_ALLOC"), ("bytesize", node.array.allocation_nbytes), ("dptr", node.array.name)]


@_fields.register
def _(node: BatchMemOpNode) -> Fields:
    return [("type", "BATCH_MEM_OP"), ("paramArray", f"[{', '.join(map(str, node.operations))}]")]


@_fields.register
def _(node: FreeNode) -> Fields:
    return [("type", "MEM_FREE"), ("dptr", node.array.name)]


# The driver's names of what says how much is copied. Of one row, only the width needs saying.
_COPIED = {
    "width": "WidthInBytes",
    "height": "Height",
    "depth": "Depth",
    "destination_pitch": "dstPitch",
    "source_pitch": "srcPitch",
    "destination_height": "dstHeight",
    "source_height": "srcHeight",
}
_OF_ONE_ROW = {"height": 1, "depth": 1}


def _shown(extents: Mapping[str, Any]) -> list[tuple[str, Any]]:
    def missing(name: str, extent: Any) -> bool:
        return type(extent) is int and extent == _OF_ONE_ROW.get(name, 0)

    return [(name, extent) for name, extent in extents.items() if name == "width" or not missing(name, extent)]


def _dims(dims: Sequence[Any]) -> str:
    return "(" + ", ".join(map(str, dims)) + ")"


def _operand(operand: Any) -> str:
    return getattr(operand, "name", None) or str(operand)
