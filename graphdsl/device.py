"""Device functions that CUDA has and Numba lacks: what a kernel does to its graph, and memory 16 bytes at a time.

Kernels call them as any device function, ``from graphdsl import device`` and ``device.grid_dependency_wait()``, or
``gd.device.grid_dependency_wait()``. They have no meaning outside of a kernel. This module imports Numba, and nothing
of the package: ``import graphdsl`` must not import it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba.cuda import cgutils, types
from numba.cuda.core.errors import TypingError
from numba.cuda.extending import intrinsic
from numba.cuda.np import arrayobj

__all__ = [
    "as_float32",
    "as_half2",
    "as_word",
    "atomic_add",
    "atomic_add4",
    "grid_dependency_wait",
    "launch_dependents",
    "load4",
    "load4_cg",
    "load_word",
    "mma_bf16",
    "mma_f16",
    "pack_bfloat2",
    "pack_half2",
    "prefetch_l2",
    "set_condition",
    "store4",
]


class Touched(NamedTuple):
    """What a device function does with memory: its first two arguments are an array and an index.

    Attributes
    ----------
    kind : str
        ``"read"``, ``"write"`` or ``"add"``, atomically.
    nbytes : int
        From the index on; 0 for one element.
    """

    kind: str
    nbytes: int = 0


def _device_function(definition: Callable[..., Any], touched: Touched | None = None) -> Any:
    """A Numba intrinsic; in the emulator, what the module of emulated kernels has under that name."""
    made = intrinsic(definition)
    name = definition.__name__
    made.__graphdsl_simulate__ = lambda api, *args, **kwargs: api.device_function(name)(*args, **kwargs)
    made.__graphdsl_touched__ = touched
    return made


def _memory_function(kind: str, nbytes: int = 0) -> Callable[[Callable[..., Any]], Any]:
    """As `_device_function`, with what it does with the array that is its first argument."""
    return lambda definition: _device_function(definition, Touched(kind, nbytes))


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


@_memory_function("read", 16)
def load4(typing_context: Any, array: Any, index: Any) -> Any:
    """Load 16 bytes by one instruction: four elements of four bytes, or smaller ones in four words.

    Parameters
    ----------
    array : array of one dimension, C contiguous, read
        Its elements have 1, 2 or 4 bytes.
    index : integer
        Of the first element, not negative. Its address must be a multiple of 16: memory of a graph begins at one, and
        shared memory made with ``cuda.shared.array(shape, dtype, alignment=16)``.

    Returns
    -------
    tuple of four
        Elements, if they have 4 bytes. Otherwise ``uint32`` words, the first element in the lowest bits.

    Examples
    --------
    >>> from numba import cuda
    >>> from graphdsl import device
    >>> @cuda.jit
    ... def lengths(x, y):  # x: float32, 4 n of them
    ...     i = cuda.grid(1)
    ...     if i < y.size:
    ...         a, b, c, d = device.load4(x, 4 * i)
    ...         y[i] = a * a + b * b + c * c + d * d
    """
    if not isinstance(array, types.Array) or (array.ndim, array.layout) != (1, "C"):
        raise TypingError(f"load4 takes an array of one dimension, C contiguous; {array} given")
    if not isinstance(array.dtype, types.Number) or array.dtype.bitwidth not in (8, 16, 32):
        raise TypingError(f"load4 loads elements of 1, 2 or 4 bytes; {array} given")
    if not isinstance(index, types.Integer):
        raise TypingError(f"load4 takes an integer as index; {index} given")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = arrayobj.make_array(signature.args[0])(context, builder, args[0]).data
        item = context.get_data_type(signature.return_type.dtype)
        place = builder.bitcast(builder.gep(data, [args[1]]), ir.VectorType(item, 4).as_pointer())
        found = builder.load(place, align=16)
        items = [builder.extract_element(found, ir.Constant(ir.IntType(32), lane)) for lane in range(4)]
        return context.make_tuple(builder, signature.return_type, items)

    item = array.dtype if array.dtype.bitwidth == 32 else types.uint32
    return types.UniTuple(item, 4)(array, types.intp), generate


@_memory_function("read", 16)
def load4_cg(typing_context: Any, array: Any, index: Any) -> Any:
    """As `load4`, from the L2 cache past the L1 cache, as `cuda.ldcg` loads one element.

    For what is read once, and for what other multiprocessors write while the kernel runs. It stays behind
    `grid_dependency_wait` and barriers.

    Parameters
    ----------
    array : array of one dimension, C contiguous, in global memory, read
        Its elements have 1, 2 or 4 bytes.
    index : integer
        As `load4` takes it.

    Returns
    -------
    tuple of four
        As `load4` gives it.

    Examples
    --------
    >>> from numba import cuda
    >>> from graphdsl import device
    >>> @cuda.jit
    ... def copied(x, y):
    ...     i = 4 * cuda.grid(1)
    ...     device.grid_dependency_wait()
    ...     if i < y.size:
    ...         a, b, c, d = device.load4_cg(x, i)  # x is written by the kernel before
    ...         device.store4(y, i, a, b, c, d)
    """
    if not isinstance(array, types.Array) or (array.ndim, array.layout) != (1, "C"):
        raise TypingError(f"load4_cg takes an array of one dimension, C contiguous; {array} given")
    if not isinstance(array.dtype, types.Number) or array.dtype.bitwidth not in (8, 16, 32):
        raise TypingError(f"load4_cg loads elements of 1, 2 or 4 bytes; {array} given")
    if not isinstance(index, types.Integer):
        raise TypingError(f"load4_cg takes an integer as index; {index} given")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = arrayobj.make_array(signature.args[0])(context, builder, args[0]).data
        place = builder.gep(data, [args[1]])
        word = ir.IntType(32)
        kind = ir.FunctionType(ir.LiteralStructType([word] * 4), [place.type])
        code = "ld.global.cg.v4.b32 {$0, $1, $2, $3}, [$4];"
        found = builder.asm(kind, code, "=r,=r,=r,=r,l", [place], side_effect=True)
        item = context.get_data_type(signature.return_type.dtype)
        items = [builder.bitcast(builder.extract_value(found, lane), item) for lane in range(4)]
        return context.make_tuple(builder, signature.return_type, items)

    item = array.dtype if array.dtype.bitwidth == 32 else types.uint32
    return types.UniTuple(item, 4)(array, types.intp), generate


@_memory_function("read", 4)
def load_word(typing_context: Any, array: Any, index: Any) -> Any:
    """Load 4 bytes as a word: of elements of 1 or 2 bytes, four or two at once.

    Parameters
    ----------
    array : array of one dimension, C contiguous, read
        Its elements have 1, 2 or 4 bytes.
    index : integer
        Of the first element, not negative. Its address must be a multiple of 4.

    Returns
    -------
    uint32
        The first element is in the lowest bits.

    Examples
    --------
    >>> from numba import cuda
    >>> from graphdsl import device
    >>> @cuda.jit
    ... def sums(x, y):  # x: uint8, 4 n of them
    ...     i = cuda.grid(1)
    ...     if i < y.size:
    ...         word = device.load_word(x, 4 * i)
    ...         y[i] = (word & 255) + ((word >> 8) & 255) + ((word >> 16) & 255) + (word >> 24)
    """
    if not isinstance(array, types.Array) or (array.ndim, array.layout) != (1, "C"):
        raise TypingError(f"load_word takes an array of one dimension, C contiguous; {array} given")
    if not isinstance(array.dtype, types.Number) or array.dtype.bitwidth not in (8, 16, 32):
        raise TypingError(f"load_word loads elements of 1, 2 or 4 bytes; {array} given")
    if not isinstance(index, types.Integer):
        raise TypingError(f"load_word takes an integer as index; {index} given")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = arrayobj.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.load(builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(32).as_pointer()), align=4)

    return types.uint32(array, types.intp), generate


@_memory_function("read")
def prefetch_l2(typing_context: Any, array: Any, index: Any) -> Any:
    """Have the L2 cache fetch the 32 bytes around an element, for a load later on; nothing waits for it.

    It is ``prefetch.global.L2`` in PTX.

    Parameters
    ----------
    array : array of one dimension, C contiguous, in global memory
        Counts as read.
    index : integer
        Not negative.

    Examples
    --------
    >>> from numba import cuda
    >>> from graphdsl import device
    >>> @cuda.jit
    ... def summed(weights, x, y):
    ...     i = cuda.grid(1)
    ...     if i < y.size:
    ...         device.prefetch_l2(weights, i)
    ...         device.grid_dependency_wait()
    ...         y[i] = weights[i] + x[i]  # x is written by the kernel before
    """
    if not isinstance(array, types.Array) or (array.ndim, array.layout) != (1, "C"):
        raise TypingError(f"prefetch_l2 takes an array of one dimension, C contiguous; {array} given")
    if not isinstance(index, types.Integer):
        raise TypingError(f"prefetch_l2 takes an integer as index; {index} given")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.gep(arrayobj.make_array(signature.args[0])(context, builder, args[0]).data, [args[1]])
        kind = ir.FunctionType(ir.VoidType(), [place.type])
        builder.asm(kind, "prefetch.global.L2 [$0];", "l", [place], side_effect=True)
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@_memory_function("write", 16)
def store4(typing_context: Any, array: Any, index: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Store 16 bytes by one instruction: four elements of four bytes.

    Parameters
    ----------
    array : array of one dimension, C contiguous, written
        Its elements have 4 bytes.
    index : integer
        Of the first element, not negative; its address must be a multiple of 16, as for `load4`.
    a, b, c, d : number
        The elements, converted to the dtype of the array.

    Examples
    --------
    >>> from numba import cuda, float32
    >>> from graphdsl import device
    >>> @cuda.jit
    ... def clear(x):
    ...     i = 4 * cuda.grid(1)
    ...     if i < x.size:
    ...         device.store4(x, i, 0, 0, 0, 0)
    """
    if not isinstance(array, types.Array) or (array.ndim, array.layout) != (1, "C") or not array.mutable:
        raise TypingError(f"store4 takes an array of one dimension, C contiguous, that can be written; {array} given")
    if not isinstance(array.dtype, types.Number) or array.dtype.bitwidth != 32:
        raise TypingError(f"store4 stores elements of 4 bytes; {array} given")
    if not isinstance(index, types.Integer):
        raise TypingError(f"store4 takes an integer as index; {index} given")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = arrayobj.make_array(signature.args[0])(context, builder, args[0]).data
        kind = ir.VectorType(data.type.pointee, 4)
        made = ir.Constant(kind, ir.Undefined)
        for lane in range(4):
            made = builder.insert_element(made, args[2 + lane], ir.Constant(ir.IntType(32), lane))
        builder.store(made, builder.bitcast(builder.gep(data, [args[1]]), kind.as_pointer()), align=16)
        return context.get_dummy_value()

    item = array.dtype
    return types.void(array, types.intp, item, item, item, item), generate


