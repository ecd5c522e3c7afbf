"""Rules about arrays that are there during a launch alone: codes GD406 and GD407."""

from __future__ import annotations

from collections.abc import Iterator

from graphdsl.check.context import Context
from graphdsl.check.report import Finding
from graphdsl.check.rules import Found, rule
from graphdsl.compile.roles import Kind


@rule("GD406", "error", "What lives for a launch is written before it is read", subject="graph")
def read_before_written(context: Context, found: Found) -> Iterator[Finding]:
    """A node that reads an array with `lifetime="launch"` is ordered after a node that writes it.

    **Why.** Such an array is undefined at the start of each launch: other arrays have its bytes before its first use
    and after its last. What the node reads is what they left there.

    **Remedy.** Write the array first, or declare it with `lifetime="persistent"`: then it keeps what was written from
    one launch to the next, and `exe[name]` gives it.

    **Wrong**

    ```python wrong
    total = g.device_array("total", 1024, np.float32, lifetime="launch")
    g.memcpy(y, total)
    ```

    **Right**

    ```python right
    total = g.device_array("total", 1024, np.float32, lifetime="launch")
    g.memset(total, 0) >> g.memcpy(y, total)
    ```
    """
    yield from _findings(context, found, ("input",))


@rule("GD407", "warning", "What lives for a launch is written for sure", subject="graph")
def maybe_read_before_written(context: Context, found: Found) -> Iterator[Finding]:
    """A node reads no more of an array with `lifetime="launch"` than what is written before it for sure.

    **Why.** As for GD406. Whether that is so is not known where the writing node is in a body that may not run, where
    it writes a part, or where nothing tells what a kernel does.

    **Remedy.** Write all of the array first; say `reads=` and `writes=` of kernels that are not Numba's; or declare the
    array with `lifetime="persistent"`.

    **Wrong**

    ```python wrong
    total = g.device_array("total", 1024, np.float32, lifetime="launch")
    branch = g.if_(g.condition("again", default=0))
    with branch as body:
        body.memset(total, 0)
    branch >> g.memcpy(y, total)
    ```

    **Right**

    ```python right
    total = g.device_array("total", 1024, np.float32, lifetime="launch")
    g.memset(total, 0) >> g.memcpy(y, total)
    ```
    """
    yield from _findings(context, found, ("state", "unknown"))


def _findings(context: Context, found: Found, kinds: tuple[Kind, ...]) -> Iterator[Finding]:
    for buffer, role in context.launch_roles.items():
        if role.kind in kinds and role.node is not None and role.access is not None:
            array = role.access.array
            yield found(
                f"{buffer.name!r} is undefined at the start of a launch: {role.why}",
                node=role.node,
                field=next((name for name, operand in role.node.fields() if operand is array), None),
                value=buffer.name,
                remedy='Write it first, or declare it with lifetime="persistent".',
            )
