"""An instantiated graph: launched, read and written by name; how it changes is said in `graphdsl.run.exec_updates`.

`instantiate` is the way to one: check, plan, and what `graphdsl.run.build` does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from graphdsl import profiler
from graphdsl.check import check
from graphdsl.declare.condition import refuse_condition
from graphdsl.declare.definition import Definition
from graphdsl.declare.limits import Limits
from graphdsl.declare.node import Node
from graphdsl.declare.store import unknown_name
from graphdsl.drivers.base import Driver, Handle
from graphdsl.drivers.host_threads import threads
from graphdsl.errors import DriverError, GraphdslError, UpdateError
from graphdsl.plan import LanePlan, Lanes, plan
from graphdsl.run.arena import given_arena
from graphdsl.run.calls import Call
from graphdsl.run.debug import debug
from graphdsl.run.debug_report import DebugReport
from graphdsl.run.devices import targets
from graphdsl.run.exec_updates import ExecUpdates
from graphdsl.run.planned import refuse_planned
from graphdsl.run.stream import stream_handle
from graphdsl.run.turns import in_turn

_logger = logging.getLogger("graphdsl")


def instantiate(
    definition: Definition,
    device: Driver,
    values: Mapping[str, Any] | None = None,
    *,
    lanes: Lanes = None,
    durations: Mapping[str, float] | None = None,
    share_memory: bool = True,
    arena: Any = None,
    stream: Any = None,
    owners: Mapping[str, Any] = MappingProxyType({}),
) -> GraphExec:
    """Make an exec of a definition on a device.

    Parameters
    ----------
    definition : Definition
        What to build; later changes of it do not change the exec.
    device : Driver
        Where it runs.
    values : dict of str to number, optional
        Values of params by name, instead of their defaults.
    lanes, durations : optional
        How many lanes its nodes are threaded onto, and what they take; see `graphdsl.plan.plan`.
    share_memory : bool
        Let arrays share bytes where the plan allows it.
    arena : object, optional
        Memory of the device for the arrays that the exec would allocate there: a `DeviceArray`, or what another
        library has, of `Plan.nbytes_on` bytes at least, whose address is a multiple of 256. It is kept alive. Several
        execs may have the same: their launches must come one after the other, and what one left is undefined for
        the others, and for itself once another one has run.
    stream : int or object, optional
        What launches go into by default, instead of a stream of the exec's own; see `GraphExec.launch`.
    owners : dict of str to object, optional
        Owners of external operands by name, instead of those that are declared.

    Raises
    ------
    CheckError
        If the definition has errors.
    GraphdslError
        If the arena cannot hold the arrays.
    UpdateError
        If an owner cannot stand for the one that is declared.
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
    target = targets(device, definition.devices)
    check(definition, target=target, values=values, errors_only=True).raise_for_errors()
    made = plan(definition, lanes=lanes, durations=durations, values=values, target=target, share_memory=share_memory)
    place = None if arena is None else given_arena(arena, made, device)
    if stream is not None:
        stream_handle(stream)  # says what is wrong with it before anything is made
    exe = _exec_class()(made, device, values or {}, arena=place, owners=owners, stream=stream)
    try:
        exe._aliases.tell(exe._aliases.warnings({}, owners))
    except BaseException:
        exe.close()
        raise
    return exe


def _exec_class() -> type[GraphExec]:
    """What execs are made as: while a profiler listens, of a class that tells it of them."""
    if not profiler.listens():
        return GraphExec
    from graphdsl.run.traced import TracedExec

    return TracedExec


