"""Writes the kernels that elementwise nodes launch: one thread for each element, and a call of the scalar functions.

The functions are device functions to Numba, and the kernel is plain Python that calls them: what compiles, caches,
emulates and fingerprints kernels sees nothing special. This module must not compile anything.
"""

from __future__ import annotations

import ast
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import cuda
from numba.cuda import types
from numba.cuda.core.errors import TypingError
from numba.cuda.extending import intrinsic
from numba.cuda.np.numpy_support import as_dtype

from graphdsl.declare.elementwise import Elementwise, ElementwiseKernel, Recipe, Step
from graphdsl.declare.kernel import as_kernel
from graphdsl.errors import DeclarationError


def elementwise(function: Any) -> Elementwise:
    """Mark a scalar function as one that `Graph.elementwise` calls for each element of arrays.

    Parameters
    ----------
    function : callable
        A plain Python function that Numba compiles, or a device function of ``numba.cuda.jit``. It takes one number for
        each parameter, and returns one for each array that is written: several as a tuple.

    Returns
    -------
    Elementwise
        What `Graph.elementwise` takes. In Python it can be called as before.

    Examples
    --------
    >>> import numpy as np
    >>> import graphdsl as gd
    >>> @gd.elementwise
    ... def scale(x, gain):
    ...     return x * gain
    >>> scale(3, 2)
    6
    >>> g = gd.Graph("demo")
    >>> x, y = (g.device_array(name, 1000, np.float32) for name in "xy")
    >>> g.elementwise(scale, y, (x, np.float32(2.0)))
    <kernel 'scale'>
    """
    return _Function(function)


class _Function(Elementwise):
    """A scalar function with the device function that Numba makes of it."""

    def __init__(self, function: Any) -> None:
        options = getattr(function, "targetoptions", None)
        plain = getattr(function, "py_func", function)
        if options is not None and not options.get("device"):
            raise DeclarationError(
                "what is called for each element is a scalar function, and not a kernel",
                field="function",
                value=f"{plain.__name__}, decorated with cuda.jit",
                remedy="Decorate the plain function with @graphdsl.elementwise alone.",
            )
        described = as_kernel(plain)  # refuses what takes other than positional parameters, or is no function
        self.function = plain
        self.name = self.__name__ = described.name
        self.parameters = described.parameters
        self.device_function = function if options is not None else cuda.jit(device=True)(plain)

    def kernel(self, recipe: Recipe) -> ElementwiseKernel:
        found = _kernels.get(recipe)
        return _kernels.setdefault(recipe, _written(recipe)) if found is None else found


_kernels: weakref.WeakValueDictionary[Recipe, ElementwiseKernel] = weakref.WeakValueDictionary()


def _written(recipe: Recipe) -> ElementwiseKernel:
    names = [step.function.name for step in recipe.steps]
    parameters = _parameters(recipe)
    namespace: dict[str, Any] = {"_cuda": cuda, "_rounded": rounded, "__name__": "graphdsl.elementwise"}
    for number, step in enumerate(recipe.steps):
        namespace[f"_call{number}"] = step.function.device_function  # type: ignore[attr-defined]
    for number, slot in enumerate(recipe.slots):
        if slot.dtype is not None:
            namespace[f"_dtype{number}"] = slot.dtype.type
    title = "_".join(name for name in names if name.isidentifier()) or "elementwise"
    source = "\n".join([f"def {title}({', '.join(parameters)}):", *_body(recipe, parameters)])
    place = recipe.steps[0].function.function.__code__  # what messages call the place of the kernel
    exec(compile(_at_line(source, place.co_firstlineno), place.co_filename, "exec"), namespace)
    made = ElementwiseKernel(namespace[title])
    made.name = "+".join(names)
    made.recipe = recipe
    return made


def _at_line(source: str, line: int) -> ast.Module:
    """The program of a text, all of it on one line of a file."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if hasattr(node, "lineno"):
            node.lineno = node.end_lineno = line  # type: ignore[attr-defined]
    return tree


def _parameters(recipe: Recipe) -> list[str]:
    """A name for each argument: the function's own where one reads it, ``out`` where none does."""
    names: list[str] = []
    for number, slot in enumerate(recipe.slots):
        if slot.kind != "temporary":
            read = (step.function.parameters[step.reads.index(number)] for step in recipe.steps if number in step.reads)
            name = wanted = next(read, "out")
            if name.startswith("_"):  # so do the names that the kernel uses itself
                name = wanted = f"p{name}"
            taken = 1
            while name in names:
                taken += 1
                name = f"{wanted}_{taken}"
            names.append(name)
    return names


def _body(recipe: Recipe, parameters: list[str]) -> Iterator[str]:
    """The lines of the kernel below its first."""
    arrays = [name for name, slot in zip(parameters, recipe.slots) if slot.kind == "array"]
    yield "    _i = _cuda.grid(1)"
    yield f"    if _i < {arrays[0]}.size:"
    index = "_i"
    if recipe.ndim > 1:
        places = [f"_i{axis}" for axis in range(recipe.ndim)]
        for axis in reversed(range(1, recipe.ndim)):
            yield f"        {places[axis]} = _i % {arrays[0]}.shape[{axis}]"
            yield f"        _i = _i // {arrays[0]}.shape[{axis}]"
        yield f"        {places[0]} = _i"
        index = ", ".join(places)
    forms = {"array": f"{{}}[{index}]", "cell": "{}[()]", "scalar": "{}", "temporary": "{}"}
    names = [*parameters, *(f"_t{number}" for number in range(len(parameters), len(recipe.slots)))]
    places = [forms[slot.kind].format(name) for name, slot in zip(names, recipe.slots, strict=True)]
    for number, step in enumerate(recipe.steps):
        yield from (f"        {line}" for line in _step(number, step, places))


def _step(number: int, step: Step, places: list[str]) -> Iterator[str]:
    """One call, and where its results go: all elements are read before any is written."""
    results = [f"_r{slot}" for slot in step.writes]
    yield f"{', '.join(results)} = _call{number}({', '.join(places[slot] for slot in step.reads)})"
    yield from (f"{places[slot]} = _rounded({result}, _dtype{slot})" for slot, result in zip(step.writes, results))


@intrinsic  # type: ignore[untyped-decorator]
def rounded(typing_context: Any, value: Any, dtype: Any) -> Any:
    """A number as an array of a dtype holds it; of another kind than that of the dtype it is refused.

    Integers are one kind, signed or not: what Numba computes with them is int64 mostly.
    """
    found, wanted = types.unliteral(value), dtype.instance_type
    if not isinstance(found, (types.Number, types.Boolean)):
        raise TypingError(f"it returns one number for each array that is written, and not {found}")
    have, want = as_dtype(found), as_dtype(wanted)
    if not (have.kind in "iu" and want.kind in "iu") and not np.can_cast(have, want, "same_kind"):
        raise TypingError(f"it returns {found}, which an array of {wanted} takes only by a cast to another kind")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.cast(builder, args[0], signature.args[0], signature.return_type)

    return wanted(found, dtype), generate


rounded.__graphdsl_simulate__ = lambda api, value, dtype: api.rounded(value, dtype)