@_memory_function("add")
def atomic_add(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    """Add to an element in global memory, atomically; unlike `cuda.atomic.add` it brings nothing back.

    That is one way less through the memory system: ``red.global.add.f32`` in PTX.

    Parameters
    ----------
    array : array of float32 of one dimension, C contiguous, in global memory, read and written
    index : integer
        Not negative.
    value : float32

    Examples
    --------
    >>> from numba import cuda
    >>> from graphdsl import device
    >>> @cuda.jit
    ... def count(x, total):
    ...     i = cuda.grid(1)
    ...     if i < x.size:
    ...         device.atomic_add(total, 0, x[i])
    """
    if not isinstance(array, types.Array) or (array.dtype, array.ndim, array.layout) != (types.float32, 1, "C"):
        raise TypingError(f"atomic_add takes an array of float32 of one dimension, C contiguous; {array} given")
    if not array.mutable:
        raise TypingError(f"atomic_add takes an array that can be written; {array} given")
    if not isinstance(index, types.Integer):
        raise TypingError(f"atomic_add takes an integer as index; {index} given")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.gep(arrayobj.make_array(signature.args[0])(context, builder, args[0]).data, [args[1]])
        kind = ir.FunctionType(ir.VoidType(), [place.type, ir.FloatType()])
        code = "red.global.add.f32 [$0], $1;"
        builder.asm(kind, code, "l,f,~{memory}", [place, args[2]], side_effect=True)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.float32), generate


