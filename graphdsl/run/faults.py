"""What a driver error is about: which graph, which launches in flight, which node.

A GPU tells of a kernel that failed at whatever call comes next, of whatever exec; it loses its context then, and with
it each later call of the process. So the launches of all execs are counted here, and the first fault of a context is
remembered. This module must not call the driver.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from graphdsl.declare.node import Node
from graphdsl.drivers.base import Driver, Handle
from graphdsl.drivers.results import OUT_OF_MEMORY, is_fault, remedy_of
from graphdsl.errors import DriverError, MemoryFault
from graphdsl.forks import Lock
from graphdsl.plan import Plan
from graphdsl.run.blocks import size_text

_MOST_SHOWN = 5

_FIND = "There `graphdsl debug FILE.py` names the node, as exe.debug() does in place of exe.launch()."
_SEE = "`compute-sanitizer python -m graphdsl debug --here FILE.py` shows what a kernel did wrong."


class InFlight(NamedTuple):
    """Launches of an exec that nobody has waited for.

    Attributes
    ----------
    graph : str
        Name of its graph.
    first, last : int
        Their numbers: an exec counts its launches from 1.
    """

    graph: str
    first: int
    last: int

    def __str__(self) -> str:
        which = f"launch {self.last}" if self.first == self.last else f"launches {self.first} to {self.last}"
        return f"{which} of graph {self.graph!r}"


class Launches:
    """The launches of one exec.

    Attributes
    ----------
    graph : str
        Name of the graph.
    made : int
        How many there were.
    bucket : Bucket or None
        What a cache built the exec for; errors name it.
    node_of : callable
        Gives the node that the driver knows by a handle, or None.
    say_array : callable
        Says of a fault of a node which of its arrays it is about.
    """

    def __init__(self, graph: str, device: Driver) -> None:
        self.graph = graph
        self.made = 0
        self.bucket: Any = None
        self.node_of: Callable[[Handle], Node | None] = lambda handle: None
        self.say_array: Callable[[MemoryFault, Node], None] = lambda fault, node: None
        self._device = device
        self._waited = 0
        with _lock:
            _all.add(self)

    @property
    def in_flight(self) -> InFlight | None:
        """Those that nobody has waited for; None if there are none."""
        return InFlight(self.graph, self._waited + 1, self.made) if self.made > self._waited else None

    @property
    def of_bucket(self) -> str:
        """The bucket, for messages."""
        return "" if self.bucket is None else f" of bucket {self.bucket.name}"

    def is_near(self, device: Driver) -> bool:
        """True if they are on the computer of a device: a GPU, or one emulator."""
        if not self._device.emulated or not device.emulated:
            return self._device.emulated is device.emulated
        return self._device.sibling(0) is device.sibling(0)

    def waited(self) -> None:
        """Note that all of them have ended."""
        self._waited = self.made

    @contextmanager
    def told(self) -> Iterator[None]:
        """Around driver calls for the exec: what they raise is explained."""
        try:
            yield
        except DriverError as problem:
            self.explain(problem)
            raise

    def explain(self, problem: DriverError) -> DriverError:
        """Say of an error in a call for the exec what is known of its graph, node and launches; gives it back."""
        explain(problem, self._device)
        if problem.graph is None and not is_fault(problem):
            problem.about(graph=self.graph, bucket=self.bucket or problem.bucket)
        return problem


_lock = Lock()  # garbage collection may close an exec while another one is made
_all: weakref.WeakSet[Launches] = weakref.WeakSet()


class _Fault(NamedTuple):
    """What was told of a fault when it was first reported."""

    call: str
    code_name: str
    graph: str | None
    bucket: Any
    in_flight: tuple[tuple[str, int, int], ...]


_lost: dict[tuple[str, Handle], _Fault] = {}
"""The first fault of each context, by the name of the device and the context."""


def explain(problem: DriverError, device: Driver) -> None:
    """Say of an error on a device what is known of the launches that it may be about.

    The emulator knows the node, and goes on. A GPU knows nothing, so all launches that are in flight are named, in the
    attribute ``in_flight`` too; where only one graph has some, it is the one.
    """
    with _lock:
        everyone = sorted((each for each in _all if each.is_near(device)), key=lambda launches: launches.graph)
    if problem.node_handle and problem.node is None:
        _blame_node(problem, everyone)
    if not is_fault(problem) or problem.node is not None or problem.in_flight is not None:
        return
    context = device.name, device.context
    if context in _lost:
        _blame_first(problem, _lost[context], device)
        return
    _blame_launches(problem, {each: each.in_flight for each in everyone if each.in_flight is not None})
    if not device.emulated:
        _note_loss(problem, device, f"{_FIND} {_SEE}")


def blame_run(problem: DriverError, device: Driver, graph: str, node: Node) -> None:
    """Say of a failure which node it is of: one that ran alone."""
    problem.about(graph=graph, node=node.name, location=node.location, remedy=remedy_of(problem), in_flight=())
    if is_fault(problem) and not device.emulated:
        _note_loss(problem, device, _SEE)


def _note_loss(problem: DriverError, device: Driver, advice: str) -> None:
    """Remember that a context is lost, and say so."""
    where, known = (device.name, device.context), (problem.graph, problem.bucket)
    _lost[where] = _Fault(problem.call, problem.code_name, *known, problem.in_flight or ())
    lost = f"The context of {device.name} is lost: each later call fails, and only a new process helps."
    problem.about(remedy=f"{problem.remedy} {lost} {advice}")


@contextmanager
def told(device: Driver) -> Iterator[None]:
    """Around driver calls that may tell of faults of any exec: these are explained."""
    try:
        yield
    except DriverError as problem:
        explain(problem, device)
        raise


def is_lost(device: Driver) -> bool:
    """True if a fault was reported that took the context of a device."""
    return (device.name, device.context) in _lost


def _blame_node(problem: DriverError, everyone: list[Launches]) -> None:
    for launches in everyone:
        node = launches.node_of(problem.node_handle)
        if node is not None:
            known = {"graph": launches.graph, "node": node.name, "location": node.location}
            problem.about(**known, bucket=launches.bucket or problem.bucket)
            if isinstance(problem, MemoryFault):
                launches.say_array(problem, node)
            return


def _blame_launches(problem: DriverError, launches: Mapping[Launches, InFlight]) -> None:
    in_flight = tuple(launches.values())
    graphs, buckets = {each.graph for each in launches}, {each.bucket for each in launches}
    each_shown = [f"{told}{by.of_bucket}" for by, told in launches.items()][:_MOST_SHOWN]
    shown = ", ".join(each_shown) or "no launch of a graph: other work must have failed"
    more = f" and those of {len(in_flight) - _MOST_SHOWN} more execs" if len(in_flight) > _MOST_SHOWN else ""
    problem.about(
        graph=graphs.pop() if len(graphs) == 1 else None,
        bucket=buckets.pop() if len(buckets) == 1 else None,
        rule=f"{problem.rule}. In flight: {shown}{more}",
        in_flight=in_flight,
    )


def _blame_first(problem: DriverError, first: _Fault, device: Driver) -> None:
    """Say that the call heard of a fault that was reported before."""
    of = "" if first.graph is None else f", with launches of graph {first.graph!r} in flight"
    problem.about(
        graph=first.graph,
        bucket=first.bucket,
        rule=f"{problem.call} returned {problem.code_name} ({problem.code}): the context of {device.name} was lost "
        f"before, when {first.call} returned {first.code_name}{of}",
        remedy=f"Start a new process. {_FIND} {_SEE}",
        in_flight=first.in_flight,
    )


@contextmanager
def building(plan: Plan, device: Driver) -> Iterator[None]:
    """Around the driver calls that build an exec: an error names the graph, and what it takes if memory is short."""
    try:
        yield
    except DriverError as problem:
        explain(problem, device)
        if not is_fault(problem):
            problem.about(graph=plan.name)
        if problem.code == OUT_OF_MEMORY:
            problem.about(rule=f"{problem.rule}; {taken(plan)}")
        raise


def taken(plan: Plan) -> str:
    """What a graph takes of memory, as a sentence."""
    buffers = [buffer for buffer in plan.buffers.values() if not buffer.external]
    sizes = {
        what: sum(buffer.allocation_nbytes for buffer in buffers if (buffer.space == "device") is on_device)
        for what, on_device in (("on the device", True), ("on the host", False))
    }
    largest = sorted(buffers, key=lambda buffer: -buffer.allocation_nbytes)[:_MOST_SHOWN]
    arrays = ", ".join(f"{buffer.name} {size_text(buffer.allocation_nbytes)}" for buffer in largest)
    total = " and ".join(f"{size_text(nbytes)} {what}" for what, nbytes in sizes.items() if nbytes)
    nodes = f"the graph has {len(plan.nodes)} node{'' if len(plan.nodes) == 1 else 's'}"
    return f"{nodes}, and its arrays take {total} (largest: {arrays})" if total else nodes
