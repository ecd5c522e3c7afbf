"""Makes machine code of kernels that are not Numba's: CUDA C++ by NVRTC, PTX by nvJitLink; no GPU is needed.

What a kernel takes and needs is read from its machine code, which is made once for its text, its options and its
target, in a process and on disk. This module must not touch a device; of a kernel that is loaded, cuda.core is asked.
"""

from __future__ import annotations

import functools
import re
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from graphdsl import forks
from graphdsl.cached import cached_property
from graphdsl.compile import cache
from graphdsl.compile.abi import codec_of
from graphdsl.compile.arguments import Slot, signature_error
from graphdsl.compile.elf import Resources, kernels, read_resources, target_of
from graphdsl.compile.fingerprint import content_digest, versions
from graphdsl.compile.headers import Headers
from graphdsl.compile.image import KernelImage, Leaf, ParameterLayout
from graphdsl.compile.link import Code, arch_of, device_runtime, link
from graphdsl.compile.nvrtc import SourceError, compile_cpp
from graphdsl.compile.signature import Types, located
from graphdsl.declare.cpp import identifier, mangled_prefix
from graphdsl.declare.sources import SourceKernel
from graphdsl.errors import CompileError, Location

_FORMAT = 1
"""Raised whenever the same inputs would give other machine code."""

Target = tuple[int, int]


class Build:
    """What a compiler made, which several kernels may share.

    Attributes
    ----------
    cubin : bytes
        The machine code.
    ptx : str
        The PTX that it was made from, if it was.
    symbols : dict of str to str
        The symbols of kernels with template arguments.
    """

    def __init__(self, cubin: bytes, ptx: str = "", symbols: dict[str, str] | None = None) -> None:
        self.cubin = cubin
        self.ptx = ptx
        self.symbols = symbols or {}


@dataclass(frozen=True, eq=False)
class MachineCode:
    """The machine code of a kernel for a device.

    Attributes
    ----------
    build : Build
        The code; without bytes for a kernel that is loaded.
    entry : str
        The kernel's symbol in it.
    target : tuple of int
        Compute capability that it is for.
    resources : Resources
        What it takes and needs.
    """

    build: Build
    entry: str
    target: Target
    resources: Resources

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """Its parameters."""
        floats = _floats(self.build.ptx, self.entry)
        return tuple(Slot(size, index in floats) for index, (_, size) in enumerate(self.resources.parameters))


def _floats(ptx: str, entry: str) -> frozenset[int]:
    """Which parameters are floating-point numbers, as far as PTX tells."""
    head = re.search(rf"\.entry\s+{re.escape(entry)}\s*\(([^)]*)\)", ptx)
    listed = head[1].split(",") if head else []
    return frozenset(index for index, each in enumerate(listed) if re.search(r"\.param\s+\.f(?:32|64)\b", each))


_codes: weakref.WeakKeyDictionary[SourceKernel, dict[Target, tuple[Headers, MachineCode]]] = weakref.WeakKeyDictionary()
_builds: weakref.WeakValueDictionary[str, Build] = weakref.WeakValueDictionary()
_lock = threading.RLock()
forks.wait_for(_lock)


def machine_code(
    kernel: SourceKernel, target: Target, *, node: str | None = None, location: Location | None = None
) -> MachineCode:
    """The machine code of a kernel for a device; made if neither this process nor the disk has it.

    Parameters
    ----------
    kernel : SourceKernel
        What is compiled.
    target : tuple of int
        Compute capability.
    node, location : optional
        The node's name and where it was declared, for messages.

    Raises
    ------
    CompileError
        If a compiler refuses the source, there is no such kernel, it is for another device, or its signature is not
        that of the machine code.

    Examples
    --------
    >>> from graphdsl.declare.sources import cuda_source
    >>> fill = cuda_source('extern "C" __global__ void fill(float* x, double value) { x[0] = value; }', "fill")
    >>> machine_code(fill, (9, 0)).resources.parameters
    ((0, 8), (8, 8))
    """
    with _lock:
        memo = _codes.setdefault(kernel, {})
        found = memo.get(target)
        if found is None or not found[0].unchanged():
            try:
                found = memo[target] = _made(kernel, target)
            except CompileError as error:
                raise located(error, node, location) from error.__cause__
    return found[1]


def _made(kernel: SourceKernel, target: Target) -> tuple[Headers, MachineCode]:
    headers = Headers(kernel) if kernel.form == "cuda" else Headers()
    if kernel.form == "loaded":
        code = _loaded(kernel)
    else:
        build = _MAKERS[kernel.form](kernel, target, headers)
        entry = build.symbols.get(kernel.entry or "") or _entry(kernel, build.cubin)
        own = target_of(build.cubin)
        code = MachineCode(build, entry, own, _resources(kernel, build.cubin, entry, own))
    if code.target[0] != target[0] or code.target[1] > target[1]:
        raise CompileError(
            f"{kernel!r} is machine code for {arch_of(code.target)}, and the device is {arch_of(target)}",
            field="kernel",
            value=kernel.name,
            remedy="Pass machine code for this device, or PTX or CUDA C++, which is compiled for any.",
        )
    mismatch = signature_error(kernel, code.slots)
    if mismatch is not None:
        raise mismatch
    return headers, code


