"""The life of an exec: it is built, taken to be usable or not, built anew in the same place, and closed.

This module must not launch or update anything.
"""

from __future__ import annotations

import atexit
import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar

from graphdsl import forks
from graphdsl.declare.scalars import scalar_converter
from graphdsl.drivers.base import Driver, Handle
from graphdsl.drivers.releases import release
from graphdsl.errors import CallbackError, DriverError, ExecUnusableError, GraphdslError, UpdateError
from graphdsl.plan import Plan
from graphdsl.run.aliases import Aliases
from graphdsl.run.arena import Arena, require_no_memory
from graphdsl.run.binding import Binding
from graphdsl.run.build import Parts, build
from graphdsl.run.callbacks import HostCalls
from graphdsl.run.calls import CallLog
from graphdsl.run.changes import can_disable
from graphdsl.run.faults import Launches, building, is_lost
from graphdsl.run.modules import LoadedKernel
from graphdsl.run.planned import say_array
from graphdsl.run.stream import stream_handle
from graphdsl.run.switch import Switches
from graphdsl.run.turns import Turns, in_turn
from graphdsl.run.update import Updater
from graphdsl.run.update_node import NodeUpdater

_logger = logging.getLogger("graphdsl")

Exec = TypeVar("Exec", bound="ExecLife")


