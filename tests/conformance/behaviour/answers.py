"""What the driver answers to one call, with codes in the short form that the page shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_PREFIXES = (
    "CUDA_ERROR_",
    "CU_GRAPH_EXEC_UPDATE_ERROR_",
    "CU_GRAPH_EXEC_UPDATE_",
    "CUDA_GRAPH_INSTANTIATE_",
    "CU_GRAPH_NODE_TYPE_",
    "CU_FUNCTION_LOADING_STATE_",
    "CUDA_",
)
SUCCESS = "SUCCESS"


class SetupError(Exception):
    """The driver refused something that the trial only needs, and does not ask about."""


@dataclass
class Answer:
    """One call's result.

    Attributes
    ----------
    call : str
        The driver's function.
    code : str
        Its code, such as ``"INVALID_VALUE"``, with what else it told.
    value : object
        What it gave: None, one object, or a tuple.
    """

    call: str
    code: str
    value: Any = None

    def must(self) -> Any:
        """The value of a call that has to succeed."""
        if self.code != SUCCESS:
            raise SetupError(f"{self.call}: {self.code}")
        return self.value

    def __str__(self) -> str:
        return self.code


def short(code: Any) -> str:
    """The name of a member of one of the driver's enumerations, without its prefix."""
    name = getattr(code, "name", None)
    if name is None:
        return str(code)
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return str(name.removeprefix(prefix))
    return str(name)


def ask(function: Callable[..., Any], *args: Any) -> Answer:
    """Call a function of the driver.

    Examples
    --------
    >>> ask(lambda value: (0, value), 3)
    Answer(call='<lambda>', code='0', value=3)
    """
    code, *outputs = function(*args)
    value = outputs[0] if len(outputs) == 1 else tuple(outputs) or None
    return Answer(function.__name__, short(code), value)


def must(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of the driver that has to succeed; gives its value."""
    return ask(function, *args).must()


def handle(thing: Any) -> Any:
    """What the driver takes for a node or a graph: an answer stands for its value, which then must be there."""
    return thing.must() if isinstance(thing, Answer) else thing
