"""The seam over a CUDA device: `cuda.bindings` for driver calls, `cuda.core` for devices and views of memory.

Imported only when a GPU is asked for. This module must not decide anything about graphs: it calls, and turns result
codes into errors.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
from cuda.bindings import driver
from cuda.core import Buffer, Device
from cuda.core.utils import StridedMemoryView

from graphdsl import forks
from graphdsl.compile.image import KernelImage
from graphdsl.declare.interop import host_bytes
from graphdsl.declare.limits import LARGE_PARAMETER_BYTES, MAX_CLUSTER, PREFERRED_CLUSTERS_SINCE, Limits
from graphdsl.drivers.base import Address, Handle, OneByOne, require_device
from graphdsl.drivers.host_threads import REMEDY, RULE, in_host_function, threads
from graphdsl.drivers.results import RESULTS, UPDATE_RESULTS, ExecUpdateError, InstantiateError, driver_error
from graphdsl.drivers.structs import (
    ATTRIBUTE_VALUE_BYTES,
    CHILD,
    CHILD_GRAPH_NODE,
    EDGE_DATA,
    EMPTY,
    EXEC_UPDATE_RESULT,
    GENERIC,
    HOST_NODE,
    KERNEL_NODE,
    MEMCPY,
    MEMCPY_NODE,
    MEMORY_TYPE_DEVICE,
    MEMSET,
    MEMSET_NODE,
    UNION_OFFSET,
)
from graphdsl.errors import DriverError, GraphdslError

_logger = logging.getLogger("graphdsl")

_DLPACK_CUDA = 2  # kDLCUDA
_ABI = 13000  # the CUDA version whose meaning of the plain function names is wanted
_PROC_FLAGS = driver.CUdriverProcAddress_flags.CU_GET_PROC_ADDRESS_DEFAULT
_NOT_FOUND = 500

# The driver's functions by the kind of node, in the order of `graphdsl.drivers.structs`.
_ADD_CALLS = tuple(f"cuGraphAdd{kind}Node" for kind in ("Kernel", "Memcpy", "Memset", "Host", "Empty", "", ""))
# An empty node has nothing to set, and is never sent.
_SET_CALLS = tuple(
    f"cuGraphExec{kind}NodeSetParams" for kind in ("Kernel", "Memcpy", "Memset", "Host", "", "", "ChildGraph")
)

_three_words = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3)

_INVALID_VALUE = driver.CUresult.CUDA_ERROR_INVALID_VALUE
_NOT_READY = driver.CUresult.CUDA_ERROR_NOT_READY
_THREAD_LOCAL = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
_GRAPH_OFFSET = UNION_OFFSET + int(CHILD_GRAPH_NODE.fields["graph"][1])  # type: ignore[index]
_PEER_ENABLED = driver.CUresult.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED

# Driver attributes by the field of `Limits` that they fill.
_LIMITS = {
    "max_threads": "MAX_THREADS_PER_BLOCK",
    "shared_bytes": "MAX_SHARED_MEMORY_PER_BLOCK",
    "shared_optin_bytes": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "multiprocessors": "MULTIPROCESSOR_COUNT",
    "multiprocessor_threads": "MAX_THREADS_PER_MULTIPROCESSOR",
    "multiprocessor_blocks": "MAX_BLOCKS_PER_MULTIPROCESSOR",
    "multiprocessor_registers": "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "multiprocessor_shared_bytes": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "reserved_shared_bytes": "RESERVED_SHARED_MEMORY_PER_BLOCK",
    "window_bytes": "MAX_ACCESS_POLICY_WINDOW_SIZE",
    "sync_domains": "MEM_SYNC_DOMAIN_COUNT",
    "max_pitch": "MAX_PITCH",
}
_LARGE_PARAMETERS_SINCE = 12010

_NOT_INITIALIZED = 3  # what the driver gives in a forked child, where it gives anything
_NOT_PERMITTED = 800  # and in a host node

_is_forked = False
"""True in a child of a process that had started CUDA: the driver is not asked there."""


def _note_fork() -> None:
    global _is_forked
    if _initialised.cache_info().currsize and _initialised() is None:
        _is_forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def _error(call: str, code: int) -> DriverError:
    """The error for a result code; of one that the table lacks, the driver's own words are told."""
    if code in RESULTS or code not in set(driver.CUresult):
        return driver_error(call, code)
    result = driver.CUresult(code)
    (_, name), (_, text) = driver.cuGetErrorName(result), driver.cuGetErrorString(result)
    return driver_error(call, code, (text or b"").decode() or None, name=(name or b"").decode() or None)


