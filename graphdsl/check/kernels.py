"""Rules about kernels, their arguments and their launches: codes GD201 to GD214."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from graphdsl.check.context import Context
from graphdsl.check.report import Finding
from graphdsl.check.rules import Found, rule
from graphdsl.check.subjects import Launch, Launches, sentences
from graphdsl.declare.nodes import KernelNode
from graphdsl.declare.sources import SourceKernel
from graphdsl.errors import CompileError, text_of


@rule("GD201", "error", "One argument for each parameter of the kernel")
def argument_count(context: Context, found: Found) -> Iterator[Finding]:
    """A kernel is given as many arguments as it has parameters; defaults of parameters do not count.

    **Why.** The driver reads an address for each parameter that the kernel declares, from memory that holds only
    those that were given: too few crash the process, too many are ignored.

    **Source.** CUDA Driver API, `CUDA_KERNEL_NODE_PARAMS`: `kernelParams` has an entry for each parameter.

    **Remedy.** Pass what is missing, in the order of the kernel's parameters.

    **Wrong**

    ```python wrong
    g.kernel(scale, grid=4, block=256, args=(x, y))
    ```

    **Right**

    ```python right
    g.kernel(scale, grid=4, block=256, args=(x, y, gain, n))
    ```
    """
    for node in context.kernels:
        given, parameters = len(node.args), node.kernel.parameters
        if node.kernel.counted and given != len(parameters):
            yield found(
                f"{node.kernel} takes {len(parameters)} arguments, and {given} are given",
                node=node,
                field="args",
                value=f"missing {', '.join(parameters[given:])}"
                if given < len(parameters)
                else f"surplus {', '.join(map(text_of, node.args[len(parameters) :]))}",
                remedy="Pass one operand for each parameter, those with defaults too.",
            )


@rule("GD202", "error", "Arguments of types that the kernel takes")
def argument_types(context: Context, found: Found) -> Iterator[Finding]:
    """Each argument has a type that a kernel can take; with a declared signature, the type that it says.

    Types follow from the operands: an array from its dtype, dimensions and layout, a param or expression from its
    dtype, a number from its value. A signature, at the decorator or at the node, wins, and what it cannot take
    without loss is refused.

    **Why.** A kernel reads the bytes that its signature says. An array of another dtype would be read as nonsense.

    **Remedy.** Declare the operand with the type that the kernel takes, or the kernel without a signature. Adopt
    arrays of NumPy, CuPy and others with `external`.

    **Wrong**

    ```python wrong
    signature = "void(float64[::1], float64[::1], float32, int32)"
    g.kernel(scale, grid=4, block=256, args=(x, y, gain, n), signature=signature)
    ```

    **Right**

    ```python right
    signature = "void(float32[::1], float32[::1], float32, int32)"
    g.kernel(scale, grid=4, block=256, args=(x, y, gain, n), signature=signature)
    ```
    """
    for node, problem in misfits(context):
        if not isinstance(node.kernel, SourceKernel):
            yield of_compiler(found, problem, node)


def misfits(context: Context) -> Iterator[tuple[KernelNode, CompileError]]:
    """Arguments that a kernel does not take, where it is not compiled yet."""
    for group in context.groups:
        if group.type_error is not None and group.image is None:
            for node in group.nodes:
                yield from ((node, problem) for problem in context.type_errors(node, group))


def of_compiler(found: Found, problem: CompileError, node: KernelNode, nodes: Sequence[KernelNode] = ()) -> Finding:
    """The finding for what the compile stage says of a node, or of several."""
    return found(
        problem.rule,
        node=node,
        nodes=[each.name for each in nodes],
        field=problem.field,
        value=problem.value,
        remedy=problem.remedy,
    )


@rule("GD203", "error", "Kernel arguments in memory that the device reaches")
def pageable_argument(context: Context, found: Found) -> Iterator[Finding]:
    """An array passed to a kernel lies in device memory or in pinned host memory.

    **Why.** Threads on the device cannot follow an address of ordinary host memory: the launch fails with
    `CUDA_ERROR_ILLEGAL_ADDRESS`.

    **Source.** CUDA C++ Programming Guide, "Page-Locked Host Memory".

    **Remedy.** Copy it to a `device_array` first, or declare the `host_array` pinned, as it is by default.

    **Wrong**

    ```python wrong
    staged = g.host_array("staged", 1024, np.float32, pinned=False)
    g.kernel(scale, grid=4, block=256, args=(staged, y, gain, n))
    ```

    **Right**

    ```python right
    staged = g.host_array("staged", 1024, np.float32)
    g.kernel(scale, grid=4, block=256, args=(staged, y, gain, n))
    ```
    """
    pageable = (id(array) for array in context.arrays if array.space == "pageable")
    for use in context.uses(pageable, context.kernels):
        yield found(
            "a kernel cannot reach pageable host memory",
            node=use.node,
            field=use.field,
            value=use.operand,
            remedy="Copy it to a device_array first, or use pinned memory, as host_array gives by default.",
        )


@rule("GD204", "error", "No more bytes of parameters than a kernel can have")
def parameter_bytes(context: Context, found: Found) -> Iterator[Finding]:
    """The packed arguments of a kernel fit its parameter space: 32,764 bytes, and 4,096 before CUDA 12.1.

    An n-dimensional array takes 5 + 2n words of eight bytes: 56 bytes in one dimension.

    **Why.** The kernel would not compile, or the launch would fail.

    **Source.** CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" and release notes of
    CUDA 12.1.

    **Remedy.** Pass one array instead of many arrays or of a long tuple.

    **Wrong**

    ```python wrong
    @cuda.jit
    def first(arrays, y):
        y[0] = arrays[0][0]

    g.kernel(first, grid=1, block=1, args=((x,) * 600, y))
    ```

    **Right**

    ```python right
    @cuda.jit
    def first(arrays, y):
        y[0] = arrays[0][0]

    g.kernel(first, grid=1, block=1, args=((x,) * 2, y))
    ```
    """
    most = context.limits.parameter_bytes
    for group in context.groups:
        if group.layout is not None and group.layout.nbytes > most:
            for node in group.nodes:
                yield found(
                    f"the arguments take {group.layout.nbytes} bytes, and {context.limits.name} takes {most}",
                    node=node,
                    field="args",
                    value=f"{len(node.args)} arguments, {len(group.layout.leaves)} values",
                    remedy="Pass one larger array instead of many, or fewer values.",
                )


@rule("GD205", "error", "Kernels that compile")
def compiles(context: Context, found: Found) -> Iterator[Finding]:
    """Each kernel compiles for the types of its arguments and for the target. No GPU is needed for it.

    One finding stands for all nodes that share the kernel and the types.

    **Why.** Nothing can be launched without code.

    **Source.** Numba for CUDA, "Supported Python features in CUDA Python".

    **Remedy.** The compiler's message says what it does not take, and where. `g.check(compile=False)` leaves this
    check out.

    **Wrong**

    ```python wrong
    @cuda.jit
    def broken(y):
        y[0] = "text"

    g.kernel(broken, grid=1, block=1, args=y)
    ```

    **Right**

    ```python right
    @cuda.jit
    def works(y):
        y[0] = 1.0

    g.kernel(works, grid=1, block=1, args=y)
    ```
    """
    for problem, nodes in uncompiled(context):
        if problem.field != "signature":
            yield of_compiler(found, problem, nodes[0], nodes)


def uncompiled(context: Context) -> list[tuple[CompileError, list[KernelNode]]]:
    """What keeps kernels from being compiled, with the nodes that share it."""
    nodes: dict[int, tuple[CompileError, list[KernelNode]]] = {}
    for group in context.groups:
        problem = group.compile_error
        if problem is not None:
            nodes.setdefault(id(problem), (problem, []))[1].extend(group.nodes)
    return list(nodes.values())


@rule("GD206", "error", "Arguments of the types that the kernel was compiled for")
def compiled_types(context: Context, found: Found) -> Iterator[Finding]:
    """An update gives a kernel arguments of the types that it was compiled for.

    Only updates can break this rule: a check compiles for the types that it finds.

    **Why.** The compiled code reads the bytes of those types.

    **Remedy.** Pass operands of the same dtype, dimensions and layout, or instantiate a graph of its own.

    **Wrong**

    ```python wrong
    g.kernel(scale, grid=4, block=256, args=(x, y, gain, n), name="scale")
    exe = g.instantiate()
    exe.node("scale").update(args=(x, y, gain, gain))
    ```

    **Right**

    ```python right
    g.kernel(scale, grid=4, block=256, args=(x, y, gain, n), name="scale")
    exe = g.instantiate()
    exe.node("scale").update(args=(y, x, gain, 2))
    ```
    """
    for group in context.groups:
        if group.type_error is not None and group.image is not None:
            for node in group.nodes:
                for problem in context.type_errors(node, group):
                    yield found(
                        f"{node.kernel.name} was compiled for ({', '.join(map(str, group.image.layout.types))}), which "
                        "an update keeps",
                        node=node,
                        field=problem.field,
                        value=problem.value,
                        remedy="Pass operands of these types, or instantiate a graph for the others.",
                    )


@rule("GD211", "error", "A grid within the limits of the device", subject="launch")
def grid(context: Launches, found: Found) -> Iterator[Finding]:
    """Each dimension of a grid is at least 1, and at most what the device takes: 2,147,483,647 blocks in x, 65,535 in
    y and z.

    **Why.** The driver refuses the node with `CUDA_ERROR_INVALID_VALUE`.

    **Source.** CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".

    **Remedy.** Keep the param that it follows from positive, or skip the work with `exe.node(name).disable()`. Put a
    large count into x.

    **Wrong**

    ```python wrong
    g.kernel(scale, grid=(1, 100_000), block=256, args=(x, y, gain, n))
    ```

    **Right**

    ```python right
    g.kernel(scale, grid=(100_000, 1), block=256, args=(x, y, gain, n))
    ```
    """
    limits = context.limits
    for launch in context.launches:
        if wrong := _wrong_dims(launch.grid, limits.max_grid, "blocks"):
            for node in launch.nodes:
                yield found(
                    f"on {limits.name}, a grid has {wrong}",
                    node=node,
                    field="grid",
                    value=launch.grid,
                    remedy=sentences(context.origin(*written(launch, "grid")), "Choose a grid in range."),
                )


@rule("GD212", "error", "A block within the limits of the device", subject="launch")
def block(context: Launches, found: Found) -> Iterator[Finding]:
    """A block has at least 1 thread in each dimension, at most 1,024 in x and y and 64 in z, and at most 1,024 in all.

    **Why.** The driver refuses the node with `CUDA_ERROR_INVALID_VALUE`.

    **Source.** CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".

    **Remedy.** Use a smaller block and a larger grid; 128 to 256 threads suit most kernels.

    **Wrong**

    ```python wrong
    g.kernel(scale, grid=1, block=2048, args=(x, y, gain, n))
    ```

    **Right**

    ```python right
    g.kernel(scale, grid=8, block=256, args=(x, y, gain, n))
    ```
    """
    limits = context.limits
    for launch in context.launches:
        wrong = _wrong_dims(launch.block, limits.max_block, "threads")
        threads = _threads(launch.block)
        if not wrong and threads is not None and threads > limits.max_threads:
            wrong = f"at most {limits.max_threads} threads in all, and this one has {text_of(threads)}"
        if wrong:
            for node in launch.nodes:
                yield found(
                    f"on {limits.name}, a block has {wrong}",
                    node=node,
                    field="block",
                    value=launch.block,
                    remedy=sentences(
                        context.origin(*written(launch, "block")),
                        "Choose a block in range, and let the grid cover the rest.",
                    ),
                )


@rule("GD213", "error", "No more threads in a block than the kernel's registers allow", subject="launch")
def block_registers(context: Launches, found: Found) -> Iterator[Finding]:
    """A block has no more threads than the compiled kernel takes, with its registers and launch bounds.

    **Why.** A multiprocessor has 65,536 registers; a block that needs more fails at the launch with
    `CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES`, where no node is named.

    **Source.** CUDA Driver API, `CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK`.

    **Remedy.** Use a smaller block, or give the decorator other `launch_bounds` or fewer `max_registers`.

    **Wrong**

    ```python wrong
    @cuda.jit(launch_bounds=128)
    def narrow(y):
        y[cuda.grid(1)] = 1.0

    g.kernel(narrow, grid=1, block=256, args=y)
    ```

    **Right**

    ```python right
    @cuda.jit(launch_bounds=128)
    def narrow(y):
        y[cuda.grid(1)] = 1.0

    g.kernel(narrow, grid=2, block=128, args=y)
    ```
    """
    limits = context.limits
    for launch in context.launches:
        image, threads = launch.image, _threads(launch.block)
        # A block that no kernel can have is reported as such.
        if image is None or threads is None or not image.max_threads < threads <= limits.max_threads:
            continue
        for node in launch.nodes:
            yield found(
                f"{image.name}, with {image.registers} registers and its launch bounds, takes at most "
                f"{image.max_threads} threads a block, and this one has {text_of(threads)}",
                node=node,
                field="block",
                value=launch.block,
                remedy="Use a smaller block, or give the kernel other launch_bounds or fewer max_registers.",
            )


@rule("GD214", "error", "No more shared memory than a block can have", subject="launch")
def shared_memory(context: Launches, found: Found) -> Iterator[Finding]:
    """Static and dynamic shared memory of a block fit what the device gives a block that opts in; a kernel that
    needs more than 48 KiB is opted in when it is instantiated.

    **Why.** The driver refuses the node with `CUDA_ERROR_INVALID_VALUE`.

    **Source.** CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": 227 KiB on sm_90.

    **Remedy.** Use less, in smaller tiles.

    **Wrong**

    ```python wrong
    g.kernel(scale, grid=4, block=256, args=(x, y, gain, n), shared_bytes=300_000)
    ```

    **Right**

    ```python right
    g.kernel(scale, grid=4, block=256, args=(x, y, gain, n), shared_bytes=100_000)
    ```
    """
    limits = context.limits
    for launch in context.launches:
        dynamic = launch.shared_bytes
        static = launch.image.shared_bytes if launch.image else 0
        if dynamic is None or 0 <= dynamic <= limits.shared_optin_bytes - static:
            continue
        beside = f", and the kernel itself takes {static} of them" if static else ""
        for node in launch.nodes:
            yield found(
                f"on {limits.name}, a block has 0 to {limits.shared_optin_bytes} bytes of shared memory{beside}",
                node=node,
                field="shared_bytes",
                value=dynamic,
                remedy=sentences(context.origin(*written(launch, "shared_bytes")), "Use smaller tiles."),
            )


def written(launch: Launch, field: str) -> tuple[Any, ...]:
    """What stands in a field of the node, before it was evaluated; empty if only the values are known."""
    written = getattr(launch.nodes[0], field, ())
    return written if isinstance(written, tuple) else (written,)


def _wrong_dims(extents: Sequence[int | None], most: Sequence[int], what: str) -> str:
    """What each dimension out of range should be, in words; empty if all are in range or unknown."""
    x, y, z = extents
    if x and y and z and 0 < x <= most[0] and 0 < y <= most[1] and 0 < z <= most[2]:
        return ""
    return ", ".join(
        f"1 to {limit} {what} in {axis}, not {text_of(extent)}"
        for extent, limit, axis in zip(extents, most, "xyz", strict=True)
        if extent is not None and not 1 <= extent <= limit
    )


def _threads(block: Sequence[int | None]) -> int | None:
    x, y, z = block
    return None if x is None or y is None or z is None else x * y * z
