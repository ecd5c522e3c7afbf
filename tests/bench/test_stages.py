"""Building is told apart into stages; what each took must add up."""

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.bench.measure import Budget
from graphdsl.bench.records import Case
from graphdsl.bench.shapes import ELEMENTS
from graphdsl.bench.shapes import shape as shape_of
from graphdsl.bench.stages import stages
from graphdsl.bench.timed_driver import TimedDriver
from tests.bench.test_measure import Clock


class Device:
    """A driver whose calls take known times."""

    name = "pretended"

    def __init__(self, clock):
        self.clock = clock

    def graph_create(self):
        self.clock.now += 1000
        return 7

    def graph_add_nodes(self, graph, kinds, params=None):
        self.clock.now += 5000
        return [graph, kinds, params]

    def graph_launch(self):
        self.clock.now += 2000
        raise gd.DriverError("cuGraphLaunch", 1, "CUDA_ERROR_INVALID_VALUE")


def test_a_timed_driver_passes_on_and_notes_times():
    clock = Clock()
    driver = TimedDriver(Device(clock), clock)
    assert driver.name == "pretended"
    assert driver.graph_create() == driver.graph_create() == 7
    assert driver.graph_add_nodes(1, 2, params=3) == [1, 2, 3]
    assert driver.spent == {"graph_create": 2.0, "graph_add_nodes": 5.0}
    assert driver.last == {"graph_create": 7, "graph_add_nodes": [1, 2, 3]}
    assert (driver.emission, driver.total) == (7.0, 7.0)


def test_a_timed_driver_notes_what_fails_and_forgets_when_told():
    clock = Clock()
    driver = TimedDriver(Device(clock), clock)
    with pytest.raises(gd.DriverError):
        driver.graph_launch()
    assert (driver.total, driver.emission) == (2.0, 0.0)
    driver.reset()
    assert driver.total == 0
    driver.graph_create()
    assert driver.total == 1.0


@pytest.mark.parametrize("shape", ["chain", "diamond"])
def test_the_stages_of_a_build_add_up(shape):
    device = gd.emulator()
    found = stages(Case(shape, 20), device, Budget(0.0, 2, 2))
    assert {len(samples) for samples in found.values()} == {2}
    for i in range(2):
        at = {metric: samples[i] for metric, samples in found.items()}
        parts = at["check"] + at["plan"] + at["pack"] + at["emit"] + at["instantiation"] + at["upload_api_time"]
        assert 0 < at["emit"] < at["first_exec"]
        assert parts < at["first_exec"] * 1.001  # memory and streams are the driver's, too
        assert at["build"] < at["declare"] + at["first_exec"]
        assert at["second_emit"] < at["second_exec"]
    assert not any(device.live.values()), device.live


def test_a_timed_driver_shares_memory_with_the_driver_it_stands_for():
    device = gd.emulator()
    memory = gd.to_device(device, np.zeros(ELEMENTS, np.float32))
    with shape_of("chain", 3, memory=memory).instantiate(TimedDriver(device)) as graph_exec:
        graph_exec.launch()
        graph_exec.synchronize()
    assert memory.copy_to_host()[0] == 3
