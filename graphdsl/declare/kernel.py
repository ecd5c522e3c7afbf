"""What a kernel is before it is compiled: a Python function with the options of its decorator.

Kernels that are no Python functions are in `graphdsl.declare.sources`. Numba is not imported here: a ``@cuda.jit``
function is known by its attributes. This module must not decide types; `graphdsl.compile` does.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from graphdsl.errors import DeclarationError

# What changes the code that Numba makes. The rest of a decorator's options concern Numba's own launches.
_CODE_OPTIONS = ("debug", "lineinfo", "opt", "fastmath", "link", "launch_bounds", "max_registers", "inline")


class Demands(NamedTuple):
    """What every launch of a kernel has, because it was compiled so.

    Attributes
    ----------
    block : tuple of three int, or None
        The block, if there is only one.
    shared_bytes : int
        Dynamic shared memory of a block, in bytes, at least.
    cooperative : bool
        True if all blocks run at once.
    """

    block: tuple[int, int, int] | None = None
    shared_bytes: int = 0
    cooperative: bool = False


class Kernel:
    """A kernel as declared, before types are known; one object for one function.

    Attributes
    ----------
    function : callable
        The Python function; what is no Python function may have None.
    name : str
        Its name, or ``"kernel"`` where that could not be printed.
    parameters : tuple of str
        Names of its parameters, in order.
    positions : dict of str to int
        Place of each parameter, by name.
    signatures : tuple
        Signatures declared at its decorator, as tuples of Numba types; empty if types follow the operands.
    options : dict
        Compiler options given to the decorator: ``fastmath``, ``debug``, ``link`` and so on.
    counted : bool
        True if the number of parameters is known here, and not only to the machine code.
    demands : Demands
        What every launch has.
    """

    __slots__ = ("__weakref__", "function", "name", "options", "parameters", "positions", "signatures")
    function: Any
    counted: bool = True
    demands = Demands()

    def __init__(
        self, function: Callable[..., Any], signatures: tuple[Any, ...] = (), options: Mapping[str, Any] | None = None
    ) -> None:
        self.function = function
        self.name = name_of(function, "kernel")
        self.parameters = tuple(inspect.signature(function).parameters)
        self.positions = {name: position for position, name in enumerate(self.parameters)}
        self.signatures = signatures
        self.options = dict(options or {})

    def divisor(self, argument: int) -> int:
        """What an argument is a multiple of, because the kernel was compiled so."""
        return 1

    def ruled(self, argument: int) -> bool:
        """True if rules about the node, and not only its type, say what an argument may be."""
        return self.divisor(argument) > 1

    def __deepcopy__(self, memo: dict[int, Any]) -> Kernel:
        return self  # one object for one function

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(self.parameters)})"


def name_of(function: Any, otherwise: str) -> str:
    """The name of a function, if it can be printed.

    Examples
    --------
    >>> name_of(len, "host"), name_of(3, "host")
    ('len', 'host')
    """
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) and name.strip("<>") and name.isprintable() else otherwise


_DEFERRED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def is_deferred(function: Any) -> bool:
    """True for a generator function or one declared with ``async``: a call of it runs nothing of its body.

    Examples
    --------
    >>> async def later(): ...
    >>> is_deferred(later), is_deferred(len)
    (True, False)
    """
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(function, "__code__", None)
    if code is None and not isinstance(function, type):
        code = getattr(type(function).__call__, "__code__", None)
    return isinstance(code, CodeType) and bool(code.co_flags & _DEFERRED)


_kernels: weakref.WeakKeyDictionary[Any, Kernel] = weakref.WeakKeyDictionary()


def as_kernel(source: Any, *, node: str | None = None) -> Kernel:
    """The `Kernel` of a ``@cuda.jit`` function or a plain Python function; always the same object for the same one.

    Parameters
    ----------
    source : object
        A function decorated with ``numba.cuda.jit`` (lazy or with signatures), a plain Python function, a kernel of
        cuda.core or one that Triton compiled, or a `Kernel`.
    node : str, optional
        Name of the node, for messages.

    Raises
    ------
    DeclarationError
        If ``source`` is none of these, or a device function.
    """
    if isinstance(source, Kernel):
        return source
    try:
        kernel = _kernels.get(source)
    except Exception:  # of another library, whose objects may have a hash only where there is a GPU
        kernel = None
    if kernel is None:
        kernel = _foreign(source, node)
    if kernel is None:
        kernel = _kernels.setdefault(source, _make(source, node))  # one step, that no other thread comes between
    return kernel


def _foreign(source: Any, node: str | None) -> Kernel | None:
    from graphdsl.declare.foreign import foreign_kernel  # it knows kernels, too

    try:
        return foreign_kernel(source)
    except DeclarationError as problem:
        raise DeclarationError(
            problem.rule, node=node, field=problem.field, value=problem.value, remedy=problem.remedy
        ) from None


def _make(source: Any, node: str | None) -> Kernel:
    if isinstance(source, FunctionType):
        # A weak key whose value refers to it would live for ever; functions are few, and modules keep them anyway.
        return _checked(Kernel(source), node)
    function = getattr(source, "py_func", None)
    options = getattr(source, "targetoptions", None)
    if function is None or options is None or not type(source).__module__.startswith("numba.cuda."):
        raise DeclarationError(
            "a kernel is a function decorated with numba.cuda.jit, or a plain Python function",
            node=node,
            field="kernel",
            value=f"{source!r} of type {type(source).__name__}",
            remedy="Decorate the function with @cuda.jit and pass it without [grid, block]; CUDA C++, PTX and machine "
            "code come through graphdsl.cuda_source, ptx and cubin.",
        )
    if options.get("device"):
        raise DeclarationError(
            "a device function cannot be launched",
            node=node,
            field="kernel",
            value=function.__name__,
            remedy="Decorate it with @cuda.jit, without device=True, or call it from a kernel.",
        )
    # Overloads that the decorator's signatures made; a lazy dispatcher may have some from earlier launches too.
    declared = () if getattr(source, "_can_compile", True) else tuple(getattr(source, "overloads", ()))
    kept = {key: options[key] for key in _CODE_OPTIONS if options.get(key)}
    if options.get("opt") is False:
        kept["opt"] = False
    return _checked(Kernel(function, declared, kept), node)


def _checked(kernel: Kernel, node: str | None) -> Kernel:
    if is_deferred(kernel.function):
        raise DeclarationError(
            "a kernel runs from front to back: it is neither a generator nor declared with async",
            node=node,
            field="kernel",
            value=kernel.name,
            remedy="Declare it with def, and without yield.",
        )
    for parameter in inspect.signature(kernel.function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            raise DeclarationError(
                "a kernel takes positional parameters only",
                node=node,
                field="kernel",
                value=f"parameter {parameter} of {kernel.name}",
                remedy="Spell out each parameter.",
            )
    return kernel
