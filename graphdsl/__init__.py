"""graphdsl: explicit CUDA graphs, declared, checked, drawn, built and updated by name from Python.

Only names stand here. Importing the package imports neither CUDA nor Numba.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphdsl import passes
from graphdsl.check import Finding, Report
from graphdsl.declare.attributes import AccessPolicy
from graphdsl.declare.batch import memory_barrier, wait_value, write_value
from graphdsl.declare.expressions import Expr, Param, cdiv, maximum, minimum
from graphdsl.declare.foreign import triton
from graphdsl.declare.limits import Limits
from graphdsl.declare.node import Node
from graphdsl.declare.operands import Buffer, View
from graphdsl.declare.sources import SourceKernel, cubin, cuda_source, ptx
from graphdsl.errors import (
    ArenaError,
    BucketError,
    BuildError,
    CallbackError,
    CaptureError,
    CheckError,
    CompileError,
    DeclarationError,
    DriverError,
    ExecUnusableError,
    GraphdslError,
    MemoryFault,
    OrderError,
    PaddingError,
    RefusedError,
    UpdateError,
)
from graphdsl.graph import Graph, cuda, default_device, emulator, from_handle
from graphdsl.serve.buckets import Buckets
from graphdsl.serve.padding import Padding

if TYPE_CHECKING:
    from graphdsl import device, testing
    from graphdsl.compile.elementwise import elementwise
    from graphdsl.run.device_array import DeviceArray, device_array, to_device
    from graphdsl.run.graph_exec import GraphExec
    from graphdsl.serve.events import Observer
    from graphdsl.serve.graph_cache import GraphCache
    from graphdsl.serve.metrics import Metrics

__all__ = [
    "AccessPolicy",
    "ArenaError",
    "BucketError",
    "Buckets",
    "Buffer",
    "BuildError",
    "CallbackError",
    "CaptureError",
    "CheckError",
    "CompileError",
    "DeclarationError",
    "DeviceArray",
    "DriverError",
    "ExecUnusableError",
    "Expr",
    "Finding",
    "Graph",
    "GraphCache",
    "GraphExec",
    "GraphdslError",
    "Limits",
    "MemoryFault",
    "Metrics",
    "Node",
    "Observer",
    "OrderError",
    "Padding",
    "PaddingError",
    "Param",
    "RefusedError",
    "Report",
    "SourceKernel",
    "UpdateError",
    "View",
    "cdiv",
    "cubin",
    "cuda",
    "cuda_source",
    "default_device",
    "device",
    "device_array",
    "elementwise",
    "emulator",
    "from_handle",
    "maximum",
    "memory_barrier",
    "minimum",
    "passes",
    "ptx",
    "testing",
    "to_device",
    "triton",
    "wait_value",
    "write_value",
]

__version__ = "0.1.0"

# These need Numba, which takes a second to import: they come when first asked for.
_LATE = {
    "DeviceArray": "graphdsl.run.device_array",
    "GraphCache": "graphdsl.serve.graph_cache",
    "GraphExec": "graphdsl.run.graph_exec",
    "Metrics": "graphdsl.serve.metrics",
    "Observer": "graphdsl.serve.events",
    "device": "graphdsl.device",
    "device_array": "graphdsl.run.device_array",
    "elementwise": "graphdsl.compile.elementwise",
    "testing": "graphdsl.testing",
    "to_device": "graphdsl.run.device_array",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    module = importlib.import_module(_LATE[name])
    found = module if module.__name__ == f"{__name__}.{name}" else getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_LATE])
