"""A graph that some library has built, and what is measured of it: the same for all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from graphdsl.bench.measure import Action, Budget, Samples, launched, launches, no_collection, repeated, rounds
from graphdsl.bench.peers import Setting
from graphdsl.bench.peers.gpu import DeviceClock, Handle
from graphdsl.bench.records import Case

_LAUNCHES = 100  # in a row; many more would fill the stream's queue, and wait for the device


def _nothing() -> None:
    pass


@dataclass
class Built:
    """What a library made of a case.

    Attributes
    ----------
    launch : callable
        Launches it once, as a user of the library would.
    synchronize : callable
        Waits for the launches.
    launch_on : callable, optional
        Launches it into a stream, given by its handle.
    stages : dict of str to float
        What building it took, in microseconds, by metric.
    launch_one : callable, optional
        Launches one kernel into the stream that `synchronize` waits for, without a graph.
    updates : dict of str to callable
        Ways to change it, by metric: each call must change something. They are timed in order.
    require_result : callable
        Raises if the first launch did not do what it should have.
    close : callable
        Gives everything back.
    """

    launch: Action
    synchronize: Action
    launch_on: Callable[[Handle], Any] | None = None
    stages: Mapping[str, float] = field(default_factory=dict)
    launch_one: Action | None = None
    updates: Mapping[str, Action] = field(default_factory=dict)
    require_result: Action = _nothing
    close: Action = _nothing


def measure_built(build: Callable[[], Built], case: Case, setting: Setting) -> Samples:
    """Build a graph again and again; launch the last, and change it.

    Returns
    -------
    dict of str to list of float
        The stages of building, ``first_launch_api``, ``first_launch_total``, ``repeat_launch_api``,
        ``repeat_launch_total``, ``repeat_launch_device``, and the updates that the library has; with the graph of one
        node also ``stream_launch``.
    """
    budget = setting.budget(case)
    found: Samples = defaultdict(list)
    last = build()  # the warm-up: code is loaded, memory is allocated
    launched(last.launch, last.synchronize)
    with no_collection():
        for _ in rounds(budget):
            last.close()
            last = build()
            api, total = launched(last.launch, last.synchronize)
            last.require_result()
            for metric, time in {**last.stages, "first_launch_api": api, "first_launch_total": total}.items():
                found[metric].append(time)
        found.update(_measure_last(last, budget))
        if last.launch_one is not None and case.nodes == 1:
            found["stream_launch"] = _stream_launches(last.launch_one, last.synchronize, budget)
    last.close()
    return dict(found)


def _stream_launches(launch_one: Action, synchronize: Action, budget: Budget) -> list[float]:
    """Processor time of a launch into a stream, as one of many."""

    def many() -> None:
        for _ in range(_LAUNCHES):
            launch_one()

    launched(many, synchronize)
    return [launched(many, synchronize)[0] / _LAUNCHES for _ in rounds(budget)]


def _measure_last(built: Built, budget: Budget) -> Samples:
    found: Samples = launches(built.launch, built.synchronize, budget)
    if built.launch_on is not None:
        with DeviceClock() as clock:
            found["repeat_launch_device"] = clock.measure(built.launch_on, budget)
            built.synchronize()  # a library may keep account of the streams it launched into
    for metric, update in built.updates.items():
        found[metric] = repeated(update, budget)
    return found
