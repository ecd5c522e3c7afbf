"""Compiles CUDA C++ with NVRTC through cuda.core. Neither a GPU nor a driver is needed.

This module must not know kernels or graphs, and must not ask for a device.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cuda import pathfinder
from cuda.bindings import nvrtc
from cuda.core import ObjectCode, Program, ProgramOptions

from graphdsl.errors import CompileError


class Complaint(NamedTuple):
    """One error in NVRTC's log.

    Attributes
    ----------
    file : str
        What it is in; the name of the program for the source itself.
    line : int
        Counted from 1.
    text : str
        What is wrong.
    """

    file: str
    line: int
    text: str


_MOST_SAID = 3


class SourceError(Exception):
    """NVRTC refused a source.

    Attributes
    ----------
    log : str
        All that it says.
    complaints : tuple of Complaint
        The errors that have a place.
    """

    def __init__(self, log: str) -> None:
        super().__init__(log)
        self.log = log
        found = re.findall(r"^(.+?)\((\d+)\): (?:catastrophic )?error(?: #\S+)?: (.+)$", log, re.MULTILINE)
        self.complaints = tuple(Complaint(file, int(line), text.strip()) for file, line, text in found)

    @property
    def lacks_runtime(self) -> bool:
        """True if it uses the device runtime, which only relocatable code has."""
        return bool(re.search(r'identifier "cuda\w+" is undefined|runtime APIs are not declared', self.log))

    @property
    def where(self) -> str:
        """The place of the first error, as compilers write it; empty if it has none."""
        return f"{self.complaints[0].file}({self.complaints[0].line}): error: " if self.complaints else ""

    def essence(self) -> str:
        """What is wrong, in one line."""
        said = [complaint.text for complaint in self.complaints]
        if not said:
            said = [line.strip() for line in self.log.splitlines() if "error" in line.lower()] or [self.log.strip()]
        more = f" (and {len(said) - _MOST_SAID} more)" if len(said) > _MOST_SAID else ""
        return "; ".join(text.rstrip(".") for text in said[:_MOST_SAID]) + more


class Compiled(NamedTuple):
    """What NVRTC made of a source.

    Attributes
    ----------
    code : ObjectCode
        The machine code.
    ptx : str
        The PTX that it was made from.
    symbols : dict of str to str
        The symbol of each expression that was asked for.
    """

    code: ObjectCode
    ptx: str
    symbols: dict[str, str]


def compile_cpp(
    code: str,
    name: str,
    arch: str,
    *,
    options: Mapping[str, Any] | None = None,
    include_paths: Sequence[str] = (),
    expressions: Sequence[str] = (),
) -> Compiled:
    """Machine code of a CUDA C++ source.

    Parameters
    ----------
    code : str
        The source.
    name : str
        What the compiler calls it.
    arch : str
        What it is compiled for, such as ``"sm_90"``.
    options : dict, optional
        By the names of `cuda.core.ProgramOptions`.
    include_paths : sequence of str
        Where headers are found, before those of the toolkit.
    expressions : sequence of str
        Kernels with template arguments that the code must have.

    Raises
    ------
    SourceError
        If NVRTC refuses the source or an option.
    CompileError
        If there are no such options, or no NVRTC.
    """
    given = dict(options or {})
    own = given.pop("include_path", None) or ()
    paths = [*include_paths, *([own] if isinstance(own, str) else own), *toolkit_include_paths()]
    try:
        made = ProgramOptions(name=name, arch=arch, include_path=[str(path) for path in paths], **given)
    except (TypeError, ValueError) as problem:
        raise _bad_options(problem, given) from None
    program = None
    try:
        program = Program(code, "c++", options=made)
        compiled = program.compile("cubin", name_expressions=tuple(expressions))
        ptx = _ptx(program)
    except pathfinder.DynamicLibNotFoundError as problem:
        raise CompileError(
            f"NVRTC cannot be used: {problem}",
            field="kernel",
            value=name,
            remedy="`graphdsl doctor` says what is installed; the package is nvidia-cuda-nvrtc.",
        ) from problem
    except Exception as problem:  # cuda.core has an error of its own, and raises several for options
        if "NVRTC" not in type(problem).__name__:
            raise _bad_options(problem, given) from problem
        raise SourceError(str(problem).replace("\0", "").partition("compilation log:")[2] or str(problem)) from problem
    finally:
        del program  # its destructor fails where the garbage collector finds it in a traceback
    symbols = {
        name: symbol if isinstance(symbol, str) else symbol.decode() for name, symbol in compiled.symbol_mapping.items()
    }
    return Compiled(compiled, ptx, symbols)


def _bad_options(problem: Exception, given: Mapping[str, Any]) -> CompileError:
    return CompileError(
        f"NVRTC has no such options: {problem}",
        field="options",
        value=repr(given),
        remedy="Names and values are those of cuda.core.ProgramOptions.",
    )


def _ptx(program: Program) -> str:
    """The PTX that a program went through; cuda.core would compile once more, and ask the driver what it takes."""
    result, size = nvrtc.nvrtcGetPTXSize(program.handle)
    text = b" " * size
    if result == nvrtc.nvrtcResult.NVRTC_SUCCESS:
        (result,) = nvrtc.nvrtcGetPTX(program.handle, text)
    return text.rstrip(b"\0").decode() if result == nvrtc.nvrtcResult.NVRTC_SUCCESS else ""


def toolkit_include_paths() -> list[str]:
    """Where the headers of the CUDA toolkit lie."""
    found = [pathfinder.locate_nvidia_header_directory(name) for name in ("cudart", "cccl")]
    return [header.abs_path for header in found if header is not None and header.abs_path]
