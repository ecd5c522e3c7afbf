"""What a profiler is told of an exec while it listens: instantiate makes execs of this class then.

Without a listener nothing of this is on the path of a launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphdsl import profiler
from graphdsl.declare.definition import Definition
from graphdsl.declare.node import Node
from graphdsl.drivers.base import Driver
from graphdsl.plan import Plan
from graphdsl.run.graph_exec import GraphExec


class TracedExec(GraphExec):
    """An exec whose making, launches and updates are ranges of a profiler; see `GraphExec`."""

    def __init__(self, made: Plan, device: Driver, values: Mapping[str, Any], **options: Any) -> None:
        self._subject = subject = f"{made.name}{profiler.label()}"
        self._launching = profiler.named(f"launch {subject}")
        with profiler.named(f"instantiate {subject}"):
            super().__init__(made, device, values, **options)

    def clone(self, *, arena: Any = None, stream: Any = None) -> GraphExec:
        """See `GraphExec.clone`."""
        with profiler.named(f"clone {self._subject}"):
            return super().clone(arena=arena, stream=stream)

    def launch(self, stream: Any = None) -> None:
        """See `GraphExec.launch`."""
        with self._launching:
            super().launch(stream)

    def update(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        """See `GraphExec.update`."""
        with profiler.named(f"update {self._subject}: {', '.join([*(values or ()), *named])}"):
            super().update(values, **named)

    def update_from(self, graph: Definition, *args: Any, **options: Any) -> Any:
        """See `GraphExec.update_from`."""
        with profiler.named(f"update {self._subject} from a graph"):
            return super().update_from(graph, *args, **options)

    def _update_node(self, index: int, node: Node) -> None:
        with profiler.named(f"update {self._subject}: node {node.name}"):
            super()._update_node(index, node)

    def _update_numbers(self, index: int, given: Mapping[str, Any]) -> bool:
        with profiler.named(f"update {self._subject}: node {self._plan.nodes[index].name}"):
            return super()._update_numbers(index, given)

    def _switch_one(self, index: int, enabled: bool) -> None:
        with profiler.named(f"switch {self._subject}: node {self._plan.nodes[index].name}"):
            super()._switch_one(index, enabled)
