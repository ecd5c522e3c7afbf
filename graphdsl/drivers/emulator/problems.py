"""What goes wrong inside the emulator, before it is known which driver call tells it.

The emulator turns a `Problem` into an error of `graphdsl.errors` with the name of the call that reports it. This module
must not know graphs.
"""

from __future__ import annotations

from typing import Any

from graphdsl.drivers.results import ExecUpdateError, InstantiateError, driver_error
from graphdsl.errors import DriverError, MemoryFault

INVALID_VALUE = 1
OUT_OF_MEMORY = 2
INVALID_CONTEXT = 201
NO_BINARY_FOR_GPU = 209
PEER_ACCESS_UNSUPPORTED = 217
INVALID_HANDLE = 400
ILLEGAL_STATE = 401
NOT_FOUND = 500
NOT_READY = 600
ILLEGAL_ADDRESS = 700
MISALIGNED_ADDRESS = 716
LAUNCH_FAILED = 719
COOPERATIVE_LAUNCH_TOO_LARGE = 720
NOT_PERMITTED = 800
NOT_SUPPORTED = 801
CAPTURE_UNSUPPORTED = 900
CAPTURE_INVALIDATED = 901
CAPTURE_WRONG_THREAD = 908
EXEC_UPDATE_FAILURE = 910
INVALID_CLUSTER_SIZE = 912


class Problem(Exception):
    """A call that the driver refuses, or a node that failed while it ran.

    Parameters
    ----------
    rule : str
        The rule that was broken, or what happened.
    code : int
        The result code that the driver gives.
    remedy : str, optional
        What to do.
    **details
        What else is known; each becomes an attribute of the error.
    """

    error_class: type[DriverError] = DriverError
    result = "CUDA_GRAPH_INSTANTIATE_ERROR"

    def __init__(self, rule: str, code: int = INVALID_VALUE, remedy: str | None = None, **details: Any) -> None:
        super().__init__(rule)
        self.rule = rule
        self.code = code
        self.remedy = remedy
        self.details = details

    def error(self, call: str) -> DriverError:
        """The error that ``call`` raises."""
        if call == "cuGraphInstantiateWithParams":
            made: DriverError = InstantiateError(self.code, self.result, 0, self.rule)
        else:
            made = driver_error(call, self.code, self.rule, self.remedy, of=self.error_class)
        vars(made).update(self.details)
        return made


class AccessError(Problem):
    """Memory was touched that may not be; reported as a `MemoryFault`.

    Parameters
    ----------
    kind : str
        ``OUTSIDE_ARRAY``, ``OUTSIDE``, ``OTHER_DEVICE``, ``RELEASED``, ``NOT_ALLOCATED``, ``NEVER_WRITTEN``,
        ``GONE`` or ``MISALIGNED``.
    text : str
        Where and what.
    code : int
        The result code that the driver gives.
    **details
        ``address``, ``nbytes``, ``allocation`` (address and size of the nearest one), ``offset`` from its start; from a
        kernel ``argument``, ``index``, ``thread``, ``block`` and ``source`` too.
    """

    error_class = MemoryFault

    def __init__(self, kind: str, text: str, code: int = INVALID_VALUE, **details: Any) -> None:
        super().__init__(f"{kind}: {text}", code, _REMEDIES[kind], kind=kind, **details)
        self.kind = kind
        self.text = text

    @property
    def fault(self) -> int:
        """The result code of a launch that does it."""
        return MISALIGNED_ADDRESS if self.kind == MISALIGNED else ILLEGAL_ADDRESS


class InstantiateProblem(Problem):
    """A graph that cannot be instantiated, for a reason that has a name.

    Parameters
    ----------
    rule : str
        The rule that was broken.
    result : str
        The driver's ``CUgraphInstantiateResult``, without what all of them begin with.
    node_handle : int
        The node to blame; 0 if none.
    """

    def __init__(self, rule: str, result: str, node_handle: int = 0) -> None:
        super().__init__(rule, node_handle=node_handle)
        self.result = f"CUDA_GRAPH_INSTANTIATE_{result}"


class UpdateProblem(Problem):
    """A graph that an exec cannot be updated from.

    Parameters
    ----------
    rule : str
        What differs.
    result : str
        The driver's ``CUgraphExecUpdateResult``, without ``CU_GRAPH_EXEC_UPDATE_ERROR_``.
    node_handle : int
        The node of the graph that is blamed, 0 if none.
    from_handle : int
        Its dependency that does not match, 0 if it is not about one.
    """

    def __init__(self, rule: str, result: str, node_handle: int = 0, from_handle: int = 0) -> None:
        super().__init__(rule, EXEC_UPDATE_FAILURE)
        self.result = f"CU_GRAPH_EXEC_UPDATE_ERROR_{result}"
        self.handles = node_handle, from_handle

    def error(self, call: str) -> DriverError:
        return ExecUpdateError(self.code, self.result, *self.handles, self.rule)


OUTSIDE_ARRAY = "index outside of an array"
OUTSIDE = "access outside of an allocation"
OTHER_DEVICE = "access to memory of another device"
RELEASED = "access to released memory"
NEVER_WRITTEN = "read of never-written bytes"
MISALIGNED = "access at an address that is not aligned to its size"
GONE = "read of memory that another exec has had since"
NOT_ALLOCATED = "access to memory of a graph before its allocation or after its free"

_REMEDIES = {
    OUTSIDE_ARRAY: "Keep the index inside of the shape; on a GPU it reaches whatever lies there.",
    OUTSIDE: "Check the address and the size.",
    OTHER_DEVICE: "Instantiate the graph on the device whose memory it uses, or copy that memory.",
    RELEASED: "Release memory after the last launch that uses it.",
    NOT_ALLOCATED: "Order the node after the node that allocates it, and before the one that frees it.",
    GONE: "Read it before the next launch in the arena, or copy it out.",
    NEVER_WRITTEN: "Write it before, by a copy, a memset or a kernel that an edge orders before.",
    MISALIGNED: "Keep index times item size a multiple of it; make shared and local arrays with alignment=.",
}