class GraphExec(ExecUpdates):
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

    def clone(self, *, arena: Any = None, stream: Any = None) -> GraphExec:
        """Another exec of the same graph on the same device, which can run at the same time in another stream.

        Launches of one exec follow each other, whatever their streams; launches of its clones need not.

        Parameters
        ----------
        arena, stream : object, optional
            As `instantiate` takes them; without, the clone has memory and a stream of its own, whatever this exec has.

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
        with self._turns.looking("cloning"):
            shadow = self._shadow
            # A node that an update made is this exec's own, and may be written to in place.
            nodes = [
                now if now is planned else now.replaced()
                for now, planned in zip(shadow.nodes, self._plan.nodes, strict=True)
            ]
            now = replace(self._plan, nodes=tuple(nodes))
            values = {name: shadow.values[name] for name in self._plan.params if name in shadow.values}
            # Types found anew could differ: an update converts to those of the kernel.
            kernels = tuple(shadow.packing.kernels)
            bound, disabled = self._memory.bindings(shadow.values), sorted(shadow.disabled)
        place = None if arena is None else given_arena(arena, now, self.device)
        made = type(self)(now, self.device, values, kernels=kernels, bound=bound, arena=place, stream=stream)
        try:
            made._switches.take_over(disabled, self._switches)
            for index in disabled:
                made._log.add("cuGraphNodeSetEnabled", nodes[index].name, isEnabled=0)
        except BaseException:
            made.close()
            raise
        return made

    @property
    def calls(self) -> tuple[Call, ...]:
        """The driver calls that built the exec, or updated it from a graph last, in order; the same on every driver."""
        return self._log.calls()

    @property
    def lanes(self) -> LanePlan:
        """How its nodes were threaded onto lanes, and why; printed, it says so in words."""
        return self._plan.lanes

    @property
    def graph_handle(self) -> int:
        """The driver's graph (``CUgraph``) that the exec was made from, to be looked at; it lives as long as that."""
        self._require_usable()
        return self._parts.graph

    @property
    def upload_seconds(self) -> float:
        """Seconds that it took to bring the exec to the device when it was built (``cuGraphUpload``)."""
        return self._parts.upload_seconds

    @property
    def node_handles(self) -> dict[str, int]:
        """What the driver knows each node by (``CUgraphNode``), by name: as profilers and `Emulator` orders name it."""
        self._require_usable()
        return {node.name: int(handle) for node, handle in zip(self._plan.nodes, self._sender.handles, strict=True)}

    @property
    def addresses(self) -> dict[str, int]:
        """Where each buffer lies now, by name, also those that nodes of the graph allocate."""
        self._require_usable()
        return {name: self._shadow.values[name] for name in self._plan.buffers}

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

    @in_turn("debugging")
    def debug(
        self, values: Mapping[str, Any] | None = None, *, observe: Callable[[Node], Any] | None = None
    ) -> DebugReport:
        """Run the nodes one by one, in place of a launch, until one fails, which is named.

        Each node is a graph of its own for this, and is waited for before the next one runs: in canonical order, those
        inside of children and of the bodies that conditions choose too; captured nodes are recorded anew. Disabled
        nodes are left out. Memory has the contents that it has now. After a fault a GPU has lost its context, and the
        process can do nothing more with it: ``graphdsl debug`` on the command line does all this in another process.

        Parameters
        ----------
        values : dict of str to number, optional
            Values of params for this run alone, by name.
        observe : callable, optional
            Called with each node before it runs.

        Returns
        -------
        DebugReport
            What came of each node and how long it took; of the one that failed its fields and the error.

        Raises
        ------
        DriverError
            If a launch before failed, or the context was lost to a fault.
        UpdateError
            If a value is not allowed.

        Examples
        --------
        >>> import graphdsl as gd
        >>> g = gd.Graph("demo")
        >>> x, y = (g.device_array(name, 4, "f4") for name in "xy")
        >>> _ = g.memset(x, 0, name="clear") >> g.memcpy(x, y, name="load")
        >>> with g.instantiate(gd.emulator()) as exe:
        ...     report = exe.debug()
        >>> report.failed.node, [run.outcome for run in report.nodes]
        ('load', ['ran', 'failed'])
        """
        self.synchronize()
        changes = self._changed_params(values)
        self._enter(True)
        with self._launches.told():
            return debug(self.name, self._plan, self._parts, changes, observe)

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

        Raises
        ------
        UpdateError
            If there is no such operand, or nothing to be had between launches: of a condition, of an array that a node
            allocates, and of a planned array (`Plan.planned`), which others have the bytes of then.
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
            refuse_condition(self._plan.operands.get(name), UpdateError)
            raise unknown_name(name, [*self._plan.buffers, *self._plan.params], "operand", UpdateError)
        if buffer.allocated:
            raise UpdateError(
                "what a node of the graph allocates is there only while the graph runs",
                field=name,
                value=repr(buffer),
                remedy="Copy it to another array with a memcpy node before it is freed.",
                location=buffer.location,
            )
        if name in self._plan.planned:
            refuse_planned(buffer)
        if buffer.space != "device":
            return self._memory.host_array(buffer, self._shadow.values)
        synchronize = partial(self._settle, buffer.device)
        own_place = self._parts.arena is None or self._parts.devices[buffer.device] is not self.device
        entering = None if own_place else self._enter
        return self._memory.device_array(buffer, self._shadow.values, synchronize, entering)

    def _enter(self, writes: bool) -> None:
        """Note that the memory in the arena is about to be used, if the exec has one."""
        arena = self._parts.arena
        if arena is not None:
            arena.enter(self.device, writes)

    def _settle(self, number: int | None) -> Handle:
        """Wait for the launches so far; gives a stream of a device for a copy that follows."""
        self.synchronize()
        devices = self._parts.devices
        return self._stream if devices[number] is self.device else devices.stream(number)
