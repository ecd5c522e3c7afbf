"""Compiles kernels with Numba: a Python function and argument types in, a `KernelImage` out. No GPU is needed.

Numba gives PTX, `graphdsl.compile.link` makes the cubin, and the cubin says what the kernel needs. Each kernel is
compiled once for its types, its target and all that it reads, in a process and on disk. This module must not touch a
device, and must never use Numba's own launches.
"""

from __future__ import annotations

import re
import threading
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from numba.cuda import config, dispatcher, types
from numba.cuda.cudadrv import nvvm
from numba.cuda.cudadrv.linkable_code import LinkableCode

from graphdsl import (
    device,  # noqa: F401  # kernels that ask the package for it must find it there
    forks,
)
from graphdsl.compile import cache, diagnosis
from graphdsl.compile.elf import Resources, read_resources
from graphdsl.compile.fingerprint import fingerprint
from graphdsl.compile.image import KernelImage, ParameterLayout
from graphdsl.compile.link import Code, arch_of, device_runtime, link
from graphdsl.compile.reads import Reads
from graphdsl.compile.signature import Types, located, parameter_layout
from graphdsl.declare.kernel import Kernel
from graphdsl.declare.limits import DEFAULT_CAPABILITY
from graphdsl.errors import CompileError, Location

try:
    from numba.cuda.compiler import compile_cuda, kernel_fixup
except ImportError as problem:
    raise CompileError(
        f"Numba's CUDA compiler cannot be used: {problem}",
        field="NUMBA_ENABLE_CUDASIM",
        value=int(config.ENABLE_CUDASIM),
        remedy="Unset NUMBA_ENABLE_CUDASIM, which puts a simulator in its place: gd.emulator() needs no variable.",
    ) from None


class _Made(NamedTuple):
    """An image, the fingerprint that it has, and what the kernel read when it was made."""

    image: KernelImage
    key: str | None
    reads: Reads


_images: weakref.WeakKeyDictionary[Kernel, dict[Any, _Made]] = weakref.WeakKeyDictionary()
_device_functions: weakref.WeakKeyDictionary[Any, Reads] = weakref.WeakKeyDictionary()
_lock = threading.RLock()
forks.wait_for(_lock)  # a child that finds Numba in the middle of something could not compile


def compile_kernel(
    kernel: Kernel,
    types: Types,
    target: tuple[int, int] = DEFAULT_CAPABILITY,
    *,
    node: str | None = None,
    location: Location | None = None,
) -> KernelImage:
    """The image of a kernel for argument types and a device; compiled if neither this process nor the disk has it.

    It is the image of the kernel as it is now: a global that changed since the last call is noticed, and a failure is
    not remembered.

    Parameters
    ----------
    kernel : Kernel
        What is compiled, with the options of its decorator.
    types : tuple of Numba types
        One for each parameter, as `graphdsl.compile.signature.argument_types` gives them.
    target : tuple of int
        Compute capability.
    node, location : optional
        The node's name and where it was declared, for messages.

    Raises
    ------
    CompileError
        If Numba, NVVM or the linker refuses the kernel; the source line is named where Numba tells it.

    Examples
    --------
    >>> from numba.cuda import types
    >>> from graphdsl.declare.kernel import as_kernel
    >>> def clear(x):
    ...     x[0] = 0
    >>> compile_kernel(as_kernel(clear), (types.float32[::1],)).target
    (9, 0)
    """
    memo = _images.get(kernel)
    if memo is None:
        memo = _images.setdefault(kernel, {})
    found = memo.get((types, target))
    if found is None or not found.reads.unchanged():
        with _lock:
            found = memo.get((types, target))
            if found is None or not found.reads.unchanged():
                try:
                    found = memo[types, target] = _made(kernel, types, target, found)
                except CompileError as error:
                    raise located(error, node, location) from None
    return found.image


def _made(kernel: Kernel, types: Types, target: tuple[int, int], before: _Made | None) -> _Made:
    layout = parameter_layout(types, kernel.parameters)
    reads = Reads(kernel.function, kernel.options)
    key = fingerprint(kernel, types, target)
    if before is not None and key is not None and before.key == key:  # other objects that hold the same
        return _Made(before.image, key, reads)
    stored = cache.load(key, kernel.name, kernel.function, target, layout) if key else None
    image = stored or _build(kernel, layout, target, reads)
    if key and not stored:
        cache.store(key, image)
    return _Made(image, key, reads)


