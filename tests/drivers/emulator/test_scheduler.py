from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdsl.drivers.emulator.scheduler import Place, Scheduler, ThreadError


def run(call: Any, dims: tuple[int, int, int], blocks: int = 1) -> None:
    """Run ``call(scheduler)`` in every thread of some blocks, and hold it to leave none behind."""
    begun, ended = [], []

    def counted() -> None:
        begun.append(None)
        try:
            call(made)
        finally:
            ended.append(None)

    made = Scheduler(counted, Place(*dims))
    try:
        for block in range(blocks):
            made.run(Place(block, 0, 0))
    finally:
        made.close()
        assert len(ended) == len(begun)


def test_threads_run_in_order_x_first_in_the_calling_python_thread() -> None:
    seen = []
    run(lambda s: seen.append((*s.current.index, s.current.rank, threading.get_ident())), (2, 2, 2))
    assert [entry[:3] for entry in seen[:3]] == [(0, 0, 0), (1, 0, 0), (0, 1, 0)]
    assert [entry[3] for entry in seen] == list(range(8))
    assert {entry[4] for entry in seen} == {threading.get_ident()}


def test_threads_see_what_the_others_brought() -> None:
    seen = {}

    def call(s: Scheduler) -> None:
        rank = s.current.rank
        seen[rank] = s.meet("block", rank * rank)

    run(call, (4, 1, 1), blocks=2)
    assert seen == {rank: {0: 0, 1: 1, 2: 4, 3: 9} for rank in range(4)}


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12))
def test_no_thread_passes_a_barrier_before_all_that_still_run_have_come(rounds: list[int]) -> None:
    log = []

    def call(s: Scheduler) -> None:
        rank = s.current.rank
        for phase in range(rounds[rank]):
            log.append(phase)
            met = s.meet("block")
            assert s.current.rank == rank
            assert set(met) == {other for other, count in enumerate(rounds) if count > phase}

    run(call, (len(rounds), 1, 1), blocks=2)
    half = len(log) // 2
    assert log[:half] == sorted(log[:half]) == log[half:]


@given(st.lists(st.sampled_from(["block", "half", "end"]), min_size=4, max_size=4))
def test_every_outcome_ends(plans: list[str]) -> None:
    """Whatever threads wait for, a block ends, well or with an error that names a thread; nothing hangs or stays."""
    halves = ([0, 1], [2, 3])

    def call(s: Scheduler) -> None:
        rank = s.current.rank
        if plans[rank] == "block":
            s.meet("block")
        elif plans[rank] == "half":
            s.meet(rank // 2, None, halves[rank // 2])

    stuck = any(set(half) == {"half", "block"} for half in (plans[:2], plans[2:]))
    if stuck:
        with pytest.raises(ThreadError, match="thread"):
            run(call, (4, 1, 1))
    else:
        run(call, (4, 1, 1))


@pytest.mark.parametrize("failing", [0, 2, 5])
def test_a_failure_unwinds_the_threads_that_wait(failing: int) -> None:
    unwound = []

    def call(s: Scheduler) -> None:
        rank = s.current.rank
        try:
            s.meet("block")
            if rank == failing:
                raise KeyError(rank)
            s.meet("block")
        finally:
            unwound.append(rank)

    with pytest.raises(ThreadError) as caught:
        run(call, (6, 1, 1))
    assert (caught.value.thread, caught.value.block) == ((failing, 0, 0), (0, 0, 0))
    assert isinstance(caught.value.__cause__, KeyError)
    assert sorted(unwound) == list(range(6))


@pytest.mark.parametrize("where", [0, 3])
def test_an_interrupt_comes_through(where: int) -> None:
    def call(s: Scheduler) -> None:
        s.meet("block")
        if s.current.rank == where:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(call, (4, 1, 1))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.data())
def test_who_lets_others_go_first_goes_on_when_nobody_else_can(barriers: list[int], data: st.DataObject) -> None:
    last = data.draw(st.sets(st.sampled_from(range(len(barriers)))))
    log: list[str] = []

    def call(s: Scheduler) -> None:
        rank = s.current.rank
        if rank in last:
            s.let_others_go_first(lambda: log.append("action"))
            assert s.current.rank == rank
            log.append("after")
        else:
            log.append("other")
        for _ in range(barriers[rank]):
            s.meet("block")

    run(call, (len(barriers), 1, 1))
    others = len(barriers) - len(last)
    assert log == ["other"] * others + (["action"] + ["after"] * len(last) if last else [])


@pytest.mark.parametrize("threads", [1, 5, 32, 100])
def test_an_action_that_fails_ends_the_launch_and_leaves_no_thread_behind(threads: int) -> None:
    calls = []

    def action() -> None:
        calls.append(None)
        raise ZeroDivisionError

    def call(s: Scheduler) -> None:
        s.let_others_go_first(action)

    with pytest.raises(ZeroDivisionError):
        run(call, (threads, 1, 1))
    assert len(calls) == 1


def test_no_more_than_a_warp_waits_for_others_to_go_first() -> None:
    waiting: list[int] = []
    asleep: list[int] = []

    def call(s: Scheduler) -> None:
        waiting.append(s.current.rank)
        s.let_others_go_first(lambda: asleep.append(len(waiting)))
        waiting.remove(s.current.rank)

    run(call, (80, 1, 1))
    assert asleep == [32, 64, 16]  # those that were let go run when no thread is left to start


def test_what_a_thread_does_when_it_is_unwound_changes_nothing() -> None:
    def call(s: Scheduler) -> None:
        try:
            s.meet("block")
            if s.current.rank == 1:
                raise KeyError("first")
            s.meet("block")
        finally:
            if s.current.rank != 1:
                s.meet("block")
            raise ValueError("afterwards")

    with pytest.raises(ThreadError) as caught:
        run(call, (4, 1, 1))
    assert isinstance(caught.value.__cause__, ValueError)  # of thread 1, which was not unwound
    assert isinstance(caught.value.__cause__.__context__, KeyError)


def test_floating_point_errors_are_ignored_in_every_thread() -> None:
    seen = []

    def call(s: Scheduler) -> None:
        s.meet("block")
        seen.append(float(np.float32(1) / np.float32(s.current.rank)))

    with np.errstate(all="ignore"):
        run(call, (2, 1, 1))
    assert seen == [np.inf, 1]


def test_a_nested_launch_runs_where_threads_of_the_outer_one_wait() -> None:
    log = []

    def inner(s: Scheduler) -> None:
        s.meet("block")
        log.append(f"inner {s.current.rank}")

    def call(s: Scheduler) -> None:
        s.let_others_go_first(lambda: run(inner, (2, 1, 1)))
        log.append(f"outer {s.current.rank}")

    run(call, (2, 1, 1))
    assert log == ["inner 0", "inner 1", "outer 0", "outer 1"]
