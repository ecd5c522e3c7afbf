"""What the driver's codes mean to a user, and what to do: one row for each that graphs can meet.

A row is what NVIDIA documents of the code, in the terms of graphs. Both drivers make their errors here, so that a
failure reads alike on a GPU and in the emulator. This module must not call the driver.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from graphdsl.errors import DriverError


class Result(NamedTuple):
    """A result code.

    Attributes
    ----------
    name : str
        The driver's name of it.
    meaning : str
        What happened, as a statement.
    remedy : str
        What to do, as an instruction.
    is_fault : bool
        True if it is about work that ran, not about the call that reports it; the context is lost with it.
    """

    name: str
    meaning: str
    remedy: str
    is_fault: bool = False


_NAMES = "graph.check() with this device as target names what it can of the cause."
_DOCTOR = "Run `graphdsl doctor`: it says what is installed and what is missing."
_INDICES = "Compare indices with the extents of the arrays, and sizes with what the kernel is told."
_HARDWARE = "Run `nvidia-smi -q` and look at the system's log for Xid errors; start a new process."
_CAPTURE = "Keep that call out of what is captured, or make it before."
_NO_CODE = "Let graphdsl compile the kernel for this device, or give a cubin made for it."

RESULTS: dict[int, Result] = {
    0: Result("CUDA_SUCCESS", "it went well", ""),
    1: Result("CUDA_ERROR_INVALID_VALUE", "the driver refuses a value, and does not say which", _NAMES),
    2: Result(
        "CUDA_ERROR_OUT_OF_MEMORY",
        "there is not enough memory, or of another resource of the device",
        "Close execs that are not needed, declare smaller arrays, or end other processes on the device "
        "(`nvidia-smi` lists them).",
    ),
    3: Result("CUDA_ERROR_NOT_INITIALIZED", "the driver was not started", _DOCTOR),
    4: Result(
        "CUDA_ERROR_DEINITIALIZED",
        "the driver is shutting down, as it does when the process ends",
        "Close execs before the interpreter ends: use `with graph.instantiate() as exe`.",
    ),
    34: Result(
        "CUDA_ERROR_STUB_LIBRARY",
        "libcuda is the stub that programs are linked with, not a driver",
        "Take the toolkit's folder of stubs off LD_LIBRARY_PATH, or install a driver.",
    ),
    36: Result(
        "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", "the installed driver is too old for the call", "Install a newer one."
    ),
    46: Result(
        "CUDA_ERROR_DEVICE_UNAVAILABLE",
        "another process has the device for itself, or it is closed to all",
        "Look at its compute mode with `nvidia-smi -q -d COMPUTE`, or choose another device.",
    ),
    100: Result("CUDA_ERROR_NO_DEVICE", "the driver finds no GPU", _DOCTOR),
    101: Result("CUDA_ERROR_INVALID_DEVICE", "there is no such device, or it is the wrong one for the call", _DOCTOR),
    200: Result("CUDA_ERROR_INVALID_IMAGE", "what was loaded is no code for a GPU", _NO_CODE),
    201: Result(
        "CUDA_ERROR_INVALID_CONTEXT",
        "no context is current, or one was destroyed or belongs to another device",
        "Leave the device's primary context alive: cuDevicePrimaryCtxReset and cudaDeviceReset end it for all.",
    ),
    209: Result("CUDA_ERROR_NO_BINARY_FOR_GPU", "the kernel has no code that this device can run", _NO_CODE),
    214: Result(
        "CUDA_ERROR_ECC_UNCORRECTABLE", "the device's memory has an error that it cannot mend", _HARDWARE, True
    ),
    217: Result(
        "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
        "the device cannot reach the memory of the other one",
        "Copy by way of the host, or place both nodes on one device.",
    ),
    218: Result(
        "CUDA_ERROR_INVALID_PTX",
        "the driver could not compile the PTX",
        "Assemble it with ptxas, which says what is wrong, or give a cubin.",
    ),
    220: Result("CUDA_ERROR_NVLINK_UNCORRECTABLE", "NVLink has an error that it cannot mend", _HARDWARE, True),
    221: Result(
        "CUDA_ERROR_JIT_COMPILER_NOT_FOUND",
        "the driver's compiler of PTX is not installed",
        "Install the whole driver, with libnvidia-ptxjitcompiler, or give a cubin.",
    ),
    222: Result(
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        "the PTX is newer than the driver",
        "Install a newer driver, make the PTX with an older toolkit, or give a cubin.",
    ),
    223: Result(
        "CUDA_ERROR_JIT_COMPILATION_DISABLED",
        "CUDA_DISABLE_JIT forbids the driver to compile PTX",
        "Unset it, or give a cubin.",
    ),
    226: Result(
        "CUDA_ERROR_CONTAINED",
        "the device met an error that it could contain, such as an access to a peer's memory that failed",
        _HARDWARE,
        True,
    ),
    300: Result("CUDA_ERROR_INVALID_SOURCE", "the source of the kernel could not be compiled or linked", _NO_CODE),
    304: Result(
        "CUDA_ERROR_OPERATING_SYSTEM",
        "a call of the operating system failed",
        "Look at its limits (`ulimit -a`, locked memory, open files), and whether paths can be written.",
    ),
    400: Result(
        "CUDA_ERROR_INVALID_HANDLE",
        "a stream, event, graph or kernel is none of the driver's, or was destroyed",
        "Keep the streams and events that you pass alive until the exec is closed.",
    ),
    401: Result(
        "CUDA_ERROR_ILLEGAL_STATE",
        "something that the call needs is not in a state for it",
        "Finish what is being done with it first.",
    ),
    402: Result(
        "CUDA_ERROR_LOSSY_QUERY",
        "the query has no room for all that is there, such as the data of programmatic edges",
        "Update cuda-bindings.",
    ),
    500: Result(
        "CUDA_ERROR_NOT_FOUND",
        "there is nothing of that name",
        "Compare the name with those in the code that was loaded, and the driver's version with the function.",
    ),
    600: Result("CUDA_ERROR_NOT_READY", "the work is not done yet", "Wait for it: synchronize()."),
    700: Result(
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "a kernel or a copy touched memory that is not there, or that the device does not reach",
        f"{_INDICES} External memory must outlive the launches that use it.",
        True,
    ),
    701: Result(
        "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
        "the kernel needs more registers, shared memory or parameters than a block of this size can have",
        "Use fewer threads in a block, less shared memory, or limit registers with @cuda.jit(max_registers=...).",
    ),
    702: Result(
        "CUDA_ERROR_LAUNCH_TIMEOUT",
        "a kernel ran longer than this device allows, which serves a display",
        "Split the work, or use a device without a display.",
        True,
    ),
    705: Result(
        "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED",
        "the device has not been allowed to reach the memory of the other one",
        "Let the exec do so: instantiate the graph with the devices that its nodes name.",
    ),
    709: Result(
        "CUDA_ERROR_CONTEXT_IS_DESTROYED",
        "the context was destroyed, by a reset of the device or by its owner",
        "Close execs before the device is reset, and instantiate them anew afterwards.",
    ),
    710: Result(
        "CUDA_ERROR_ASSERT",
        "an assert in a kernel failed",
        "What it said stands on stderr of the process; make its condition true.",
        True,
    ),
    711: Result(
        "CUDA_ERROR_TOO_MANY_PEERS", "the device reaches as many others as it can", "Use fewer devices in a process."
    ),
    712: Result(
        "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "the host memory is page-locked already", "Register it once."
    ),
    714: Result(
        "CUDA_ERROR_HARDWARE_STACK_ERROR",
        "a kernel ran out of stack, or spoilt it",
        "Avoid deep recursion and large local arrays; keep indices into local arrays inside of them.",
        True,
    ),
    715: Result(
        "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        "a kernel met an instruction that it may not run, such as a trap",
        "Compile its code anew for this device; keep it from writing over its own stack.",
        True,
    ),
    716: Result(
        "CUDA_ERROR_MISALIGNED_ADDRESS",
        "a kernel touched memory at an address that is no multiple of the size of what it read or wrote",
        "Give it arrays whose addresses are aligned to their items; views of bytes seldom are.",
        True,
    ),
    717: Result(
        "CUDA_ERROR_INVALID_ADDRESS_SPACE",
        "a kernel used an address of one kind of memory, such as shared, as one of another",
        "Keep pointers to shared and local memory inside of the kernel.",
        True,
    ),
    718: Result(
        "CUDA_ERROR_INVALID_PC",
        "a kernel jumped to where there is no code",
        "Check function pointers; keep it from writing over its own stack.",
        True,
    ),
    719: Result(
        "CUDA_ERROR_LAUNCH_FAILED",
        "a kernel failed while it ran, often by an access outside of shared memory, or a barrier that it may not use",
        f"{_INDICES} A barrier over the grid needs cooperative=True.",
        True,
    ),
    720: Result(
        "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
        "the blocks of a cooperative kernel do not all fit on the device at once",
        "Use fewer blocks, or less shared memory and fewer registers for each.",
    ),
    721: Result(
        "CUDA_ERROR_TENSOR_MEMORY_LEAK",
        "a kernel ended without giving back its tensor memory",
        "Free in the kernel what it allocates of it.",
        True,
    ),
    800: Result(
        "CUDA_ERROR_NOT_PERMITTED",
        "the driver does not permit it here, such as a driver call in a host node",
        "Make the call in another node, or after the launch.",
    ),
    801: Result(
        "CUDA_ERROR_NOT_SUPPORTED",
        "this device, this driver or this kind of node cannot do it",
        "docs/driver-behaviour.md says what graphs can do; `graphdsl doctor` says what the device can.",
    ),
    802: Result(
        "CUDA_ERROR_SYSTEM_NOT_READY",
        "the machine is not ready for CUDA: a service of it, such as the fabric manager, is not running",
        "Start nvidia-fabricmanager on machines with NVSwitch; `nvidia-smi -q` shows the fabric's state.",
    ),
    803: Result(
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        "libcuda and the driver in the kernel are of different versions",
        "Reboot after an update of the driver; in a container, use the libcuda of the host.",
    ),
    804: Result(
        "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "a forward-compatible libcuda is installed, and this device does not support that",
        "Remove the cuda-compat package, or install a driver of that version.",
    ),
    805: Result(
        "CUDA_ERROR_MPS_CONNECTION_FAILED",
        "the MPS server cannot be reached",
        "Start nvidia-cuda-mps-control, or unset CUDA_MPS_PIPE_DIRECTORY.",
    ),
    807: Result("CUDA_ERROR_MPS_SERVER_NOT_READY", "the MPS server takes no clients now", "Wait, and try again."),
    810: Result(
        "CUDA_ERROR_MPS_CLIENT_TERMINATED",
        "the MPS server ended this client, often because another one faulted",
        "Start a new process.",
        True,
    ),
    900: Result(
        "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        "the call is not allowed while a stream is captured, such as a synchronise or an allocation",
        _CAPTURE,
    ),
    901: Result(
        "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
        "the capture was spoilt by a call that failed or was not allowed before",
        f"Find that call: it is the first that fails. {_CAPTURE}",
    ),
    902: Result(
        "CUDA_ERROR_STREAM_CAPTURE_MERGE",
        "two captures would have become one",
        "Let streams that are captured apart not wait for each other.",
    ),
    903: Result(
        "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
        "the capture was begun in another stream",
        "End it in the stream that it began in.",
    ),
    904: Result(
        "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
        "a stream that joined the capture was not joined back",
        "Record an event in that stream, and let the captured stream wait for it.",
    ),
    905: Result(
        "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
        "captured work would depend on work outside of the capture",
        "Wait for that work before the capture, or capture it too.",
    ),
    906: Result(
        "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
        "the legacy default stream was used, which waits for all streams, also for the captured one",
        "Use another stream, or let the library use the one that is captured.",
    ),
    907: Result(
        "CUDA_ERROR_CAPTURED_EVENT",
        "the event was last recorded in a captured stream",
        "Use it in the graph only, or record it anew.",
    ),
    908: Result(
        "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
        "the capture was begun by another thread",
        "Begin and end it in one thread.",
    ),
    909: Result("CUDA_ERROR_TIMEOUT", "the time for a wait is over", "Wait longer, or find what never signals."),
    910: Result(
        "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE",
        "the graph differs from the exec in what no update changes",
        "Instantiate the graph again.",
    ),
    911: Result(
        "CUDA_ERROR_EXTERNAL_DEVICE", "a device that is no GPU failed, which the GPU waited for", _HARDWARE, True
    ),
    912: Result(
        "CUDA_ERROR_INVALID_CLUSTER_SIZE",
        "a cluster does not divide the grid, or has more blocks than the device or the kernel allows",
        "Make each dimension of the grid a multiple of the cluster's, or use a smaller cluster.",
    ),
    913: Result("CUDA_ERROR_FUNCTION_NOT_LOADED", "the kernel's code is not loaded", "Unset CUDA_MODULE_LOADING."),
    915: Result(
        "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION",
        "the device's resources are divided in a way that does not allow it",
        "Give the green context or the MIG instance more of them.",
    ),
    919: Result(
        "CUDA_ERROR_FABRIC_NOT_READY",
        "the links between the GPUs are not ready yet",
        "Wait, and try again; `nvidia-smi -q` shows the fabric's state.",
    ),
    999: Result("CUDA_ERROR_UNKNOWN", "the driver gives no reason", _HARDWARE),
}
"""By code."""

INVALID_VALUE = 1
OUT_OF_MEMORY = 2

_UNKNOWN = Result(
    "CUDA_ERROR_UNKNOWN", "graphdsl does not know the code", "NVIDIA's documentation of CUresult says what it means."
)

INSTANTIATE_RESULTS: dict[str, tuple[str, str]] = {
    "CUDA_GRAPH_INSTANTIATE_ERROR": ("no exec can be made of the graph", _NAMES),
    "CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE": (
        "nodes and edges make no graph that can run: there is a cycle",
        "Take away one of its edges; graph.check() names the whole cycle.",
    ),
    "CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED": (
        "a body of a conditional node, or a graph that a device launches, cannot hold what this node does",
        "Move the node out. A body holds kernels, copies, memsets, empty nodes, children and conditional nodes, whose "
        "memory is of the device or page-locked, and no kernel in it launches others.",
    ),
    "CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED": (
        "all that is in a body of a conditional node, or in a graph that a device launches, runs in one context",
        "Place these nodes and their memory on the device of the conditional node.",
    ),
    "CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED": (
        "a condition is asked by no conditional node",
        "Declare the node that asks it (graph.if_, while_ or switch), or leave the condition out.",
    ),
}
"""What each ``CUgraphInstantiateResult`` means, and what to do."""

_AGAIN = "Instantiate the graph again."

UPDATE_RESULTS: dict[str, tuple[str, str]] = {
    "CU_GRAPH_EXEC_UPDATE_SUCCESS": ("it went well", ""),
    "CU_GRAPH_EXEC_UPDATE_ERROR": ("the driver cannot update the exec, and does not say why", _AGAIN),
    "CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED": (
        "an update keeps the nodes and the edges of an exec, with their ports",
        f"Declare the nodes and edges that the exec has, and disable those that are not wanted. {_AGAIN}",
    ),
    "CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED": (
        "an update keeps the kind of each node",
        f"Declare both nodes and disable one of them. {_AGAIN}",
    ),
    "CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED": (
        "drivers before CUDA 11.2 keep the kernel of each node",
        f"Install a newer driver. {_AGAIN}",
    ),
    "CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED": (
        "an update does not change these fields of the node so",
        f"Copies and memsets keep their number of rows, and on which side device memory is. {_AGAIN}",
    ),
    "CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED": (
        "the driver updates no exec with such nodes",
        _AGAIN,
    ),
    "CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE": (
        "an update puts no kernel that launches kernels or graphs in the place of one that does not, nor one of "
        "another context",
        _AGAIN,
    ),
    "CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED": (
        "an update keeps whether a kernel is cooperative, and its priority",
        _AGAIN,
    ),
}
"""What each ``CUgraphExecUpdateResult`` means, and what to do; in the order of its numbers."""


class InstantiateError(DriverError):
    """`cuGraphInstantiateWithParams` refused a graph.

    Attributes
    ----------
    result : str
        The driver's ``CUgraphInstantiateResult``, by name.
    node_handle : int
        The node that the driver blames, 0 if none.
    """

    def __init__(self, code: int, result: str, node_handle: int, said: str | None = None, **details: Any) -> None:
        unexplained = result == "CUDA_GRAPH_INSTANTIATE_ERROR"  # then the code says more
        known = _known(code)
        meaning, remedy = known[1:3] if unexplained else INSTANTIATE_RESULTS.get(result, known[1:3])
        details.setdefault("remedy", remedy)
        super().__init__("cuGraphInstantiateWithParams", code, known.name, f"{result}: {said or meaning}", **details)
        self.result = result
        self.node_handle = node_handle


class ExecUpdateError(DriverError):
    """`cuGraphExecUpdate` refused a graph; the exec is as it was.

    Attributes
    ----------
    result : str
        The driver's ``CUgraphExecUpdateResult``, by name.
    node_handle : int
        The node of the graph that the driver blames, 0 if none.
    from_handle : int
        The dependency of that node which does not match, 0 if it is not about one.
    """

    def __init__(
        self, code: int, result: str, node_handle: int, from_handle: int, said: str | None = None, **details: Any
    ) -> None:
        known = _known(code)
        meaning, remedy = UPDATE_RESULTS.get(result, known[1:3])
        details.setdefault("remedy", remedy)
        super().__init__("cuGraphExecUpdate", code, known.name, f"{result}: {said or meaning}", **details)
        self.result = result
        self.node_handle = node_handle
        self.from_handle = from_handle


def driver_error(
    call: str,
    code: int,
    said: str | None = None,
    remedy: str | None = None,
    *,
    name: str | None = None,
    of: type[DriverError] = DriverError,
) -> DriverError:
    """The error for a result code.

    Parameters
    ----------
    call : str
        The driver's name of the function.
    code : int
        What it returned.
    said : str, optional
        What is known of this failure; by default what the code means.
    remedy : str, optional
        What to do about it; by default what helps with the code, if nothing is known of this failure.
    name : str, optional
        The driver's name of a code that is not in the table.
    of : type of DriverError
        Class of the error.

    Examples
    --------
    >>> print(driver_error("cuGraphLaunch", 600))
    cuGraphLaunch returned CUDA_ERROR_NOT_READY (600): the work is not done yet. Wait for it: synchronize().
    """
    known = _known(code)
    called = name if name and int(code) not in RESULTS else known.name
    return of(call, code, called, said or known.meaning, remedy=remedy or (None if said else known.remedy))


def remedy_of(problem: DriverError) -> str:
    """What to do about a failure: what is said there, or what helps with its code."""
    return problem.remedy or _known(problem.code).remedy


def is_fault(problem: DriverError) -> bool:
    """True if an error is about work that ran, and not about the call that reports it."""
    return _known(problem.code).is_fault


def _known(code: int) -> Result:
    return RESULTS.get(int(code), _UNKNOWN)
