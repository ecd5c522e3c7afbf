"""Kernels that others have made: compiled by Triton, or loaded by cuda.core.

Neither is imported: their objects are known by their type, and their attributes are read. Of Triton that is
``CompiledKernel`` as of versions 3.3 to 3.6, whose launcher passes two addresses behind the arguments: of scratch
memory for the kernel and for a profiler, null where none is needed. This module must not ask a driver.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphdsl.declare.c_types import Parameter, Pointer, Value, parse
from graphdsl.declare.kernel import Demands
from graphdsl.declare.sources import SourceKernel
from graphdsl.errors import DeclarationError

_SCRATCH = ("global_scratch", "profile_scratch")
_CONSTANT = "constexpr"

_DTYPES: dict[str, np.dtype[Any] | None] = {
    "i1": np.dtype(np.bool_),
    "u1": np.dtype(np.bool_),
    "fp16": np.dtype(np.float16),
    "fp32": np.dtype(np.float32),
    "f32": np.dtype(np.float32),
    "fp64": np.dtype(np.float64),
    **{f"{sign}{8 * size}": np.dtype(f"{sign}{size}") for sign in "iu" for size in (1, 2, 4, 8)},
}


def triton(compiled: Any, *, signature: str | Sequence[Any] | None = None, emulate: Any = None) -> SourceKernel:
    """A kernel that Triton has compiled: what ``kernel.warmup(...)`` and ``triton.compile(...)`` give.

    It brings its block and its shared memory, so that `Graph.kernel` needs only the grid, and arguments for what is
    left of the parameters: those that were ``constexpr``, or that Triton took for constants, are in the code.

    Parameters
    ----------
    compiled : triton.compiler.CompiledKernel
        The kernel, compiled for the device that the graph is for.
    signature, emulate
        As for `cuda_source`; by default the types that Triton compiled for.

    Raises
    ------
    DeclarationError
        If it is not compiled, not for CUDA, or needs what a graph does not give it.
    """
    asm, metadata = getattr(compiled, "asm", None), getattr(compiled, "metadata", None)
    if asm is None or metadata is None:
        raise _refused(
            "a graph takes a kernel that Triton has compiled",
            f"{compiled!r} of type {type(compiled).__name__}",
            "Pass what kernel.warmup(*args, grid=(1,)) or triton.compile(...) gives.",
        )
    if "cubin" not in asm:
        raise _refused("a graph takes machine code for CUDA", ", ".join(asm), "Compile it for a CUDA device.")
    if getattr(metadata, "num_ctas", 1) != 1 or math.prod(getattr(metadata, "cluster_dims", None) or (1,)) != 1:
        raise _refused(
            "Triton counts a cluster of blocks as one in the grid, and a graph counts blocks",
            str(metadata.name),
            "Compile it with num_ctas=1.",
        )
    types = _types(compiled, str(metadata.name)) if signature is None else parse(signature)
    scratch = [name for name in _SCRATCH if getattr(metadata, f"{name}_size", 0)]
    if scratch:  # what is needed is an argument like any other, and so is what stands before it
        named = _SCRATCH[: _SCRATCH.index(scratch[-1]) + 1]
        types += tuple(Parameter(name, Pointer("void*")) for name in named)
        hidden = len(_SCRATCH) - len(named)
    else:
        hidden = len(_SCRATCH)
    warp = getattr(getattr(metadata, "target", None), "warp_size", 32)
    return SourceKernel(
        "cubin",
        bytes(asm["cubin"]),
        str(metadata.name),
        types=types,
        emulate=emulate,
        demands=Demands(
            (int(metadata.num_warps) * int(warp), 1, 1),
            int(metadata.shared),
            bool(getattr(metadata, "launch_cooperative_grid", False)),
        ),
        hidden=hidden,
    )


def _types(compiled: Any, name: str) -> tuple[Parameter, ...]:
    source = getattr(compiled, "src", None)
    signature, attributes = getattr(source, "signature", None), getattr(source, "attrs", None) or {}
    if not isinstance(signature, Mapping):
        raise _refused("what Triton compiled it for cannot be read", name, 'Pass signature="float* x, int n".')
    return tuple(
        Parameter(str(parameter), _type(kind, f"{name}.{parameter}"), _divisor(attributes.get((index,))))
        for index, (parameter, kind) in enumerate(signature.items())
        if kind != _CONSTANT
    )


def _divisor(attributes: Sequence[Sequence[Any]] | None) -> int:
    """What Triton took an argument to be a multiple of, by the values that it was compiled with."""
    return max((int(value) for name, value in attributes or () if name == "tt.divisibility"), default=1)


def _type(kind: Any, where: str) -> Pointer | Value:
    if isinstance(kind, str):
        if kind.startswith("*"):
            readonly = kind.startswith("*k")
            return Pointer(kind, _DTYPES.get(kind[2:] if readonly else kind[1:]), readonly)
        if kind in _DTYPES or kind == "bf16":
            return Value(kind, _DTYPES.get(kind))
    raise _refused(
        "a graph passes addresses and numbers to kernels of Triton",
        f"{where}: {kind}",
        "Pass pointers and sizes instead of tensor descriptors and tuples.",
    )


def _refused(rule: str, value: str, remedy: str) -> DeclarationError:
    return DeclarationError(rule, field="kernel", value=value, remedy=remedy)


# What `Graph.kernel` is given directly


def foreign_kernel(source: Any) -> SourceKernel | None:
    """The kernel of an object of cuda.core or Triton; None if it is not of these."""
    package = type(source).__module__.partition(".")[0]
    if package not in ("cuda", "triton"):
        return None
    return triton(source) if package == "triton" else _of_cuda_core(source)


def _of_cuda_core(source: Any) -> SourceKernel:
    if not all(hasattr(type(source), name) for name in ("handle", "arguments_info", "attributes")):
        raise DeclarationError(
            "of the objects of cuda.core, a Kernel can be launched",
            field="kernel",
            value=f"an object of type {type(source).__name__}",  # some ask the driver to be printed
            remedy="Pass code.get_kernel(name), or graphdsl.cubin(code.code, name).",
        )
    return SourceKernel("loaded", b"", None, origin=source)