class ExecLife:
    """What an exec consists of, from its beginning to its end; `GraphExec` is one.

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
        arena: Arena | None = None,
        owners: Mapping[str, Any] = MappingProxyType({}),
        stream: Any = None,
    ) -> None:
        self.name = made.name
        self.device = device
        self._turns = Turns(made.name)
        self._given_stream = stream  # is kept alive
        self._pending: dict[Handle, Any] = {}
        self._last_stream: Handle | None = None
        self._noted_stream: Handle | None = None
        self._unusable: str | None = None
        self._told_of_streams = False
        self._index: dict[str, int] = {}
        self._log = log = CallLog()
        self._launches = Launches(made.name, device)
        with ExitStack() as resources, building(made, device):
            given: dict[str, Any] = {"kernels": kernels, "bound": bound, "arena": arena, "owners": owners}
            parts = build(made, device, values, resources, log, **given)
            self._end_by(_Ending(device, self._pending, parts.hosts, self._launches, resources.pop_all()))
        if not device.survives_fork:
            forks.tell_of_forks(self)
        self._take(made, parts)
        _alive.add(self)

    def _end_by(self, ending: _Ending) -> None:
        """Say what is to do at the end, and let it be done when the exec is dropped."""
        self._ending = ending
        self._finalizer = weakref.finalize(self, release, ending.unseen)
        self._finalizer.atexit = False  # see `_end_all`

    def _take(self, made: Plan, parts: Parts) -> None:
        """Become what was built."""
        self._plan, self._parts = made, parts
        index = {node.name: i for i, node in enumerate(made.nodes)}
        if index != self._index:  # `NodeExec` looks for its node again if this is another object
            self._index = index
        self._converters = {
            name: scalar_converter(param.dtype, field=name, error=UpdateError) for name, param in made.params.items()
        }
        self._stream = parts.stream if self._given_stream is None else stream_handle(self._given_stream)
        self._graph_exec = parts.sender.graph_exec
        self._memory, self._hosts, self._retired = parts.memory, parts.hosts, parts.retired
        self._shadow, self._sender = parts.shadow, parts.sender
        self._launches.node_of = parts.sender.node_of
        self._launches.say_array = partial(say_array, parts.shadow.values, made.planned, parts.arena is not None)
        self._updater = Updater(self._shadow, self._sender)
        self._aliases = Aliases(made, self._shadow)
        self._node_updater = NodeUpdater(made, self._shadow, self._sender, self._forget_nodes)
        self._switches = Switches(self.name, self._shadow, self._sender, made.levels)
        self._launch_own: Callable[[], int] = self.device.graph_launcher(self._graph_exec, self._stream)

    def _forget_nodes(self) -> None:
        """Forget what is known of the nodes: one has other fields now."""
        self._updater.forget()
        self._aliases.forget()

    def _begin_anew(self, made: Plan, values: Mapping[str, Any], bound: Mapping[str, Binding]) -> None:
        """Build a new exec in the place of this one; no launch of both runs at once, since they share memory."""
        self._turns.require_nobody_waits()
        if self._parts.arena is not None:
            require_no_memory(made, bound, self.device.ordinal)
        with self._launches.told():
            self._drain()
        disabled = {self._shadow.nodes[index].name for index in self._shadow.disabled}
        log = CallLog()
        with ExitStack() as resources, building(made, self.device):
            arena = self._parts.arena
            parts = build(made, self.device, values, resources, log, bound=bound, hosts=self._hosts, arena=arena)
            indices = [i for i, node in enumerate(made.nodes) if node.name in disabled and can_disable(node)]
            parts.sender.set_enabled(indices, False)
            parts.shadow.disabled.update(indices)
            ending = _Ending(self.device, self._pending, parts.hosts, self._launches, resources.pop_all())
        self._finalizer.detach()
        before = self._ending
        self._end_by(ending)
        self._log = log
        self._take(made, parts)
        before.run()

    def _drain(self) -> None:
        self._noted_stream = None  # a launch from now on notes its stream again, and is not forgotten below
        try:
            for handle in dict(self._pending):
                self.device.stream_synchronize(handle)
        except DriverError:
            self._forget_launches()
            raise
        if self._forget_launches():  # not if an interrupt ends the wait
            self._launches.waited()
            self._retired.waited()
        self._retired.poll()

    def _forget_launches(self) -> bool:
        """Note that no launch is in flight; False if another thread has launched meanwhile."""
        if self._noted_stream is not None:
            return False
        self._last_stream = None
        self._pending.clear()
        self._hosts.waited()
        return True

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
            self.give_up("the exec is closed")
        if self._finalizer.detach() is not None:
            try:
                self._ending.run()
            finally:
                self._parts = replace(self._parts, arena=None)  # an exec refers to itself: its arena must not wait
        self._hosts.raise_failure()

    def after_fork(self) -> None:
        """Leave the exec to the parent: in a forked child it refuses everything, and gives nothing back."""
        self._finalizer.detach()
        self.give_up(forks.RULE, forks.REMEDY)

    def give_up(self, why: str, remedy: str = "Instantiate the graph again.") -> None:
        """From now on the exec refuses to be used, and says why; it is not closed by that.

        Who finds out that an exec does not have what it should have calls this. The shortest way to a launch asks
        nothing, so it is replaced.
        """
        self._unusable = why
        self._launch_own = partial(_refuse, why, self.name, remedy)

    @property
    def plan(self) -> Plan:
        """The plan that it was built from, or updated from last."""
        return self._plan

    @property
    def usable(self) -> bool:
        """False once the exec is closed, or an update left it undefined."""
        return self._unusable is None

    @property
    def bucket(self) -> Any:
        """The `Bucket` that a `GraphCache` built it for, which errors name; None outside of a cache."""
        return self._launches.bucket

    @bucket.setter
    def bucket(self, bucket: Any) -> None:
        self._launches.bucket = bucket

    def release_replaced(self) -> bool:
        """Let go of what updates replaced, where no launch can use it any more; gives whether all of it was let go.

        What went wrong in a launch is not told here, but by the next call that waits.
        """
        self._retired.look()
        return not self._retired.waiting

    def _require_usable(self) -> None:
        if self._unusable is not None:
            self._launch_own()  # says why

    def __enter__(self: Exec) -> Exec:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # A fault on a GPU loses the context, and closing then fails too: the fault is what the user must see.
        with suppress(DriverError, CallbackError) if kind else nullcontext():
            self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} on {self.device.name}: {len(self._plan.nodes)} nodes>"


_alive: weakref.WeakSet[ExecLife] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """At the end of the interpreter: what is in flight is waited for, and no thread that goes on launches any more."""
    execs = list(_alive)
    for each in execs:
        if each._unusable is None:
            each.give_up("the interpreter is ending", "End the threads that use it before.")
    for each in execs:
        try:
            with each._turns.looking("ending"):  # not in the middle of a call of another thread
                if each._finalizer.detach() is not None:
                    each._ending.unseen()
        except GraphdslError as problem:
            _logger.error("an exec could not be closed at the end of the program: %s", problem)


def _refuse(why: str, name: str, remedy: str) -> NoReturn:
    raise ExecUnusableError(why, field="exec", value=name, remedy=remedy)


class _Ending:
    """What is to do at the end of an exec."""

    def __init__(
        self,
        device: Driver,
        pending: Mapping[Handle, Any],
        hosts: HostCalls,
        launches: Launches,
        resources: ExitStack,
    ) -> None:
        self._device = device
        self._pending = pending
        self._hosts = hosts
        self._launches = launches
        self._resources = resources

    def run(self) -> None:
        """Wait for the launches in flight and release everything, even if they failed."""
        faults: list[DriverError] = []

        def synchronize(handle: Handle) -> None:
            try:
                self._device.stream_synchronize(handle)
            except DriverError as problem:
                faults.append(self._launches.explain(problem))
                raise

        try:
            with self._launches.told(), self._resources as resources:  # what was put there last runs first
                resources.callback(self._launches.waited)
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
            for failure in self._hosts.failures.taken():
                _logger.error("an exec was dropped before anybody was told: %s", failure)
