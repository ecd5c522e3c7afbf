"""Runs the nodes of an exec: those of children and of the bodies that conditions choose, too.

This module must not know how an exec came to be.
"""

from __future__ import annotations

from collections.abc import Callable

from graphdsl.drivers.emulator.graph import Exec, Node
from graphdsl.drivers.emulator.machine import Machine
from graphdsl.drivers.emulator.nesting import CHILD, chosen
from graphdsl.drivers.emulator.overlap import Overlap
from graphdsl.drivers.emulator.problems import Problem


def run(found: Exec, machine: Machine) -> None:
    """Run each node that is enabled, in an order that its edges allow.

    Raises
    ------
    Problem
        If a node failed, which ends the launch; its handle is among the details, as ``node_handle``.
    """

    def run_node(node: Node, before_wait: Callable[[], None] | None = None) -> None:
        if not node.enabled:
            return
        try:
            _run_node(found, node, machine, before_wait)
        except Problem as problem:
            problem.details.setdefault("node_handle", node.handle)  # that of a node inside is there already
            raise

    order = found.in_order()
    if found.sources:
        overlap = Overlap(found.sources, lambda handle, before_wait: run_node(found.nodes[handle], before_wait))
        overlap.run(node.handle for node in order)
    else:
        for node in order:
            run_node(node)


def _run_node(found: Exec, node: Node, machine: Machine, before_wait: Callable[[], None] | None) -> None:
    inside = found.inner.get(node.handle)
    if inside is not None:
        for part in inside if node.kind is CHILD else chosen(node.params, inside):
            run(part, machine)
    elif before_wait is not None:  # of a kernel: nothing else has programmatic edges
        node.kind.run(machine, node.params, before_wait)
    else:
        node.kind.run(machine, node.params)
