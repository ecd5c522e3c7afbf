"""The ways to change an exec: by the names of params and buffers, node by node, and from another graph.

What is done by them is said in other modules; here it is asked for. This module must not launch anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

from graphdsl.check import check
from graphdsl.declare.condition import refuse_condition
from graphdsl.declare.definition import Definition
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import named_operands
from graphdsl.declare.selection import selected
from graphdsl.declare.store import unknown_name
from graphdsl.declare.targets import Targets
from graphdsl.drivers.host_threads import threads
from graphdsl.drivers.results import ExecUpdateError
from graphdsl.errors import DriverError, ExecUnusableError, UpdateError
from graphdsl.plan import Plan, plan
from graphdsl.plan.alike import laned_alike, waited_for
from graphdsl.plan.assured import surely_ends
from graphdsl.plan.ends import is_end
from graphdsl.run.binding import Binding
from graphdsl.run.build import param_values
from graphdsl.run.calls import CallLog
from graphdsl.run.captured import NoUpdateError
from graphdsl.run.devices import targets
from graphdsl.run.exec_life import ExecLife
from graphdsl.run.faults import building
from graphdsl.run.node_exec import NodeExec
from graphdsl.run.preflight import Preflight
from graphdsl.run.shadow import Release
from graphdsl.run.switch import Switched
from graphdsl.run.turns import in_turn
from graphdsl.run.whole_update import Side, WholeUpdate, mismatch_of, mismatches, node_changes, refusal, take_over


class ExecUpdates(ExecLife):
    """What can be changed in an exec; `GraphExec` has these methods."""

    def update(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        """Change params and re-bind external memory for the launches that follow, by name; all of it, or nothing.

        Parameters
        ----------
        values : dict, optional
            Values by name; for names that are no Python identifiers, such as ``"layer0/weights"``.
        **named
            Numbers for params; owners of memory for external operands. Only nodes whose fields change reach the
            driver.

        Raises
        ------
        UpdateError
            If a name is unknown or a value is not allowed. Nothing has changed.
        DriverError
            If the driver refuses. The values before are in force.
        ExecUnusableError
            If the driver refused and the values before could not be restored.
        GraphdslError
            If another thread is in the middle of a call of this exec, or this is a host node.
        """
        if self._unusable is not None:
            self._require_usable()
        turns = self._turns  # by hand: context managers would cost as much as the rest
        before = turns.user
        if before or threads:
            before = turns.claim("updating")
        turns.user = True
        try:
            if values is None and len(named) == 1:
                ((name, value),) = named.items()
                if self._updater.update_param(name, value):
                    return
            changes, adopted = self._converted(named if values is None else {**_mapping(values), **named})
            releases = self._updater.update(changes) if not adopted else self._rebound(changes, adopted)
            if releases:
                self._retired.add(releases, self._last_stream)
        except (DriverError, ExecUnusableError) as problem:
            self._note(problem)
            raise
        finally:
            turns.user = before

    def _rebound(self, changes: Mapping[str, Any], adopted: Mapping[str, Binding]) -> list[Release]:
        warnings = self._aliases.warnings(changes, adopted)
        # Host nodes are bound to memory while the update is applied, so the new owners must be there by then.
        with self._memory.rebound(adopted) as replaced:
            releases = self._updater.update(changes)
        self._aliases.tell(warnings)
        return [*releases, *map(_keeping, replaced)]

    def _converted(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Binding]]:
        """What an update is given: values of params and addresses of buffers, and the memory behind these."""
        converters = self._converters
        changes, adopted = {}, {}
        for name, value in given.items():
            convert = converters.get(name)
            if convert is not None:
                changes[name] = convert(value)
            elif name in self._plan.buffers or name in self._plan.events:
                adopted[name] = self._memory.adopt(name, value)
                self._shadow.require_movable(name, adopted[name].address)
                changes[name] = adopted[name].address
            else:
                refuse_condition(self._plan.operands.get(name), UpdateError)
                raise unknown_name(name, [*self._plan.params, *self._plan.buffers], "param or buffer", UpdateError)
        return changes, adopted

    def _changed_params(self, values: Mapping[str, Any] | None) -> dict[str, Any]:
        """Values of params that an update would accept, converted."""
        given = {} if values is None else _mapping(values)
        unknown = next((name for name in given if name not in self._converters), None)
        if unknown is not None:
            raise unknown_name(unknown, self._plan.params, "param", UpdateError)
        changes, _ = self._converted(given)
        self._updater.preview(changes)
        return changes

    @in_turn("asking")
    def preflight(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> Preflight:
        """Say what `update` would do with the same arguments, without doing it.

        Parameters
        ----------
        values, **named
            As for `update`.

        Returns
        -------
        Preflight
            The nodes that would be touched with their fields before and after, the driver calls, what they would cost,
            or why the update would be refused. What only the driver could refuse is not known before.

        Raises
        ------
        ExecUnusableError
            If the exec is closed, or an update left it undefined.
        """
        self._require_usable()
        shadow = self._shadow
        before = dict(shadow.values)
        try:
            changes, adopted = self._converted(named if values is None else {**_mapping(values), **named})
            warnings = self._aliases.warnings(changes, adopted) if adopted else ()
            preview = self._updater.preview(changes)
        except UpdateError as refusal:
            return Preflight.refused(self.name, self.device.name, refusal)
        nodes = [(shadow.nodes[index], index not in shadow.disabled) for index in preview.indices]
        after = {**before, **changes}
        short = preview.direct and values is None and len(named) == 1  # as `update` would take it
        allowed = Preflight.allowed(self.name, self.device.name, nodes, before, after, preview.raised, short)
        return replace(allowed, warnings=warnings) if warnings else allowed

    def node(self, name: str) -> NodeExec:
        """One node of the exec, to update, enable or disable it.

        Raises
        ------
        UpdateError
            If there is no node of that name.
        """
        try:
            return NodeExec(self, name, self._index[name])
        except (KeyError, TypeError):
            raise unknown_name(name, self._index, "node", UpdateError) from None

    @in_turn("updating")
    def update_from(
        self,
        graph: Definition,
        on_mismatch: Literal["raise", "reinstantiate"] = "raise",
        *,
        values: Mapping[str, Any] | None = None,
    ) -> WholeUpdate:
        """Make the exec what another graph, or this one after changes, would be, instantiated with ``values``.

        Nodes are known by their names. Params have the values given or their defaults, external operands the owners
        that ``graph`` names, nodes the fields that it declares; what updates made of the exec is gone, but disabled
        nodes stay disabled. The memory of arrays that are the same in both keeps its place and its contents, and that
        of planned arrays its place, if all of them are planned as before.

        Parameters
        ----------
        graph : Graph
            What the exec is to be.
        on_mismatch : "raise" or "reinstantiate"
            What happens if the graph differs in what no update changes: nodes, their kinds, edges, memory, some
            attributes. Either that is an error, or the launches so far are waited for and a new exec is built in the
            place of the old one.
        values : dict of str to number, optional
            Values of params by name, instead of their defaults.

        Returns
        -------
        WholeUpdate
            The fields that changed, and whether a new exec had to be made, and why.

        Raises
        ------
        CheckError
            If the graph has errors.
        UpdateError
            If it does not match, and that is to be raised.
        DriverError
            If the driver refuses. In all of these cases nothing has changed.

        Examples
        --------
        >>> import graphdsl as gd
        >>> def fill(value):
        ...     g = gd.Graph("fill")
        ...     g.memset(g.device_array("x", 4, "f4"), value, name="set")
        ...     return g
        >>> with fill(1).instantiate(gd.emulator()) as exe:
        ...     print(exe.update_from(fill(2)))
        updated from graph 'fill'
          set (memset)
            value: 1 -> 2
        """
        self._require_usable()
        _require_whole(graph, on_mismatch)
        held_to = targets(self.device, graph.devices)
        check(graph, target=held_to, values=values, errors_only=True).raise_for_errors()
        made, given, shadow = self._planned_alike(graph, held_to, values), values or {}, self._shadow
        bound = self._memory.bindings_for(made, shadow.values)
        addresses = {name: bound[name].address if name in bound else 0 for name in (*made.buffers, *made.events)}
        before = Side(self._plan, shadow.nodes, shadow.values)
        after = Side(made, made.nodes, {**param_values(made, given), **addresses})
        found = mismatches(before, after, bound)
        changes = node_changes(before, after, [shadow.nodes[index].name for index in shadow.disabled])
        if not found:
            log = CallLog()
            try:
                with building(made, self.device):
                    parts, release = take_over(made, given, bound, self._parts, changes, log)
            except (ExecUpdateError, NoUpdateError) as problem:
                if on_mismatch == "raise":
                    raise
                found = [mismatch_of(problem)]
            else:
                self._log = log
                self._take(made, parts)
                self._retired.add([release], self._last_stream)
                return WholeUpdate(graph.name, False, (), changes)
        elif on_mismatch == "raise":
            raise refusal(found)
        self._begin_anew(made, given, bound)
        return WholeUpdate(graph.name, True, tuple(found), changes)

    def _planned_alike(self, graph: Definition, held_to: Targets, values: Mapping[str, Any] | None) -> Plan:
        """The plan of a graph: with the lanes of this exec if it has the same nodes and edges, else with its own."""
        lanes, share = self._plan.lanes, self._plan.share_memory
        made = plan(graph, share_memory=share)
        alike = laned_alike(graph, made, self._plan, held_to)
        if alike is not None or lanes.asked is None:
            return alike or made
        names = {node.name for node in made.nodes}
        durations = {name: duration for name, duration in lanes.durations.items() if name in names}
        return plan(graph, lanes=lanes.asked, durations=durations, values=values, target=held_to, share_memory=share)

    def enable(self, *names: str, scope: str | None = None, tag: str | None = None) -> Switched:
        """Let nodes run again in the launches that follow; the arguments are those of `disable`."""
        return self._switch(names, scope, tag, True)

    def disable(self, *names: str, scope: str | None = None, tag: str | None = None) -> Switched:
        """Skip nodes in the launches that follow, all of them or none; their edges go on ordering the others.

        Parameters
        ----------
        *names : str
            Names of nodes, or patterns such as ``"layer0/*"``; ``*``, ``?`` and ``[abc]`` match across ``/``, too.
        scope : str, optional
            Only nodes of this scope, and of scopes inside of it. Without names all of them.
        tag : str, optional
            Only nodes with this tag, see `Graph.tagged`.

        Returns
        -------
        Switched
            The nodes that are the other way now, and those that read what only a disabled node would have written; the
            logger ``graphdsl`` says so once for each pair.

        Raises
        ------
        UpdateError
            If a name, the scope or the tag matches nothing, or a node is of a kind that cannot be disabled: kernels,
            copies and memsets can, of a child the nodes inside, and empty nodes do nothing either way. Nothing has
            changed.
        DriverError
            If the driver refused; what was before is in force.

        Examples
        --------
        >>> import graphdsl as gd
        >>> g = gd.Graph("demo")
        >>> x = g.device_array("x", 4, "f4")
        >>> with g.scope("layer0"), g.sequence():
        ...     clear, again = g.memset(x, 0, name="clear"), g.memset(x, 1, name="again")
        >>> with g.instantiate(gd.emulator()) as exe:
        ...     exe.disable(scope="layer0").nodes
        ('layer0/clear', 'layer0/again')
        """
        return self._switch(names, scope, tag, False)

    @in_turn("updating")
    def _switch(self, names: Sequence[str], scope: str | None, tag: str | None, enabled: bool) -> Switched:
        self._require_usable()
        if not names and scope is None and tag is None:
            raise UpdateError(
                "no node is named, and no scope or tag",
                field="names",
                remedy='Pass names, patterns, a scope or a tag; "*" stands for all nodes.',
            )
        nodes = self._shadow.nodes
        indices = selected(nodes, names, scope=scope, tag=tag, error=UpdateError)
        if enabled:
            self._aliases.require_enabled(indices)
        with self._noting_loss():
            return self._switches.switch([index for index in indices if not is_end(nodes[index])], enabled)

    def _switch_one(self, index: int, enabled: bool) -> None:
        self._require_usable()
        turns = self._turns
        before = turns.user
        if before or threads:
            before = turns.claim("updating")
        turns.user = True
        try:
            if enabled:
                self._aliases.require_enabled((index,))
            self._switches.switch_one(index, enabled)
        except ExecUnusableError as problem:
            self.give_up(problem.rule)
            raise
        finally:
            turns.user = before

    @in_turn("updating")
    def _update_node(self, index: int, node: Node) -> None:
        self._require_usable()
        self._require_own(node)
        devices = self._parts.devices
        devices.require_kept(self._shadow.nodes[index], node)
        devices.require_shared(node)
        self._require_end(index, node)
        devices.let_reach([node])
        with self._noting_loss():
            releases = self._node_updater.update(index, node)
            if releases:
                self._retired.add(releases, self._last_stream)

    def _update_numbers(self, index: int, given: Mapping[str, Any]) -> bool:
        self._require_usable()
        turns = self._turns
        before = turns.user
        if before or threads:
            before = turns.claim("updating")
        turns.user = True
        try:
            return self._node_updater.update_numbers(index, given)
        except (DriverError, ExecUnusableError) as problem:
            self._note(problem)
            raise
        finally:
            turns.user = before

    def _require_own(self, node: Node) -> None:
        """Refuse operands that the exec has no memory or value for."""
        for name, operand in named_operands(node):
            if self._plan.operands.get(name) is not operand:
                raise UpdateError(
                    "the exec has no operand of this name, or another one",
                    node=node.name,
                    field="operand",
                    value=name,
                    remedy="Use operands that the graph had when it was instantiated.",
                    location=node.location,
                )

    def _require_end(self, index: int, node: Node) -> None:
        """Refuse what may let a node wait that others wait for on a lane, and perhaps for one of them."""
        if not self._plan.lanes.edges or index not in waited_for(self._plan):
            return
        devices = self._parts.devices
        if not surely_ends(node, lambda number: devices[number].ordinal):
            raise UpdateError(
                "others wait for this node by the plan of the lanes, and it may wait for them itself now: it shares "
                "memory with the host or with another device",
                node=node.name,
                field="args",
                value=", ".join(map(str, getattr(node, "args", ()))),
                remedy="Keep its arrays in the memory of its device, or instantiate the graph with lanes=None.",
                location=node.location,
            )

    @contextmanager
    def _noting_loss(self) -> Iterator[None]:
        """Around an update: remembers that it left the exec undefined, and says what the driver refused."""
        try:
            yield
        except (DriverError, ExecUnusableError) as problem:
            self._note(problem)
            raise

    def _note(self, problem: DriverError | ExecUnusableError) -> None:
        if isinstance(problem, DriverError):
            self._launches.explain(problem)
        else:
            self.give_up(problem.about(graph=self.name).rule)


def _require_whole(graph: Any, on_mismatch: Any) -> None:
    if not isinstance(graph, Definition) or graph.root is not graph:
        raise UpdateError(
            "an exec is updated from a whole graph",
            field="graph",
            value=f"{graph!r} of type {type(graph).__name__}",
            remedy="Pass a graphdsl.Graph.",
        )
    if on_mismatch not in ("raise", "reinstantiate"):
        raise UpdateError(
            "graphs that do not match are an error, or a new exec is made",
            field="on_mismatch",
            value=repr(on_mismatch),
            remedy='Pass "raise" or "reinstantiate".',
        )


def _mapping(values: Any) -> Mapping[str, Any]:
    if isinstance(values, Mapping):
        return values
    raise UpdateError(
        "values are a dict by the names of params and buffers",
        field="values",
        value=f"{values!r} of type {type(values).__name__}",
        remedy="Pass update(gain=3.0), or update({'layer0/gain': 3.0}).",
    )


def _keeping(owner: Any) -> Release:
    """Does nothing when called: until then it keeps ``owner`` alive."""

    def release(kept: Any = owner) -> None:
        del kept

    return release
