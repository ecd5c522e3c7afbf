"""Launches a graph on the emulator again and again, each time from the same start, in an order that is asked for.

This module must not judge what came of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from graphdsl.check import Report, check
from graphdsl.declare.definition import Definition
from graphdsl.declare.interop import host_view
from graphdsl.declare.nodes import CapturedNode
from graphdsl.declare.operands import Buffer
from graphdsl.drivers.base import Handle
from graphdsl.drivers.emulator import Emulator
from graphdsl.drivers.emulator.memory import Contents
from graphdsl.errors import DeclarationError, GraphdslError
from graphdsl.plan import plan
from graphdsl.run.devices import targets
from graphdsl.run.graph_exec import GraphExec
from graphdsl.testing.orders import Rank, Step
from graphdsl.testing.stand_ins import stand_ins

if TYPE_CHECKING:
    from graphdsl.declare.limits import Target

_AUDIT = "GD6"
"""Of the codes of what it finds."""

Memory = dict[str, Contents]
"""What each buffer holds, by name."""


def first_failure(exe: GraphExec) -> GraphdslError | None:
    """Launch, and wait until nobody has anything to tell any more; gives what was told first."""
    exe.launch()
    failure = None
    while True:
        try:
            exe.synchronize()
        except GraphdslError as problem:
            if not isinstance(exe.device, Emulator):
                return problem  # a GPU that faults goes on saying so
            failure = failure or problem.with_traceback(None)
        else:
            return failure


class Outcome(NamedTuple):
    """What came of a launch.

    Attributes
    ----------
    order : list of Step
        What ran; kernels that ran in the wait of another one, before that.
    within : dict of Step to Step
        What ran in the wait of another node: in which.
    memory : dict
        What each buffer of the exec holds at the end.
    failure : GraphdslError or None
        What went wrong, which ended the launch.
    midway : dict or None
        What each buffer held where `Trial.run` was to look.
    """

    order: list[Step]
    within: dict[Step, Step]
    memory: Memory
    failure: GraphdslError | None
    midway: Memory | None


class Trial:
    """An exec of a graph on an emulator, and what its memory holds before each launch.

    Parameters
    ----------
    graph : Definition
        What is tried.
    inputs : mapping of str to array_like
        What arrays hold before each launch, by name.
    values : mapping of str to number
        Values of params by name, instead of their defaults.
    target : str, tuple, Limits, or list of them
        Which device the emulator stands for.
    """

    def __init__(
        self,
        graph: Definition,
        inputs: Mapping[str, Any],
        values: Mapping[str, Any] | None,
        target: Target | list[Target],
    ) -> None:
        self._graph = graph
        self._chooser = _Chooser()
        several = None if isinstance(target, list) else graph.least_devices
        self._device = Emulator(order=self._chooser, target=target, devices=several)
        self.buffers = {name: each for name, each in graph.operands.items() if isinstance(each, Buffer)}
        """Those of the graph, by name."""
        self._exec = _built(graph, self._device, values)
        self._addresses = self._exec.addresses
        self._before: Memory = {}
        try:
            self._chooser.names = dict(self._names())
            owned = [name for name, buffer in self.buffers.items() if not buffer.allocated]
            self._before = self._contents(owned)
            for name, value in inputs.items():
                self._fill(name, value)
            self._start = self._contents(owned)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give memory that others own what it held before, and end the exec."""
        self._restore({name: held for name, held in self._before.items() if self.buffers[name].external})
        self._exec.close()

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, rank: Rank, look_at: int | None = None) -> Outcome:
        """Launch once from the start.

        Parameters
        ----------
        rank : callable
            Of the nodes that are ready that of least rank runs next.
        look_at : int, optional
            How many steps run before `Outcome.midway` is taken.
        """
        self._restore(self._start)
        seen: list[Memory] = []
        self._chooser.begin(rank, look_at, lambda: seen.append(self._contents(self.buffers)))
        failure = first_failure(self._exec)
        if failure is None:
            self._chooser.note_left(set())
        memory = self._contents(self._start)
        return Outcome(self._chooser.taken, self._chooser.within, memory, failure, seen[0] if seen else None)

    def _names(self) -> Iterator[tuple[Handle, str]]:
        """The handles of all nodes, with the names of nodes; what a captured node has recorded has its name."""
        device = self._device
        for name, handle in self._exec.node_handles.items():
            yield handle, name
            if isinstance(self._graph.node(name), CapturedNode):
                for inside in device.graph_get_nodes(device.graph_child_graph_node_get_graph(handle)):
                    yield inside, name

    def _fill(self, name: str, value: Any) -> None:
        """Let an array hold a value."""
        buffer = self.buffers.get(name)
        if buffer is None or buffer.allocated or buffer.readonly:
            lacking = "may not be written" if buffer is not None and buffer.readonly else "is not there before it"
            raise self._unfit(
                name,
                f"inputs are what arrays hold before a launch, and {name!r} {lacking}",
                "Name a device, host or external array, and pass the values of params as values=.",
            )
        shape = buffer.shape
        try:
            array = _converted(value, shape, buffer.dtype)
        except (TypeError, ValueError) as problem:
            remedy = f"Pass what can be broadcast to {buffer.dtype}{list(shape)}."
            raise self._unfit(name, f"the array cannot hold it: {problem}", remedy) from None
        if buffer.space == "device":
            self._exec[name].copy_from_host(array)
        else:
            host_view(self.address(name), shape, buffer.strides, buffer.dtype, None)[...] = array

    def _unfit(self, name: str, rule: str, remedy: str) -> DeclarationError:
        return DeclarationError(rule, graph=self._graph.name, field=f"inputs[{name!r}]", remedy=remedy)

    def _contents(self, names: Iterable[str]) -> Memory:
        return {name: self._device.contents(self.address(name), self._nbytes(name)) for name in names}

    def _restore(self, memory: Memory) -> None:
        for name, held in memory.items():
            if not self.buffers[name].readonly:
                self._device.restore(self.address(name), held)

    def address(self, name: str) -> int:
        """Where a buffer lies."""
        return self._addresses[name]

    def _nbytes(self, name: str) -> int:
        return max(self.buffers[name].allocation_nbytes, 0)


