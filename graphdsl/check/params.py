"""Rules about params, the values given for them, and expressions on them: codes GD111 to GD115."""

from __future__ import annotations

from collections.abc import Iterator

from graphdsl.check.context import Context
from graphdsl.check.report import Finding
from graphdsl.check.rules import Found, rule
from graphdsl.check.subjects import Use, sentences, uses_of
from graphdsl.declare.condition import Condition
from graphdsl.declare.event import Event
from graphdsl.declare.expressions import Expr, Param
from graphdsl.declare.operands import Buffer, View
from graphdsl.declare.scalars import convert_scalar
from graphdsl.declare.store import unknown_name
from graphdsl.errors import GraphdslError


@rule("GD111", "error", "Every param that is used has a value", subject="graph")
def unset_param(context: Context, found: Found) -> Iterator[Finding]:
    """A param without a default is given a value before the graph is instantiated.

    **Why.** Arguments, grids and sizes follow from params: without a value there is nothing to launch with.

    **Remedy.** Declare the param with a default, or pass a value: `g.check(values={"m": 512})`, and the same to
    `instantiate`.

    **Wrong**

    ```python wrong
    m = g.param("m", np.int32)
    g.kernel(scale, grid=4, block=256, args=(x, y, gain, m))
    ```

    **Right**

    ```python right
    m = g.param("m", np.int32, default=512)
    g.kernel(scale, grid=4, block=256, args=(x, y, gain, m))
    ```
    """
    unset = {
        operand
        for name, operand in context.definition.operands.items()
        if isinstance(operand, Param) and name not in context.values and name not in context.misfits
    }
    users: dict[Param, list[Use]] = {}
    for use in uses_of(context.nodes) if unset else ():
        for param in getattr(use.operand, "params", frozenset()) & unset:
            users.setdefault(param, []).append(use)
    for param in sorted(users, key=lambda param: param.name):
        first = users[param][0]
        nodes = dict.fromkeys(use.node.name for use in users[param])
        users_said = f", and {len(nodes)} nodes use it" if len(nodes) > 1 else ""
        yield found(
            f"param {param.name!r} has no default and was given no value{users_said}",
            node=first.node,
            nodes=nodes,
            field=first.field,
            value=first.operand,
            remedy=f"Declare it with default=, or pass values={{{param.name!r}: ...}}.",
            location=param.location,
        )


@rule("GD112", "error", "Values only for params that exist", subject="graph")
def unknown_value(context: Context, found: Found) -> Iterator[Finding]:
    """A value is given for a param of the graph, by its name.

    **Why.** A misspelt name would leave the param at its default in silence.

    **Remedy.** Use the name that the param was declared with, scopes included.

    **Wrong**

    ```python wrong
    g.memset(y, gain)
    values = {"gian": 2.0}
    ```

    **Right**

    ```python right
    g.memset(y, gain)
    values = {"gain": 2.0}
    ```
    """
    operands = context.definition.operands
    params = [name for name, operand in operands.items() if isinstance(operand, Param)]
    for name in context.given:
        if name in operands and name not in params:
            yield found(
                f"{name!r} is {_WHAT[type(operands[name])]}, and values are given for params",
                field="values",
                value=repr(name),
                remedy=_INSTEAD[type(operands[name])].format(name=name),
                location=operands[name].location,
            )
        elif name not in operands:
            unknown = unknown_name(name, params, "param")
            yield found(unknown.rule, field="values", value=repr(name), remedy=unknown.remedy)


_WHAT: dict[type, str] = {Buffer: "a buffer", Condition: "a condition", Event: "an event"}
_INSTEAD: dict[type, str] = {
    Buffer: "Write into its memory once the graph is instantiated: exe[{name!r}][:] = ...",
    Condition: "Declare its value at the start of a launch as its default, or let a kernel set it from a param.",
    Event: "Leave it out: an event has no value.",
}


