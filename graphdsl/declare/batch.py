"""Operations on single words of memory, which a batch memory operation node makes one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from graphdsl.declare.expressions import Expr, Scalar
from graphdsl.declare.operands import Array, require_array
from graphdsl.errors import DeclarationError

Comparison = Literal["geq", "eq", "and", "nor"]
"""When a wait ends: the word is at least the value, as a cyclic number; equals it; has a bit of it; or has, like the
value, some bit that is 0."""


@dataclass(frozen=True, eq=False)
class MemoryOperation:
    """One operation; made by `write_value`, `wait_value` and `memory_barrier`.

    Attributes
    ----------
    form : "write", "wait" or "barrier"
        What it does.
    array : Buffer or View, or None
        The word, one integer of 4 or 8 bytes; a barrier has none.
    value : int, Expr or None
        What is written or waited for.
    comparison : str or None
        When a wait ends.
    """

    form: Literal["write", "wait", "barrier"]
    array: Array | None = None
    value: Scalar | None = None
    comparison: Comparison | None = None

    @property
    def kind(self) -> tuple[str, int]:
        """What it does, and the bytes of the word that it does it to; the driver fixes both."""
        return self.form, 0 if self.array is None else self.array.dtype.itemsize

    def over(self, substitute: Callable[[Any], Any]) -> MemoryOperation:
        """The same on other operands."""
        return replace(self, array=substitute(self.array), value=substitute(self.value))

    def __str__(self) -> str:
        if self.form == "barrier":
            return "memory_barrier()"
        condition = f", {self.comparison}" if self.comparison else ""
        return f"{self.form}_value({self.array}, {self.value}{condition})"


def write_value(array: Array, value: Scalar) -> MemoryOperation:
    """Write a word of memory, an operation of `Graph.batch_mem_ops`.

    Parameters
    ----------
    array : Buffer or View
        One integer of 4 or 8 bytes, such as ``flags[0]``, in device or pinned memory.
    value : int or Expr
        What is written.

    Examples
    --------
    >>> from graphdsl.declare.definition import Definition
    >>> flags = Definition().device_array("flags", 4, np.uint32)
    >>> print(write_value(flags[0], 1))
    write_value(flags[0], 1)
    """
    return _operation("write", array, value, None)


def wait_value(array: Array, value: Scalar, comparison: Comparison = "geq") -> MemoryOperation:
    """Wait until a word of memory has a value, an operation of `Graph.batch_mem_ops`.

    Parameters
    ----------
    array, value
        As for `write_value`.
    comparison : "geq", "eq", "and" or "nor"
        The wait ends once ``(int)(word - value) >= 0``, ``word == value``, ``(word & value) != 0`` or
        ``~(word | value) != 0``.

    Examples
    --------
    >>> from graphdsl.declare.definition import Definition
    >>> flags = Definition().device_array("flags", 4, np.uint32)
    >>> print(wait_value(flags[1], 3, "eq"))
    wait_value(flags[1], 3, eq)
    """
    if comparison not in get_args(Comparison):
        raise DeclarationError(
            f"a comparison is one of {', '.join(get_args(Comparison))}",
            field="comparison",
            value=repr(comparison),
            remedy="Leave it out for 'geq'.",
        )
    return _operation("wait", array, value, comparison)


def memory_barrier() -> MemoryOperation:
    """Order the operations before it and those behind it for all who look at memory."""
    return MemoryOperation("barrier")


def _operation(
    form: Literal["write", "wait"], array: Any, value: Any, comparison: Comparison | None
) -> MemoryOperation:
    require_array(array, None, f"{form}_value")
    is_number = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_number and not (isinstance(value, Expr) and value.is_number and value.dtype.kind in "iu"):
        raise DeclarationError(
            "the value of a word is an integer, or an integer expression on params",
            field=f"{form}_value",
            value=f"{value!r} of type {type(value).__name__}",
            remedy="Pass such a number.",
        )
    return MemoryOperation(form, array, value if isinstance(value, Expr) else int(value), comparison)


def checked_operations(operations: Any, node: str | None) -> tuple[MemoryOperation, ...]:
    """The operations of a node: at least one."""
    given = (operations,) if isinstance(operations, MemoryOperation) else operations
    made = tuple(given) if isinstance(given, Iterable) and not isinstance(given, (str, bytes, Array)) else ()
    if made and all(isinstance(each, MemoryOperation) for each in made):
        return made
    raise DeclarationError(
        "a batch memory operation node has a list of operations, at least one",
        node=node,
        field="operations",
        value=repr(operations),
        remedy="Pass a list of what write_value, wait_value and memory_barrier give.",
    )


def require_consent(may_deadlock: Any, node: str | None) -> None:
    """Refuse what nobody has said yes to."""
    if may_deadlock is not True:
        raise DeclarationError(
            "waits for memory can hold a graph up for ever, and CUDA does not see the order that they make",
            node=node,
            field="may_deadlock",
            value=repr(may_deadlock),
            remedy="Use edges or events where you can; may_deadlock=True says that what is waited for is written.",
        )
