"""Elementwise kernels: what they compute for each element, as calls of scalar functions one after the other.

A call reads elements and numbers and writes elements. Several calls make one kernel; what one hands to the next may be
a temporary, which is no memory. The code of kernels is written by `graphdsl.compile.elementwise`; this module must not
know Numba.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

from graphdsl.declare.expressions import Expr, cdiv, maximum
from graphdsl.declare.given import arguments
from graphdsl.declare.kernel import Kernel
from graphdsl.declare.operands import Array, Extent, View, contiguous_strides
from graphdsl.errors import DeclarationError

BLOCK = 256
"""Threads of a block; each works on one element."""


class Slot(NamedTuple):
    """A thing that calls read and write: an argument of the kernel, or a temporary.

    Attributes
    ----------
    kind : "array", "cell", "scalar" or "temporary"
        An array, of which each thread takes its element; an array of no dimensions, whose one element all threads read;
        a number; or a number that one call hands to the next.
    dtype : numpy.dtype or None
        What is written to it is rounded to this dtype; None if nothing is.
    """

    kind: Literal["array", "cell", "scalar", "temporary"]
    dtype: np.dtype[Any] | None = None


class Step(NamedTuple):
    """A call in a recipe.

    Attributes
    ----------
    function : Elementwise
        What is called.
    writes, reads : tuple of int
        Slots, by their numbers; all are read before any is written.
    """

    function: Elementwise
    writes: tuple[int, ...]
    reads: tuple[int, ...]


class Recipe(NamedTuple):
    """What an elementwise kernel does for each element. Equal recipes are one kernel.

    Attributes
    ----------
    ndim : int
        Indices of an element: 1 where elements are counted in memory order.
    slots : tuple of Slot
        The arguments of the kernel in order, then temporaries.
    steps : tuple of Step
        What is called, one after the other.
    """

    ndim: int
    slots: tuple[Slot, ...]
    steps: tuple[Step, ...]


class ElementwiseKernel(Kernel):
    """A kernel that was made of a recipe; its name joins those of the functions.

    Attributes
    ----------
    recipe : Recipe
        What it does.
    """

    __slots__ = ("recipe",)
    recipe: Recipe

    def ruled(self, argument: int) -> bool:
        return self.recipe.slots[argument].kind != "scalar"

    def reads(self, argument: int) -> bool:
        """True if it reads an argument."""
        return any(argument in step.reads for step in self.recipe.steps)

    def writes(self, argument: int) -> bool:
        """True if it writes an argument."""
        return any(argument in step.writes for step in self.recipe.steps)


class Elementwise:
    """A scalar function that nodes call for each element; made by `graphdsl.elementwise`.

    Attributes
    ----------
    function : callable
        The Python function.
    name : str
        Its name.
    parameters : tuple of str
        Names of its parameters.
    """

    function: Any
    name: str
    parameters: tuple[str, ...]
    counted = True

    @property
    def positions(self) -> dict[str, int]:
        """Place of each parameter, by name."""
        return {name: place for place, name in enumerate(self.parameters)}

    def kernel(self, recipe: Recipe) -> ElementwiseKernel:
        """The kernel of a recipe; always the same for the same one."""
        raise NotImplementedError

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)

    def __deepcopy__(self, memo: dict[int, Any]) -> Elementwise:
        return self  # one object for one function

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(self.parameters)})"


class Temporary:
    """What one call hands to the next, in no memory.

    Attributes
    ----------
    dtype : numpy.dtype
        What it is rounded to.
    """

    __slots__ = ("dtype",)

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype


class Call(NamedTuple):
    """A call of a scalar function for each element.

    Attributes
    ----------
    function : Elementwise
        What is called.
    writes : tuple of Buffer, View or Temporary
        What takes its results.
    reads : tuple
        Arrays of the same shape, arrays of no dimensions, temporaries and scalars.
    """

    function: Elementwise
    writes: tuple[Any, ...]
    reads: tuple[Any, ...]


class Launch(NamedTuple):
    """What a node launches for some calls.

    Attributes
    ----------
    kernel : ElementwiseKernel
        Made of their recipe.
    args : tuple
        Its arguments.
    grid : int or Expr
        Blocks of `BLOCK` threads, one thread for each element.
    """

    kernel: ElementwiseKernel
    args: tuple[Any, ...]
    grid: Extent


def checked_call(function: Any, out: Any, args: Any, node: str) -> Call:
    """One call for each element, as a node declares it."""
    if not isinstance(function, Elementwise):
        raise DeclarationError(
            "an elementwise node calls a scalar function that is marked as one",
            node=node,
            field="function",
            value=f"{function!r} of type {type(function).__name__}",
            remedy="Decorate it with @graphdsl.elementwise; g.kernel launches what indexes arrays itself.",
        )
    reads = arguments(args, node, function)  # type: ignore[arg-type]  # it has parameters, as a kernel has
    if len(reads) != len(function.parameters):
        raise DeclarationError(
            f"{function!r} takes {len(function.parameters)} arguments",
            node=node,
            field="args",
            value=f"{len(reads)} given",
            remedy="Pass one array or number for each parameter.",
        )
    writes = tuple(out) if isinstance(out, (tuple, list)) else (out,)
    if not writes:
        raise _wrong("out", out, node, "an elementwise node writes at least one array", "Pass an array, or a tuple.")
    for array in writes:
        if not isinstance(array, Array) or not array.shape or array.dtype.kind not in "biufc":
            rule = "an elementwise node writes arrays of numbers, of one dimension or more"
            raise _wrong("out", array, node, rule, "Pass arrays of the graph; x[0:1] is one element of x.")
    for name, operand in zip(function.parameters, reads, strict=True):
        if isinstance(operand, tuple) and any(isinstance(item, Array) for item in operand):
            rule = "a function of elements takes an array as an argument of its own"
            raise _wrong(f"argument {name!r}", operand, node, rule, "Give each array a parameter.")
    shape = writes[0].shape
    for field, operand in [*_named(("out",) * len(writes), writes), *_named(function.parameters, reads)]:
        if isinstance(operand, Array) and operand.shape and _differ(operand.shape, shape):
            rule = f"arrays of an elementwise node have one shape, and that of {writes[0].buffer.name} is {shape}"
            shown = f"{operand!r} of shape {operand.shape}"
            raise _wrong(field, shown, node, rule, "Slice them to one shape.")
    return Call(function, writes, reads)


def _differ(shape: tuple[Extent, ...], other: tuple[Extent, ...]) -> bool:
    """True if two shapes differ whatever the params are; a check tells those that differ for some of their values."""
    if len(shape) != len(other):
        return True
    return any(type(left) is int and type(right) is int and left != right for left, right in zip(shape, other))


def alike(one: Any, other: Any) -> bool:
    """True if two operands are the same elements, or the same expression, whatever the params are."""
    return bool(_key(one) == _key(other))


def _named(names: Iterable[str], operands: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    return ((name if name == "out" else f"argument {name!r}", each) for name, each in zip(names, operands, strict=True))


def _wrong(field: str, value: Any, node: str, rule: str, remedy: str) -> DeclarationError:
    shown = value if isinstance(value, (str, Array)) else f"{value!r} of type {type(value).__name__}"
    return DeclarationError(rule, node=node, field=field, value=shown, remedy=remedy)


def launch_of(calls: tuple[Call, ...]) -> Launch:
    """The launch that makes some calls for each element, one after the other.

    Contiguous arrays are counted through in memory order, whatever their shape; with others among them, elements are
    found by their indices.
    """
    arguments, temporaries = _Arguments(), dict[Temporary, int]()

    def place(operand: Any) -> int:
        """The number of an argument, or one below 0 for a temporary."""
        if isinstance(operand, Temporary):
            return ~temporaries.setdefault(operand, len(temporaries))
        return arguments.number(operand)

    writes = [tuple(map(place, call.writes)) for call in calls]
    reads = [tuple(map(place, call.reads)) for call in calls]
    args = arguments.operands
    arrays = [each for each in args if isinstance(each, Array) and each.shape]
    flat = all(array.layout == "C" or array.ndim == 1 for array in arrays)
    written = {number for numbers in writes for number in numbers}
    slots = [Slot(_slot_kind(each), each.dtype if number in written else None) for number, each in enumerate(args)]
    slots += [Slot("temporary", each.dtype) for each in temporaries]
    steps = tuple(
        Step(call.function, *(tuple(n if n >= 0 else len(args) + ~n for n in numbers) for numbers in sides))
        for call, *sides in zip(calls, writes, reads, strict=True)
    )
    recipe = Recipe(1 if flat else arrays[0].ndim, tuple(slots), steps)
    passed = tuple(flattened(each) if flat and isinstance(each, Array) else each for each in args)
    return Launch(calls[-1].function.kernel(recipe), passed, _blocks(arrays[0].size))


class _Arguments:
    """The arguments of a kernel, each once: what is the same elements or the same expression is one."""

    def __init__(self) -> None:
        self.operands: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def number(self, operand: Any) -> int:
        """Its place among the arguments."""
        found = len(self.operands)
        if isinstance(operand, (Array, Expr)):
            found = self._numbers.setdefault(_key(operand), found)
        if found == len(self.operands):
            self.operands.append(operand)
        return found


def calls_of(kernel: ElementwiseKernel, args: tuple[Any, ...]) -> tuple[Call, ...]:
    """The calls that a launch makes: the inverse of `launch_of`, but for the shape of contiguous arrays."""
    recipe = kernel.recipe
    temporaries = (Temporary(slot.dtype) for slot in recipe.slots[len(args) :] if slot.dtype is not None)
    operands = (*args, *temporaries)
    return tuple(
        Call(step.function, _chosen(operands, step.writes), _chosen(operands, step.reads)) for step in recipe.steps
    )


def _chosen(things: Any, keys: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(things[key] for key in keys)


def flattened(array: Array) -> Array:
    """A contiguous array as one of one dimension; one that has one dimension or none, or gaps, as it is."""
    if array.ndim < 2 or array.layout != "C":
        return array
    return _reshaped(array, (array.size,), f"{_text(array)}.flat")


def shaped(array: Array, shape: tuple[Extent, ...]) -> Array:
    """An array of one dimension as one of ``shape``, whose extents but for the first are numbers."""
    return _reshaped(array, shape, f"{_text(array)}.reshape{shape}")


def _reshaped(array: Array, shape: tuple[Extent, ...], text: str) -> View:
    inner: Any = shape[1:]  # of a contiguous array only the first extent follows params
    strides = contiguous_strides((1, *inner), array.strides[-1])
    bounds = array.bounds if isinstance(array, View) else ()
    return View(array.buffer, array.offset, shape, strides, bounds, text)


def _text(array: Array) -> str:
    return repr(array) if isinstance(array, View) else array.buffer.name


def _key(operand: Any) -> Any:
    """Equal for the same elements of one memory, and for the same expression."""
    if isinstance(operand, Array):
        return operand.buffer, *map(_mark, (operand.offset, *operand.shape)), operand.strides
    return (id(operand),)


def _mark(extent: Extent) -> Any:
    """Equal for equal extents; expressions are equal if they are one object, and are compared with nothing else."""
    return extent if isinstance(extent, int) else (id(extent),)


def _slot_kind(operand: Any) -> Literal["array", "cell", "scalar"]:
    if not isinstance(operand, Array):
        return "scalar"
    return "array" if operand.shape else "cell"


def _blocks(size: Extent) -> Extent:
    if isinstance(size, int):
        return max(-(-size // BLOCK), 1)
    blocks: Extent = maximum(cdiv(size, BLOCK), 1)  # an empty grid is none; no elements are no work
    return blocks