# The kernel in the code


def _entry(kernel: SourceKernel, cubin: bytes) -> str:
    """The symbol of the kernel."""
    try:
        names = kernels(cubin)
    except ValueError as problem:
        raise _unreadable(kernel, problem) from None
    wanted = kernel.entry
    if wanted is None:
        found = names
    else:
        bare = wanted.partition("<")[0]
        found = [wanted] if wanted in names else [name for name in names if name.startswith(mangled_prefix(bare))]
    if len(found) == 1:
        return found[0]
    known = ", ".join(name for name in names if not name.startswith("__nv_static"))
    raise CompileError(
        f"the code has {len(found)} kernels of this name"
        if found and wanted
        else "the code has no kernel of this name"
        if wanted
        else f"the code has {len(names)} kernels, and one must be named",
        field="name",
        value=repr(wanted),
        remedy=f"Its kernels are {known}." if known else "A kernel is a __global__ function, .entry in PTX.",
    )


def _resources(kernel: SourceKernel, cubin: bytes, entry: str, target: Target) -> Resources:
    try:
        return read_resources(cubin, entry, target)
    except ValueError as problem:
        raise _unreadable(kernel, problem) from None


def _unreadable(kernel: SourceKernel, problem: ValueError) -> CompileError:
    return CompileError(
        f"the machine code cannot be read: {problem}",
        field="kernel",
        value=kernel.name,
        remedy="Pass a cubin that a CUDA 12 or 13 toolkit made, or PTX.",
    )


# One maker for each form


def _cached(parts: Any, make: Callable[[], Build]) -> Build:
    """What was made of ``parts`` before, or what ``make`` gives; None for parts that cannot be told by content."""
    key = None if parts is None else content_digest((_FORMAT, versions(), parts))
    if key is None:
        return make()
    found = _builds.get(key)
    if found is None:
        found = _stored(key)
        if found is None:
            found = make()
            header = {"symbols": found.symbols, "cubin_bytes": len(found.cubin)}
            cache.write(key, header, found.cubin + found.ptx.encode())
        _builds[key] = found
    return found


def _stored(key: str) -> Build | None:
    """What the disk has under a fingerprint."""
    header, payload = cache.read(key) or ({}, b"")
    size = header.get("cubin_bytes")
    return None if size is None else Build(payload[:size], payload[size:].decode(), header["symbols"])


def _cuda(kernel: SourceKernel, target: Target, headers: Headers) -> Build:
    # A kernel with template arguments exists only where it is asked for; the others are all in one cubin.
    expressions = [kernel.entry] if kernel.entry and "<" in kernel.entry else []
    contents = headers.contents()
    options = sorted(kernel.options.items())
    parts = ("cuda", kernel.code, kernel.path, options, expressions, target, contents) if contents is not None else None
    return _cached(parts, functools.partial(_compiled, kernel, target, headers, expressions))


def _compiled(kernel: SourceKernel, target: Target, headers: Headers, expressions: list[str]) -> Build:
    make = functools.partial(
        compile_cpp,
        kernel.code.decode(),
        _title(kernel),
        arch_of(target),
        include_paths=[str(folder) for folder in headers.folders],
        expressions=expressions,
    )
    options = dict(kernel.options)
    relocatable = bool(options.get("relocatable_device_code"))
    try:
        try:
            made = make(options=options)
        except SourceError as problem:
            if relocatable or not problem.lacks_runtime:
                raise
            relocatable = True
            made = make(options=options | {"relocatable_device_code": True})
    except SourceError as problem:
        raise _refused(kernel, problem) from problem
    cubin = bytes(made.code.code)
    return Build(_linked(kernel, cubin, target) if relocatable else cubin, made.ptx, made.symbols)


def _linked(kernel: SourceKernel, cubin: bytes, target: Target) -> bytes:
    codes = [Code("cubin", cubin, _title(kernel))]
    options = kernel.options
    make = functools.partial(
        link,
        target=target,
        max_registers=options.get("max_register_count"),
        debug=bool(options.get("debug")),
        lineinfo=bool(options.get("lineinfo")),
    )
    try:
        return make(codes)
    except CompileError:  # most of what the runtime declares is in the driver, and launches are not
        return make([*codes, device_runtime()])


def _title(kernel: SourceKernel) -> str:
    """What the compiler calls the source."""
    return kernel.path or f"{identifier(kernel.entry or '')}.cu"


