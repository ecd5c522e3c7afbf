"""The driver's parameter structs, filled from plain numbers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from cuda.bindings import driver

from tests.conformance.behaviour.gpu import Gpu

Operation = tuple[Any, ...]
"""An operation of a batch: its name, then address, value and flags; such as ``("write", address, 1)``."""

# Attributes of kernel nodes, by the driver's numbers: cuda.bindings has no names for all that the driver knows.
WINDOW, COOPERATIVE, SYNC_POLICY, CLUSTER, SCHEDULING = 1, 2, 3, 4, 5
STREAM_SERIALIZATION, PROGRAMMATIC_EVENT, PRIORITY, DOMAIN_MAP, DOMAIN = 6, 7, 8, 9, 10
PREFERRED_CLUSTER, COMPLETION_EVENT, DEVICE_UPDATABLE, CARVEOUT = 11, 12, 13, 14


def copy(
    target: int,
    source: int,
    width: int,
    height: int = 1,
    depth: int = 1,
    *,
    to: str = "DEVICE",
    of: str = "DEVICE",
    **fields: Any,
) -> Any:
    """A copy of ``width`` bytes, ``height`` rows and ``depth`` slices; ``fields`` are the driver's own."""
    made = driver.CUDA_MEMCPY3D()
    for side, memory, address in (("dst", to, target), ("src", of, source)):
        setattr(made, f"{side}MemoryType", getattr(driver.CUmemorytype, f"CU_MEMORYTYPE_{memory}"))
        setattr(made, f"{side}{'Host' if memory == 'HOST' else 'Device'}", address)
    made.WidthInBytes, made.Height, made.Depth = width, height, depth
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def fill(target: int, value: int, width: int = 1, height: int = 1, *, size: int = 4, pitch: int = 0) -> Any:
    """A memset of ``width`` elements of ``size`` bytes in each of ``height`` rows."""
    made = driver.CUDA_MEMSET_NODE_PARAMS()
    made.dst, made.value, made.elementSize = target, value, size
    made.width, made.height, made.pitch = width, height, pitch
    return made


_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def callback(gpu: Gpu, function: Callable[[], Any]) -> Any:
    """A host function."""
    made = driver.CUDA_HOST_NODE_PARAMS()
    compiled = gpu.keep(_Callback(lambda _: function()))
    made.fn = ctypes.cast(compiled, ctypes.c_void_p).value
    return made


_OPERATIONS = {
    "write": ("WRITE_VALUE_32", "writeValue", "value"),
    "write64": ("WRITE_VALUE_64", "writeValue", "value64"),
    "wait": ("WAIT_VALUE_32", "waitValue", "value"),
    "wait64": ("WAIT_VALUE_64", "waitValue", "value64"),
    "flush": ("FLUSH_REMOTE_WRITES", "flushRemoteWrites", ""),
    "barrier": ("BARRIER", "memoryBarrier", ""),
}


def batch(gpu: Gpu, operations: Sequence[Operation]) -> Any:
    """A batch of memory operations."""
    array = [_operation(*operation) for operation in operations]
    made = driver.CUDA_BATCH_MEM_OP_NODE_PARAMS()
    made.ctx, made.count, made.flags = gpu.context, len(array), 0
    made.paramArray = array
    return gpu.keep((made, array))[0]


def _operation(name: str, address: int = 0, value: int = 0, flags: int = 0) -> Any:
    kind, member, number = _OPERATIONS[name]
    made = driver.CUstreamBatchMemOpParams()
    made.operation = getattr(driver.CUstreamBatchMemOpType, f"CU_STREAM_MEM_OP_{kind}")
    if number:
        part = getattr(made, member)
        part.operation = made.operation
        part.address, part.flags = address, flags
        setattr(part, number, value)
    return made


def allocation(gpu: Gpu, nbytes: int, *, shared_as: str = "NONE", access: Sequence[str] = ()) -> Any:
    """An allocation of a graph; ``access`` are rights for the device, such as ``"READWRITE"``."""
    made = driver.CUDA_MEM_ALLOC_NODE_PARAMS()
    made.poolProps.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    made.poolProps.handleTypes = getattr(driver.CUmemAllocationHandleType, f"CU_MEM_HANDLE_TYPE_{shared_as}")
    made.poolProps.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    made.poolProps.location.id = int(gpu.device)
    made.bytesize = nbytes
    if access:
        array = [_access(gpu, right) for right in access]
        made.accessDescs = array
        made.accessDescCount = len(array)
    return gpu.keep(made)


def _access(gpu: Gpu, right: str) -> Any:
    made = driver.CUmemAccessDesc()
    made.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    made.location.id = int(gpu.device)
    made.flags = getattr(driver.CUmemAccess_flags, f"CU_MEM_ACCESS_FLAGS_PROT_{right}")
    return made


def moved(graph: Any) -> Any:
    """A child graph that its parent takes over."""
    made = driver.CUgraphNodeParams()
    made.type = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_GRAPH
    made.graph.graph = graph
    made.graph.ownership = driver.CUgraphChildGraphNodeOwnership.CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE
    return made


def conditional(gpu: Gpu, condition: Any, kind: int, size: int) -> Any:
    made = driver.CUgraphNodeParams()
    made.type = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
    made.conditional.handle = condition
    made.conditional.type = driver.CUgraphConditionalNodeType(kind)
    made.conditional.size = size
    made.conditional.ctx = gpu.context
    return gpu.keep(made)


def generic_kernel(launch: Any) -> Any:
    """Kernel parameters for the calls that take any kind of node."""
    made = driver.CUgraphNodeParams()
    made.type = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
    for axis in "XYZ":
        for name in (f"gridDim{axis}", f"blockDim{axis}"):
            setattr(made.kernel, name, getattr(launch, name))
    made.kernel.func, made.kernel.sharedMemBytes = launch.func, launch.sharedMemBytes
    made.kernel.kernelParams = launch.kernelParams
    return made


def edge(from_port: int, to_port: int, kind: int) -> Any:
    made = driver.CUgraphEdgeData()
    made.from_port, made.to_port, made.type = from_port, to_port, kind
    return made


def attribute(number: int, **fields: Any) -> tuple[Any, Any]:
    """Number and value of an attribute; a tuple is set member by member, as in ``clusterDim=(2, 1, 1)``."""
    made = driver.CUkernelNodeAttrValue()
    for name, value in fields.items():
        if isinstance(value, tuple):
            part = getattr(made, name)
            part.x, part.y, part.z = value
        elif isinstance(value, dict):
            for member, inner in value.items():
                setattr(getattr(made, name), member, inner)
        else:
            setattr(made, name, value)
    return driver.CUkernelNodeAttrID(number), made


def window(
    address: int, nbytes: int = 1024, ratio: float = 0.5, hit: str = "PERSISTING", miss: str = "STREAMING"
) -> Any:
    """An access-policy window, for `attribute`."""
    return {
        "base_ptr": address,
        "num_bytes": nbytes,
        "hitRatio": ratio,
        "hitProp": getattr(driver.CUaccessProperty, f"CU_ACCESS_PROPERTY_{hit}"),
        "missProp": getattr(driver.CUaccessProperty, f"CU_ACCESS_PROPERTY_{miss}"),
    }


def soiled(made: Any) -> Any:
    """The same parameters with a byte set that no kind of node uses: the last of the union."""
    union_start, union_bytes = 16, 232  # CUgraphNodeParams_st
    ctypes.c_uint8.from_address(made.getPtr() + union_start + union_bytes - 1).value = 1
    return made
