"""What a kernel may do to the graph that it runs in: device functions that CUDA has and Numba lacks.

Kernels call them as any device function, ``from graphdsl import device`` and ``device.grid_dependency_wait()``, or
``gd.device.grid_dependency_wait()``. They have no meaning outside of a kernel. This module imports Numba, and nothing
of the package: ``import graphdsl`` must not import it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.cuda import cgutils, types
from numba.cuda.core.errors import TypingError
from numba.cuda.extending import intrinsic

__all__ = ["grid_dependency_wait", "launch_dependents", "set_condition"]


def _device_function(definition: Callable[..., Any]) -> Any:
    """A Numba intrinsic; in the emulator, the method of that name of the launch that the kernel runs in."""
    made = intrinsic(definition)
    name = definition.__name__
    made.__graphdsl_simulate__ = lambda api, *args, **kwargs: getattr(api.launch, name)(*args, **kwargs)
    return made


# The machine code of an intrinsic follows from its function alone, by which images are cached: no helpers here.


@_device_function
def grid_dependency_wait(typing_context: Any) -> Any:
    """Wait until the kernels before this one, by programmatic edges, have ended, and all that they wrote can be read.

    What stands before it may run while they still run; what they write must be read behind it. It returns at once in a
    kernel with no such edges. Compute capability 9.0 or later. It is ``cudaGridDependencySynchronize`` of CUDA C++, and
    ``griddepcontrol.wait`` in PTX.

    Examples
    --------
    >>> from numba import cuda
    >>> from graphdsl import device
    >>> @cuda.jit
    ... def second(x, y):
    ...     i = cuda.grid(1)
    ...     device.grid_dependency_wait()
    ...     y[i] = 2 * x[i]  # x is written by the kernel before
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # It clobbers memory: no load moves above it.
        kind = ir.FunctionType(ir.VoidType(), [])
        builder.asm(kind, "griddepcontrol.wait;", "~{memory}", [], side_effect=True)
        return context.get_dummy_value()

    return types.void(), generate


@_device_function
def launch_dependents(typing_context: Any) -> Any:
    """Let the kernels behind this one, by programmatic edges, start, once every block has called it or has ended.

    It promises nothing about memory: they see what this kernel writes, before this call or after it, only behind their
    `grid_dependency_wait`. One thread of a block is enough, and a block that never calls it does so by ending. Compute
    capability 9.0 or later. It is ``cudaTriggerProgrammaticLaunchCompletion`` of CUDA C++, and
    ``griddepcontrol.launch_dependents`` in PTX.

    Examples
    --------
    >>> from numba import cuda
    >>> from graphdsl import device
    >>> @cuda.jit
    ... def first(x):
    ...     device.launch_dependents()
    ...     x[cuda.grid(1)] = 1
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # It clobbers memory: no store moves from above it to below it, where it would keep dependents waiting.
        kind = ir.FunctionType(ir.VoidType(), [])
        builder.asm(kind, "griddepcontrol.launch_dependents;", "~{memory}", [], side_effect=True)
        return context.get_dummy_value()

    return types.void(), generate


@_device_function
def set_condition(typing_context: Any, handle: Any, value: Any) -> Any:
    """Set the value by which a conditional node chooses what it runs.

    Parameters
    ----------
    handle : uint64
        The condition, passed to the kernel as an argument.
    value : integer or bool
        An unsigned number of 32 bits. ``if`` and ``while`` tell 0 from others, ``switch`` takes it as an index.

    Notes
    -----
    What two threads set at the same time is undefined: let one thread of the grid call it. It is
    ``cudaGraphSetConditional`` of CUDA C++.

    Examples
    --------
    >>> from numba import cuda
    >>> from graphdsl import device
    >>> @cuda.jit
    ... def again(handle, error):
    ...     if cuda.grid(1) == 0:
    ...         device.set_condition(handle, error[0] > 1e-3)
    """
    if handle != types.uint64:
        raise TypingError(f"the handle that set_condition sets is uint64, as conditions are; {handle} given")
    if not isinstance(value, (types.Integer, types.Boolean)):
        raise TypingError(f"the value that set_condition sets is an integer or a bool; {value} given")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # The driver has this function: the code that is loaded leaves it open.
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64), ir.IntType(32)])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, "cudaGraphSetConditional"), args)
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint32), generate
