"""Types and images of kernels that are not Numba's, for a check.

Their machine code comes first, since the types of arguments follow from it. This module must not judge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphdsl.declare.nodes import KernelNode
from graphdsl.declare.sources import SourceKernel
from graphdsl.errors import CompileError

if TYPE_CHECKING:
    from graphdsl.check.subjects import KernelGroup
    from graphdsl.compile.sources import MachineCode

Codes = dict[SourceKernel, "MachineCode | CompileError"]
"""The machine code of each kernel, or why there is none."""


def resolve(group: KernelGroup, kernel: SourceKernel, target: tuple[int, int] | None, codes: Codes) -> None:
    """Find types, layout and image of a group, or why there are none.

    Parameters
    ----------
    group : KernelGroup
        Nodes of the kernel whose operands have the same types; with an image, they must keep to its types.
    kernel : SourceKernel
        Their kernel.
    target : tuple of int or None
        Compute capability to compile for; None to compile nothing.
    codes : dict
        What was compiled in this check; gets what is compiled now.
    """
    from graphdsl.compile.sources import machine_code, source_image

    if group.image is None and target is not None and kernel not in codes:
        try:
            codes[kernel] = machine_code(kernel, target)
        except CompileError as problem:
            codes[kernel] = problem
    code = codes.get(kernel)
    if isinstance(code, CompileError):
        group.compile_error, code = code, None
    found = _types(group.nodes[0], group, codes)
    if isinstance(found, list):
        group.type_error = found[0]
        return
    group.types = found
    if group.image is None and code is not None:
        group.image = source_image(kernel, found, code)
    group.layout = group.image.layout if group.image else None


def type_errors(node: KernelNode, group: KernelGroup, codes: Codes) -> list[CompileError]:
    """All that is wrong with the arguments of a node."""
    found = _types(node, group, codes)
    return found if isinstance(found, list) else []


def _types(node: KernelNode, group: KernelGroup, codes: Codes) -> tuple[Any, ...] | list[CompileError]:
    from graphdsl.compile.arguments import Slot, source_types

    kernel: Any = node.kernel
    if group.image is not None:
        layout = group.image.layout
        return source_types(kernel, node.args, [Slot(size) for _, size in layout.parameters], layout.types)
    return source_types(kernel, node.args, getattr(codes.get(kernel), "slots", None))
