"""The order in which the nodes of a launch run where programmatic edges let kernels overlap.

A kernel behind a programmatic edge may start before the one in front of it, which it sees the work of only behind its
wait. So the kernel in front is put off: until the one behind waits for it, until something needs it whole, until the
end of the one behind, or until somebody completes it before. This module must not know what nodes do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from graphdsl.drivers.base import Handle

Port = Literal[0, 1, 2]
"""Of an edge: the source has ended; it has triggered, and is waited for; it has begun, and is not waited for."""

Run = Callable[[Handle, Callable[[], None] | None], None]

_MOST_PUT_OFF = 16
"""In a chain of programmatic edges. Each of them runs in the wait of the next, on its stack."""


class Overlap:
    """Runs each node once.

    Parameters
    ----------
    edges : mapping
        For each node those in front of it, with the port of the edge.
    run : callable
        Runs a node; its second argument runs what the node waits for, and is None where there is nothing to wait for.
        A node that never waits never calls it.
    ended : callable, optional
        Called with each node that was put off, once it has run.

    Examples
    --------
    >>> def run(node, before_wait):
    ...     print("start", node)
    ...     if before_wait:
    ...         before_wait()
    ...     print("end", node)
    >>> overlap = Overlap({2: {1: 1}, 3: {2: 0}}, run)
    >>> overlap.take(1)
    False
    >>> overlap.take(2)
    start 2
    start 1
    end 1
    end 2
    True
    """

    def __init__(
        self,
        edges: Mapping[Handle, Mapping[Handle, int]],
        run: Run,
        ended: Callable[[Handle], None] = lambda node: None,
    ) -> None:
        self._edges = edges
        self._run = run
        self._ended = ended
        self._early = {source for sources in edges.values() for source, port in sources.items() if port}
        self._put_off: dict[Handle, int] = {}  # how many wait for each other up to this one

    def take(self, node: Handle) -> bool:
        """Run a node, or put it off; all those in front of it have been taken.

        Of kernels with programmatic edges between them the last one is not put off, so that once all nodes are taken,
        all have run.

        Returns
        -------
        bool
            True if it has run.
        """
        self.begin(node)
        if node not in self._early:
            self._start(node)
            return True
        sources = self._edges.get(node, {})
        depth = 1 + max((self._put_off.get(source, 0) for source in sources), default=0)
        if depth > _MOST_PUT_OFF:
            self._complete(sources)
            depth = 1
        self._put_off[node] = depth
        return False

    def is_put_off(self, node: Handle) -> bool:
        """True if a node was taken and has not run."""
        return node in self._put_off

    def complete(self, node: Handle) -> None:
        """Run a node that was put off."""
        self._complete([node])

    def begin(self, node: Handle) -> None:
        """Run what a node needs whole before it starts."""
        self._complete([source for source, port in self._edges.get(node, {}).items() if not port])

    def end(self, node: Handle) -> None:
        """Run what was put off until the end of a node."""
        self._complete(self._edges.get(node, {}))

    def _start(self, node: Handle) -> None:
        sources = self._edges.get(node, {})
        waited_for = [source for source, port in sources.items() if port == 1 and source in self._put_off]
        self._run(node, (lambda: self._complete(waited_for)) if waited_for else None)
        self.end(node)

    def _complete(self, nodes: Iterable[Handle]) -> None:
        """Run those that were put off, the last one first: it may wait for others of them."""
        wanted = self._put_off.keys() & nodes
        for node in [node for node in reversed(self._put_off) if node in wanted]:
            if self._put_off.pop(node, 0):
                self._start(node)
                self._ended(node)