def _build(kernel: Kernel, layout: ParameterLayout, target: tuple[int, int], reads: Reads) -> KernelImage:
    options = kernel.options
    try:
        with _compiling_for(target):
            for dispatcher in reads.dispatchers:
                _refresh(dispatcher)
            library, entry = _lower(kernel, layout.types, target)
            ptx = library.get_asm_strs(cc=target)
            _require_target(kernel, ptx, target)
    except CompileError:
        raise
    except Exception as problem:  # Numba has two families of errors, and raises others, too
        raise diagnosis.refused(kernel, layout.types, problem) from None
    cubin = link(
        [*(Code("ptx", text.encode(), kernel.name) for text in ptx), *_external(kernel, library, "\n".join(ptx))],
        target,
        max_registers=options.get("max_registers"),
        debug=bool(options.get("debug")),
        lineinfo=bool(options.get("lineinfo")),
        include_paths=[path for path in config.CUDA_NVRTC_EXTRA_SEARCH_PATHS.split(":") if path],
    )
    resources = _resources(kernel, cubin, entry, target)
    _require_layout(kernel, layout, resources)
    return KernelImage(
        name=kernel.name,
        entry=entry,
        cubin=cubin,
        target=target,
        layout=layout,
        function=kernel.function,
        shared_bytes=resources.shared_bytes,
        registers=resources.registers,
        max_threads=resources.max_threads,
        ptx="\n".join(ptx),
    )


def _refresh(dispatcher: Any) -> None:
    """Let Numba forget what it compiled of a device function, unless the function still reads the same.

    A function compiled for types that its decorator declares is compiled for them again: it takes no others.
    """
    # Numba keeps a twin of a CPU function, to compile for devices, in the function's dispatcher.
    dispatcher = getattr(dispatcher, "_CUDATypingContext__dispatcher", dispatcher)
    reads = _device_functions.get(dispatcher)
    if reads is not None and reads.unchanged():
        return
    _device_functions[dispatcher] = Reads(dispatcher.py_func, dispatcher.targetoptions)
    # Kernels are dispatchers, too: what they launch has no entry point for callers.
    compiled = {args: made for args, made in dispatcher.overloads.items() if hasattr(made, "entry_point")}
    for args in compiled:
        del dispatcher.overloads[args]
    if not dispatcher._can_compile:
        for args, made in compiled.items():
            dispatcher.compile_device(args, made.signature.return_type)


@contextmanager
def _compiling_for(target: tuple[int, int]) -> Iterator[None]:
    """Let this thread compile for ``target``, quietly, whatever device there is.

    Numba compiles the device functions that a kernel calls for the current device: it asks for one, which fails
    without a GPU and creates a context with one.
    """
    thread, asked = threading.get_ident(), dispatcher.get_current_device

    def current_device() -> Any:
        return SimpleNamespace(compute_capability=target) if threading.get_ident() == thread else asked()

    dispatcher.get_current_device = current_device
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        dispatcher.get_current_device = asked


def _lower(kernel: Kernel, argtypes: Types, target: tuple[int, int]) -> tuple[Any, str]:
    """Numba's code library of the kernel, and the kernel's symbol: what `numba.cuda.compile` does before PTX."""
    options = kernel.options
    debug = bool(options.get("debug"))
    optimize = options.get("opt", True) and not debug  # CUDA has no optimised code with debug information
    nvvm_options = {
        "fastmath": options.get("fastmath", False),
        "opt": 3 if optimize else 0,
        **({"g": None} if debug else {}),
    }
    compiled = compile_cuda(
        kernel.function,
        None,
        argtypes,
        debug=debug,
        lineinfo=bool(options.get("lineinfo")),
        fastmath=options.get("fastmath", False),
        nvvm_options=nvvm_options,
        cc=target,
    )
    if compiled.signature.return_type != types.none:
        raise _returns(kernel, str(compiled.signature.return_type))
    library = compiled.library
    function = library.get_function(compiled.fndesc.llvm_func_name)
    kernel_fixup(function, debug)
    nvvm.set_launch_bounds(function, options.get("launch_bounds"))
    return library, function.name