def _refused(kernel: SourceKernel, problem: SourceError) -> CompileError:
    """The error for a source that NVRTC refuses, with the line of the first complaint."""
    first = problem.complaints[0] if problem.complaints else None
    if first is not None and first.file == "__nv_name_map":
        return CompileError(
            f"the source has no kernel of this name: {problem.essence()}",
            field="name",
            value=repr(kernel.entry),
            remedy="Name a __global__ function of it, with its namespaces and template arguments.",
        )
    place = kernel.name
    if first is not None:
        lines = kernel.code.decode().splitlines() if first.file == _title(kernel) else []
        text = lines[first.line - 1].strip() if 0 < first.line <= len(lines) else ""
        place = f"{first.file}:{first.line}{f' `{text}`' if text else ''}"
    return CompileError(
        f"NVRTC does not compile {kernel!r}: {problem.essence()}",
        field="kernel" if first is not None else "options",
        value=place,
        remedy="Correct the CUDA C++ source; the __cause__ has the compiler's whole log."
        if first is not None
        else "Correct the options.",
    )


def _ptx(kernel: SourceKernel, target: Target, headers: Headers) -> Build:
    return _cached(("ptx", kernel.code, target), functools.partial(_assembled, kernel, target))


def _assembled(kernel: SourceKernel, target: Target) -> Build:
    try:
        return Build(link([Code("ptx", kernel.code, kernel.name)], target), kernel.code.decode())
    except CompileError as problem:
        raise CompileError(
            f"the PTX of {kernel!r} does not become machine code: {problem.rule}",
            field="kernel",
            value=kernel.name,
            remedy="Correct the PTX: its .target must be no newer than the device.",
        ) from problem


def _given(kernel: SourceKernel, target: Target, headers: Headers) -> Build:
    return Build(kernel.code)


_MAKERS = {"cuda": _cuda, "ptx": _ptx, "cubin": _given}


def _loaded(kernel: SourceKernel) -> MachineCode:
    """What cuda.core says of a kernel that it has loaded."""
    origin = kernel.origin
    try:
        attributes = origin.attributes
        parameters = tuple((int(info.offset), int(info.size)) for info in origin.arguments_info)
        resources = Resources(
            attributes.num_regs, attributes.shared_size_bytes, attributes.max_threads_per_block, parameters
        )
        target = divmod(int(attributes.binary_version), 10)
    except Exception as problem:  # cuda.core has errors of several kinds, and so has a machine without a driver
        raise CompileError(
            f"cuda.core cannot tell what its kernel takes: {problem}",
            field="kernel",
            value=kernel.name,
            remedy="Make its device current with cuda.core.Device(n).set_current(), or pass the code to "
            "graphdsl.cubin.",
        ) from problem
    return MachineCode(Build(b""), "", target, resources)


# Images


_images: weakref.WeakKeyDictionary[SourceKernel, dict[Any, KernelImage]] = weakref.WeakKeyDictionary()


def source_image(kernel: SourceKernel, types: Types, code: MachineCode) -> KernelImage:
    """The image of a kernel for argument types; the same object for the same.

    Parameters
    ----------
    kernel : SourceKernel
        The kernel.
    types : tuple
        The type of each argument, as `graphdsl.compile.arguments.source_types` gives them.
    code : MachineCode
        Its machine code.
    """
    with _lock:
        memo = _images.setdefault(kernel, {})
        found = memo.get((types, code.target))
        if found is None or found.cubin is not code.build.cubin:
            found = memo[types, code.target] = _image(kernel, types, code)
    return found


def _image(kernel: SourceKernel, types: Types, code: MachineCode) -> KernelImage:
    resources = code.resources
    return KernelImage(
        name=kernel.name,
        entry=code.entry,
        cubin=code.build.cubin,
        target=code.target,
        layout=_layout(kernel, types, resources),
        function=kernel.function,
        shared_bytes=resources.shared_bytes,
        registers=resources.registers,
        max_threads=resources.max_threads,
        ptx=code.build.ptx,
        block=kernel.demands.block or resources.block,
        least_shared_bytes=kernel.demands.shared_bytes,
        loaded=kernel.origin if kernel.form == "loaded" else None,
    )


def _layout(kernel: SourceKernel, types: Types, resources: Resources) -> ParameterLayout:
    """How arguments lie in the parameters: where the machine code has them."""
    leaves, codecs = [], []
    for argument, (kind, (start, _)) in enumerate(zip(types, resources.parameters)):
        codec = codec_of(kind)
        codecs.append(codec)
        for path, dtype in codec.leaves:
            leaves.append(Leaf(start, dtype, argument, path))
            start += dtype.itemsize
    names = kernel.parameters or tuple(map(str, range(len(types))))
    end = max((offset + size for offset, size in resources.parameters), default=0)
    return ParameterLayout(tuple(leaves), end, types, names, tuple(codecs), resources.parameters)
