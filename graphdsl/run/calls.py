"""The driver calls that build an exec, as text that a person can read and two drivers can agree on.

Addresses and handles are left out: operands, kernels and nodes stand there by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Call:
    """One driver call.

    Attributes
    ----------
    function : str
        The driver's name of it, such as ``"cuGraphAddKernelNode"``.
    subject : str
        The node, kernel or graph that it is about; empty if none.
    fields : tuple of pairs
        What was passed, by name.
    """

    function: str
    subject: str = ""
    fields: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        parts = [self.subject] if self.subject else []
        parts += [f"{name}={value}" for name, value in self.fields]
        return f"{self.function}({', '.join(parts)})"


class CallLog:
    """Calls in the order in which they were made. Text for thousands of them is made when somebody reads it."""

    def __init__(self) -> None:
        self._parts: list[Call | Callable[[], list[Call]]] = []

    def add(self, function: str, subject: str = "", **fields: Any) -> None:
        """Note a call that was made."""
        self._parts.append(Call(function, subject, tuple(fields.items())))

    def later(self, describe: Callable[[], list[Call]]) -> None:
        """Note calls that were made and that ``describe`` can tell from what does not change."""
        self._parts.append(describe)

    def calls(self) -> tuple[Call, ...]:
        """All of them."""
        return tuple(call for part in self._parts for call in ([part] if isinstance(part, Call) else part()))
