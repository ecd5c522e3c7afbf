"""Compiled loops over driver functions: one call from Python for any number of driver calls.

A Python call of a driver function costs several times what the function does. These loops are compiled by Numba for
the host, cached on disk, and take the addresses of the functions as arguments; the GIL is released while they run.
This module must not know what the functions do, only how many words they take.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

_WORD = ir.IntType(64)
_RESULT = ir.IntType(32)


@intrinsic
def _call(typing_context: Any, function: Any, words: Any) -> Any:
    """Call the C function at an address with 64-bit words; gives its 32-bit result."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = ir.FunctionType(_RESULT, [_WORD] * len(words)).as_pointer()
        values = [builder.extract_value(args[1], i) for i in range(len(words))]
        return builder.call(builder.inttoptr(args[0], pointer), values)

    return types.int32(types.uint64, words), generate


@intrinsic
def _word_at(typing_context: Any, address: Any) -> Any:
    """The 64-bit word at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], _WORD.as_pointer()))

    return types.uint64(types.uint64), generate


WITH_PARAMS = 0
WITHOUT_PARAMS = 1
WITH_EDGE_DATA = 2
OF_GRAPH = 3
FIRST_OFFSET = 8
"""Forms of functions. From here on a form is an offset: so many bytes behind the start of the params lies the context
that the function takes beside them."""

GRAPH_OFFSET = 16
"""Bytes behind the start of the params to the graph of a child graph node."""

PUSH, POP, POPPED = range(3)
"""Where the loops find what makes a context current, what puts the one before back, and room for its answer."""

NO_FAILURE = -1
_CODE_BITS = 32


@njit("int32(uint64, uint64, uint64)", nogil=True, cache=True)
def call_two(function: int, first: int, second: int) -> int:
    """``function(first, second)``; gives its result code."""
    return _call(function, (first, second))


@njit("int32(uint64[::1], uint64, uint64, uint64, uint64[::1], uint64[::1], uint64)", nogil=True, cache=True)
def add_dependencies(
    current: np.ndarray[Any, Any],
    context: int,
    function: int,
    graph: int,
    sources: np.ndarray[Any, Any],
    targets: np.ndarray[Any, Any],
    edge_data: int,
) -> int:
    """``function(graph, sources, targets, edge_data, n)``; gives its result code. ``current`` is as in `add_nodes`."""
    code = _call(current[PUSH], (context,))
    if code != 0:
        return code
    first, second = np.uint64(sources.ctypes.data), np.uint64(targets.ctypes.data)
    code = _call(function, (graph, first, second, edge_data, np.uint64(len(sources))))
    _call(current[POP], (current[POPPED],))
    return code


_LOOP = "int64(uint64[::1], uint64[::1], uint8[::1], uint8[::1], uint64, uint64, uint64[::1], uint64[::1])"


@njit(_LOOP, nogil=True, cache=True)
def add_nodes(
    current: np.ndarray[Any, Any],
    functions: np.ndarray[Any, Any],
    forms: np.ndarray[Any, Any],
    kinds: np.ndarray[Any, Any],
    graph: int,
    context: int,
    params: np.ndarray[Any, Any],
    handles: np.ndarray[Any, Any],
) -> int:
    """Add nodes without dependencies, one call of ``functions[kind]`` each, their handles written to ``handles``.

    ``forms[kind]`` says whether the function takes a context beside the params, no params at all, or the data of edges
    before their number; what changes a node then takes the params, or the graph in them. ``context`` is made current
    meanwhile; ``current`` holds the addresses of `cuCtxPushCurrent`, of `cuCtxPopCurrent`, and of a word for what is
    popped: without a current context each call costs 0.2 µs more (measured on an H200, driver 580). Gives `NO_FAILURE`,
    or the index of the node that was refused and the code, for `failure`.
    """
    code = _call(current[PUSH], (context,))
    if code != 0:
        return np.int64(code)
    outcome = np.int64(NO_FAILURE)
    none = np.uint64(0)
    first = np.uint64(handles.ctypes.data)
    for i in range(len(kinds)):
        function, form = functions[kinds[i]], forms[kinds[i]]
        handle = first + np.uint64(8 * i)
        if form >= FIRST_OFFSET:
            beside = _word_at(params[i] + np.uint64(form))
            code = _call(function, (handle, graph, none, none, params[i], beside))
        elif form == WITHOUT_PARAMS:
            code = _call(function, (handle, graph, none, none))
        elif form in (WITH_EDGE_DATA, OF_GRAPH):
            code = _call(function, (handle, graph, none, none, none, params[i]))
        else:
            code = _call(function, (handle, graph, none, none, params[i]))
        if code != 0:
            outcome = (np.int64(i) << _CODE_BITS) | np.int64(code)
            break
    _call(current[POP], (current[POPPED],))
    return outcome


@njit(_LOOP, nogil=True, cache=True)
def set_params(
    current: np.ndarray[Any, Any],
    functions: np.ndarray[Any, Any],
    forms: np.ndarray[Any, Any],
    kinds: np.ndarray[Any, Any],
    graph_exec: int,
    context: int,
    handles: np.ndarray[Any, Any],
    params: np.ndarray[Any, Any],
) -> int:
    """Set the params of nodes of an exec, one call of ``functions[kind]`` each; the rest is as in `add_nodes`."""
    code = _call(current[PUSH], (context,))
    if code != 0:
        return np.int64(code)
    outcome = np.int64(NO_FAILURE)
    for i in range(len(kinds)):
        function, form = functions[kinds[i]], forms[kinds[i]]
        if form >= FIRST_OFFSET:
            code = _call(function, (graph_exec, handles[i], params[i], _word_at(params[i] + np.uint64(form))))
        elif form == OF_GRAPH:
            code = _call(function, (graph_exec, handles[i], _word_at(params[i] + np.uint64(GRAPH_OFFSET))))
        else:
            code = _call(function, (graph_exec, handles[i], params[i]))
        if code != 0:
            outcome = (np.int64(i) << _CODE_BITS) | np.int64(code)
            break
    _call(current[POP], (current[POPPED],))
    return outcome


def direct(loop: Any) -> Any:
    """The compiled function behind a loop, without Numba's choice among signatures: each has one."""
    (compiled,) = loop.overloads.values()
    return compiled.entry_point


def failure(outcome: int) -> tuple[int, int]:
    """Index of the node that was refused and the result code, from what a loop gave."""
    return outcome >> _CODE_BITS, outcome & ((1 << _CODE_BITS) - 1)
