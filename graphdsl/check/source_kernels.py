"""Rules about kernels that are not Numba's: codes GD226 to GD229."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graphdsl.check.context import Context
from graphdsl.check.kernels import misfits, of_compiler, uncompiled, written
from graphdsl.check.report import Finding
from graphdsl.check.rules import Found, rule
from graphdsl.check.subjects import Launches, sentences
from graphdsl.declare.expressions import Expr
from graphdsl.declare.operands import Array
from graphdsl.declare.sources import SourceKernel


@rule("GD226", "error", "Arguments that a kernel in another language takes")
def source_arguments(context: Context, found: Found) -> Iterator[Finding]:
    """A kernel in CUDA C++, PTX or machine code is given as many arguments as it takes, each of the size of its
    parameter; with a signature, or where the types can be read from C++ source, each of the type that it says.

    An array is passed as its address: eight bytes. A number has the bytes of its dtype; a Python number takes the
    size of the parameter.

    **Why.** The driver copies the bytes that the machine code asks for from where the argument lies: of a smaller
    one, bytes that stand behind it.

    **Source.** CUDA Driver API, `cuKernelGetParamInfo` and `CUDA_KERNEL_NODE_PARAMS`.

    **Remedy.** Declare the param or the array with the type of the parameter, or correct the signature.

    **Wrong**

    ```python wrong
    fill = gd.cuda_source('extern "C" __global__ void fill(float* y, int value) { *y = value; }', "fill")
    g.kernel(fill, grid=1, block=1, args=(y, gain))
    ```

    **Right**

    ```python right
    fill = gd.cuda_source('extern "C" __global__ void fill(float* y, int value) { *y = value; }', "fill")
    g.kernel(fill, grid=1, block=1, args=(y, n))
    ```
    """
    for node, problem in misfits(context):
        if isinstance(node.kernel, SourceKernel):
            yield of_compiler(found, problem, node)


@rule("GD227", "error", "A signature that the machine code has")
def source_signature(context: Context, found: Found) -> Iterator[Finding]:
    """The signature given for a kernel in another language, or read from its source text, has as many parameters as
    its machine code, of the same sizes.

    One finding stands for all nodes of the kernel.

    **Why.** Arguments would be packed as the signature says, and the kernel would read other bytes.

    **Remedy.** Give the parameters that the kernel has. A structure is passed as a record of a structured NumPy dtype.

    **Wrong**

    ```python wrong
    code = 'extern "C" __global__ void fill(float* y, float value) { *y = value; }'
    fill = gd.cuda_source(code, "fill", signature="float* y, double value")
    g.kernel(fill, grid=1, block=1, args=(y, 1.0))
    ```

    **Right**

    ```python right
    code = 'extern "C" __global__ void fill(float* y, float value) { *y = value; }'
    fill = gd.cuda_source(code, "fill", signature="float* y, float value")
    g.kernel(fill, grid=1, block=1, args=(y, 1.0))
    ```
    """
    for problem, nodes in uncompiled(context):
        if problem.field == "signature":
            yield of_compiler(found, problem, nodes[0], nodes)


@rule("GD228", "error", "The launch that a kernel was compiled for", subject="launch")
def compiled_launch(context: Launches, found: Found) -> Iterator[Finding]:
    """A kernel that was compiled for one block size is launched with it: Triton compiles so, and so do `.reqntid` in
    PTX and `__block_size__` in CUDA C++. A kernel of Triton has the dynamic shared memory that it was compiled to have.

    **Why.** The code counts on exactly these threads and bytes. With others the driver refuses the launch, or the
    kernel reads and writes what is not its own.

    **Source.** PTX ISA, "Performance-Tuning Directives: .reqntid".

    **Remedy.** Leave `block` and `shared_bytes` out for kernels of Triton; give others the block that they ask for.

    **Wrong**

    ```python wrong
    code = "__global__ void __block_size__((128, 1, 1)) fill(float* y) { y[threadIdx.x] = 1; }"
    g.kernel(gd.cuda_source(code, "fill"), grid=2, block=64, args=y)
    ```

    **Right**

    ```python right
    code = "__global__ void __block_size__((128, 1, 1)) fill(float* y) { y[threadIdx.x] = 1; }"
    g.kernel(gd.cuda_source(code, "fill"), grid=1, block=128, args=y)
    ```
    """
    for launch in context.launches:
        image = launch.image
        if image is None:
            continue
        if image.block is not None and None not in launch.block and tuple(launch.block) != image.block:
            for node in launch.nodes:
                yield found(
                    f"{image.name} was compiled for a block of {image.block} threads",
                    node=node,
                    field="block",
                    value=launch.block,
                    remedy=sentences(context.origin(*written(launch, "block")), "Launch it with this block."),
                )
        if launch.shared_bytes is not None and 0 <= launch.shared_bytes < image.least_shared_bytes:
            for node in launch.nodes:
                yield found(
                    f"{image.name} was compiled to have {image.least_shared_bytes} bytes of dynamic shared memory",
                    node=node,
                    field="shared_bytes",
                    value=launch.shared_bytes,
                    remedy=sentences(
                        context.origin(*written(launch, "shared_bytes")), "Give it as many, or leave it out."
                    ),
                )


@rule("GD229", "error", "Multiples that a kernel counts on")
def multiples(context: Context, found: Found) -> Iterator[Finding]:
    """An address of vectors, such as `float4*`, is a multiple of their size; an address or a number that Triton took
    to be a multiple of 16 when it compiled the kernel is one.

    Triton looks at the values that a kernel is compiled with: with 1024, it compiles for multiples of 16.

    **Why.** A misaligned vector ends the launch with `CUDA_ERROR_MISALIGNED_ADDRESS`. A number that is none of the
    multiples makes the kernel compute something else, and nothing tells.

    **Source.** CUDA C++ Programming Guide, "Built-in Vector Types"; Triton, `do_not_specialize`.

    **Remedy.** Begin views of vectors at whole vectors. Compile a kernel of Triton with a value that is no multiple of
    16, or list the parameter in `do_not_specialize`.

    **Wrong**

    ```python wrong
    fill = gd.cuda_source('extern "C" __global__ void fill(float4* y) { y->x = 1; }', "fill")
    g.kernel(fill, grid=1, block=1, args=y[1:])
    ```

    **Right**

    ```python right
    fill = gd.cuda_source('extern "C" __global__ void fill(float4* y) { y->x = 1; }', "fill")
    g.kernel(fill, grid=1, block=1, args=y[4:])
    ```
    """
    for node in context.kernels:
        for index, operand in enumerate(node.args):
            divisor = node.kernel.divisor(index)
            value = _number_of(context, operand) if divisor > 1 else None
            if value is not None and value % divisor:
                yield found(
                    f"parameter {index}: the kernel counts on a multiple of {divisor}, and this is "
                    f"{f'at byte {value}' if isinstance(operand, Array) else value}",
                    node=node,
                    field=node.argument_name(index),
                    value=operand,
                    remedy=sentences(
                        context.origin(operand) if isinstance(operand, Expr) else None,
                        "Pass a multiple, or compile the kernel for other values.",
                    ),
                )


def _number_of(context: Context, operand: Any) -> int | None:
    """The number that is passed for an operand: of an array, the part of its address that is known."""
    if isinstance(operand, Array):
        region = context.region(operand)
        base = context.values.get(operand.buffer.name, 0)  # known to updates; multiples of 256 where it is ours
        return None if region is None else int(base + region.offset)
    value = context.value(operand) if isinstance(operand, Expr) else operand
    return value if isinstance(value, int) else None
