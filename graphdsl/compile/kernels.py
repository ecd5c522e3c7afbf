"""Types and images of a launch, whatever its kernel is: Numba's, or in another language.

What happens for each kind is in modules of its own. This module must only choose between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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


def compile_all(
    nodes: Iterable[KernelNode],
    target_of: Callable[[KernelNode], tuple[int, int]],
    progress: Callable[[int, int, str], None] = lambda done, total, name: None,
) -> None:
    """Compile the kernels of nodes, each once for the same types and target; later calls find them.

    Parameters
    ----------
    nodes : iterable of KernelNode
        Whose kernels.
    target_of : callable
        The compute capability of the device that a node runs on.
    progress : callable, optional
        Called with how many are compiled, how many there are, and the name of the kernel that comes next; at the end
        with an empty name.

    Raises
    ------
    CompileError
        About the first kernel that does not compile, or does not fit its arguments.
    """
    distinct: dict[Any, KernelNode] = {}
    for node in nodes:
        target = target_of(node)
        distinct.setdefault((node.kernel, argument_types(node, target), target), node)
    for done, ((kernel, types, target), node) in enumerate(distinct.items()):
        progress(done, len(distinct), kernel.name)
        compile_kernel(kernel, types, target, node=node.name, location=node.location)
    progress(len(distinct), len(distinct), "")
