"""Work that many threads may ask for at once, and that one of them does.

This module must not know what the work is.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable
from threading import Condition, get_ident

from graphdsl.errors import GraphdslError


class _Job:
    """Work that a thread does, and what came of it."""

    __slots__ = ("done", "error", "thread")

    def __init__(self) -> None:
        self.thread = get_ident()
        self.done = False
        self.error: Exception | None = None


class Once:
    """The jobs that are being done now.

    Parameters
    ----------
    changed : Condition
        Is told of each end; its lock guards the jobs.

    Attributes
    ----------
    held_by : int or None
        The thread for which no job begins but those that a job asks for.
    """

    def __init__(self, changed: Condition) -> None:
        self._changed = changed
        self._jobs: dict[Hashable, _Job] = {}
        self.held_by: int | None = None

    @property
    def idle(self) -> bool:
        """True if there is none."""
        return not self._jobs

    @property
    def alone(self) -> bool:
        """True if there is none but those of this thread."""
        me = get_ident()
        return all(job.thread == me for job in self._jobs.values())

    @property
    def mine(self) -> bool:
        """True if this thread does one."""
        me = get_ident()
        return any(job.thread == me for job in self._jobs.values())

    def do(self, key: Hashable, work: Callable[[], None]) -> None:
        """Do work, or wait until another thread has done it.

        Parameters
        ----------
        key : hashable
            What work it is.
        work : callable
            Does it. If it raises, so does each thread that waits for it; who comes later tries again.

        Raises
        ------
        GraphdslError
            If the work asks for itself.
        """
        me = get_ident()
        with self._changed:
            self._changed.wait_for(lambda: self.held_by is None or self.mine)
            job = self._jobs.get(key)
            if job is not None:
                if job.thread == me:
                    raise GraphdslError(
                        "building a graph asks the cache for what is being built",
                        bucket=key,
                        remedy="Ask the cache outside of build.",
                    )
                other = job
                self._changed.wait_for(lambda: other.done)
                if other.error is not None:
                    raise _again(other.error)
                return
            job = self._jobs[key] = _Job()
        try:
            work()
        except Exception as problem:
            job.error = problem
            raise
        finally:  # an interrupt is for this thread alone: those that wait find the work undone, and ask again
            with self._changed:
                del self._jobs[key]
                job.done = True
                self._changed.notify_all()
            del job  # else the error, whose traceback has this frame, would keep itself and all that failed


def _again(problem: Exception) -> Exception:
    """An error for one more thread, so that each has a traceback of its own."""
    if not isinstance(problem, GraphdslError):
        return problem
    made = copy.copy(problem)
    made.__cause__ = problem.__cause__ or problem
    return made
