"""Updates a whole exec from another graph: what keeps it from being so, what changes, and the driver's call.

All that is known to keep the driver from it, or that it would keep without a word, is found before it is asked. This
module must not decide what to do where the graphs do not match.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from graphdsl.declare.attributes import ATTRIBUTES, LaunchAttributes
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import KernelNode
from graphdsl.drivers.base import Driver
from graphdsl.drivers.results import ExecUpdateError
from graphdsl.errors import Location, UpdateError, describe, text_of
from graphdsl.plan import Plan
from graphdsl.plan.ends import is_end
from graphdsl.plan.levels import PORTS
from graphdsl.run.binding import Binding
from graphdsl.run.build import Needs, Parts, gather
from graphdsl.run.calls import CallLog
from graphdsl.run.captured import NoUpdateError
from graphdsl.run.changes import CHANGES
from graphdsl.run.emit import Handles, begin, blame_handle, fill, node_of
from graphdsl.run.fields import NodeChange, blame_changes, field_changes
from graphdsl.run.planned import let_share
from graphdsl.run.send import Sender
from graphdsl.run.shadow import Release, Shadow
from graphdsl.run.templates import Shared


class Side(NamedTuple):
    """What an exec is, or what it is to become.

    Attributes
    ----------
    plan : Plan
        Its nodes and edges.
    nodes : sequence of Node
        The nodes as they are set, in the order of the plan.
    values : dict of str to number
        The value of each param and the address of each buffer, by name.
    """

    plan: Plan
    nodes: Collection[Node]
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Mismatch:
    """What no update of an exec changes, and differs.

    Attributes
    ----------
    node : str or None
        Name of the node; None if it is not about one.
    field : str
        The field of the node, or the operand.
    old, new : object
        What it is in the exec and in the graph; None for what is not there.
    rule : str
        Why the exec cannot become so.
    location : tuple of str and int, or None
        Where the node or the operand was declared.
    """

    node: str | None
    field: str
    old: Any
    new: Any
    rule: str
    location: Location | None

    @property
    def value(self) -> str:
        """Both, as messages show them; once if they are the same."""
        old, new = text_of(self.old), text_of(self.new)
        return old if old == new else f"{old} -> {new}"

    def __str__(self) -> str:
        return describe(self.rule, node=self.node, field=self.field, value=self.value, location=self.location)


@dataclass(frozen=True)
class WholeUpdate:
    """What an update of a whole exec did; printed, it says so in words.

    Attributes
    ----------
    graph : str
        Name of the graph that the exec was updated from.
    reinstantiated : bool
        True if the graphs did not match, and a new exec was made in the place of the old one.
    mismatches : tuple of Mismatch
        Why; empty if they matched.
    nodes : tuple of NodeChange
        The nodes of both whose fields changed.
    """

    graph: str
    reinstantiated: bool
    mismatches: tuple[Mismatch, ...]
    nodes: tuple[NodeChange, ...]

    def __str__(self) -> str:
        how = "instantiated anew" if self.reinstantiated else "updated"
        lines = [*map(str, self.mismatches), *(line for node in self.nodes for line in str(node).splitlines())]
        return "\n".join([f"{how} from graph {self.graph!r}", *(f"  {line}" for line in lines)])


def mismatches(before: Side, after: Side, bound: Collection[str]) -> list[Mismatch]:
    """What keeps an exec from being updated; ``bound`` are the operands that need not be made."""
    found = [*_other_nodes(before.plan, after.plan), *_other_edges(before.plan, after.plan)]
    found += _other_operands(before.plan, after.plan, bound)
    for old, new in _pairs(before, after):
        found += _fixed(old, new, before.values, after.values)
    return found or list(_other_lanes(before.plan, after.plan))


def node_changes(before: Side, after: Side, disabled: Collection[str] = ()) -> tuple[NodeChange, ...]:
    """The nodes of both whose fields differ."""
    made = (
        NodeChange(new.name, new.kind, new.name not in disabled, field_changes(old, new, before.values, after.values))
        for old, new in _pairs(before, after)
        if type(old) is type(new)
    )
    return tuple(change for change in made if change.fields)


def _pairs(before: Side, after: Side) -> Iterator[tuple[Node, Node]]:
    known = {node.name: node for node in before.nodes}
    return ((known[node.name], node) for node in after.nodes if node.name in known)


def _other_nodes(before: Plan, after: Plan) -> Iterator[Mismatch]:
    old, new = ({node.name: node for node in plan.nodes if not is_end(node)} for plan in (before, after))
    for name, node in old.items():
        if name not in new:
            yield Mismatch(name, "kind", node.kind, None, "the graph has no node of this name", node.location)
    for name, node in new.items():
        if name not in old:
            yield Mismatch(name, "kind", None, node.kind, "the exec has no node of this name", node.location)


def _other_edges(before: Plan, after: Plan) -> Iterator[Mismatch]:
    old, new = _edges(before), _edges(after)
    locations = {node.name: node.location for plan in (before, after) for node in plan.nodes}
    for source, target in sorted({**old, **new}):
        ports = old.get((source, target)), new.get((source, target))
        if ports[0] != ports[1]:
            field = f"edge {source} -> {target}"
            yield Mismatch(target, field, *ports, "an update keeps the edges", locations[target])


def _other_lanes(before: Plan, after: Plan) -> Iterator[Mismatch]:
    """What a plan added, where that cannot be kept: a node that others wait for may wait for something itself now."""
    old, new = before.lanes, after.lanes
    if (old.edges, [level.ends for level in old.levels]) != (new.edges, [level.ends for level in new.levels]):
        rule = "an update keeps the edges that the plan added, and a node that others wait for may wait itself now"
        yield Mismatch(None, "lanes", str(old), str(new), rule, None)


def _edges(plan: Plan) -> dict[tuple[str, str], str]:
    """The port of each edge, by the names of its ends."""
    names = [node.name for node in plan.nodes]
    ports = {number: port for port, number in PORTS.items()}
    return {
        (names[source], names[target]): ports[port]
        for level in plan.levels
        for (source, target), port in zip(level.edges.tolist(), level.ports.tolist(), strict=True)
    }


def _other_operands(before: Plan, after: Plan, bound: Collection[str]) -> Iterator[Mismatch]:
    wanted: dict[str, Any] = {**after.buffers, **after.events}
    for name, operand in wanted.items():
        if name not in bound and not getattr(operand, "allocated", False):
            was = before.operands.get(name)
            rule = "an update makes no memory and no events" if was is None else "an update keeps what the exec has"
            if was is not None and (name in before.planned or name in after.planned):
                rule = "an update keeps the plan of memory, and which arrays share bytes would change"
            old = None if was is None else repr(was)
            yield Mismatch(None, f"operand {name!r}", old, repr(operand), rule, operand.location)


def _fixed(old: Node, new: Node, values: Mapping[str, Any], new_values: Mapping[str, Any]) -> Iterator[Mismatch]:
    """What the driver refuses to change in a node, or would keep without a word."""
    if type(old) is not type(new):
        yield Mismatch(old.name, "kind", old.kind, new.kind, "an update keeps the kind of a node", new.location)
        return
    if old.device != new.device:
        yield Mismatch(old.name, "device", old.device, new.device, "an update keeps the device of a node", new.location)
        return
    row = CHANGES[type(old)]
    if row.no_whole_update:
        yield Mismatch(old.name, "kind", old.kind, new.kind, row.no_whole_update, new.location)
        return
    for kept in row.kept:
        was, becomes = kept.of(old, values), kept.of(new, new_values)
        if was != becomes:
            yield Mismatch(old.name, kept.field, was, becomes, kept.rule.format(was), new.location)
    if isinstance(old, KernelNode) and isinstance(new, KernelNode):
        yield from _fixed_attributes(old, new, values, new_values)


def _fixed_attributes(
    old: KernelNode, new: KernelNode, values: Mapping[str, Any], new_values: Mapping[str, Any]
) -> Iterator[Mismatch]:
    for name in ATTRIBUTES:
        was, becomes = (getattr(node.attributes or _NONE, name) for node in (old, new))
        moved = name == "access_policy" and _address(old, values) != _address(new, new_values)
        if repr(was) == repr(becomes) and not moved:
            continue
        if name == "cluster" and becomes is not None:  # set and changed, but never taken back: measured on an H200
            continue
        rule = "the driver refuses to change it" if name == "cooperative" else "the driver keeps what the exec has"
        yield Mismatch(old.name, name, was, becomes, rule, new.location)


_NONE = LaunchAttributes()


def _address(node: KernelNode, values: Mapping[str, Any]) -> Any:
    return None if node.window is None else values.get(node.window.buffer.name)


def refusal(found: list[Mismatch]) -> UpdateError:
    """The error for graphs that do not match."""
    first, *rest = found
    also = "".join(f" Also: {mismatch}" for mismatch in rest[:9])
    return UpdateError(
        first.rule,
        node=first.node,
        field=first.field,
        value=first.value,
        remedy=f'Pass on_mismatch="reinstantiate" to have a new exec made in the place of this one.{also}',
        location=first.location,
    )


def mismatch_of(problem: ExecUpdateError | NoUpdateError) -> Mismatch:
    """What the driver found, or a recording showed, that was not known before."""
    if isinstance(problem, NoUpdateError):
        return Mismatch(problem.node, "function", None, None, problem.rule, problem.location)
    rule = f"the driver says {problem.reason}"
    field, old, new = problem.changes[0] if problem.changes else ("params", None, None)
    return Mismatch(problem.node, field, old, new, rule, problem.location)


def take_over(
    made: Plan,
    values: Mapping[str, Any],
    bound: Mapping[str, Binding],
    parts: Parts,
    changes: Collection[NodeChange],
    log: CallLog,
) -> tuple[Parts, Release]:
    """Update an exec from a plan whose nodes and edges have the names of its own.

    Parameters
    ----------
    made : Plan
        What it is to become.
    values : dict of str to number
        Values of params by name, instead of their defaults.
    bound : dict of str to Binding
        Where all its operands are.
    parts : Parts
        What it consists of.
    changes : collection of NodeChange
        The fields that change, to be told if the driver refuses.
    log : CallLog
        Takes the driver calls made.

    Returns
    -------
    Parts
        What it consists of now.
    callable
        Releases what it consisted of, once no launch uses it.

    Raises
    ------
    DriverError
        If the driver refuses; the exec is as it was.
    """
    devices = parts.devices
    with ExitStack() as resources, ExitStack() as temporary:
        needs = gather(made, devices, values, resources, log, bound=bound)
        graph = begin(made, devices, needs.values, temporary, log)
        shadow = needs.shadow(made, devices, parts.hosts, parts.captures, resources, log)
        handles = fill(made, graph, shadow, Shared(needs.values), devices, log)
        try:
            devices.home.graph_exec_update(parts.sender.graph_exec, graph)
        except ExecUpdateError as problem:
            _blame(problem, made, handles, changes, devices.home)
            raise
        log.add("cuGraphExecUpdate", made.name)
        release = parts.held.replace(resources.pop_all())
    taken = _with(parts, needs, shadow)
    let_share(made, taken.sender, needs.values)
    return taken, release


def _with(parts: Parts, needs: Needs, shadow: Shadow) -> Parts:
    """The exec with other nodes, which the driver knows by the handles of the graph that it was made from."""
    shadow.disabled |= parts.shadow.disabled
    sender = Sender(shadow.nodes, shadow.packing, parts.devices.home, parts.sender.graph_exec, parts.sender.handles)
    return replace(parts, memory=needs.memory, shadow=shadow, sender=sender)


def _blame(
    problem: ExecUpdateError, made: Plan, handles: Handles, changes: Collection[NodeChange], device: Driver
) -> None:
    """Say the refusal in terms of the nodes, with the fields of the blamed one that were to change."""
    blame_handle(problem, made, handles, device)
    dependency = node_of(made.nodes, handles, problem.from_handle, device)
    if dependency is not None:
        problem.about(rule=f"{problem.rule}; its dependency on {dependency.name!r} does not match")
    blame_changes(problem, next((change.fields for change in changes if change.node == problem.node), ()))
    problem.about(remedy=f'{problem.remedy} on_mismatch="reinstantiate" has a new exec made in the place of this one.')
