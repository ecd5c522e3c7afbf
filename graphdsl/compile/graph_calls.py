"""What a kernel does to the graph that it runs in, read from its code: it waits, it triggers, it sets conditions.

Waits and triggers are instructions, and stand in the machine code whatever it was made from: Numba, CUDA C++, PTX, or
code that a kernel links. Which condition is set can be told from PTX alone. What cannot be told is None, and never
guessed. This module must not compile.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from graphdsl.compile.elf import opcodes

# Instructions of compute capability 9.0 and later, as nvdisasm names them; `tests/compile/test_graph_calls.py` holds
# them to what the toolkit makes for each target.
_ACQBULK = 0x82E  # griddepcontrol.wait
_PREEXIT = 0x82D  # griddepcontrol.launch_dependents
_FIRST_CAPABILITY = (9, 0)
_KNOWN_MAJORS = (9, 10, 11, 12)

_SET_CONDITION = "cudaGraphSetConditional"


class GraphCalls(NamedTuple):
    """What a kernel does to its graph.

    Attributes
    ----------
    waits : bool or None
        True if there is a `graphdsl.device.grid_dependency_wait` that it may reach, False if there is none, and None if
        it cannot be told.
    triggers : bool or None
        The same of `graphdsl.device.launch_dependents`.
    conditions : frozenset of int, or None
        Which of its parameters are handles that it gives to `graphdsl.device.set_condition`, by their place in its
        packed parameters; empty if it sets no condition, and None if it sets one that cannot be told.
    """

    waits: bool | None
    triggers: bool | None
    conditions: frozenset[int] | None


def read_graph_calls(cubin: bytes, entry: str, target: tuple[int, int], ptx: str = "") -> GraphCalls:
    """What the kernel ``entry`` of a cubin does to its graph.

    Parameters
    ----------
    cubin : bytes
        A linked cubin; empty, or of a format that is not known, it tells nothing.
    entry : str
        The kernel's symbol.
    target : tuple of int
        Compute capability that it is for.
    ptx : str, optional
        PTX that holds the kernel and was linked into the cubin.

    Examples
    --------
    >>> read_graph_calls(b"", "kernel", (9, 0))
    GraphCalls(waits=None, triggers=None, conditions=None)
    """
    try:
        found = opcodes(cubin, entry)
    except ValueError:
        return GraphCalls(None, None, None)
    if target < _FIRST_CAPABILITY:
        waits: bool | None = False
        triggers: bool | None = False
    elif target[0] in _KNOWN_MAJORS:
        waits, triggers = _ACQBULK in found, _PREEXIT in found
    else:
        waits = triggers = None
    sets = f"\0{_SET_CONDITION}\0".encode() in cubin
    return GraphCalls(waits, triggers, _conditions(ptx, entry) if sets else frozenset())


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_BEFORE = re.compile(r"^(?:[\s{}]|[\w$]+:|@!?%\w+\s)*")  # braces, labels and predicates
_LOADS = re.compile(r"ld\.param\.[bu]64\s+(%\w+)\s*,\s*\[\s*(\w+)\s*\]$")
_MOVES = re.compile(r"mov\.[bu]64\s+(%\w+)\s*,\s*(%\w+)$")
_STORES = re.compile(r"st\.param\.[bu]64\s*\[\s*(\w+)\s*(?:\+\s*0\s*)?\]\s*,\s*(%\w+)$")
_WRITES = re.compile(r"[a-z][\w.:]*\s+(?:\{([^}]*)\}|(%\w+(?:\|%\w+)?)\s*,)")
_CALLS = re.compile(rf"\b{_SET_CONDITION}\s*,\s*\(\s*(\w+)")


def _conditions(ptx: str, entry: str) -> frozenset[int] | None:
    """The parameters that calls of the kernel have as their first argument; None unless all calls have one."""
    text = _COMMENT.sub(" ", ptx)
    names, body = kernel_text(text, entry)
    calls = _CALLS.findall(body)
    if not calls or len(calls) != len(_CALLS.findall(text)):
        return None  # another function calls it, too
    sources: dict[str, list[str]] = {}  # what is written to each register
    stored: dict[str, str] = {}
    handles: list[str] = []
    for statement in body.split(";"):
        statement = _BEFORE.sub("", statement).strip()
        if store := _STORES.match(statement):
            stored[store[1]] = store[2]
        elif call := _CALLS.search(statement):
            handles.append(stored.get(call[1], ""))
        elif move := _LOADS.match(statement) or _MOVES.match(statement):
            sources.setdefault(move[1], []).append(move[2])
        elif written := _WRITES.match(statement):
            for register in re.findall(r"%\w+", written[0]):
                sources.setdefault(register, []).append("")
    origins = {_origin(sources, handle) for handle in handles}
    return frozenset(map(names.index, origins)) if origins <= set(names) else None


def kernel_text(ptx: str, entry: str) -> tuple[list[str], str]:
    """Names of the parameters of a kernel, and what stands between its braces."""
    head = re.search(rf"\.entry\s+{re.escape(entry)}\s*(?:\(([^)]*)\))?[^{{]*", ptx)
    if head is None:
        return [], ""
    declared = re.sub(r"\[\d*\]", "", head[1] or "").split(",")
    names = [re.findall(r"[\w$]+", each)[-1] for each in declared if each.strip()]
    depth = 0
    for brace in re.finditer("[{}]", ptx[head.end() :]):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return names, ptx[head.end() : head.end() + brace.end()]
    return names, ""


def _origin(sources: dict[str, list[str]], register: str) -> str:
    """What a register holds, followed through moves for as long as only one thing is written to each."""
    for _ in range(len(sources)):
        written = sources.get(register, [])
        if len(written) != 1:
            break
        (register,) = written
    return register