@_memory_function("add", 16)
def atomic_add4(typing_context: Any, array: Any, index: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Add to four elements in global memory by one instruction, each atomically; as `atomic_add` else.

    Compute capability 9.0 or later. It is ``atomicAdd`` of a ``float4`` in CUDA C++.

    Parameters
    ----------
    array : array of float32 of one dimension, C contiguous, in global memory, read and written
    index : integer
        Of the first element, not negative; its address must be a multiple of 16, as for `load4`.
    a, b, c, d : float32

    Examples
    --------
    >>> from numba import cuda
    >>> from graphdsl import device
    >>> @cuda.jit
    ... def summed(x, total):  # x: whole rows of 4
    ...     i = 4 * cuda.grid(1)
    ...     if i < x.size:
    ...         a, b, c, d = device.load4(x, i)
    ...         device.atomic_add4(total, 0, a, b, c, d)
    """
    if not isinstance(array, types.Array) or (array.dtype, array.ndim, array.layout) != (types.float32, 1, "C"):
        raise TypingError(f"atomic_add4 takes an array of float32 of one dimension, C contiguous; {array} given")
    if not array.mutable:
        raise TypingError(f"atomic_add4 takes an array that can be written; {array} given")
    if not isinstance(index, types.Integer):
        raise TypingError(f"atomic_add4 takes an integer as index; {index} given")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.gep(arrayobj.make_array(signature.args[0])(context, builder, args[0]).data, [args[1]])
        kind = ir.FunctionType(ir.VoidType(), [place.type, *[ir.FloatType()] * 4])
        code = "red.global.v4.f32.add [$0], {$1, $2, $3, $4};"
        builder.asm(kind, code, "l,f,f,f,f,~{memory}", [place, *args[2:]], side_effect=True)
        return context.get_dummy_value()

    item = types.float32
    return types.void(array, types.intp, item, item, item, item), generate


@_device_function
def as_float32(typing_context: Any, word: Any) -> Any:
    """The float32 that has the bits of a word: ``__uint_as_float`` of CUDA C++.

    Parameters
    ----------
    word : integer
        Its lowest 32 bits count.

    Examples
    --------
    >>> from numba import cuda
    >>> from graphdsl import device
    >>> @cuda.jit
    ... def widened(x, y):  # x: bfloat16, as uint16
    ...     i = cuda.grid(1)
    ...     if i < x.size:
    ...         y[i] = device.as_float32(x[i] << 16)
    """
    if not isinstance(word, types.Integer):
        raise TypingError(f"as_float32 takes an integer; {word} given")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.uint32), generate


@_device_function
def as_word(typing_context: Any, value: Any) -> Any:
    """The bits of a float32 or a float16 as a uint32: ``__float_as_uint`` of CUDA C++.

    Parameters
    ----------
    value : float32 or float16
        The bits of a float16 are the lower half of the word.

    Examples
    --------
    >>> from numba import cuda
    >>> from graphdsl import device
    >>> @cuda.jit
    ... def exponents(x, y):
    ...     i = cuda.grid(1)
    ...     if i < x.size:
    ...         y[i] = (device.as_word(x[i]) >> 23) & 255
    """
    if value not in (types.float32, types.float16):
        raise TypingError(f"as_word takes a float32 or a float16; {value} given")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(32)
        if signature.args[0] == types.float16:  # which Numba keeps in an integer
            return builder.zext(args[0], word)
        return builder.bitcast(args[0], word)

    return types.uint32(value), generate


@_device_function
def as_half2(typing_context: Any, word: Any) -> Any:
    """The two float16 that have the bits of a word, that of the lower half first.

    Parameters
    ----------
    word : integer
        Its lowest 32 bits count.

    Returns
    -------
    tuple of two float16

    Examples
    --------
    >>> from numba import cuda
    >>> from graphdsl import device
    >>> @cuda.jit
    ... def widened(x, y):  # x: pairs of float16, as uint32
    ...     i = cuda.grid(1)
    ...     if i < x.size:
    ...         y[2 * i], y[2 * i + 1] = device.as_half2(x[i])
    """
    if not isinstance(word, types.Integer):
        raise TypingError(f"as_half2 takes an integer; {word} given")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        high = builder.lshr(args[0], ir.Constant(ir.IntType(32), 16))
        halves = [builder.trunc(each, ir.IntType(16)) for each in (args[0], high)]
        return context.make_tuple(builder, signature.return_type, halves)

    return types.UniTuple(types.float16, 2)(types.uint32), generate


@_device_function
def pack_half2(typing_context: Any, a: Any, b: Any) -> Any:
    """Two numbers, rounded to float16, in a word: the first in its lower half.

    Compute capability 8.0 or later. It is ``__floats2half2_rn`` of CUDA C++.

    Parameters
    ----------
    a, b : float32

    Returns
    -------
    uint32

    Examples
    --------
    >>> from numba import cuda
    >>> from graphdsl import device
    >>> @cuda.jit
    ... def narrowed(x, y):  # y: pairs of float16, as uint32
    ...     i = cuda.grid(1)
    ...     if i < y.size:
    ...         y[i] = device.pack_half2(x[2 * i], x[2 * i + 1])
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(32), [ir.FloatType()] * 2)
        return builder.asm(kind, "cvt.rn.f16x2.f32 $0, $2, $1;", "=r,f,f", args, side_effect=False)

    return types.uint32(types.float32, types.float32), generate


