"""The compiled loops that make many driver calls in one go, and the addresses of what they call.

This module must not know graphs.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import numpy as np

from graphdsl.drivers.cuda.calling import address_of, error_of
from graphdsl.drivers.cuda.context import context_offset
from graphdsl.drivers.structs import CHILD, EMPTY, GENERIC, MEMCPY, MEMCPY_NODE, MEMSET, MEMSET_NODE

_logger = logging.getLogger("graphdsl")

# The driver's functions by the kind of node, in the order of `graphdsl.drivers.structs`.
ADD_CALLS = tuple(f"cuGraphAdd{kind}Node" for kind in ("Kernel", "Memcpy", "Memset", "Host", "Empty", "", ""))
# An empty node has nothing to set, and is never sent.
SET_CALLS = tuple(
    f"cuGraphExec{kind}NodeSetParams" for kind in ("Kernel", "Memcpy", "Memset", "Host", "", "", "ChildGraph")
)


class Compiled:
    """The compiled loops, and the addresses of the driver functions that they call."""

    def __init__(self) -> None:
        from graphdsl.compile import loops

        self.loops = loops
        self.call_two = loops.direct(loops.call_two)
        self.set_params = loops.direct(loops.set_params)
        forms = {
            MEMCPY: context_offset(MEMCPY_NODE),
            MEMSET: context_offset(MEMSET_NODE),
            EMPTY: loops.WITHOUT_PARAMS,
            GENERIC: loops.WITH_EDGE_DATA,
            CHILD: loops.OF_GRAPH,
        }
        self.forms = np.array([forms.get(kind, loops.WITH_PARAMS) for kind in range(len(ADD_CALLS))], np.uint8)
        self.add = np.array([address_of(call) for call in ADD_CALLS], np.uint64)
        self.change = np.array([address_of(call) for call in SET_CALLS], np.uint64)
        self.add_dependencies = address_of("cuGraphAddDependencies")
        self.launch = address_of("cuGraphLaunch")
        self._popped = np.zeros(1, np.uint64)
        calls = (address_of("cuCtxPushCurrent"), address_of("cuCtxPopCurrent"), self._popped.ctypes.data)
        self.current = np.array(calls, np.uint64)

    def require(self, outcome: int, kinds: np.ndarray[Any, Any], calls: tuple[str, ...]) -> None:
        """Raise what a loop ran into, if anything."""
        if outcome == self.loops.NO_FAILURE:
            return
        index, code = self.loops.failure(outcome)
        problem = error_of(calls[kinds[index]] if len(kinds) else "cuCtxPushCurrent", code)
        problem.index = index
        raise problem


@functools.cache
def compiled() -> Compiled | None:
    """The compiled loops; None where they cannot be had, which the logger says once."""
    try:
        return Compiled()
    except Exception as problem:  # Numba, LLVM and the driver fail in many ways; each has the same remedy
        _logger.warning("driver calls are made one by one, because their loops could not be compiled: %s", problem)
        return None
