"""Types and images of a launch, whatever its kernel is: Numba's, or in another language.

What happens for each kind is in modules of its own. This module must only choose between them.
"""

from __future__ import annotations

from typing import Any

from graphdsl.compile import numba, signature, sources
from graphdsl.compile.arguments import source_types
from graphdsl.compile.image import KernelImage
from graphdsl.compile.signature import Types, located
from graphdsl.declare.kernel import Kernel
from graphdsl.declare.nodes import KernelNode
from graphdsl.declare.sources import SourceKernel


def argument_types(node: KernelNode, target: tuple[int, int]) -> Types:
    """The types to compile the kernel of a node for.

    Raises
    ------
    CompileError
        About the first argument that does not fit, or a kernel whose parameters cannot be told.
    """
    kernel = node.kernel
    details: dict[str, Any] = {"node": node.name, "location": node.location}
    if not isinstance(kernel, SourceKernel):
        return signature.argument_types(kernel, node.args, signature=node.signature, **details)
    code = sources.machine_code(kernel, target, **details)
    found = source_types(kernel, node.args, code.slots)
    if isinstance(found, list):
        raise located(found[0], node.name, node.location)
    return found


def compile_kernel(kernel: Kernel, types: Types, target: tuple[int, int], **details: Any) -> KernelImage:
    """The image of a kernel for argument types and a device; ``node`` and ``location`` are for messages."""
    if isinstance(kernel, SourceKernel):
        return sources.source_image(kernel, types, sources.machine_code(kernel, target, **details))
    return numba.compile_kernel(kernel, types, target, **details)
