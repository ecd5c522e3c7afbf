"""Turns what Numba says about a kernel that it does not compile into one `CompileError`.

Numba's messages run over pages, and often leave out the line. This module must not compile anything.
"""

from __future__ import annotations

import linecache
import math
import os
import re
from typing import Any

import numba.cuda
import numpy as np

from graphdsl.compile.signature import Types
from graphdsl.declare.kernel import Kernel
from graphdsl.errors import CompileError

_ALLOCATES = "A kernel cannot allocate: use cuda.local.array or cuda.shared.array."
_REMEDIES = {
    "Untyped global name": "Decorate that function with @cuda.jit(device=True), or pass the object as an argument.",
    "NRT required": _ALLOCATES,
    "Only accept returning of array": _ALLOCATES,
    "readonly array": "The memory is read-only: pass an operand that can be written.",
}


def refused(kernel: Kernel, types: Types, problem: Exception) -> CompileError:
    """The error for a kernel that Numba does not compile for these types."""
    message = re.sub(r"\x1b\[[0-9;]*m", "", str(problem))  # Numba writes in colours where colorama is installed
    ufunc = _unknown_ufunc(problem)
    said = f"numpy.{ufunc} has no device version" if ufunc else essence(message) or type(problem).__name__
    typed = ", ".join(f"{name}: {kind}" for name, kind in zip(kernel.parameters, types))
    remedy = next((text for words, text in _REMEDIES.items() if words in said), "Change the kernel or its operands.")
    scalars = [name for name, kind in zip(kernel.parameters, types) if getattr(kind, "ndim", None) == 0]
    if ufunc or remedy == _ALLOCATES:
        remedy = _scalar_remedy(scalars) if scalars else _ufunc_remedy(ufunc) if ufunc else remedy
    return CompileError(
        f"Numba does not compile {kernel.name}({typed}): {said}",
        field="kernel",
        value=_line(*(_place_in_message(message) or _place_in_trace(problem) or _start(kernel))),
        remedy=remedy,
    )


def _unknown_ufunc(problem: Exception) -> str | None:
    """Name of the NumPy function that Numba looked up in vain: it types them all, and knows how to compute few."""
    if isinstance(problem, KeyError) and problem.args and isinstance(problem.args[0], np.ufunc):
        return str(problem.args[0].__name__)
    return None


def _ufunc_remedy(ufunc: str) -> str:
    name = _NAMES_IN_MATH.get(ufunc, ufunc)
    return f"Use math.{name}." if hasattr(math, name) else "Write it out for one element."


_NAMES_IN_MATH = {
    **{f"arc{name}": f"a{name}" for name in ("sin", "cos", "tan", "tan2", "sinh", "cosh", "tanh")},
    **{"absolute": "fabs", "power": "pow", "float_power": "pow", "deg2rad": "radians", "rad2deg": "degrees"},
}


def _scalar_remedy(names: list[str]) -> str:
    """An array of no dimensions is no number to Numba: arithmetic on it makes an array, which takes memory."""
    written = ", ".join(f"{name}[()]" for name in names)
    return f"An operand of no dimensions is an array of one element: read it as {written}."


def place_of(kernel: Kernel) -> str:
    """File and line where the kernel is defined."""
    return _line(*_start(kernel))


def essence(message: str) -> str:
    """What one of Numba's messages says, without where and how it was found.

    Examples
    --------
    >>> essence("Use of unsupported opcode (IMPORT_NAME) found. Raised from /home/kernels.py (42)")
    'Use of unsupported opcode (IMPORT_NAME) found'
    """
    message = re.sub(r" at 0x[0-9a-f]+|\.? Raised from .*", "", message)
    lines = [line.strip() for line in message.splitlines()]
    lines = [line for line in lines if line and not _ABOUT_THE_WAY.match(line)]
    inner = [i for i, line in enumerate(lines) if line.endswith("raised a specific error:")]
    if inner and inner[0] + 1 < len(lines):
        return lines[inner[0] + 1]
    if lines and lines[0].endswith("found for signature:") and len(lines) > 1:
        return f"no implementation of {lines[1].removeprefix('>>> ')}"
    return lines[0] if lines else ""


_ABOUT_THE_WAY = re.compile(r"(\w+: )?Failed in |During:|File ")


def _place_in_message(message: str) -> tuple[str, int] | None:
    """File and line of the user's code that a message names."""
    for pattern in (r"(?:at|from) (\S+) \((\d+)\)", r'File "([^"]+)", line (\d+):'):
        said = re.search(pattern, message)
        if said is not None and not os.path.abspath(said[1]).startswith(_NUMBA):
            # Some messages have the path from the working folder.
            return (os.path.abspath(said[1]) if os.path.exists(said[1]) else said[1]), int(said[2])
    return None


def _place_in_trace(problem: Exception) -> tuple[str, int] | None:
    """The same, of what Numba was working on: messages about overloads do not say it."""
    found = None
    trace = problem.__traceback__
    while trace is not None:
        where = getattr(trace.tb_frame.f_locals.get("self"), "loc", None)
        file, line = getattr(where, "filename", None), getattr(where, "line", None)
        if isinstance(file, str) and isinstance(line, int) and not file.startswith(_NUMBA):
            found = file, line
        trace = trace.tb_next
    return found


_NUMBA = (*numba.__path__, *numba.cuda.__path__)


def _start(kernel: Kernel) -> tuple[str, int]:
    code: Any = kernel.function.__code__
    return code.co_filename, code.co_firstlineno


def _line(file: str, line: int) -> str:
    source = linecache.getline(file, line).strip()
    return f"{file}:{line} `{source}`" if source else f"{file}:{line}"
