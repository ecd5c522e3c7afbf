"""Kernels that are not Python: CUDA C++ and PTX text, and machine code.

Each becomes a `SourceKernel`, which `Graph.kernel` takes like a Python function. This module must not compile
anything.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from graphdsl.declare.c_types import Parameter, Pointer, Value, parse
from graphdsl.declare.cpp import identifier, kernel_parameters
from graphdsl.declare.interned import Interned
from graphdsl.declare.kernel import Demands, Kernel, as_kernel
from graphdsl.errors import DeclarationError

Form = Literal["cuda", "ptx", "cubin", "loaded"]
"""What a kernel is given as: CUDA C++, PTX, machine code, or loaded by somebody else."""


class SourceKernel(Kernel):
    """A kernel that is not a Python function; one object for the same code, name, types and so on.

    Attributes
    ----------
    function : callable or None
        A Python function that the emulator runs in its place.
    name, parameters, positions, options
        As `Kernel` has them; parameters without names have their numbers.
    form : "cuda", "ptx", "cubin" or "loaded"
        What ``code`` is.
    code : bytes
        Source text, PTX or machine code; empty where the kernel is loaded.
    entry : str or None
        The kernel's name in the code, such as ``"math::scale<float>"``; None for the only one.
    types : tuple of Parameter, or None
        What it takes, as declared or read from the source text; None if only the machine code tells.
    path : str or None
        The file that the source text was read from.
    hidden : int
        Addresses that its compiler may add behind the parameters, and that may be null.
    origin : object or None
        The loaded kernel, which is kept alive.
    """

    __slots__ = ("code", "counted", "demands", "entry", "form", "hidden", "origin", "path", "types")

    def __new__(cls, *args: Any, **fields: Any) -> SourceKernel:
        made = super().__new__(cls)
        made._fill(*args, **fields)
        key = (*(getattr(made, name) for name in _TOLD), repr(sorted(made.options.items())), id(made.origin))
        return _known.keep(key, made)

    def __init__(self, *args: Any, **fields: Any) -> None:
        """All is done by `__new__`, which may give one that there is."""

    def _fill(
        self,
        form: Form,
        code: bytes,
        entry: str | None,
        *,
        types: tuple[Parameter, ...] | None = None,
        options: Mapping[str, Any] | None = None,
        emulate: Any = None,
        path: str | None = None,
        demands: Demands = Kernel.demands,
        hidden: int = 0,
        origin: Any = None,
    ) -> None:
        emulated = None if emulate is None else _emulated(emulate)
        self.form = form
        self.code = code
        self.entry = entry
        self.name = identifier(entry) if entry else "kernel"
        self.types = _named(types, emulated, self.name)
        self.function = None if emulated is None else emulated.function
        self.counted = self.types is not None
        self.parameters = tuple(parameter.name for parameter in self.types or ())
        self.positions = {name: position for position, name in enumerate(self.parameters)}
        self.signatures = ()
        self.options = dict(options or {})
        self.path = path
        self.demands = demands
        self.hidden = hidden
        self.origin = origin

    @property
    def reads(self) -> frozenset[str]:
        """Names of the pointers through which it only reads, as ``const`` says."""
        return frozenset(
            each.name for each in self.types or () if isinstance(each.type, Pointer) and each.type.readonly
        )

    def divisor(self, argument: int) -> int:
        return self.types[argument].divisor if self.types is not None and argument < len(self.types) else 1

    def held(self, index: int, argument: Any) -> Any:
        """An argument as a node holds it; a structure as it is now."""
        if isinstance(argument, np.void):
            return argument.copy()
        return bytes(argument) if isinstance(argument, (ctypes.Structure, ctypes.Union, bytearray)) else argument

    def signed(self, signature: Any) -> SourceKernel:
        """The same kernel with other types declared."""
        return SourceKernel(
            self.form,
            self.code,
            self.entry,
            types=parse(signature),
            options=self.options,
            emulate=self.function,
            path=self.path,
            demands=self.demands,
            hidden=self.hidden,
            origin=self.origin,
        )

    def __repr__(self) -> str:
        title = self.entry if self.entry and not self.entry.startswith("_Z") else self.name
        return f"{title}({', '.join(self.parameters)})" if self.counted else title


_TOLD = ("form", "code", "entry", "types", "function", "path", "demands", "hidden")
_known: Interned[SourceKernel] = Interned()


def _emulated(emulate: Any) -> Kernel:
    try:
        found = as_kernel(emulate)
    except DeclarationError as problem:
        raise _bad_emulation(problem.rule, problem.value) from None
    if isinstance(found, SourceKernel):
        raise _bad_emulation("what runs in place of a kernel is a Python function", repr(emulate))
    return found


def _bad_emulation(rule: str, value: Any) -> DeclarationError:
    return DeclarationError(
        rule, field="emulate", value=value, remedy="Pass a function as you would decorate it with @cuda.jit."
    )


def _named(types: tuple[Parameter, ...] | None, emulated: Kernel | None, kernel: str) -> tuple[Parameter, ...] | None:
    """The parameters with the names that the Python function has for those without one."""
    if emulated is None:
        return types
    if types is None:  # all that is known of them are the names
        return tuple(Parameter(name, Value("?")) for name in emulated.parameters)
    if len(types) != len(emulated.parameters):
        raise _bad_emulation(
            f"it has the parameters of kernel {kernel}, which takes {len(types)}: "
            f"{', '.join(parameter.type.text for parameter in types)}",
            repr(emulated),
        )
    named = zip(types, emulated.parameters)
    return tuple(own._replace(name=name) if own.name.isdigit() else own for own, name in named)


# What users call


def cuda_source(
    code: str | os.PathLike[str],
    name: str,
    *,
    signature: str | Sequence[Any] | None = None,
    options: Any = None,
    emulate: Any = None,
) -> SourceKernel:
    """A kernel in CUDA C++, which NVRTC compiles for the device of each instantiation.

    Parameters
    ----------
    code : str or path
        The source text, or the path of a file with it.
    name : str
        The kernel: ``"scale"``, ``"math::scale"``, or with template arguments ``"scale<float, 4>"``.
    signature : str or sequence, optional
        Its parameters, such as ``"const float* x, float* y, float gain, int n"``, or a list of such types and of NumPy
        dtypes for values; by default they are read from the text. They must agree with the machine code.
    options : dict or cuda.core.ProgramOptions, optional
        Compiler options by the names of ``cuda.core.ProgramOptions``, such as ``{"std": "c++20", "use_fast_math":
        True, "define_macro": [("N", "4")], "include_path": ["include"]}``.
    emulate : callable, optional
        A Python function with the same parameters, written as for ``numba.cuda.jit``, that the emulator runs in its
        place. A pointer arrives as an array of one dimension that reaches to the end of the allocation.

    Raises
    ------
    DeclarationError
        If the file cannot be read, or an argument is of no use.

    Examples
    --------
    >>> scale = cuda_source('''
    ... extern "C" __global__ void scale(const float* x, float* y, float gain, int n) {
    ...     int i = blockIdx.x * blockDim.x + threadIdx.x;
    ...     if (i < n) y[i] = gain * x[i];
    ... }''', "scale")
    >>> scale, sorted(scale.reads)
    (scale(x, y, gain, n), ['x'])
    """
    text, path = _text(code, "__global__")
    _require_name(name)
    types = kernel_parameters(text, name) if signature is None else parse(signature)
    return SourceKernel("cuda", text.encode(), name, types=types, options=_options(options), emulate=emulate, path=path)


def ptx(
    code: str | bytes | os.PathLike[str],
    name: str | None = None,
    *,
    signature: str | Sequence[Any] | None = None,
    emulate: Any = None,
) -> SourceKernel:
    """A kernel in PTX, which nvJitLink makes machine code of for the device of each instantiation.

    Parameters
    ----------
    code : str, bytes or path
        The PTX, or the path of a file with it.
    name : str, optional
        The kernel's name, mangled or as in C++; may be left out where there is only one.
    signature, emulate
        As for `cuda_source`. Without a signature arguments are judged by their sizes alone.

    Examples
    --------
    >>> ptx(".version 8.0 .target sm_80 .address_size 64 .visible .entry nothing() { ret; }", "nothing", signature="")
    nothing()
    """
    text, _ = _text(code, ".entry")
    _require_name(name, optional=True)
    return SourceKernel("ptx", text.encode(), name, types=_declared(signature), emulate=emulate)


def cubin(
    code: bytes | str | os.PathLike[str],
    name: str | None = None,
    *,
    signature: str | Sequence[Any] | None = None,
    emulate: Any = None,
) -> SourceKernel:
    """A kernel in machine code, which runs on devices of its own compute capability only.

    Parameters
    ----------
    code : bytes or path
        A cubin, or the path of a file with one.
    name : str, optional
        The kernel's name, mangled or as in C++; may be left out where there is only one.
    signature, emulate
        As for `cuda_source`. Without a signature arguments are judged by their sizes alone.
    """
    data = code if isinstance(code, bytes) else bytes(code) if isinstance(code, bytearray) else _file(code)
    if not data.startswith(b"\x7fELF"):
        raise DeclarationError(
            "machine code of a kernel is a cubin, which is an ELF file",
            field="code",
            value=f"{len(data)} bytes that begin with {data[:8]!r}",
            remedy="Take the cubin out of a fat binary with `cuobjdump -xelf all`, or pass PTX to graphdsl.ptx.",
        )
    _require_name(name, optional=True)
    return SourceKernel("cubin", data, name, types=_declared(signature), emulate=emulate)


def _declared(signature: Any) -> tuple[Parameter, ...] | None:
    return None if signature is None else parse(signature)


def _require_name(name: Any, optional: bool = False) -> None:
    if (optional and name is None) or (isinstance(name, str) and name.strip() and name.isprintable()):
        return
    raise DeclarationError(
        "a kernel in source or machine code is known by its name there",
        field="name",
        value=repr(name),
        remedy='Pass the name, such as "scale" or "math::scale<float>".',
    )


def _text(code: Any, telling: str) -> tuple[str, str | None]:
    """Source text, and the path of its file if it has one; what is ``telling`` stands in no path."""
    if isinstance(code, (bytes, bytearray)):
        code = bytes(code).rstrip(b"\0").decode(errors="replace")
    if isinstance(code, str) and ("\n" in code or telling in code):
        return code, None
    return _file(code).decode(errors="replace"), str(Path(code).resolve())


def _file(path: Any) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, TypeError, ValueError) as problem:
        raise DeclarationError(
            f"the code of a kernel is given itself, or as the path of a file: {problem}",
            field="code",
            value=f"{path!r} of type {type(path).__name__}",
            remedy="Correct the path, or pass the contents.",
        ) from None


_OURS = {
    "arch": "the device of the instantiation says it",
    "name": "the kernel's name is used",
    "link_time_optimization": "machine code is needed",
    "fdevice_syntax_only": "machine code is needed",
}


def _options(options: Any) -> dict[str, Any]:
    """Compiler options that were given, by name."""
    if options is None:
        return {}
    if is_dataclass(options) and type(options).__module__.startswith("cuda.core"):
        # arch and name always have a value in it
        given = {name: value for name, value in asdict(options).items() if value is not None}  # type: ignore[arg-type]
        return {name: value for name, value in given.items() if name not in ("arch", "name")}
    if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
        raise DeclarationError(
            "compiler options are a dict by the names of cuda.core.ProgramOptions, or one of these",
            field="options",
            value=f"{options!r} of type {type(options).__name__}",
            remedy='Pass options={"use_fast_math": True}.',
        )
    for name in options:
        if name in _OURS:
            raise DeclarationError(
                f"this compiler option is not yours to give: {_OURS[name]}",
                field="options",
                value=f"{name}={options[name]!r}",
                remedy="Leave it out.",
            )
    return dict(options)
