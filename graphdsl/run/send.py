"""Sends packed nodes to the driver, all of them or none; takes back what a refusal left half done.

This module must not know why a node is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, NoReturn

import numpy as np

from graphdsl.declare.node import Node
from graphdsl.drivers.base import Address, Driver, Handle
from graphdsl.drivers.results import is_fault
from graphdsl.errors import DriverError, ExecUnusableError
from graphdsl.run.emit import Handles, blame, node_of
from graphdsl.run.fields import FieldChange, blame_changes
from graphdsl.run.packing import Packing

Indices = np.ndarray[Any, np.dtype[np.int64]]


Changing = Callable[[int], tuple[FieldChange, ...]]
"""Takes the index of a node; gives its fields that are to change."""


class Batch(NamedTuple):
    """Nodes to send to the driver, as its bulk call takes them."""

    indices: Indices
    kinds: np.ndarray[Any, Any]
    handles: np.ndarray[Any, Any]
    params: np.ndarray[Any, Any]


class Sender:
    """The way to the driver for the nodes of one exec; ``nodes`` is the list that updates change.

    Attributes
    ----------
    graph_exec : int
        The driver's exec.
    handles : numpy.ndarray of uint64
        What the driver knows each node by.
    set_params : callable
        Sends the kinds, handles and params of a `Batch`; what it raises `recover` must be told.
    """

    def __init__(
        self, nodes: Sequence[Node], packing: Packing, device: Driver, graph_exec: Handle, handles: Handles
    ) -> None:
        self._nodes = nodes
        self._packing = packing
        self._device = device
        self.graph_exec = graph_exec
        self.handles = handles
        self._alone: dict[int, Batch] = {}
        self.set_params: Callable[..., None] = partial(device.graph_exec_set_params, graph_exec)

    def node_of(self, handle: Handle) -> Node | None:
        """The node that the driver knows by a handle; None if there is none."""
        return node_of(self._nodes, self.handles, handle, self._device)

    def batch(self, indices: Indices) -> Batch:
        """The nodes of these indices, as they are packed."""
        packing = self._packing
        return Batch(indices, packing.kinds[indices], self.handles[indices], packing.params[indices])

    def batch_of_one(self, index: int) -> Batch:
        """One node."""
        found = self._alone.get(index)
        if found is None:
            found = self._alone[index] = self.batch(np.array([index]))
        return found

    def send(self, batch: Batch, restore: Callable[[], None], changes: Changing) -> None:
        """Send packed nodes to the driver; on a refusal, restore and send again those already sent."""
        _, kinds, handles, params = batch
        try:
            self.set_params(kinds, handles, params)
        except DriverError as problem:
            self.recover(problem, batch, restore, changes)

    def recover(self, problem: DriverError, batch: Batch, restore: Callable[[], None], changes: Changing) -> NoReturn:
        """Put back what was in force before a refusal, and raise it with the name of the node and what was to change.

        ``changes`` is asked before ``restore`` is called.
        """
        count = problem.index
        index = int(batch.indices[count])
        blame(problem, self._nodes[index])
        blame_changes(problem, changes(index))
        restore()
        try:
            if not is_fault(problem):  # else there is no context to send to
                self._send_back(Batch(*(part[:count] for part in batch)), self._nodes[index])
            raise problem
        finally:
            del problem  # else its traceback, which has this frame, would keep it and all that called

    def _send_back(self, batch: Batch, blamed: Node) -> None:
        _, kinds, handles, params = batch
        try:
            self.set_params(kinds, handles, params)
        except DriverError as problem:
            raise _lost("update", blamed, problem) from problem

    def let_share(self, shared: Sequence[tuple[Address, int, Indices]]) -> None:
        """Say when memory is defined: its address, its bytes, and the indices of the nodes that use it."""
        told = [(address, nbytes, self.handles[users].tolist()) for address, nbytes, users in shared]
        self._device.graph_exec_let_share(self.graph_exec, told)

    def set_enabled(self, indices: Sequence[int], enabled: bool) -> None:
        """Enable or disable nodes of kinds that allow it, all of which are the other way now; all of them, or none."""
        for done, index in enumerate(indices):
            try:
                self._device.graph_node_set_enabled(self.graph_exec, int(self.handles[index]), enabled)
            except DriverError as problem:
                self._switch_back(indices[:done], not enabled, self._nodes[index])
                blame(problem, self._nodes[index])
                blame_changes(problem, (FieldChange("enabled", not enabled, enabled),))
                raise

    def _switch_back(self, indices: Sequence[int], enabled: bool, blamed: Node) -> None:
        try:
            for index in indices:
                self._device.graph_node_set_enabled(self.graph_exec, int(self.handles[index]), enabled)
        except DriverError as problem:
            raise _lost("enabled", blamed, problem) from problem


def _lost(field: str, blamed: Node, problem: DriverError) -> ExecUnusableError:
    return ExecUnusableError(
        f"an update failed at node {blamed.name!r}, and the values before it could not be restored: {problem}",
        node=blamed.name,
        field=field,
        remedy="Instantiate the graph again.",
    )