def _returns(kernel: Kernel, what: str) -> CompileError:
    return CompileError(
        f"a kernel returns nothing, but {kernel.name} returns {what}",
        field="kernel",
        value=diagnosis.place_of(kernel),
        remedy="Write results to an array argument.",
    )


def _require_target(kernel: Kernel, ptx: list[str], target: tuple[int, int]) -> None:
    """Refuse what only later devices can do, before the linker speaks of instructions."""
    if target < (9, 0) and any("griddepcontrol" in text for text in ptx):
        raise CompileError(
            f"{kernel.name} calls grid_dependency_wait or launch_dependents, which devices have from compute "
            "capability 9.0 on",
            field="target",
            value=arch_of(target),
            remedy="Leave the call out for this device, and order the kernels by full edges.",
        )


_EXTERNAL_FUNCTION = re.compile(r"\.extern\s+\.func\s+(?:\([^)]*\)\s*)?(\w+)")
_RESHAPE_FUNCTIONS = {"nocopy_empty_reshape", "numba_attempt_nocopy_reshape"}
_DRIVER_FUNCTIONS = {"cudaGraphSetConditional"}  # the driver has it, without the 200 kB of the device runtime


def _external(kernel: Kernel, library: Any, ptx: str) -> list[Code]:
    """What the kernel needs beside its own code: what it declares, and what Numba's functions call."""
    if library.referenced_objects:
        raise _unsupported(
            kernel,
            "it reads a device array from a global, which a graph can neither see nor keep alive",
            "Make the array a parameter, and pass graph.external(name, array).",
        )
    needed = set(_EXTERNAL_FUNCTION.findall(ptx))
    files = sorted({*library._linking_files, *(kernel.options.get("link") or ())}, key=str)
    codes = [_code(kernel, file) for file in files]
    if needed & _RESHAPE_FUNCTIONS:
        codes.append(_code(kernel, str(Path(dispatcher.__file__).with_name("reshape_funcs.cu"))))
    if any(name.startswith("cuda") for name in needed - _DRIVER_FUNCTIONS):
        codes.append(device_runtime())
    return codes


def _code(kernel: Kernel, file: Any) -> Code:
    try:
        found = LinkableCode.from_path_or_obj(str(file) if isinstance(file, Path) else file)
    except (OSError, ValueError) as problem:
        raise CompileError(
            f"what {kernel.name} links must be a file that Numba knows: {problem}",
            field="link",
            value=file,
            remedy="Correct the path at link=.",
        ) from None
    if found.setup_callback or found.teardown_callback:
        raise _unsupported(
            kernel, "it links code with callbacks at loading, which graphs do not call", "Link it without."
        )
    data = found.data.encode() if isinstance(found.data, str) else bytes(found.data)
    return Code(_KINDS[type(found).__name__], data, found.name)


_KINDS = {
    "PTXSource": "ptx",
    "CUSource": "cu",
    "Fatbin": "fatbin",
    "Cubin": "cubin",
    "Archive": "a",
    "Object": "o",
    "LTOIR": "ltoir",
}


def _unsupported(kernel: Kernel, why: str, remedy: str) -> CompileError:
    return CompileError(
        f"{kernel.name} cannot be a node: {why}", field="kernel", value=diagnosis.place_of(kernel), remedy=remedy
    )


def _resources(kernel: Kernel, cubin: bytes, entry: str, target: tuple[int, int]) -> Resources:
    try:
        return read_resources(cubin, entry, target)
    except ValueError as problem:
        raise CompileError(
            f"the machine code cannot be read: {problem}",
            field="kernel",
            value=kernel.name,
            remedy="This nvJitLink writes another format: install a version that graphdsl was tested with.",
        ) from None


def _require_layout(kernel: Kernel, layout: ParameterLayout, resources: Resources) -> None:
    """Refuse machine code whose parameters are not where our layout of Numba's unstable convention puts them."""
    expected = tuple((leaf.offset, leaf.dtype.itemsize) for leaf in layout.leaves)
    if resources.parameters != expected:
        raise CompileError(
            f"the machine code has parameters (offset, bytes) {resources.parameters}, but the layout says {expected}",
            field="kernel",
            value=kernel.name,
            remedy="This numba-cuda passes arguments in another way: install a version that graphdsl was tested with.",
        )