def _require_allowed(call: str) -> None:
    """Refuse calls that would hang or crash: in a forked child, and in a host node (driver 580 hangs there)."""
    if _is_forked:
        raise driver_error(call, _NOT_INITIALIZED, forks.RULE, forks.REMEDY)
    if in_host_function():
        raise driver_error(call, _NOT_PERMITTED, RULE, REMEDY)


@contextmanager
def _as_ours(call: str) -> Iterator[None]:
    """Around a call of cuda.core that stands for one of the driver: what it raises becomes an error of ours."""
    try:
        yield
    except Exception as problem:  # its class is private; it tells the code by name
        name = re.search(r"CUDA_ERROR_\w+", str(problem))
        code = getattr(driver.CUresult, name[0], None) if name else None
        if code is None:
            raise
        raise _error(call, int(code)) from problem


def _call(function: Any, *args: Any) -> Any:
    """Call the driver; gives its outputs (none, one, or a tuple) and raises `DriverError` on a bad code."""
    if _is_forked or threads:
        _require_allowed(function.__name__)
    result, *outputs = function(*args)
    if result:
        raise _error(function.__name__, int(result))
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def driver_version() -> tuple[int, int]:
    """Newest CUDA version that the driver supports, such as ``(13, 0)``.

    Raises
    ------
    GraphdslError
        If there is no driver.
    """
    version = _call(driver.cuDriverGetVersion) if _initialised() is None else 0
    return version // 1000, version % 1000 // 10


@functools.cache
def _initialised() -> str | None:
    """None if the driver is ready, else what keeps it from being so."""
    try:
        _call(driver.cuInit, 0)
    except DriverError as problem:
        return str(problem)
    except Exception as problem:  # cuda.bindings raises errors of several kinds where libcuda is absent
        return str(problem)
    return None


def unavailable() -> str | None:
    """Why no GPU can be used, as a sentence; None if one can."""
    reason = forks.RULE if _is_forked else _initialised()
    if reason is not None:
        return f"the CUDA driver could not be started: {reason}"
    return None if _call(driver.cuDeviceGetCount) else "the CUDA driver finds no GPU"


def devices() -> list[str]:
    """Names of the GPUs that the driver shows, by ordinal; empty where there is none."""
    if unavailable():
        return []
    return [Device(ordinal).name for ordinal in range(_call(driver.cuDeviceGetCount))]


def cuda_device(ordinal: int = 0) -> CudaDevice:
    """The CUDA device of that ordinal; always the same object.

    Parameters
    ----------
    ordinal : int
        Number of the device, as ``nvidia-smi`` and ``CUDA_VISIBLE_DEVICES`` leave it.

    Raises
    ------
    GraphdslError
        If there is no driver or no such device; the remedy names the emulator.
    """
    if isinstance(ordinal, bool) or not isinstance(ordinal, int):
        raise GraphdslError(
            "a CUDA device is given by its number",
            field="device",
            value=f"cuda({ordinal!r})",
            remedy="Pass 0 for the first.",
        )
    reason = unavailable()
    count = 0 if reason else _call(driver.cuDeviceGetCount)
    if not 0 <= ordinal < count:
        raise GraphdslError(
            reason or f"the driver shows {count} device{'s' if count != 1 else ''}, numbered from 0",
            field="device",
            value=f"cuda({ordinal})",
            remedy="Use graphdsl.emulator(), or run `graphdsl doctor` to see what is missing.",
        )
    with _making:  # functools.cache would let two threads make two
        found = _devices.get(ordinal)
        if found is None:
            found = _devices[ordinal] = CudaDevice(ordinal)
        return found


_devices: dict[int, CudaDevice] = {}
_making = threading.RLock()