@_device_function
def pack_bfloat2(typing_context: Any, a: Any, b: Any) -> Any:
    """As `pack_half2`, rounded to bfloat16: the upper half of a float32.

    Examples
    --------
    >>> from numba import cuda
    >>> from graphdsl import device
    >>> @cuda.jit
    ... def narrowed(x, y):  # y: pairs of bfloat16, as uint32
    ...     i = cuda.grid(1)
    ...     if i < y.size:
    ...         y[i] = device.pack_bfloat2(x[2 * i], x[2 * i + 1])
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(32), [ir.FloatType()] * 2)
        return builder.asm(kind, "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,f,f", args, side_effect=False)

    return types.uint32(types.float32, types.float32), generate


def _matrix_product(of: str) -> Callable[[Callable[..., Any]], Any]:
    """A device function that multiplies matrices by one instruction of tensor cores; its code is written here."""

    def decorate(documented: Callable[..., Any]) -> Any:
        def definition(
            typing_context: Any,
            a0: Any,
            a1: Any,
            a2: Any,
            a3: Any,
            b0: Any,
            b1: Any,
            c0: Any,
            c1: Any,
            c2: Any,
            c3: Any,
        ) -> Any:
            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                word, number = ir.IntType(32), ir.FloatType()
                kind = ir.FunctionType(ir.LiteralStructType([number] * 4), [word] * 6 + [number] * 4)
                operands = "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};"
                code = f"mma.sync.aligned.m16n8k16.row.col.f32.{of}.{of}.f32 {operands}"
                found = builder.asm(kind, code, "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f", args, side_effect=True)
                items = [builder.extract_value(found, place) for place in range(4)]
                return context.make_tuple(builder, signature.return_type, items)

            given = [types.uint32] * 6 + [types.float32] * 4
            return types.UniTuple(types.float32, 4)(*given), generate

        definition.__name__ = documented.__name__
        definition.__qualname__ = documented.__qualname__
        definition.__doc__ = documented.__doc__
        return _device_function(definition)

    return decorate


@_matrix_product("f16")
def mma_f16() -> None:
    """``a @ b + c`` of a matrix of 16 x 16 and one of 16 x 8, float16, by a warp; sums are float32.

    Each lane brings its part of the matrices, and gets its part of the result. With ``g = lane // 4`` and
    ``i = 2 * (lane % 4)``, a word holds two numbers, the first in its lower half:

    ======  =============================  ======  ===========================  ======  ===========================
    word    of a                           word    of b                         number  of c, and of the result
    ======  =============================  ======  ===========================  ======  ===========================
    ``a0``  ``a[g, i : i + 2]``            ``b0``  ``b[i : i + 2, g]``          ``c0``  ``c[g, i]``
    ``a1``  ``a[g + 8, i : i + 2]``        ``b1``  ``b[i + 8 : i + 10, g]``     ``c1``  ``c[g, i + 1]``
    ``a2``  ``a[g, i + 8 : i + 10]``                                            ``c2``  ``c[g + 8, i]``
    ``a3``  ``a[g + 8, i + 8 : i + 10]``                                        ``c3``  ``c[g + 8, i + 1]``
    ======  =============================  ======  ===========================  ======  ===========================

    All lanes of the warp take part. Compute capability 8.0 or later. It is ``mma.sync.aligned.m16n8k16`` in PTX.

    Parameters
    ----------
    a0, a1, a2, a3, b0, b1 : uint32
    c0, c1, c2, c3 : float32

    Returns
    -------
    tuple of four float32

    Examples
    --------
    >>> from numba import cuda
    >>> from graphdsl import device
    >>> @cuda.jit
    ... def product(a, b, c):  # fragments: 4, 2 and 4 for each lane
    ...     i = cuda.threadIdx.x
    ...     a0, a1, a2, a3 = device.load4(a, 4 * i)
    ...     w, x, y, z = device.mma_f16(a0, a1, a2, a3, b[2 * i], b[2 * i + 1], 0, 0, 0, 0)
    ...     device.store4(c, 4 * i, w, x, y, z)
    """


@_matrix_product("bf16")
def mma_bf16() -> None:
    """As `mma_f16`, of bfloat16: the upper halves of float32.

    Examples
    --------
    >>> from numba import cuda
    >>> from graphdsl import device
    >>> @cuda.jit
    ... def ones(c):  # 16 in all places
    ...     one = 0x3F803F80
    ...     w, x, y, z = device.mma_bf16(one, one, one, one, one, one, 0, 0, 0, 0)
    ...     device.store4(c, 4 * cuda.threadIdx.x, w, x, y, z)
    """