@rule("GD113", "error", "Values that fit the dtype of their param", subject="graph")
def misfit_value(context: Context, found: Found) -> Iterator[Finding]:
    """A value given for a param is one that its dtype holds.

    **Why.** A kernel reads the bytes of that dtype: a number out of range would arrive as another number.

    **Remedy.** Pass a value in range, or declare the param with a wider dtype.

    **Wrong**

    ```python wrong
    g.kernel(scale, grid=4, block=256, args=(x, y, gain, n))
    values = {"n": 2**40}
    ```

    **Right**

    ```python right
    g.kernel(scale, grid=4, block=256, args=(x, y, gain, n))
    values = {"n": 512}
    ```
    """
    for name, problem in context.misfits.items():
        yield found(
            problem.rule,
            field=f"values[{name!r}]",
            value=problem.value,
            remedy=problem.remedy,
            location=context.definition.operands[name].location,
        )


@rule("GD114", "error", "Expressions that have a value")
def no_value(context: Context, found: Found) -> Iterator[Finding]:
    """An expression can be evaluated with the values that its params have.

    **Why.** A division by zero leaves a grid, a size or an argument without a value.

    **Remedy.** Choose other values, or guard the denominator: `gd.cdiv(n, gd.maximum(m, 1))`.

    **Wrong**

    ```python wrong
    m = g.param("m", np.int32, default=0)
    g.kernel(scale, grid=gd.cdiv(n, m), block=256, args=(x, y, gain, n))
    ```

    **Right**

    ```python right
    m = g.param("m", np.int32, default=256)
    g.kernel(scale, grid=gd.cdiv(n, m), block=256, args=(x, y, gain, n))
    ```
    """
    failures = context.failures
    for operand in context.operands.values():
        for expr in _expressions(operand):
            context.value(expr)
    if not failures:
        return
    for use in uses_of(context.nodes):
        failed = [expr for expr in _expressions(use.operand) if expr in failures]
        if failed:
            yield found(
                f"an expression must have a value, and this one {failures[failed[0]]}",
                node=use.node,
                field=use.field,
                value=use.operand,
                remedy=sentences(
                    context.origin(failed[0]), "Choose other values, or guard the denominator with maximum."
                ),
            )


def _expressions(operand: object) -> tuple[Expr, ...]:
    """The expressions that an operand is made of."""
    if isinstance(operand, Expr):
        return (operand,)
    if isinstance(operand, View) and operand.bounds:
        extents = (extent for bounds in operand.bounds for extent in bounds[1:])
        return tuple(extent for extent in extents if isinstance(extent, Expr))
    return ()


@rule("GD115", "error", "Arguments that fit the dtype of their expression")
def argument_range(context: Context, found: Found) -> Iterator[Finding]:
    """An expression passed to a kernel has a value that its dtype holds.

    The dtype follows from the params by NumPy's promotion, and the arithmetic is exact: a sum of two int32 params is
    an int32, and is refused where it needs 33 bits.

    **Why.** A kernel reads the bytes of that dtype; a number out of range would wrap around.

    **Remedy.** Give one of the params a wider dtype, or compute inside the kernel.

    **Wrong**

    ```python wrong
    m = g.param("m", np.uint8, default=200)
    g.kernel(scale, grid=4, block=256, args=(x, y, gain, m + m))
    ```

    **Right**

    ```python right
    m = g.param("m", np.int32, default=200)
    g.kernel(scale, grid=4, block=256, args=(x, y, gain, m + m))
    ```
    """
    misfits: dict[int, GraphdslError] = {}
    for identity, operand in context.operands.items():
        if isinstance(operand, Expr) and not isinstance(operand, Param):
            value = context.value(operand)
            try:
                if value is not None:
                    convert_scalar(value, operand.dtype, field="value")
            except GraphdslError as problem:
                misfits[identity] = problem
    for use in context.uses(misfits, context.kernels):
        if use.field not in ("grid", "block", "shared_bytes"):
            misfit = misfits[id(use.operand)]
            yield found(
                misfit.rule,
                node=use.node,
                field=use.field,
                value=misfit.value,
                remedy=sentences(
                    context.origin(use.operand), "Give a param in it a wider dtype, or choose other values."
                ),
            )
