"""An instantiated graph: launched, read and written by name, updated by name.

`instantiate` is the way to one: check, plan, and what `graphdsl.run.build` does.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, NoReturn

from graphdsl.check import check
from graphdsl.declare.definition import Definition
from graphdsl.declare.expressions import scalar_converter
from graphdsl.declare.limits import Limits
from graphdsl.declare.nodes import Node, named_operands
from graphdsl.declare.selection import selected
from graphdsl.declare.store import unknown_name
from graphdsl.drivers import forks
from graphdsl.drivers.base import Driver, Handle
from graphdsl.drivers.host_threads import threads
from graphdsl.drivers.releases import release
from graphdsl.drivers.results import ExecUpdateError
from graphdsl.errors import CallbackError, DriverError, ExecUnusableError, GraphdslError, UpdateError
from graphdsl.plan import Plan, plan
from graphdsl.run.binding import Binding
from graphdsl.run.build import Parts, build, param_values
from graphdsl.run.callbacks import HostCalls
from graphdsl.run.calls import Call, CallLog
from graphdsl.run.changes import can_disable
from graphdsl.run.devices import targets
from graphdsl.run.faults import Launches, building, is_lost
from graphdsl.run.modules import LoadedKernel
from graphdsl.run.node_exec import NodeExec
from graphdsl.run.preflight import Preflight
from graphdsl.run.shadow import Release
from graphdsl.run.stream import stream_handle
from graphdsl.run.switch import Switched, Switches
from graphdsl.run.turns import Turns, in_turn
from graphdsl.run.update import Updater
from graphdsl.run.update_node import NodeUpdater
from graphdsl.run.whole_update import Side, WholeUpdate, mismatch_of, mismatches, node_changes, refusal, take_over

_logger = logging.getLogger("graphdsl")


def instantiate(definition: Definition, device: Driver, values: Mapping[str, Any] | None = None) -> GraphExec:
    """Make an exec of a definition on a device.

    Parameters
    ----------
    definition : Definition
        What to build; later changes of it do not change the exec.
    device : Driver
        Where it runs.
    values : dict of str to number, optional
        Values of params by name, instead of their defaults.

    Raises
    ------
    CheckError
        If the definition has errors.
    DriverError
        If the driver refused it; nothing is left behind.
    """
    if not isinstance(getattr(device, "limits", None), Limits):
        raise GraphdslError(
            "a graph is instantiated on a device",
            field="device",
            value=f"{device!r} of type {type(device).__name__}",
            remedy="Pass graphdsl.cuda(0) or graphdsl.emulator(), or nothing for the default.",
        )
    check(definition, target=targets(device, definition.devices), values=values).raise_for_errors()
    return GraphExec(plan(definition), device, values or {})


class GraphExec:
    """A graph on a device, ready to launch. Made by `Graph.instantiate`.

    Its calls come one after the other: while a thread is in the middle of one, those of other threads are refused, but
    for `synchronize` and for reading what is there. `clone` gives each thread an exec of its own. A host node can make
    none of the calls. As a context manager the exec is closed at the end.

    Attributes
    ----------
    name : str
        Name of the graph.
    device : Driver
        Where it runs.
    """

    def __init__(
        self,
        made: Plan,
        device: Driver,
        values: Mapping[str, Any],
        *,
        kernels: Sequence[LoadedKernel | None] | None = None,
        bound: Mapping[str, Binding] = MappingProxyType({}),
    ) -> None:
        self.name = made.name
        self.device = device
        self._turns = Turns(made.name)
        self._pending: dict[Handle, Any] = {}
        self._last_stream: Handle | None = None
        self._noted_stream: Handle | None = None
        self._unusable: str | None = None
        self._told_of_streams = False
        self._index: dict[str, int] = {}
        self._log = log = CallLog()
        self._launches = Launches(made.name, device)
        with ExitStack() as resources, building(made, device):
            parts = build(made, device, values, resources, log, kernels=kernels, bound=bound)
            self._ending = _Ending(device, self._pending, parts.hosts, resources.pop_all())
        self._finalizer = weakref.finalize(self, release, self._ending.unseen)
        if not device.survives_fork:
            forks.tell_of_forks(self)
        self._take(made, parts)

    def _take(self, made: Plan, parts: Parts) -> None:
        """Become what was built."""
        self._plan, self._parts = made, parts
        index = {node.name: i for i, node in enumerate(made.nodes)}
        if index != self._index:  # `NodeExec` looks for its node again if this is another object
            self._index = index
        self._converters = {
            name: scalar_converter(param.dtype, field=name, error=UpdateError) for name, param in made.params.items()
        }
        self._stream, self._graph_exec = parts.stream, parts.sender.graph_exec
        self._memory, self._hosts, self._retired = parts.memory, parts.hosts, parts.retired
        self._shadow, self._sender = parts.shadow, parts.sender
        self._launches.node_of = parts.sender.node_of
        self._updater = Updater(self._shadow, self._sender)
        self._node_updater = NodeUpdater(self._shadow, self._sender, self._updater.forget)
        self._switches = Switches(self.name, self._shadow, self._sender, made.levels)
        self._launch_own: Callable[[], int] = self.device.graph_launcher(self._graph_exec, self._stream)

    @in_turn("cloning")
    def clone(self) -> GraphExec:
        """Another exec of the same graph on the same device, which can run at the same time in another stream.

        Launches of one exec follow each other, whatever their streams; launches of its clones need not.

        Returns
        -------
        GraphExec
            **Copied** is all that updates have made of this exec: the values of params, the fields of nodes, which
            nodes are disabled, and which owners external operands are bound to. **Shared** are the compiled kernels,
            and the memory of those owners until an update re-binds one of the two execs. **Its own** are its arrays,
            whose contents are not copied (they are undefined, as those of any new exec), the calls of its host nodes,
            which are passed its own arrays, and its stream. From then on neither changes with the other.

        Raises
        ------
        ExecUnusableError
            If the exec is closed, or an update left it undefined.
        DriverError
            If the driver refused; nothing is left behind.
        """
        self._require_usable()
        shadow = self._shadow
        # A node that an update made is this exec's own, and may be written to in place.
        nodes = (
            now if now is planned else now.replaced()
            for now, planned in zip(shadow.nodes, self._plan.nodes, strict=True)
        )
        made = GraphExec(
            replace(self._plan, nodes=tuple(nodes)),
            self.device,
            {name: shadow.values[name] for name in self._plan.params if name in shadow.values},
            kernels=shadow.packing.kernels,  # types found anew could differ: an update converts to those of the kernel
            bound=self._memory.bindings(shadow.values),
        )
        try:
            made._switches.take_over(self._switches)
            for index in sorted(shadow.disabled):
                made._log.add("cuGraphNodeSetEnabled", shadow.nodes[index].name, isEnabled=0)
        except BaseException:
            made.close()
            raise
        return made

    @property
    def calls(self) -> tuple[Call, ...]:
        """The driver calls that built the exec, or updated it from a graph last, in order; the same on every driver."""
        return self._log.calls()

    # Running

    def launch(self, stream: Any = None) -> None:
        """Launch the graph; returns before it has run.

        A launch waits for the one before of the same exec, on whatever stream; one of a `clone` does not. The logger
        ``graphdsl`` says so, once, of an exec that is launched into two streams.

        Parameters
        ----------
        stream : int or object, optional
            A stream handle, or an object with ``__cuda_stream__``; the exec's own stream by default. It must live
            until the exec is synchronised.

        Raises
        ------
        ExecUnusableError
            If the exec is closed, or an update left it undefined.
        DriverError
            If the driver refuses.
        GraphdslError
            If another thread is in the middle of a call of this exec, or this is a host node.
        """
        turns = self._turns
        before = turns.user
        if before or threads:
            before = turns.claim("launching")
        turns.user = True
        try:
            if stream is None:
                handle = self._stream
                code = self._launch_own()  # says so itself where the exec is unusable
                if code:
                    raise self.device.launch_failure(code)
            else:
                self._require_usable()
                handle = stream_handle(stream)
                self.device.graph_launch(self._graph_exec, handle)
            self._launches.made += 1
            if self._noted_stream is not handle:  # asked after the launch: `_drain` in another thread relies on it
                self._note_stream(handle, stream)
        except DriverError as problem:
            self._launches.explain(problem)
            raise
        finally:
            turns.user = before

    def _note_stream(self, handle: Handle, stream: Any) -> None:
        """Remember that launches in a stream are in flight."""
        if not self._told_of_streams and self._pending and handle not in self._pending:
            self._tell_of_streams()
        self._pending[handle] = stream
        self._noted_stream = self._last_stream = handle
        self._hosts.launched()

    def _tell_of_streams(self) -> None:
        """The driver serialises the launches of one exec without a word; whoever asked for two streams should know."""
        self._told_of_streams = True
        _logger.warning(
            "exec %r is launched into one stream while its launches in another have not been waited for: launches of "
            "one exec run one after the other, whatever their streams. Launch a clone() of it in the other stream to "
            "let them overlap.",
            self.name,
        )

    def synchronize(self) -> None:
        """Wait for the launches so far. Other threads may launch and update meanwhile.

        Raises
        ------
        DriverError
            If a launch failed; a `MemoryFault` of the emulator names the node.
        CallbackError
            If a host node raised; further ones wait for the next call.
        """
        self._require_usable()
        with self._turns.waiting(), self._launches.told():
            self._drain()
        self._hosts.raise_failure()

    def _drain(self) -> None:
        self._noted_stream = None  # a launch from now on notes its stream again, and is not forgotten below
        try:
            for handle in dict(self._pending):
                self.device.stream_synchronize(handle)
        finally:
            if self._noted_stream is None:
                self._last_stream = None
                self._pending.clear()
                self._hosts.waited()
        if self._noted_stream is None:
            self._launches.waited()
        self._retired.poll()

    # Reading and writing

    def __getitem__(self, name: str) -> Any:
        """The memory or value of an operand.

        Parameters
        ----------
        name : str
            Name of an operand.

        Returns
        -------
        numpy.ndarray, DeviceArray, OwnEvent, object or number
            A NumPy array over host memory of the exec, a `DeviceArray` over its device memory, an event of its own, the
            owner of an external operand, or the value of a param. Host memory is written and read while no launch is
            in flight.
        """
        if not isinstance(name, str):
            raise unknown_name(name, [*self._plan.buffers, *self._plan.params], "operand", UpdateError)
        if name in self._plan.params:
            return self._shadow.values.get(name)
        if name in self._memory.owners:
            return self._memory.owners[name]
        self._require_usable()
        if name in self._plan.events:
            return self._memory.kept[name]
        buffer = self._plan.buffers.get(name)
        if buffer is None:
            raise unknown_name(name, [*self._plan.buffers, *self._plan.params], "operand", UpdateError)
        if buffer.allocated:
            raise UpdateError(
                "what a node of the graph allocates is there only while the graph runs",
                field=name,
                value=repr(buffer),
                remedy="Copy it to another array with a memcpy node before it is freed.",
                location=buffer.location,
            )
        if buffer.space != "device":
            return self._memory.host_array(buffer, self._shadow.values)
        synchronize = partial(self._settle, buffer.device)
        return self._memory.device_array(buffer, self._shadow.values, synchronize)

    def _settle(self, number: int | None) -> Handle:
        """Wait for the launches so far; gives a stream of a device for a copy that follows."""
        self.synchronize()
        devices = self._parts.devices
        return self._stream if devices[number] is self.device else devices.stream(number)

    # Updating

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
        # Host nodes are bound to memory while the update is applied, so the new owners must be there by then.
        with self._memory.rebound(adopted) as replaced:
            releases = self._updater.update(changes)
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
                raise unknown_name(name, [*self._plan.params, *self._plan.buffers], "param or buffer", UpdateError)
        return changes, adopted

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
            changes, _ = self._converted(named if values is None else {**_mapping(values), **named})
            preview = self._updater.preview(changes)
        except UpdateError as refusal:
            return Preflight.refused(self.name, self.device.name, refusal)
        nodes = [(shadow.nodes[index], index not in shadow.disabled) for index in preview.indices]
        after = {**before, **changes}
        short = preview.direct and values is None and len(named) == 1  # as `update` would take it
        return Preflight.allowed(self.name, self.device.name, nodes, before, after, preview.raised, short)

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
        nodes stay disabled. The memory of arrays that are the same in both keeps its place and its contents.

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
        check(graph, target=targets(self.device, graph.devices), values=values).raise_for_errors()
        made, given, shadow = plan(graph), values or {}, self._shadow
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
            except ExecUpdateError as problem:
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
        self._reinstantiate(made, given, bound)
        return WholeUpdate(graph.name, True, tuple(found), changes)

    def _reinstantiate(self, made: Plan, values: Mapping[str, Any], bound: Mapping[str, Binding]) -> None:
        """Build a new exec in the place of this one; no launch of both runs at once, since they share memory."""
        self._turns.require_nobody_waits()
        with self._launches.told():
            self._drain()
        disabled = {self._shadow.nodes[index].name for index in self._shadow.disabled}
        log = CallLog()
        with ExitStack() as resources, building(made, self.device):
            parts = build(made, self.device, values, resources, log, bound=bound, hosts=self._hosts)
            indices = [i for i, node in enumerate(made.nodes) if node.name in disabled and can_disable(node)]
            parts.sender.set_enabled(indices, False)
            parts.shadow.disabled.update(indices)
            ending = _Ending(self.device, self._pending, parts.hosts, resources.pop_all())
        self._finalizer.detach()
        before, self._ending = self._ending, ending
        self._finalizer = weakref.finalize(self, release, ending.unseen)
        self._log = log
        self._take(made, parts)
        before.run()

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
        indices = selected(self._shadow.nodes, names, scope=scope, tag=tag, error=UpdateError)
        with self._noting_loss():
            return self._switches.switch(indices, enabled)

    def _switch_one(self, index: int, enabled: bool) -> None:
        self._require_usable()
        turns = self._turns
        before = turns.user
        if before or threads:
            before = turns.claim("updating")
        turns.user = True
        try:
            self._switches.switch_one(index, enabled)
        except ExecUnusableError as problem:
            self._lose(problem.rule)
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
            self._lose(problem.rule)

    # Ending

    @in_turn("closing")
    def close(self) -> None:
        """Wait for the launches so far and release everything; closing twice is allowed.

        Raises
        ------
        DriverError
            If a launch failed that nobody has waited for.
        CallbackError
            If a host node raised and nobody has been told.
        """
        self._turns.require_nobody_waits()
        if self._unusable is None:
            self._lose("the exec is closed")
        if self._finalizer.detach() is not None:
            with self._launches.told():
                self._ending.run()
            self._launches.waited()
        self._hosts.raise_failure()

    def after_fork(self) -> None:
        """Leave the exec to the parent: in a forked child it refuses everything, and gives nothing back."""
        self._finalizer.detach()
        self._lose(forks.RULE, forks.REMEDY)

    def _lose(self, why: str, remedy: str = "Instantiate the graph again.") -> None:
        """From now on the exec refuses to be used; the shortest way to a launch asks nothing, so it is replaced."""
        self._unusable = why
        self._launch_own = partial(_refuse, why, self.name, remedy)

    def _require_usable(self) -> None:
        if self._unusable is not None:
            self._launch_own()  # says why

    def __enter__(self) -> GraphExec:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # A fault on a GPU loses the context, and closing then fails too: the fault is what the user must see.
        with suppress(DriverError, CallbackError) if kind else nullcontext():
            self.close()

    def __repr__(self) -> str:
        return f"<GraphExec {self.name!r} on {self.device.name}: {len(self._plan.nodes)} nodes>"


def _refuse(why: str, name: str, remedy: str) -> NoReturn:
    raise ExecUnusableError(why, field="exec", value=name, remedy=remedy)


class _Ending:
    """What is to do at the end of an exec."""

    def __init__(self, device: Driver, pending: Mapping[Handle, Any], hosts: HostCalls, resources: ExitStack) -> None:
        self._device = device
        self._pending = pending
        self._hosts = hosts
        self._resources = resources

    def run(self) -> None:
        """Wait for the launches in flight and release everything, even if they failed."""
        faults: list[DriverError] = []

        def synchronize(handle: Handle) -> None:
            try:
                self._device.stream_synchronize(handle)
            except DriverError as problem:
                faults.append(problem)
                raise

        try:
            with self._resources as resources:  # what was put there last runs first
                resources.callback(self._hosts.waited)
                for handle in self._pending:
                    resources.callback(synchronize, handle)
        except DriverError:
            if not faults:
                raise
            raise faults[0] from faults[0].__cause__  # what failed after it only met a lost context

    def unseen(self) -> None:
        """The same for an exec that nobody closed: nobody will ask what its host nodes raised."""
        try:
            with suppress(DriverError) if is_lost(self._device) else nullcontext():
                self.run()
        finally:
            for failure in self._hosts.failures:
                _logger.error("an exec was dropped before anybody was told: %s", failure)


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
