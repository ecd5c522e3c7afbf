"""Waits, triggers and conditions in emulated kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numba import cuda
from numba.cuda import types

import graphdsl as gd
from graphdsl import device as device_functions
from graphdsl.compile.image import ArrayValue
from graphdsl.compile.signature import pack
from graphdsl.device import grid_dependency_wait
from graphdsl.drivers.emulator.graph import Condition
from graphdsl.drivers.emulator.kernels import EmulatedKernel
from graphdsl.drivers.emulator.launch_control import Called
from graphdsl.drivers.emulator.memory import AddressSpace
from graphdsl.drivers.emulator.problems import LAUNCH_FAILED, Problem
from graphdsl.drivers.emulator.scheduler import Place
from graphdsl.errors import DriverError
from tests.drivers.emulator.conftest import Bench, Fresh, image_of

INTS = types.int64[::1]


class Ints:
    """An array of eight integers in emulated memory, and kernels that get it as their only argument."""

    def __init__(self) -> None:
        self.space = AddressSpace(2**20)
        self.address = self.space.allocate(64).base
        self[:] = 0

    def __getitem__(self, index: Any) -> Any:
        return self.space.reading(self.address, 64).view(np.int64)[index].tolist()

    def __setitem__(self, index: Any, value: Any) -> None:
        self.space.writing(self.address, 64).view(np.int64)[index] = value

    def kernel(self, function: Callable[..., Any]) -> EmulatedKernel:
        return EmulatedKernel(image_of(function, INTS))

    def run(self, kernel: Any, grid: int = 1, block: int = 1, **options: Any) -> Called:
        made = kernel if isinstance(kernel, EmulatedKernel) else self.kernel(kernel)
        parameters = pack(made.image.layout, [ArrayValue(self.address, (8,), (8,))])
        return made.run(self.space, Place(grid, 1, 1), Place(block, 1, 1), 0, parameters, **options)


@pytest.fixture
def ints() -> Ints:
    return Ints()


def test_a_launch_says_what_it_called(ints: Ints) -> None:
    def neither(x):
        x[0] = 1

    def waits(x):
        if cuda.threadIdx.x == 1:
            grid_dependency_wait()

    def triggers(x):
        gd.device.launch_dependents()

    def both(x):
        device_functions.launch_dependents()
        device_functions.grid_dependency_wait()

    assert ints.run(neither) == (False, False)
    assert ints.run(waits) == (False, False)
    assert ints.run(waits, block=2) == (True, False)
    assert ints.run(triggers) == (False, True)
    assert ints.run(both) == (True, True)


def test_what_stands_before_a_wait_sees_memory_as_it_was(ints: Ints) -> None:
    def kernel(x):
        i = cuda.threadIdx.x
        before = x[7]
        grid_dependency_wait()
        x[i] = 10 * before + x[7]

    def before() -> None:
        ints[7] = 5

    ints[7] = 1
    assert ints.run(kernel, block=4, before_wait=before).waited
    assert ints[:4] == [15] * 4


def test_without_a_wait_nothing_is_run_before(ints: Ints) -> None:
    def kernel(x):
        x[0] = x[7] + 1

    called = ints.run(kernel, before_wait=lambda: pytest.fail("called"))
    assert not called.waited
    assert ints[0] == 1


def test_threads_that_do_not_wait_run_before_those_that_do(ints: Ints) -> None:
    def kernel(x):
        i = cuda.threadIdx.x
        if i == 0:
            grid_dependency_wait()
        x[i] = x[7]

    ints.run(kernel, block=4, before_wait=lambda: ints.__setitem__(7, 5))
    assert ints[:4] == [5, 0, 0, 0]


def test_of_a_large_block_the_first_threads_see_memory_as_it_was(ints: Ints) -> None:
    def kernel(x):
        early = x[7]
        grid_dependency_wait()
        if cuda.threadIdx.x < 8:
            x[cuda.threadIdx.x] = x[cuda.threadIdx.x] + 10 * early + x[7]

    ints.run(kernel, block=200, before_wait=lambda: ints.__setitem__(7, 5))
    assert ints[:7] == [5] * 7


def test_one_thread_may_wait_for_all_behind_a_barrier(ints: Ints) -> None:
    def kernel(x):
        i = cuda.threadIdx.x
        early = x[7]
        if i == 0:
            grid_dependency_wait()
        cuda.syncthreads()
        x[i] = 10 * early + x[7]

    ints.run(kernel, block=4, before_wait=lambda: ints.__setitem__(7, 5))
    assert ints[:4] == [5] * 4


def test_what_is_waited_for_runs_once_for_all_blocks_and_waits(ints: Ints) -> None:
    def kernel(x):
        grid_dependency_wait()
        x[cuda.blockIdx.x] = x[7]
        grid_dependency_wait()

    calls = []

    def before() -> None:
        calls.append(ints[:4])
        ints[7] = len(calls)

    ints.run(kernel, grid=4, block=2, before_wait=before)
    assert calls == [[0, 0, 0, 0]]
    assert ints[:4] == [1] * 4


def test_the_kernel_itself_may_be_what_is_waited_for(ints: Ints) -> None:
    def step(x):
        kept = cuda.shared.array(2, types.int64)
        i, before = cuda.threadIdx.x, x[7]
        kept[i] = x[0]
        grid_dependency_wait()
        cuda.syncthreads()
        if i == 0:
            x[0] = x[0] + 1
            x[1] = 10 * x[1] + before + kept[1] + cuda.blockDim.x

    kernel = ints.kernel(step)

    def run(times: int) -> None:
        ints.run(kernel, block=2, before_wait=(lambda: run(times - 1)) if times else None)

    run(3)
    # Four launches, each of which read 0 before its wait.
    assert ints[:2] == [4, 2222]
    assert ints.run(kernel, block=2).waited
    assert ints[:2] == [5, 22226]


def test_failures_of_what_is_waited_for_are_its_own(ints: Ints) -> None:
    def outer(x):
        grid_dependency_wait()
        x[0] = 1

    def inner(x):
        x[100] = 1

    kernel = ints.kernel(outer)
    for block in (1, 4):
        with pytest.raises(Problem) as caught:
            ints.run(kernel, block=block, before_wait=lambda: ints.run(inner))
        assert "of kernel 'inner'" in caught.value.rule
        assert "'outer'" not in caught.value.rule
    ints.run(kernel, block=4)
    assert ints[0] == 1


def test_interrupts_pass(ints: Ints) -> None:
    def kernel(x):
        grid_dependency_wait()

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ints.run(kernel, block=3, before_wait=interrupted)


def test_failures_behind_a_wait_name_the_thread(ints: Ints) -> None:
    def kernel(x):
        grid_dependency_wait()
        if cuda.threadIdx.x == 2:
            x[9] = 1

    with pytest.raises(Problem, match=r"thread \(2, 0, 0\) of block \(0, 0, 0\) of kernel 'kernel'"):
        ints.run(kernel, block=4, before_wait=lambda: None)


# Conditions


def sets(x):
    if cuda.grid(1) == 0:
        device_functions.set_condition(x[0], x[1] > 3)
        gd.device.set_condition(value=x[1], handle=x[2])


def condition(value: int | None = None) -> Condition:
    return Condition(0, False, context=1, value=value)


def values_of(conditions: dict[int, Condition]) -> dict[int, int | None]:
    return {handle: condition.value for handle, condition in conditions.items()}


def test_conditions_are_set(ints: Ints) -> None:
    conditions = {0x10: condition(), 0x20: condition(7), 0x30: condition(1)}
    ints[:3] = [0x10, 5, 0x20]
    ints.run(sets, block=4, conditions=conditions)
    assert values_of(conditions) == {0x10: 1, 0x20: 5, 0x30: 1}
    ints[1] = -1
    ints.run(sets, conditions=conditions)
    assert values_of(conditions) == {0x10: 0, 0x20: 0xFFFFFFFF, 0x30: 1}
    assert all(type(value) is int for value in values_of(conditions).values())


def test_a_handle_that_nobody_made_is_an_error(ints: Ints) -> None:
    ints[:3] = [0x10, 5, 0x99]
    conditions = {0x10: condition()}
    with pytest.raises(Problem, match=r"handle 0x99, and no condition .*test_launch_control\.py") as caught:
        ints.run(sets, conditions=conditions)
    assert caught.value.code == LAUNCH_FAILED
    with pytest.raises(Problem, match="handle 0x10"):
        ints.run(sets)


def test_nodes_set_the_conditions_of_their_machine(bench: Bench) -> None:
    def kernel(handle, out):
        device_functions.set_condition(handle, 3)
        out[0] = 1

    conditions = bench.device._machine.conditions
    with pytest.raises(DriverError, match="handle 0x70"):
        bench.run(kernel, 1, 1, np.uint64(0x70), Fresh(1, np.int32))
    conditions[0x70] = condition()
    bench.run(kernel, 1, 1, np.uint64(0x70), Fresh(1, np.int32))
    assert values_of(conditions) == {0x70: 3}