class CudaDevice(OneByOne):
    """One CUDA device with its primary context; see `graphdsl.drivers.base.Driver` for the methods."""

    emulated = False
    survives_fork = False

    def __init__(self, ordinal: int) -> None:
        with _kept_context():
            with _as_ours("cuDevicePrimaryCtxRetain"):
                device = Device(ordinal)
                device.set_current()
            self.context: Handle = int(device.context.handle)
            self.limits = _limits(device)
        self.ordinal = ordinal
        self.name = f"{device.name} (cuda:{ordinal})"
        self._functions: set[Handle] = set()  # kernels that others have loaded, in the driver's older form

    def __repr__(self) -> str:
        return f"<{self.name}>"

    @contextmanager
    def _current(self) -> Iterator[None]:
        """Makes the device's context current for a while: the user's own choice is put back."""
        _call(driver.cuCtxPushCurrent, self.context)
        try:
            yield
        finally:
            _call(driver.cuCtxPopCurrent)

    # Other devices

    @property
    def device_count(self) -> int:
        return int(_call(driver.cuDeviceGetCount))

    def sibling(self, ordinal: int) -> CudaDevice:
        require_device(self, ordinal)
        return cuda_device(ordinal)

    def device_can_access_peer(self, peer: int) -> bool:
        return bool(_call(driver.cuDeviceCanAccessPeer, self.ordinal, peer))

    def ctx_enable_peer_access(self, context: Handle) -> None:
        with self._current():
            (result,) = driver.cuCtxEnablePeerAccess(context, 0)
        if result and result != _PEER_ENABLED:
            raise _error("cuCtxEnablePeerAccess", int(result))

    def pointer_get_memory_type(self, address: Address) -> int | None:
        with self._current():
            result, memory_type = driver.cuPointerGetAttribute(
                driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address
            )
        if result == _INVALID_VALUE:  # ordinary host memory, which the driver does not know
            return None
        if result:
            raise _error("cuPointerGetAttribute", int(result))
        return int(memory_type)

    def pointer_get_device(self, address: Address) -> int | None:
        kinds = driver.CUpointer_attribute
        memory_type = self.pointer_get_memory_type(address)
        if memory_type is None:
            return None
        with self._current():
            managed = _call(driver.cuPointerGetAttribute, kinds.CU_POINTER_ATTRIBUTE_IS_MANAGED, address)
            if managed or memory_type != MEMORY_TYPE_DEVICE:  # managed memory is every device's
                return None
            # Not through cuda.bindings, which gives 0 for every device.
            ordinal = np.zeros(1, np.int32)
            kind = int(kinds.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            code = _three_words(_address("cuPointerGetAttribute"))(ordinal.ctypes.data, kind, address)
            if code:
                raise _error("cuPointerGetAttribute", code)
            return int(ordinal[0])

    # Kernels

    def library_load_data(self, image: KernelImage) -> Handle:
        with self._current():
            return int(_call(driver.cuLibraryLoadData, image.cubin, None, None, 0, None, None, 0))

    def library_get_kernel(self, library: Handle, image: KernelImage) -> Handle:
        with self._current():
            return self._ready(int(_call(driver.cuLibraryGetKernel, library, image.entry.encode())))

    def kernel_adopt(self, image: KernelImage) -> Handle:
        assert image.loaded is not None, image
        handle = int(image.loaded.handle)
        with self._current():
            if getattr(image.loaded, "is_function", False):
                _call(driver.cuFuncLoad, handle)
                self._functions.add(handle)
                return handle
            return self._ready(handle)

    def _ready(self, kernel: Handle) -> Handle:
        """The kernel, its code on the device: lazy loading would move that into the first launch."""
        _call(driver.cuFuncLoad, _call(driver.cuKernelGetFunction, kernel))
        return kernel

    def kernel_get_param_info(self, kernel: Handle) -> tuple[tuple[int, int], ...]:
        function = driver.cuFuncGetParamInfo if kernel in self._functions else driver.cuKernelGetParamInfo
        return self._param_info(function, kernel)

    def _param_info(self, function: Any, kernel: Handle) -> tuple[tuple[int, int], ...]:
        found: list[tuple[int, int]] = []
        with self._current():
            while True:
                result, offset, size = function(kernel, len(found))
                if result == _INVALID_VALUE:  # past the last parameter
                    return tuple(found)
                if result:
                    raise _error(function.__name__, int(result))
                found.append((int(offset), int(size)))

    def kernel_set_max_shared_bytes(self, kernel: Handle, nbytes: int) -> None:
        self._set_attribute(kernel, "MAX_DYNAMIC_SHARED_SIZE_BYTES", nbytes)

    def kernel_allow_large_clusters(self, kernel: Handle) -> None:
        self._set_attribute(kernel, "NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1)

    def _set_attribute(self, kernel: Handle, name: str, value: int) -> None:
        attribute = getattr(driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        with self._current():
            if kernel in self._functions:
                _call(driver.cuFuncSetAttribute, kernel, attribute, value)
            else:
                _call(driver.cuKernelSetAttribute, attribute, value, kernel, self.ordinal)

    def library_unload(self, library: Handle) -> None:
        with self._current():
            _call(driver.cuLibraryUnload, library)

    # Memory

    def mem_alloc(self, nbytes: int) -> Address:
        with self._current():
            return int(_call(driver.cuMemAlloc, nbytes))

    def mem_get_info(self) -> tuple[int, int]:
        with self._current():
            free, total = _call(driver.cuMemGetInfo)
        return int(free), int(total)

    def mem_free(self, address: Address) -> None:
        with self._current():
            _call(driver.cuMemFree, address)

    def mem_host_alloc(self, nbytes: int) -> np.ndarray[Any, Any]:
        flags = driver.CU_MEMHOSTALLOC_PORTABLE | driver.CU_MEMHOSTALLOC_DEVICEMAP
        with self._current():
            address = int(_call(driver.cuMemHostAlloc, nbytes, flags))
        return host_bytes(address, nbytes)

    def mem_free_host(self, array: np.ndarray[Any, Any]) -> None:
        with self._current():
            _call(driver.cuMemFreeHost, array.ctypes.data)

    def memcpy_htod(self, destination: Address, source: np.ndarray[Any, Any], stream: Handle) -> None:
        _call(driver.cuMemcpyHtoDAsync, destination, source.ctypes.data, source.nbytes, stream)
        self.stream_synchronize(stream)

    def memcpy_dtoh(self, destination: np.ndarray[Any, Any], source: Address, stream: Handle) -> None:
        _call(driver.cuMemcpyDtoHAsync, destination.ctypes.data, source, destination.nbytes, stream)
        self.stream_synchronize(stream)

    def memcpy_3d(self, params: Address, stream: Handle) -> None:
        with self._current():
            _call(driver.cuMemcpy3DAsync, driver.CUDA_MEMCPY3D(_ptr=params), stream)
        self.stream_synchronize(stream)

    @property
    def dlpack_device(self) -> tuple[int, int]:
        return _DLPACK_CUDA, self.ordinal

    def dlpack_export(
        self,
        address: Address,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: np.dtype[Any],
        owner: Any,
    ) -> StridedMemoryView:
        nbytes = sum(stride * (extent - 1) for stride, extent in zip(strides, shape)) + dtype.itemsize
        buffer = Buffer.from_handle(address, nbytes, owner=owner)
        steps = tuple(stride // dtype.itemsize for stride in strides)
        return StridedMemoryView.from_buffer(buffer, shape, steps, dtype=dtype)

    # Streams and events

    def stream_create(self) -> Handle:
        with self._current():
            return int(_call(driver.cuStreamCreate, driver.CUstream_flags.CU_STREAM_NON_BLOCKING))

    def stream_synchronize(self, stream: Handle) -> None:
        _call(driver.cuStreamSynchronize, stream)

    def stream_destroy(self, stream: Handle) -> None:
        _call(driver.cuStreamDestroy, stream)

    def stream_begin_capture(self, stream: Handle) -> None:
        _call(driver.cuStreamBeginCapture, stream, _THREAD_LOCAL)

    def stream_end_capture(self, stream: Handle) -> Handle:
        return int(_call(driver.cuStreamEndCapture, stream))

    def made_current(self) -> AbstractContextManager[None]:
        return self._current()

    def event_create(self, timing: bool = False) -> Handle:
        flags = driver.CUevent_flags.CU_EVENT_DEFAULT if timing else driver.CUevent_flags.CU_EVENT_DISABLE_TIMING
        with self._current():
            return int(_call(driver.cuEventCreate, flags))

    def event_elapsed_time(self, start: Handle, end: Handle) -> float:
        return float(_call(driver.cuEventElapsedTime, start, end))

    def event_record(self, event: Handle, stream: Handle) -> None:
        _call(driver.cuEventRecord, event, stream)

    def event_query(self, event: Handle) -> bool:
        _require_allowed("cuEventQuery")
        (result,) = driver.cuEventQuery(event)
        if result and result != _NOT_READY:
            raise _error("cuEventQuery", int(result))
        return not result

    def event_synchronize(self, event: Handle) -> None:
        _call(driver.cuEventSynchronize, event)

    def event_destroy(self, event: Handle) -> None:
        _call(driver.cuEventDestroy, event)

    # Building graphs

    def graph_create(self) -> Handle:
        return int(_call(driver.cuGraphCreate, 0))

    def graph_add_kernel_node(self, graph: Handle, params: Address) -> Handle:
        return int(_call(driver.cuGraphAddKernelNode, graph, None, 0, driver.CUDA_KERNEL_NODE_PARAMS(_ptr=params)))

    def graph_add_memcpy_node(self, graph: Handle, params: Address) -> Handle:
        struct = driver.CUDA_MEMCPY3D(_ptr=params)
        return int(_call(driver.cuGraphAddMemcpyNode, graph, None, 0, struct, _context(MEMCPY_NODE, params)))

    def graph_add_memset_node(self, graph: Handle, params: Address) -> Handle:
        struct = driver.CUDA_MEMSET_NODE_PARAMS(_ptr=params)
        return int(_call(driver.cuGraphAddMemsetNode, graph, None, 0, struct, _context(MEMSET_NODE, params)))

    def graph_add_host_node(self, graph: Handle, params: Address) -> Handle:
        return int(_call(driver.cuGraphAddHostNode, graph, None, 0, driver.CUDA_HOST_NODE_PARAMS(_ptr=params)))

    def graph_add_empty_node(self, graph: Handle) -> Handle:
        return int(_call(driver.cuGraphAddEmptyNode, graph, None, 0))

    def graph_kernel_node_set_attribute(self, node: Handle, attribute: int, value: Address) -> None:
        written = driver.CUkernelNodeAttrValue(_ptr=value)
        with self._current():
            _call(driver.cuGraphKernelNodeSetAttribute, node, driver.CUkernelNodeAttrID(attribute), written)

    def graph_kernel_node_get_attribute(self, node: Handle, attribute: int, value: Address) -> None:
        with self._current():
            found = _call(driver.cuGraphKernelNodeGetAttribute, node, driver.CUkernelNodeAttrID(attribute))
        ctypes.memmove(value, found.getPtr(), ATTRIBUTE_VALUE_BYTES)

    def graph_add_node(
        self, graph: Handle, params: Address, dependencies: np.ndarray[Any, Any] | None = None
    ) -> Handle:
        before = None if dependencies is None else [driver.CUgraphNode(handle) for handle in dependencies.tolist()]
        struct = driver.CUgraphNodeParams(_ptr=params)
        return int(_call(driver.cuGraphAddNode, graph, before, None, len(before or ()), struct))

    def graph_child_graph_node_get_graph(self, node: Handle) -> Handle:
        return int(_call(driver.cuGraphChildGraphNodeGetGraph, node))

    def graph_conditional_handle_create(self, graph: Handle, default: int, flags: int) -> Handle:
        return int(_call(driver.cuGraphConditionalHandleCreate, graph, self.context, default, flags))

    def graph_add_dependencies(
        self,
        graph: Handle,
        sources: np.ndarray[Any, Any],
        targets: np.ndarray[Any, Any],
        edge_data: np.ndarray[Any, Any] | None = None,
    ) -> None:
        data = 0 if edge_data is None else edge_data.ctypes.data
        compiled = _compiled()
        if compiled is not None:
            code = compiled.loops.add_dependencies(
                compiled.current, self.context, compiled.add_dependencies, graph, sources, targets, data
            )
            if code:
                raise _error("cuGraphAddDependencies", code)
            return
        befores = [driver.CUgraphNode(handle) for handle in sources.tolist()]
        afters = [driver.CUgraphNode(handle) for handle in targets.tolist()]
        size = EDGE_DATA.itemsize
        edges = [driver.CUgraphEdgeData(_ptr=data + size * i) for i in range(len(befores))] if data else None
        _call(driver.cuGraphAddDependencies, graph, befores, afters, edges, len(befores))

    def graph_add_nodes(
        self, graph: Handle, kinds: np.ndarray[Any, Any], params: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any]:
        compiled = _compiled()
        if compiled is None:
            return super().graph_add_nodes(graph, kinds, params)
        handles = np.zeros(len(kinds), np.uint64)
        outcome = compiled.loops.add_nodes(
            compiled.current, compiled.add, compiled.forms, kinds, graph, self.context, params, handles
        )
        compiled.require(outcome, kinds, _ADD_CALLS)
        return handles

    def graph_destroy(self, graph: Handle) -> None:
        _call(driver.cuGraphDestroy, graph)

    # Looking into graphs

    def graph_get_nodes(self, graph: Handle) -> list[Handle]:
        _, count = _call(driver.cuGraphGetNodes, graph)
        nodes, _ = _call(driver.cuGraphGetNodes, graph, count)
        return list(map(int, nodes))

    def graph_node_get_type(self, node: Handle) -> int:
        return int(_call(driver.cuGraphNodeGetType, node))

    def graph_get_edges(self, graph: Handle) -> tuple[list[Handle], list[Handle], np.ndarray[Any, Any]]:
        *_, count = _call(driver.cuGraphGetEdges, graph)
        sources, targets, data, _ = _call(driver.cuGraphGetEdges, graph, count)
        rows = np.zeros(count, EDGE_DATA)
        for row, each in zip(rows, data):
            row["from_port"], row["to_port"], row["type"] = each.from_port, each.to_port, int(each.type)
        return list(map(int, sources)), list(map(int, targets)), rows

    def graph_kernel_node_get_params(self, node: Handle, params: Address) -> None:
        found = _call(driver.cuGraphKernelNodeGetParams, node)
        ctypes.memmove(params, found.getPtr(), KERNEL_NODE.itemsize)

    def graph_memcpy_node_get_params(self, node: Handle, params: Address) -> None:
        found = _call(driver.cuGraphMemcpyNodeGetParams, node)
        ctypes.memmove(params, found.getPtr(), _context_offset(MEMCPY_NODE))

    def graph_memset_node_get_params(self, node: Handle, params: Address) -> None:
        found = _call(driver.cuGraphMemsetNodeGetParams, node)
        ctypes.memmove(params, found.getPtr(), _context_offset(MEMSET_NODE))

    def graph_host_node_get_params(self, node: Handle, params: Address) -> None:
        found = _call(driver.cuGraphHostNodeGetParams, node)
        ctypes.memmove(params, found.getPtr(), HOST_NODE.itemsize)

    def graph_event_record_node_get_event(self, node: Handle) -> Handle:
        return int(_call(driver.cuGraphEventRecordNodeGetEvent, node))

    def graph_event_wait_node_get_event(self, node: Handle) -> Handle:
        return int(_call(driver.cuGraphEventWaitNodeGetEvent, node))

    def kernel_get_function(self, kernel: Handle) -> Handle:
        with self._current():
            return int(_call(driver.cuKernelGetFunction, kernel))

    def func_get_name(self, function: Handle) -> str:
        return _call(driver.cuFuncGetName, function).decode(errors="replace")  # type: ignore[no-any-return]

    def func_get_param_info(self, function: Handle) -> tuple[tuple[int, int], ...]:
        return self._param_info(driver.cuFuncGetParamInfo, function)

    def func_get_attribute(self, function: Handle, attribute: int) -> int:
        return int(_call(driver.cuFuncGetAttribute, driver.CUfunction_attribute(attribute), function))

    # Running graphs

    def graph_instantiate_with_params(self, graph: Handle, flags: int = 0) -> Handle:
        params = driver.CUDA_GRAPH_INSTANTIATE_PARAMS()
        params.flags = flags
        with self._current():
            result, graph_exec = driver.cuGraphInstantiateWithParams(graph, params)
        if result:
            raise InstantiateError(int(result), params.result_out.name, int(params.hErrNode_out))
        return int(graph_exec)

    def graph_upload(self, graph_exec: Handle, stream: Handle) -> None:
        _call(driver.cuGraphUpload, graph_exec, stream)

    def graph_launch(self, graph_exec: Handle, stream: Handle) -> None:
        _call(driver.cuGraphLaunch, graph_exec, stream)

    def graph_launcher(self, graph_exec: Handle, stream: Handle) -> Callable[[], int]:
        compiled = _compiled()
        if compiled is None:
            return super().graph_launcher(graph_exec, stream)
        return functools.partial(compiled.call_two, compiled.launch, graph_exec, stream)

    def launch_failure(self, code: int) -> DriverError:
        return _error("cuGraphLaunch", code)

    def graph_exec_destroy(self, graph_exec: Handle) -> None:
        _call(driver.cuGraphExecDestroy, graph_exec)

    # Updating execs

    def graph_exec_kernel_node_set_params(self, graph_exec: Handle, node: Handle, params: Address) -> None:
        struct = driver.CUDA_KERNEL_NODE_PARAMS(_ptr=params)
        _call(driver.cuGraphExecKernelNodeSetParams, graph_exec, node, struct)

    def graph_exec_memcpy_node_set_params(self, graph_exec: Handle, node: Handle, params: Address) -> None:
        struct = driver.CUDA_MEMCPY3D(_ptr=params)
        _call(driver.cuGraphExecMemcpyNodeSetParams, graph_exec, node, struct, _context(MEMCPY_NODE, params))

    def graph_exec_memset_node_set_params(self, graph_exec: Handle, node: Handle, params: Address) -> None:
        struct = driver.CUDA_MEMSET_NODE_PARAMS(_ptr=params)
        _call(driver.cuGraphExecMemsetNodeSetParams, graph_exec, node, struct, _context(MEMSET_NODE, params))

    def graph_exec_host_node_set_params(self, graph_exec: Handle, node: Handle, params: Address) -> None:
        struct = driver.CUDA_HOST_NODE_PARAMS(_ptr=params)
        _call(driver.cuGraphExecHostNodeSetParams, graph_exec, node, struct)

    def graph_exec_node_set_params(self, graph_exec: Handle, node: Handle, params: Address) -> None:
        _call(driver.cuGraphExecNodeSetParams, graph_exec, node, driver.CUgraphNodeParams(_ptr=params))

    def graph_exec_child_graph_node_set_params(self, graph_exec: Handle, node: Handle, params: Address) -> None:
        graph = ctypes.c_uint64.from_address(params + _GRAPH_OFFSET).value
        _call(driver.cuGraphExecChildGraphNodeSetParams, graph_exec, node, graph)

    def graph_exec_set_params(
        self,
        graph_exec: Handle,
        kinds: np.ndarray[Any, Any],
        nodes: np.ndarray[Any, Any],
        params: np.ndarray[Any, Any],
    ) -> None:
        compiled = _compiled()
        if compiled is None:
            super().graph_exec_set_params(graph_exec, kinds, nodes, params)
            return
        outcome = compiled.set_params(
            compiled.current, compiled.change, compiled.forms, kinds, graph_exec, self.context, nodes, params
        )
        if outcome != compiled.loops.NO_FAILURE:
            compiled.require(outcome, kinds, _SET_CALLS)

    def graph_exec_update(self, graph_exec: Handle, graph: Handle) -> None:
        # Not through cuda.bindings, which keeps to itself what the driver says of a failure.
        told = np.zeros(1, EXEC_UPDATE_RESULT)
        with self._current():
            code = _three_words(_address("cuGraphExecUpdate"))(graph_exec, graph, told.ctypes.data)
        if code:
            result, _, node, dependency = told[0].tolist()
            raise ExecUpdateError(code, list(UPDATE_RESULTS)[result], node, dependency)

    def graph_node_set_enabled(self, graph_exec: Handle, node: Handle, enabled: bool) -> None:
        _call(driver.cuGraphNodeSetEnabled, graph_exec, node, int(enabled))


class _Compiled:
    """The compiled loops, and the addresses of the driver functions that they call."""

    def __init__(self) -> None:
        from graphdsl.compile import loops

        self.loops = loops
        self.call_two = loops.direct(loops.call_two)
        self.set_params = loops.direct(loops.set_params)
        forms = {
            MEMCPY: _context_offset(MEMCPY_NODE),
            MEMSET: _context_offset(MEMSET_NODE),
            EMPTY: loops.WITHOUT_PARAMS,
            GENERIC: loops.WITH_EDGE_DATA,
            CHILD: loops.OF_GRAPH,
        }
        self.forms = np.array([forms.get(kind, loops.WITH_PARAMS) for kind in range(len(_ADD_CALLS))], np.uint8)
        self.add = np.array([_address(call) for call in _ADD_CALLS], np.uint64)
        self.change = np.array([_address(call) for call in _SET_CALLS], np.uint64)
        self.add_dependencies = _address("cuGraphAddDependencies")
        self.launch = _address("cuGraphLaunch")
        self._popped = np.zeros(1, np.uint64)
        calls = (_address("cuCtxPushCurrent"), _address("cuCtxPopCurrent"), self._popped.ctypes.data)
        self.current = np.array(calls, np.uint64)

    def require(self, outcome: int, kinds: np.ndarray[Any, Any], calls: tuple[str, ...]) -> None:
        """Raise what a loop ran into, if anything."""
        if outcome == self.loops.NO_FAILURE:
            return
        index, code = self.loops.failure(outcome)
        problem = _error(calls[kinds[index]] if len(kinds) else "cuCtxPushCurrent", code)
        problem.index = index
        raise problem


def _context_offset(struct: np.dtype[Any]) -> int:
    """Bytes from the start of a struct to the context that the driver's function takes beside it."""
    return int(struct.fields["ctx"][1])  # type: ignore[index]


def _context(struct: np.dtype[Any], params: Address) -> Handle:
    """That context."""
    return ctypes.c_uint64.from_address(params + _context_offset(struct)).value


def _address(call: str) -> int:
    """Address of a driver function, of the ABI that CUDA 13 gives to its plain name."""
    address, found = _call(driver.cuGetProcAddress, call.encode(), _ABI, _PROC_FLAGS)
    if found != driver.CUdriverProcAddressQueryResult.CU_GET_PROC_ADDRESS_SUCCESS:
        raise driver_error("cuGetProcAddress", _NOT_FOUND, f"the driver has no {call}", "Install a newer driver.")
    return int(address)


@functools.cache
def _compiled() -> _Compiled | None:
    """The compiled loops; None where they cannot be had, which the logger says once."""
    try:
        return _Compiled()
    except Exception as problem:  # Numba, LLVM and the driver fail in many ways; each has the same remedy
        _logger.warning("driver calls are made one by one, because their loops could not be compiled: %s", problem)
        return None


@contextmanager
def _kept_context() -> Iterator[None]:
    """Puts back whatever context was current before."""
    before = _call(driver.cuCtxGetCurrent)
    try:
        yield
    finally:
        _call(driver.cuCtxSetCurrent, before)


def _limits(device: Device) -> Limits:
    """What a device can do; its context is current."""

    def attribute(name: str) -> int:
        key = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(_call(driver.cuDeviceGetAttribute, key, device.device_id))

    capability = tuple(device.compute_capability)
    large = capability >= (7, 0) and _call(driver.cuDriverGetVersion) >= _LARGE_PARAMETERS_SINCE
    block_x, block_y, block_z, grid_x, grid_y, grid_z = (
        attribute(f"MAX_{what}_DIM_{axis}") for what in ("BLOCK", "GRID") for axis in "XYZ"
    )
    return Limits(
        device.name,
        capability,
        max_block=(block_x, block_y, block_z),
        max_grid=(grid_x, grid_y, grid_z),
        parameter_bytes=LARGE_PARAMETER_BYTES if large else 4096,
        cooperative=bool(attribute("COOPERATIVE_LAUNCH")),
        max_cluster=MAX_CLUSTER if attribute("CLUSTER_LAUNCH") else 0,
        preferred_clusters=capability >= PREFERRED_CLUSTERS_SINCE,
        priorities=_call(driver.cuCtxGetStreamPriorityRange),
        **{field: attribute(name) for field, name in _LIMITS.items()},
    )
