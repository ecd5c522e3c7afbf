"""A digest of everything that the machine code of a kernel follows from, by which images are cached.

That is its bytecode and constants, the closures and globals it reads (through device functions too), the types,
target, options and linked code, and the versions of the tools. What cannot be told by content makes a kernel
uncacheable rather than wrongly cached: a plain Python function, say, means to Numba whatever was registered for it.
This module must not compile or store anything.
"""

from __future__ import annotations

import dis
import enum
import functools
import hashlib
import importlib.metadata
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np
from numba.cuda import types
from numba.cuda.cudadrv.linkable_code import LinkableCode
from numba.cuda.extending import _Intrinsic

from graphdsl.compile.signature import Types
from graphdsl.declare.kernel import Kernel

FORMAT = 1
"""Raised whenever the same inputs would give another image."""

_TOOLS = (
    "numba-cuda",
    "numba",
    "llvmlite",
    "numpy",
    "cuda-core",
    "nvidia-nvvm",
    "nvidia-nvjitlink",
    "nvidia-cuda-nvrtc",
    "nvidia-cuda-runtime",
    "nvidia-cuda-cccl",
)


_Seen = dict[Any, tuple[int, Any]]
"""What was told already: its number, and the object itself, so that its identity stays its own."""


class _Uncacheable(Exception):
    """Something that the code follows from cannot be told by content."""


def fingerprint(kernel: Kernel, types: Types, target: tuple[int, int]) -> str | None:
    """The digest for a kernel, argument types and a device, as 64 hexadecimal digits; None if it has none."""
    seen: _Seen = {}
    try:
        options = {**kernel.options, "link": [_linked(item) for item in kernel.options.get("link") or ()]}
        parts = (FORMAT, _environment(), target, tuple(map(str, types)), options)
        return _digest([*_tokens(parts, seen), *_function_tokens(kernel.function, kernel.options, seen)])
    except (_Uncacheable, RecursionError):  # a list that holds itself has no end
        return None


def content_digest(value: Any) -> str | None:
    """The digest of what a list or the like holds; None where that cannot be told."""
    try:
        return _digest(list(_tokens(value, {})))
    except (_Uncacheable, RecursionError):
        return None


def _digest(tokens: list[bytes]) -> str:
    digest = hashlib.sha256()
    for token in tokens:
        digest.update(len(token).to_bytes(8, "little") + token)
    return digest.hexdigest()


def _environment() -> tuple[Any, ...]:
    """Versions of the tools, and the variables that change what Numba does."""
    variables = sorted(item for item in os.environ.items() if item[0].startswith("NUMBA_"))
    return (versions(), tuple(variables))


@functools.cache
def versions() -> tuple[str, ...]:
    """Versions of Python and of the tools that compile."""
    return (sys.version, *(f"{tool} {_distribution_version(tool)}" for tool in _TOOLS))


def _distribution_version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


# One function for each kind of object; each gives tokens that differ whenever the code made of the object does.


def _tokens(value: Any, seen: _Seen) -> Iterator[bytes]:
    kind = type(value)
    yield f"{kind.__module__}.{kind.__qualname__}".encode()
    if value is None or value is Ellipsis:
        return
    if kind in (bool, int, float, complex, str, range, slice) or isinstance(value, (np.dtype, types.Type)):
        yield repr(value).encode()
    elif kind is bytes:
        yield value
    elif isinstance(value, enum.Enum):
        yield from _tokens(kind, seen)
        yield value.name.encode()
    elif isinstance(value, (np.ndarray, np.generic)):
        yield from _array_tokens(np.asarray(value))
    elif isinstance(value, (tuple, list)):
        yield from _sequence_tokens(value, seen)
    elif kind in (set, frozenset):
        yield from sorted(_digest(list(_tokens(item, seen))).encode() for item in value)
    elif kind is dict:
        yield from _tokens(list(value.items()), seen)
    elif kind is CodeType:
        yield from _code_tokens(value, seen)
    else:
        yield from _object_tokens(value, seen)


def _array_tokens(array: np.ndarray[Any, Any]) -> Iterator[bytes]:
    if array.dtype.hasobject:
        raise _Uncacheable(array)
    yield repr((array.dtype, array.shape, array.strides)).encode()
    yield array.tobytes()


def _sequence_tokens(items: Any, seen: _Seen) -> Iterator[bytes]:
    yield str(len(items)).encode()
    yield repr(getattr(items, "_fields", ())).encode()
    for item in items:
        yield from _tokens(item, seen)


