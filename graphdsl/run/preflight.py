"""What an update would do, said without doing it: a report that reads as text and as data.

This module must not find anything out: `graphdsl.run.update` does, with the same rules as for updates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from graphdsl.check import Finding
from graphdsl.declare.node import Node
from graphdsl.errors import UpdateError
from graphdsl.run.calls import Call
from graphdsl.run.changes import CHANGES
from graphdsl.run.fields import NodeChange, field_changes
from graphdsl.run.shadow import Allowance

_NODES_SHOWN = 20

SOURCE = "medians on an NVIDIA H200 with driver 580, chains of kernels of 1 to 1,000 nodes: docs/benchmarks/h200.md"


@dataclass(frozen=True)
class UpdateCosts:
    """Processor time of updates in microseconds.

    The defaults come from `docs/benchmarks/h200.md`: "Change an argument of every node" took 1.98 for 1 node and 414
    for 1,000, "Change an argument and the grid of every node" 7.86 and 699. Nodes of other kinds were not measured, and
    are taken to cost what kernels cost.

    Attributes
    ----------
    short : float
        What one param costs that stands by itself in kernel arguments.
    long : float
        What any other update costs: expressions are evaluated, rules are asked.
    node : float
        What each node adds that is sent, with its arguments changed.
    launched_node : float
        The same of a node whose grid, block or shared memory changes.
    """

    short: float = 1.6
    long: float = 7.2
    node: float = 0.41
    launched_node: float = 0.70


@dataclass(frozen=True)
class Preflight:
    """What an update would do; printed, it says so in words.

    Attributes
    ----------
    graph, device : str
        Names of the graph, and of the device that the exec is on.
    nodes : tuple of NodeChange
        The nodes that would be sent to the driver, in its order; no others are touched.
    calls : tuple of Call
        The driver calls that would be made.
    way : str
        ``"nothing"``, ``"short"`` (one param that is only written and sent) or ``"long"`` (expressions and rules too).
    microseconds : float
        Estimated processor time on a GPU, see `UpdateCosts`.
    refusal : UpdateError or None
        What `GraphExec.update` would raise.
    warnings : tuple of Finding
        What may come of memory that it would bind where other memory lies (GD602).

    Examples
    --------
    >>> print(Preflight("demo", "emulator", (), (), "nothing", 0.0))
    graph 'demo' on emulator: the update would change nothing
    """

    graph: str
    device: str
    nodes: tuple[NodeChange, ...] = ()
    calls: tuple[Call, ...] = ()
    way: str = "nothing"
    microseconds: float = 0.0
    refusal: UpdateError | None = None
    warnings: tuple[Finding, ...] = ()

    @classmethod
    def refused(cls, graph: str, device: str, refusal: UpdateError) -> Preflight:
        """The report of an update that would be refused."""
        return cls(graph, device, refusal=refusal)

    @classmethod
    def allowed(
        cls,
        graph: str,
        device: str,
        nodes: Iterable[tuple[Node, bool]],
        old: Mapping[str, Any],
        new: Mapping[str, Any],
        raised: Iterable[Allowance],
        short: bool,
    ) -> Preflight:
        """The report of an update that would reach the driver.

        Parameters
        ----------
        graph, device : str
            Names of both.
        nodes : iterable of pairs
            The nodes that would be sent, and whether each is enabled.
        old, new : dict
            Values of params and addresses of buffers before and after, by name.
        raised : iterable of Allowance
            Kernels that would be allowed more dynamic shared memory.
        short : bool
            True if the update could go the short way.
        """
        nodes = list(nodes)
        changes = tuple(
            NodeChange(node.name, node.kind, enabled, field_changes(node, node, old, new)) for node, enabled in nodes
        )
        raising = (
            Call("cuKernelSetAttribute", each.kernel.image.name, (("MAX_DYNAMIC_SHARED_SIZE_BYTES", each.nbytes),))
            for each in raised
        )
        sending = (Call(CHANGES[type(node)].call, node.name) for node, _ in nodes)
        way = "nothing" if not nodes else "short" if short else "long"
        return cls(graph, device, changes, (*raising, *sending), way, _cost(changes, way))

    @property
    def ok(self) -> bool:
        """True if the update would be accepted, as far as is known without the driver."""
        return self.refusal is None

    def __str__(self) -> str:
        said = f"graph {self.graph!r} on {self.device}: the update would "
        if self.refusal is not None:
            return f"{said}be refused\n{self.refusal}"
        told = [f"warning: {finding}" for finding in self.warnings]
        if not self.nodes:
            return "\n".join([f"{said}change nothing", *told])
        shown = "\n".join(map(str, self.nodes[:_NODES_SHOWN])).splitlines()
        left = len(self.nodes) - _NODES_SHOWN
        calls = Counter(call.function for call in self.calls)
        return "\n".join(
            [
                f"{said}change {_count(len(self.nodes), 'node')}",
                *told,
                *(f"  {line}" for line in shown),
                *([f"  and {_count(left, 'more node')}"] if left > 0 else []),
                f"calls: {', '.join(f'{function} ({count})' for function, count in calls.items())}",
                f"way: {_WAYS[self.way]}",
                f"cost: about {self.microseconds:.3g} µs of processor time ({SOURCE})",
            ]
        )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


_WAYS = {
    "short": "one param, written and sent: no rule but that of its type can be broken",
    "long": "expressions are evaluated, rules are asked, and the nodes are sent in one loop",
}
_LAUNCH_FIELDS = frozenset({"grid", "block", "shared_bytes"})


def _cost(changes: tuple[NodeChange, ...], way: str, costs: UpdateCosts | None = None) -> float:
    costs = costs or UpdateCosts()
    if way == "nothing":
        return 0.0
    launched = sum(any(change.field in _LAUNCH_FIELDS for change in node.fields) for node in changes)
    fixed = costs.short if way == "short" else costs.long
    return fixed + costs.node * (len(changes) - launched) + costs.launched_node * launched
