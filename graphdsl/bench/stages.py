"""What building a graph costs, stage by stage: on a GPU, or in the emulator where there is none."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from graphdsl.bench.measure import Budget, Samples, no_collection, rounds, timed
from graphdsl.bench.records import Case
from graphdsl.bench.shapes import shape
from graphdsl.bench.timed_driver import TimedDriver
from graphdsl.plan import plan

if TYPE_CHECKING:
    from graphdsl.drivers.base import Driver
    from graphdsl.graph import Graph
    from graphdsl.run.graph_exec import GraphExec


def stages(case: Case, device: Driver, budget: Budget) -> Samples:
    """Build a graph again and again, and time the stages.

    Returns
    -------
    dict of str to list of float
        ``declare``, ``check`` and ``plan``: the stages that need no driver. ``first_exec``: `Graph.instantiate` in all,
        and of it ``pack`` (all that is neither check, plan nor driver), ``emit`` (the driver's calls that make graph,
        nodes and edges), ``instantiation`` and ``upload_api_time``. ``build``: declaring, checking, planning, packing
        and emitting, without the rest of what the driver does. ``second_exec`` and ``second_emit``: an exec more of
        the same graph.
    """
    driver: Any = TimedDriver(device)
    found: Samples = defaultdict(list)
    # Its exec is kept, so that the kernel is compiled and loaded before anything is timed, and stays so.
    with shape(case.shape, 1).instantiate(driver), no_collection():
        for _ in rounds(budget):
            for metric, time in _built_once(case, driver).items():
                found[metric].append(time)
    return dict(found)


def _built_once(case: Case, driver: Any) -> dict[str, float]:
    made: list[Graph] = []
    execs: list[GraphExec] = []
    times = {"declare": timed(lambda: made.append(shape(*case)))}
    (graph,) = made
    times["check"] = timed(lambda: graph.check(driver))
    times["plan"] = timed(lambda: plan(graph))
    driver.reset()
    times["first_exec"] = timed(lambda: execs.append(graph.instantiate(driver)))
    times["emit"] = driver.emission
    times["instantiation"] = driver.spent["graph_instantiate_with_params"]
    times["upload_api_time"] = driver.spent["graph_upload"]
    times["pack"] = times["first_exec"] - times["check"] - times["plan"] - driver.total
    times["build"] = times["declare"] + times["first_exec"] - driver.total + driver.emission
    driver.reset()
    times["second_exec"] = timed(lambda: execs.append(graph.instantiate(driver)))
    times["second_emit"] = driver.emission
    for made_exec in execs:
        made_exec.close()
    return times
