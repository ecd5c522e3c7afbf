"""Runs the nodes of an exec: those of children and of the bodies that conditions choose, too.

The nodes inside of a node run beside those outside that they are not ordered with, as on a GPU. This module must not
know how an exec came to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from graphdsl.drivers.base import Handle
from graphdsl.drivers.emulator.graph import Exec, Node
from graphdsl.drivers.emulator.machine import Machine
from graphdsl.drivers.emulator.nesting import CHILD, chosen
from graphdsl.drivers.emulator.order import Place, Ready
from graphdsl.drivers.emulator.overlap import Overlap
from graphdsl.drivers.emulator.problems import Problem
from graphdsl.drivers.emulator.sharing import Sharing


def run(found: Exec, machine: Machine, ready: Ready[Level], sharing: Sharing) -> None:
    """Run each node that is enabled, in an order that its edges allow.

    Parameters
    ----------
    found : Exec
        What runs.
    machine : Machine
        Where.
    ready : Ready
        Chooses; it is empty.
    sharing : Sharing
        Is told of each node that starts or ends.

    Raises
    ------
    Problem
        If a node failed, which ends the launch; its handle is among the details, as ``node_handle``.
    """
    Level(found, machine, ready, sharing, (), lambda: None).begin()
    while ready:
        level, handle = ready.take()
        level.step(handle)


class Level:
    """The nodes of a graph that runs: that of the launch, or one inside of a node, from its begin to its end.

    Parameters
    ----------
    found : Exec
        What runs.
    machine : Machine
        Where.
    ready : Ready
        Takes the nodes that can run.
    sharing : Sharing
        Is told of each node that starts or ends.
    place : tuple of int
        That of the node that it is inside of.
    ended : callable
        Called at the end.
    """

    def __init__(
        self,
        found: Exec,
        machine: Machine,
        ready: Ready[Level],
        sharing: Sharing,
        place: Place,
        ended: Callable[[], None],
    ) -> None:
        self._found = found
        self._machine = machine
        self._ready = ready
        self._sharing = sharing
        self._place = place
        self._ended = ended
        self._missing = {handle: len(sources) for handle, sources in found.dependencies.items()}
        self._left = len(found.nodes)
        self._overlap = Overlap(found.sources, self._run, ready.discard)

    def begin(self) -> None:
        """Let the nodes run that come after none."""
        for handle in [handle for handle, count in self._missing.items() if not count]:
            self._offer(handle)

    def step(self, handle: Handle) -> None:
        """Run a node, or put it off until later; of one with graphs inside, begin the first of these."""
        inside = self._found.inner.get(handle)
        if self._overlap.is_put_off(handle):
            self._overlap.complete(handle)
        elif inside is None:
            if not self._overlap.take(handle):
                self._ready.add(self._place_of(handle), handle, self, later=True)
            self._end(handle)
        else:
            self._overlap.begin(handle)
            self._sharing.begin(handle)
            node = self._found.nodes[handle]
            self._begin_next(node, iter(inside) if node.kind is CHILD else chosen(node.params, inside))

    def _begin_next(self, node: Node, parts: Iterator[Exec]) -> None:
        """Begin the next graph inside of a node, where there is one with nodes; else the node has ended."""
        with _Blaming(node):
            part = next((part for part in parts if part.nodes), None)
        if part is not None:
            ended = partial(self._begin_next, node, parts)
            place = self._place_of(node.handle)
            Level(part, self._machine, self._ready, self._sharing, place, ended).begin()
        else:
            self._overlap.end(node.handle)
            self._sharing.end(node.handle)
            self._end(node.handle)

    def _end(self, handle: Handle) -> None:
        for target in self._found.successors[handle]:
            self._missing[target] -= 1
            if not self._missing[target]:
                self._offer(target)
        self._left -= 1
        if not self._left:
            self._ended()

    def _offer(self, handle: Handle) -> None:
        self._ready.add(self._place_of(handle), handle, self)

    def _place_of(self, handle: Handle) -> Place:
        return (*self._place, self._found.numbers[handle])

    def _run(self, handle: Handle, before_wait: Callable[[], None] | None) -> None:
        node = self._found.nodes[handle]
        if node.enabled:
            self._sharing.begin(handle)
            with _Blaming(node):
                if before_wait is not None:  # of a kernel: nothing else has programmatic edges
                    node.kind.run(self._machine, node.params, before_wait)
                else:
                    node.kind.run(self._machine, node.params)
        self._sharing.end(handle)


class _Blaming:
    """Tells a problem which node it is of, unless that is known already: one behind may run in the wait of another."""

    __slots__ = ("_node",)

    def __init__(self, node: Node) -> None:
        self._node = node

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, *_: object) -> None:
        if isinstance(problem, Problem):
            problem.details.setdefault("node_handle", self._node.handle)