def _built(graph: Definition, device: Emulator, values: Mapping[str, Any] | None) -> GraphExec:
    """An exec of a graph that passes its checks, but for the audit: what that finds is what is tried here."""
    report = check(graph, target=targets(device, graph.devices), values=values)
    left = [found for found in report if not found.code.startswith(_AUDIT)]
    Report(left, graph=report.graph, target=report.target).raise_for_errors()
    made = plan(graph, share_memory=False)  # what lies between nodes is compared, too
    return GraphExec(made, device, values or {}, bound=stand_ins(graph, device))


def _converted(value: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An array of a shape and dtype; floating-point numbers are rounded, and nothing else changes."""
    given = np.broadcast_to(value, shape)
    if given.dtype.kind == "c" and dtype.kind != "c":
        raise ValueError("it has complex numbers")
    array = given.astype(dtype, order="C")
    if dtype.kind in "biu" and (array != given).any():
        raise ValueError(f"{given[array != given][0]} is none of its values")
    return array


class _Chooser:
    """The order of the emulator: that of the rank that it is given for each launch.

    Attributes
    ----------
    names : dict of int to str
        The nodes by their handles.
    taken : list of Step
        What has run, or runs, in this launch.
    within : dict of Step to Step
        What ran in the wait of another node.
    """

    def __init__(self) -> None:
        self.names: dict[Handle, str] = {}
        self.begin(lambda step: 0, None, lambda: None)

    def begin(self, rank: Rank, look_at: int | None, look: Callable[[], None]) -> None:
        """Begin a launch."""
        self.taken: list[Step] = []
        self.within: dict[Step, Step] = {}
        self._rank = rank
        self._look_at = look_at
        self._look = look
        self._turns: Counter[str] = Counter()
        self._ranks: dict[Handle, Any] = {}  # of what is ready

    def __call__(self, ready: Sequence[Handle]) -> Handle:
        present = set(ready)
        self.note_left(present)
        if len(self.taken) == self._look_at:
            self._look()
        for handle in present - self._ranks.keys():
            self._ranks[handle] = self._rank(self._step(handle))
        handle = min(ready, key=self._ranks.__getitem__)
        del self._ranks[handle]
        self.taken.append(self._next_step(handle))
        return handle

    def note_left(self, ready: Set[Handle]) -> None:
        """Note what was ready, has not been chosen, and is not ready any more: it ran in the wait of the last node."""
        left = self._ranks.keys() - ready
        for handle in [handle for handle in self._ranks if handle in left] if left else ():
            del self._ranks[handle]
            step = self._next_step(handle)
            self.taken.insert(-1, step)
            self.within[step] = self.taken[-1]

    def _next_step(self, handle: Handle) -> Step:
        step = self._step(handle)
        self._turns[step[0]] += 1
        return step

    def _step(self, handle: Handle) -> Step:
        name = self.names[handle]
        return name, self._turns[name]
