"""What a user may pass for a graph that somebody else has built.

Libraries are not imported: their objects are known by what they have. This module must not ask the driver.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphdsl.drivers.base import Driver, Handle
from graphdsl.errors import DeclarationError

_KINDS = "a CUgraph, a GraphDefinition or GraphBuilder of cuda.core, a torch.cuda.CUDAGraph, or a GraphExec"


def graph_handle(source: Any) -> tuple[Handle, Any, Driver | None]:
    """The driver's handle of a graph, what keeps it alive, and the device of a `GraphExec`.

    Raises
    ------
    DeclarationError
        If it has no handle of a graph, or one of an exec, which no driver looks into.

    Examples
    --------
    >>> graph_handle(4096)
    (4096, None, None)
    """
    handle = getattr(source, "handle", source)
    if type(handle).__name__ == "CUgraphExec":
        raise _refused(
            source,
            "an exec cannot be looked into, only the graph that it was made from",
            "Pass the GraphDefinition or the GraphBuilder.",
        )
    if isinstance(source, (int, np.integer)) and not isinstance(source, bool):
        return _checked(int(source), source), None, None
    if hasattr(source, "graph_handle"):
        return _checked(source.graph_handle, source), source, source.device
    if hasattr(source, "raw_cuda_graph"):
        return _checked(_of_torch(source), source), source, None
    if hasattr(type(source), "graph_definition"):  # of a builder of cuda.core
        return _checked(_attempt(lambda: int(source.graph_definition.handle), source), source), source, None
    if isinstance(handle, (bool, float, np.bool_, np.floating)):
        raise _refused(source, "it has no handle of a graph", f"Pass {_KINDS}.")
    return _checked(_attempt(lambda: int(handle), source), source), source, None


def _of_torch(source: Any) -> int:
    try:
        return int(source.raw_cuda_graph())
    except Exception as problem:  # PyTorch says no more than that there is none
        raise _refused(
            source, f"PyTorch does not give the graph: {problem}", "Make it with torch.cuda.CUDAGraph(keep_graph=True)."
        ) from problem


def _attempt(handle: Any, source: Any) -> int:
    try:
        return int(handle())
    except Exception as problem:  # whatever an object of another library raises
        raise _refused(source, f"it has no handle of a graph: {problem}", f"Pass {_KINDS}.") from problem


def _checked(handle: int, source: Any) -> Handle:
    if handle > 0:
        return handle
    raise _refused(source, "the handle of a graph is not NULL", f"Pass {_KINDS}.")


def _refused(source: Any, rule: str, remedy: str) -> DeclarationError:
    return DeclarationError(rule, field="graph", value=f"{source!r} of type {type(source).__name__}", remedy=remedy)
