"""What the functions of `graphdsl.device` do in an emulated kernel.

A kernel behind a programmatic edge may start before the one in front of it has written anything, and sees what that one
writes only behind `grid_dependency_wait`. So here the kernel behind runs first, up to its wait, and the wait runs the
kernel in front: where a wait is missing or stands too late, the old contents of memory show, in every run. This module
must not know graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from graphdsl.drivers.emulator.scheduler import Scheduler

_VALUE_BITS = 0xFFFF_FFFF


class Settable(Protocol):
    """A condition, as far as kernels know it."""

    value: int | None


class Called(NamedTuple):
    """What a launch called.

    Attributes
    ----------
    waited : bool
        True if a thread called `grid_dependency_wait`.
    triggered : bool
        True if one called `launch_dependents`.
    """

    waited: bool
    triggered: bool


class LaunchControl:
    """The functions, for one launch.

    Parameters
    ----------
    scheduler : Scheduler
        Runs its threads.
    before_wait : callable, optional
        Runs what the launch waits for; called once, before the first wait returns.
    conditions : mapping of int to Settable
        The conditions of the device, by their handles.
    """

    def __init__(
        self, scheduler: Scheduler, before_wait: Callable[[], Any] | None, conditions: Mapping[int, Settable]
    ) -> None:
        self._scheduler = scheduler
        self._before_wait = before_wait
        self._conditions = conditions
        self._waited = self._triggered = False

    @property
    def called(self) -> Called:
        """What was called until now."""
        return Called(self._waited, self._triggered)

    def grid_dependency_wait(self) -> None:
        """Let the other threads of the block come as far as they can, then what the launch waits for."""
        self._waited = True
        if self._before_wait is not None:
            self._scheduler.let_others_go_first(self._run_before)

    def _run_before(self) -> None:
        before, self._before_wait = self._before_wait, None
        if before is not None:
            before()

    def launch_dependents(self) -> None:
        """Nothing but a note: what is behind runs before this launch or in its waits, not beside it."""
        self._triggered = True

    def set_condition(self, handle: Any, value: Any) -> None:
        """Set a condition; on a GPU, what a wrong handle does is undefined."""
        handle = int(handle)
        if handle not in self._conditions:
            raise ValueError(
                f"set_condition was given the handle {handle:#x}, and no condition of this device has it: pass the "
                "condition of the conditional node as an argument"
            )
        self._conditions[handle].value = int(value) & _VALUE_BITS
