"""Rules about captured nodes: codes GD241 to GD243."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from graphdsl.check.context import Context
from graphdsl.check.report import Finding
from graphdsl.check.rules import Found, rule
from graphdsl.declare.nodes import named_operands
from graphdsl.declare.operands import Buffer


@rule("GD241", "error", "Functions of captured nodes take a stream and the arguments")
def captured_function(context: Context, found: Found) -> Iterator[Finding]:
    """The function of a captured node can be called with a stream, followed by the arguments of the node.

    **Why.** It is called so at instantiation, which on a large graph is late to find out.

    **Remedy.** Declare it as `def work(stream, a, b): ...` for a node with `args=(a, b)`.

    **Wrong**

    ```python wrong
    def double(x):
        pass

    g.capture(double, x, emulate=lambda x: None)
    ```

    **Right**

    ```python right
    def double(stream, x):
        pass

    g.capture(double, x, emulate=lambda x: None)
    ```
    """
    for node in context.captured:
        problem = _misfit(node.function, (None, *node.args))
        if problem is not None:
            yield found(
                f"it is called with a stream and {len(node.args)} arguments, and that fails: {problem}",
                node=node,
                field="function",
                value=_written(node.function),
                remedy="Let it take a stream first, and then what args gives.",
            )


@rule("GD242", "error", "Stand-ins for captured work take the arguments")
def captured_stand_in(context: Context, found: Found) -> Iterator[Finding]:
    """What stands for captured work on an emulator can be called with the arguments of the node, and without a stream.

    **Why.** It is called so while a launch runs.

    **Remedy.** Declare it as `def stand_in(a, b): ...` for a node with `args=(a, b)`.

    **Wrong**

    ```python wrong
    g.capture(lambda stream, x: None, x, emulate=lambda stream, x: None)
    ```

    **Right**

    ```python right
    g.capture(lambda stream, x: None, x, emulate=lambda x: None)
    ```
    """
    for node in context.captured:
        problem = None if node.emulate is None else _misfit(node.emulate, node.args)
        if problem is not None:
            yield found(
                f"it is called with the {len(node.args)} arguments of the node, and that fails: {problem}",
                node=node,
                field="emulate",
                value=_written(node.emulate),
                remedy="Let it take what args gives, and no stream.",
            )


@rule("GD243", "advice", "Captured work is given the memory that it works on")
def captured_memory(context: Context, found: Found) -> Iterator[Finding]:
    """The arrays that a captured node works on are among its arguments.

    **Why.** Work that is recorded holds addresses. Arrays of the graph and external ones are kept alive as long as
    the exec, and the work is recorded anew when an update re-binds them; of an array that the function finds elsewhere
    nobody knows.

    **Remedy.** Adopt it with `g.external`, and pass it in `args`.

    **Wrong**

    ```python wrong
    weights = np.zeros(1024, np.float32)
    g.capture(lambda stream: weights.sum(), emulate=lambda: None)
    ```

    **Right**

    ```python right
    weights = g.external("weights", np.zeros(1024, np.float32))
    g.capture(lambda stream, weights: weights.sum(), weights, emulate=lambda weights: None)
    ```
    """
    for node in context.captured:
        if not any(isinstance(operand, Buffer) for _, operand in named_operands(node)):
            yield found(
                "the work is given no array, and what its function finds elsewhere is neither kept alive nor re-bound",
                node=node,
                field="args",
                value=node.args,
                remedy="Adopt the arrays that it works on with graph.external, and pass them in args.",
            )


def _misfit(function: Callable[..., Any], args: tuple[Any, ...]) -> str | None:
    """Why a call would fail before it begins; None if it would not, or if nothing is known of the function."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of builtin functions
        return None
    try:
        signature.bind(*args)
    except TypeError as problem:
        return str(problem)
    return None


def _written(function: Any) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    try:
        return f"{name}{inspect.signature(function)}"
    except (TypeError, ValueError):
        return str(name)
