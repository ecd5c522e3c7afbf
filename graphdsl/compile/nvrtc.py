"""Compiles CUDA C++ with NVRTC through cuda.core. Neither a GPU nor a driver is needed.

This module must not know kernels or graphs, and must not ask for a device.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cuda import pathfinder
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

    def essence(self) -> str:
        """What is wrong, in one line."""
        said = [complaint.text for complaint in self.complaints]
        if not said:
            said = [line.strip() for line in self.log.splitlines() if "error" in line.lower()] or [self.log.strip()]
        more = f" (and {len(said) - 1} more)" if len(said) > 1 else ""
        return said[0].rstrip(".") + more


def compile_cpp(
    code: str,
    name: str,
    arch: str,
    *,
    options: Mapping[str, Any] | None = None,
    include_paths: Sequence[str] = (),
    expressions: Sequence[str] = (),
) -> ObjectCode:
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
        Kernels with template arguments that the code must have; ``symbol_mapping`` of the result gives their symbols.

    Raises
    ------
    SourceError
        If NVRTC refuses the source or an option.
    CompileError
        If there is no option of a name.
    """
    given = dict(options or {})
    own = given.pop("include_path", None) or ()
    paths = [*include_paths, *([own] if isinstance(own, str) else own), *toolkit_include_paths()]
    try:
        made = ProgramOptions(name=name, arch=arch, include_path=[str(path) for path in paths], **given)
    except (TypeError, ValueError) as problem:
        raise CompileError(
            f"NVRTC has no such options: {problem}",
            field="options",
            value=repr(given),
            remedy="The names are those of cuda.core.ProgramOptions.",
        ) from None
    try:
        return Program(code, "c++", options=made).compile("cubin", name_expressions=tuple(expressions))
    except Exception as problem:  # cuda.core has an error of its own, and raises others for options
        raise SourceError(str(problem).replace("\0", "").partition("compilation log:")[2] or str(problem)) from problem


def toolkit_include_paths() -> list[str]:
    """Where the headers of the CUDA toolkit lie."""
    found = [pathfinder.locate_nvidia_header_directory(name) for name in ("cudart", "cccl")]
    return [header.abs_path for header in found if header is not None and header.abs_path]
