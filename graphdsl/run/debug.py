"""Runs the nodes of an exec one by one, in place of a launch, to find the one that fails.

Each node becomes a graph of its own, packed from what is set in the exec, and is waited for before the next one. What
decides a conditional node is asked after each kernel that may have set it: the kernel runs in one graph with a
conditional node that writes which body would run. This module must not know how a node is packed or added.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Any

import numpy as np

from graphdsl.declare.condition import Condition
from graphdsl.declare.definition import Definition
from graphdsl.declare.nesting import ConditionalNode
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import AllocNode, FreeNode, KernelNode, named_operands
from graphdsl.drivers.base import Driver, Handle
from graphdsl.errors import CallbackError, DriverError, GraphdslError, Location
from graphdsl.plan import Level, Plan, plan
from graphdsl.plan.ends import is_end
from graphdsl.run.blocks import DeviceBlock
from graphdsl.run.build import Needs, Parts
from graphdsl.run.callbacks import HostCalls
from graphdsl.run.calls import CallLog
from graphdsl.run.captured import Captures
from graphdsl.run.debug_report import DebugReport, NodeRun
from graphdsl.run.device_array import to_device
from graphdsl.run.emit import begin, emit
from graphdsl.run.faults import blame_run
from graphdsl.run.fields import field_values
from graphdsl.run.templates import Shared

Observe = Callable[[Node], Any]
"""Is told of each node before it runs."""


def debug(
    name: str, made: Plan, parts: Parts, changes: Mapping[str, Any], observe: Observe | None = None
) -> DebugReport:
    """Run the nodes of an exec until one fails.

    Parameters
    ----------
    name : str
        Of the graph.
    made : Plan
        What the exec was built from.
    parts : Parts
        What it consists of; no launch of it may be in flight.
    changes : dict of str to number
        Values of params that differ from those of the exec.
    observe : callable, optional
        Is told of each node before it runs.

    Raises
    ------
    DriverError
        If a call failed that is about no node.
    """
    stepper = _Stepper(name, made, parts, changes, observe)
    with stepper.clocks():
        stepper.run_level(made.levels[0])
    return stepper.report()


class _Stepper:
    """Runs nodes one by one, and keeps what came of each."""

    def __init__(
        self, name: str, made: Plan, parts: Parts, changes: Mapping[str, Any], observe: Observe | None
    ) -> None:
        self._name = name
        self._plan = made
        self._parts = parts
        self._observe = observe
        self._device: Driver = parts.devices.home
        self._values = {**parts.shadow.values, **changes}
        self._bodies = {(level.owner, level.body): level for level in made.levels}
        self._askers = {node.condition.name: node for node in made.nodes if isinstance(node, ConditionalNode)}
        self._decisions = {condition.name: condition.default or 0 for condition in made.conditions}
        self._blocks: dict[str, DeviceBlock] = {}
        self._begun_in_order: dict[int, None] = {}
        self._counts = [0] * len(made.nodes)
        self._times = [0.0] * len(made.nodes)
        self._around: set[int] = set()
        self._failed: int | None = None
        self._error: GraphdslError | None = None

    @contextmanager
    def clocks(self) -> Iterator[None]:
        """Around all of it: two events tell how long a node takes. At the end memory of the graph is given back."""
        with ExitStack() as resources:
            resources.callback(self._blocks.clear)
            self._begun, self._ended = (self._clock(resources) for _ in range(2))
            yield

    def _clock(self, resources: ExitStack) -> Handle:
        event = self._device.event_create(timing=True)

        def destroy() -> None:
            with suppress(DriverError):  # a lost context refuses
                self._device.event_destroy(event)

        resources.callback(destroy)
        return event

    def run_level(self, level: Level | None) -> bool:
        """Run the nodes of a level in their order; False as soon as one fails."""
        return level is None or all(map(self._run, range(level.start, level.stop)))

    def _run(self, index: int) -> bool:
        node = self._parts.shadow.nodes[index]
        if index in self._parts.shadow.disabled or is_end(node):
            return True
        self._begun_in_order[index] = None
        if self._observe is not None:
            self._observe(node)
        try:
            done = self._run_bodies(index, node) if node.bodies else self._step(index, node)
        except GraphdslError as problem:
            self._failed, self._error = index, problem.with_traceback(None)  # which would keep all of this alive
            return False
        if done:
            self._counts[index] += 1
        else:
            self._around.add(index)
        return done

    def _run_bodies(self, index: int, node: Node) -> bool:
        """Run the bodies of a node that are to run, each as often as it is; False as soon as a node in one fails."""
        return all(self.run_level(self._bodies.get((index, body))) for body in self._chosen(node))

    def _chosen(self, node: Node) -> Iterator[int]:
        """Numbers of those bodies; what a condition is may change with each."""
        if not isinstance(node, ConditionalNode):
            yield 0
        elif node.form == "while":
            while self._decisions[node.condition.name]:
                yield 0
        else:
            value = self._decisions[node.condition.name]
            yield value if node.form == "switch" else int(not value)

    # One node

    def _step(self, index: int, node: Node) -> bool:
        if isinstance(node, AllocNode):
            self._allocate(node)
        elif isinstance(node, FreeNode):
            del self._blocks[node.array.name]
        else:
            self._launch(index, node)
        return True

    def _allocate(self, node: AllocNode) -> None:
        """What a graph allocates no other graph may copy, so that it is allocated outside of graphs."""
        try:
            block = DeviceBlock(self._parts.devices[node.device], max(node.array.allocation_nbytes, 1))
            self._parts.devices.let_sharers_reach(node.array)
        except DriverError as problem:
            blame_run(problem, self._device, self._name, node)
            raise
        self._blocks[node.array.name], self._values[node.array.name] = block, block.address

    def _launch(self, index: int, node: Node) -> None:
        """Build the graph of a node, launch it and wait for it."""
        conditions = [operand for _, operand in named_operands(node) if isinstance(operand, Condition)]
        hosts = HostCalls(self._name)
        resources = ExitStack()
        try:
            probe = self._probe(node, conditions) if conditions else None
            self._times[index] += self._timed(index, node, probe, hosts, resources)
            if probe is not None:
                self._decisions.update(probe.answers())
            resources.close()
        except BaseException as problem:
            with suppress(DriverError):  # a lost context refuses
                resources.close()
            if isinstance(problem, DriverError):
                blame_run(problem, self._device, self._name, node)
            raise
        finally:
            hosts.waited()
        hosts.raise_failure()

    def _probe(self, node: Node, conditions: list[Condition]) -> _Probe:
        asking = {each.name: self._askers[each.name] for each in conditions if each.name in self._askers}
        return _Probe(self._parts.devices[node.device], node.device, asking, self._decisions)

    def _timed(self, index: int, node: Node, probe: _Probe | None, hosts: HostCalls, resources: ExitStack) -> float:
        """Run a node; gives the milliseconds that it took."""
        parts, device, stream = self._parts, self._device, self._parts.stream
        made = _plan_of(node, Definition(node.name) if probe is None else probe.definition)
        values = dict(self._values) if probe is None else {**self._values, **probe.values}
        kernels = [parts.shadow.packing.kernels[index], *[None] * (len(made.nodes) - 1)]
        log = CallLog()
        graph = begin(made, parts.devices, values, resources, log)
        captures = Captures(self._name, parts.devices, stream, hosts.failures)
        shadow = Needs(kernels, values, parts.memory).shadow(made, parts.devices, hosts, captures, resources, log)
        emitted = emit(made, graph, shadow, Shared(values), parts.devices, stream, resources, log)
        device.event_record(self._begun, stream)
        hosts.launched()
        device.graph_launch(emitted.graph_exec, stream)
        device.event_record(self._ended, stream)
        device.stream_synchronize(stream)
        return device.event_elapsed_time(self._begun, self._ended)

    # What came of it

    def report(self) -> DebugReport:
        """What came of each node."""
        declared = (index for index, node in enumerate(self._plan.nodes) if not is_end(node))
        order = dict.fromkeys([*self._begun_in_order, *declared])
        return DebugReport(self._name, self._device.name, tuple(map(self._run_of, order)), self._error)

    def _run_of(self, index: int) -> NodeRun:
        node, count = self._parts.shadow.nodes[index], self._counts[index]
        found = NodeRun(node.name, node.kind, node.location, self._outcome(index), count)
        if index == self._failed:
            raised_at = self._error.raised_at if isinstance(self._error, CallbackError) else None
            return replace(found, fields=field_values(node, self._values), source=raised_at or _source(node))
        return replace(found, milliseconds=self._times[index]) if count and not node.bodies else found

    def _outcome(self, index: int) -> str:
        if index == self._failed:
            return "failed"
        if index in self._around:
            return "failed inside"
        if self._counts[index]:
            return "ran"
        if index in self._parts.shadow.disabled:
            return "disabled"
        return "not chosen" if self._failed is None else "not reached"


class _Probe:
    """Asks what a kernel has set conditions to: nodes behind it write which of their bodies run.

    Attributes
    ----------
    definition : Definition
        Those nodes.
    values : dict of str to int
        The address that they write to, by name.
    """

    def __init__(
        self, device: Driver, number: int | None, asking: Mapping[str, ConditionalNode], decisions: Mapping[str, int]
    ) -> None:
        self._asking = asking
        self._answers = to_device(device, np.full(len(asking), _NONE, np.uint32))
        self.definition = made = Definition("which")
        answers = made.external("answers of conditional nodes", self._answers)
        self.values = {answers.name: self._answers.address}
        with nullcontext() if number is None else made.on(number):
            for place, (name, node) in enumerate(asking.items()):
                condition = Condition(name, decisions[name], made)  # its name may be one that only bodies have
                made.operands[name] = condition
                for body, inside in self._bodies(condition, node):
                    inside.memset(answers[place : place + 1], body)

    def _bodies(self, condition: Condition, node: ConditionalNode) -> Iterator[tuple[int, Definition]]:
        """The bodies that answer, each with what the condition is taken for if it runs."""
        if node.form == "switch":
            asking = self.definition.switch(condition, len(node.bodies))
            yield from enumerate(asking.bodies)
        else:
            yield 1, self.definition.if_(condition).bodies[0]

    def answers(self) -> dict[str, int]:
        """What the conditions are now, as far as it decides anything."""
        found = self._answers.copy_to_host().tolist()
        return {
            name: value if value != _NONE or node.form == "switch" else 0
            for (name, node), value in zip(self._asking.items(), found, strict=True)
        }


_NONE = 0xFFFF_FFFF
"""No body: of a switch, a value that has none."""


def _source(node: Node) -> Location | None:
    """File and line where the Python function of a node begins."""
    function = node.kernel.function if isinstance(node, KernelNode) else getattr(node, "function", None)
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    return None if code is None else (code.co_filename, code.co_firstlineno)


def _plan_of(node: Node, behind: Definition) -> Plan:
    """The plan of a node, and of a definition whose nodes all come after it."""
    made = plan(behind)
    levels = [_shifted(level) for level in made.levels]
    top = levels[0]
    others = range(1, top.stop)
    edges = np.array([(0, other) for other in others], np.int64).reshape(-1, 2)
    levels[0] = replace(top, start=0, edges=edges, ports=np.zeros(len(others), np.uint8))
    return replace(made, nodes=(node, *made.nodes), levels=tuple(levels))


def _shifted(level: Level) -> Level:
    """A level with one node more before it."""
    owner = level.owner if level.owner < 0 else level.owner + 1
    return replace(level, start=level.start + 1, stop=level.stop + 1, edges=level.edges + 1, owner=owner)
