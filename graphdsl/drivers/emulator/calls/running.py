"""Calls of the emulator that instantiate graphs and launch them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from graphdsl.drivers.base import Address, Handle
from graphdsl.drivers.emulator import nodes
from graphdsl.drivers.emulator.allocations import end_allocations, require_unallocated
from graphdsl.drivers.emulator.calls.state import State, known, new_handle
from graphdsl.drivers.emulator.events import EVENT_RECORD, EVENT_WAIT, Awaited, event_of
from graphdsl.drivers.emulator.gate import driver_call
from graphdsl.drivers.emulator.graph import Exec
from graphdsl.drivers.emulator.instantiate import require_instantiable
from graphdsl.drivers.emulator.order import Ready
from graphdsl.drivers.emulator.problems import (
    INVALID_HANDLE,
    LAUNCH_FAILED,
    NOT_SUPPORTED,
    AccessError,
    Problem,
)
from graphdsl.drivers.emulator.running import run
from graphdsl.drivers.emulator.sharing import Shared, Sharing
from graphdsl.drivers.emulator.tenants import Tenancy
from graphdsl.drivers.structs import USE_NODE_PRIORITY

_INSTANTIATE_FLAGS = 0b1111  # free on launch, upload, device launch, use node priority


class Running(State):
    """Execs and their launches."""

    @driver_call("cuGraphInstantiateWithParams")
    def graph_instantiate_with_params(self, graph: Handle, flags: int = 0) -> Handle:
        found = known(self._graphs, graph, "graph")
        if flags & ~_INSTANTIATE_FLAGS:
            raise Problem(f"there are no flags {flags & ~_INSTANTIATE_FLAGS:#x} of instantiate")
        if flags & ~USE_NODE_PRIORITY:
            raise Problem(f"the emulator does not know the flags {flags:#x}", NOT_SUPPORTED)
        require_instantiable(found, self._machine)
        handle = new_handle()
        found.execs += 1
        self._execs[handle] = Exec(found, bool(flags & USE_NODE_PRIORITY))
        return handle

    @driver_call("cuGraphUpload")
    def graph_upload(self, graph_exec: Handle, stream: Handle) -> None:
        found = known(self._execs, graph_exec, "exec")
        self._in_flight.wait(found.last)
        self._wait_for_stream(stream)

    @driver_call("cuGraphLaunch")
    def graph_launch(self, graph_exec: Handle, stream: Handle) -> None:
        self._report_fault()
        found = known(self._execs, graph_exec, "exec")
        self._check_stream(stream)
        if self._machine.build_only:
            raise Problem("this emulator only builds graphs", NOT_SUPPORTED, "Make one without build_only=True.")
        if found.last is None or found.last.done:
            require_unallocated(found)
        if self._in_flight.last(stream) or not (found.last is None or found.last.done) or self._may_block(found):
            left = found.as_now()
            for node in left.of_kind(EVENT_WAIT):
                node.params = Awaited(node.params, event_of(self._machine, node.params, INVALID_HANDLE).behind)
            found.last = self._in_flight.leave(stream, partial(self._run_left, left), found.last)
            for node in found.of_kind(EVENT_RECORD):
                event_of(self._machine, node.params, INVALID_HANDLE).behind = found.last
        else:
            self._run_launch(found)

    def _may_block(self, found: Exec) -> bool:
        """True if a node may have to wait for something that happens outside of the launch."""
        waits = found.of_kind(EVENT_WAIT)
        events = (self._machine.events.get(node.params) for node in waits)
        return bool(found.of_kind(nodes.HOST)) or any(event is not None and not event.done for event in events)

    def _run_left(self, found: Exec) -> None:
        """Run a launch in a thread of the emulator, behind others that may have failed."""
        try:
            if not self._faults:
                self._run_launch(found)
        except BaseException as problem:
            self._faults.append(Problem(f"{type(problem).__name__}: {problem}", LAUNCH_FAILED))

    def _run_launch(self, found: Exec) -> None:
        found.reset_conditions()
        try:
            require_unallocated(found)
            if found.tenancy is not None:
                self._tenants.enter(found.tenancy, writes=True)
            with Sharing(found.shared, self._machine.space) as sharing:
                run(found, self._machine, Ready(self.order, self._rng), sharing)
        except Problem as problem:
            # Kept for the next call that waits.
            if isinstance(problem, AccessError):
                problem.code = problem.fault
            end_allocations(found)
            self._faults.append(problem)

    def graph_exec_let_share(self, graph_exec: Handle, shared: Sequence[tuple[Address, int, Sequence[Handle]]]) -> None:
        with self.gate.held():
            known(self._execs, graph_exec, "exec").shared = tuple(Shared(*each) for each in shared)

    def graph_exec_let_enter(self, graph_exec: Handle, address: Address, nbytes: int, tenant: int) -> None:
        with self.gate.held():
            known(self._execs, graph_exec, "exec").tenancy = Tenancy(address, nbytes, tenant)

    @driver_call("cuGraphExecDestroy")
    def graph_exec_destroy(self, graph_exec: Handle) -> None:
        found = known(self._execs, graph_exec, "exec")
        source = found.source
        if source.allocations:  # which are given back with it
            self._in_flight.wait(found.last)
        source.execs -= 1
        del self._execs[graph_exec]
        self._release_allocations(source)
