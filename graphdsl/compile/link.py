"""Makes one cubin of PTX and the external code that kernels declare, with nvJitLink and NVRTC through cuda.core.

What is loaded is a cubin and not PTX: a pip-installed NVVM is often newer than the driver, which then refuses its PTX
version, while a cubin of the same major CUDA version loads. Neither a GPU nor a driver is needed. This module must not
ask for a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from cuda import pathfinder
from cuda.core import Linker, LinkerOptions, ObjectCode

from graphdsl.compile.nvrtc import SourceError, compile_cpp
from graphdsl.errors import CompileError


class Code(NamedTuple):
    """One input of a link.

    Attributes
    ----------
    kind : str
        What it is, by the usual file extension: ``ptx``, ``cubin``, ``fatbin``, ``o``, ``a``, ``ltoir`` or ``cu``.
    data : bytes
        Its contents.
    name : str
        What messages call it.
    """

    kind: str
    data: bytes
    name: str


_MAKERS: dict[str, Callable[..., ObjectCode]] = {
    "ptx": ObjectCode.from_ptx,
    "cubin": ObjectCode.from_cubin,
    "fatbin": ObjectCode.from_fatbin,
    "o": ObjectCode.from_object,
    "a": ObjectCode.from_library,
    "ltoir": ObjectCode.from_ltoir,
}


def link(
    codes: Iterable[Code],
    target: tuple[int, int],
    *,
    max_registers: int | None = None,
    debug: bool = False,
    lineinfo: bool = False,
    include_paths: Iterable[str] = (),
) -> bytes:
    """Link code into one cubin.

    Parameters
    ----------
    codes : iterable of Code
        What is linked; CUDA C++ is compiled first.
    target : tuple of int
        Compute capability.
    max_registers : int, optional
        Most registers that a thread may have.
    debug, lineinfo : bool
        Keep debug information, or only line numbers.
    include_paths : iterable of str
        Where CUDA C++ finds headers, before those of the toolkit.

    Returns
    -------
    bytes
        The cubin.

    Raises
    ------
    CompileError
        If the linker or the C++ compiler refuses, with its own words.
    """
    codes = list(codes)
    arch = arch_of(target)
    options = LinkerOptions(
        arch=arch,
        max_register_count=max_registers,
        debug=debug or None,
        lineinfo=(lineinfo and not debug) or None,
        link_time_optimization=any(code.kind == "ltoir" for code in codes) or None,
    )
    objects = [_object(code, arch, include_paths) for code in codes]
    try:
        linked: bytes = Linker(*objects, options=options).link("cubin").code
    except Exception as problem:  # the backends raise errors of their own
        said = _essence(problem)
        raise CompileError(
            f"nvJitLink does not link it for {arch}: {said}",
            field="link",
            value=", ".join(code.name for code in codes),
            remedy="Choose another target, or install a newer CUDA toolkit."
            if "_ARCH" in said
            else "Give what it misses with link= at @cuda.jit or cuda.declare_device, made for this device.",
        ) from problem
    return linked


def arch_of(target: tuple[int, int]) -> str:
    """``"sm_90"`` from ``(9, 0)``."""
    return f"sm_{target[0]}{target[1]}"


def device_runtime() -> Code:
    """The CUDA device runtime, which functions such as ``cudaGetLastError`` come from."""
    path = Path(pathfinder.locate_static_lib("cudadevrt").abs_path)
    return Code("a", path.read_bytes(), path.name)


def _object(code: Code, arch: str, include_paths: Iterable[str]) -> Any:
    if code.kind == "cu":
        # As PTX it could not be made here: cuda.core then asks the driver whether it could load that.
        try:
            options = {"relocatable_device_code": True}
            return compile_cpp(
                code.data.decode(), code.name, arch, options=options, include_paths=list(include_paths)
            ).code
        except SourceError as problem:
            raise CompileError(
                f"NVRTC does not compile it: {problem.where}{problem.essence()}",
                field="link",
                value=code.name,
                remedy="Correct the CUDA C++ source.",
            ) from problem
    if code.kind not in _MAKERS:
        raise CompileError(
            f"what can be linked is {', '.join(_MAKERS)} or cu",
            field="link",
            value=code.name,
            remedy="Compile it to one of these.",
        )
    return _MAKERS[code.kind](code.data, name=code.name)


def _essence(problem: Exception) -> str:
    """The lines of a tool's log that say what is wrong."""
    lines = [line.strip() for line in str(problem).replace("\0", "").splitlines()]
    telling = [line for line in lines if "error" in line.lower() and not line.endswith("compilation log:")]
    said = [line for line in telling if ":" in line] or telling or lines
    return "; ".join(said[:3])