def _object_tokens(value: Any, seen: _Seen) -> Iterator[bytes]:
    """Things with a name; each is told once, so that functions may call each other."""
    if _met(id(value), value, seen):
        yield b"again " + str(seen[id(value)][0]).encode()
        return
    published = _published(value)
    if published is not None:
        yield published.encode()
    elif isinstance(value, type):
        yield from _class_tokens(value, seen)
    elif hasattr(value, "py_func") and hasattr(value, "targetoptions"):
        yield from _tokens({key: item for key, item in value.targetoptions.items() if item}, seen)
        yield from _function_tokens(value.py_func, value.targetoptions, seen)
    elif isinstance(value, _Intrinsic):
        yield repr(value._prefer_literal).encode()
        yield from _function_tokens(value.__wrapped__, {}, seen)  # what it generates follows from its own code
    else:
        raise _Uncacheable(value)


def _met(key: Any, value: Any, seen: _Seen) -> bool:
    """True if it was met before; from now on it was."""
    if key in seen:
        return True
    seen[key] = (len(seen), value)
    return False


def _published(value: Any) -> str | None:
    """Name and version of something that an installed package publishes under its own name, else None."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", getattr(value, "__name__", None))
    if isinstance(value, np.ufunc):
        module = "numpy"
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    version = installed_version(module) if found is value else None
    return None if version is None else f"{module}.{name} {version}"


@functools.cache
def installed_version(module: str) -> str | None:
    """Version of the installed package that a module belongs to; None for code that may change without one."""
    package = module.partition(".")[0]
    if package in sys.stdlib_module_names:
        return sys.version
    found: Any = sys.modules.get(package)
    file = getattr(found, "__file__", None)
    if file is None:
        return None
    # An installer leaves its records beside what it installs; code that is edited in place has none there.
    folder = Path(file).parents[1 if hasattr(found, "__path__") else 0]
    if not any(folder.glob("*.dist-info")):
        return None
    version = getattr(found, "__version__", None) or _distribution_version(package)
    return None if version == "unknown" else str(version)


def _class_tokens(kind: type, seen: _Seen) -> Iterator[bytes]:
    yield f"{kind.__module__}.{kind.__qualname__}".encode()
    if issubclass(kind, enum.Enum):
        yield from _tokens([(member.name, member.value) for member in kind], seen)
    elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
        yield repr(kind._fields).encode()
    else:
        raise _Uncacheable(kind)


def _linked(item: Any) -> tuple[str, bytes]:
    """Kind and contents of what is linked."""
    try:
        code = LinkableCode.from_path_or_obj(os.fspath(item) if isinstance(item, os.PathLike) else item)
        data = code.data.encode() if isinstance(code.data, str) else bytes(code.data)
    except (OSError, ValueError, TypeError, AttributeError) as problem:
        raise _Uncacheable(item) from problem
    if b"#include" in data:
        raise _Uncacheable(item)  # headers may change, too
    return type(code).__name__, data


def _function_tokens(function: Any, options: Any, seen: _Seen) -> Iterator[bytes]:
    yield f"{function.__module__}.{function.__qualname__}".encode()
    yield from _tokens((function.__defaults__, function.__kwdefaults__), seen)
    codes = list(codes_of(function.__code__))
    if options.get("debug") or options.get("lineinfo"):
        yield repr([(code.co_filename, list(code.co_lines())) for code in codes]).encode()
    yield from _tokens(function.__code__, seen)
    names, attributes = names_read(codes)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        yield name.encode()
        yield from _read_tokens(cell.cell_contents if _is_filled(cell) else None, attributes, seen)
    for name in names:
        yield name.encode()
        if name in function.__globals__:
            yield from _read_tokens(function.__globals__[name], attributes, seen)


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def codes_of(code: CodeType) -> Iterator[CodeType]:
    """The code and those of the functions and comprehensions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_of(constant)


def _code_tokens(code: CodeType, seen: _Seen) -> Iterator[bytes]:
    # Not the file name and line numbers: a comment above must not make another kernel of it.
    yield code.co_code
    yield getattr(code, "co_exceptiontable", b"")
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    yield from _tokens((counts, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars), seen)
    yield from _tokens(code.co_consts, seen)


def names_read(codes: list[CodeType]) -> tuple[list[str], tuple[str, ...]]:
    """The globals that the code reads, and the attributes it asks anything for."""
    names, attributes = set(), set()
    for code in codes:
        for instruction in dis.get_instructions(code):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                names.add(instruction.argval)
            elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                attributes.add(instruction.argval)
    return sorted(names), tuple(sorted(attributes))


def _read_tokens(value: Any, attributes: tuple[str, ...], seen: _Seen) -> Iterator[bytes]:
    """A value read: of a module that may change without a new version, what the code can ask it for."""
    if not isinstance(value, ModuleType):
        yield from _tokens(value, seen)
        return
    version = installed_version(value.__name__)
    yield f"{value.__name__} {version}".encode()
    if version is None and not _met((id(value), attributes), value, seen):
        for name in attributes:
            if name in vars(value):
                yield name.encode()
                yield from _read_tokens(vars(value)[name], attributes, seen)
